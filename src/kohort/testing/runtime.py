"""The broker's own runtime in a world: logs and disk are simulated, every step is checked.

Source: `kohort.broker.groups.runtime`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, cast

from kohort.broker.groups.runtime import Runtime
from kohort.broker.groups.shard_log import Home as BrokersHome
from kohort.broker.processes.ownassignors import OwnAssignors
from kohort.broker.writes.durability import Durability
from kohort.coordinator import recordcodec
from kohort.coordinator.commands.base import Command, GroupCommand
from kohort.coordinator.commands.groups import AnyHeartbeat, LogExtent, WatchMember
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.decision import ComputeTarget, Decision, Reply
from kohort.coordinator.events.reporter import Reporter, count_of
from kohort.coordinator.events.triggers import Stimulus
from kohort.coordinator.invariants import check_kept, check_untouched
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicImage
from kohort.errors import InvariantViolation
from kohort.ids import RequestToken, coordinator_partition
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.assignors import SimulatedAssignors
from kohort.testing.clock import VirtualClock
from kohort.testing.home import Home, SimulatedLog, fold
from kohort.testing.invariants.shortcuts import check_end_of_hold, check_renewal
from kohort.testing.loop import SimulatedLoop
from kohort.testing.observer import Observer
from kohort.testing.trace import Story


class ProcessClock:
    """The clock of one process, which may be set and may differ from the world's."""

    def __init__(self, clock: VirtualClock, offset_ms: int) -> None:
        self._clock = clock
        self.offset_ms = offset_ms
        self.stepped_ms = 0

    def set(self, offset_ms: int) -> None:
        """Set the clock's offset ahead of the world's."""
        self.stepped_ms += offset_ms - self.offset_ms
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """Return the time of the process's own clock."""
        return self._clock.now_ms() + self.offset_ms


class SimulatedDisk:
    """A disk that syncs logs late and then runs the waiting callbacks, as the broker's `Durability` does.

    Laws: answers leave when all that was appended to their log before is on disk, in the order of the decisions.
    """

    def __init__(self, clock: VirtualClock, random: Random, loop: SimulatedLoop, *, most_ms: Callable[[], int]) -> None:
        self._clock, self._random, self._loop, self._most_ms = clock, random, loop, most_ms
        #: Log -> (batches that have to be on disk, what then), in the order of the calls.
        self._waiting: dict[int, deque[tuple[int, Callable[[], None]]]] = {}

    def when_durable(self, log: SimulatedLog, callback: Callable[[], None]) -> None:
        """See `Durability.when_durable`."""
        if log.high_watermark >= log.log_end_offset:
            callback()
        else:
            self._waiting.setdefault(id(log), deque()).append((log.log_end_offset, callback))

    def sync(self, log: SimulatedLog) -> None:
        """Sync the appended batches after a delay; one sync covers all that gathered during the former one."""
        if log.is_syncing:
            return
        log.is_syncing = True
        covered = log.log_end_offset

        def finish() -> None:
            log.is_syncing = False
            log.high_watermark = covered
            waiting = self._waiting.get(id(log), deque())
            while waiting and waiting[0][0] <= covered:
                waiting.popleft()[1]()
            if log.high_watermark < log.log_end_offset:
                self.sync(log)

        self._loop.call_later(self._random.randint(0, self._most_ms()) / 1000, finish)


class LoopAssignors:
    """The user's own assignors, whose results come to the loop of one process."""

    def __init__(self, assignors: SimulatedAssignors, loop: SimulatedLoop, story: Story) -> None:
        self._assignors, self._loop, self._story = assignors, loop, story

    def compute(self, order: ComputeTarget, on_computed: Callable[[array[int] | None, str], None]) -> None:
        """See `OwnAssignors.compute`."""
        self._story.tell("broker", f"asks the assignor {order.assignor}", order.epoch, group_id=order.group_id)
        self._assignors.compute(order, lambda computed: self._loop.run(partial(on_computed, *computed)))

    def stop(self) -> None:
        """Do nothing: the assignors do not matter once the process ends."""


