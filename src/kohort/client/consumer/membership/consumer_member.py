"""A member by KIP-848: the coordinator decides, and heartbeats report and request each change.

Laws: after any failure the next heartbeat is a full one. A refused heartbeat extends no session. A failure that may be
temporary is retried after growing pauses; any other failure ends the membership with its reason. If a heartbeat is sent
before the response to the previous one (an overtaken heartbeat), the assignment in the first response is used only
after the second response. A partition that its leader refuses is revoked as if by the coordinator, and can be assigned
again. A fetch replaces no heartbeat with content. Fetches replace heartbeats only as long as the coordinator is known
to count them.
Source: KIP-848; KIP-1082 (the client makes the member id); reactions to errors as in Apache Kafka 4.3; requirements H5
(grants), H7 (liveness by fetches) and H10 (release with a commit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Final, NamedTuple

from kohort.client.consumer.application_events import CallbackKind, ComputationDone, ReadsRefused, Subscribed, Word
from kohort.client.consumer.membership.computing import NOT_OFFERED, AssignmentComputation
from kohort.client.consumer.membership.member import Later, Member, longest_interval_ms, patience_ms, silence_ms
from kohort.client.consumer.membership.states import ACTIVE, MemberState
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.coordinator_lookup import BUSY, MOVED, HeldGrant
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, Failure, RequestFailed, ResponseReceived, message_of
from kohort.errors import ErrorCode
from kohort.ids import TopicId, TopicPartition
from kohort.wire.messages import consumer_group_heartbeat as heartbeat
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate

#: Errors after which the member joins again with epoch 0, because the coordinator does not know it any more.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
#: Epochs with which a member leaves: for good, or as a static member that returns and keeps its partitions.
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
_NONE: Final[frozenset[int]] = frozenset()
_FENCED: Final = int(ErrorCode.FENCED_MEMBER_EPOCH)
#: Added to the session timeout: the wait for a `group.instance.id` that another member uses.
_RELEASE_MARGIN_MS: Final = 5_000
#: States in which a member may begin to revoke partitions.
_AT_REST: Final = (MemberState.STABLE, MemberState.PREPARING_REBALANCE)
#: The wait for the coordinator's reason after a partition leader has refused a fetch.
_NEWS_MS: Final = 100
#: Heartbeats per session beside fetches, if no grants (leases of partitions) show that fetches are counted.
_BEATS_BESIDE_FETCHES: Final = 3
#: A coordinator that counts fetches records them four times per heartbeat interval, which is a third of a session.
_COUNTS_PER_SESSION: Final = 12
#: Errors that may be temporary without any change of the member.
_TROUBLED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def explain_fence(code: ErrorCode, message: str | None) -> str:
    """Return the reason why the member was fenced: the error code and the broker's message."""
    return f"{code.name}{f': {message}' if message else ''}"


class _AnsweredHeartbeat(NamedTuple):
    """A heartbeat with its response: send time, interval then (0: none), whether cut short, whether full."""

    sent_ms: int
    interval_ms: int
    is_cut: bool
    was_full: bool


