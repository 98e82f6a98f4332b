"""Records grouped into batches, partition by partition, until they are acknowledged.

Laws: batches of a partition are sent, and sent again, in the order in which they were filled; a batch keeps its
sequence number over retries, so that the broker recognises it.
Source: Kafka's RecordAccumulator; KIP-98 (idempotence).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum

from kohort.client.producer.core.partitioner import Partitioner
from kohort.client.producer.core.submissions import PendingRecord
from kohort.errors import KohortError
from kohort.ids import TopicPartition

#: Of a batch without records, and of one record: what the headers of format 2 take at most.
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 24


class BatchState(Enum):
    """Where a batch is on its way."""

    OPEN = "open"
    CLOSED = "closed"
    IN_FLIGHT = "in flight"


class Batch:
    """Records for one partition that travel together."""

    __slots__ = (
        "attempts",
        "created_ms",
        "encoded",
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
        self.records: list[PendingRecord] = []
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.created_ms = created_ms
        self.state = BatchState.OPEN
        #: Sequence number of its first record; `None` until it is sent first, and without idempotence.
        self.sequence: int | None = None
        #: The batch as bytes once it was built.
        self.encoded: bytes | None = None
        self.attempts = 0
        #: Why it is sent again; `None` before the first failure.
        self.last_error: KohortError | None = None
        #: Not sent again before this instant.
        self.not_before_ms = 0


class Accumulator:
    """Every batch of one producer that is not acknowledged.

    Args:
        batch_bytes: size at which a batch is closed; a single larger record makes a batch of its own.
        linger_ms: how long an open batch waits for more.
    """

    def __init__(self, *, batch_bytes: int, linger_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self.partitioner = Partitioner()
        #: partition -> its batches in order; only the last may be open, those in flight come first unless one of
        #: them has to be sent again. No empty queues.
        self.queues: dict[TopicPartition, deque[Batch]] = {}
        #: Batches that are filling, by partition.
        self._open: dict[tuple[str, int], Batch] = {}

    def add(self, record: PendingRecord, partition_count: int, now_ms: int) -> None:
        """Put a record into the batch of its partition."""
        number = record.partition
        if number is None:
            number = self.partitioner.choose(record.topic, record.body[0], partition_count)
        batch = self._open.get((record.topic, number))
        if batch is not None and batch.size_bytes + record.size_bytes > self._batch_bytes:
            self.close(batch)
            batch = None
        if batch is None:
            partition = TopicPartition(record.topic, number)
            batch = self._open[partition] = Batch(partition, now_ms)
            self.queues.setdefault(partition, deque()).append(batch)
        batch.records.append(record)
        batch.size_bytes += record.size_bytes
        if batch.size_bytes >= self._batch_bytes:
            self.close(batch)

    def close(self, batch: Batch) -> None:
        """No more records for this batch."""
        batch.state = BatchState.CLOSED
        self._open.pop(batch.partition, None)
        self.partitioner.on_batch_closed(*batch.partition)

    def close_all(self) -> None:
        """Close every open batch: a flush waits for no linger."""
        for batch in list(self._open.values()):
            self.close(batch)

    def close_lingered(self, now_ms: int) -> None:
        """Close the batches whose linger is over."""
        for batch in list(self._open.values()):
            if batch.created_ms + self._linger_ms <= now_ms:
                self.close(batch)

    def next_linger(self) -> int | None:
        """When the first linger ends."""
        # Open batches are in the order in which they were begun.
        first = next(iter(self._open.values()), None)
        return None if first is None else first.created_ms + self._linger_ms

    def remove(self, batch: Batch) -> None:
        """A batch has its end."""
        queue = self.queues[batch.partition]
        queue.remove(batch)
        if not queue:
            del self.queues[batch.partition]
        if self._open.get(batch.partition) is batch:
            self.close(batch)

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
