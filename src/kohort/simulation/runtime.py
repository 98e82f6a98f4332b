"""The broker's own runtime in a world: logs and disk are simulated, every step is checked.

Source: `kohort.broker.groups.runtime`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, Protocol, cast

from kohort.broker.durability import Durability
from kohort.broker.groups.runtime import Runtime
from kohort.broker.groups.shard_log import ShardLog
from kohort.broker.processes.assignorprocess import OwnAssignors
from kohort.coordinator import commands
from kohort.coordinator.decision import Arm, ComputeTarget, Decision, Disarm, Reply, ReplyBody, TimerKey
from kohort.coordinator.delayed_heartbeats import HeartbeatHeld, HeartbeatReleased, hold_key
from kohort.coordinator.invariants import check_kept, check_untouched
from kohort.coordinator.journal_events.reporter import Reporter, count_of
from kohort.coordinator.journal_events.triggers import Stimulus
from kohort.coordinator.records import codec
from kohort.coordinator.records.types import Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicImage
from kohort.errors import InvariantViolation
from kohort.ids import RequestToken, coordinator_partition
from kohort.journal.rows import Entry as JournalEntry
from kohort.simulation.assignors import SimulatedAssignors
from kohort.simulation.trace import Story
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.clock import VirtualClock


class ProcessClock:
    """The clock of one process, which may be set to differ from the world's."""

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

    Laws: responses are sent once all batches appended to their log before are synced, in the order of the decisions.
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
        """Sync appended batches after a delay; one sync covers all batches appended during the previous one."""
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
    """Custom assignors whose results arrive on the event loop of one process."""

    def __init__(self, assignors: SimulatedAssignors, loop: SimulatedLoop, story: Story) -> None:
        self._assignors, self._loop, self._story = assignors, loop, story

    def compute(self, order: ComputeTarget, on_computed: Callable[[array[int] | None, str], None]) -> None:
        """See `OwnAssignors.compute`."""
        self._story.tell("broker", f"asks the assignor {order.assignor}", order.epoch, group_id=order.group_id)
        self._assignors.compute(order, lambda computed: self._loop.run(on_computed, *computed))

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
        self.measure = lambda places: {
            place: commands.LogExtent(0, 7 * place[1] % 5, 5 * place[1] % 7) for place in places
        }
        self.homes: Final[list[Home]] = []
        self._own_clock: Final = clock
        self.answered = 0
        #: Requests that came and are not answered, and those of them whose answer is decided and waits for the disk.
        self.open: Final[dict[RequestToken, commands.GroupCommand]] = {}
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
            living = build(settings)
            for key, value, _ in entries:
                # Values of its own, which no other shard sees if they are changed in place.
                living.apply(decode(key, value))
            mirror = fold(entries, settings)
            self.homes.append(Home(index, living, mirror, log, clock_offset_ms=self._own_clock.offset_ms))
        self._shard_logs[:] = self.homes
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

    def take_in(self, command: commands.GroupCommand) -> None:
        """Register a request that was read; `answer` is called for it afterwards."""
        self.open[command.request] = command

    def alter_reply(self, command: commands.GroupCommand, body: ReplyBody) -> ReplyBody:
        """Return the response as decided; overridden by tests that plant a bug."""
        del command
        return body

    def give_back(self, gap_ms: int) -> None:
        """Shift deadlines by the time that the loop was stalled; overridden by tests that plant a bug."""
        super()._shift(gap_ms)

    def follow_clock(self, by_ms: int) -> None:
        """Follow a change of the process's clock; overridden by tests that plant a bug."""
        super()._follow_clock(by_ms)

    def abandon(self, command: commands.AnyHeartbeat | commands.WatchMember) -> None:
        """See `Runtime.abandon`."""
        super().abandon(command)
        if command.request not in self._decided:
            self.open.pop(command.request, None)

    def release(self, command: commands.AnyHeartbeat, is_cut: bool) -> None:
        """Release a held heartbeat because of a later request; see `Runtime.release`."""
        # The reason is the request behind it on its connection, whatever else is told at this moment.
        told_before = self._observer.tells_news(False)
        super().release(command, is_cut)
        self._observer.tells_news(told_before)

    def hear_fetch(self, command: commands.WatchMember) -> None:
        """Treat the fetch that a watch belongs to as a heartbeat, in groups that count fetches."""
        self.member_fetched(command.group_id, command.member_id, epoch=command.member_epoch)
        self._observer.on_fetched(self.homes[self.index_of(command.group_id)], command)

    def _tell_news(self, home: ShardLog) -> None:
        self._observer.tells_news(True)
        super()._tell_news(home)
        self._observer.tells_news(False)

    def _commit(
        self, home: ShardLog, stimulus: Stimulus, decision: Decision, now_ms: int, *, is_new: bool = True
    ) -> bool:
        assert isinstance(home, Home)
        command = stimulus if is_new and isinstance(stimulus, commands.Command) else None
        check_renewal(home.shard, command, decision, now_ms=now_ms)
        check_untouched(home.shard.groups, decision)
        check_kept(home.shard.groups, decision)
        self._observer.before_step(home, command, decision)
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

    def _end_hold(self, home: ShardLog, now_ms: int) -> bool:
        """Check the broker's shortcut for the end of a hold against the full decision, which is then used."""
        check_end_of_hold(home.shard, now_ms=now_ms)
        return False

    def _append(self, partition: PartitionLog, decision: Decision, now_ms: int) -> bool:
        del now_ms
        entries = codec.encode_durable(decision.records)
        if not entries:
            return True
        home = next(each for each in self.homes if each.log is partition)
        batch = [(key, value, decode(key, value)) for key, value in entries]
        home.disk.batches.append(batch)
        for _, _, record in batch:
            home.mirror.apply(record)
        self._disk.sync(home.disk)
        return True

    def _end_step(self) -> None:
        """Check the state after a step, before a response can lead to the next step."""
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
            why = f"request {reply.request} is answered, and no request waits for it: {reply.body}"
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

    def _computed(self, home: ShardLog, order: ComputeTarget, owner: array[int] | None, error: str) -> None:
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


