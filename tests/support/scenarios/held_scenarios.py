"""What may happen to two members of a group whose heartbeats are held, by every client in every protocol.

Source: requirements H1 and G3; KIP-848 and the classic protocol (who is fenced, and when).
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort import Admin, Broker, Producer
from support.peers.lossy_proxy import ANSWERS, REQUESTS, LossyProxy
from support.peers.member_process import MemberProcess, wait_for
from support.scenarios.client_scenarios import Load

TOPIC: Final = "t"
PARTITIONS: Final = 4
RECORDS: Final = 5
_JAVA: Final = "org.apache.kafka.clients.consumer."
#: Client -> program, options of the protocol.
CLIENTS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "Java, consumer": ("java", {"group_protocol": "consumer"}),
    "Java, range": ("java", {"group_protocol": "classic", "partition_assignment_strategy": f"{_JAVA}RangeAssignor"}),
    "librdkafka, consumer": ("librdkafka", {"group_protocol": "consumer"}),
    "librdkafka, range": ("librdkafka", {"partition_assignment_strategy": "range"}),
    "librdkafka, cooperative": ("librdkafka", {"partition_assignment_strategy": "cooperative-sticky"}),
    "kafka-python": ("kafka-python", {}),
    "aiokafka": ("aiokafka", {}),
    "franz-go": ("franz_go", {}),
    "franz-go, range": ("franz_go", {"partition_assignment_strategy": "range"}),
    "franz-go, consumer": ("franz_go", {"group_protocol": "consumer"}),
    "@platformatic/kafka": ("platformatic", {}),
    "@platformatic/kafka, consumer": ("platformatic", {"group_protocol": "consumer"}),
    "kohort, consumer": ("kohort", {"group_protocol": "consumer"}),
    "kohort, classic": ("kohort", {"group_protocol": "classic"}),
}
#: Clients that are not held, each with its software name; `""`: it sends none. They have rows of their own, to be tried
#: with `group.push.clients`.
NOT_HELD: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "sarama": ("sarama", {}),
    "KafkaJS": ("kafkajs", {}),
}
#: Where nothing that a client could notice happens; clients and broker as they come.
CALM: Final = ("rest", "commits", "leave", "close", "static")
#: A member or the broker is silent, or what they say is lost: sessions are short.
CUTS: Final = {"cut off from the broker": REQUESTS, "not told by the broker": ANSWERS}
BRIEF_CUTS: Final = {"cut off briefly": REQUESTS, "not told briefly": ANSWERS}
ROUGH: Final = (
    *("kill", "stopped briefly", "stopped for long", "broker stands still", "broker killed", "named twice"),
    *CUTS,
    *BRIEF_CUTS,
)
#: What a client does not come through, held or not, and why.
UNABLE: Final = {
    ("@platformatic/kafka", "broker killed"): "its first heartbeat that fails is its last one",
    **dict.fromkeys(
        (("@platformatic/kafka, consumer", event) for event in ("stopped for long", "broker killed", *CUTS)),
        "a member that its group has lost does not join again",
    ),
}
#: The part of the interval for which heartbeats are held, before which librdkafka has to have its answer.
SHARES: Final = {"held for half": 0.5, "held for nine tenths": 0.9}
SESSION_MS: Final = 6_000
INTERVAL_MS: Final = 1_500
SHORT_SESSIONS: Final[dict[str, object]] = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": INTERVAL_MS,
}
#: Why a member goes that was not silent.
_LEFT: Final = ("member left", "left")
#: Words of a time-out, and levels of a log at which something is wrong.
_COMPLAINS: Final = re.compile(r"timed?[ -]?out|REQTMOUT|SESSTMOUT|\b(WARN|WARNING|ERROR|CRITICAL)\b", re.IGNORECASE)
#: What they say of a rebalance that they are told of, of a topic that has no more, and of a machine that is busy.
_ORDINARY: Final = re.compile(
    "because it is rebalancing|no records for|blocking the event loop|after our group session has ended"
)
#: A commit of the classic protocol that meets a rebalance.
_OVERTAKEN: Final = re.compile("rebalanc", re.IGNORECASE)
#: franz-go tells its application of each membership that has ended, and of each word of it that was lost.
_TOLD: Final = re.compile(r"kgo\.ErrGroupSession")
#: A static member that is not the only one of its name.
_FENCED: Final = re.compile("FENCED_INSTANCE_ID|FencedInstanceId|fenced (by|id)|held by another member")
#: Java's clients tell all of their configs.
_CONFIG: Final = re.compile(r"^\s+[\w.]+ = ")


class Case(NamedTuple):
    """One field of the table."""

    client: str
    event: str

    def __str__(self) -> str:
        return f"{self.client}: {self.event}".replace(", ", " ")


@dataclass(slots=True, kw_only=True)
class Group:
    """Two members that share a topic, and everybody who looks at them."""

    case: Case
    broker: Broker
    admin: Admin
    load: Load
    #: What the members of `CUTS` come through.
    proxy: LossyProxy | None = None
    members: dict[str, MemberProcess] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The group's id."""
        return "held"

    def start(self, stack: ExitStack, name: str) -> MemberProcess:
        """One more member."""
        program, options = (CLIENTS | NOT_HELD)[self.case.client]
        if self.case.event in ROUGH and options.get("group_protocol") != "consumer":
            options = {**options, "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": INTERVAL_MS}
        if self.case.event in ("static", "named twice"):
            options = {**options, "group_instance_id": name}
        address = self.broker.bootstrap_servers
        if self.proxy is not None:
            options, address = {**options, "client_id": name}, f"127.0.0.1:{self.proxy.port}"
        made = MemberProcess(program, address, self.name, TOPIC, options)
        self.members[name] = stack.enter_context(made)
        return made

    def wait_for_shares(self, *names: str) -> None:
        """Wait until these own everything in equal shares, and are all that the broker knows."""

        def is_shared() -> bool:
            held = [each.held for name, each in self.members.items() if name in names]
            is_whole = sum(map(len, held)) == len(set().union(*held)) == PARTITIONS
            return is_whole and max(map(len, held)) - min(map(len, held)) <= 1 and self._stable_members() == len(names)

        wait_for(is_shared, self.members, f"{', '.join(names)} share the topic")

    def _stable_members(self) -> int:
        if all(row.group_id != self.name for row in self.admin.list_groups()):
            return 0
        told = self.admin.describe_group(self.name)
        return len(told.members) if told.state == "Stable" else 0

    def wait_for_commits(self) -> None:
        """Wait until everything that was sent is committed."""

        def is_committed() -> bool:
            found = {row.partition: row.committed for row in self.admin.group_offsets(self.name)}
            return found == {each.partition: end for each, end in self.load.ends.items()}

        wait_for(is_committed, self.members, f"everything up to {self.load.ends} is committed")

    def heartbeats(self) -> int:
        """How many have come that said nothing new."""
        return self.admin.group_history(self.name).counts.get("heartbeats", 0)

    def wait_for_heartbeats(self, number: int) -> None:
        """Wait until so many more have come."""
        until = self.heartbeats() + number
        wait_for(lambda: self.heartbeats() >= until, self.members, f"{number} heartbeats")

    def gone(self) -> list[tuple[str, int]]:
        """(why, when in ms since 1970) of each member that is none any more, in that order."""
        events = self.admin.group_history(self.name).events
        return [(event.details["reason"], event.time_ms) for event in events if event.event == "member_removed"]

    def complaints(self) -> list[str]:
        """Lines of the logs that speak of a time-out, or warn."""
        logged = [line for member in self.members.values() for line in member.logged]
        complaints = [line for line in logged if _COMPLAINS.search(line) and not _CONFIG.match(line)]
        return [line for line in complaints if not _ORDINARY.search(line)]

    def errors(self) -> list[str]:
        """What failed in the members' own calls and should not."""
        errors = [error for member in self.members.values() for error in member.errors]
        is_classic = (CLIENTS | NOT_HELD)[self.case.client][1].get("group_protocol") != "consumer"
        errors = [error for error in errors if not (self.case.event in ROUGH and _TOLD.search(error))]
        return [error for error in errors if not (is_classic and _OVERTAKEN.search(error))]


