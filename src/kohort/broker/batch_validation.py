"""The validation of clients' batches that take long, on their way into their logs.

What is not compressed is looked into where it is appended, what unfolds to little here; the rest on a thread, while
the loop goes on.

Laws: batches of one log reach it in the order in which they came, wherever they are looked into. What waits is
bounded; beyond that a producer is told to come again. So is what the loop unfolds in one turn.
Source: architecture rule 18; `storage/partitions/validation.py` says what is looked at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from kohort.base.values import value
from kohort.broker.scheduling import BlockingWork
from kohort.errors import ErrorCode, Refused
from kohort.records.choice import kernel_name
from kohort.records.compression import unfolds_to
from kohort.records.header import CODEC_NAMES, COMPRESSION_MASK, HEADER_SIZE, MIN_RECORD_SIZE
from kohort.storage.files.fs import Buffer
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.validation import CheckedBatch, prepare

#: A batch that is not compressed is looked into on the loop if it is no longer.
PLAIN_BYTES: Final = 1024 * 1024 + HEADER_SIZE
#: Records that the loop looks into at a time where kernels are not compiled.
SHORT_RECORDS: Final = 2048
#: A batch that unfolds to no more is unfolded on the loop.
SHORT_BYTES: Final = 128 * 1024
#: The same where it is to be compressed, which takes longer.
SHORT_RECODED_BYTES: Final = 8 * 1024
#: Bytes that the loop decompresses in one turn.
TURN_BYTES: Final = 4 << 20
#: Bytes that may wait for the thread, of all producers.
WAITING_LIMIT_BYTES: Final = 64 << 20
#: The lower byte of a batch's attributes, and the number of its records.
_CODEC_POSITION: Final = 22
_COUNT_POSITION: Final = 57
_COUNT_FIELD: Final = Struct(">i")
#: Takes the batch as it is to be stored, or the error.
Then = Callable[[CheckedBatch | Exception], None]


@value(kw_only=False)
class _Job:
    batch: bytes
    now_ms: int
    then: Then


class BatchValidation:
    """The batches that are being validated; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-prepare")
        #: Log -> the batches that wait; the first of each is on the thread.
        self._queues: Final[dict[PartitionLog, deque[_Job]]] = {}
        self._waiting_bytes = 0
        #: Bytes that the loop has decompressed in this turn.
        self._turn_bytes = 0
        #: The one buffer for batches that the loop decompresses, each validated before the next.
        self._scratch: Final = memoryview(bytearray(SHORT_BYTES))
        is_compiled = kernel_name() == "c"
        self._most_plain_bytes: Final = PLAIN_BYTES if is_compiled else SHORT_RECORDS * MIN_RECORD_SIZE

    def is_needed(self, log: PartitionLog, batch: Buffer) -> bool:
        """Whether a batch has to come this way; else it may be appended as it is."""
        size = len(batch)
        return size >= HEADER_SIZE and (
            batch[_CODEC_POSITION] & COMPRESSION_MASK != 0
            or log.config.compression_type != "producer"
            or (size > self._most_plain_bytes and not self._is_short(batch, size))
            or log in self._queues
        )

    def submit(self, log: PartitionLog, batch: Buffer, now_ms: int, then: Then) -> None:
        """Call `then` with the batch to append, now or later, after all earlier batches of the log."""
        if log not in self._queues and self._may_be_at_once(log, batch):
            then(_result(batch, log, now_ms, self._place))
            return
        # A producer sends a batch again after REQUEST_TIMED_OUT.
        if self._waiting_bytes + len(batch) > WAITING_LIMIT_BYTES:
            then(Refused(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be unfolded; send it again"))
            return
        self._waiting_bytes += len(batch)
        # Copy the batch: the buffer is the connection's, which reads on.
        job = _Job(bytes(batch), now_ms, then)
        if log in self._queues:
            self._queues[log].append(job)
        else:
            self._queues[log] = deque([job])
            self._begin(log, job)

    def stop(self) -> None:
        """End the thread; waiting batches are not appended any more."""
        self._thread.stop()

    def _is_short(self, batch: Buffer, size: int) -> bool:
        """Whether the loop may validate a batch that is not compressed."""
        return size <= PLAIN_BYTES and _COUNT_FIELD.unpack_from(batch, _COUNT_POSITION)[0] <= SHORT_RECORDS

    def _may_be_at_once(self, log: PartitionLog, batch: Buffer) -> bool:
        codec = batch[_CODEC_POSITION] & COMPRESSION_MASK
        if len(batch) > SHORT_BYTES or codec >= len(CODEC_NAMES):
            return codec >= len(CODEC_NAMES)
        size = unfolds_to(codec, memoryview(batch)[HEADER_SIZE:])
        if size > (SHORT_BYTES if log.config.compression_type == "producer" else SHORT_RECODED_BYTES):
            return False
        if not self._turn_bytes:
            self._loop.call_soon(self._begin_turn)
        self._turn_bytes += size
        return self._turn_bytes <= TURN_BYTES

    def _begin_turn(self) -> None:
        self._turn_bytes = 0

    def _place(self, _: str, size: int) -> memoryview:
        return self._scratch[:size]

    def _begin(self, log: PartitionLog, job: _Job) -> None:
        self._thread.submit(
            partial(prepare, job.batch, log.config, name=log.name, now_ms=job.now_ms), partial(self._on_done, log)
        )

    def _on_done(self, log: PartitionLog, result: CheckedBatch | Exception) -> None:
        queue = self._queues[log]
        while True:
            job = queue.popleft()
            self._waiting_bytes -= len(job.batch)
            job.then(result)
            if not queue:
                break
            job = queue[0]
            if not self._may_be_at_once(log, job.batch):
                self._begin(log, job)
                return
            # A short batch that waited for a long one is validated here, not on the thread.
            result = _result(job.batch, log, job.now_ms, self._place)
        del self._queues[log]


def _result(
    batch: Buffer, log: PartitionLog, now_ms: int, allocate: Callable[[str, int], memoryview]
) -> CheckedBatch | Exception:
    try:
        return prepare(batch, log.config, name=log.name, now_ms=now_ms, allocate=allocate)
    except Refused as refused:
        return refused
