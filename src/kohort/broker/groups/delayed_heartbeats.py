"""Held heartbeats: the clients whose heartbeats are held, and how long each is known to wait.

Laws: the heartbeat of a member is held for less than the interval that the previous answer on its connection told it:
some clients take that for the time in which this answer has to be there. Those of `_PATIENT` do not, and count it from
the answer: they are told a short one. What a client calls itself (KIP-511), what its members were told and when they
cut a hold is known per connection, and goes with it. A joining member waits for its share, for less than its interval
too if it was told one before, which a client that was fenced may still take for its time.
Source: H1; the heartbeats of the consumers of Java, librdkafka, franz-go and @platformatic/kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kohort.base.clock import Clock
from kohort.broker.connections.memberconnections import MEMBERS_PER_CONNECTION, MemberKey
from kohort.broker.connections.request import Peer, Request
from kohort.broker.groups.coordination import Coordination
from kohort.coordinator.commands import AnyHeartbeat
from kohort.coordinator.liveness import HEARTBEATS_PER_SESSION
from kohort.wire.private import SOFTWARE_NAME

#: Software names, or how they begin.
_BEARING: Final = (SOFTWARE_NAME, "apache-kafka-java", "librdkafka", "confluent-kafka-", "kafka-python")
#: Whole software names. These clients wait for an answer to a heartbeat as long as for any other, 10 s and more, and
#: count the interval from it: franz-go, @platformatic/kafka.
_PATIENT: Final = frozenset({"kgo", "platformatic-kafka"})
_PATIENCE_MS: Final = 10_000
#: Clients of `_BEARING` that match answers to requests by correlation id, in any order.
_MATCHING: Final = ("librdkafka", "confluent-kafka-")
#: The beginning of the client ids of a client that sends no software name.
_BEARING_CLIENT_ID: Final = "aiokafka"
_LONGEST_MS: Final = 8_000
#: Classic members heartbeat every 3 s: Java's whether they were answered or not, librdkafka's if they were by then,
#: others so long after the answer. A hold ends just before the third of those times.
_LONGEST_CLASSIC_MS: Final = 8_500
#: Java's consumer takes all of a processor until it was answered for the first time (KAFKA-21031).
_JAVA: Final = "apache-kafka-java"
_LONGEST_JOIN_OF_JAVA_MS: Final = 300
#: Between the end of a hold and the time at which its answer has to be there: a fifth of the interval, or this; of
#: Java's consumer this, for it spins when its next heartbeat is late.
_MARGIN_MS: Final = 100
_MARGIN_PARTS: Final = 5


class Terms(NamedTuple):
    """The terms of a heartbeat's answer: see the fields of `ConsumerGroupHeartbeat`."""

    hold_ms: int
    since_cut_ms: int
    counts_requests: bool


