"""A simulated streaming query: Spark's order of calls, its two logs, a sink that knows batch ids.

Source: Spark's StreamExecution and MicroBatchExecution; measured order of calls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from kohort.aio import Consumer
from kohort.errors import FencedError, KohortError, StateError
from kohort.ids import TopicPartition
from kohort.simulation.clients.network import PROGRAM
from kohort.spark.checkpoint import BatchState
from kohort.spark.member import requests
from kohort.spark.member.batch_notes import from_offsets, group_of_notes, to_offsets
from kohort.spark.member.core import Membership
from kohort.spark.member.names import QueryName
from kohort.spark.member.requests import NoAssignment, Places, Steps
from kohort.spark.offsets import OffsetJson, Span, from_json, share_limit, to_json

if TYPE_CHECKING:
    from kohort.simulation.clients.program_world import ProgramWorld


GROUP: Final = "blue"
#: Faults, by weight; the names are methods of `QueryWorld`.
WEIGHTS: Final = {
    "stop": 4,
    "kill_reader": 2,
    "kill_container": 2,
    "copy": 3,
    "restore": 2,
    "add_query": 2,
    "retire": 1,
    "restart_broker": 1,
    "stall_broker": 1,
    "grow_topic": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """The plan of a world."""

    protocol: Literal["consumer", "classic"] = "consumer"
    queries: int = 2
    trigger_s: float = 0.5
    weights: dict[str, int] = field(default_factory=lambda: WEIGHTS)
    every_s: float = 1.0
    perturbed_s: float = 15.0
    group_id: str = GROUP


class QueryWatch(Protocol):
    """The part of a world that queries ask about their group and that checks them."""

    @property
    def queries(self) -> QueryPlan:
        """The plan of the queries."""

    def names(self) -> set[str]:
        """Return the names of the group's present members, as a coordinator describes them."""

    def on_reader_ends(self, query: StreamingQuery, reader: ReaderProcess) -> None:
        """Note the batch of an ended reader."""

    def on_fenced(self, reader: ReaderProcess) -> None:
        """Excuse the open batch of a fenced query."""


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

    `keeps_first`: the sink keeps the first write of a batch id, otherwise the last. `looks`: the reader knows the
    checkpoint's location. `listens`: the driver notifies the reader of finished batches.
    """

    def __init__(self, world: ProgramWorld, name: str, watch: QueryWatch) -> None:
        self.world: Final = world
        #: Answers for the group, and is told of readers that end.
        self._watch: Final = watch
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
        self.reader = ReaderProcess(self.world, program, self.random, self._watch)
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
            self._watch.on_reader_ends(self, reader)
            self.world.keep(self.world.loop.create_task(reader.terminate(lambda: self._look(reader))))
            self.reader = None

    async def kill(self, what: str) -> None:
        """Kill the reader's process, or the whole container."""
        if self.reader is not None:
            self.world.tell(self.name, f"{what} is killed")
            reader, self.reader = self.reader, None
            self._watch.on_reader_ends(self, reader)
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
            self._watch.on_reader_ends(self, reader)
            self.reader = None
            self.world.keep(self.world.loop.create_task(reader.terminate(lambda: self._look(reader))))

    async def _execute(self, reader: ReaderProcess) -> None:
        checkpoint = self.checkpoint
        if checkpoint.is_open:
            spans = await reader.partitions(self._start(reader), json.loads(checkpoint.offsets[-1]))
            await self._run_batch(reader, spans)
        while True:
            await self._pass(self._watch.queries.trigger_s)
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


# The process beside a driver that is a query's member of its group, on simulated time and network.
#
# What it decides is the product's (`kohort.spark.member`), and its consumers are; only the thread is missing: what
# `member/thread.py` does blockingly is done here on the loop.

T = TypeVar("T")
Spans = dict[TopicPartition, Span]
_LOOK_UP_S: Final = 0.2
_CALL_S: Final = 6.0


class QueryFailed(Exception):
    """A failed call by Spark: the query ends, and the world starts it again."""


