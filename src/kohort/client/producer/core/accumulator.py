"""Records grouped into batches, partition by partition, until they are acknowledged.

Laws: batches of a partition are sent, and sent again, in the order in which they were filled; a batch keeps its
sequence number over retries, so that the broker recognises it. A batch that is due but cannot leave yet, since its
leader is busy, goes on filling: what waits long is sent in large pieces.
Source: Kafka's RecordAccumulator; KIP-98 (idempotence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any

from kohort.client.producer.core.partitioner import Partitioner
from kohort.client.producer.core.placing_kernels import place
from kohort.client.producer.core.shares import shares
from kohort.client.producer.many import Bulk, Slice
from kohort.client.producer.record_future import BatchEnd, RecordFuture
from kohort.errors import KohortError
from kohort.ids import TopicPartition

#: Of a batch without records, and of one record: what the headers of format 2 take at most.
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 24


#: What a batch consists of, and what is on its way to one.
Member = RecordFuture | Bulk | Slice


class BatchState(Enum):
    """Where a batch is on its way."""

    #: It waits for more.
    OPEN = "open"
    #: It may leave; the last one of its partition takes more records until it does.
    CLOSED = "closed"
    IN_FLIGHT = "in flight"


class Batch:
    """Records for one partition that travel together."""

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
        #: One by one, or all in one `bulk`.
        self.records: list[RecordFuture] = []
        self.bulk: Slice | None = None
        #: What all of them end with.
        self.end = BatchEnd(*partition)
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.created_ms = created_ms
        self.state = BatchState.OPEN
        #: Sequence number of its first record; `None` until it is sent first, and without idempotence.
        self.sequence: int | None = None
        #: The batch as bytes once it was built; keys and values are in here only from then on.
        self.encoded: bytearray | None = None
        self.attempts = 0
        #: It was sent and not answered: the broker may have it.
        self.is_unsure = False
        #: Why it is sent again; `None` before the first failure.
        self.last_error: KohortError | None = None
        #: Not sent again before this instant.
        self.not_before_ms = 0

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.records) if self.bulk is None else self.bulk.count

    @property
    def members(self) -> Sequence[Member]:
        """What is told of the end."""
        return self.records if self.bulk is None else (self.bulk,)

    def add(self, record: RecordFuture) -> None:
        """One more record."""
        record.end, record.index = self.end, len(self.records)
        self.records.append(record)
        self.size_bytes += record.size_bytes


class Accumulator:
    """Every batch of one producer that is not acknowledged.

    Args:
        batch_bytes: size at which a batch may leave; a single larger record makes a batch of its own.
        linger_ms: how long an open batch waits for more.
        limit_bytes: a batch that cannot leave takes no more than that.
        partitioner: chooses for records that name no partition.
    """

    def __init__(self, *, batch_bytes: int, linger_ms: int, limit_bytes: int, partitioner: Partitioner) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._limit_bytes = max(limit_bytes, batch_bytes)
        #: Topics whose broker has refused a batch that had grown above `batch_bytes`.
        self._narrow: set[str] = set()
        self.partitioner = partitioner
        #: partition -> its batches in order; only the last may be filling, those in flight come first unless one of
        #: them has to be sent again. No empty queues.
        self.queues: dict[TopicPartition, deque[Batch]] = {}
        #: topic -> partition -> the batch that takes records, or `None`.
        self._filling: dict[str, list[Batch | None]] = {}
        #: Those of them that are open, in the order in which they were begun.
        self._lingering: dict[TopicPartition, Batch] = {}

    def add(self, record: RecordFuture, partition_count: int, now_ms: int) -> None:
        """Put a record into the batch of its partition.

        Raises:
            ConfigError: the application's own partitioner has failed, or its answer is no partition.
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
        """Put records of one topic, from `start` on, into batches that are there; returns where that ended."""
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
        """Make batches of rows, behind all that is there.

        Raises:
            PartitionMissingError: a row names a partition that is not there; nothing was added.
            ConfigError: the application's own partitioner has failed.
        """
        limit_bytes = self._limit_of(bulk.name) - BATCH_OVERHEAD_BYTES
        filling = self._filling_of(bulk.name, partition_count)
        for number, rows, first, stop in list(shares(bulk, partition_count, self.partitioner, self._batch_bytes)):
            partition = TopicPartition(bulk.name, number)
            last, filling[number] = filling[number], None
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
        """The topic takes no batches much above `batch_bytes`."""
        self._narrow.add(topic)

    def close(self, batch: Batch) -> None:
        """It may leave."""
        batch.state = BatchState.CLOSED
        self._lingering.pop(batch.partition, None)

    def close_all(self) -> None:
        """Every batch may leave: a flush waits for no linger."""
        for batch in list(self._lingering.values()):
            self.close(batch)

    def close_lingered(self, now_ms: int) -> None:
        """Those whose linger is over may leave."""
        for batch in list(self._lingering.values()):
            if batch.created_ms + self._linger_ms > now_ms:
                break
            self.close(batch)

    def next_linger(self) -> int | None:
        """When the first linger ends."""
        first = next(iter(self._lingering.values()), None)
        return None if first is None else first.created_ms + self._linger_ms

    def leave(self, batch: Batch) -> None:
        """It is being sent: no more records for it."""
        batch.state = BatchState.IN_FLIGHT
        self._stop_filling(batch)

    def remove(self, batch: Batch) -> None:
        """A batch has its end."""
        queue = self.queues[batch.partition]
        queue.remove(batch)
        if not queue:
            del self.queues[batch.partition]
        self.seal(batch)

    def seal(self, batch: Batch) -> None:
        """It takes no more records, and may leave."""
        if batch.state is BatchState.OPEN:
            self.close(batch)
        self._stop_filling(batch)

    def _stop_filling(self, batch: Batch) -> None:
        topic, number = batch.partition
        filling = self._filling[topic]
        if filling[number] is batch:
            filling[number] = None

    def replace(self, batch: Batch, pieces: list[Batch]) -> None:
        """A batch was cut; the pieces take its place in the order."""
        queue = self.queues[batch.partition]
        place = queue.index(batch)
        self.queues[batch.partition] = deque([*islice(queue, place), *pieces, *islice(queue, place + 1, None)])

    def batches(self) -> Iterator[Batch]:
        """Every batch, partition by partition, in order."""
        for queue in list(self.queues.values()):
            yield from list(queue)

    def ready(self, partition: TopicPartition, now_ms: int) -> Batch | None:
        """The next batch of a partition that may be sent, `None` if there is none at present."""
        for batch in self.queues.get(partition, ()):
            if batch.state is BatchState.OPEN:
                return None
            if batch.state is BatchState.CLOSED:
                # An earlier batch that pauses before a retry holds up the later ones: order is kept.
                return batch if batch.not_before_ms <= now_ms else None
        return None
