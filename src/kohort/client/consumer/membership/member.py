"""The part of a member that both group protocols share: assignment, revocation and loss of partitions, and leaving.

Laws: fetching of a partition pauses before its revocation callback, and ends when the callback has returned. The
coordinator is notified only after its offsets are committed. A response to a request of an earlier assignment has no
effect on a later one. No record of a partition that the coordinator may have given to another member is handed out.
Source: the consumer threading refactor (CTR); KIP-848, reconciliation of the member; KIP-62 (max.poll.interval.ms).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import Identity, OwnedUntil, Start
from kohort.client.consumer.membership.publishing import MembershipMetadata
from kohort.client.consumer.membership.states import ACTIVE, TRANSITIONS, Callbacks, MemberState, Step
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import CoordinatorLookup
from kohort.client.core.refusals import Absence, left_out
from kohort.client.core.requests import Answer, RequestFailed, Requests
from kohort.client.options import ConsumerSettings
from kohort.errors import ErrorCode, InvariantViolation, KohortError
from kohort.ids import TopicId, TopicPartition
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

#: Continues the work at the given time, milliseconds.
Later = Callable[[int], None]


class MemberHost(Protocol):
    """The calls by which a member starts and stops reading, commits, and reports to the application."""

    #: The metadata that the consumer publishes to its group.
    publishing: MembershipMetadata
    #: Wakes the member alone: responses to heartbeats concern no other part unless the member's state changes.
    wake_member: Callable[[], None]
    #: Called when the member has something new to send to the brokers that it fetches from.
    wake_fetches: Callable[[], None]

    def start_reading(self, starts: Mapping[TopicPartition, Start], now_ms: int) -> None:
        """Fetch these partitions from now on."""
        ...

    def pause_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions, but keep their positions."""
        ...

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions and drop the fetches under way."""
        ...

    def commit_before_revocation(
        self,
        partitions: Sequence[TopicPartition],
        then: Later,
        *,
        deadline_ms: int,
        now_ms: int,
        released: list[TopicPartitions] | None = None,
    ) -> None:
        """Commit the consumed offsets of revoked partitions, if auto-commit is on; call `then` in any case.

        `released`: these partitions, for a coordinator that accepts their release together with the commit.
        """
        ...

    def forget_consumed(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit no more offsets of these partitions, which other members own."""
        ...

    def on_trouble(self, error: KohortError, *, is_fatal: bool) -> None:
        """Report an error to the application at its next poll."""
        ...

    def fall_back_to_classic(self, reason: str, now_ms: int) -> None:
        """Continue with the classic protocol, because the broker does not support KIP-848."""
        ...


class _Doubt(NamedTuple):
    """A refused request, after which the coordinator may no longer know the member.

    `since_ms`: time of the refusal. `why`: its reason. `until_ms`: when partitions are lost without a good heartbeat.
    """

    since_ms: int
    why: str
    until_ms: int