def play(case: Case, broker: Broker, stack: ExitStack, *, proxy: LossyProxy | None = None) -> Group:
    """Two members share a topic and are at rest; then it happens, and in the end all is as it should be.

    Everything is owned by exactly one, everything that was sent is committed, no call of a member has failed, and
    whoever is not a member any more is none for the right reason.
    """
    admin = stack.enter_context(Admin(bootstrap_servers=broker.bootstrap_servers))
    admin.create_topic(TOPIC, PARTITIONS)
    producer = stack.enter_context(Producer(bootstrap_servers=broker.bootstrap_servers))
    group = Group(case=case, broker=broker, admin=admin, load=Load(producer, TOPIC, PARTITIONS), proxy=proxy)
    group.load.send(RECORDS)
    for name in ("one", "two"):
        group.start(stack, name)
    group.wait_for_shares("one", "two")
    group.wait_for_commits()
    group.wait_for_heartbeats(2)
    happen = {
        "rest": _rest,
        **dict.fromkeys(SHARES, _rest),
        "commits": _commits,
        "leave": _leave,
        "close": _close,
        "kill": _kill,
        "stopped briefly": _stopped_briefly,
        "stopped for long": _stopped_for_long,
        "broker stands still": _broker_stands_still,
        "broker killed": _broker_killed,
        "static": _static,
        "named twice": _named_twice,
        **dict.fromkeys(CUTS, _cut),
        **dict.fromkeys(BRIEF_CUTS, _cut_briefly),
    }[case.event]
    reasons = happen(group, stack)
    group.load.send(RECORDS)
    group.wait_for_commits()
    assert [why for why, _ in group.gone()] == list(reasons), group.gone()
    if case.event in (*CUTS, *BRIEF_CUTS, "broker killed", "named twice"):
        print(f"{case}: {len(group.errors())} errors", *group.errors()[:5], sep="\n    ")
    else:
        assert group.errors() == [], group.errors()
    if case.event not in ROUGH:
        assert group.complaints() == [], group.complaints()
    else:
        print(f"{case}: {len(group.complaints())} complaints", *group.complaints()[:5], sep="\n    ")
    return group


