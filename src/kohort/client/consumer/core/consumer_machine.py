"""The consumer's machine: it takes events of the application and of the network, and returns actions.

Laws: all of the consumer's decisions about network, membership and offsets are made here and in the parts below, from
events and the time alone. Nothing here waits, sleeps or reads a clock.
Source: architecture rules 1, 2 and 6; the consumer threading refactor (CTR).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import assert_never

from kohort.base.timers import Schedule
from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import Change, ChunkTaken, OffsetsStored, Polled, Progress
from kohort.client.consumer.core.lookups import Lookups
from kohort.client.consumer.core.silence import Silence
from kohort.client.consumer.core.subscription import Subscription
from kohort.client.consumer.fetch.fetch_sender import FetchSender
from kohort.client.consumer.fetch.partition_state import Readings
from kohort.client.consumer.membership.classic_member import ClassicMember
from kohort.client.consumer.membership.consumer_member import ConsumerMember
from kohort.client.consumer.membership.member import Later, Member
from kohort.client.consumer.membership.publishing import MembershipMetadata
from kohort.client.consumer.membership.states import MemberState
from kohort.client.consumer.offsets.commits import Commits, Committer, Failed, build_error
from kohort.client.consumer.offsets.committed import CommittedOffsets
from kohort.client.consumer.offsets.queries import OffsetQueries
from kohort.client.core.actions import Action, Lane, Stop
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import CoordinatorLookup
from kohort.client.core.refusals import Absence
from kohort.client.core.requests import DeadlineReached, DriverEvent, RequestFailed, Requests, ResponseReceived
from kohort.client.options import ClientSettings, ConsumerSettings
from kohort.client.records import Committable
from kohort.errors import BrokersUnreachableError, ErrorCode, KohortError, StateError, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions


class ConsumerMachine:
    """The background of a consumer.

    `member_id`: made by the client for KIP-848, kept for its lifetime.
    """

    def __init__(self, client: ClientSettings, settings: ConsumerSettings, *, member_id: str) -> None:
        self._client = client
        self._settings = settings
        self._member_id = member_id
        self._requests = Requests(request_timeout_ms=client.options["request_timeout_ms"], retry=client.retry)
        self._cluster = Cluster(
            self._requests,
            bootstrap=client.bootstrap,
            max_age_ms=client.options["metadata_max_age_ms"],
            on_change=self._on_cluster_change,
            on_unreachable=self._on_unreachable,
        )
        self._queries = OffsetQueries(self._requests, self._cluster, is_read_committed=settings.is_read_committed)
        self._silence = Silence(self._requests, self._cluster, settings)
        self.publishing = MembershipMetadata(self._requests, group_id=settings.options["group_id"] or "")
        self._group: Group | None = None
        if settings.options["group_id"] is not None:
            self._group = Group(self._requests, self._cluster, self, settings, on_refused=self._on_group_refused)
        committed = None if self._group is None else self._group.committed
        #: Partitions whose refusal has passed since the last line about it.
        self._back: list[TopicPartition] = []
        self._schedule = Schedule()
        self._readings = Readings(
            self._requests,
            self._cluster,
            self._queries,
            committed,
            reset=settings.options["auto_offset_reset"],
            on_trouble=self._on_partition_trouble,
            on_back=self._on_back,
            on_remade=self._on_remade,
            on_skipped=None if self._group is None or settings.is_reset_chosen else self._silence.tell_skipped,
        )
        self._sender = FetchSender(
            self._requests,
            self._cluster,
            self._readings,
            None if self._group is None else self._group.lookup,
            settings,
            on_fenced=self._on_fenced,
            preference_ms=client.options["metadata_max_age_ms"],
        )
        self._lookups = Lookups(self._requests, self._cluster, self._queries, self._readings, committed)
        self._member: Member | None = None
        may_create = settings.options["allow_auto_create_topics"]
        self._subscription = Subscription(self._requests, self._cluster, may_create=may_create)
        self._is_unreachable = self._is_over = False
        #: topic -> id of the topic made again that was reported last.
        self._told_remade: dict[str, TopicId] = {}
        self._closing: events.CloseAsked | None = None
        self._add_parts()

    def _add_parts(self) -> None:
        """Put the parts into the schedule; each may bring work for the parts behind it."""
        schedule, group = self._schedule, self._group
        self._requests.wake_all = schedule.wake_all
        schedule.add(lambda _: None, lambda: None if self._closing is None else self._closing.deadline_ms)
        self.wake_member = schedule.add(
            self._work_member, lambda: None if self._member is None else self._member.next_deadline()
        )
        self._readings.wake = schedule.add(self._readings.work, self._readings.next_deadline)
        self._wake_follow = schedule.add(self._follow_topics)
        self._wake_queries = schedule.add(self._work_queries, self._queries.next_deadline)
        self._queries.wake = self._on_asked
        self.wake_fetches = schedule.add(self._sender.work, self._sender.next_deadline)
        self._sender.wake = self._readings.wake_fetches = self.wake_fetches
        self._wake_lookups = schedule.add(self._work_lookups, self._lookups.next_deadline)
        if group is not None:
            group.commits.wake_follow = self._wake_follow
            group.commits.wake = schedule.add(group.commits.work, group.commits.next_deadline)
            group.committed.wake = schedule.add(group.committed.work, group.committed.next_deadline)
            # Behind the other requests to the coordinator, which would cut the hold of the heartbeat.
            self._wake_speech = schedule.add(self._speak)
            # Behind the parts that ask for the coordinator.
            group.lookup.wake = schedule.add(group.lookup.work, group.lookup.next_deadline)
        self._cluster.wake = schedule.add(self._cluster.work, self._cluster.next_deadline)
        self._wake_silence = schedule.add(self._watch_silence, self._silence.next_deadline)
        self._wake_telling = schedule.add(self._tell_member)
        self._readings.wake_followers = self._on_topics_changed

    # -- the driver -------------------------------------------------------------------------------------------------

    def handle(self, event: events.ConsumerEvent | DriverEvent, now_ms: int) -> list[Action]:
        """Take one event; return the actions that follow from it."""
        if isinstance(event, ResponseReceived | RequestFailed):
            self._requests.answer(event, now_ms)
            if self._closing is not None and not self._is_over:
                self._check_desertion(now_ms)
        elif isinstance(event, Progress):
            self._on_progress(event, now_ms)
        elif not isinstance(event, DeadlineReached):
            # Rare events: every part looks.
            self._schedule.wake_all()
            if isinstance(event, Change):
                self._on_change(event, now_ms)
            elif isinstance(event, events.Question):
                self._lookups.on_question(event, now_ms)
            elif isinstance(event, events.Publication):
                self.publishing.take(event)
            else:
                assert isinstance(event, events.Word), f"no part takes {event!r}"
                if self._member is not None:
                    self._member.on_word(event, now_ms)
        if self._closing is not None and not self._is_over:
            # Then each event may be the last that was waited for.
            self._schedule.wake_all()
            if now_ms >= self._closing.deadline_ms:
                self._finish(now_ms)
                return self._requests.drain()
        if not self._is_over:
            self._schedule.run(now_ms)
        return self._requests.drain()

    def next_deadline(self) -> int | None:
        """Return when work is due without an event; `None`: never, before one."""
        return None if self._is_over else self._schedule.earliest_ms

    def _work_member(self, now_ms: int) -> None:
        if self._member is not None:
            if self._closing is not None and self._closing.is_forgotten:
                self._member.answer_open_callbacks(now_ms)
            self._member.work(now_ms)
            self._wake_speech()
        self._wake_telling()

    def _speak(self, now_ms: int) -> None:
        if self._member is not None:
            self._member.speak(now_ms)

    def _work_queries(self, now_ms: int) -> None:
        self._queries.work(now_ms)
        # Their topics may be others now, to be followed from the next event on.
        self._wake_follow()

    def _on_asked(self) -> None:
        self._wake_follow()
        self._wake_queries()

    def _on_topics_changed(self) -> None:
        self._wake_follow()
        self._wake_silence()

    def _work_lookups(self, now_ms: int) -> None:
        self._lookups.work(now_ms)
        if self._lookups.are_open:
            # What answers them may come with any event.
            self._wake_lookups()

    def _watch_silence(self, now_ms: int) -> None:
        self._silence.tell_back(self._back)
        self._silence.watch(now_ms, self._member, self._readings, self._sender)

    def _tell_member(self, _: int) -> None:
        if self._member is not None:
            self._member.tell_identity()
            self._member.tell_owned_until()

    def _check_desertion(self, now_ms: int) -> None:
        if desertion := self._cluster.find_desertion():
            # No broker is left to take the last commit. The session ends there without a leave request.
            self._fail_all(desertion, now_ms)
            self._finish(now_ms)

    # -- events of the application ------------------------------------------------------------------------------------

    def _on_progress(self, event: Progress, now_ms: int) -> None:
        match event:
            case Polled(consumed=consumed):
                self._note_consumed(consumed, now_ms)
                if self._member is not None:
                    self._member.on_polled(now_ms)
            case OffsetsStored(offsets=offsets):
                self._note_consumed(offsets, now_ms)
            case ChunkTaken(sizes=sizes):
                self._sender.buffer.release(sizes)
                self._sender.wake()
            case events.CallbackStarted():
                self._schedule.wake_all()
                if self._member is not None:
                    self._member.on_callback_started(event, now_ms)
            case events.CallbackDone():
                self._schedule.wake_all()
                self._note_consumed(event.consumed, now_ms)
                if self._member is not None:
                    self._member.on_callback_done(event, now_ms)
            case events.CommitAsked() | events.AsynchronousCommitAsked():
                assert self._group is not None, "the door refuses this"
                self._group.on_commit_asked(event)
            case _:
                assert_never(event)

    def _on_change(self, event: Change, now_ms: int) -> None:
        match event:
            case events.Subscribed():
                self._subscribe(event, now_ms)
            case events.Unsubscribed(ticket=ticket):
                self._leave(lambda _: self._requests.complete(ticket), now_ms)
            case events.PartitionsAssigned(starts=starts):
                self._assign(starts, now_ms)
            case events.Sought():
                self._readings.seek(event)
            case events.Paused(partitions=partitions, is_paused=is_paused):
                # Partitions of an open callback stay paused until the application has answered it.
                moving = () if is_paused or self._member is None else self._member.moving
                self._readings.pause([each for each in partitions if each not in moving], is_paused=is_paused)
            case events.Configured(settings=settings):
                self._sender.configure(settings)
            case events.CloseAsked():
                self._closing = event
                # The close gives up once every address was tried in vain from now on.
                self._cluster.forget_absent()
                if self._member is not None:
                    self._member.goes_for_good = event.goes_for_good
                self._leave(self._finish, now_ms)
            case _:
                assert_never(event)

    def _subscribe(self, wanted: events.Subscribed, now_ms: int) -> None:
        assert self._settings.options["group_id"] is not None, "the door refuses this"
        self._subscription.replace(wanted.topics, wanted.pattern)
        if self._member is None:
            self._member = self._build_member(is_classic=self._settings.options["group_protocol"] == "classic")
        self._member.subscribe(wanted, now_ms)

    def _build_member(self, *, is_classic: bool) -> Member:
        assert self._group is not None
        build = ClassicMember if is_classic else ConsumerMember
        return build(
            self,
            self._requests,
            self._cluster,
            self._group.lookup,
            self._settings,
            member_id="" if is_classic else self._member_id,
        )

    def _assign(self, starts: Mapping[TopicPartition, events.Start], now_ms: int) -> None:
        gone = [reading.partition for reading in self._readings.all() if reading.partition not in starts]
        if self._group is not None:
            deadline_ms = now_ms + self._requests.request_timeout_ms
            self._group.commits.commit_consumed(gone, lambda _: None, deadline_ms=deadline_ms, now_ms=now_ms)
        self._subscription.replace(())
        self._readings.stop(gone)
        self._readings.start(starts)

    def _leave(self, then: Later, now_ms: int) -> None:
        """Commit, give every partition up and leave the group; call `then` at the end."""

        def left(now_ms: int) -> None:
            self._subscription.replace(())
            self._readings.stop([reading.partition for reading in self._readings.all()])
            then(now_ms)

        if self._member is not None and self._member.state is not MemberState.UNSUBSCRIBED:
            self._member.leave(left, now_ms)
            return
        self._member = None
        partitions = [reading.partition for reading in self._readings.all()]
        self._readings.stop(partitions)
        deadline_ms = now_ms + self._requests.request_timeout_ms
        self.commit_before_revocation(partitions, left, deadline_ms=deadline_ms, now_ms=now_ms)

    def _finish(self, now_ms: int) -> None:
        if self._is_over or self._closing is None:
            return
        self._is_over = True
        self._fail_all(StateError("this consumer was closed before that had ended"), now_ms)
        # Before `Stop`, so that brokers free the sessions; no answer is awaited.
        self._sender.end_sessions()
        self._requests.complete(self._closing.ticket)
        self._requests.add(Stop())

    def _note_consumed(self, consumed: Mapping[TopicPartition, Committable], now_ms: int) -> None:
        if self._group is not None:
            # The report may be older than the loss of a partition.
            mine = {each: offset for each, offset in consumed.items() if self.holds(each)}
            self._group.commits.on_consumed(mine, now_ms)

    # -- the cluster --------------------------------------------------------------------------------------------------

    def _follow_topics(self, now_ms: int) -> None:
        wanted = set(self._readings.topics | self._lookups.topics())
        if self._member is not None:
            wanted |= self._member.followed_topics()
        if self._group is not None:
            wanted |= self._group.commits.topics()
        if wanted or self._group is not None:
            self._cluster.want(wanted, now_ms, and_all=self._subscription.pattern is not None)

    def _on_cluster_change(self, now_ms: int) -> None:
        self._schedule.wake_all()
        self._readings.on_cluster_change()
        self._sender.on_cluster_change()
        if self._is_unreachable and not self._cluster.is_cut_off:
            self._is_unreachable = False
            self._requests.deliver(events.Recovered())
        # A group takes partitions of a deleted topic back by itself, with a pattern, too.
        by_hand = self._readings.topics if self._member is None else frozenset()
        missing = self._subscription.find_missing(by_hand, now_ms)
        refusals = {
            name: why for name in self._readings.topics if (why := self._queries.find_refusal(name)) is not None
        }
        for reading in self._readings.all() if missing or refusals else ():
            name = reading.partition.topic
            if name in missing and not reading.is_stuck:
                self._readings.stick(reading, UnknownTopicError(name))
            elif name in refusals and reading.is_readable:
                self._readings.rest(reading, now_ms)
                self._readings.refuse(reading, refusals[name])

    def _on_unreachable(self, error: BrokersUnreachableError, now_ms: int) -> None:
        self._is_unreachable = True
        self._fail_all(error, now_ms)
        self.on_trouble(error, is_fatal=False)
        if self._closing is not None:
            self._finish(now_ms)

    def _on_group_refused(self, error: KohortError, now_ms: int) -> None:
        self._fail_all(error, now_ms)
        self.on_trouble(error, is_fatal=True)

    def _fail_all(self, error: KohortError, now_ms: int) -> None:
        """End every call that the application waits for."""
        self._queries.fail_all(error, now_ms)
        if self._group is not None:
            self._group.commits.fail_all(error, now_ms)
            self._group.committed.fail_all(error, now_ms)
        self._lookups.fail_all(error)

    def _on_back(self, partition: TopicPartition) -> None:
        self._back.append(partition)
        self._wake_silence()

    def _on_partition_trouble(self, partition: TopicPartition, error: KohortError) -> None:
        reading = self._readings.get(partition)
        fence = None if reading is None else reading.fence
        self._requests.deliver(events.Trouble(error=error, is_fatal=False, partition=partition, fence=fence))

    def _on_remade(self, partition: TopicPartition, fence: events.Fence) -> None:
        topic_id = self._cluster.topic_id(partition.topic)
        if self._told_remade.get(partition.topic) != topic_id:
            self._told_remade[partition.topic] = topic_id
            self._requests.warn(f"topic {partition.topic} was deleted and made again: it is read anew")
        self._requests.deliver(events.Remade(partition=partition, fence=fence))

    # -- membership's Host, commits' Committer ----------------------------------------------------------------------

    def identity(self) -> tuple[str, int] | None:
        member = self._member
        if member is None or member.state is MemberState.UNSUBSCRIBED:
            return ("", -1)
        is_member = member.epoch > 0 and member.state not in (MemberState.FENCED, MemberState.FATAL)
        return (member.member_id, member.epoch) if is_member else None

    def absence(self) -> Absence:
        assert self._member is not None, "otherwise there is one"
        return self._member.absence

    def holds(self, partition: TopicPartition) -> bool:
        if self._member is None or self._member.state is MemberState.UNSUBSCRIBED:
            return True
        return self.identity() is not None and partition in self._member.owned

    def on_refused(self, code: ErrorCode, epoch: int, now_ms: int) -> None:
        """Doubt the membership after a refused commit: the coordinator does not know the member or its epoch."""
        if self._member is not None:
            self._member.on_refused(code, epoch, Lane.COORDINATOR, now_ms)

    def _on_fenced(self, partitions: Sequence[TopicPartition], now_ms: int) -> bool:
        """Have the member give up partitions of which a leader refuses it; return whether there is one."""
        return self._member is not None and self._member.on_fenced(partitions, now_ms)

    def topic_id_of(self, partition: TopicPartition) -> TopicId | None:
        if not self._settings.options["fetch_buffer_bytes"]:
            # Its records are read by another client, so only that one knows the topic: the commit goes by name.
            return ZERO_TOPIC_ID
        reading = self._readings.get(partition)
        read = None if reading is None else reading.topic_id
        return self._cluster.known_id(partition.topic) if read is None else read

    def is_rejoining(self) -> bool:
        return self._member is not None and self._member.is_rejoining

    def start_reading(self, starts: Mapping[TopicPartition, events.Start], now_ms: int) -> None:
        ids = {} if self._member is None else self._member.topic_ids
        self._readings.start(starts, are_given=True, ids=ids)

    def pause_reading(self, partitions: Sequence[TopicPartition]) -> None:
        self._readings.pause(partitions, is_paused=True)

    def stop_reading(self, partitions: Sequence[TopicPartition]) -> None:
        self._readings.stop(partitions)

    def commit_before_revocation(
        self,
        partitions: Sequence[TopicPartition],
        then: Later,
        *,
        deadline_ms: int,
        now_ms: int,
        released: list[TopicPartitions] | None = None,
    ) -> None:
        if self._group is None:
            then(now_ms)
            return
        commits = self._group.commits
        commits.commit_consumed(partitions, then, deadline_ms=deadline_ms, now_ms=now_ms, released=released)

    def forget_consumed(self, partitions: Iterable[TopicPartition]) -> None:
        if self._group is not None:
            self._group.commits.forget(partitions)

    def on_trouble(self, error: KohortError, *, is_fatal: bool) -> None:
        self._requests.deliver(events.Trouble(error=error, is_fatal=is_fatal))

    def fall_back_to_classic(self, reason: str, now_ms: int) -> None:
        assert self._member is not None
        self.publishing.fall_back_to_classic()
        lost = "; group.remote.assignor has no effect there" if self._settings.options["group_remote_assignor"] else ""
        lost = "; group.local.assignors have no effect there" if self._settings.local_assignors else lost
        self._requests.warn(f"this broker lacks KIP-848 ({reason}): using the classic group protocol{lost}")
        before, self._member = self._member, self._build_member(is_classic=True)
        # The numbers of the callbacks go on, so that no late answer is taken for a new one.
        self._member.callbacks = before.callbacks
        self._member.subscribe(events.Subscribed(topics=before.topics, pattern=before.pattern), now_ms)


class Group:
    """The group of a consumer, whether it is a member or not: its coordinator, commits and committed offsets.

    Args:
        committer: in whose name offsets are committed and asked for.
        on_refused: called with the error and the time when the group may not be used at all.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        committer: Committer,
        settings: ConsumerSettings,
        *,
        on_refused: Callable[[KohortError, int], None],
    ) -> None:
        options = settings.options
        assert options["group_id"] is not None
        group_id = self._group_id = options["group_id"]
        self._requests = requests
        #: Asynchronous commits whose end the application was not told yet, in order.
        self._asynchronous: deque[events.AsynchronousCommitAsked] = deque()
        #: Identity of those of them that have ended -> error.
        self._ended: dict[int, KohortError | None] = {}
        self.lookup = CoordinatorLookup(
            requests,
            cluster,
            group_id=group_id,
            on_refused=on_refused,
            hears=options["fetch_carries_membership"],
        )
        self.commits = Commits(
            requests,
            self.lookup,
            cluster,
            committer,
            group_id=group_id,
            instance_id=options["group_instance_id"],
            auto_interval_ms=options["auto_commit_interval_ms"] if options["enable_auto_commit"] else None,
        )
        self.committed = CommittedOffsets(requests, self.lookup, committer, group_id=group_id)

    def on_commit_asked(self, asked: events.CommitAsked | events.AsynchronousCommitAsked) -> None:
        """Commit for the application."""
        if isinstance(asked, events.CommitAsked):
            self.commits.commit(asked.offsets, partial(self._end_commit, asked), deadline_ms=asked.deadline_ms)
            return
        told = None
        if asked.callback is not None:
            self._asynchronous.append(asked)
            told = partial(self._end_asynchronous_commit, asked)
        self.commits.commit_asynchronously(asked.offsets, told, deadline_ms=asked.deadline_ms)

    def _end_commit(self, asked: events.CommitAsked, failed: Failed, _: int) -> None:
        error = build_error(self._group_id, asked.offsets, failed) if failed else None
        if error is None:
            self._requests.complete(asked.ticket)
        else:
            self._requests.fail(asked.ticket, error)

    def _end_asynchronous_commit(self, asked: events.AsynchronousCommitAsked, failed: Failed, _: int) -> None:
        self._ended[id(asked)] = build_error(self._group_id, asked.offsets, failed)
        # Callbacks are called in the order of the calls, whichever commit has ended first.
        while self._asynchronous and id(self._asynchronous[0]) in self._ended:
            first = self._asynchronous.popleft()
            error = self._ended.pop(id(first))
            self._requests.deliver(events.CommitEnded(callback=first.callback, offsets=first.offsets, error=error))
