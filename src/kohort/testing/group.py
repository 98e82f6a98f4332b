"""Controls of a group for tests: rebalance it, remove members, freeze it, wait for it, and check it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import kohort
from kohort.errors import BrokerError, ConfigError, ErrorCode, KohortError, StateError
from kohort.testing.faults import ProtocolFaults

if TYPE_CHECKING:
    from kohort.client.admin.results.groups import GroupDescription
    from kohort.testing.history import History

R = TypeVar("R")
#: How long a call waits for a group, unless it is told otherwise.
TIMEOUT_SECONDS: Final = 30.0
_LOOK_EVERY_SECONDS: Final = 0.02
#: The client id of the guest that forces a rebalance.
GUEST: Final = "kohort-guest"
#: What members ask their coordinator.
_ASKED_BY_MEMBERS: Final = (
    "ConsumerGroupHeartbeat",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
)


class TestedGroup:
    """One group of a cluster, for a test to observe and to control; methods block.

    `admin`: a client of the cluster. `faults`: those of the broker; `None` if none can be injected.
    """

    __test__ = False

    def __init__(
        self, admin: kohort.Admin, group_id: str, *, bootstrap_servers: str, faults: ProtocolFaults | None = None
    ) -> None:
        self._admin: Final = admin
        self._bootstrap_servers: Final = bootstrap_servers
        self.group_id: Final = group_id
        self._faults: Final = faults

    def describe(self) -> GroupDescription | None:
        """Return the coordinator's description of the group; `None` if it does not exist."""
        try:
            return self._admin.describe_group(self.group_id)
        except BrokerError as why:
            if why.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    def wait_for(
        self, *, members: int | None = None, stable: bool = True, timeout_s: float = TIMEOUT_SECONDS
    ) -> GroupDescription | None:
        """Wait until the group has this number of members and, with `stable`, is Stable or Empty.

        Returns:
            The group then; `None` if it does not exist, which counts as 0 members.

        Raises:
            TimeoutError: the group has not reached that; the message states its present state.
        """

        def look() -> tuple[bool, GroupDescription | None]:
            found = self.describe()
            count = 0 if found is None else len(found.members)
            is_so = (members is None or count == members) and (found is not None or members == 0)
            return is_so and (not stable or found is None or found.state in ("Stable", "Empty")), found

        wanted = "any members" if members is None else f"{members} members"
        return self._wait(look, f"{wanted}{' and to be stable' if stable else ''}", timeout_s)

    def kick(self, member: str | None = None) -> list[str]:
        """Remove a member by client id, instance id or member id, `None`: all. Live members rejoin.

        Returns:
            The ids of the removed members.
        """
        found = self.describe()
        there = () if found is None else found.members
        chosen = [
            row.member_id
            for row in there
            if member is None or member in (row.client_id, row.instance_id, row.member_id)
        ]
        if not chosen:
            named = ", ".join(row.client_id or row.member_id for row in there) or "none"
            raise ConfigError(f"group {self.group_id} has no member {member!r}: it has {named}")
        return self._admin.remove_members(self.group_id, chosen, reason="a test removed it")

    def rebalance(self, *, timeout_s: float = TIMEOUT_SECONDS) -> None:
        """Force a rebalance: an extra member joins the group, is assigned partitions, and leaves again.

        Classic eager members revoke all their partitions, other members only those of the extra member; later they get
        them back. The extra member commits nothing. All heartbeats run at their normal intervals.
        """
        found = self.describe()
        if found is None or not found.members:
            raise StateError(f"group {self.group_id} has no members that could rebalance")
        topics = sorted({each.topic for row in found.members for each in (*row.assignment, *row.target)})
        if not topics:
            raise StateError(f"the members of group {self.group_id} have no partitions")
        options: dict[str, object] = {"bootstrap.servers": self._bootstrap_servers, "group.id": self.group_id}
        options |= {"group.protocol": found.group_type, "client.id": GUEST, "enable.auto.commit": False}
        if found.group_type == "classic":
            options["partition.assignment.strategy"] = found.assignor
        count = len(found.members)
        deadline = time.monotonic() + timeout_s
        with kohort.Consumer(options) as guest:
            guest.subscribe(topics)
            while not guest.assignment():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"group {self.group_id} gave its guest nothing within {timeout_s:.0f} s")
                guest.poll(_LOOK_EVERY_SECONDS, max_records=1)
        self.wait_for(members=count, timeout_s=max(1.0, deadline - time.monotonic()))

    @contextlib.contextmanager
    def freeze(self) -> Iterator[None]:
        """Let the coordinator seem to hang: members' requests get no response, until the block ends.

        Raises:
            StateError: faults cannot be injected, because the broker is not in this process.
        """
        if self._faults is None:
            raise StateError("a group can be frozen at a kohort.testing.Broker in this process only")
        planted = [self._faults.drop(api, group=self.group_id) for api in _ASKED_BY_MEMBERS]
        try:
            yield
        finally:
            self._faults.remove(planted)

    def committed(self) -> dict[tuple[str, int], int]:
        """Return the group's committed offset of each (topic, partition) that has one."""
        rows = self._admin.group_offsets(self.group_id)
        return {(row.topic, row.partition): row.committed for row in rows if row.committed is not None}

    def assert_committed(self, expected: Mapping[tuple[str, int], int], *, timeout_s: float = TIMEOUT_SECONDS) -> None:
        """Wait until these and no other offsets are committed, by (topic, partition).

        Raises:
            AssertionError: the committed offsets differ when the timeout ends.
        """
        wanted = {(str(topic), int(partition)): offset for (topic, partition), offset in expected.items()}

        def look() -> tuple[bool, dict[tuple[str, int], int]]:
            found = self.committed()
            return found == wanted, found

        try:
            self._wait(look, "", timeout_s)
        except TimeoutError:
            raise AssertionError(
                f"group {self.group_id} has committed {_shown(self.committed())}, not {_shown(wanted)}"
            ) from None

    def assert_read_once(self, history: History) -> None:
        """Check by a history of sends and polls that each acknowledged record was read once and in order.

        Raises:
            AssertionError: that is not so; the message has a line per anomaly.
        """
        from kohort.testing.history import check_history

        anomalies = list(check_history(history.events))
        if anomalies:
            raise AssertionError("\n".join([f"group {self.group_id}:", *map(str, anomalies)]))

    def tell(self) -> str:
        """Return lines with the group's latest rebalances and their reasons; empty if nothing is known."""
        from kohort.journal.words import show_clock

        try:
            told = self._admin.explain_group(self.group_id)
        except KohortError:
            return ""
        lines = [f"{show_clock(row.began_ms)}  {row.sentence}" for row in told.rebalances[-5:]]
        return "\n".join([*lines, told.summary])

    def _wait(self, look: Callable[[], tuple[bool, R]], wanted: str, timeout_s: float) -> R:
        deadline = time.monotonic() + timeout_s
        while True:
            is_so, found = look()
            if is_so:
                return found
            if time.monotonic() > deadline:
                state = self.describe()
                is_now = "is not there" if state is None else f"is {state.state} with {len(state.members)}"
                raise TimeoutError(f"group {self.group_id} was to have {wanted}, and {is_now} after {timeout_s:g} s")
            time.sleep(_LOOK_EVERY_SECONDS)


def _shown(offsets: Mapping[tuple[str, int], int]) -> str:
    each = [f"{topic}-{partition}: {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ", ".join(each) or "nothing"
