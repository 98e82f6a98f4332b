"""The brokers that partitions are fetched from, and the partitions of each that can be fetched now.

Laws: what is kept about a partition (its `Reading`) is updated when it was touched, when its timer is due, and with new
metadata. So the cost of an event does not depend on the number of partitions. One fetch at a time names a partition.
Source: the consumer threading refactor (CTR): FetchSender; KIP-392 (preferred replica).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field

from kohort.base.timers import TimerTable
from kohort.base.values import value
from kohort.client.consumer.fetch.fetch_session import Asked, FetchSession
from kohort.client.consumer.fetch.partition_state import Reading, Readings
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.ids import TopicPartition


@value(frozen=False, eq=False)
class Fetch:
    """One fetch request under way."""

    target: FetchTarget
    lane: Lane
    #: Whether the broker waits for data; it does not for the short fetch that may be under way at the same time.
    is_long: bool
    token: int
    asked: Mapping[TopicPartition, Asked]
    #: topic id -> name, of the topics in the request.
    names: Mapping[bytes, str]
    #: `ReceivedUpdates.era` when it was sent, if that broker coordinates the group.
    era: int = 0
    reserved_bytes: int = 0
    sent_ms: int = 0
    #: How many grants its member had taken when it was sent.
    grants: int = 0
    #: Whether the coordinator knows which member has sent it.
    is_counted: bool = False
    #: How many of its partitions are not read any more, or under another fence.
    over: int = 0


@value(frozen=False, eq=False)
class FetchTarget:
    """One broker that partitions are read from."""

    endpoint: Endpoint
    session: FetchSession = field(default_factory=FetchSession)
    #: Number of partitions that are read from this broker, including those that pause after an error.
    size: int = 0
    #: Partitions that can be fetched now and are in no short fetch.
    ready: dict[TopicPartition, Reading] = field(default_factory=dict)
    #: Partitions that have changed for the next long fetch, or are dropped from it.
    changed: dict[TopicPartition, None] = field(default_factory=dict)
    #: Ready partitions that became so while the long fetch was under way.
    fresh: dict[TopicPartition, Reading] = field(default_factory=dict)
    long: Fetch | None = None
    beside: Fetch | None = None
    #: Whether its latest response was not from a broker of kohort's.
    is_foreign: bool = False
    #: Whether its latest long fetch returned no data, and whether the one under way waits longer for that reason.
    is_idle: bool = False
    is_patient: bool = False
    #: How long its SASL sessions last, milliseconds; 0: without end.
    login_ms: int = 0
    #: Token of the fetch that was sent last: the broker that has waited longest is asked first.
    turn: int = 0
    #: Failures in a row, and the time before which it is not asked again.
    attempts: int = 0
    not_before_ms: int = 0

    def askable(self) -> dict[TopicPartition, Reading]:
        """Return the partitions for a new fetch on a free connection; empty if none is free."""
        if self.long is None:
            # A short fetch on the long one's connection is answered at once: the next long one names its partitions.
            is_behind = self.beside is not None and self.beside.lane is Lane.FETCH
            return {} if is_behind else self.ready
        return self.fresh if self.beside is None else {}

    def offer(self, reading: Reading) -> None:
        """Add a partition to those that can be fetched."""
        partition = reading.partition
        self.ready[partition] = reading
        self.changed[partition] = None
        # A short fetch asks for it, unless the long one under way asks for the same offset.
        if self.long is not None and not reading.is_waiting and not self._is_asked(reading):
            self.fresh[partition] = reading
        else:
            self.fresh.pop(partition, None)

    def withdraw(self, partition: TopicPartition) -> None:
        """Remove a partition from those that can be fetched."""
        self.ready.pop(partition, None)
        self.fresh.pop(partition, None)
        if partition in self.session.asked:
            self.changed[partition] = None

    def _is_asked(self, reading: Reading) -> bool:
        asked = self.session.asked.get(reading.partition)
        return asked is not None and asked.reading is reading and asked.entry.fetch_offset == reading.offset


class FetchTargets:
    """All brokers that partitions are fetched from."""

    def __init__(self, cluster: Cluster, readings: Readings, buffer: FetchBuffer) -> None:
        self._cluster = cluster
        self._readings = readings
        self._buffer = buffer
        self._table: dict[Endpoint, FetchTarget] = {}
        self._homes: dict[Reading, FetchTarget] = {}
        #: reading -> the target whose session asks for it.
        self._sessions: dict[Reading, FetchTarget] = {}
        #: Readings in short fetches.
        self._besides: dict[Reading, Fetch] = {}
        #: Readable readings without a known leader.
        self.leaderless: dict[Reading, None] = {}
        #: When a reading is to be looked at again: its pause or its preferred replica's time ends.
        self._timers: TimerTable[Reading] = TimerTable()

    def __len__(self) -> int:
        return sum(target.size > 0 for target in self._table.values())

    def sessions(self) -> list[tuple[Endpoint, FetchSession]]:
        """Return the fetch session of each broker."""
        return [(target.endpoint, target.session) for target in self._table.values()]

    def all(self) -> list[FetchTarget]:
        """Return the brokers that partitions are read from, the one that has waited longest first."""
        return sorted((target for target in self._table.values() if target.size), key=lambda target: target.turn)

    def under_way(self) -> list[Fetch]:
        """Return the fetches without a response."""
        both = [fetch for target in self._table.values() for fetch in (target.long, target.beside)]
        return [fetch for fetch in both if fetch is not None]

    def next_deadline(self) -> int | None:
        """Return when the broker of a partition has to be chosen anew."""
        return self._timers.next_deadline()

    def place_due(self, now_ms: int) -> None:
        """Choose the broker of each partition that was touched or whose timer is due."""
        for reading in self._readings.take_touched():
            self._place(reading, now_ms)
        while (due := self._timers.pop_due(now_ms)) is not None:
            self._place(due, now_ms)

    def look_at_all(self) -> None:
        """Choose the broker of every partition anew, because leaders or limits may have changed."""
        for endpoint, target in list(self._table.items()):
            if not target.size and target.long is None and target.beside is None:
                del self._table[endpoint]
        for reading in self._readings.all():
            self._readings.touch(reading)

    # -- fetches ----------------------------------------------------------------------------------------------------

    def note_asked(self, target: FetchTarget, partitions: Iterable[TopicPartition], before: Iterable[Asked]) -> None:
        """Note that a broker's session has these partitions now, and no longer those in `before`."""
        for asked in before:
            if self._sessions.get(asked.reading) is target:
                del self._sessions[asked.reading]
        for partition in partitions:
            current = target.session.asked.get(partition)
            if current is not None:
                self._sessions[current.reading] = target
                current.reading.is_waiting = False
        target.changed.clear()
        target.fresh.clear()

    def begin(self, fetch: Fetch) -> None:
        """Note that a fetch was sent."""
        target = fetch.target
        target.turn = fetch.token
        if fetch.is_long:
            target.long = fetch
            return
        target.beside = fetch
        for partition, asked in fetch.asked.items():
            self._besides[asked.reading] = fetch
            target.withdraw(partition)

    def end(self, fetch: Fetch) -> None:
        """Note that a fetch has ended."""
        if fetch.is_long:
            fetch.target.long = None
            return
        fetch.target.beside = None
        for asked in fetch.asked.values():
            if self._besides.pop(asked.reading, None) is not None:
                self._readings.touch(asked.reading)

    # -- readings ---------------------------------------------------------------------------------------------------

    def _place(self, reading: Reading, now_ms: int) -> None:
        if reading.is_over:
            self._forget(reading)
            return
        self._buffer.pause(reading.partition, is_paused=reading.is_paused)
        is_readable = reading.is_readable
        target = self._target_of(reading, now_ms) if is_readable else None
        home = self._homes.get(reading)
        if home is not target:
            if home is not None:
                home.size -= 1
                home.withdraw(reading.partition)
                del self._homes[reading]
            if target is not None:
                target.size += 1
                self._homes[reading] = target
        is_due = reading.not_before_ms <= now_ms
        if is_readable and target is None and is_due:
            self.leaderless[reading] = None
        else:
            self.leaderless.pop(reading, None)
        if target is not None and is_due and reading not in self._besides:
            target.offer(reading)
        elif target is not None:
            target.withdraw(reading.partition)
        self._arm(reading, now_ms)

    def _arm(self, reading: Reading, now_ms: int) -> None:
        due_ms = reading.not_before_ms if reading.is_readable and reading.not_before_ms > now_ms else None
        if reading.preferred_node >= 0 and reading.preferred_until_ms > now_ms:
            due_ms = reading.preferred_until_ms if due_ms is None else min(due_ms, reading.preferred_until_ms)
        if due_ms is None:
            self._timers.disarm(reading)
        else:
            self._timers.arm(reading, due_ms)

    def _forget(self, reading: Reading) -> None:
        partition = reading.partition
        home = self._homes.pop(reading, None)
        if home is not None:
            home.size -= 1
            if home.ready.get(partition) is reading:
                home.withdraw(partition)
        self.leaderless.pop(reading, None)
        self._timers.disarm(reading)
        session = self._sessions.pop(reading, None)
        if session is not None and session.long is not None:
            session.long.over += 1
        beside = self._besides.pop(reading, None)
        if beside is not None:
            beside.over += 1
        if self._readings.get(partition) is None:
            self._buffer.pause(partition, is_paused=False)

    def _target_of(self, reading: Reading, now_ms: int) -> FetchTarget | None:
        endpoint = None
        if reading.preferred_node >= 0 and now_ms < reading.preferred_until_ms:
            # KIP-392: the replica that the leader has named, for a while.
            endpoint = self._cluster.brokers.get(reading.preferred_node)
        if endpoint is None:
            endpoint = self._cluster.leader_of(reading.partition)
        if endpoint is None:
            return None
        if endpoint not in self._table:
            self._table[endpoint] = FetchTarget(endpoint=endpoint)
        return self._table[endpoint]


