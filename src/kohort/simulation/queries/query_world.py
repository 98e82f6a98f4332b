"""Spark queries of one group in a seeded world: they are stopped, killed and restored, and lose no record.

A run: a broker and queries start, and records are produced. For a while faults occur. Then all faults end, queries that
are not retired restart, and everything must be read within bounded time. Finally the sinks are compared with the logs.

Laws:
- `NothingMissing`: every record is in the sink of some query.
- `NothingDoubled`: no record is in the sinks twice, except those of a batch that was uncertain for longer than
  a session, and those of a batch that ran after the group had fenced its query.
- `OrderFollowed`: after an offset was set from outside, while no query ran, the next batch begins there.
- `EndsInTime`: the run ends within bounded time.
A seed says everything; nothing reads a clock or draws from elsewhere, so that a failure happens again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kohort.errors import FencedError
from kohort.ids import TopicPartition
from kohort.simulation.clients.plan import Plan, PlannedGroup
from kohort.simulation.clients.program_world import ProgramWorld, Report
from kohort.simulation.clients.writer import Writer
from kohort.simulation.queries.streaming_query import GROUP, QueryPlan, ReaderProcess, StreamingQuery, read_of
from kohort.simulation.trace import LawBroken
from kohort.spark.offsets import Span

#: The session of a member, s (`program_world.CONFIG`), and how much of it may have passed when its process ends.
SESSION_S: Final = 3.0
_HEARD_S: Final = 0.8
#: So long everything may take when nothing goes wrong any more, s.
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """An offset that was set from outside.

    `since`: query -> number of batches that it had planned by then. `end`: the log end offset then.
    """

    partition: TopicPartition
    offset: int
    end: int
    since: dict[str, int]


@dataclass(slots=True)
class _Doubt:
    """An uncertain batch: its reader's process has ended while the batch was open or not yet reported."""

    query: StreamingQuery
    name: str
    ended_s: float
    spans: dict[TopicPartition, Span]