def _rest(group: Group, _: ExitStack) -> Iterable[str]:
    """Nothing happens for some holds."""
    for _ in range(6):
        group.wait_for_heartbeats(2)
    group.wait_for_shares("one", "two")
    return ()


def _commits(group: Group, stack: ExitStack) -> Iterable[str]:
    """Both commit ten times a second, while a third comes and goes."""
    group.load.send(RECORDS)
    group.wait_for_commits()
    for member in group.members.values():
        member.tell("often")
    before = {name: member.commits for name, member in group.members.items()}
    third = group.start(stack, "three")
    group.wait_for_shares("one", "two", "three")
    third.close()
    group.wait_for_shares("one", "two")
    group.load.send(RECORDS)
    wait_for(
        lambda: all(group.members[name].commits - commits >= 60 for name, commits in before.items()),
        group.members,
        "both have committed sixty times",
    )
    return ("member left",)


def _leave(group: Group, _: ExitStack) -> Iterable[str]:
    """One unsubscribes while its heartbeat is held, and comes back."""
    one = group.members["one"]
    one.tell("leave")
    group.wait_for_shares("two")
    one.tell("return")
    group.wait_for_shares("one", "two")
    return ("member left",)


def _close(group: Group, _: ExitStack) -> Iterable[str]:
    """One closes while its heartbeat is held."""
    group.members["one"].close()
    group.wait_for_shares("two")
    return ("member left",)


def _kill(group: Group, stack: ExitStack) -> Iterable[str]:
    """One dies: its session runs on from its last request."""
    group.members["one"].kill()
    group.wait_for_shares("two")
    group.start(stack, "three")
    group.wait_for_shares("two", "three")
    return ("session timeout",)


def _stopped_briefly(group: Group, _: ExitStack) -> Iterable[str]:
    """One stands still for longer than its heartbeat is held, and shorter than its session."""
    one = group.members["one"]
    held = set(one.held)
    one.stop()
    try:
        _pass_time(group, SESSION_MS / 2)
    finally:
        one.resume()
    group.wait_for_heartbeats(4)
    group.wait_for_shares("one", "two")
    assert one.held == held, "it has what it had"
    return ()


def _stopped_for_long(group: Group, _: ExitStack) -> Iterable[str]:
    """One stands still for longer than its session, and comes back."""
    one = group.members["one"]
    stopped_ms = time.time() * 1_000
    one.stop()
    try:
        wait_for(group.gone, group.members, "it is given up")
        (_, fenced_ms), *_others = group.gone()
        print(f"{group.case}: given up {fenced_ms - stopped_ms:.0f} ms after it was stopped")
        assert fenced_ms - stopped_ms >= SESSION_MS - 2 * INTERVAL_MS, "not before its session has ended"
        wait_for(lambda: len(group.members["two"].held) == PARTITIONS, group.members, "the other one has everything")
    finally:
        one.resume()
    group.wait_for_shares("one", "two")
    return ("session timeout",)


def _broker_stands_still(group: Group, _: ExitStack) -> Iterable[str]:
    """For longer than a session: that is nobody's fault.

    librdkafka's classic members give their membership up by themselves meanwhile: what the group knew of them has a
    session from then on.
    """
    process_id = group.broker.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGSTOP)
    try:
        _pass_time(group, SESSION_MS * 1.3)
    finally:
        resumed_ms = time.time() * 1_000
        os.kill(process_id, signal.SIGCONT)
    group.wait_for_heartbeats(4)
    group.wait_for_shares("one", "two")
    given_up = [line for line in group.complaints() if "SESSTMOUT" in line]
    assert all(gone_ms - resumed_ms >= SESSION_MS - 2 * INTERVAL_MS for _, gone_ms in group.gone()), group.gone()
    return ["session timeout"] * len(given_up)


