"""A KIP-848 member as Java's and librdkafka's consumers behave.

It heartbeats by interval, and at once to acknowledge a change. After any failure it sends a full request, with all
fields. It revokes partitions only after the application's callback, and adds new ones after that. A fenced member drops
all partitions and rejoins with epoch 0.

Source: KIP-848 (client side); Java's `AbstractMembershipManager`, librdkafka's `rdkafka_cgrp.c`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from re import fullmatch
from typing import Final

from kohort.coordinator import commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.simulation.members.computing import Computation
from kohort.simulation.members.process import MemberProcess, MemberWorld, Owned, Wire
from kohort.simulation.network import Exchange, NumberedReply
from kohort.simulation.scenario import MemberSettings
from kohort.simulation.topics import TOPIC_NAMES
from kohort.simulation.trace import LawBroken


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatOptions:
    """The optional settings of a member's heartbeats.

    `pattern`: topic pattern, in RE2. `server_assignor`: the requested assignor. `proposed_interval_ms`: heartbeat
    interval that kohort's own client may propose; -1: none, as stock clients. `runs_assignors`: whether the member has
    client-side assignors. `watches_updates`: whether it also gets news in responses to fetches.
    """

    pattern: str | None = None
    server_assignor: str | None = None
    proposed_interval_ms: int = -1
    runs_assignors: bool = False
    watches_updates: bool = False


NO_OPTIONS = HeartbeatOptions()


class ConsumerMember(MemberProcess):
    """A process with one KIP-848 member, which makes its own member id."""

    def __init__(
        self,
        world: MemberWorld,
        name: str,
        group_id: str,
        *,
        topics: tuple[str, ...],
        settings: MemberSettings,
        instance_id: str | None = None,
        options: HeartbeatOptions = NO_OPTIONS,
        wire: Wire | None = None,
    ) -> None:
        super().__init__(world, name, group_id, topics=topics, settings=settings, instance_id=instance_id, wire=wire)
        self.member_id = name
        self.options = options
        #: The part that runs its own assignors, `None` if it has none.
        self.computation = Computation(self, lambda: self.member_epoch) if options.runs_assignors else None
        self._has_new_assignors = False
        #: The pattern that it subscribes to besides names.
        self.pattern = options.pattern
        self._said_pattern: str | None = None
        #: 0 before the first answer; what the coordinator said last.
        self.member_epoch = 0
        #: What the coordinator said last that this member shall have, `None` before that.
        self.target: set[Owned] | None = None
        self._is_asking = self._has_to_acknowledge = self._has_new_topics = False
        self._says_everything = True
        #: What the coordinator said last of how often to heartbeat, `None` before that.
        self._told_interval_ms: int | None = None
        #: Number of the callback that runs, 0 if none does; a fenced member's callback counts for nothing.
        self._callback = self._callbacks = 0
        #: Number of the plan to heartbeat; older plans are void.
        self._plan = 0
        self.publisher = Publisher(world.publishing, name)
        self.updates = MembershipUpdates(self, world.updates) if options.watches_updates else None
        #: A list of what it owns is on its way.
        self._is_listing = False

    def start(self) -> None:
        """Start the process, and, if it publishes, the publishing of metadata."""
        super().start()
        if self.publisher.publishes:
            self.later(self.publisher.draw_delay_ms(), self._publish)
        if self.updates is not None:
            self.updates.say()

    def start_again(self) -> None:
        """Start a new process with a member id of its own."""
        super().start_again()
        # With the id of a fenced member no process may join.
        self.member_id = f"{self.member_id}+"

    def end(self) -> None:
        """End the process and its connection for news beside heartbeats."""
        super().end()
        if self.updates is not None:
            self.updates.forget()

    def _publish(self) -> None:
        if self.world.is_at_peace or self.is_leaving:
            return
        self.publisher.draw()
        if self.member_epoch > 0:
            self._heartbeat_at_once()
        self.later(self.publisher.draw_delay_ms(), self._publish)

    def join(self) -> None:
        """Send the first heartbeat, with epoch 0."""
        self._is_asking = False
        self.member_epoch = 0
        self.target = None
        self._says_everything = True
        self._has_to_acknowledge = False
        self._said_pattern = None
        if self.computation is not None:
            self.computation.forget()
        if self.updates is not None:
            self.updates.forget()
        self._heartbeat()

    def leave(self) -> None:
        """Commit, revoke everything, send the leaving heartbeat once, and end."""
        self.tell("closes")
        self.commit(self.owned)
        self._forget_callbacks()
        self.give_up(set(self.owned))
        self.is_leaving = True
        if self.member_epoch <= 0:
            self.end()
            return
        # A static member goes for a while, unless it is taken out of the group for good.
        is_away = self.instance_id is not None and self.random.random() < 0.7
        self.ask(self._build(-2 if is_away else -1), lambda _: self.end(), self.end)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics."""
        self.tell("subscribes to", topics)
        self.topics, self.pattern = topics, self.world.draw_pattern()
        self._has_new_topics = True
        self._heartbeat_at_once()

    def ask_anew(self) -> None:
        """Change the client-side assignor's metadata, or request another assignment."""
        if self.computation is not None:
            self.tell("asks for an assignment")
            self.computation.change()
            self._has_new_assignors = True
            self._heartbeat_at_once()

    @property
    def wanted_topics(self) -> tuple[str, ...]:
        """Return the subscribed names, and every possible topic that matches the pattern."""
        if self.pattern is None:
            return self.topics
        return tuple(dict.fromkeys((*self.topics, *(n for n in TOPIC_NAMES if fullmatch(self.pattern, n)))))

    @property
    def is_valid(self) -> bool:
        """Whether the member has an epoch."""
        return self.member_epoch > 0

    def topic_id_of(self, label: str) -> TopicId:
        """Return a topic's id: version 10 of OffsetCommit names topics by id."""
        return self.world.topics.id_of(label)

    def build_fetch(self, partitions: tuple[tuple[str, int], ...]) -> commands.FetchOffsets:
        """Build an OffsetFetch with member id and epoch."""
        return self.build(
            commands.FetchOffsets,
            partitions=partitions,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
        )

    #: Partitions that the next commit releases.
    _releases: frozenset[Owned] = frozenset()

    def build_commit(self, offsets: tuple[commands.OffsetToCommit, ...]) -> commands.CommitOffsets:
        """Build an OffsetCommit with the member epoch."""
        released, self._releases = self._releases, frozenset()
        return self.build(
            commands.CommitOffsets,
            member_id=self.member_id,
            generation_or_member_epoch=self.member_epoch,
            offsets=offsets,
            released=self.by_id(set(released)) if released else None,
        )

    def may_send_again(self, command: commands.GroupCommand) -> bool:
        """Return whether a request may be repeated; a heartbeat only if it has all fields."""
        if isinstance(command, commands.ConsumerGroupHeartbeat):
            # KIP-848 has no other way to learn of an assignment that was lost.
            return command.member_epoch >= 0 and command.rebalance_timeout_ms >= 0
        return super().may_send_again(command)

    def _forget_callbacks(self) -> None:
        self._callback = 0

    # Heartbeats.

    def _heartbeat_at_once(self) -> None:
        """Send a heartbeat as soon as none is in flight."""
        self._has_to_acknowledge = True
        if not self._is_asking:
            self._heartbeat()

    def _heartbeat(self) -> None:
        assert not self._is_asking
        self._plan += 1
        self._is_asking = True
        self._has_to_acknowledge = False
        # librdkafka takes the interval that it was told for the time in which the answer has to be there.
        timeout_ms = self._told_interval_ms if self.wire.software == "librdkafka" else None
        self.ask(self._build(self.member_epoch), self._on_answer, self._on_failure, timeout_ms=timeout_ms)

    def _plan_heartbeat(self, delay_ms: int) -> None:
        self._plan += 1
        plan = self._plan

        def act() -> None:
            if self._plan == plan and not self._is_asking and not self.is_leaving:
                self._heartbeat()

        self.later(delay_ms, act)

    def _build(self, epoch: int) -> commands.ConsumerGroupHeartbeat:
        is_full = epoch == 0 or (self._says_everything and epoch > 0)
        says_topics = is_full or self._has_new_topics
        says_owned = self._is_listing = is_full or self._acknowledges
        self._acknowledges = False
        self._has_new_topics = False
        assignors = None
        if self.computation is not None and (is_full or self._has_new_assignors):
            assignors, self._has_new_assignors = self.computation.assignors(), False
        pattern = None
        metadata, watched_version = self.publisher.say(is_full=is_full) if epoch >= 0 else (None, -1)
        if says_topics and (self.pattern or self._said_pattern):
            # A member that has dropped its pattern says so until it joins anew; one that never had one says nothing.
            self._said_pattern, pattern = self.pattern or self._said_pattern, self.pattern or ""
        return self.build(
            commands.ConsumerGroupHeartbeat,
            member_id=self.member_id,
            member_epoch=epoch,
            client_id=self.name,
            client_host="/10.0.0.1",
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=self.topics if says_topics else None,
            subscribed_topic_regex=pattern,
            server_assignor=self.options.server_assignor if is_full else None,
            proposed_heartbeat_interval_ms=self.options.proposed_interval_ms,
            topic_partitions=self.by_id(self.owned) if says_owned else None,
            client_assignors=assignors,
            metadata=metadata,
            watched_version=watched_version,
        )

    #: The next heartbeat lists what is owned.
    _acknowledges = False

    def by_id(self, partitions: set[Owned]) -> commands.Partitions:
        """Return partitions by topic id, as requests name them."""
        found: dict[TopicId, list[int]] = {}
        for label, number in sorted(partitions):
            found.setdefault(self.world.topics.id_of(label), []).append(number)
        return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}

    def _on_failure(self) -> None:
        self._is_asking = self._is_listing = False
        if self.is_leaving:
            return
        self._says_everything = True
        self._told_interval_ms = None
        if self.updates is not None:
            self.updates.forget()
        self._heartbeat()

    # Beside heartbeats: see `MembershipUpdates`.

    @property
    def is_sure(self) -> bool:
        """Whether the process is a member and knows its assignment."""
        return self.is_valid and self.target is not None and not self._says_everything and not self.is_leaving

    @property
    def has_list_to_say(self) -> bool:
        """Whether a list of owned partitions is about to be sent or in flight."""
        return self._is_listing or self._acknowledges or self._says_everything

    def say_everything(self) -> None:
        """Send a heartbeat with all fields next, because the process may no longer be a member."""
        self._says_everything = True
        self._heartbeat_at_once()

    def take_news(self, body: commands.ConsumerGroupHeartbeatReply) -> None:
        """Handle an assignment from the coordinator, in the response to a heartbeat or a watch."""
        self.member_epoch = max(body.member_epoch, self.member_epoch)
        assert body.assignment is not None
        labels = ((self.world.topics.label_of(topic_id), found) for topic_id, found in body.assignment.items())
        self.target = {(label, number) for label, found in labels for number in found}
        self._reconcile()

    def _on_answer(self, body: ReplyBody) -> None:
        self._is_asking = self._is_listing = False
        if self.is_leaving:
            return
        if isinstance(body, commands.Refusal):
            self._on_refused(body.code)
            return
        assert isinstance(body, NumberedReply), body
        updates = self.updates
        is_overtaken = updates is not None and body.number <= updates.number
        if body.member_epoch < self.member_epoch and not is_overtaken:
            why = f"{self.name} is told epoch {body.member_epoch} after epoch {self.member_epoch}"
            raise LawBroken("ClientSideMemberEpochIsMonotonic", why, group_id=self.group_id)
        self.member_epoch = max(body.member_epoch, self.member_epoch)
        self._told_interval_ms = body.heartbeat_interval_ms
        self._says_everything = False
        self.publisher.on_answer(body)
        if body.should_compute:
            assert self.computation is not None, "no other member is asked"
            self.computation.begin()
        if body.assignment is not None and (updates is None or updates.takes(body.number)):
            self.take_news(body)
        else:
            self._reconcile()
        if updates is not None:
            updates.on_said()
        if self._is_asking:
            return
        if self._has_new_assignors or self._has_to_acknowledge or self._has_new_topics:
            self._heartbeat()
        else:
            self._plan_heartbeat(body.heartbeat_interval_ms)

    def _on_refused(self, code: ErrorCode) -> None:
        self.tell("is refused:", code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.lose_all()
            self.join()
        elif code == ErrorCode.FENCED_INSTANCE_ID or (
            code == ErrorCode.UNRELEASED_INSTANCE_ID and self.world.has_younger_process(self)
        ):
            self.on_instance_fenced()
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID and self.world.has_older_process(self):
            # The supervisor starts this process again until the former one is gone.
            self._says_everything = True
            self._plan_heartbeat(1_000)
        elif code.retriable:
            self._says_everything = True
            self._plan_heartbeat(self.settings.retry_backoff_ms)
        else:
            self.on_fatal(code)

    # Reconciliation.

    def _reconcile(self) -> None:
        """Reconcile with the target: run the callback for revoked partitions, then add the new ones."""
        if self._callback or self.target is None or self.target == self.owned:
            return
        revoked = self.owned - self.target
        if not revoked:
            self._finish(set(self.target))
            return
        self._callbacks += 1
        self._callback = number = self._callbacks
        delay_ms = self.draw_callback_ms()
        self.tell(f"revokes, which takes {delay_ms} ms:", revoked)
        self.commit(revoked)
        target = set(self.target)

        def done() -> None:
            if self._callback == number:
                self._callback = 0
                if self.updates is not None:
                    # As kohort's own client does: the heartbeat behind it says the same again.
                    self._releases = frozenset(self.owned - target)
                self.commit(self.owned - target)
                self._releases = frozenset()
                self.give_up(self.owned - target)
                self._finish(target)

        self.later(delay_ms, done)

    def _finish(self, target: set[Owned]) -> None:
        self.gain(target - self.owned)
        self._acknowledges = True
        self._heartbeat_at_once()
        # The coordinator may have said something newer while the callback ran.
        if self.target != target:
            self._reconcile()


# Requests and updates of a simulated member beside its heartbeats, as kohort's own client has them.
#
# The member sends its state over a connection of its own, and is answered at once or when there is an update. Some
# answers are lost. Now and then the member sends nothing for a while, like a client that fetches nothing.
#
# Laws: updates are taken in the order in which they were decided. An update that comes while a list of owned partitions
# is on its way waits for the answer to that list. A refusal only makes the member send everything by a heartbeat.
# Source: requirement H10; `kohort.client.core.membership_updates`.

#: Between two words; so long a fetch waits; so long nothing is said; ms.
_SAYS_EVERY_MS: Final = (50, 900)
_WAITS_MS: Final = (200, 2_500)
_SILENT_MS: Final = (2_000, 12_000)
#: How often a word waits for no news, what was told is lost, and nothing is said for a while after that.
_LOOKS: Final = 0.4
_LOST: Final = 0.25


class MembershipUpdates:
    """The watches of one member, by which it gets news beside heartbeats.

    `random`: a random source of its own, so that it does not affect other draws.
    """

    def __init__(self, member: ConsumerMember, random: Random) -> None:
        self._member: Final = member
        self._random: Final = random
        self._wire: Final = Wire(member.world.network, member.name)
        #: Rises with each failure: answers to earlier requests are ignored.
        self._era = 0
        #: Of what was taken last, by whichever way.
        self.number = 0
        #: The update that came while a list was on its way.
        self._heard: NumberedReply | None = None
        self._is_saying = False

    def say(self) -> None:
        """Send a watch with the member's state, and schedule the next one."""
        member = self._member
        delay_ms = self._random.randint(*_SAYS_EVERY_MS)
        if not self._is_saying and self._heard is None and member.is_sure:
            self._send(is_look=self._random.random() < _LOOKS)
        member.later(delay_ms, self.say)

    def forget(self) -> None:
        """Forget all news: the process is no longer a member, or has another coordinator."""
        self._era += 1
        self.number, self._heard = 0, None
        self.end()

    def end(self) -> None:
        """Close the connection for updates."""
        self._wire.hang_up()

    def takes(self, number: int) -> bool:
        """Return whether a reply's number is higher than all before, and remember it as the latest."""
        is_newer = number > self.number
        self.number = max(number, self.number)
        return is_newer

    def on_said(self) -> None:
        """Handle a waiting reply after a heartbeat's response, which may have acknowledged partitions."""
        heard, self._heard = self._heard, None
        if heard is not None:
            self._weigh(heard)

    def _send(self, *, is_look: bool) -> None:
        member, era = self._member, self._era
        command = member.build(
            commands.WatchMember,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            assigned=member.by_id(member.target or set()),
            is_look=is_look,
        )

        def deliver(body: ReplyBody) -> None:
            self._is_saying = False
            member.later(0, partial(self._hear, body, command.member_epoch, era))

        def fail() -> None:
            self._is_saying = False

        exchange = Exchange(command=command, deliver=deliver, fail=fail)
        member.tell("says by a fetch", command)
        if self._wire.send(exchange):
            self._is_saying = True
            member.world.clock.after(self._random.randint(*_WAITS_MS), partial(self._expire, exchange))

    def _expire(self, exchange: Exchange) -> None:
        if self._wire.is_waiting(exchange):
            self._wire.hang_up()

    def _hear(self, body: ReplyBody, epoch: int, era: int) -> None:
        member = self._member
        if era != self._era or member.is_leaving:
            return
        if isinstance(body, commands.Refusal):
            is_asked_about = body.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            if is_asked_about and epoch == member.member_epoch:
                member.say_everything()
            return
        assert isinstance(body, NumberedReply), body
        if body.assignment is None:
            return
        if not member.world.is_at_peace and self._random.random() < _LOST:
            member.tell("does not hear what it is told by a fetch")
            self._is_saying = True
            member.later(self._random.randint(*_SILENT_MS), self._go_on)
            return
        self._weigh(body)

    def _go_on(self) -> None:
        self._is_saying = False

    def _weigh(self, body: NumberedReply) -> None:
        if body.number <= self.number:
            return
        if self._member.has_list_to_say:
            self._heard = body
        elif self.takes(body.number):
            self._member.take_news(body)


# A simulated member's published metadata, and its picture of the others' metadata.
#
# Laws: what it wants to publish is said until it was taken, and again with everything that is said anew.

#: How often a member that publishes has something new to say, ms.
PUBLISHES_EVERY_MS = (300, 6_000)


class Publisher:
    """The published metadata of one member; half of the members publish, and half watch.

    `random`: a random source of its own, so that it does not affect other draws.
    """

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self.publishes = random.random() < 0.5
        self.watches = random.random() < 0.5
        #: What it has drawn last; `None` before that. Empty: nothing any more.
        self.wanted: bytes | None = None
        self._said: bytes | None = None
        self._taken: bytes | None = None
        #: What its coordinator has told it, by member id, and up to which version.
        self.picture: dict[str, bytes] = {}
        self._version = 0
        self._count = 0

    def draw_delay_ms(self) -> int:
        """Draw the time until the next new metadata."""
        return self._random.randint(*PUBLISHES_EVERY_MS)

    def draw(self) -> None:
        """Draw new metadata."""
        self._count += 1
        self.wanted = b"" if self._random.random() < 0.15 else f"{self._name} {self._count}".encode()

    def say(self, *, is_full: bool) -> tuple[bytes | None, int]:
        """Return `metadata` and `watched_version` for the next heartbeat."""
        self._said = self.wanted
        is_said = self.wanted is not None and (is_full or self.wanted != self._taken)
        return self.wanted if is_said else None, self._version if self.watches else -1

    def on_answer(self, body: commands.ConsumerGroupHeartbeatReply) -> None:
        """Note that the coordinator has accepted the metadata; apply the others' changes in the response."""
        self._taken = self._said
        news = body.metadata_news
        if news is None or not self.watches:
            return
        if news.is_whole:
            self.picture.clear()
        for each in news.members:
            self.picture.pop(each.member_id, None)
            if each.metadata is not None:
                self.picture[each.member_id] = each.metadata
        self._version = news.version
