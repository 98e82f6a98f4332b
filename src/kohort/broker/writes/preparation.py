"""Batches whose topic asks for more than their headers say, on their way into their log.

What is short is unfolded at once; the rest on a thread, while the loop goes on.

Laws: batches of one log reach it in the order in which they came, whether they were looked into or not. What waits is
bounded; beyond that a producer is told to come again.
Source: architecture rule 18; `storage/partitions/contents.py` says what is asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kohort.broker.turns.blocking import BlockingWork
from kohort.errors import CorruptRecordError, ErrorCode, Refused
from kohort.storage.files.fs import Buffer
from kohort.storage.partitions.contents import prepare, prepare_for_good
from kohort.storage.partitions.partition import PartitionLog

#: A set of batches that is no longer, and unfolds to no more, is looked into on the loop.
SHORT_BYTES: Final = 64 * 1024
#: The same where it is to be compressed, which takes longer.
SHORT_RECODED_BYTES: Final = 8 * 1024
#: Bytes that may wait for the thread, of all producers.
WAITING_LIMIT_BYTES: Final = 64 << 20
#: Takes the batches as they are to be stored, or why they are not.
Then = Callable[[Buffer | Exception], None]


@dataclass(frozen=True, slots=True)
class _Job:
    batches: bytes
    now_ms: int
    then: Then


class Preparation:
    """What is on its way; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-prepare")
        #: Log -> what waits for its turn; the first of each is with the thread.
        self._queues: Final[dict[PartitionLog, deque[_Job]]] = {}
        self._waiting_bytes = 0

    def is_needed(self, log: PartitionLog) -> bool:
        """Whether a batch for this log has to come this way."""
        return log.config.looks_inside or log in self._queues

    def submit(self, log: PartitionLog, batches: Buffer, now_ms: int, then: Then) -> None:
        """Call `then` with what is to be appended, at once or later; what came before is appended by then."""
        if log not in self._queues:
            done = _at_once(log, batches, now_ms)
            if done is not None:
                then(done)
                return
        if self._waiting_bytes + len(batches) > WAITING_LIMIT_BYTES:
            then(Refused(ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be unfolded; send it again"))
            return
        self._waiting_bytes += len(batches)
        # The buffer is the connection's, which reads on.
        job = _Job(bytes(batches), now_ms, then)
        queue = self._queues.setdefault(log, deque())
        queue.append(job)
        if len(queue) == 1:
            self._begin(log, job)

    def stop(self) -> None:
        """End the thread; what waits is not appended any more."""
        self._thread.stop()

    def _begin(self, log: PartitionLog, job: _Job) -> None:
        name = f"{log.topic}-{log.partition}"
        work = partial(prepare_for_good, job.batches, log.config, name=name, now_ms=job.now_ms)
        self._thread.submit(work, partial(self._on_done, log))

    def _on_done(self, log: PartitionLog, result: Buffer | Exception) -> None:
        queue = self._queues[log]
        job = queue.popleft()
        self._waiting_bytes -= len(job.batches)
        if queue:
            self._begin(log, queue[0])
        else:
            del self._queues[log]
        job.then(result)


def _at_once(log: PartitionLog, batches: Buffer, now_ms: int) -> Buffer | Exception | None:
    """What `prepare` makes of batches that are short; `None` for those that are not."""
    limit = SHORT_BYTES if log.config.compression_type == "producer" else SHORT_RECODED_BYTES
    if len(batches) > limit:
        return None
    try:
        return prepare(batches, log.config, name=f"{log.topic}-{log.partition}", now_ms=now_ms, limit_bytes=limit)
    except CorruptRecordError:
        # Or it unfolds to more: the thread finds out.
        return None
    except Refused as refused:
        return refused
