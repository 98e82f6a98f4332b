"""The clients' world in a seed: real brokers, real consumers and producers, virtual time, and all that goes wrong.

A run is: brokers and applications start; for a while things go wrong; then everything is healed, and every record has
to be read, by every group, within bounded time; then records have to arrive at once, whatever else is paused or idle;
then everybody closes, and nothing may be left open.

Laws, beside those of `ledger`, `reader`, `writer` and `aftermath`:
- `BufferWithinLimit`: what is fetched ahead stays within fetch.buffer.bytes, but for one batch a fetch; and when all of
  it has been handed out nothing is counted any more.
- `NothingIsLeft`: after its close a client has no connection and no task.
A seed says everything; nothing reads a clock or draws from elsewhere, so that a failure happens again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from kohort.broker.server import Server
from kohort.broker.settings import BrokerSettings
from kohort.errors import InvariantViolation
from kohort.ids import TopicPartition
from kohort.records.columns import decode_columns
from kohort.storage.partition import PartitionLog
from kohort.testing.clients.aftermath import LOOK_EVERY_S, Aftermath
from kohort.testing.clients.ledger import GroupLedger, LawBroken
from kohort.testing.clients.mishaps import Mishaps
from kohort.testing.clients.plan import Plan, draw_plan
from kohort.testing.clients.reader import Reader
from kohort.testing.clients.virtual_loop import Standstill, VirtualLoop, run_virtually
from kohort.testing.clients.wires import PROGRAM
from kohort.testing.clients.writer import MOST_BATCH_BYTES, Writer, is_checked
from kohort.testing.clusternodes import Brokers
from kohort.testing.story import Story

CONFIG: Final = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "num.partitions": 2,
}


class _StoryClock:
    """The loop's time as stories want it."""

    start_ms = 0

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None

    def now_ms(self) -> int:
        return 0 if self.loop is None else self.loop.now_ms()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReport:
    """What a run was."""

    seed: int
    plan: Plan
    records: int
    handed_out: int
    virtual_s: float


