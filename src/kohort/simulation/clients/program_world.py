"""Programs and brokers of a seed in virtual time: the common part of all such worlds.

Laws: a seed determines everything. Nothing reads a clock or another source of randomness, so failures reproduce: alone
or after other seeds, at any speed, in any set order. `NothingIsLeft`: after its close a client has no connection.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from kohort.base.clock import Clock, WallClock
from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.connections.request import Peer, Request
from kohort.broker.groups.coordination import Coordination
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeats
from kohort.broker.groups.membership_updates import MembershipUpdates
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server
from kohort.coordinator import commands
from kohort.errors import ErrorCode, InvariantViolation
from kohort.ids import TopicPartition
from kohort.simulation.clients.network import PROGRAM, Standstill, VirtualLoop, run_virtually
from kohort.simulation.clients.plan import Plan
from kohort.simulation.invariants.delayed_heartbeats import check_told_alike
from kohort.simulation.trace import LawBroken, Story
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.clusternodes import Brokers, NodeCoordination
from kohort.wire.messages.membership import MembershipUpdate

#: How often the laws are looked at, s.
LOOK_EVERY_S: Final = 0.25

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
    """The loop's time as a clock for stories."""

    start_ms = 0

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None

    def now_ms(self) -> int:
        return 0 if self.loop is None else self.loop.now_ms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of a run; `handed_out` is of the clients' world, `doubled` of the queries'."""

    records: int
    virtual_s: float
    handed_out: int | None = None
    doubled: int = 0

    @property
    def summary(self) -> str:
        """Format the statistics as text."""
        counted = f"{self.handed_out} handed out" if self.handed_out is not None else f"{self.doubled} twice"
        return f"{self.records} records, {counted}, {self.virtual_s:.1f} s of virtual time"


class ProgramWorld(ABC):
    """The world of one seed."""

    #: The name of the world for `make seed`.
    name: ClassVar[str]

    def __init__(self, seed: int, *, random: Random, plan: Plan) -> None:
        self.seed: Final = seed
        self.random: Final = random
        self.plan: Final = plan
        self._clock: Final = _StoryClock()
        self.story: Final = Story(self._clock)  # type: ignore[arg-type]
        self.is_healed = False
        self.bootstrap = ""
        self.brokers: Brokers
        self.loop: VirtualLoop
        self._failure: BaseException | None = None
        #: Program -> how many clients it has made.
        self.opened: Final[Counter[str]] = Counter()
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def run(self) -> Report:
        """Run the world from beginning to end.

        Raises:
            InvariantViolation: a law was broken; the error has the story.
        """
        try:
            report: Report = run_virtually(self._play_on, self.random)
            # An error that no task has looked at is reported when its last reference is freed.
            self._raise_failure()
        except Exception as error:
            raise self._with_story(error) from error
        return report

    # -- what programs use --------------------------------------------------------------------------------------------

    def tell(self, actor: str, what: str) -> None:
        """Note an event in the story."""
        self.story.tell(actor, what)

    def draw_partition(self, random: Random) -> tuple[str, int]:
        """Draw the partition of a record: mostly one of its own, and some of them seldom."""
        topics = self.brokers.shared.cluster.topics
        names = [name for name in sorted(self.plan.topics) if name in topics]
        name = random.choice(names)
        count = len(topics[name].partitions)
        return name, min(random.randint(0, count - 1), random.randint(0, count - 1))

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """Return a partition's log."""
        return self.brokers.log(partition.topic, partition.partition)

    def partitions(self) -> list[TopicPartition]:
        """Return every partition that applications know."""
        topics = self.brokers.shared.cluster.topics
        names = [name for name in sorted(self.plan.topics) if name in topics]
        return [TopicPartition(name, number) for name in names for number in range(len(topics[name].partitions))]

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        """Check a task that has ended: it may end only by being cancelled or by an error."""
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()

    def fail(self, why: Exception) -> None:
        """End the world with a broken law that a background task has found."""
        if self._failure is None:
            self._failure = why

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a background task; an exception that it raises ends the world."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.on_task_done)

    def check_closed(self, name: str, opened: int) -> None:
        """Check `NothingIsLeft` after the close of the `opened`th client of that name."""
        loop = self.loop

        def look() -> None:
            if self.opened[name] == opened and self._failure is None:
                left = [wire for wire in loop.network.of(name) if not any(end.is_closing() for end in wire.ends)]
                if left:
                    self._failure = LawBroken("NothingIsLeft", f"{name} is closed and has {len(left)} connections")

        loop.call_later(0.01, look)

    # -- the run ------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _play(self) -> Report:
        """Play the story between the start of the brokers and their end."""

    async def _play_on(self, loop: VirtualLoop) -> Report:
        self.loop = self._clock.loop = loop
        loop.set_exception_handler(self._on_loop_error)
        server = await self._start_brokers()
        try:
            return await self._play()
        finally:
            await self.brokers.close()
            await server.stop()

    def report(self, **counts: int) -> Report:
        """Report the records in all logs, with other counts."""
        records = sum(log.log_end_offset for each in self.partitions() if (log := self.log(each)) is not None)
        return Report(records=records, virtual_s=self.loop.time(), **counts)

    async def _start_brokers(self) -> Server:
        config: dict[str, object] = {**CONFIG, "group.consumer.assignment.window.ms": self.plan.window_ms}
        if self.plan.fetches_count:
            config["group.liveness"] = "fetch"
        settings = [
            BrokerSettings.of({**config, "node.id": number}, host="127.0.0.1", port=0)
            for number in range(1, self.plan.brokers + 1)
        ]
        server = Server(settings[0])
        shared = server.open()
        network = self.loop.network

        def listen(each: BrokerSettings) -> list[Any]:
            return [network.bind(each.host, each.port, f"broker-{each.node_id}")]

        self.brokers = Brokers(shared, server.runtime, settings, listen=listen)
        for node in self.brokers.nodes.values():
            node.delayed_heartbeats = HoldsFor(settings[0].values, shared.clock, self.plan.hold_share)
            node.membership_updates = partial(TellsAlike, self.fail)
        if self.plan.behind_ms:
            self.brokers.nodes[2].clock = _ClockBehind(shared.clock, self.plan.behind_ms)
        for each in settings:
            await self.start_broker(each.node_id)
        self.bootstrap = ",".join(f"{node.host}:{node.port}" for node in self.brokers.nodes.values())
        for name, count in self.plan.topics.items():
            shared.cluster.create_topic(name, count, {})
        return server

    async def start_broker(self, node_id: int, port: int | None = None) -> None:
        """Start a broker as a program of its own."""
        before = PROGRAM.set(f"broker-{node_id}")
        try:
            await self.brokers.start(node_id, None, port)
        finally:
            PROGRAM.reset(before)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and check the world meanwhile."""
        until_s = self.loop.time() + seconds
        while self.loop.time() < until_s:
            await asyncio.sleep(min(LOOK_EVERY_S, until_s - self.loop.time()))
            self._look()

    def _look(self) -> None:
        """Check the world while time passes."""
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        error = context.get("exception")
        if self._failure is None:
            self._failure = error if error is not None else LawBroken("NoSurprise", str(context.get("message")))

    def _with_story(self, error: Exception) -> InvariantViolation:
        if isinstance(error, Standstill):
            error = LawBroken("EndsInTime", str(error))
        law = error.law if isinstance(error, InvariantViolation) else f"NoSurprise: {type(error).__name__}: {error}"
        again = f"\n  again with: make seed WORLD={self.name} SEED={self.seed}"
        return InvariantViolation(f"{law}{again}", self.story.of())


class _ClockBehind:
    """A broker's clock that is behind another."""

    def __init__(self, clock: WallClock, behind_ms: int) -> None:
        self._clock: Final = clock
        self._behind_ms: Final = behind_ms

    @property
    def stepped_ms(self) -> int:
        """See `WallClock`."""
        return self._clock.stepped_ms

    def now_ms(self) -> int:
        """See `Clock`."""
        return self._clock.now_ms() - self._behind_ms


