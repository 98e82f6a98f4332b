# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917 - kernels take their arguments by position, as a compiled call does
"""The way of a record from `send` into a batch: its space, its object, the queue. Ordinary Python that can be compiled.

Laws: what `PlainRecords` takes is what the encoder makes of the same arguments; for all others it changes nothing. The
application's threads call `append`, `submit` and `try_reserve`, the machine calls the rest. Neither side waits for the
other: each step on the queue is a single operation on a deque or a flag. `place` does the work of `Accumulator.add`,
until a batch has to be begun or closed, or a record refused.
Source: architecture rule 16; Kafka's RecordAccumulator and BufferPool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kohort.records.build_kernels import murmur2, new_record, show_record
from kohort.records.build_parts import VARINTS

#: Whether these are plain Python, so that another thread may run in the middle of a method.
IS_PLAIN = __file__.endswith(".py")


class Submissions:
    """The queue of records from the application's threads to the machine.

    A call wakes the machine only if no other event will: while a batch lingers, the machine reads this queue by itself
    when linger.ms is over; and a machine that was woken reads it soon.

    The begin of a transaction is a mark in the queue, so that it needs no answer. Only a machine without a transaction
    allows one, and `begin` takes that permission away: there is one mark for a transaction.
    """

    def __init__(self, *, wake_bytes: int) -> None:
        """Create an empty queue; `wake_bytes`: with so many queued bytes the machine is woken despite linger.ms."""
        self._records: deque[Any] = deque()
        self._queued_bytes = 0
        #: Queued bytes that wake the machine though it is watching; the machine may change that.
        self.wake_bytes = wake_bytes
        self._is_open = True
        #: Whether the machine has been woken, or will look by itself in time.
        self.is_watched = False
        #: Whether the machine has been woken since it looked.
        self._is_called = False
        #: Holds one object while a transaction may be begun: of two threads that begin, one takes it.
        self._permission: deque[bool] = deque(maxlen=1)
        #: Place of the first record of a transaction that has begun, among those of the last `take`; -1: none has.
        self.begun_at = -1

    def append(self, record: Any) -> bool:
        """Queue a record; return whether the caller has to wake the machine."""
        return self.add(record, record.size_bytes)

    def add(self, record: Any, size: int) -> bool:
        """Do the work of `append` for a record of `size` bytes."""
        self._records.append(record)
        self._queued_bytes += size
        if self.is_watched and self._is_open:
            # An interrupt may have come between the return of True and the wake-up, so there are more of them.
            due = self.wake_bytes * 16 if self._is_called else self.wake_bytes
            if self._queued_bytes < due:
                return False
        self.is_watched = True
        self._is_called = True
        self._queued_bytes = 0
        return True

    def take(self) -> list[Any]:
        """Return and remove all queued records; later ones wake the machine again unless it sets `is_watched`."""
        self.is_watched = False
        self._is_called = False
        self._queued_bytes = 0
        self.begun_at = -1
        # One by one, since other threads append meanwhile. A record behind these wakes the machine.
        pop = self._records.popleft
        taken: list[Any] = []
        for _ in range(len(self._records)):
            record = pop()
            if record is None:
                self.begun_at = len(taken)
            else:
                taken.append(record)
        return taken

    def close(self) -> None:
        """Make every later record wake the machine, so that its caller gets the error of a closed producer."""
        self._is_open = False

    def queued(self) -> list[Any]:
        """Return all queued records, which stay in the queue."""
        return [record for record in self._records.copy() if record is not None]

    def permit(self) -> None:
        """Allow a transaction to be begun; called by the machine when it has none."""
        self._permission.append(True)

    def claim(self) -> bool:
        """Take the permission for a transaction; return whether there was one."""
        try:
            self._permission.pop()
        except IndexError:
            return False
        return True

    def begin(self) -> bool:
        """Begin a transaction, of which the next records are part; return whether it is allowed."""
        if not self.claim():
            return False
        self._records.append(None)
        return True


class BufferSpace:
    """The count of the bytes of unacknowledged records, and their limit (`buffer.memory`).

    Args:
        limit_bytes: most bytes; a single larger record is accepted while there is no other.
        guard: lock of the count in plain Python; a compiled method is one step for all threads, and needs none.
    """

    def __init__(self, limit_bytes: int, guard: AbstractContextManager[Any] | None) -> None:
        self.limit_bytes = limit_bytes
        #: Bytes of records that are neither stored nor failed.
        self.held_bytes = 0
        #: Whether no records are accepted: the producer is closed, has failed, was copied by a fork, or is outside of a
        #: transaction.
        self.is_shut = False
        self._guard = guard

    def try_reserve(self, size: int) -> bool:
        """Reserve space for a record if it is accepted and there is some; return whether it was."""
        # In a fork a thread that is not there may hold the lock.
        if self.is_shut:
            return False
        if self._guard is not None:
            with self._guard:
                return self._try_reserve(size)
        return self._try_reserve(size)

    def _try_reserve(self, size: int) -> bool:
        if self.held_bytes > 0 and self.held_bytes + size > self.limit_bytes:
            return False
        self.held_bytes += size
        return True

    def hold(self, size: int) -> None:
        """Add the bytes of a record to the count despite the limit; a negative `size` frees them."""
        if self._guard is not None:
            with self._guard:
                self.held_bytes += size
        else:
            self.held_bytes += size


class PlainRecords:
    """The short way of most records: of bytes and text, which need no serializer.

    Args:
        kind: class of the records.
        topics: names that are checked; without one no record is plain.
        overhead_bytes: bytes that a record takes beside key and value.
        limit_bytes: bytes that it may take in all.
        clock: returns nanoseconds since 1970.
        wake: wakes the machine.
    """

    def __init__(
        self,
        kind: type,
        submissions: Submissions,
        space: BufferSpace,
        *,
        topics: set[str],
        overhead_bytes: int,
        limit_bytes: int,
        clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._kind = kind
        self._submissions = submissions
        self._space = space
        self._topics = topics
        self._overhead_bytes = overhead_bytes
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._wake = wake

    def submit(
        self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any, on_delivery: Any
    ) -> Any:
        """Queue a record and return it; `None`: it takes the long way, where it is checked, or waits for space."""
        if type(topic) is not str or topic not in self._topics:
            return None
        if partition is not None and (type(partition) is not int or not 0 <= partition <= 0x7FFFFFFF):
            return None
        if type(value) is str:
            value = encoded(value)
        if type(key) is str:
            key = encoded(key)
        size = self._overhead_bytes
        if value is not None:
            if type(value) is not bytes:
                return None
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                return None
            size += len(key)
        tail = b""
        if headers:
            found = encode_pairs(headers)
            if found is None:
                return None
            tail, extra = found
            size += extra
        if timestamp_ms is not None and (type(timestamp_ms) is not int or not 0 <= timestamp_ms <= 0x7FFFFFFFFFFFFFFF):
            return None
        if on_delivery is not None and not callable(on_delivery):
            return None
        if size > self._limit_bytes or not self._space.try_reserve(size):
            return None
        if timestamp_ms is None:
            now_ns = self._clock()
            timestamp_ms = now_ns // 1_000_000
        record = new_record(self._kind, topic, key, value, timestamp_ms, size)
        record.partition = partition
        record.headers = tail
        record.on_delivery = on_delivery
        record.is_noticed = on_delivery is not None
        if on_delivery is not None:
            show_record(record)
        if self._submissions.add(record, size):
            self._wake()
        return record


def encode_pairs(headers: Any) -> Any:
    """Encode headers of bytes and text, and count them as the encoder does; `None`: it has to look at them itself.

    Returns:
        The bytes that stand behind the value of a record, and the share of them in `buffer.memory`.
    """
    if type(headers) is dict:
        pairs: tuple[Any, ...] = tuple(headers.items())
    elif type(headers) is list or type(headers) is tuple:
        # Another thread may change a list meanwhile.
        pairs = tuple(headers)
    else:
        return None
    varints = VARINTS
    pieces = [varints[len(pairs)]]
    size = 0
    for pair in pairs:
        if (type(pair) is not tuple and type(pair) is not list) or len(pair) != 2:
            return None
        name = pair[0]
        content = pair[1]
        if type(name) is str:
            name = encoded(name)
        if type(content) is str:
            content = encoded(content)
        if type(name) is not bytes or name is pair[0]:
            return None
        size += len(name) + 10
        pieces.append(varints[len(name)])
        pieces.append(name)
        if content is None:
            pieces.append(b"\x01")
        elif type(content) is bytes:
            size += len(content)
            pieces.append(varints[len(content)])
            pieces.append(content)
        else:
            return None
    return b"".join(pieces), size


def encoded(text: str) -> Any:
    """Encode text as UTF-8; text that cannot be stays as it is."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text