class ClientWorld:
    """One seed.

    >>> ClientWorld(1).run().handed_out > 0
    True
    """

    #: What plays it again.
    target: ClassVar[str] = "seed-clients"

    def __init__(self, seed: int, *, plan: Plan | None = None) -> None:
        self.seed: Final = seed
        self.random: Final = Random(f"clients {seed}")
        self.plan: Final = draw_plan(self.random) if plan is None else plan
        self._clock: Final = _StoryClock()
        self.story: Final = Story(self._clock)  # type: ignore[arg-type]
        self.groups: Final = {each.group_id: GroupLedger(each.group_id) for each in self.plan.parties}
        self.readers: Final[list[Reader]] = []
        self.writers: Final[list[Writer]] = []
        self.is_healed = False
        self.bootstrap = ""
        self.brokers: Brokers
        self.loop: VirtualLoop
        self._failure: BaseException | None = None
        #: Program -> how many clients it has made.
        self.opened: Final[Counter[str]] = Counter()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        #: (reader, partition, offset) that somebody waits for -> done.
        self.awaited: dict[tuple[str, TopicPartition, int], asyncio.Event] = {}

    def run(self) -> ClientReport:
        """Play the whole story.

        Raises:
            InvariantViolation: a law was broken; carries the story.
        """
        try:
            report = run_virtually(self._play, self.random)
        except Exception as error:
            raise self._with_story(error) from error
        assert isinstance(report, ClientReport)
        return report

    # -- what applications and mishaps use ---------------------------------------------------------------------------

    def tell(self, actor: str, what: str) -> None:
        """Note an event in the story."""
        self.story.tell(actor, what)

    def draw_topics(self, random: Random) -> tuple[str, ...]:
        """What a reader subscribes to: mostly everything."""
        names = sorted(self.plan.topics)
        return tuple(names) if random.random() < 0.8 else tuple(sorted(random.sample(names, random.randint(1, 2))))

    def draw_partition(self, random: Random) -> tuple[str, int]:
        """Where a record goes: an own partition, mostly, and some of them seldom."""
        topics = self.brokers.shared.cluster.topics
        names = [name for name in sorted(self.plan.topics) if name in topics]
        name = random.choice(names)
        count = len(topics[name].partitions)
        return name, min(random.randint(0, count - 1), random.randint(0, count - 1))

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """A partition's log."""
        return self.brokers.log(partition.topic, partition.partition)

    def partitions(self) -> list[TopicPartition]:
        """Every partition that applications know."""
        topics = self.brokers.shared.cluster.topics
        names = [name for name in sorted(self.plan.topics) if name in topics]
        return [TopicPartition(name, number) for name in names for number in range(len(topics[name].partitions))]

    def on_handed_out(self, reader: Reader, record: Any) -> None:
        """A reader got a record."""
        key = (reader.name, TopicPartition(record.topic, record.partition), record.offset)
        awaited = self.awaited.pop(key, None)
        if awaited is not None:
            awaited.set()

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        """An application's task has ended, which it does by being cancelled or by an error only."""
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Something that happens beside the rest; what it raises ends the world."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.on_task_done)

    def check_closed(self, name: str, opened: int) -> None:
        """`NothingIsLeft`: the `opened`th client of that name, the latest one perhaps, has been closed."""
        loop = self.loop

        def look() -> None:
            if self.opened[name] == opened and self._failure is None:
                left = [wire for wire in loop.internet.of(name) if not any(end.is_closing() for end in wire.ends)]
                if left:
                    self._failure = LawBroken("NothingIsLeft", f"{name} is closed and has {len(left)} connections")

        loop.call_later(0.01, look)

    # -- the run ----------------------------------------------------------------------------------------------------

    async def _play(self, loop: VirtualLoop) -> ClientReport:
        self.loop = self._clock.loop = loop
        loop.set_exception_handler(self._on_loop_error)
        server = await self._start_brokers()
        try:
            loop.internet.quality = self.plan.quality
            for party in self.plan.parties:
                for _ in range(party.readers):
                    self.add_reader(party.group_id)
            for number in range(self.plan.writers):
                self.writers.append(Writer(self, f"writer-{number + 1}"))
            programs: list[Reader | Writer] = [*self.readers, *self.writers]
            for program in programs:
                loop.call_later(self.random.random() * 2, program.start)
            mishaps = Mishaps(self)
            while loop.time() < self.plan.perturbed_s:
                await self.pass_time(self.plan.every_s)
                await mishaps.happen()
            await self._come_to_rest(mishaps)
            await Aftermath(self).follow()
            await self._end()
            self._check_logs()
        finally:
            await self.brokers.close()
            await server.stop()
        records = sum(log.log_end_offset for each in self.partitions() if (log := self.log(each)) is not None)
        handed_out = sum(group.count for group in self.groups.values())
        return ClientReport(
            seed=self.seed, plan=self.plan, records=records, handed_out=handed_out, virtual_s=loop.time()
        )

    def add_reader(self, group_id: str) -> Reader:
        """One more member; it is not started yet."""
        party = next(each for each in self.plan.parties if each.group_id == group_id)
        reader = Reader(self, f"{group_id}-{len(self.readers) + 1}", party)
        self.readers.append(reader)
        return reader

    async def _start_brokers(self) -> Server:
        settings = [
            BrokerSettings.of({**CONFIG, "node.id": number}, host="127.0.0.1", port=0)
            for number in range(1, self.plan.brokers + 1)
        ]
        server = Server(settings[0])
        shared = server.open()
        internet = self.loop.internet

        def listen(each: BrokerSettings) -> Any:
            return internet.bind(each.host, each.port, f"broker-{each.node_id}")

        self.brokers = Brokers(shared, server.runtime, settings, listen=listen)
        for each in settings:
            await self.start_broker(each.node_id)
        self.bootstrap = ",".join(f"{node.host}:{node.port}" for node in self.brokers.nodes.values())
        for name, count in self.plan.topics.items():
            shared.cluster.create_topic(name, count, {})
        return server

    async def start_broker(self, node_id: int, port: int | None = None) -> None:
        """Let a broker listen, as a program of its own."""
        before = PROGRAM.set(f"broker-{node_id}")
        try:
            await self.brokers.start(node_id, None, port)
        finally:
            PROGRAM.reset(before)

    async def pass_time(self, seconds: float) -> None:
        """Let things happen, and look."""
        until_s = self.loop.time() + seconds
        while self.loop.time() < until_s:
            await asyncio.sleep(min(LOOK_EVERY_S, until_s - self.loop.time()))
            self._look()

    def _look(self) -> None:
        if self._failure is not None:
            raise self._failure
        for group in self.groups.values():
            group.check_committed(self.committed(group.group_id))
        for reader in self.readers:
            self._check_buffer(reader)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """What the coordinator has, from its state."""
        runtime = self.brokers.runtime
        shard = runtime._homes[runtime.index_of(group_id)].shard
        return {
            TopicPartition(topic, number): stored.offset
            for topic, rows in shard.groups.offsets.get(group_id, {}).items()
            for number, stored in rows.items()
        }

    def _check_buffer(self, reader: Reader) -> None:
        if reader.consumer is None:
            return
        held = reader.consumer._handler.held_bytes
        # One batch a fetch beyond the limit, on two lanes of each broker.
        most = self.plan.fetch_buffer_bytes + 2 * self.plan.brokers * MOST_BATCH_BYTES
        if held > most:
            why = f"{reader.name} holds {held} bytes; its limit is {self.plan.fetch_buffer_bytes}"
            raise LawBroken("BufferWithinLimit", why)

    async def _come_to_rest(self, mishaps: Mishaps) -> None:
        await mishaps.heal()
        self.is_healed = True
        self.tell("world", "everything is healed")
        for reader in self.readers:
            if reader.consumer is not None:
                PROGRAM.set(reader.name)
                reader.consumer.resume(reader.consumer.paused())
        for writer in self.writers:
            PROGRAM.set(writer.name)
            await writer.settle()

    async def _end(self) -> None:
        programs: list[Reader | Writer] = [*self.readers, *self.writers]
        for program in programs:
            PROGRAM.set(program.name)
            await program.end()
        await self.pass_time(1.0)

    def _check_logs(self) -> None:
        for each in self.partitions():
            log = self.log(each)
            if log is None or not is_checked(each.topic):
                continue
            values = _values(log)
            for writer in self.writers:
                writer.check_log(each.topic, each.partition, values)
            for party in self.plan.parties:
                committed = self.committed(party.group_id).get(each, 0)
                if committed > log.log_end_offset:
                    raise LawBroken("NoCommitBeyondDone", f"{party.group_id} has committed {committed} of {each}")

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        error = context.get("exception")
        if self._failure is None:
            self._failure = error if error is not None else LawBroken("NoSurprise", str(context.get("message")))

    def _with_story(self, error: Exception) -> InvariantViolation:
        if isinstance(error, Standstill):
            error = LawBroken("EndsInTime", str(error))
        law = error.law if isinstance(error, InvariantViolation) else f"NoSurprise: {type(error).__name__}: {error}"
        again = f"\n  again with: make {self.target} SEED={self.seed}"
        return InvariantViolation(f"{law}{again}", self.story.of())


def _values(log: PartitionLog) -> list[bytes]:
    """The values of a log, by offset."""
    found: list[bytes] = []
    while len(found) < log.log_end_offset:
        for view in log.read(len(found), 1 << 20, at_least_one=True, up_to=log.log_end_offset):
            columns = decode_columns(memoryview(view), start_offset=len(found))
            assert columns.values is not None
            found += [bytes(value or b"") for value in columns.values.to_list(0, len(columns))]
    return found