def _broker_killed(group: Group, _: ExitStack) -> Iterable[str]:
    """The broker dies while it holds heartbeats and starts again: its members go on with their partitions."""
    held = {name: set(member.held) for name, member in group.members.items()}
    group.broker.kill()
    group.broker.start()
    group.wait_for_heartbeats(4)
    group.wait_for_shares("one", "two")
    print(f"{group.case}: {'kept' if held == {k: m.held for k, m in group.members.items()} else 'changed'} shares")
    return [why for why, _ in group.gone()]


def _static(group: Group, stack: ExitStack) -> Iterable[str]:
    """A static member closes while its heartbeat is held; the next process of its name has its partitions."""
    held = set(group.members["one"].held)
    group.members["one"].close()
    group.start(stack, "one")
    group.wait_for_shares("one", "two")
    gone = [why for why, _ in group.gone()]
    # @platformatic/kafka leaves the group although it is static.
    assert group.members["one"].held == held or gone == ["member left"], "it has what it had"
    return gone


def _cut(group: Group, _: ExitStack) -> Iterable[str]:
    """Requests of one member, or their answers, are lost for longer than its session; then all arrives.

    Requests: the other member gets everything, and a member of kohort's has let go by then. Answers: some clients say
    their word again in time by another connection, and keep their share.
    """
    assert group.proxy is not None
    one, two, way = group.members["one"], group.members["two"], CUTS[group.case.event]
    group.proxy.stalled["one"] = way
    pause = threading.Event()
    if way == REQUESTS:
        wait_for(lambda: len(two.held) == PARTITIONS, group.members, "the other one has everything")
    until_s = time.monotonic() + 3 * SESSION_MS / 1_000
    while len(two.held) < PARTITIONS and time.monotonic() < until_s:
        pause.wait(0.01)
    is_both = bool(one.held & two.held)
    assert not (is_both and group.case.client.startswith("kohort")), "it has let go of what the other one has"
    moved_s = time.monotonic()
    while one.held & two.held and time.monotonic() < moved_s + 2 * SESSION_MS / 1_000:
        pause.wait(0.01)
    kept = f"held on for {time.monotonic() - moved_s:.1f} s{' and more' if one.held & two.held else ''}"
    print(f"{group.case}: {len(two.held)} partitions moved, the former owner {kept}")
    group.proxy.restore()
    group.wait_for_shares("one", "two")
    return [why for why, _ in group.gone()]


def _cut_briefly(group: Group, _: ExitStack) -> Iterable[str]:
    """The same for half of its session: nobody is given up, and each has what it had."""
    assert group.proxy is not None
    held = {name: set(member.held) for name, member in group.members.items()}
    group.proxy.stalled["one"] = BRIEF_CUTS[group.case.event]
    _pass_time(group, SESSION_MS / 2)
    group.proxy.restore()
    group.wait_for_heartbeats(4)
    group.wait_for_shares("one", "two")
    assert {name: member.held for name, member in group.members.items()} == held
    return ()


def _named_twice(group: Group, stack: ExitStack) -> Iterable[str]:
    """A second process has the static name of one that lives: the first is fenced, the other member keeps its share.

    In the consumer protocol the second is refused until the first has gone.
    """
    first, two = group.members["one"], group.members["two"]
    held, others = set(first.held), set(two.held)
    second = group.start(stack, "one")
    both = {"first": first, "second": second}

    def words(name: str) -> list[str]:
        return [*both[name].errors, *filter(_FENCED.search, both[name].logged)]

    wait_for(lambda: words("first") or words("second"), both, "one of the two is told")
    name = "first" if words("first") else "second"
    told, stays = both.pop(name), next(iter(both.values()))
    print(f"{group.case}: the {name} is told {[*told.errors, *filter(_FENCED.search, told.logged)][0]}")
    told.kill()
    group.members["one"] = stays
    group.wait_for_shares("one", "two")
    assert (stays.held, two.held) == (held, others), "no partition has another name's member"
    return [why for why, _ in group.gone()]


def _pass_time(group: Group, ms: float) -> None:
    """What it is about is that so much of it passes."""
    until_s = time.monotonic() + ms / 1_000
    pause = threading.Event()
    while time.monotonic() < until_s:
        pause.wait(until_s - time.monotonic())
    assert group.members, "nobody is left"
