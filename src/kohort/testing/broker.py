"""The coordinator's runtime in virtual time: shards, their logs, a disk that syncs late, crashes and stalls.

It does what the broker's own runtime does: decide, append, apply, answer once the append is durable, each connection in
the order of its requests. What was not synced when the process dies may be lost, from some batch on.

Laws: each request is answered at most once. A crash forgets everything but the log. A request on an older connection
than the one that its member was heard on last is dropped: nobody waits for its answer, and it may undo newer ones.
Source: architecture rules 2 to 4 and 17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

from kohort.coordinator import recordcodec
from kohort.coordinator.commands import (
    Command,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    MemberDisconnected,
    ReplyBody,
    SyncGroup,
    TargetComputed,
    TopicsChanged,
)
from kohort.coordinator.decision import ComputeTarget, Decision
from kohort.coordinator.invariants import check_renewal, check_untouched
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicImage
from kohort.errors import InvariantViolation
from kohort.ids import CauseId, RequestToken, coordinator_partition
from kohort.testing.assignors import Computed, SimulatedAssignors
from kohort.testing.clock import VirtualClock
from kohort.testing.home import Home, fold
from kohort.testing.network import Connection, SimulatedNetwork
from kohort.testing.observer import Observer
from kohort.testing.story import Story

#: What shows which connection of a member is the latest.
_SIGNS_OF_LIFE = (ConsumerGroupHeartbeat, JoinGroup, SyncGroup, Heartbeat, CommitOffsets)
#: A loop that stood still longer than this shifts its deadlines.
GAP_MS = 500


class SimulatedBroker:
    """One broker process.

    Args:
        build_shard: makes the shards; a test that plants a bug gives its own.
    """

    def __init__(
        self,
        clock: VirtualClock,
        network: SimulatedNetwork,
        story: Story,
        observer: Observer,
        *,
        random: Random,
        settings: GroupSettings,
        shard_count: int,
        build_shard: Callable[[GroupSettings], Shard] = Shard,
    ) -> None:
        self.homes = [Home(index, build_shard(settings), Shard(settings)) for index in range(shard_count)]
        self.is_up = True
        self.sync_ms = 5
        self.answered = 0
        #: Whether requests on a member's older connections are dropped; a test shows what happens without.
        self.guards_old_connections = True
        #: What the clock of this process shows beyond the world's; a new process may find another one.
        self.clock_offset_ms = 0
        #: (group, "member" or "instance", its id) -> number of the connection that it was heard on last.
        self._heard_on: dict[tuple[str, str, str], int] = {}
        self._clock = clock
        self._network = network
        self._story = story
        self._observer = observer
        self._random = random
        self._settings = settings
        self._build_shard = build_shard
        self._image = TopicImage()
        self._last_number = 0
        #: Number of the process: what was planned for an earlier one does not happen.
        self._life = 0
        #: Until when the loop stands still, 0 if it does not; what arrives meanwhile waits.
        self._stalled_since_ms = 0
        self._unread: deque[Callable[[], None]] = deque()
        #: Those of the user's own.
        self.assignors = SimulatedAssignors(clock, random)
        #: Token -> connection and command of each request that is not answered.
        self._open: dict[RequestToken, tuple[Connection | None, GroupCommand]] = {}
        #: Those of them whose answer is decided and waits for the disk.
        self._decided: set[RequestToken] = set()
        #: Connection -> its requests in order, and the answers that have to wait for older ones.
        self._slots: dict[Connection, deque[tuple[RequestToken, list[ReplyBody]]]] = {}
        self._wake_ms: int | None = None
        network.server = self

    # What arrives.

    def on_request(self, connection: Connection, command: Command) -> None:
        """A request has come in; while the loop stands still nobody reads it."""
        if self._stalled_since_ms:
            self._unread.append(partial(self._read, connection, command))
        elif self.is_up:
            self._read(connection, command)

    def on_disconnected(self, connection: Connection) -> None:
        """Nobody waits for these answers any more; the requests are carried out all the same."""
        self._slots.pop(connection, None)

    def on_gone(self, connection: Connection) -> None:
        """The coordinators of the members that were heard of last by this connection are told."""
        if not self.is_up:
            return
        if self._stalled_since_ms:
            self._unread.append(partial(self.on_gone, connection))
            return
        heard = [
            (who[0], who[2]) for who, by in self._heard_on.items() if who[1] == "member" and by == connection.number
        ]
        parked = (command for of, command in self._open.values() if of is connection and isinstance(command, JoinGroup))
        heard += [(command.group_id, command.member_id or command.fresh_member_id) for command in parked]
        for group_id, member_id in dict.fromkeys(heard):
            home = self.home_of(group_id)
            command = MemberDisconnected(cause=CauseId(self._number()), group_id=group_id, member_id=member_id)
            self._commit(home, command, home.shard.handle(command, now_ms=self.now_ms()))

    def topics_changed(self, image: TopicImage) -> None:
        """The topics are now these."""
        self._image = image
        if self.is_up and not self._stalled_since_ms:
            for home in self.homes:
                self._tell_topics(home)

    def home_of(self, group_id: str) -> Home:
        """The shard that coordinates a group."""
        return self.homes[coordinator_partition(group_id, len(self.homes))]

    @property
    def server_life(self) -> int:
        """How often the process has died."""
        return self._life

    @property
    def unanswered(self) -> list[GroupCommand]:
        """Requests that have no answer yet."""
        return [command for _, command in self._open.values()]

    # What goes wrong.

    def crash(self) -> None:
        """The process dies: memory is gone, and so is some of what was not synced."""
        lost = 0
        for home in self.homes:
            kept = self._random.randint(home.durable, len(home.log))
            lost += len(home.log) - kept
            del home.log[kept:]
        self._story.tell("broker", f"dies; {lost} batches that were not synced are lost")
        self.is_up = False
        self._network.is_server_up = False
        self._life += 1
        self._open.clear()
        self._decided.clear()
        self._slots.clear()
        self._heard_on.clear()
        self._unread.clear()
        self._stalled_since_ms = 0
        self._wake_ms = None
        self._network.break_all()

    def restart(self) -> None:
        """A new process reads the logs."""
        assert not self.is_up
        self.is_up = True
        self._network.is_server_up = True
        for index, old in enumerate(self.homes):
            entries = old.entries()
            home = Home(index, fold(entries, self._settings, build=self._build_shard), fold(entries, self._settings))
            home.log = old.log
            home.durable = len(home.log)
            self.homes[index] = home
            home.shard.on_loaded(self.now_ms())
            self._observer.on_restart(home)
        self._story.tell("broker", "is back", [len(home.log) for home in self.homes])
        for home in self.homes:
            self._tell_topics(home)

    def stall(self, for_ms: int) -> None:
        """The loop stands still, as in a long garbage collection or a suspended machine."""
        if not self.is_up or self._stalled_since_ms:
            return
        self._story.tell("broker", f"stands still for {for_ms} ms")
        self._stalled_since_ms = self._clock.now_ms()
        self._clock.after(for_ms, self._in_this_life(self.go_on))

    def go_on(self) -> None:
        """A stall is over; without one nothing happens."""
        if not self._stalled_since_ms:
            return
        gap_ms = self._clock.now_ms() - self._stalled_since_ms
        self._stalled_since_ms = 0
        self._story.tell("broker", "goes on")
        for home in self.homes:
            if gap_ms > GAP_MS:
                self._give_back(home, gap_ms)
                self._observer.on_shift(home, gap_ms)
            if home.shard.groups.image != self._image:
                self._tell_topics(home)
        # Every readable socket is read before a deadline fires.
        unread, self._unread = self._unread, deque()
        for read in unread:
            read()
        self._wake_ms = None
        self._watch()

    # What it does.

    def now_ms(self) -> int:
        """What the process's own clock shows."""
        return self._clock.now_ms() + self.clock_offset_ms

    def _is_from_before(self, connection: Connection, command: Command) -> bool:
        """Whether this comes late, on a connection that its member has replaced by a younger one."""
        if not isinstance(command, _SIGNS_OF_LIFE):
            return False
        ids = (("member", command.member_id), ("instance", command.instance_id))
        known = [(command.group_id, kind, found) for kind, found in ids if found]
        if self.guards_old_connections and any(connection.number < self._heard_on.get(who, 0) for who in known):
            self._story.tell("broker", f"drops what {connection.client.name} sent on an older connection:", command)
            # Answers come in the order of the requests: one that is never answered ends the connection.
            self._network.break_one(connection)
            return True
        for who in known:
            self._heard_on[who] = max(connection.number, self._heard_on.get(who, 0))
        return False

    def _give_back(self, home: Home, gap_ms: int) -> None:
        """Nobody is fenced for what came in while the loop stood still."""
        home.shard.shift(gap_ms)

    def _read(self, connection: Connection, command: Command) -> None:
        is_alive = connection.is_open or connection.is_draining
        if is_alive and not self._is_from_before(connection, command):
            self._handle(connection, command)

    def _handle(self, connection: Connection, command: Command) -> None:
        assert isinstance(command, GroupCommand)
        numbered = replace(command, request=RequestToken(self._number()), cause=CauseId(self._last_number))
        if isinstance(numbered, JoinGroup):
            # A request that comes twice founds two members: the broker makes the ids.
            numbered = replace(numbered, fresh_member_id=f"{numbered.client_id}-{numbered.request}")
        self._open[numbered.request] = (connection, numbered)
        self._slots.setdefault(connection, deque()).append((numbered.request, []))
        home = self.home_of(numbered.group_id)
        self._story.tell("broker", f"reads from {connection.client.name}:", numbered, group_id=numbered.group_id)
        self._commit(home, numbered, home.shard.handle(numbered, now_ms=self.now_ms()))

    def _tell_topics(self, home: Home) -> None:
        command = TopicsChanged(cause=CauseId(self._number()), image=self._image)
        self._commit(home, command, home.shard.handle(command, now_ms=self.now_ms()))

    def _commit(self, home: Home, command: Command | None, decision: Decision) -> None:
        check_renewal(home.shard, command, decision, now_ms=self.now_ms())
        check_untouched(home.shard.groups, decision)
        self._observer.before_step(home, command, decision)
        entries = recordcodec.encode_durable(decision.records)
        if entries:
            home.log.append(entries)
            for key, value in entries:
                record = recordcodec.decode(key, value)
                assert record is not None
                home.mirror.apply(record)
            self._sync(home)
        for record in decision.records:
            self._story.tell("broker", "notes", record, group_id=record.group_id)
        for reply in home.shard.commit(decision, now_ms=self.now_ms()):
            self._reply(home, reply.request, reply.body)
        for order in home.shard.take_computations():
            self._story.tell("broker", f"asks the assignor {order.assignor}", order.epoch, group_id=order.group_id)
            self.assignors.compute(order, partial(self._on_computed, self._life, home, order))
        self._observer.after_step(home, decision)
        self._watch()

    def _on_computed(self, life: int, home: Home, order: ComputeTarget, computed: Computed) -> None:
        if life != self._life:
            return
        if self._stalled_since_ms:
            self._unread.append(partial(self._on_computed, life, home, order, computed))
            return
        owner, error = computed
        self._story.tell("assignor", f"{order.assignor} says", error or list(owner or ()), group_id=order.group_id)
        command = TargetComputed(
            cause=CauseId(self._number()),
            group_id=order.group_id,
            assignable=order.assignable,
            owner=owner,
            error=error,
        )
        self._commit(home, command, home.shard.handle(command, now_ms=self.now_ms()))

    def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
        found = self._open.get(request)
        if found is None or request in self._decided:
            raise InvariantViolation(f"AnsweredOnce: request {request} is answered, and nobody waits for it: {body}")
        self._decided.add(request)
        self._observer.on_decided(home, found[1], body)
        home.waiting.append((len(home.log), found[1], body))
        self._release(home)

    def _release(self, home: Home) -> None:
        """Let the answers go whose records are on disk; one that reads waits for all that was written before it."""
        while home.waiting and home.waiting[0][0] <= home.durable:
            _, command, body = home.waiting.popleft()
            self._answer(command, body)

    def _answer(self, command: GroupCommand, body: ReplyBody) -> None:
        connection, _ = self._open.pop(command.request)
        self._decided.discard(command.request)
        self.answered += 1
        self._story.tell("broker", "answers", body, group_id=command.group_id)
        self._observer.on_answer(command, body)
        slots = self._slots.get(connection) if connection is not None else None
        if connection is None or slots is None or not connection.is_open:
            return
        next(answers for request, answers in slots if request == command.request).append(body)
        while slots and slots[0][1]:
            connection.send_back(slots.popleft()[1][0])

    def _sync(self, home: Home) -> None:
        if home.is_syncing:
            return
        home.is_syncing = True
        covered = len(home.log)

        def finish() -> None:
            home.is_syncing = False
            home.durable = covered
            self._release(home)
            if home.durable < len(home.log):
                self._sync(home)

        self._clock.after(self._random.randint(0, self.sync_ms), self._in_this_life(finish))

    def _watch(self) -> None:
        """See to it that the earliest deadline of all shards fires."""
        deadlines = [due for home in self.homes if (due := home.shard.next_deadline()) is not None]
        if not deadlines or (self._wake_ms is not None and self._wake_ms <= min(deadlines)):
            return
        self._wake_ms = wake_ms = min(deadlines)

        def fire() -> None:
            if self._wake_ms == wake_ms and not self._stalled_since_ms:
                self._fire()

        self._clock.at(wake_ms - self.clock_offset_ms, self._in_this_life(fire))

    def _fire(self) -> None:
        for home in self.homes:
            while (decision := home.shard.expire(self.now_ms())) is not None:
                self._commit(home, None, decision)
        self._wake_ms = None
        self._watch()

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _in_this_life(self, action: Callable[[], None]) -> Callable[[], None]:
        life = self._life

        def act() -> None:
            if self._life == life:
                action()

        return act