@value(frozen=False, eq=False)
class _Pinned:
    """A response of which some bytes are held: one held record keeps the whole response in memory."""

    broker: Endpoint
    size_bytes: int
    #: Number of held pieces, and how many of them are of partitions that are not paused.
    pieces: int
    active_pieces: int


@value(frozen=False, eq=False)
class _Piece:
    answer: _Pinned
    left_bytes: int


class FetchBuffer:
    """The bytes of data that is fetched ahead of the application, and the share of each broker.

    Laws: held and requested bytes together stay within the limit. A response may exceed what was requested, since a
    broker sends at least one batch, however large. Each broker has an equal share that no other can use up.
    Source: KIP-81 (bounded memory of the consumer); the consumer threading refactor (CTR): FetchBuffer.

    >>> broker, orders = Endpoint("127.0.0.1", 9092), TopicPartition("orders", 0)
    >>> buffer = FetchBuffer(limit_bytes=100)
    >>> buffer.reserve(broker, 60)
    >>> buffer.room
    40
    >>> buffer.settle(broker, reserved=60, pinned_bytes=15, held={orders: 10})
    >>> buffer.room
    85
    >>> buffer.release({orders: 10})
    >>> buffer.room
    100
    """

    __slots__ = ("_active", "_paused", "_pieces", "_pinned_bytes", "_reserved", "_reserved_bytes", "limit_bytes")

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: partition -> its pieces that the application has not taken, oldest first; no empty ones.
        self._pieces: dict[TopicPartition, deque[_Piece]] = {}
        self._paused: set[TopicPartition] = set()
        #: broker -> bytes of its answers that a partition holds which is not paused.
        self._active: dict[Endpoint, int] = {}
        #: broker -> bytes that fetches under way may bring.
        self._reserved: dict[Endpoint, int] = {}
        self._pinned_bytes = 0
        self._reserved_bytes = 0

    @property
    def room(self) -> int:
        """Bytes that further fetches may request."""
        return max(0, self.limit_bytes - self._pinned_bytes - self._reserved_bytes)

    def share(self, brokers: int) -> int:
        """Return the share of each broker in bytes, requested and held, if there are `brokers` of them."""
        return max(1, self.limit_bytes // max(1, brokers)) if self.limit_bytes else 0

    def used(self, broker: Endpoint) -> int:
        """Return the bytes of its share that a broker uses: requested, or held by unpaused partitions."""
        return self._reserved.get(broker, 0) + self._active.get(broker, 0)

    def held(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition that the application has not taken."""
        return sum(piece.left_bytes for piece in self._pieces.get(partition, ()))

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions that hold data, sorted."""
        return sorted(partition for partition in self._paused if partition in self._pieces)

    def reserve(self, broker: Endpoint, size_bytes: int) -> None:
        """Count the bytes that a fetch requests."""
        self._reserved[broker] = self._reserved.get(broker, 0) + size_bytes
        self._reserved_bytes += size_bytes

    def settle(
        self,
        broker: Endpoint,
        *,
        reserved: int,
        pinned_bytes: int = 0,
        held: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """End a fetch: `pinned_bytes` of its response stay in memory until the pieces in `held` are freed."""
        self._reserved[broker] -= reserved
        self._reserved_bytes -= reserved
        assert self._reserved[broker] >= 0, f"{broker} ended more fetches than it was sent"
        if not held:
            return
        answer = _Pinned(broker=broker, size_bytes=pinned_bytes, pieces=0, active_pieces=0)
        self._pinned_bytes += pinned_bytes
        for partition, size_bytes in held.items():
            assert size_bytes > 0, f"nothing of {partition} is held"
            self._pieces.setdefault(partition, deque()).append(_Piece(answer=answer, left_bytes=size_bytes))
            answer.pieces += 1
            self._count(answer, int(partition not in self._paused))

    def release(self, sizes: Mapping[TopicPartition, int]) -> None:
        """Free these bytes of each partition, oldest pieces first."""
        for partition, size_bytes in sizes.items():
            pieces, left_bytes = self._pieces.get(partition), size_bytes
            while left_bytes:
                assert pieces, f"{partition} gave back more than it had"
                piece = pieces[0]
                taken = min(left_bytes, piece.left_bytes)
                piece.left_bytes -= taken
                left_bytes -= taken
                if not piece.left_bytes:
                    self._drop(partition, pieces.popleft())
            if not pieces:
                self._pieces.pop(partition, None)

    def pause(self, partition: TopicPartition, *, is_paused: bool) -> None:
        """Note whether a partition is paused: paused data does not count in its broker's share."""
        if is_paused == (partition in self._paused):
            return
        (self._paused.add if is_paused else self._paused.remove)(partition)
        for piece in self._pieces.get(partition, ()):
            self._count(piece.answer, -1 if is_paused else 1)

    def _drop(self, partition: TopicPartition, piece: _Piece) -> None:
        answer = piece.answer
        answer.pieces -= 1
        self._count(answer, -int(partition not in self._paused))
        if not answer.pieces:
            self._pinned_bytes -= answer.size_bytes

    def _count(self, answer: _Pinned, by: int) -> None:
        """Change the number of active pieces of a response, and with it the bytes that its broker uses."""
        was_active = answer.active_pieces > 0
        answer.active_pieces += by
        is_active = answer.active_pieces > 0
        if is_active != was_active:
            change = answer.size_bytes if is_active else -answer.size_bytes
            self._active[answer.broker] = self._active.get(answer.broker, 0) + change
