"""A simulated streaming query: Spark's order of calls, its two logs, a sink that knows batch ids.

Source: Spark's StreamExecution and MicroBatchExecution; measured order of calls.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from kohort.ids import TopicPartition
from kohort.spark.checkpoint import BatchState
from kohort.spark.offsets import OffsetJson, Span
from kohort.testing.clients.network import PROGRAM
from kohort.testing.queries.reader_process import QueryFailed, ReaderProcess, Spans

if TYPE_CHECKING:
    from kohort.testing.queries.query_world import QueryWorld


@dataclass
class Checkpoint:
    """A checkpoint that survives its query: Spark's logs, and the sink, which is restored with them."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    #: batch id -> what it has written.
    sink: dict[int, Spans] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether a batch is in the offset log and not in the commit log."""
        return len(self.offsets) > self.commits


class StreamingQuery:
    """A streaming query over all of its runs.

    `keeps_first`: its sink keeps the first writing of a batch, else the last. `looks`: its reader knows where the
    checkpoint is. `listens`: the driver tells when a batch is finished.
    """

    def __init__(self, world: QueryWorld, name: str) -> None:
        self.world: Final = world
        self.name: Final = name
        self.random: Final = Random(world.random.random())
        self.keeps_first = self.random.random() < 0.5
        self.looks = self.random.random() < 0.4
        self.listens = self.random.random() < 0.3
        self.checkpoint = Checkpoint()
        self.copies: list[Checkpoint] = []
        #: Whether one of them was, or will be, put back.
        self.is_put_back = False
        self.reader: ReaderProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._lives = 0

    @property
    def is_running(self) -> bool:
        """Whether the query's thread runs."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin another run, unless one is active."""
        if self.is_running:
            return
        self._lives += 1
        program = f"{self.name}-{self._lives}"
        context = copy_context()
        context.run(PROGRAM.set, program)
        self.reader = ReaderProcess(self.world, program, self.random)
        self._task = self.world.loop.create_task(self._run(self.reader), name=program, context=context)
        self._task.add_done_callback(self.world.on_task_done)
        self.world.tell(self.name, "starts")

    async def stop(self) -> None:
        """Stop the query as `query.stop()` does.

        The thread leaves its loop, then the reader gets SIGTERM; Spark does not wait for it.
        """
        if self.reader is not None:
            self.world.tell(self.name, "is stopped")
            await self._end_thread()
            reader = self.reader
            self.world.on_reader_ends(self, reader)
            self.world.keep(self.world.loop.create_task(reader.terminate(lambda: self._look(reader))))
            self.reader = None

    async def kill(self, what: str) -> None:
        """Kill the reader's process, or the whole container."""
        if self.reader is not None:
            self.world.tell(self.name, f"{what} is killed")
            reader, self.reader = self.reader, None
            self.world.on_reader_ends(self, reader)
            reader.kill()
            await self._end_thread()

    def keep_copy(self) -> None:
        """Copy checkpoint and sink."""
        # Before the first batch nothing in the checkpoint names the query.
        if not self.checkpoint.offsets:
            return
        self.world.tell(self.name, f"is copied at {len(self.checkpoint.offsets)}/{self.checkpoint.commits}")
        self.copies.append(deepcopy(self.checkpoint))

    async def put_back(self) -> None:
        """Restore an older copy of checkpoint and sink."""
        if self.copies and self.reader is None:
            self.checkpoint = deepcopy(self.random.choice(self.copies))
            self.world.tell(self.name, f"is put back to {len(self.checkpoint.offsets)}/{self.checkpoint.commits}")

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _end_thread(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])

    async def _run(self, reader: ReaderProcess) -> None:
        try:
            await self._execute(reader)
        except QueryFailed as error:
            self.world.tell(self.name, f"fails: {error}")
            # Spark calls `stop` when a call has failed.
            self.world.on_reader_ends(self, reader)
            self.reader = None
            self.world.keep(self.world.loop.create_task(reader.terminate(lambda: self._look(reader))))

    async def _execute(self, reader: ReaderProcess) -> None:
        checkpoint = self.checkpoint
        if checkpoint.is_open:
            spans = await reader.partitions(self._start(reader), json.loads(checkpoint.offsets[-1]))
            await self._run_batch(reader, spans)
        while True:
            await self._pass(self.world.queries.trigger_s)
            start = self._start(reader)
            end = await reader.latest_offset(start)
            if end == start:
                continue
            await self._pass(0.06)
            checkpoint.offsets.append(json.dumps(end))
            spans = await reader.partitions(start, end)
            await self._run_batch(reader, spans)

    async def _run_batch(self, reader: ReaderProcess, spans: Spans) -> None:
        """Run a batch: its tasks, the sink's commit, the commit log."""
        checkpoint = self.checkpoint
        number = checkpoint.commits
        self.world.tell(self.name, f"runs batch {number}: {_words(spans)}")
        await self._pass(self.random.choice((0.05, 0.3, 1.0)))
        if not (self.keeps_first and number in checkpoint.sink):
            checkpoint.sink[number] = spans
        await self._pass(0.08)
        checkpoint.commits += 1
        if self.listens:
            end = json.loads(checkpoint.offsets[number])
            delay_s = self.random.choice((0.1, 0.6))
            self.world.loop.call_later(
                delay_s, lambda: self.world.keep(self.world.loop.create_task(reader.batch_done(end)))
            )

    def _start(self, reader: ReaderProcess) -> OffsetJson:
        if self.checkpoint.commits:
            finished: OffsetJson = json.loads(self.checkpoint.offsets[self.checkpoint.commits - 1])
            return finished
        reader.initial_offset()
        return reader.initial_offset()

    def _look(self, reader: ReaderProcess) -> BatchState:
        """Return the batch state that `checkpoint.py` would find in the folder."""
        if not self.looks or reader.planned is None:
            return BatchState.UNKNOWN
        for number, text in enumerate(self.checkpoint.offsets):
            if json.loads(text) == reader.planned:
                return BatchState.FINISHED if number < self.checkpoint.commits else BatchState.OPEN
        return BatchState.UNWRITTEN if self.checkpoint.offsets else BatchState.UNKNOWN

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.random.uniform(0.5, 1.5))


def _words(spans: Spans) -> str:
    return ", ".join(f"{each} {span.start}-{span.end}" for each, span in sorted(spans.items()) if span.size > 0)


def read_of(checkpoint: Checkpoint) -> list[tuple[int, TopicPartition, Span]]:
    """List the spans in a checkpoint's sink: batch id, partition and span."""
    return [
        (number, each, span)
        for number, spans in sorted(checkpoint.sink.items())
        for each, span in sorted(spans.items())
        if span.size > 0
    ]