# An event loop for the broker's runtime on a virtual clock; it can stand still and die.


class Handle:
    """The handle of a callback that is scheduled on the loop of one process."""

    __slots__ = ("_arguments", "_callback", "_loop")

    def __init__(self, loop: SimulatedLoop, callback: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments

    def cancel(self) -> None:
        """Cancel the callback."""
        self._callback = None

    def __call__(self) -> None:
        loop = self._loop
        if loop.is_stalled and not loop.is_dead:
            loop.late_plans.append(self)
        elif self._callback is not None and not loop.is_dead:
            callback, self._callback = self._callback, None
            callback(*self._arguments)


class SimulatedLoop:
    """The simulated event loop of one process.

    After a stall, the timers that were due in it run first, then the events that arrived in it, both in their order:
    libuv runs timers before it polls sockets.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        #: The process has ended: pending actions are dropped, and no more are taken.
        self.is_dead = False
        self.is_stalled = False
        #: What was planned to run during a stall, and the events that came in during it.
        self.late_plans: deque[Callable[[], None]] = deque()
        self._late: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> Handle:
        """Call back after everything else that is scheduled for this instant."""
        handle = Handle(self, callback, arguments)
        self._clock.after(0, handle)
        return handle

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> Handle:
        """Call back after a delay."""
        handle = Handle(self, callback, arguments)
        self._clock.after(round(delay_s * 1000), handle)
        return handle

    def run(self, action: Callable[..., None], *arguments: object) -> None:
        """Run the action of an incoming event: a request, or the end of a connection."""
        if self.is_stalled and not self.is_dead:
            self._late.append(partial(action, *arguments))
        elif not self.is_dead:
            action(*arguments)

    def go_on(self) -> None:
        """End the stall."""
        self.is_stalled = False
        for late in (self.late_plans, self._late):
            while late and not self.is_dead:
                late.popleft()()


# A shard of the simulated broker with its log, and the replay of a log.

#: Key and value of a record, as they are stored, and the record that they were decoded to.
Entry = tuple[bytes, bytes | None, Record]


class SimulatedLog:
    """A simulated partition log for the coordinator; offsets count batches.

    It outlives the processes that write to it.
    """

    def __init__(self) -> None:
        #: One entry per decision that wrote something.
        self.batches: list[list[Entry]] = []
        #: How many batches are on disk.
        self.high_watermark = 0
        #: Whether a sync is under way.
        self.is_syncing = False

    @property
    def log_end_offset(self) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def entries(self) -> list[Entry]:
        """Return the log's entries without their batches."""
        return [entry for batch in self.batches for entry in batch]


class Home(ShardLog):
    """One shard with its log, and a mirror shard that is built from the log alone."""

    __slots__ = ("clock_offset_ms", "disk", "index", "mirror")

    def __init__(
        self, index: int, shard: Shard, mirror: Shard, disk: SimulatedLog, *, clock_offset_ms: int = 0
    ) -> None:
        super().__init__(shard, cast(PartitionLog, disk))
        self.index: Final = index
        #: A shard that only ever saw the bytes of the log: the fold that the living one is compared with.
        self.mirror: Final = mirror
        #: The log, as what it is.
        self.disk: Final = disk
        #: Offset of its process's clock from the world's.
        self.clock_offset_ms = clock_offset_ms


def decode(key: bytes, value: bytes | None) -> Record:
    """Decode a record of a log, whose type must be known."""
    record = codec.decode(key, value)
    assert record is not None, "the log has a record of an unknown type"
    return record


def fold(entries: Sequence[Entry], settings: GroupSettings) -> Shard:
    """Build a shard from the records of a log."""
    shard = Shard(settings)
    for _, _, record in entries:
        shard.apply(record)
    return shard


def compact(entries: Sequence[Entry]) -> list[Entry]:
    """Keep only the latest record of each key, as Kafka's cleaner does."""
    last = {key: position for position, (key, _, _) in enumerate(entries)}
    return [entry for position, entry in enumerate(entries) if last[entry[0]] == position]


# The observer of every step of a simulated broker.


class Observer(Protocol):
    """The observer of every step of a simulated broker."""

    def before_step(self, home: Home, command: commands.Command | None, decision: Decision) -> None:
        """Observe a decision that is made and not yet applied."""

    def on_told(self, home: Home, entry: JournalEntry, stimulus: Stimulus, decision: Decision) -> None:
        """Observe a journal row of a decision that is not applied yet."""

    def on_decided(self, home: Home, command: commands.GroupCommand, body: ReplyBody) -> None:
        """Observe the response to a request, which is sent once the records are durable."""

    def after_step(self, home: Home, decision: Decision) -> None:
        """Observe a decision that is applied."""

    def on_answer(self, command: commands.GroupCommand, body: ReplyBody) -> None:
        """Observe a response that the broker sends."""

    def on_restart(self, home: Home) -> None:
        """Observe a shard that was rebuilt from its log."""

    def on_loaded(self, home: Home) -> None:
        """Observe a loaded shard, after its deadlines are set."""

    def on_shift(self, home: Home, gap_ms: int) -> None:
        """Observe a shift of every deadline after a stall of the loop."""

    def on_fetched(self, home: Home, command: commands.WatchMember) -> None:
        """Observe a fetch that names its member, after it has renewed the session, if it does."""

    def on_go_on(self) -> None:
        """Observe the end of a stall of the loop."""

    def tells_news(self, is_on: bool) -> bool:
        """Set whether held heartbeats get responses because of news from now on."""


# Comparison of a shard's short cuts for settled heartbeats with the decisions that they replace.
#
# | law | check |
# | --- | --- |
# | RenewalIsHandling | `check_renewal`: what `Shard.renew` does is what `handle` and `commit` would do |
# | EndIsAnswering | `check_end_of_hold`: what `Shard.find_ended` tells is what `decide_answer` would tell |
#
# Source: kohort's own rule.


def check_renewal(shard: Shard, command: Stimulus | None, decision: Decision, *, now_ms: int) -> None:
    """RenewalIsHandling: check that `renew` does the same as `handle`, or nothing."""
    # A member that has cut a hold is told a short interval, and never renewed; nor is one with no interval so far.
    if not isinstance(command, commands.ConsumerGroupHeartbeat) or not command.hold_ms or command.since_cut_ms >= 0:
        return
    session = TimerKey("session", command.group_id, command.member_id)
    before_ms = shard.timers.deadline(session)
    interval_ms = shard.renew(command, now_ms=now_ms)
    after_ms = shard.timers.deadline(session)
    if interval_ms is None:
        if after_ms != before_ms:
            raise InvariantViolation(f"RenewalIsHandling: {command} was not renewed, and its session was")
        return
    if after_ms is None:
        raise InvariantViolation(f"RenewalIsHandling: {command} was renewed, and its session has no end")
    if command.hold_ms > 0:
        held = HeartbeatHeld(group_id=command.group_id, command=command)
        until = Arm(hold_key(command.group_id, command.member_id), now_ms + command.hold_ms)
        if decision != Decision((held,), (Arm(session, after_ms), until)):
            raise InvariantViolation(f"RenewalIsHandling: {command} is held, and it leads to {decision}")
        return
    reply = commands.ConsumerGroupHeartbeatReply(
        member_id=command.member_id,
        member_epoch=command.member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=None,
    )
    if decision != Decision((), (Reply(command.request, reply), Arm(session, after_ms))):
        raise InvariantViolation(f"RenewalIsHandling: {reply} is not what {command} leads to: {decision}")


def check_end_of_hold(shard: Shard, *, now_ms: int) -> None:
    """EndIsAnswering: check that the shortcut for a hold's end gives the response of a full decision."""
    found = shard.find_ended(now_ms)
    if found is None:
        return
    key, reply, session = found
    command = shard.held(key.group_id, key.member_id)
    if command is None or command.request != reply.request:
        raise InvariantViolation(f"EndIsAnswering: {reply} answers nothing that is held: {command}")
    released = HeartbeatReleased(group_id=key.group_id, member_id=key.member_id)
    decision = shard.decide_answer(command, now_ms=now_ms)
    if decision != Decision((released,), (reply, *session, Disarm(key))):
        raise InvariantViolation(f"EndIsAnswering: {reply} is not what {command} leads to: {decision}")
