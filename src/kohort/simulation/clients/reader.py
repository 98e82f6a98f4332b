"""An application with a real consumer: it polls, and makes every other call of applications.

Laws held here, by name:
- `EndsInTime`: every call ends within its timeout, with any faults of brokers and network.
- `NoSurprise`: calls raise only documented errors, and the client never stops by itself.
- `EachByItself`: if the only fault is that topics are re-created, a commit returns a result per partition at once, and
  does not wait for deleted ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kohort.aio import Consumer
from kohort.errors import KohortError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition
from kohort.simulation.assignors import FaultyAssignor
from kohort.simulation.clients.network import PROGRAM
from kohort.simulation.clients.plan import FLEETING, PlannedGroup
from kohort.simulation.clients.progress import Ownership
from kohort.simulation.network import GOOD
from kohort.simulation.trace import LawBroken

if TYPE_CHECKING:
    from kohort.simulation.clients.program_world import ProgramWorld
    from kohort.simulation.clients.progress import GroupProgress


T = TypeVar("T")
#: Time that a call may take beyond its timeout, s.
GRACE_S: Final = 2.0
MAX_POLL_INTERVAL_S: Final = 4.0


class CallbackFailed(Exception):
    """An exception raised by a callback of the application."""


class ReaderWatch(Protocol):
    """The part of a world that draws the subscriptions of readers and checks them."""

    def draw_topics(self, random: Random) -> tuple[str, ...]:
        """Draw the topics that a reader subscribes to."""

    def on_handed_out(self, reader: Reader, record: Any) -> None:
        """Check a record that a reader was handed."""

    def on_told(self, reader: Reader, partitions: Sequence[TopicPartition]) -> None:
        """Check the laws at the moment at which a reader is told of new partitions."""

    def on_taken(self, reader: Reader, partitions: Sequence[TopicPartition]) -> None:
        """Check a reader that was assigned partitions."""

    def on_subscribed(self, reader: Reader) -> None:
        """Check a reader that has changed its subscription."""

    def on_killed(self, member_id: str) -> None:
        """Forget a member whose process has died."""


class Reader:
    """A reader of a group; after a crash or a leave it starts again with another consumer."""

    def __init__(
        self, world: ProgramWorld, name: str, planned: PlannedGroup, group: GroupProgress, watch: ReaderWatch
    ) -> None:
        self.world: Final = world
        self.name: Final = name
        self.planned: Final = planned
        self.random = Random(world.random.random())
        self.group = group
        #: Draws the subscription, and checks the laws about this reader.
        self._watch: Final = watch
        self.topics: tuple[str, ...] = watch.draw_topics(self.random)
        self.consumer: Consumer | None = None
        self.ownership = Ownership(name, self.group)
        self._task: asyncio.Task[None] | None = None
        #: Seconds that callbacks have taken in the present call.
        self._callback_s = 0.0

    def start(self) -> None:
        """Start the reader as a program of its own, if it has not started."""
        if self._task is not None:
            return
        context = copy_context()
        context.run(PROGRAM.set, self.name)
        self._task = asyncio.get_running_loop().create_task(self._live(), name=self.name, context=context)
        self._task.add_done_callback(self.world.on_task_done)

    def crash(self) -> None:
        """Kill the process; another one follows."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._drop("crashes")
        self.start()

    async def end(self) -> None:
        """Close the consumer at the end of the world."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._close()

    def _drop(self, what: str) -> None:
        consumer, self.consumer = self.consumer, None
        self.world.tell(self.name, what)
        if consumer is not None:
            self._watch.on_killed(consumer.member_id)
            consumer._context.host.stop()  # the process is gone without leaving the group
            consumer._context.is_closed = True
        self.ownership = Ownership(self.name, self.group)

    async def _live(self) -> None:
        while self._task is asyncio.current_task():
            if self.consumer is None:
                self._open()
            await self._act(self._draw_habit())

    def _draw_habit(self) -> str:
        if self.world.is_healed:
            return "poll"
        habits = self.world.plan.habits
        return self.random.choices(list(habits), list(habits.values()))[0]

    async def _act(self, habit: str) -> None:
        try:
            await getattr(self, habit)()
        except CallbackFailed:
            self.world.tell(self.name, "its callback raised")
        except (KohortError, OverflowError) as error:
            if self._task is not asyncio.current_task():
                return  # The process is gone.
            if isinstance(error, StateError) and "not assigned" not in str(error):
                # That of a partition which the background has lost, and the application has yet to hear of it.
                raise LawBroken("NoSurprise", f"{habit} of {self.name} raised {error!r}") from error
            self.world.tell(self.name, f"{habit}: {type(error).__name__}: {error}")

    def _open(self) -> None:
        plan = self.world.plan
        self.world.opened[self.name] += 1
        self.ownership = Ownership(self.name, self.group)
        only_classic: Any = {}
        if self.planned.protocol == "classic":
            only_classic = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500}
        if self.planned.is_cooperative:
            only_classic["partition_assignment_strategy"] = "cooperative-sticky"
        self.consumer = Consumer(
            bootstrap_servers=self.world.bootstrap,
            group_id=self.planned.group_id,
            client_id=self.name,
            group_protocol=self.planned.protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=self.planned.auto_commit,
            auto_commit_interval_ms=300,
            max_poll_records=self.random.choice((1, 5, 50, 500)),
            max_poll_interval_ms=int(MAX_POLL_INTERVAL_S * 1000),
            fetch_buffer_bytes=plan.fetch_buffer_bytes,
            max_partition_fetch_bytes=3_000,
            fetch_max_wait_ms=plan.max_wait_ms,
            fetch_carries_membership=plan.fetches_tell,
            request_timeout_ms=4_000,
            default_api_timeout_ms=6_000,
            socket_connection_setup_timeout_ms=1_000,
            retry_backoff_max_ms=500,
            metadata_max_age_ms=10_000,
            group_local_assignors=self._draw_assignors(),
            **only_classic,
        )
        self._subscribe()

    def _draw_assignors(self) -> list[FaultyAssignor]:
        """Draw the client-side assignors of a member; one member in ten has none."""
        if self.planned.protocol == "classic" or not self.world.plan.members_compute:
            return []
        return [FaultyAssignor(self.random)] if self.random.random() < 0.9 else []

    def _subscribe(self) -> None:
        assert self.consumer is not None
        self.world.tell(self.name, f"subscribes to {', '.join(self.topics)}")
        self.consumer.subscribe(
            list(self.topics),
            on_assigned=self._callback("assigned", lambda _: self.ownership.gain),
            on_revoked=self._callback("revoked", lambda _: self.ownership.lose),
            on_lost=self._callback("lost", lambda _: self.ownership.lose),
        )

    def _callback(self, what: str, choose: Callable[[Any], Callable[[list[TopicPartition]], None]]) -> Any:
        async def run(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.world.tell(self.name, f"{what} {', '.join(f'{each.topic}-{each.partition}' for each in partitions)}")
            choose(consumer)(partitions)
            if what == "assigned":
                self._watch.on_told(self, partitions)
            if what == "assigned" and self.world.plan.is_calm:
                self._watch.on_taken(self, partitions)
            if self.world.is_healed or self.random.random() >= self.world.plan.callback_faults:
                return
            if self.random.random() < 0.3:
                raise CallbackFailed
            seconds = self.random.choice((0.1, 1.0))
            self._callback_s += seconds
            await asyncio.sleep(seconds)

        return run

    async def _in_time(self, what: str, call: Awaitable[T], timeout_s: float) -> T:
        """Await a call, and check that it ends within its own timeout."""
        loop = asyncio.get_running_loop()
        began_s, self._callback_s = loop.time(), 0.0
        try:
            async with asyncio.timeout(timeout_s + 60.0):
                return await call
        except TimeoutError as error:
            if isinstance(error, KohortError) and not str(error).startswith("the call did not finish"):
                raise
            if isinstance(error, KohortError):
                raise LawBroken("EndsInTime", f"the ticket of {what} of {self.name} has not ended") from error
            raise LawBroken("EndsInTime", f"{what} of {self.name} has not ended after {timeout_s + 60:g} s") from None
        finally:
            took_s = loop.time() - began_s
            if took_s > timeout_s + self._callback_s + GRACE_S:
                why = f"{what} of {self.name} took {took_s:.3f} s; its timeout is {timeout_s:g} s"
                raise LawBroken("EndsInTime", why)

    def _take(self, records: list[Any]) -> None:
        for record in records:
            self.ownership.take(TopicPartition(record.topic, record.partition), record.offset)
            self._watch.on_handed_out(self, record)

    # -- habits -----------------------------------------------------------------------------------------------------

    def _come_back(self) -> None:
        """Count all records so far as processed, if the consumer commits automatically."""
        if self.planned.auto_commit:
            # A poll says that the records of the former one are processed.
            self.ownership.finish()

    async def poll(self) -> None:
        assert self.consumer is not None
        self._come_back()
        self._take(await self._in_time("poll", self.consumer.poll(1.0), 1.0))

    async def poll_one(self) -> None:
        assert self.consumer is not None
        self._come_back()
        record = await self._in_time("poll_one", self.consumer.poll_one(0.5), 0.5)
        self._take([] if record is None else [record])

    async def be_slow(self) -> None:
        await asyncio.sleep(self.random.choice((0.05, 0.3, 1.0)))

    async def stop_polling(self) -> None:
        self.world.tell(self.name, "stops polling")
        await asyncio.sleep(MAX_POLL_INTERVAL_S * self.random.choice((0.8, 1.5)))

    async def commit(self) -> None:
        assert self.consumer is not None
        self.ownership.finish()
        try:
            await self._in_time("commit", self.consumer.commit(timeout=3.0), 3.0)
        except KohortTimeoutError as error:
            if self.world.plan.is_well:
                raise LawBroken("EachByItself", f"commit of {self.name}: {error}") from error
            raise

    async def commit_own(self) -> None:
        """Commit the offset of a part of the records that were handed out."""
        assert self.consumer is not None
        chosen = {
            each: offset
            for each, offset in self.ownership.next.items()
            if offset and offset > 1 and each.topic != FLEETING
        }
        if chosen:
            partition = self.random.choice(sorted(chosen))
            offset = self.random.randint(1, chosen[partition])
            done = self.group.done
            done[partition] = max(done.get(partition, 0), offset)
            await self._in_time("commit", self.consumer.commit({partition: offset}, timeout=3.0), 3.0)

    async def seek_back(self) -> None:
        assert self.consumer is not None
        known = {each: offset for each, offset in self.ownership.next.items() if offset and each.topic != FLEETING}
        if known:
            partition = self.random.choice(sorted(known))
            offset = self.random.randint(max(0, known[partition] - 20), known[partition])
            self.consumer.seek(partition, offset)
            self.ownership.seek(partition, offset)

    async def pause(self) -> None:
        assert self.consumer is not None
        held = sorted(self.consumer.assignment())
        self.consumer.pause(self.random.sample(held, self.random.randint(0, len(held))))

    async def resume(self) -> None:
        assert self.consumer is not None
        paused = sorted(self.consumer.paused())
        self.consumer.resume(self.random.sample(paused, self.random.randint(0, len(paused))))

    async def ask(self) -> None:
        """Ask for positions, committed offsets and end offsets."""
        if self.world.plan.members_compute and self.random.random() < 0.3 and self.consumer is not None:
            self.consumer.enforce_rebalance("a whim")
        assert self.consumer is not None
        held = sorted(self.consumer.assignment())
        if not held:
            return
        partition = self.random.choice(held)
        match self.random.randint(0, 2):
            case 0:
                found = await self._in_time("position", self.consumer.position(partition, timeout=3.0), 3.0)
                expected = self.ownership.next.get(partition)
                if expected is not None and found != expected and partition.topic != FLEETING:
                    raise LawBroken("HandedOutOnce", f"{self.name}: position of {partition} is {found}, not {expected}")
            case 1:
                await self._in_time("committed", self.consumer.committed([partition], 3.0), 3.0)
            case _:
                await self._in_time("end_offsets", self.consumer.end_offsets([partition], 3.0), 3.0)

    async def wake_up(self) -> None:
        """Wake up a waiting `poll`, which ends at once."""
        assert self.consumer is not None
        asyncio.get_running_loop().call_later(0.1, self.consumer.wakeup)
        await self.poll()

    async def change_subscription(self) -> None:
        self.topics = self._watch.draw_topics(self.random)
        if self.world.plan.is_calm and self.world.plan.quality == GOOD:
            self._watch.on_subscribed(self)
        self._subscribe()

    async def leave(self) -> None:
        await self._close()

    async def _close(self) -> None:
        consumer, self.consumer = self.consumer, None
        opened = self.world.opened[self.name]
        if consumer is not None:
            self.world.tell(self.name, "closes")
            self._come_back()
            with suppress(CallbackFailed):
                await self._in_time("close", consumer.close(5.0), 5.0)
            self.world.check_closed(self.name, opened)