class HoldsFor(DelayedHeartbeats):
    """A policy that holds heartbeats for a fraction (0 to below 1) of a member's interval; 0: never."""

    def __init__(self, values: Mapping[str, Any], clock: Clock, share: float) -> None:
        super().__init__(values, clock)
        self._share: Final = share

    def bears(self, request: Request) -> bool:
        """Return whether a request's client tolerates a hold, as `DelayedHeartbeats` does."""
        return self._share > 0 and super().bears(request)

    def hold_ms(self, connection: Peer, member: MemberKey) -> int:
        """Return the time of a hold: the chosen share of the member's interval."""
        return int(connection.told_intervals.get(member, 0) * self._share)


class TellsAlike(MembershipUpdates):
    """The check of `ToldAlike` for all news in fetch and commit responses; `fail`: called if broken."""

    def __init__(
        self, fail: Callable[[Exception], None], runtime: Coordination, on_news: Callable[[MemberKey], None]
    ) -> None:
        super().__init__(runtime, on_news)
        self._fail: Final = fail

    def _translate(self, command: commands.WatchMember) -> Callable[[Any, Any], MembershipUpdate]:
        translate = super()._translate(command)

        def checked(asker: object, body: commands.ConsumerGroupHeartbeatReply | commands.Refusal) -> MembershipUpdate:
            self._check(command, body)
            return translate(asker, body)

        return checked

    def _check(
        self, command: commands.WatchMember, body: commands.ConsumerGroupHeartbeatReply | commands.Refusal
    ) -> None:
        if isinstance(body, commands.Refusal) and body.code is ErrorCode.NOT_COORDINATOR:
            return
        assert isinstance(self._runtime, NodeCoordination)
        runtime = self._runtime._runtime
        shard, now_ms = runtime._shard_logs[runtime.index_of(command.group_id)].shard, runtime._clock.now_ms()
        try:
            check_told_alike(shard, command, body, now_ms=now_ms)
        except LawBroken as why:
            self._fail(why)