class QueryWorld(ProgramWorld):
    """The queries' world of one seed.

    >>> QueryWorld(1).run().records > 0
    True
    """

    name = "queries"

    def __init__(self, seed: int, *, plan: QueryPlan | None = None) -> None:
        random = Random(f"queries {seed}")
        self.queries: Final = _draw_plan(random) if plan is None else plan
        planned = PlannedGroup(group_id=GROUP, protocol=self.queries.protocol, readers=0, auto_commit=False)
        world = Plan(
            brokers=1,
            topics={"t": random.randint(1, 4)},
            groups=(planned,),
            perturbed_s=self.queries.perturbed_s,
        )
        super().__init__(seed, random=Random(f"clients {seed}"), plan=world)
        self.running: list[StreamingQuery] = []
        self._doubts: list[_Doubt] = []
        #: Time up to which the broker could hear of no member.
        self._disturbed_s = -10.0
        #: Query -> time up to which the broker could not hear of its member.
        self._unheard_s: dict[StreamingQuery, float] = {}
        self._retired: list[StreamingQuery] = []
        self._orders: list[_Order] = []
        #: Offsets that may be in sinks twice.
        self._excused: dict[TopicPartition, set[int]] = {}

    # -- what queries use ---------------------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """Return the names of the group's present members, as a coordinator describes them."""
        groups = self._shard().groups
        group: Any = groups.consumer.get(GROUP) or groups.classic.get(GROUP)
        here = set() if group is None else set(group.instance_ids)
        # A program that asks may act on a state of a moment.
        self._look_for_ended_sessions(here)
        return here

    def on_reader_ends(self, query: StreamingQuery, reader: ReaderProcess) -> None:
        """Note the batch of an ended reader, which is uncertain from now on."""
        for doubt in self._doubts:
            if doubt.query is query and reader.core is not None and reader.core.has_ever_joined:
                # It was there again, and its session has begun anew.
                doubt.ended_s = self.loop.time()
        if reader.core is not None and reader.batch:
            self._doubts.append(_Doubt(query, reader.core.name, self.loop.time(), reader.batch))

    def on_fenced(self, reader: ReaderProcess) -> None:
        """Excuse the open batch of a fenced query."""
        # The group takes the query for dead, so that others may read its partitions.
        self._excuse(reader.batch)

    # -- the run ------------------------------------------------------------------------------------------------------

    async def _play(self) -> Report:
        writer = Writer(self, "writer")
        writer.start()
        for _ in range(self.queries.queries):
            await self.add_query()
        while self.loop.time() < self.queries.perturbed_s:
            await self.pass_time(self.queries.every_s * self.random.uniform(0.3, 1.7))
            weights = self.queries.weights
            if weights:
                await getattr(self, self.random.choices(list(weights), list(weights.values()))[0])()
        await self._come_to_rest_with(writer)
        doubled = self._check_account()
        while self.running:
            # It is not started again.
            await self.running.pop(0).stop()
        await writer.end()
        await self.pass_time(5.0)
        return self.report(doubled=doubled)

    def _look(self) -> None:
        super()._look()
        self.names()

    def _look_for_ended_sessions(self, here: set[str]) -> None:
        for doubt in list(self._doubts):
            later = doubt.query.reader
            if later is not None and later.has_planned:
                self._doubts.remove(doubt)
            elif doubt.name not in here:
                # A query that has left for good had nothing in doubt.
                is_over = self.loop.time() - doubt.ended_s >= SESSION_S - _HEARD_S
                was_unheard = doubt.ended_s < self._unheard_s.get(doubt.query, 0.0) + _HEARD_S
                if is_over or was_unheard or doubt.ended_s < self._disturbed_s + SESSION_S:
                    self._excuse(doubt.spans)
                self._doubts.remove(doubt)

    def _excuse(self, spans: dict[TopicPartition, Span]) -> None:
        for partition, span in spans.items():
            self.tell("world", f"{partition} {span.start}-{span.end} may be doubled")
            self._excused.setdefault(partition, set()).update(range(span.start, span.end))

    async def _come_to_rest_with(self, writer: Writer) -> None:
        self.is_healed = True
        self.tell("world", "everything is healed")
        self.loop.network.heal()
        if not self.brokers.leaders.running:
            await self.start_broker(1)
        await writer.settle()
        until_s = self.loop.time() + _PATIENCE_S
        while self._missing() and self.loop.time() < until_s:
            for query in self.running:
                query.start()
            await self.pass_time(1.0)

    # -- the account --------------------------------------------------------------------------------------------------

    def _counts(self) -> dict[TopicPartition, Counter[int]]:
        counts: dict[TopicPartition, Counter[int]] = {}
        for query in self._everybody():
            for _, partition, span in read_of(query.checkpoint):
                counts.setdefault(partition, Counter()).update(range(span.start, span.end))
        return counts

    def _everybody(self) -> Collection[StreamingQuery]:
        return [*self.running, *self._retired]

    def _missing(self) -> str | None:
        counts = self._counts()
        for partition in self.partitions():
            log = self.log(partition)
            for offset in range(0 if log is None else log.log_end_offset):
                if not counts.get(partition, Counter())[offset] and not self._is_passed_over(partition, offset):
                    return f"offset {offset} of {partition}"
        return None

    def _check_account(self) -> int:
        missing = self._missing()
        if missing is not None:
            raise LawBroken("NothingMissing", f"{missing} is in no sink")
        for order in self._orders:
            self._check_followed(order)
        doubled = 0
        for partition, counter in self._counts().items():
            for offset, times in sorted(counter.items()):
                if times > 1:
                    doubled += 1
                    if offset not in self._excused.get(partition, ()):
                        who = [
                            f"{query.name} batch {number}"
                            for query in self._everybody()
                            for number, each, span in read_of(query.checkpoint)
                            if each == partition and span.start <= offset < span.end
                        ]
                        raise LawBroken("NothingDoubled", f"offset {offset} of {partition} is with {', '.join(who)}")
        return doubled

    def _is_passed_over(self, partition: TopicPartition, offset: int) -> bool:
        return any(order.partition == partition and offset < order.offset for order in self._orders)

    def _check_followed(self, order: _Order) -> None:
        """Check that batches planned after an offset was set begin there, up to the next such offset."""
        later = [each for each in self._orders if each.partition == order.partition and each is not order]
        until = next((each.since for each in later if self._orders.index(each) > self._orders.index(order)), {})
        spans = [
            span
            for query in self._everybody()
            for number, partition, span in read_of(query.checkpoint)
            if partition == order.partition
            and order.since.get(query.name, 0) <= number < until.get(query.name, len(query.checkpoint.offsets))
        ]
        first = min((span.start for span in spans), default=None)
        if first is not None and first != order.offset:
            raise LawBroken(
                "OrderFollowed", f"{order.partition} was set to {order.offset}, and is read from {first} on"
            )
        if first is None and order.offset < order.end and not until:
            raise LawBroken("OrderFollowed", f"{order.partition} was set to {order.offset}, and is not read any more")

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def _one(self) -> StreamingQuery | None:
        return self.random.choice(self.running) if self.running else None

    def _start_later(self, query: StreamingQuery) -> None:
        """Start a query soon, after a while, or after its session has ended."""
        self.loop.call_later(self.random.choice((0.05, 1.0, 2.0, 6.0)), self._start_again, query)

    def _start_again(self, query: StreamingQuery) -> None:
        if query in self.running:
            query.start()

    async def stop(self) -> None:
        if (query := self._one()) is not None:
            await query.stop()
            self._start_later(query)

    async def kill_reader(self) -> None:
        if (query := self._one()) is not None:
            await query.kill("its reader")
            self._start_later(query)

    async def kill_container(self) -> None:
        if (query := self._one()) is not None:
            await query.kill("its container")
            self._start_later(query)

    async def copy(self) -> None:
        if (query := self._one()) is not None:
            query.keep_copy()

    async def restore(self) -> None:
        query = self._one()
        if query is None or not query.copies:
            return
        query.is_put_back = True
        await (query.stop() if self.random.random() < 0.5 else query.kill("it"))

        async def put_back() -> None:
            await query.put_back()
            self._start_again(query)

        # Not while the process before it still looks into the folder.
        delay_s = self.random.choice((4.0, 6.0))
        self.loop.call_later(delay_s, lambda: self.keep(self.loop.create_task(put_back())))

    async def add_query(self) -> None:
        if len(self.running) < 4:
            query = StreamingQuery(self, f"query-{len(self._everybody()) + 1}", self)
            self.running.append(query)
            query.start()

    async def retire(self) -> None:
        """Stop a query for good, unless its restored checkpoint still has to read lost records again."""
        query = self._one()
        # No other query can read the records that a copy has lost.
        if len(self.running) > 1 and query is not None and not query.is_put_back:
            self.running.remove(query)
            self._retired.append(query)
            await (query.stop() if self.random.random() < 0.7 else query.kill("it"))

    async def order(self) -> None:
        """Stop every query, and set an offset of the group once the group has no members."""
        for _ in range(100):
            if not any(query.checkpoint.is_open for query in self.running):
                break
            await self.pass_time(0.05)
        for query in self.running:
            await query.stop()
        for _ in range(40):
            if not self.names():
                break
            await self.pass_time(0.2)
        partition = self.random.choice(self.partitions())
        log = self.log(partition)
        if not self.names() and log is not None and not any(query.checkpoint.is_open for query in self.running):
            offset = self.random.choice((0, self.random.randint(0, log.log_end_offset)))
            since = {query.name: len(query.checkpoint.offsets) for query in self._everybody()}
            order = _Order(partition=partition, offset=offset, end=log.log_end_offset, since=since)
            self.tell("world", f"{partition} is set to {offset}")
            async with ReaderProcess(self, "tool", self.random, self).build(group_id=GROUP) as tool:
                with suppress(FencedError):
                    # A query that was stopped on its way into the group may be a member for a moment more.
                    await tool.commit({partition: offset})
                    self._orders.append(order)
                    self._excuse({partition: Span(offset, log.log_end_offset)})
        for query in self.running:
            query.start()

    async def restart_broker(self) -> None:
        if not self.brokers.leaders.running:
            return
        self.tell("world", "the broker restarts")
        self._disturbed_s = self.loop.time() + 1.0
        self.brokers.kill(1, hand_over=False)

        async def come_back() -> None:
            if not self.brokers.leaders.running:
                await self.start_broker(1)

        self.loop.call_later(self.random.choice((0.2, 1.0)), lambda: self.keep(self.loop.create_task(come_back())))

    async def stall_broker(self) -> None:
        seconds = self.random.choice((0.5, 2.0))
        self.tell("world", f"the broker stands still for {seconds:g} s")
        self._disturbed_s = self.loop.time() + seconds
        self.loop.network.stall("broker-1", seconds)

    async def lose_coordinator(self) -> None:
        """Lose every membership request of one reader for a while; all its other requests arrive."""
        query = self._one()
        if query is None or query.reader is None:
            return
        program, seconds = query.reader.program, self.random.choice((1.0, 4.0, 6.0))
        self.tell("world", f"no word of membership of {program} arrives for {seconds:g} s")
        self._unheard_s[query] = self.loop.time() + seconds
        self.loop.network.unheard.add(program)
        self.loop.call_later(seconds, self.loop.network.unheard.discard, program)

    async def grow_topic(self) -> None:
        topic = self.brokers.shared.cluster.topic("t")
        if topic is not None and len(topic.partitions) < 6:
            self.tell("world", "topic t grows")
            self.brokers.shared.cluster.grow_topic("t", len(topic.partitions) + 1)

    def _shard(self) -> Any:
        runtime = self.brokers.runtime
        return runtime._shard_logs[runtime.index_of(GROUP)].shard


def _draw_plan(random: Random) -> QueryPlan:
    return QueryPlan(
        protocol=random.choice(("consumer", "consumer", "classic")),
        queries=random.randint(1, 3),
        trigger_s=random.choice((0.1, 0.5, 2.0)),
        every_s=random.choice((0.5, 1.0, 2.0)),
        perturbed_s=random.choice((5.0, 8.0, 12.0)),
    )