class ReaderProcess:
    """One life of a reader's process: from its first call to its end."""

    def __init__(self, world: ProgramWorld, program: str, random: Random, watch: QueryWatch) -> None:
        self.world: Final = world
        #: Answers for the group, and is told of readers that end.
        self._watch: Final = watch
        self.program: Final = program
        self.core: Membership | None = None
        #: The end of the batch that this process has planned last.
        self.planned: OffsetJson | None = None
        #: The spans of the last batch that this process knows.
        self.batch: Spans = {}
        #: The group knows how far the runs before it came.
        self.has_planned = False
        self._random = random
        self._name = QueryName(None)
        self._consumer: Consumer | None = None
        self._turn = asyncio.Lock()
        self._is_closing = False
        self._is_gone = False
        self._task: asyncio.Task[None] | None = None

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def initial_offset(self) -> OffsetJson:
        """Return the initial offset; Spark asks for it twice."""
        return to_json({}, name=self._name.take(None))

    async def latest_offset(self, start: OffsetJson) -> OffsetJson:
        """Plan the next batch; everything up to `start` is finished."""
        done = from_json(start)
        name = self._name.take(done.name)
        core = self._open(name)
        limit = self._random.choice((None, 5, 50))
        plan = await self._call(lambda: core.plan(done, self.world.loop.now_ms()), limit=limit)
        end = plan.offset(start, done, name=name)
        self.batch = {each: span for each, span in plan.spans.items() if span.size > 0}
        self.has_planned = True
        if end != start:
            self.planned = end
        return end

    async def partitions(self, start: OffsetJson, end: OffsetJson) -> Spans:
        """Return the spans that the batch ending at `end` reads."""
        before, wanted = from_json(start), from_json(end)
        if end == self.planned:
            return wanted.following(before)
        core = self._open(self._name.take(wanted.name))
        self.batch = {each: span for each, span in wanted.following(before).items() if span.size > 0}
        left = await self._call(lambda: core.resume(before, wanted, self.world.loop.now_ms()))
        self.has_planned = True
        self.planned = end
        return left

    async def batch_done(self, end: OffsetJson) -> None:
        """Handle the driver's message that a batch is finished."""
        core = self.core
        if core is None or self._is_gone or end != self.planned or self._turn.locked() or not core.is_open:
            return
        async with self._turn:
            try:
                await self._drive(core.finish_open())
            except KohortError as error:
                self._tell(f"could not tell the group: {error}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the process without closing its consumer."""
        self._is_closing = self._is_gone = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self._consumer is not None:
            self._consumer._context.host.stop()
            self._consumer._context.is_closed = True

    async def terminate(self, look: Callable[[], BatchState]) -> None:
        """End the process by SIGTERM or the end of the JVM; the member's own thread leaves the group."""
        if self.core is None or self._is_closing:
            self._is_closing = True
            return
        self._is_closing = True
        task, self._task = self._task, None
        assert task is not None
        await asyncio.wait([task], timeout=1.0)
        task.cancel()
        goes = False
        try:
            async with asyncio.timeout(3.0):
                async with self._turn:
                    goes = await self._drive(self.core.part(look()))
        except (KohortError, TimeoutError) as error:
            self._tell(f"its last words are lost: {error}")
            self.core.on_ending()
        self._tell("leaves for good" if goes else "leaves as one that comes back")
        assert self._consumer is not None
        try:
            await self._consumer.close(3.0, group_membership="leave_group" if goes else "default")
        except KohortError as error:
            self._tell(f"cannot say goodbye: {error}")
        self._is_gone = True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open(self, name: str) -> Membership:
        if self.core is not None:
            return self.core
        plan = self._watch.queries
        self.core = Membership(name, waits=True, join_patience_ms=8_000, doubt_patience_ms=600_000)
        self._consumer = self.build(
            group_id=plan.group_id,
            group_instance_id=name,
            group_protocol=plan.protocol,
            auto_offset_reset="none",
            fetch_buffer_bytes=0,
            max_poll_interval_ms=600_000,
        )
        context = copy_context()
        context.run(PROGRAM.set, self.program)
        self._task = self.world.loop.create_task(self._hold(), name=self.program, context=context)
        self._task.add_done_callback(self.world.on_task_done)
        return self.core

    def build(self, **options: Any) -> Consumer:
        """Build a consumer of this process."""
        only_classic: Any = {}
        if options.get("group_protocol") == "classic":
            only_classic = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500}
        return Consumer(
            bootstrap_servers=self.world.bootstrap,
            client_id=self.program,
            enable_auto_commit=False,
            request_timeout_ms=4_000,
            default_api_timeout_ms=int(_CALL_S * 1000),
            socket_connection_setup_timeout_ms=1_000,
            retry_backoff_max_ms=500,
            metadata_max_age_ms=2_000,
            **options,
            **only_classic,
        )

    async def _hold(self) -> None:
        assert self._consumer is not None
        assert self.core is not None
        consumer, core = self._consumer, self.core
        consumer.subscribe(
            sorted(self.world.plan.topics),
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        while not self._is_closing:
            try:
                await consumer.poll(_LOOK_UP_S)
            except KohortError as error:
                if self._is_closing:
                    return
                if not (error.retriable and core.has_ever_joined):
                    self._tell(f"its membership ends: {error}")
                    self._is_closing = True
                    core.on_ending()
                    await consumer.close(3.0)
                    return
            if consumer.has_assignment and not core.is_joined:
                await self._on_assigned(consumer, [])

    async def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self.core is not None
        self._tell(f"is assigned {', '.join(map(str, partitions))}")
        consumer.pause(partitions)
        self.core.on_assigned(partitions)

    async def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self.core is not None
        self.core.on_wanted_back(partitions)
        while not (self.core.may_give_up(partitions) or self._is_closing) and consumer.has_assignment:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_UP_S)
        self._tell(f"gives up {', '.join(map(str, partitions))}")
        self.core.on_given_up(partitions)

    async def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self.core is not None
        self._tell(f"loses {', '.join(map(str, partitions))}")
        self._watch.on_fenced(self)
        self.core.on_lost(partitions)

    async def _call(self, begin: Callable[[], Steps[T]], *, limit: int | None = None) -> T:
        try:
            async with self._turn:
                return await self._drive(begin(), limit)
        except (KohortError, NoAssignment) as error:
            raise QueryFailed(f"{type(error).__name__}: {error}") from error

    async def _drive(self, steps: Steps[T], limit: int | None = None) -> T:
        answer: Any = None
        try:
            while True:
                request = steps.send(answer)
                answer = await self._answer(request, limit)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()
            if self.core is not None:
                for note in self.core.notes:
                    self._tell(note)
                self.core.notes.clear()

    async def _answer(self, request: requests.Request, limit: int | None) -> object:
        assert self._consumer is not None
        match request:
            case requests.Wait():
                await asyncio.sleep(_LOOK_UP_S)
                if self._is_closing:
                    raise StateError("this query has ended")
                return self.world.loop.now_ms()
            case requests.Fetch(partitions=partitions):
                return from_offsets(await self._consumer.committed(partitions, metadata=True), {})
            case requests.Commit(ledgers=ledgers):
                try:
                    await self._consumer.commit(to_offsets(ledgers, {}))
                except FencedError:
                    return False
                self._tell(f"commits {ledgers}")
                return True
            case requests.LeaveNotes(ledgers=ledgers):
                assert self.core is not None
                self._tell(f"notes {ledgers}")
                async with self.build(group_id=self._notes(self.core.name)) as notes:
                    await notes.commit(to_offsets(ledgers, {}))
                return True
            case requests.ReadNotes(name=name, partitions=partitions):
                async with self.build(group_id=self._notes(name)) as notes:
                    return from_offsets(await notes.committed(partitions, metadata=True), {})
            case requests.Names():
                return self._watch.names()
            case requests.Existing():
                return self.world.partitions()
            case requests.Choose(places=places):
                return await self._choose(places, limit)

    async def _choose(self, places: Places, limit: int | None) -> Spans:
        assert self._consumer is not None
        ends = await self._consumer.end_offsets(places)
        spans: Spans = {}
        for partition, place in places.items():
            start = 0 if place is None else place.start
            stop = None if place is None else place.stop
            end = ends[partition] if stop is None else min(ends[partition], stop)
            spans[partition] = Span(start, max(start, end))
        return share_limit(spans, limit)

    def _notes(self, name: str) -> str:
        return group_of_notes(self._watch.queries.group_id, name)

    def _tell(self, what: str) -> None:
        self.world.tell(self.program, what)