class Member(ABC):
    """A member of a group: this class has the states and transitions, subclasses speak one of the two protocols."""

    #: Whether it speaks the classic protocol.
    is_classic: ClassVar[bool]
    #: Until when the coordinator's grant of the partitions is valid, 0: it has expired; `None`: it needs no grant.
    _leased_until_ms: int | None = None

    def __init__(
        self,
        host: MemberHost,
        requests: Requests,
        cluster: Cluster,
        lookup: CoordinatorLookup,
        settings: ConsumerSettings,
        *,
        member_id: str,
    ) -> None:
        assert settings.options["group_id"] is not None
        self.group_id = settings.options["group_id"]
        #: Made by the client; the classic protocol gets one from the coordinator.
        self.member_id = member_id
        #: Member epoch (classic: generation); 0 or below: not a member at present.
        self.epoch = -1
        self.state = MemberState.UNSUBSCRIBED
        #: Partitions that the application owns: its callback for them has returned, and they are not yet revoked.
        self.owned: set[TopicPartition] = set()
        self.topics: tuple[str, ...] = ()
        #: The regular expression that topic names have to match as a whole; `None`: `topics` counts.
        self.pattern: str | None = None
        self.callbacks = Callbacks(
            requests,
            timeout_ms=settings.options["max_poll_interval_ms"],
            policy=settings.options["revocation_timeout_policy"],
        )
        self._schedule = HeartbeatSchedule()
        self._idleness = Idleness(requests, group_id=settings.options["group_id"], is_classic=self.is_classic)
        self._host = host
        self._requests = requests
        self._cluster = cluster
        self._lookup = lookup
        self._settings = settings
        #: Whether the member leaves permanently when its consumer is closed; `None`: only a dynamic member does.
        self.goes_for_good: bool | None = None
        #: Called when the member has left; `None` unless it is leaving.
        self._after_leave: Later | None = None
        #: Counts assignments, so that the response to a request of an earlier assignment is recognised.
        self._round = 0
        self._polled_ms = 0
        #: The application has not polled within max.poll.interval.ms; the member joins again at the next poll.
        self._is_waiting_for_poll = False
        #: When the latest request was sent to which the coordinator has responded without an error.
        self._heard_ms = 0
        #: For so long after `_heard_ms` the member surely keeps its partitions.
        self._silence_ms = silence_ms(settings.options["session_timeout_ms"])
        #: When the coordinator was found to delay its response; it counts as lost a session later at the soonest.
        self._waited_ms = 0
        self._doubt: _Doubt | None = None
        self._told_until: tuple[int | None, int] = (None, 0)
        self._has_assignment = False
        #: Owned partitions that their leader refuses to this member.
        self._fenced: set[TopicPartition] = set()
        #: Member id, epoch and whether it has an assignment, as last delivered to the application's side.
        self._told: tuple[str, int, bool] | None = None
        #: The latest end of its membership and the reason; `None` before the first.
        self._absence: Absence | None = None
        #: The reason for the rebalance as far as the member knows it: brokers do not send one.
        self._why = "topics were subscribed to"

    @property
    def is_coordinator_known(self) -> bool:
        """Whether the address of the group's coordinator is known."""
        return self._lookup.endpoint is not None

    @property
    def topic_ids(self) -> Mapping[str, TopicId]:
        """The topic ids in the coordinator's assignment, by topic; empty if the assignment has topic names."""
        return {}

    @property
    def is_name_held(self) -> bool:
        """Whether a static member waits for its `group.instance.id`, which another process uses."""
        return False

    @property
    def absence(self) -> Absence:
        """The reason why the consumer is not a member at present."""
        return self._absence or Absence(self.member_id, self.epoch, "it has not joined its group yet")

    # -- protocol -------------------------------------------------------------------------------------------------

    @abstractmethod
    def work(self, now_ms: int) -> None:
        """Do the work that is due, except for heartbeats."""

    @abstractmethod
    def speak(self, now_ms: int) -> None:
        """Send the heartbeat or join that is due, after all other requests of this round (see `HeartbeatSchedule`)."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Return when `work` or `speak` is due; `None`: not before an event."""

    @abstractmethod
    def on_topics_changed(self, now_ms: int) -> None:
        """React to new topics or a new pattern in the application's subscription."""

    @abstractmethod
    def on_word(self, word: events.Word, now_ms: int) -> None:
        """React to the application's request to rebalance, or to an assignment that it has computed."""

    @property
    @abstractmethod
    def _session_ms(self) -> int:
        """The session timeout, milliseconds: for so long the coordinator waits for a heartbeat."""

    @abstractmethod
    def _is_watched(self) -> bool:
        """Return whether a coordinator that does not respond for a session timeout counts as lost now."""

    @property
    @abstractmethod
    def _has_epoch(self) -> bool:
        """Whether the member has an epoch (classic: generation) that the coordinator has not fenced."""

    @abstractmethod
    def _ask_whether_known(self, lane: Lane, now_ms: int) -> int:
        """Send a heartbeat on connection `lane` even if none is due; return how long to wait for its response, ms."""

    def on_fenced(self, partitions: Sequence[TopicPartition], now_ms: int) -> bool:
        """Give up partitions whose leader refuses this member; return `False` if the member knew that already."""
        return False

    def _released(self, partitions: set[TopicPartition]) -> list[TopicPartitions] | None:
        """Return partitions to release together with their last commit; `None` if a heartbeat releases them."""
        return None

    @abstractmethod
    def _after_revocation(self, now_ms: int) -> None:
        """Notify the coordinator that partitions were given up."""

    @abstractmethod
    def _after_assignment(self, now_ms: int) -> None:
        """Acknowledge newly assigned partitions to the coordinator, or go on with the assignment."""

    @abstractmethod
    def _forget_membership(self) -> None:
        """Forget the membership, so that the next request joins."""

    @abstractmethod
    def _send_leave(self, then: Later | None, now_ms: int) -> None:
        """Send a leave request if the coordinator knows the member, and call `then` at its response."""

    def followed_topics(self) -> set[str]:
        """Return the topics that the member needs metadata of."""
        return set(self.topics)

    # -- the application ------------------------------------------------------------------------------------------

    def subscribe(self, wanted: events.Subscribed, now_ms: int) -> None:
        """Join the group with these topics or this pattern, or change the member's subscription."""
        is_new = self.pattern != wanted.pattern or (wanted.pattern is None and self.topics != wanted.topics)
        self.topics, self.pattern = wanted.topics, wanted.pattern
        self._polled_ms = now_ms
        if self.state is MemberState.FATAL:
            self._move(Step.LEFT)
        if self.state is MemberState.UNSUBSCRIBED:
            self._why = "topics were subscribed to"
            self._move(Step.SUBSCRIBED)
            self._forget_membership()
        elif is_new:
            self.on_topics_changed(now_ms)

    def on_polled(self, now_ms: int) -> None:
        """Note that the application polls."""
        # Later than before, which moves no deadline to an earlier time.
        self._polled_ms = now_ms
        if self._is_waiting_for_poll:
            self._is_waiting_for_poll = False
            self._requests.wake_all()

    def last_poll_ms(self, now_ms: int) -> int:
        """Return for how long the application has not polled, ms, rounded to seconds; 0 if it polled within 2 s."""
        # While it polls all heartbeats are equal, and a broker answers equal ones without reading them.
        since_ms = now_ms - self._polled_ms
        return 0 if since_ms < _POLLS_MS else since_ms // 1000 * 1000

    def on_callback_started(self, started: events.CallbackStarted, now_ms: int) -> None:
        """Read the assigned partitions, paused, so that the callback can ask for their positions."""
        wanted = self.callbacks.on_started(started.number, now_ms)
        if wanted is None:
            return
        if wanted.kind is events.CallbackKind.ASSIGNED:
            starts = {
                each: Start(fence=start.fence, offset=start.offset, is_paused=True, timestamp=start.timestamp)
                for each, start in started.starts.items()
            }
            self._host.start_reading(starts, now_ms)
        elif self.state is MemberState.PREPARE_REVOCATION:
            self._move(Step.CALLED)

    def on_callback_done(self, done: events.CallbackDone, now_ms: int) -> None:
        """Continue the rebalance after the application's callback has returned."""
        self._polled_ms = now_ms
        wanted = self.callbacks.on_done(done.number)
        if wanted is None:
            return
        if wanted.kind is events.CallbackKind.REVOKED:
            if self.state is MemberState.PREPARE_REVOCATION:
                # The application has no callback for it, so none has begun.
                self._move(Step.CALLED)
            self._on_revoked(set(wanted.partitions), now_ms)
        elif wanted.kind is events.CallbackKind.ASSIGNED:
            self.owned.update(wanted.partitions)
            self._host.start_reading(done.starts, now_ms)
            self._move(Step.ACKNOWLEDGED)
            self._after_assignment(now_ms)
        else:
            self._on_loss_acknowledged(now_ms)

    def answer_open_callbacks(self, now_ms: int) -> None:
        """Treat every open callback as done, without processed offsets, because the application has ended."""
        while (wanted := self.callbacks.open) is not None:
            self.on_callback_done(events.CallbackDone(number=wanted.number, consumed={}, starts={}), now_ms)

    def leave(self, then: Later, now_ms: int) -> None:
        """Revoke all partitions and leave the group, then call `then`; without a membership call it at once."""
        if self.state is MemberState.FATAL:
            self._move(Step.LEFT)
        if self.state is MemberState.UNSUBSCRIBED:
            then(now_ms)
            return
        self._after_leave, self._why = then, "this member leaves"
        if self.state in (MemberState.STABLE, MemberState.ASSIGNING_PARTITIONS, MemberState.PREPARING_REBALANCE):
            self._take_half_gained()
            if self.owned:
                self._begin_revocation(set(self.owned), now_ms)
            else:
                self._go(now_ms)
        elif self.state is MemberState.JOINING:
            self._go(now_ms)
        # Otherwise a revocation, a loss or the leaving itself is under way and ends in the same place.

    @property
    def moving(self) -> tuple[TopicPartition, ...]:
        """The partitions that stay paused: those of the open callback, until it has returned, and refused ones."""
        opened = () if self.callbacks.open is None else self.callbacks.open.partitions
        return (*opened, *self._fenced) if self._fenced else opened

    @property
    def is_rejoining(self) -> bool:
        """Whether a classic member waits for the next generation of its group."""
        return self.is_classic and self.state is MemberState.PREPARING_REBALANCE

    # -- session and doubts ---------------------------------------------------------------------------------------

    def on_refused(self, code: ErrorCode, epoch: int, lane: Lane, now_ms: int) -> None:
        """Hand out no records until a heartbeat succeeds, because a request was refused for its member or epoch.

        Args:
            code: error code of the response.
            epoch: member epoch or generation in the request.
            lane: the connection of the request.
            now_ms: time of the driver, milliseconds.
        """
        # A refusal of an earlier epoch says nothing about the present one.
        if self._doubt is not None or epoch != self.epoch or self.state not in ACTIVE or not self._is_watched():
            return
        self._requests.wake_all()
        why = f"a request of it was refused ({code.name})"
        self._doubt = _Doubt(now_ms, why, now_ms)
        # The application is told before it gets the answer that came with the refusal.
        self.tell_owned_until()
        self._doubt = _Doubt(now_ms, why, now_ms + self._ask_whether_known(lane, now_ms))

    def _on_heard(self, sent_ms: int) -> None:
        """Note that the coordinator has responded, without an error, to a request sent at `sent_ms`."""
        self._heard_ms = max(self._heard_ms, sent_ms)
        if self._doubt is not None and sent_ms >= self._doubt.since_ms:
            self._doubt = None

    def _silent_ms(self) -> int:
        """Return when the coordinator counts as lost if it does not respond."""
        return max(self._heard_ms, self._waited_ms) + self._silence_ms

    def _given_up_ms(self) -> int | None:
        """Return when the partitions count as lost unless the coordinator responds; `None`: no limit runs."""
        if not self._is_watched():
            return None
        silent_ms = self._silent_ms()
        return silent_ms if self._doubt is None else min(silent_ms, self._doubt.until_ms)

    def _give_up_silence(self, now_ms: int) -> bool:
        """Lose all partitions if the coordinator has not responded for too long; return whether that is so."""
        given_up_ms = self._given_up_ms()
        if given_up_ms is None or now_ms < given_up_ms:
            return False
        why = f"the coordinator was silent for {self._session_ms} ms"
        if self._doubt is not None and now_ms < self._silent_ms():
            why = f"{self._doubt.why}, and no heartbeat was answered since"
        self._lose(why, now_ms)
        return True

    def tell_owned_until(self) -> None:
        """Deliver the time until which records may be handed out, if it has changed."""
        # Another member may have them once the session of the latest answered heartbeat is over, and from a refusal on,
        # by whichever connection it has come, until a later heartbeat is answered. Once the lease of its grant is over
        # leaders let another one read, or will; that ends with the next grant.
        # Without partitions, or before the coordinator has given an epoch, there is nothing to limit.
        until_ms = self._heard_ms + self._silence_ms if self.owned and self._has_epoch else None
        opened = self.callbacks.opened
        is_loss = opened is not None and opened.wanted.kind is events.CallbackKind.LOST
        leased_ms = self._leased_until_ms
        if until_ms is not None and leased_ms is not None:
            until_ms = min(until_ms, leased_ms)
        if is_loss or (self.owned and self._doubt is not None):
            until_ms = 0
        told = until_ms, self._lookup.updates.grants
        if told != self._told_until:
            self._told_until = told
            self._requests.deliver(OwnedUntil(until_ms=until_ms, grants=told[1]))

    # -- giving up ------------------------------------------------------------------------------------------------

    def _begin_revocation(self, partitions: set[TopicPartition], now_ms: int) -> None:
        self._round += 1
        self._move(Step.MUST_REVOKE)
        # The partitions are not dropped: a callback that asks for positions has to find them. Nor are they given back
        # when the coordinator assigns them again meanwhile: the application may be in the callback already.
        self._host.pause_reading(sorted(partitions))
        self.callbacks.ask(events.CallbackKind.REVOKED, partitions, self._why, now_ms)

    def _on_revoked(self, partitions: set[TopicPartition], now_ms: int) -> None:
        self._move(Step.ACKNOWLEDGED)
        self._host.stop_reading(sorted(partitions))
        this_round = self._round

        def committed(now_ms: int) -> None:
            # A member that was fenced meanwhile has nothing to continue.
            if self._round == this_round and self.state is MemberState.PARTITION_REVOKED:
                # Only now may a heartbeat leave them out: the next owner starts from what was committed.
                self.owned -= partitions
                self._fenced -= partitions
                self._host.forget_consumed(sorted(partitions))
                self._on_revocation_committed(now_ms)

        # The group waits for max.poll.interval.ms at most, and the commit is one request.
        deadline = now_ms + min(self._settings.options["max_poll_interval_ms"], self._requests.request_timeout_ms)
        self._host.commit_before_revocation(
            sorted(partitions), committed, deadline_ms=deadline, now_ms=now_ms, released=self._released(partitions)
        )

    def _on_revocation_committed(self, now_ms: int) -> None:
        if self._after_leave is None:
            self._move(Step.COMMITTED)
            self._after_revocation(now_ms)
        elif self.owned:
            self._move(Step.COMMITTED)
            self._begin_revocation(set(self.owned), now_ms)
        else:
            self._go(now_ms)

    def _go(self, now_ms: int) -> None:
        self._move(Step.MUST_LEAVE)
        self._send_leave(self._on_left, now_ms)

    def _on_left(self, now_ms: int) -> None:
        if self.state is not MemberState.LEAVING:
            return
        self._doubt = None
        self._move(Step.LEFT)
        self._forget_membership()
        self._finish_leave(now_ms)

    def _finish_leave(self, now_ms: int) -> None:
        then, self._after_leave = self._after_leave, None
        self._has_assignment = False
        if then is not None:
            then(now_ms)

    # -- gaining --------------------------------------------------------------------------------------------------

    def _gain(self, partitions: set[TopicPartition], now_ms: int) -> None:
        """Accept newly assigned partitions; an empty set confirms those that are owned."""
        self._has_assignment = True
        if partitions:
            self._round += 1
            self._move(Step.GAINED)
            self.callbacks.ask(events.CallbackKind.ASSIGNED, partitions, self._why, now_ms)
        elif self.state is not MemberState.STABLE:
            self._move(Step.SETTLED)

    def _take_half_gained(self) -> None:
        """Count the partitions of an open callback as owned, since the application may use them already."""
        wanted = self.callbacks.open
        if wanted is not None and wanted.kind is events.CallbackKind.ASSIGNED:
            self.owned.update(wanted.partitions)
        # Its answer will have no effect.
        self.callbacks.opened = None

    # -- losing ---------------------------------------------------------------------------------------------------

    def _lose(self, why: str, now_ms: int, *, member_id: str | None = None) -> None:
        """Stop reading, call the application's callback for lost partitions, and join again.

        `member_id`: the id with which the partitions were owned, if the member no longer has it.
        """
        if self.state is MemberState.LEAVING:
            self._on_left(now_ms)
            return
        self._absence = Absence(self.member_id if member_id is None else member_id, self.epoch, why)
        self._requests.warn(f"member {self._absence.member_id} of group {self.group_id} lost its partitions: {why}")
        self._drop_everything(Step.LOST)
        self._why = f"after a loss: {why}"
        if self.owned:
            self.callbacks.ask(events.CallbackKind.LOST, self.owned, why, now_ms)
        else:
            self._on_loss_acknowledged(now_ms)

    def _on_loss_acknowledged(self, now_ms: int) -> None:
        self.owned.clear()
        self._fenced.clear()
        if self.state is not MemberState.FENCED:
            return
        if self._after_leave is not None:
            self._move(Step.LEFT)
            self._finish_leave(now_ms)
        else:
            self._move(Step.ACKNOWLEDGED)

    def _drop_everything(self, step: Step) -> None:
        self._doubt = None
        self._round += 1
        self._move(step)
        self._forget_membership()
        self._has_assignment = False
        self._take_half_gained()
        self._host.stop_reading(sorted(self.owned))
        self._host.forget_consumed(sorted(self.owned))

    def _refuse(self, code: ErrorCode, message: str | None, now_ms: int) -> None:
        """End the membership permanently, and report the coordinator's refusal to the application."""
        name = self._settings.options["group_instance_id"]
        error = left_out(code, message, group=self.group_id, member=self.member_id, epoch=self.epoch, name=name)
        if self.state is MemberState.LEAVING:
            # It wants to leave anyway: to the application that succeeds.
            self._on_left(now_ms)
            return
        self._absence = Absence(self.member_id, self.epoch, str(message or code.name))
        self._drop_everything(Step.REFUSED)
        if self.owned:
            self.callbacks.ask(events.CallbackKind.LOST, self.owned, code.name, now_ms)
            self.owned.clear()
            self._fenced.clear()
        self._host.on_trouble(error, is_fatal=True)
        self._finish_leave(now_ms)

    # -- deadlines ------------------------------------------------------------------------------------------------

    def _limit_ms(self) -> int | None:
        """Return when the next time limit of the application or the coordinator ends; `None`: none runs."""
        opened = self.callbacks.opened
        is_running = opened is not None and opened.is_running
        found = self.callbacks.late_ms if is_running else None
        if self.state in ACTIVE:
            # While the application is in a callback its polls are not counted.
            if not (is_running or self._is_waiting_for_poll):
                found = self._polled_ms + self._settings.options["max_poll_interval_ms"]
            if self._is_watched():
                silent_ms = max(self._heard_ms, self._waited_ms) + self._silence_ms
                if self._doubt is not None:
                    silent_ms = min(silent_ms, self._doubt.until_ms)
                found = silent_ms if found is None else min(found, silent_ms)
        return found

    def _shared_deadlines(self) -> list[int]:
        """Return when `_check_application` has work."""
        limit_ms = self._limit_ms()
        found = [] if limit_ms is None else [limit_ms]
        if self._idleness.since_ms is not None and (due_ms := self._idleness.due_ms) is not None:
            found.append(due_ms)
        return found

    def _check_application(self, now_ms: int) -> bool:
        """Leave if the application does not poll, or if its revocation callback does not return in time.

        Also warn the application if it polls without a partition for long. Return whether a time limit was over.
        """
        if not self.owned or self._idleness.since_ms is not None:
            self._idleness.look(now_ms, partition_count=self._count_missed(), coordinator=self._lookup.endpoint)
        limit_ms = self._limit_ms()
        if limit_ms is None or now_ms < limit_ms:
            return False
        late_ms = self._polled_ms + self._settings.options["max_poll_interval_ms"]
        is_counted = self.state in ACTIVE and not self.callbacks.is_running and not self._is_waiting_for_poll
        if self.callbacks.must_leave(now_ms):
            self._abandon("its revocation callback took too long", now_ms)
        elif is_counted and now_ms >= late_ms:
            self._is_waiting_for_poll = True
            self._abandon(
                f"no poll for {self._settings.options['max_poll_interval_ms']} ms (max.poll.interval.ms); "
                "poll more often, or take fewer records at a time",
                now_ms,
            )
        return True

    def _count_missed(self) -> int:
        """Return the number of partitions of its topics if the stable member owns none of them, otherwise 0."""
        is_idle = self.state is MemberState.STABLE and self._has_assignment and not self.owned
        return sum(len(self._cluster.partitions_of(topic)) for topic in self.topics) if is_idle else 0

    def _abandon(self, why: str, now_ms: int) -> None:
        # The leave request of the classic protocol forgets the id, which the warning shall name.
        member_id = self.member_id
        self._send_leave(None, now_ms)
        self._lose(why, now_ms, member_id=member_id)

    # -- state ----------------------------------------------------------------------------------------------------

    def tell_identity(self) -> None:
        """Deliver the member id and the epoch, if they have changed."""
        epoch = self.epoch if self.epoch > 0 and self.state is not MemberState.UNSUBSCRIBED else -1
        said = self.member_id, epoch, self._has_assignment
        if said != self._told:
            self._told = said
            identity = Identity(member_id=self.member_id, epoch=epoch, has_assignment=self._has_assignment)
            self._requests.deliver(identity)

    def _move(self, step: Step) -> None:
        new = TRANSITIONS.get((self.state, step))
        if new is None:
            raise InvariantViolation(f"a member in state {self.state.value} cannot take the step {step.value}")
        self.state = new
        # Reading, commits and the lines of the log depend on it, too.
        self._requests.wake_all()


