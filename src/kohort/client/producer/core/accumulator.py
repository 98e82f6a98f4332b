"""The batches of a producer: records grouped by partition until they are acknowledged.

Laws: the batches of a partition are sent, and sent again, in the order in which they were filled. A batch keeps its
sequence number over retries, so that the broker recognises duplicates. A batch that is due but cannot be sent yet,
since its leader is busy, still accepts records, so that records that wait long are sent in large batches.
Source: Kafka's RecordAccumulator; KIP-98 (idempotence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any

from kohort.client.producer.bulk_send import Bulk, Slice
from kohort.client.producer.core.partitioner import Partitioner
from kohort.client.producer.core.submission_kernels import place
from kohort.client.producer.record_future import BatchEnd, RecordFuture
from kohort.errors import KohortError
from kohort.ids import TopicPartition

#: Most bytes of the headers of format 2, of a batch without records and of one record.
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 24


#: Contents of a batch, or records that will be put into one.
Member = RecordFuture | Bulk | Slice


class BatchState(Enum):
    """The state of a batch until it is stored or has failed."""

    #: It waits for more records.
    OPEN = "open"
    #: It may be sent; the last batch of a partition still accepts records until then.
    CLOSED = "closed"
    IN_FLIGHT = "in flight"


class Batch:
    """The records of one partition that are sent together."""

    __slots__ = (
        "attempts",
        "bulk",
        "created_ms",
        "encoded",
        "end",
        "is_unsure",
        "last_error",
        "not_before_ms",
        "partition",
        "records",
        "sequence",
        "size_bytes",
        "state",
    )

    def __init__(self, partition: TopicPartition, created_ms: int) -> None:
        self.partition = partition
        #: Single records; empty for rows in one `bulk`.
        self.records: list[RecordFuture] = []
        self.bulk: Slice | None = None
        #: The outcome that all records of the batch share.
        self.end = BatchEnd(*partition)
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.created_ms = created_ms
        self.state = BatchState.OPEN
        #: Sequence number of its first record; `None` until it is sent first, and without idempotence.
        self.sequence: int | None = None
        #: The encoded batch, once it was built. From then on the records' keys and values are kept in here only.
        self.encoded: bytearray | None = None
        self.attempts = 0
        #: Whether it was sent without a response, so that the broker may have stored it.
        self.is_unsure = False
        #: The error for which it is sent again; `None` before the first failure.
        self.last_error: KohortError | None = None
        #: Not sent again before this time.
        self.not_before_ms = 0

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.records) if self.bulk is None else self.bulk.count

    @property
    def members(self) -> Sequence[Member]:
        """The objects to notify when the batch is stored or has failed."""
        return self.records if self.bulk is None else (self.bulk,)

    def add(self, record: RecordFuture) -> None:
        """Append a record."""
        record.end, record.index = self.end, len(self.records)
        self.records.append(record)
        self.size_bytes += record.size_bytes


class Accumulator:
    """The unacknowledged batches of one producer.

    Args:
        batch_bytes: size at which a batch may be sent; a single larger record makes a batch of its own.
        linger_ms: how long an open batch waits for more records.
        limit_bytes: size at which a batch that cannot be sent yet accepts no more records.
        partitioner: chooses the partition of records that name none.
    """

    def __init__(self, *, batch_bytes: int, linger_ms: int, limit_bytes: int, partitioner: Partitioner) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._limit_bytes = max(limit_bytes, batch_bytes)
        #: Topics whose broker has refused a batch that had grown above `batch_bytes`.
        self._narrow: set[str] = set()
        self.partitioner = partitioner
        #: partition -> its batches in order; no empty queues. Only the last may be filling. Batches in flight come
        #: first, unless one of them has to be sent again.
        self.queues: dict[TopicPartition, deque[Batch]] = {}
        #: topic -> partition -> the batch that accepts records, or `None`.
        self._filling: dict[str, list[Batch | None]] = {}
        #: The open ones of these batches, in order of their creation.
        self._lingering: dict[TopicPartition, Batch] = {}

    def add(self, record: RecordFuture, partition_count: int, now_ms: int) -> None:
        """Put a record into the batch of its partition.

        Raises:
            ConfigError: the application's own partitioner has failed, or its result is not a partition.
        """
        number = record.partition
        if number is None:
            number = self.partitioner.choose(record.topic, record.key, partition_count, record.size_bytes)
        filling = self._filling_of(record.topic, partition_count)
        batch = filling[number]
        if batch is not None and batch.size_bytes + record.size_bytes > self._limit_of(record.topic):
            self.close(batch)
            batch = None
        if batch is None:
            partition = TopicPartition(record.topic, number)
            batch = filling[number] = self._lingering[partition] = Batch(partition, now_ms)
            self.queues.setdefault(partition, deque()).append(batch)
        batch.add(record)
        self._close_if_due(batch)

    def add_run(self, records: list[Any], start: int, partition_count: int) -> int:
        """Put records of one topic, from `start` on, into existing batches; return the index of the first left over."""
        topic = records[start].topic
        filling = self._filling_of(topic, partition_count)
        turn, turn_bytes = self.partitioner.turn(topic, partition_count)
        limit_bytes = self._limit_of(topic)
        stop, left_bytes = place(
            records, start, topic, filling, partition_count, turn, turn_bytes, self._batch_bytes, limit_bytes
        )
        if left_bytes != turn_bytes:
            self.partitioner.spend(topic, turn_bytes - left_bytes)
        if stop > start:
            batch = filling[records[stop - 1].end.partition]
            assert batch is not None, "a record was put there"
            self._close_if_due(batch)
        return stop

    def add_bulk(self, bulk: Bulk, partition_count: int, now_ms: int) -> None:
        """Build batches of the rows of one call, to be sent after the existing batches.

        Raises:
            PartitionMissingError: a row names a partition that does not exist; nothing was added.
            ConfigError: the application's own partitioner has failed.
        """
        limit_bytes = self._limit_of(bulk.name) - BATCH_OVERHEAD_BYTES
        filling = self._filling_of(bulk.name, partition_count)
        for number, rows, first, stop in list(slices_of(bulk, partition_count, self.partitioner, self._batch_bytes)):
            partition = TopicPartition(bulk.name, number)
            last, filling[number] = filling[number], None
            # Rows are sent behind the records of that batch, so it takes no more of these.
            if last is not None:
                self.close(last)
            start = first
            while start < stop:
                end, size_bytes = bulk.columns.measure(rows, start, stop, limit_bytes)
                batch = Batch(partition, now_ms)
                batch.bulk = Slice(bulk, batch.end, rows, start, end)
                batch.size_bytes += size_bytes
                batch.state = BatchState.CLOSED
                self.queues.setdefault(partition, deque()).append(batch)
                start = end

    def _filling_of(self, topic: str, partition_count: int) -> list[Batch | None]:
        filling = self._filling.setdefault(topic, [])
        if len(filling) < partition_count:
            filling += [None] * (partition_count - len(filling))
        return filling

    def _limit_of(self, topic: str) -> int:
        return self._batch_bytes if topic in self._narrow else self._limit_bytes

    def _close_if_due(self, batch: Batch) -> None:
        if batch.size_bytes >= self._batch_bytes and batch.state is BatchState.OPEN:
            self.close(batch)

    def narrow(self, topic: str) -> None:
        """Limit the topic's batches to `batch_bytes` from now on."""
        self._narrow.add(topic)

    def close(self, batch: Batch) -> None:
        """Allow a batch to be sent."""
        batch.state = BatchState.CLOSED
        self._lingering.pop(batch.partition, None)

    def close_all(self) -> None:
        """Allow every batch to be sent, because a flush does not wait for linger.ms."""
        for batch in list(self._lingering.values()):
            self.close(batch)

    def close_lingered(self, now_ms: int) -> None:
        """Allow the batches to be sent whose linger.ms is over."""
        for batch in list(self._lingering.values()):
            # They are in the order in which they were begun, so the rest lingers, too.
            if batch.created_ms + self._linger_ms > now_ms:
                break
            self.close(batch)

    def next_linger(self) -> int | None:
        """Return when the linger.ms of the oldest open batch is over."""
        first = next(iter(self._lingering.values()), None)
        return None if first is None else first.created_ms + self._linger_ms

    def leave(self, batch: Batch) -> None:
        """Mark a batch as being sent: it accepts no more records."""
        batch.state = BatchState.IN_FLIGHT
        self._stop_filling(batch)

    def remove(self, batch: Batch) -> None:
        """Remove a batch that is stored or has failed."""
        queue = self.queues[batch.partition]
        queue.remove(batch)
        if not queue:
            del self.queues[batch.partition]
        self.seal(batch)

    def seal(self, batch: Batch) -> None:
        """Close a batch for further records, and allow it to be sent."""
        if batch.state is BatchState.OPEN:
            self.close(batch)
        self._stop_filling(batch)

    def _stop_filling(self, batch: Batch) -> None:
        topic, number = batch.partition
        filling = self._filling[topic]
        if filling[number] is batch:
            filling[number] = None

    def replace(self, batch: Batch, pieces: list[Batch]) -> None:
        """Replace a batch by its pieces, at the same place in the queue."""
        queue = self.queues[batch.partition]
        place = queue.index(batch)
        self.queues[batch.partition] = deque([*islice(queue, place), *pieces, *islice(queue, place + 1, None)])

    def batches(self) -> Iterator[Batch]:
        """Yield every batch, partition by partition, in order."""
        for queue in list(self.queues.values()):
            yield from list(queue)

    def ready(self, partition: TopicPartition, now_ms: int) -> Batch | None:
        """Return the next batch of a partition that may be sent now, or `None`."""
        for batch in self.queues.get(partition, ()):
            if batch.state is BatchState.OPEN:
                return None
            if batch.state is BatchState.CLOSED:
                # A batch that pauses before a retry holds up the later ones, so that order is kept.
                return batch if batch.not_before_ms <= now_ms else None
        return None