class ConsumerMember(Member):
    """A member by ConsumerGroupHeartbeat."""

    is_classic = False
    #: topic id -> partitions of the target assignment; `None` before the first one.
    _target: Mapping[TopicId, tuple[int, ...]] | None = None
    #: topic -> the topic id with which its partitions were assigned.
    _ids: dict[str, TopicId]
    #: Generation of the cluster's metadata with which the target assignment was last compared.
    _seen_generation: int = -1
    #: Whether the next heartbeat has every field; true until a full one has succeeded.
    _is_full: bool = True
    #: The time of the next heartbeat.
    _due_ms: int = 0
    _version: int = 1
    _attempts: int = 0
    #: Since when another member is known to use the `group.instance.id`; `None`: none does.
    _held_since_ms: int | None = None
    _interval_ms: int = 0
    #: The group's session timeout in the coordinator's last response, milliseconds; 0: not received.
    _told_session_ms: int = 0
    #: The lease of the last grant, milliseconds; 0: no grant was received.
    _lease_ms: int = 0
    #: Whether the coordinator counts fetches of a stable member as heartbeats.
    _counts_fetches: bool = False
    #: When refused partitions are revoked even without a response of the coordinator.
    _fenced_due_ms: int = 0
    #: Whether `_latest` lacks refused partitions that the coordinator's assignment has.
    _is_cut_down: bool = False
    #: The send time of the latest successful heartbeat.
    _beat_ms: int = 0
    #: Tokens of the heartbeats in flight, oldest first, two at most.
    _in_flight: tuple[int, ...] = ()
    #: The broker that these heartbeats were sent to.
    _asked: Endpoint | None = None
    #: The latest assignment; it becomes the target assignment once no overtaken heartbeat waits for its response.
    _latest: Mapping[TopicId, tuple[int, ...]]
    #: Whether the latest assignment was new and no heartbeat with the owned partitions has followed. The coordinator
    #: waits for that heartbeat, and removes members that do not send it.
    _is_owed: bool = False
    #: Whether the next heartbeat lists the owned partitions, and is sent at once.
    _has_news: bool = False
    #: Whether the next heartbeat has the subscription.
    _has_new_topics: bool = False
    #: Whether the coordinator may know a pattern that the subscription no longer has.
    _has_said_pattern: bool = False
    #: Tokens of the heartbeats in flight that list the owned partitions.
    _listing: tuple[int, ...] = ()

    @cached_property
    def _computing(self) -> AssignmentComputation:
        return AssignmentComputation(
            self._requests,
            self._lookup,
            self._settings.local_assignors,
            group_id=self.group_id,
            timeout_ms=self._settings.options["max_poll_interval_ms"],
            on_begun=self._hurry,
        )

    def _hurry(self, now_ms: int) -> None:
        self._due_ms = min(self._due_ms, now_ms)

    @property
    def _has_word(self) -> bool:
        """Whether the next heartbeat has changes for the coordinator."""
        is_news = self._has_news or self._has_new_topics
        return is_news or (bool(self._settings.local_assignors) and self._computing.has_news)

    @property
    def topic_ids(self) -> Mapping[str, TopicId]:
        return self._ids

    @property
    def is_name_held(self) -> bool:
        return self._held_since_ms is not None

    # -- heartbeats that are due ----------------------------------------------------------------------------------

    def work(self, now_ms: int) -> None:
        """Handle a silent coordinator and time limits; reconcile again if the metadata has changed."""
        is_late = self._check_application(now_ms)
        if self.state not in ACTIVE or (is_late and self._give_up_silence(now_ms)):
            return
        leased_ms = self._leased_until_ms
        if leased_ms is not None and 0 < leased_ms <= now_ms:
            self._lapse(now_ms)
        if self._fenced and now_ms >= self._fenced_due_ms:
            self._give_up_fenced(now_ms)
        if self.state is MemberState.STABLE and self._seen_generation != self._cluster.generation:
            self._reconcile(now_ms)

    def speak(self, now_ms: int) -> None:
        """Send the heartbeat if it is due, and the assignment if the application has computed one."""
        if self.state not in ACTIVE:
            return
        if self._settings.local_assignors:
            self._computing.speak((self.member_id, self.epoch), now_ms)
        next_ms = self._next_ms()
        if next_ms is not None and now_ms >= next_ms:
            if self._counts_fetches and (counted_until_ms := self._counted_until_ms()) > now_ms:
                self._due_ms = counted_until_ms
                return
            endpoint = self._lookup.need(now_ms)
            if endpoint is not None:
                self._heartbeat(endpoint, now_ms)

    def next_deadline(self) -> int | None:
        """Return the time of the next heartbeat or time limit, ms; `None`: there is none."""
        deadlines = self._shared_deadlines()
        if self.state in ACTIVE:
            computed_ms = self._computing.next_deadline() if self._settings.local_assignors else None
            if computed_ms is not None:
                deadlines.append(computed_ms)
            if self._lookup.endpoint is not None and (next_ms := self._next_ms()) is not None:
                deadlines.append(next_ms)
            if leased_ms := self._leased_until_ms:
                deadlines.append(leased_ms)
            if self._fenced and self.state in _AT_REST:
                deadlines.append(self._fenced_due_ms)
        return min(deadlines, default=None)

    def on_topics_changed(self, now_ms: int) -> None:
        """Send the new subscription at once."""
        self._has_new_topics = True
        self._due_ms = now_ms

    def on_word(self, word: Word, now_ms: int) -> None:
        """Take a computed assignment, or request a new computation if members compute assignments."""
        if isinstance(word, ComputationDone):
            self._computing.on_computed(word, now_ms)
        elif self._settings.local_assignors:
            self._computing.describe(word.metadata, is_wanted=True)
            self._due_ms = now_ms
        else:
            # Only the coordinator decides when to compute a new assignment, as for Kafka's own consumer.
            self._requests.warn(
                f"a rebalance of group {self.group_id} was asked for ({word.reason}): in the consumer protocol that "
                "has no effect, the coordinator decides"
            )

    def subscribe(self, wanted: Subscribed, now_ms: int) -> None:
        self._computing.describe(wanted.metadata, is_wanted=False)
        super().subscribe(wanted, now_ms)

    @property
    def _session_ms(self) -> int:
        return min(
            self._settings.options["session_timeout_ms"],
            self._told_session_ms or self._settings.options["session_timeout_ms"],
        )

    def _is_watched(self) -> bool:
        return self.epoch > 0 and self.state in ACTIVE

    @property
    def _has_epoch(self) -> bool:
        return self.epoch > 0

    def _next_ms(self) -> int | None:
        """Return the time of the next heartbeat, ms; `None`: none may be sent before an event."""
        # The time for a heartbeat that publishes metadata or requests them. A full or joining one does so anyway.
        publishes_ms = None if self.epoch <= 0 or self._is_full else self._host.publishing.due_ms
        if self._in_flight:
            # A heartbeat without changes waits for the response to the previous one, which a broker may delay.
            # A heartbeat with changes may overtake a delayed one, on the same connection: on another connection its
            # response might arrive first.
            has_word = self._has_word
            is_news = self.epoch > 0 and (has_word or publishes_ms is not None)
            if not (is_news and len(self._in_flight) == 1 and self._asked == self._lookup.endpoint):
                return None
            return self._due_ms if has_word else publishes_ms
        if self.epoch <= 0 and (self.state is not MemberState.JOINING or self._is_waiting_for_poll):
            return None
        return self._due_ms if publishes_ms is None else min(self._due_ms, publishes_ms)

    def _after_revocation(self, now_ms: int) -> None:
        self._has_news = True
        # The coordinator may still count refused partitions as assigned. The response to a full heartbeat has the
        # assignment again.
        self._is_full = self._is_full or self._is_cut_down
        self._due_ms = now_ms

    def _after_assignment(self, now_ms: int) -> None:
        self._has_news = True
        self._due_ms = now_ms
        self._reconcile(now_ms)

    def _forget_membership(self) -> None:
        self.epoch = 0
        self._target = None
        self._latest, self._is_owed, self._is_cut_down = {}, False, False
        self._ids = {}
        self._is_full = True
        self._has_news = False
        self._computing.forget()
        self._due_ms = self._told_session_ms = self._lease_ms = 0
        self._counts_fetches = False
        self._leased_until_ms = None
        self._lookup.updates.drop()
        self._silence_ms = silence_ms(self._session_ms)
        for token in self._in_flight:
            self._requests.forget(token)
        self._in_flight = self._listing = ()
        self._lookup.updates.member = self

    # -- heartbeats -----------------------------------------------------------------------------------------------

    def _heartbeat(self, endpoint: Endpoint, now_ms: int) -> None:
        is_full, says_topics = self._is_full, self._is_full or self._has_new_topics
        # An overtaken heartbeat may bring a new epoch; with the old one only lists of owned partitions are accepted.
        lists_owned = is_full or self._has_news or bool(self._in_flight)
        said = self._host.publishing.say(now_ms, is_full=is_full)
        self._is_owed = self._is_owed and not (lists_owned and self._target == self._latest)
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            # Before version 1 the coordinator generates the member id, so a joining member sends none.
            member_id="" if self._version == 0 and self.epoch == 0 else self.member_id,
            member_epoch=self.epoch,
            # In every heartbeat: without an instance id the heartbeat would be that of a dynamic member.
            instance_id=self._settings.options["group_instance_id"],
            rack_id=(self._settings.options["client_rack"] or None) if is_full else None,
            rebalance_timeout_ms=self._settings.options["max_poll_interval_ms"] if is_full else -1,
            subscribed_topic_names=list(self.topics) if says_topics else None,
            subscribed_topic_regex=self._regex() if says_topics else None,
            server_assignor=self._settings.options["group_remote_assignor"] if is_full else None,
            topic_partitions=self._list() if lists_owned else None,
            # In every heartbeat, because the coordinator does not store it; other brokers skip the tagged field.
            proposed_heartbeat_interval_ms=self._settings.proposed_heartbeat_interval_ms,
            registration_timeout_ms=self._settings.registration_timeout_ms if self.epoch == 0 else -1,
            expansion_timeout_ms=self._settings.expansion_timeout_ms if self.epoch == 0 else -1,
            wants_numbers=self._lookup.updates.is_on,
            metadata=said.metadata,
            watched_version=said.watched_version,
            client_assignors=self._computing.take_words(is_full=is_full),
            last_poll_ms=self.last_poll_ms(now_ms),
        )
        epoch, interval_ms = self.epoch, self._interval_ms
        self._has_news = self._has_new_topics = False
        self._has_said_pattern = self._has_said_pattern or self.pattern is not None

        def then(answer: Answer, answered_ms: int) -> None:
            self._in_flight = tuple(filter(token.__ne__, self._in_flight))
            self._listing = tuple(filter(token.__ne__, self._listing))
            response = message_of(answer, heartbeat.ConsumerGroupHeartbeatResponse)
            self._host.publishing.on_answer(said, response)
            if self._in_flight:
                self._on_overtaken(answer, now_ms, was_full=is_full)
            elif 0 < epoch < self.epoch and response is not None and response.error_code == _FENCED:
                # The member has received a newer epoch since, so the heartbeat with the old one was refused.
                self._is_full, self._due_ms = True, answered_ms
            else:
                beat = _AnsweredHeartbeat(now_ms, interval_ms, self._requests.is_followed(endpoint, token), is_full)
                self._on_answer(answer, response, endpoint, answered_ms, beat)
            self._lookup.updates.on_said(answered_ms)

        token = self._requests.send(
            endpoint,
            Lane.COORDINATOR,
            request,
            then,
            min_version=self._version,
            max_version=self._version,
            timeout_ms=patience_ms(self._requests.request_timeout_ms, self._interval_ms, self._session_ms),
            wake=self._host.wake_member,
        )
        self._in_flight, self._asked = (*self._in_flight, token), endpoint
        self._listing += (token,) if lists_owned else ()

    def _regex(self) -> str | None:
        # An empty text removes an earlier pattern; `None` would keep it.
        return "" if self.pattern is None and self._has_said_pattern else self.pattern

    def _list(self) -> list[heartbeat.TopicPartitions]:
        """List the partitions that no other member may get: the owned and the assigned ones."""
        # The coordinator assigns the other partitions to other members, so the list has to stay true until its
        # response. The application may just begin the callback for newly assigned partitions. Partitions of a topic
        # whose name is unknown are added later.
        wanted = self.callbacks.open
        given = wanted.partitions if wanted is not None and wanted.kind is CallbackKind.ASSIGNED else ()
        listed = {topic_id: set(partitions) for topic_id, partitions in (self._target or {}).items()}
        for topic, partition in (*self.owned, *given):
            listed.setdefault(self._ids[topic], set()).add(partition)
        return [heartbeat.TopicPartitions(topic_id=each, partitions=sorted(listed[each])) for each in sorted(listed)]

    def _on_overtaken(self, answer: Answer, sent_ms: int, *, was_full: bool) -> None:
        """Record the response to an overtaken heartbeat; the member acts only on the later response."""
        response = message_of(answer, heartbeat.ConsumerGroupHeartbeatResponse)
        if response is None or response.error_code:
            # The content of the heartbeat may be lost. The next one fails in the same way, or has succeeded meanwhile.
            self._is_full = True
        else:
            self._note(response, sent_ms, was_full=was_full)

    def _on_answer(
        self,
        answer: Answer,
        response: heartbeat.ConsumerGroupHeartbeatResponse | None,
        endpoint: Endpoint,
        now_ms: int,
        beat: _AnsweredHeartbeat,
    ) -> None:
        if response is None:
            assert isinstance(answer, RequestFailed)
            self._on_failure(answer, endpoint, now_ms)
            return
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            self._on_error(code, response.error_message, endpoint, beat.sent_ms, now_ms)
            return
        self._note(response, beat.sent_ms, was_full=beat.was_full)
        is_kohort = isinstance(answer, ResponseReceived) and answer.is_kohort
        if is_kohort and not self._lookup.updates.is_heard:
            self._lookup.updates.begin()
        elif not is_kohort and self._settings.local_assignors:
            self._send_leave(None, now_ms)
            self._refuse(ErrorCode.UNSUPPORTED_VERSION, NOT_OFFERED, now_ms)
            return
        if not self._follow(now_ms) and not (self._has_word or self._is_full):
            # With an assignment the broker has responded for that reason, not because of the request behind.
            is_cut = beat.is_cut and response.assignment is None
            due_ms = self._schedule.next_ms(
                beat.sent_ms, self._interval_ms, now_ms, is_cut=is_cut, former_ms=beat.interval_ms
            )
            # A member that has received others' metadata sends the next heartbeat at once, so that the broker can
            # respond with the next changes. So does a member that has joined without partitions: the response to a
            # delayed heartbeat has its assignment.
            is_waiting = is_kohort and beat.was_full and not self._latest and not response.should_compute_assignment
            # After a renewed grant the next heartbeat is sent at once as well, so that the broker can delay it again.
            is_renewed = response.grant is not None and response.assignment is None
            self._due_ms = now_ms if is_waiting or is_renewed or response.metadata_news is not None else due_ms

    def _follow(self, now_ms: int) -> bool:
        """Use the latest assignment as the target; return whether to list the owned partitions at once."""
        self._target = self._latest
        if self.state is MemberState.JOINING or self.state in _AT_REST:
            self._reconcile(now_ms)
        if not self._is_owed or self.state is not MemberState.STABLE:
            return False
        # There is nothing to revoke and nothing to add. Partitions may have been assigned and revoked by the
        # coordinator before the member added them.
        self._has_news, self._due_ms = True, now_ms
        return True

    def _reconcile(self, now_ms: int) -> None:
        """Compare the target assignment with the owned partitions: revoke the surplus, then add the new ones."""
        self._seen_generation = self._cluster.generation
        if self._target is None:
            return
        # A refused partition is revoked before it is added again.
        surplus = self._fenced & self.owned
        for each in self.owned:
            # Compared by the topic id of its assignment: the name may belong to a newer topic, or to none, by now.
            if each.partition not in self._target.get(self._ids[each.topic], ()):
                surplus.add(each)
        if surplus:
            self._begin_revocation(surplus, now_ms)
            return
        gained: set[TopicPartition] = set()
        for topic_id, partitions in self._target.items():
            name = self._cluster.topic_name(topic_id)
            if name is None:
                # The target assignment is kept whole and compared again with new metadata. So partitions of a topic
                # whose name is unknown are added later, and never lost (KAFKA-16198).
                self._cluster.refresh_soon(now_ms)
                continue
            new = set(map(partial(TopicPartition, name), partitions)) - self.owned
            if new:
                self._ids[name] = topic_id
                gained |= new
        if gained or self.state is not MemberState.STABLE:
            self._gain(gained, now_ms)
        self._has_assignment = True

    def _note(self, response: heartbeat.ConsumerGroupHeartbeatResponse, sent_ms: int, *, was_full: bool) -> None:
        """Take epoch, intervals, assignment and grant from a successful response."""
        said = self.epoch, self._latest, self._is_full, self._lookup.updates.grants
        self._attempts = 0
        self._held_since_ms = None
        self._lookup.works()
        self._is_full = self._is_full and not was_full
        self._on_heard(sent_ms)
        # An update outside of heartbeats may have had a later epoch.
        self.epoch = max(response.member_epoch, self.epoch)
        self.member_id = response.member_id or self.member_id
        if response.session_timeout_ms != self._told_session_ms:
            self._told_session_ms = max(response.session_timeout_ms, 0)
            self._silence_ms = silence_ms(self._session_ms)
        session_ms = self._session_ms
        longest_ms = min(session_ms, self._lease_ms or session_ms)
        self._interval_ms = longest_interval_ms(response.heartbeat_interval_ms, longest_ms)
        self._beat_ms = max(sent_ms, self._beat_ms)
        self._counts_fetches = response.counts_fetches
        is_told = bool(self._settings.local_assignors) or response.client_assignment is not None
        if self._asked is not None and is_told:
            self._computing.on_told(response, self._asked, (self.member_id, self.epoch))
        if response.assignment is not None and self._lookup.updates.takes(response.number):
            # The coordinator waits for the list of owned partitions even if the assignment has not changed.
            self._is_owed = self._is_owed or self.state is not MemberState.JOINING
            self._take(response.assignment, response.rebalance_reason)
        if response.grant is not None or self._leased_until_ms == 0:
            self._take_grant(response.grant, sent_ms)
        elif self._leased_until_ms is not None and response.assignment is not None:
            self._take_grant(None, sent_ms)
        if said != (self.epoch, self._latest, self._is_full, self._lookup.updates.grants):
            self._host.wake_fetches()

    def _take(self, assignment: heartbeat.Assignment, reason: str | None) -> None:
        """Take an assignment from a heartbeat response, or from an update outside of heartbeats."""
        if self._after_leave is None:
            why = f" ({reason})" if reason else ""
            self._why = f"the coordinator's assignment at member epoch {self.epoch}{why}"
        rows = assignment.topic_partitions
        told = {TopicId(each.topic_id): tuple(each.partitions) for each in rows if each.partitions}
        self._is_owed = self._is_owed or told != self._latest
        self._latest, self._is_cut_down = told, False

    # -- failed and refused heartbeats --------------------------------------------------------------------------------

    def _on_failure(self, answer: RequestFailed, endpoint: Endpoint, now_ms: int) -> None:
        if answer.failure is Failure.UNSUPPORTED and self.state is MemberState.JOINING:
            # Version 0 of ConsumerGroupHeartbeat has no patterns, so only a list of topics can use it.
            if self._version > 0 and self.pattern is None:
                self._version = 0
                self._due_ms = now_ms
            else:
                missing = "patterns" if self.pattern is not None else "it"
                self._host.fall_back_to_classic(f"the broker does not know {missing}", now_ms)
            return
        self._lookup.lost(endpoint, now_ms)
        self._retry_all(now_ms)

    def _on_error(self, code: ErrorCode, message: str | None, endpoint: Endpoint, sent_ms: int, now_ms: int) -> None:
        is_joining = self.state is MemberState.JOINING
        if self._host.publishing.take_refusal():
            self._retry_all(now_ms)
        elif code in MOVED:
            self._lookup.lost(endpoint, now_ms)
            self._retry_all(now_ms)
        elif code in BUSY or code in _TROUBLED:
            if code in _TROUBLED:
                # The response does not name the refused topic.
                only = self.topics[0] if len(self.topics) == 1 else ""
                during = f"heartbeating in group {self.group_id}"
                error = refused(code, message, during=during, operation="read", name=only)
                self._host.on_trouble(error, is_fatal=False)
            elif code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # After loading, a coordinator gives its members a whole session.
                self._on_heard(sent_ms)
            self._retry_all(now_ms)
        elif code is ErrorCode.UNSUPPORTED_VERSION and is_joining:
            self._host.fall_back_to_classic(message or "the broker does not offer the consumer protocol", now_ms)
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID and is_joining and self._may_be_released(now_ms):
            self._retry_all(now_ms)
        elif code in FENCED and not is_joining:
            self._lose(explain_fence(code, message), now_ms)
        elif code in FENCED and code is not ErrorCode.GROUP_ID_NOT_FOUND:
            # Epoch 0 joins in any case, so a fenced join can only be temporary.
            self._retry_all(now_ms)
        else:
            self._refuse(code, message, now_ms)

    def _may_be_released(self, now_ms: int) -> bool:
        """Return whether to wait for a `group.instance.id` that another member uses; warn the first time."""
        # KIP-345: the instance id of a killed process is in use until its session ends.
        options = self._settings.options
        session_ms = options["session_timeout_ms"]
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
            self._requests.warn(
                f"{options['group_instance_id']} of group {self.group_id} is held by another member; this one "
                f"joins when it is released, or gives up after session.timeout.ms, {session_ms}"
            )
        return now_ms < self._held_since_ms + session_ms + _RELEASE_MARGIN_MS

    def _retry_all(self, now_ms: int) -> None:
        """Send a full heartbeat after a pause that grows with each failure."""
        # The coordinator may not have received an earlier field.
        self._is_full = True
        self._due_ms = now_ms + self._requests.retry.delay_ms(self._attempts)
        self._attempts += 1

    # -- beside heartbeats: see `coordinator_lookup` ----------------------------------------------------------------

    def say(self) -> KnownMembership | None:
        if self.epoch <= 0 or self.state not in ACTIVE or self._is_full:
            return None
        return self._lookup.updates.build_word(self.group_id, self.member_id, self.epoch, self._latest)

    def has_list_to_say(self) -> bool:
        return bool(self._listing) or self._has_word or self._is_full

    def take_news(self, news: MembershipUpdate, sent_ms: int, now_ms: int) -> None:
        if self.epoch <= 0 or self.state not in ACTIVE or news.member_id != self.member_id:
            return
        if news.assignment is not None and news.member_epoch < self.epoch:
            # The update is older than the member's last join.
            return
        if news.assignment is not None:
            self._requests.wake_all()
            self.epoch = max(news.member_epoch, self.epoch)
            self._take(news.assignment, news.rebalance_reason)
        self._host.wake_member()
        self._host.wake_fetches()
        self._take_grant(news.grant, sent_ms)
        if news.assignment is not None:
            self._follow(now_ms)

    def take_refusal(self, news: MembershipUpdate, lane: Lane, now_ms: int) -> None:
        if news.member_id == self.member_id:
            self.on_refused(ErrorCode.of(news.error_code), news.member_epoch, lane, now_ms)

    def on_counted(self, sent_ms: int) -> None:
        if not self._counts_fetches or self.epoch <= 0 or self.state is not MemberState.STABLE:
            return
        # The coordinator has recorded a fetch at most one step ago. The application's thread is notified as often.
        step_ms = (self._told_session_ms or self._session_ms) // _COUNTS_PER_SESSION
        if sent_ms - step_ms >= self._heard_ms + step_ms:
            self._heard_ms = sent_ms - step_ms
            self._host.wake_member()

    def _counted_until_ms(self) -> int:
        """Return the time until which the fetches of the member replace heartbeats, ms; 0: they do not."""
        is_settled = self.state is MemberState.STABLE and self._doubt is None and not self._is_owed
        says_more = self._has_word or self._is_full or bool(self._settings.local_assignors)
        if self._in_flight or not is_settled or says_more or self._host.publishing.is_used:
            return 0
        updates = self._lookup.updates
        if updates.grant is None:
            known_until_ms = self._beat_ms + self._session_ms // _BEATS_BESIDE_FETCHES
        else:
            # Only the coordinator renews the grant, after a third of its lease, in the response to the next fetch.
            since_ms, until_ms = updates.grant.since_ms, updates.grant.until_ms
            known_until_ms = since_ms + (until_ms - since_ms) * 2 // 3
        # The coordinator may not have counted a fetch within a quarter of an interval after another.
        return min(updates.fetched_ms + self._interval_ms * 3 // 4, known_until_ms)

    # -- grants, and leaders that refuse ----------------------------------------------------------------------------

    def _take_grant(self, told: heartbeat.OwnershipGrant | None, sent_ms: int) -> None:
        """Take the grant in the response to a request that was sent at `sent_ms`; `None`: it had none."""
        updates = self._lookup.updates
        was_lapsed = updates.is_lapsed
        held = updates.grant
        if told is not None and told.lease_ms > 0:
            # If the token is known, `lease_ms` is only the rest of its lease.
            is_known = held is not None and held.token == told.token
            self._lease_ms = max(told.lease_ms, self._lease_ms) if is_known else told.lease_ms
            until_ms = sent_ms + silence_ms(told.lease_ms)
            updates.hold(told, self._latest, epoch=self.epoch, since_ms=sent_ms, until_ms=until_ms)
            self._interval_ms = longest_interval_ms(self._interval_ms, self._lease_ms)
        elif held is not None and self._is_void(held, sent_ms):
            updates.drop()
            self._lease_ms = 0
        if not updates.is_lapsed:
            self._leased_until_ms = None if updates.grant is None else updates.grant.until_ms
        if was_lapsed and not updates.is_lapsed:
            self._requests.wake_all()

    def _is_void(self, held: HeldGrant, sent_ms: int) -> bool:
        """Return whether a response without a grant, to a request of `sent_ms`, ends the present grant."""
        if self._leased_until_ms == 0 and sent_ms >= held.until_ms:
            # A member whose lease has ended gets a new grant, unless ownership is not enforced any more.
            return True
        # A member with a new assignment gets one as well, unless no token can have so many partitions.
        return any(not held.partitions.get(each, _NONE).issuperset(found) for each, found in self._latest.items())

    def _lapse(self, now_ms: int) -> None:
        """Stop fetching and returning records after the end of the lease, and request a new grant."""
        self._lookup.updates.is_lapsed = True
        self._leased_until_ms = 0
        self._is_full = self._has_news = True
        self._due_ms = now_ms
        self._requests.wake_all()

    def on_fenced(self, partitions: Sequence[TopicPartition], now_ms: int) -> bool:
        if self.state not in ACTIVE or self.epoch <= 0:
            return True
        leased_ms = self._leased_until_ms
        if leased_ms is not None and leased_ms <= now_ms:
            # The lease has ended, so fetches are refused. The partitions may still belong to the member.
            if leased_ms:
                self._lapse(now_ms)
            return True
        opened = self.callbacks.open
        found = self.owned.intersection(partitions) - self._fenced
        if opened is not None and opened.kind is CallbackKind.REVOKED:
            found -= set(opened.partitions)
        if not found:
            return True
        self._requests.wake_all()
        self._fenced |= found
        self._requests.deliver(ReadsRefused(partitions=tuple(sorted(found))))
        self._host.pause_reading(sorted(found))
        # Only the next assignment can add them again.
        self._latest, self._is_cut_down = self._without(self._latest, found), True
        self._target = None if self._target is None else self._without(self._target, found)
        self._has_news, self._due_ms = True, now_ms
        # The coordinator is expected to send the same change with its reason.
        self._fenced_due_ms = now_ms + _NEWS_MS
        if self._after_leave is None:
            self._why = "their leader refuses to let this member read: the coordinator gives them to others"
        return True

    def _give_up_fenced(self, now_ms: int) -> None:
        """Revoke refused partitions although the coordinator has not responded."""
        if self.state in _AT_REST:
            self._reconcile(now_ms)

    def _without(
        self, assigned: Mapping[TopicId, tuple[int, ...]], gone: set[TopicPartition]
    ) -> Mapping[TopicId, tuple[int, ...]]:
        """Return an assignment without the partitions `gone`."""
        ids = {(self._ids[topic], partition) for topic, partition in gone}
        left = {
            topic_id: tuple(each for each in partitions if (topic_id, each) not in ids)
            for topic_id, partitions in assigned.items()
        }
        return {topic_id: partitions for topic_id, partitions in left.items() if partitions}

    def _released(self, partitions: set[TopicPartition]) -> list[heartbeat.TopicPartitions] | None:
        if not self._lookup.updates.is_on or self._after_leave is not None:
            return None
        listed: dict[TopicId, list[int]] = {}
        for topic, partition in sorted(partitions):
            # The coordinator may have assigned the partition again meanwhile.
            if partition not in self._latest.get(self._ids[topic], ()):
                listed.setdefault(self._ids[topic], []).append(partition)
        return [heartbeat.TopicPartitions(topic_id=each, partitions=listed[each]) for each in sorted(listed)] or None

    @property
    def interval_ms(self) -> int:
        return self._interval_ms

    def _ask_whether_known(self, lane: Lane, now_ms: int) -> int:
        self._is_full, self._due_ms = True, now_ms
        endpoint, epoch = self._lookup.endpoint, self.epoch
        if endpoint is None:
            return self._interval_ms
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._settings.options["group_instance_id"],
        )

        def then(answer: Answer, answered_ms: int) -> None:
            response = message_of(answer, heartbeat.ConsumerGroupHeartbeatResponse)
            if response is None or self._doubt is None or self.epoch != epoch:
                return
            code = ErrorCode.of(response.error_code)
            if code in FENCED:
                self._lose(explain_fence(code, response.error_message), answered_ms)
            elif code is ErrorCode.NONE:
                self._on_heard(now_ms)

        # This heartbeat lists no partitions, so it does no harm if it arrives late. The next one is a full one.
        self._requests.send(
            endpoint,
            lane,
            request,
            then,
            min_version=self._version,
            max_version=self._version,
            timeout_ms=self._interval_ms,
        )
        return self._interval_ms

    def _send_leave(self, then: Later | None, now_ms: int) -> None:
        endpoint = self._lookup.endpoint
        # A join in flight may succeed, so the leave request is sent in that case as well.
        is_known = self.epoch > 0 or bool(self._in_flight)
        name = self._settings.options["group_instance_id"]
        # A dynamic member that is to stay in the group sends no leave request.
        is_said = name is not None or self.goes_for_good is not False
        if endpoint is None or not is_said or not is_known:
            if then is not None:
                then(now_ms)
            return
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=name,
            member_epoch=_LEAVE if name is None or self.goes_for_good is True else _LEAVE_FOR_A_WHILE,
        )

        def answered(_: Answer, now_ms: int) -> None:
            if then is not None:
                then(now_ms)

        self._requests.send(endpoint, Lane.COORDINATOR, request, answered, max_version=self._version)
