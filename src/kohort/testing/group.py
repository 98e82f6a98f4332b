"""A group at will: rebalanced, deprived of a member, cut off from its coordinator, waited for, and checked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import kohort
from kohort.errors import BrokerError, ConfigError, ErrorCode, KohortError, StateError
from kohort.testing.faults import ProtocolFaults
from kohort.testing.history import History, check_history

if TYPE_CHECKING:
    from kohort.client.admin.results.groups import GroupDescription

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
    """One group of a cluster, as a test looks at it and acts on it; methods block.

    Args:
        admin: of its cluster.
        group_id: the group, which need not exist yet.
        bootstrap_servers: of its cluster.
        faults: those of its broker; `None`: the broker takes none.
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
        """Return the group as its coordinator has it; `None`: there is none."""
        try:
            return self._admin.describe_group(self.group_id)
        except BrokerError as why:
            if why.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    def wait_for(
        self, *, members: int | None = None, stable: bool = True, timeout_s: float = TIMEOUT_SECONDS
    ) -> GroupDescription | None:
        """Wait until the group has so many members and, with `stable`, nothing is under way in it.

        Returns:
            The group then; `None`: there is none, and 0 members were waited for.

        Raises:
            TimeoutError: it has not come to that; the message says how it is.
        """

        def look() -> tuple[bool, GroupDescription | None]:
            found = self.describe()
            count = 0 if found is None else len(found.members)
            is_so = (members is None or count == members) and (found is not None or members == 0)
            return is_so and (not stable or found is None or found.state in ("Stable", "Empty")), found

        wanted = "any members" if members is None else f"{members} members"
        return self._wait(look, f"{wanted}{' and to be stable' if stable else ''}", timeout_s)

    def kick(self, member: str | None = None) -> list[str]:
        """Remove a member by its client id, instance id or member id; `None`: all. Live ones come back by themselves.

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
        """Force a rebalance: a guest joins the group, is given partitions, and leaves again.

        Every classic eager member gives up all it has, others what goes to the guest; then all of it comes back.
        The guest commits nothing. Its heartbeats and theirs take the time that they take.
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
        """Answer no request of a member to its coordinator, which seems to hang; afterwards members connect again.

        Raises:
            StateError: the broker takes no faults: it is not in this process.
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
        """Wait until exactly these offsets are committed, by (topic, partition); those of other partitions count too.

        Raises:
            AssertionError: others are, when the time is over.
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
        """Check that a history of sends and polls has each acknowledged record read, once and in order.

        Raises:
            AssertionError: it has not; each anomaly is a line.
        """
        anomalies = list(check_history(history.events))
        if anomalies:
            raise AssertionError("\n".join([f"group {self.group_id}:", *map(str, anomalies)]))

    def tell(self) -> str:
        """Return the group's timeline and why its latest rebalances happened, as lines; empty: nothing is known."""
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