class PartitionMissingError(Exception):
    """A record names a partition that its topic does not have according to the client's metadata."""


def slices_of(
    bulk: Bulk, partition_count: int, partitioner: Partitioner, batch_bytes: int
) -> Iterator[tuple[int, Sequence[int] | None, int, int]]:
    """Yield (partition, rows or `None` for all, start and stop within these), in the order of sending.

    Every row goes to the partition that the partitioner chooses for a single record. Rows without a key go in pieces of
    a batch or more, each to the next partition in turn.

    Raises:
        PartitionMissingError: a row names a partition that does not exist.
        ConfigError: the application's own partitioner has failed.
    """
    columns = bulk.columns
    if bulk.partition is not None:
        _check(bulk.partition < partition_count, bulk.name, partition_count)
        yield bulk.partition, None, 0, columns.count
    elif partitioner.has_own_rule or (not columns.is_free and not partitioner.is_usual):
        chosen: dict[int, list[int]] = {}
        for row in range(columns.count):
            number = columns.partition_of(row)
            if number is None:
                number = partitioner.choose(bulk.name, columns.key_of(row), partition_count, batch_bytes)
            _check(number < partition_count, bulk.name, partition_count)
            chosen.setdefault(number, []).append(row)
        for number, rows in chosen.items():
            yield number, columns.chosen(rows), 0, len(rows)
    elif columns.is_free:
        piece_bytes = max(batch_bytes, bulk.size_bytes // partition_count)
        start = 0
        while start < columns.count:
            stop, size_bytes = columns.measure(None, start, columns.count, piece_bytes)
            yield partitioner.choose(bulk.name, None, partition_count, size_bytes), None, start, stop
            start = stop
    else:
        turn = partitioner.choose(bulk.name, None, partition_count, batch_bytes)
        spread = columns.spread(partition_count, turn)
        _check(bool(spread), bulk.name, partition_count)
        for number, own in enumerate(spread):
            if own:
                yield number, own, 0, len(own)


def _check(is_there: bool, topic: str, partition_count: int) -> None:
    if not is_there:
        raise PartitionMissingError(f"{topic} has partitions 0 to {partition_count - 1}, a record names another one")