#: A rebalance may take so long before the member is warned.
_PATIENCE_MS: Final = 3_000


class Idleness:
    """The warning for a member without partitions: one log line with the reason, once until it gets some.

    Source: a common surprise: a group with more members than partitions has members without any.
    """

    def __init__(self, requests: Requests, *, group_id: str, is_classic: bool) -> None:
        self._requests = requests
        self._group_id = group_id
        self._is_classic = is_classic
        #: When the member was first found without partitions; `None` while it has some.
        self.since_ms: int | None = None
        #: Whether the warning was given; until the member has had partitions again.
        self._is_settled = False

    @property
    def due_ms(self) -> int | None:
        """When to ask the coordinator for the group's members; `None`: not at present."""
        return None if self.since_ms is None or self._is_settled else self.since_ms + _PATIENCE_MS

    def look(self, now_ms: int, *, partition_count: int, coordinator: Endpoint | None) -> None:
        """Check a stable member that owns none of `partition_count` partitions; 0: it owns some, or is not stable."""
        if not partition_count:
            self.since_ms, self._is_settled = None, False
        elif self.since_ms is None or coordinator is None:
            self.since_ms = now_ms
        elif not self._is_settled and now_ms >= self.since_ms + _PATIENCE_MS:
            self._is_settled = True
            self._ask(coordinator, partition_count)

    def _ask(self, coordinator: Endpoint, partition_count: int) -> None:
        def then(answer: Answer, _: int) -> None:
            if self.since_ms is not None:
                self._tell(answer, partition_count)

        request = (
            DescribeGroupsRequest(groups=[self._group_id])
            if self._is_classic
            else ConsumerGroupDescribeRequest(group_ids=[self._group_id])
        )
        self._requests.send(coordinator, Lane.CONTROL, request, then)

    def _tell(self, answer: Answer, partition_count: int) -> None:
        partitions = "1 partition" if partition_count == 1 else f"{partition_count} partitions"
        why = f"others have the {partitions}"
        if not isinstance(answer, RequestFailed):
            response = answer.message
            assert isinstance(response, ConsumerGroupDescribeResponse | DescribeGroupsResponse)
            member_count = sum(len(group.members) for group in response.groups if group.error_code == 0)
            if 0 < member_count <= partition_count:
                # A rebalance is still on its way: there is a partition for every member.
                return
            if member_count:
                why = f"{member_count} members share {partitions}"
        self._requests.warn(f"no partition for this member of group {self._group_id}: {why}")