class DelayedHeartbeats:
    """The rules for held heartbeats that follow from the broker's options.

    Args:
        values: of the broker's options: group.push.*.
        clock: of the broker.
    """

    def __init__(self, values: Mapping[str, Any], clock: Clock) -> None:
        self._clock: Final = clock
        self._is_on: Final[bool] = values["group.push.enable"]
        self._others: Final = frozenset(values["group.push.clients"])
        self._join_ms: Final[int] = values["group.push.join.hold.ms"]

    def bears(self, request: Request) -> bool:
        """Whether the client of a request bears a late answer to a heartbeat without harm."""
        if not self._is_on:
            return False
        name = request.connection.software
        if name.startswith(_BEARING) or name in _PATIENT or "*" in self._others:
            return True
        return name in self._others or (not name and request.client_id.startswith(_BEARING_CLIENT_ID))

    def terms(self, request: Request, member: MemberKey, *, is_join: bool, session_ms: int) -> Terms:
        """Return how long a KIP-848 heartbeat's answer may wait, and the time since its client cut a hold.

        `session_ms` is the session timeout of the member's group.
        """
        connection = request.connection
        counts_requests = self.counts_requests(connection)
        if not self.bears(request):
            return Terms(-1, -1, counts_requests)
        cut_ms = connection.cuts.get(member)
        since_ms = -1 if cut_ms is None else max(0, self._clock.now_ms() - cut_ms)
        # Between an answer and its next heartbeat such a member cannot be told of news, as after a cut.
        since_ms = 0 if connection.software in _PATIENT else since_ms
        if is_join:
            is_java = connection.software.startswith(_JAVA)
            # Java's consumer spins until its first answer (KAFKA-21031), so it is held for a short time only.
            join_ms = min(self._join_ms, _LONGEST_JOIN_OF_JAVA_MS) if is_java else self._join_ms
            join_ms = min(join_ms, session_ms // HEARTBEATS_PER_SESSION) if counts_requests else join_ms
            # A fenced member joins again by the connection that has told it an interval.
            is_told = member in connection.told_intervals
            held_ms = min(join_ms, self.hold_ms(connection, member)) if is_told else join_ms
            return Terms(held_ms, since_ms, counts_requests)
        return Terms(self.hold_ms(connection, member), since_ms, counts_requests)

    @staticmethod
    def counts_requests(connection: Peer) -> bool:
        """Whether a client counts its session from its requests; kohort's do, once they know its length."""
        return connection.software == SOFTWARE_NAME

    def hold_ms(self, connection: Peer, member: MemberKey) -> int:
        """Return how long a member's heartbeat may be held, by its last response; 0: not at all."""
        return _longest_ms(connection.told_intervals.get(member, 0), connection.software.startswith(_JAVA))

    def classic_hold_ms(self, request: Request) -> int:
        """Return how long a classic heartbeat may be held, if the session is not short; -1: not at all."""
        return _LONGEST_CLASSIC_MS if self.bears(request) else -1

    def note_told(self, connection: Peer, member: MemberKey, interval_ms: int, session_ms: int) -> None:
        """Note the heartbeat interval and session timeout of a response to a member."""
        told = connection.told_intervals
        if self._is_on and (len(told) < MEMBERS_PER_CONNECTION or member in told):
            if self.counts_requests(connection):
                # Such a client heartbeats at least so often: a session has room for two held heartbeats and a lost one.
                interval_ms = min(interval_ms, session_ms // HEARTBEATS_PER_SESSION)
            elif connection.software in _PATIENT:
                interval_ms = min(_PATIENCE_MS, session_ms // HEARTBEATS_PER_SESSION)
            told[member] = interval_ms

    def attach(self, request: Request, heartbeat: DelayedHeartbeat[Any]) -> None:
        """Mark a request as a heartbeat, before it is carried out."""
        request.heartbeat = heartbeat
        request.is_unordered = heartbeat.command.hold_ms >= 0 and request.connection.software.startswith(_MATCHING)

    def note_cut(self, connection: Peer, member: MemberKey) -> None:
        """Note that another request on a connection has ended the hold of a member's heartbeat."""
        if member in connection.told_intervals:
            connection.cuts[member] = self._clock.now_ms()


@lru_cache(maxsize=64)
def _longest_ms(told_ms: int, is_java: bool) -> int:
    """Return the longest hold of a member with this heartbeat interval, ms."""
    # For Java's consumer the interval is no time-out: only its next heartbeat must not be late.
    margin_ms = _MARGIN_MS if is_java else max(_MARGIN_MS, told_ms // _MARGIN_PARTS)
    return min(_LONGEST_MS, max(0, told_ms - margin_ms))


Told = TypeVar("Told", bound=AnyHeartbeat)


class DelayedHeartbeat(Generic[Told]):
    """A heartbeat that may be held, and the ways in which its hold ends."""

    __slots__ = ("_connection", "_coordination", "_rules", "command")

    def __init__(self, rules: DelayedHeartbeats, coordination: Coordination, connection: Peer, command: Told) -> None:
        self._rules: Final = rules
        self._coordination: Final = coordination
        self._connection: Final = connection
        self.command: Final[Told] = command

    def release(self, is_cut: bool) -> None:
        """Implement `HeldHeartbeat.release`."""
        if is_cut:
            self._rules.note_cut(self._connection, (self.command.group_id, self.command.member_id))
        self._coordination.release(self.command, is_cut)

    def abandon(self) -> None:
        """Implement `HeldHeartbeat.abandon`."""
        self._coordination.abandon(self.command)
