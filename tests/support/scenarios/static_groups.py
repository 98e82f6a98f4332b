"""A static group of one kind of stock member, each in a process of its own, and the broker that has it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from kohort import Admin, Broker
from support.peers.member_process import MemberProcess
from support.waiting import until

TOPIC: Final = "t"
PARTITIONS: Final = 6
#: Short, so that a killed member is noticed, and no shorter than a process may stand still on a busy machine.
SESSION_MS: Final = 3_000
CONFIG: Final = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 100,
}
#: Longer than any test: nobody goes for being away, and nobody is let in, unless the test says so.
LONG_MS: Final = 600_000
_CLASSIC: Final = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 200}
#: Kind of member -> program of `MemberProcess`, and what it is told.
KINDS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "librdkafka, consumer": ("librdkafka", {"group_protocol": "consumer"}),
    "librdkafka, classic": ("librdkafka", {"group_protocol": "classic", **_CLASSIC}),
    "kafka-python": ("kafka-python", _CLASSIC),
    "aiokafka": ("aiokafka", _CLASSIC),
    "Java, consumer": ("java", {"group_protocol": "consumer"}),
    "Java, classic": ("java", {"group_protocol": "classic", **_CLASSIC}),
    "kohort, consumer": ("kohort", {"group_protocol": "consumer"}),
    "kohort, classic": ("kohort", {"group_protocol": "classic", **_CLASSIC}),
}
#: Rows of a group's history that say that its partitions were shared out.
_SHARED_OUT: Final = ("target_computed", "generation_began")


class StaticGroup:
    """The group "g"; `stack` ends its members."""

    def __init__(self, broker: Broker, admin: Admin, stack: ExitStack, kind: str) -> None:
        self.name: Final = "g"
        self.members: Final[dict[str, MemberProcess]] = {}
        self._address: Final = broker.bootstrap_servers
        self._admin: Final = admin
        self._stack: Final = stack
        self._program, self._options = KINDS[kind]
        self._pause: Final = threading.Event()

    def start(self, name: str | None, *, called: str | None = None) -> MemberProcess:
        """A process with this `group.instance.id`, known to the test as `called`."""
        options = self._options if name is None else {**self._options, "group_instance_id": name}
        member = self._stack.enter_context(MemberProcess(self._program, self._address, self.name, TOPIC, options))
        self.members[called or name or "nobody"] = member
        return member

    def rebalances(self) -> int:
        """How often partitions were shared out, but for what kafka-python's leader has done again by itself.

        A `poll` of kafka-python 3.0.12 that runs out while its join is under way lets the next one join again, when
        that finds the join done: a leader has everybody share out once more, and on a busy machine again and again.
        """
        events = self._admin.group_history(self.name).events
        times = sum(row.times for row in events if row.event in _SHARED_OUT)
        if self._program == "kafka-python":
            begun = [row.details["why"] for row in events if row.event == "rebalance_began"]
            times -= sum(why.startswith("leader ") and why.endswith(" rejoined") for why in begun)
        return times

    def moves(self) -> int:
        """How often partitions went from one member to another."""
        return sum(row.times for row in self._admin.group_history(self.name).events if row.event == "partitions_moved")

    def refusals(self) -> int:
        """How many requests were refused."""
        return sum(row.times for row in self._admin.group_history(self.name).events if row.event == "refused")

    def is_there(self) -> bool:
        """Whether the broker knows it."""
        return any(row.group_id == self.name for row in self._admin.list_groups())

    def named(self) -> list[str]:
        """Names of those whom the broker has as members."""
        return sorted(row.instance_id or "" for row in self._admin.describe_group(self.name).members)

    def offline(self) -> list[str]:
        """Names of those that are away."""
        rows = self._admin.describe_group(self.name).members
        return sorted(row.instance_id or "" for row in rows if row.offline_since_ms is not None)

    def wait(self, happened: object, what: str) -> None:
        """Until that holds; a failure tells what the members said."""

        def tell() -> str:
            said = {name: (sorted(each.held), each.errors[-3:]) for name, each in self.members.items()}
            logged = [line for each in self.members.values() for line in each.logged[-3:]]
            return f"{what}; {said}; {self._admin.describe_groups([self.name])}; {logged}"

        assert callable(happened)
        until(happened, what=tell, step=lambda: self._pause.wait(0.02))

    def wait_for_shares(self, names: Sequence[str]) -> None:
        """Until these members have everything, each as much as another or one partition more."""

        def is_shared() -> bool:
            held = [self.members[name].held for name in names]
            sizes = sorted(map(len, held))
            return len(set().union(*held)) == sum(sizes) == PARTITIONS and sizes[-1] - sizes[0] <= 1

        self.wait(is_shared, f"{', '.join(names)} share {PARTITIONS} partitions")

    def wait_for_fence(self, member: MemberProcess) -> None:
        """Until a member says that its name has passed to another; kafka-python says so in its log, and stays."""
        if self._program != "kafka-python":
            self.wait(lambda: member.has_ended, "the older member ends")
        words = ("fenced", "unknownerror")
        self.wait(
            lambda: any(word in line.lower() for line in (*member.errors, *member.logged) for word in words),
            "the older member says that it was fenced",
        )

    def wait_for_error(self, name: str) -> str:
        """Until the member's client gives up; what it says."""
        member = self.members[name]
        self.wait(lambda: member.has_ended and member.errors, f"{name} gives up")
        return member.errors[-1]