#: An application counts as polling if its last poll is at most this old: a consumer reports its polls each second.
_POLLS_MS: Final = 2_000
#: Added to the longest time for which a broker holds a response, since a broker may be busy for a moment.
_MARGIN_MS: Final = 2_000
#: How many held responses in a row a member may cut short before it heartbeats each `_PAUSE_MS`.
_PROMPT_CUTS: Final = 2
_PAUSE_MS: Final = 1_000
#: Least heartbeats in a session, so that two that are held are answered before it ends.
_BEATS_PER_SESSION: Final = 3
#: The session is shortened by one part of this many, for clocks that differ.
_CLOCK_PARTS: Final = 100


class HeartbeatSchedule:
    """When a member sends its next heartbeat.

    A broker may hold the response until it has an update for the member, for most of the interval. It answers the
    requests of a connection in order, so it ends a hold when the member sends another request on that connection.

    Laws: the interval counts from when a heartbeat is sent, never from its response. A held response is no failure.
    Source: requirement H1; KIP-848 (the coordinator sets the interval); Apache Kafka's clients, which count so.
    """

    def __init__(self) -> None:
        #: Holds in a row that were cut.
        self._cuts = 0

    def next_ms(self, sent_ms: int, interval_ms: int, now_ms: int, *, is_cut: bool, former_ms: int = 0) -> int:
        """Return when to send the next heartbeat after the response to the one sent at `sent_ms`.

        Args:
            interval_ms: the heartbeat interval in that response.
            is_cut: another request was sent on its connection before the response arrived.
            former_ms: the interval that held while the response was awaited; 0: the same.
        """
        self._cuts = self._cuts + 1 if is_cut else 0
        # No broker takes half of an interval for an answer, unless it holds it.
        is_held = 2 * (now_ms - sent_ms) >= min(interval_ms, former_ms or interval_ms)
        if is_held or 0 < self._cuts <= _PROMPT_CUTS:
            # The broker can hold the next heartbeat, too, only once it has it.
            return now_ms
        return sent_ms + (min(interval_ms, _PAUSE_MS) if is_cut else interval_ms)


def patience_ms(request_timeout_ms: int, interval_ms: int, session_ms: int) -> int:
    """Return for how long to wait for the response to a heartbeat, milliseconds.

    That is the request timeout, or the longest time for which a broker holds a response if that is longer.
    """
    # A third of the session is left for a heartbeat by another connection.
    return max(min(request_timeout_ms, session_ms * 2 // 3), interval_ms + _MARGIN_MS)


def longest_interval_ms(interval_ms: int, session_ms: int) -> int:
    """Return the longest time between two heartbeats: `interval_ms`, or a third of the session if that is less."""
    return min(interval_ms, session_ms // _BEATS_PER_SESSION)


def silence_ms(session_ms: int) -> int:
    """Return for how long a member surely keeps its partitions, counted from when an answered heartbeat was sent."""
    # The coordinator counts from when it arrived. One of the two clocks may be slower by a hundredth.
    return session_ms - session_ms // _CLOCK_PARTS