class SimulatedRuntime(Runtime):
    """The simulated runtime of one process."""

    def __init__(
        self,
        loop: SimulatedLoop,
        clock: ProcessClock,
        disk: SimulatedDisk,
        *,
        observer: Observer,
        story: Story,
        assignors: SimulatedAssignors,
    ) -> None:
        super().__init__(
            cast(asyncio.AbstractEventLoop, loop),
            clock,
            cast(Durability, disk),
            on_failure=lambda _: None,
        )
        self._disk: Final = disk
        self._observer: Final = observer
        self._story: Final = story
        self._assignors = cast(OwnAssignors, LoopAssignors(assignors, loop, story))
        # No producer writes here: a partition's records follow from its number.
        self.measure = lambda places: {place: LogExtent(0, 7 * place[1] % 5, 5 * place[1] % 7) for place in places}
        self.homes: Final[list[Home]] = []
        self._own_clock: Final = clock
        self.answered = 0
        #: Requests that came and are not answered, and those of them whose answer is decided and waits for the disk.
        self.open: Final[dict[RequestToken, GroupCommand]] = {}
        self._decided: Final[dict[RequestToken, ReplyBody]] = {}
        #: Steps that are carried out and not checked yet.
        self._step: tuple[Home, Decision] | None = None

    def begin(
        self, logs: list[SimulatedLog], settings: GroupSettings, image: TopicImage, build: Callable[..., Shard]
    ) -> None:
        """Start the runtime from simulated logs, as `Runtime.start` does."""
        self._settings, self._image = settings, image
        self._reporter = Reporter(settings)
        self.index_of = partial(_index_of, len(logs))
        for index, log in enumerate(logs):
            entries = log.entries()
            living, mirror = fold(entries, settings, build=build), fold(entries, settings)
            self.homes.append(Home(index, living, mirror, log, clock_offset_ms=self._own_clock.offset_ms))
        self._homes[:] = self.homes
        for home in self.homes:
            self._observer.on_restart(home)
            self._tell_topics(home)
            now_ms = self._clock.now_ms()
            home.shard.on_loaded(now_ms)
            self._observer.on_loaded(home)
            self._deadlines.watch(home.shard.next_deadline(), now_ms)

    @property
    def last_number(self) -> int:
        """Return the number of the last request."""
        return self._last_number

    def take_in(self, command: GroupCommand) -> None:
        """Take a request that was read; `answer` follows."""
        self.open[command.request] = command

    def alter_reply(self, command: GroupCommand, body: ReplyBody) -> ReplyBody:
        """Return the decided answer; a planted bug changes it."""
        del command
        return body

    def give_back(self, gap_ms: int) -> None:
        """Give back the time that the loop stood still; a planted bug does not."""
        super()._shift(gap_ms)

    def follow_clock(self, by_ms: int) -> None:
        """Follow a change of the process's clock; a planted bug does not."""
        super()._follow_clock(by_ms)

    def forget(self, token: RequestToken) -> None:
        """Forget an open request that will get no answer."""
        self.open.pop(token, None)

    def abandon(self, command: AnyHeartbeat | WatchMember) -> None:
        """See `Runtime.abandon`."""
        super().abandon(command)
        if command.request not in self._decided:
            self.forget(command.request)

    def release(self, command: AnyHeartbeat, is_cut: bool) -> None:
        """Release a held heartbeat because of a later request; see `Runtime.release`."""
        # The reason is the request behind it on its connection, whatever else is told at this moment.
        told_before = self._observer.tells_news(False)
        super().release(command, is_cut)
        self._observer.tells_news(told_before)

    def _tell_news(self, home: BrokersHome) -> None:
        self._observer.tells_news(True)
        super()._tell_news(home)
        self._observer.tells_news(False)

    def _commit(
        self, home: BrokersHome, stimulus: Stimulus, decision: Decision, now_ms: int, *, is_new: bool = True
    ) -> bool:
        assert isinstance(home, Home)
        if is_new and isinstance(stimulus, Command):
            check_renewal(home.shard, stimulus, decision, now_ms=now_ms)
        check_untouched(home.shard.groups, decision)
        check_kept(home.shard.groups, decision)
        self._observer.before_step(home, stimulus if is_new and isinstance(stimulus, Command) else None, decision)
        for record in decision.records:
            self._story.tell("broker", "notes", record, group_id=record.group_id)
        if count_of(stimulus, decision) is None:
            # The rows themselves are not used here.
            entries = self._reporter.tell(
                home.shard.groups, stimulus, decision, timers=home.shard.timers, now_ms=now_ms
            )
            for entry in entries:
                self._observer.on_told(home, entry, stimulus, decision)
        self._step = (home, decision)
        is_taken = super()._commit(home, stimulus, decision, now_ms, is_new=is_new)
        assert is_taken, "this disk takes everything"
        self._end_step()
        return True

    def _end_hold(self, home: BrokersHome, now_ms: int) -> bool:
        """Compare the broker's short cut for a hold's end with the whole decision, and use the decision."""
        check_end_of_hold(home.shard, now_ms=now_ms)
        return False

    def _append(self, partition: PartitionLog, decision: Decision, now_ms: int) -> bool:
        del now_ms
        entries = recordcodec.encode_durable(decision.records)
        if not entries:
            return True
        home = next(each for each in self.homes if each.log is partition)
        home.disk.batches.append(entries)
        for key, value in entries:
            record = recordcodec.decode(key, value)
            assert record is not None
            home.mirror.apply(record)
        self._disk.sync(home.disk)
        return True

    def _end_step(self) -> None:
        """Check the state after a step, before an answer leads to the next one."""
        if self._step is None:
            return
        (home, decision), self._step = self._step, None
        for effect in decision.effects:
            if isinstance(effect, Reply):
                self._decide(home, effect)
        self._observer.after_step(home, decision)

    def _decide(self, home: Home, reply: Reply) -> None:
        command = self.open.get(reply.request)
        if command is None or reply.request in self._decided:
            why = f"request {reply.request} is answered, and nobody waits for it: {reply.body}"
            raise InvariantViolation(f"AnsweredOnce: {why}")
        self._decided[reply.request] = body = self.alter_reply(command, reply.body)
        self._observer.on_decided(home, command, body)

    def _reply(self, partition: PartitionLog, token: RequestToken, body: ReplyBody) -> None:
        self._end_step()
        body = self._decided[token]
        self._disk.when_durable(cast(SimulatedLog, partition), partial(self._let_go, token))
        super()._reply(partition, token, body)

    def _let_go(self, token: RequestToken) -> None:
        command, body = self.open.pop(token), self._decided.pop(token)
        self.answered += 1
        self._story.tell("broker", "answers", body, group_id=command.group_id)
        self._observer.on_answer(command, body)

    def _computed(self, home: BrokersHome, order: ComputeTarget, owner: array[int] | None, error: str) -> None:
        self._story.tell("assignor", f"{order.assignor} says", error or list(owner or ()), group_id=order.group_id)
        super()._computed(home, order, owner, error)

    def _follow_clock(self, by_ms: int) -> None:
        self.follow_clock(by_ms)
        for home in self.homes:
            home.clock_offset_ms = self._own_clock.offset_ms

    def _shift(self, gap_ms: int) -> None:
        self.give_back(gap_ms)
        for home in self.homes:
            self._observer.on_shift(home, gap_ms)


def _index_of(partition_count: int, group_id: str) -> int:
    return coordinator_partition(group_id, partition_count)