def place(
    records: list[Any],
    start: int,
    topic: str,
    filling: list[Any],
    count: int,
    turn: int,
    turn_bytes: int,
    batch_bytes: int,
    limit_bytes: int,
) -> tuple[int, int]:
    """Put records of one topic, from `start` on, into batches.

    Args:
        records: the first record of another topic ends the run.
        start: the first record to place.
        filling: partition -> the batch that takes records, or `None`; at least `count`.
        count: of partitions.
        turn: partition of records without a key and a partition of their own; -1 if another rule chooses.
        turn_bytes: bytes that this partition gets until the next has its turn.
        batch_bytes: a batch that reaches this may be sent.
        limit_bytes: no batch grows above this.

    Returns:
        The first record left over, and the bytes left of the turn. The record before it may have filled its batch.
    """
    stop = len(records)
    # The partition of the record before, whose batch is at hand, and the size of that.
    latest, held = -1, 0
    while start < stop:
        record = records[start]
        if record.topic != topic:
            break
        size = record.size_bytes
        partition = record.partition
        key = record.key
        number = home_of(partition, key, count, turn, turn_bytes)
        if number < 0 or number >= count:
            break
        if number != latest:
            batch = filling[number]
            if batch is None:
                break
            latest = number
            held = batch.size_bytes
            placed = batch.records
            end = batch.end
        if held + size > limit_bytes:
            break
        if partition is None and key is None:
            turn_bytes -= size
        record.end = end
        record.index = len(placed)
        placed.append(record)
        held += size
        batch.size_bytes = held
        start += 1
        if held - size < batch_bytes <= held:
            break
    return start, turn_bytes


def home_of(partition: Any, key: bytes | None, count: int, turn: int, turn_bytes: int) -> int:
    """Return the partition of a record with those of its own; -1 if another rule chooses, or the turn is over."""
    if partition is not None:
        return partition  # type: ignore[no-any-return]  # the record's own
    if turn < 0 or (key is None and turn_bytes <= 0):
        return -1
    return turn if key is None else (murmur2(key) & 0x7FFFFFFF) % count
