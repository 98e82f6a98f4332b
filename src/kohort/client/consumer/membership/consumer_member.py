"""A member by KIP-848: the coordinator decides, each heartbeat carries one step.

Laws: after any failure the next heartbeat is a full one. A refused heartbeat prolongs no session. A failure that may
pass is tried again after growing pauses; one that cannot pass ends the membership with its reason. The assignment of
an overtaken answer counts only with the answer behind it. A partition that its leader refuses is given up like one that
the coordinator takes back, and comes back with the next assignment. No fetch stands for a heartbeat that has to say
something, nor for longer than the coordinator is known to count it.
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

#: The coordinator does not know this member (any more): the member joins again with epoch 0.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
#: Epochs that leave: for good, and for a while, so that the partitions wait for a static member's return.
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
_NONE: Final[frozenset[int]] = frozenset()
_FENCED: Final = int(ErrorCode.FENCED_MEMBER_EPOCH)
#: Added to the session timeout before a member gives its `group.instance.id` up, which another one holds.
_RELEASE_MARGIN_MS: Final = 5_000
#: States in which a member may begin to give partitions up.
_AT_REST: Final = (MemberState.STABLE, MemberState.PREPARING_REBALANCE)
#: A leader refuses reads a moment before the coordinator says why.
_NEWS_MS: Final = 100
#: Without grants, which show that it counts fetches, the coordinator hears of the member so often in a session.
_BEATS_BESIDE_FETCHES: Final = 3
#: A coordinator that counts fetches notes them four times in an interval, of which there are three in a session.
_COUNTS_PER_SESSION: Final = 12
#: Refusals that may pass without the member changing anything.
_TROUBLED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def explain_fence(code: ErrorCode, message: str | None) -> str:
    """Say why the coordinator has fenced the member."""
    return f"{code.name}{f': {message}' if message else ''}"


class _AnsweredHeartbeat(NamedTuple):
    """An answered heartbeat: time of sending, interval by then (0: none yet), whether cut, whether full."""

    sent_ms: int
    interval_ms: int
    is_cut: bool
    was_full: bool


class ConsumerMember(Member):
    """A member by ConsumerGroupHeartbeat."""

    is_classic = False
    #: topic id -> partitions of the target assignment; `None` before the first one.
    _target: Mapping[TopicId, tuple[int, ...]] | None = None
    #: topic -> id by which its partitions were assigned.
    _ids: dict[str, TopicId]
    #: Generation of the cluster's metadata with which the target was last compared.
    _seen_generation: int = -1
    #: Whether the next heartbeat names every field; so until a full one has been answered well.
    _is_full: bool = True
    #: When the next heartbeat is due.
    _due_ms: int = 0
    _version: int = 1
    _attempts: int = 0
    #: When the `group.instance.id` was first found held by another member; `None` while it is not.
    _held_since_ms: int | None = None
    _interval_ms: int = 0
    #: The group's session timeout as the coordinator says it, milliseconds; 0: it has not said.
    _told_session_ms: int = 0
    #: The lease of grants as it was told last, milliseconds; 0: no grant has come.
    _lease_ms: int = 0
    #: Whether the coordinator takes fetches of a settled member for heartbeats.
    _counts_fetches: bool = False
    #: When refused partitions are given up without a word of the coordinator.
    _fenced_due_ms: int = 0
    #: Whether refused partitions are left out of an assignment that the coordinator has told with them.
    _is_cut_down: bool = False
    #: When the heartbeat was sent that was answered well last.
    _beat_ms: int = 0
    #: Tokens of the heartbeats under way, oldest first, two at the most.
    _in_flight: tuple[int, ...] = ()
    #: The broker that these heartbeats were sent to.
    _asked: Endpoint | None = None
    #: The latest assignment; it becomes the target once no overtaken answer is awaited.
    _latest: Mapping[TopicId, tuple[int, ...]]
    #: The latest assignment was new, and no list of owned partitions has followed: the coordinator waits for one, and
    #: removes members that do not send it.
    _is_owed: bool = False
    #: The next heartbeat lists the owned partitions, and goes out at once.
    _has_news: bool = False
    #: The next heartbeat names the subscription.
    _has_new_topics: bool = False
    #: The coordinator may know a pattern that the subscription no longer has.
    _has_said_pattern: bool = False
    #: Tokens of the heartbeats under way that list the owned partitions.
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
        """Whether the next heartbeat has news for the coordinator."""
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
        """Give up a silent coordinator; reconcile with the target if the topics have changed."""
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
        """Send the heartbeat that is due, and the assignment that the application has computed."""
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
        """Return when the next heartbeat or a time limit is due."""
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
        """Have the group's assignment computed anew if members compute it; take a computed assignment."""
        if isinstance(word, ComputationDone):
            self._computing.on_computed(word, now_ms)
        elif self._settings.local_assignors:
            self._computing.describe(word.metadata, is_wanted=True)
            self._due_ms = now_ms
        else:
            # The coordinator alone decides when to assign anew, as for Kafka's own consumer.
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
        """Return when the next heartbeat goes out; `None`: none may, before an event."""
        # A heartbeat has to carry metadata or ask for them. A full one, and one that joins, carry them anyway.
        publishes_ms = None if self.epoch <= 0 or self._is_full else self._host.publishing.due_ms
        if self._in_flight:
            # One without news waits for the answer to the one before, which a broker may hold.
            # One with news may overtake one that is held. By another connection its answer might come before that of
            # the one that it overtakes.
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
        # To the coordinator the member may have all of it still, and only a full heartbeat is told so again.
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
        # The overtaken one may bring a new epoch: by the old one only heartbeats that list what is owned are taken.
        lists_owned = is_full or self._has_news or bool(self._in_flight)
        said = self._host.publishing.say(now_ms, is_full=is_full)
        self._is_owed = self._is_owed and not (lists_owned and self._target == self._latest)
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            # Before version 1 the coordinator makes the id, and knows none when the member joins.
            member_id="" if self._version == 0 and self.epoch == 0 else self.member_id,
            member_epoch=self.epoch,
            # With every heartbeat: one without it would be a dynamic member's.
            instance_id=self._settings.options["group_instance_id"],
            rack_id=(self._settings.options["client_rack"] or None) if is_full else None,
            rebalance_timeout_ms=self._settings.options["max_poll_interval_ms"] if is_full else -1,
            subscribed_topic_names=list(self.topics) if says_topics else None,
            subscribed_topic_regex=self._regex() if says_topics else None,
            server_assignor=self._settings.options["group_remote_assignor"] if is_full else None,
            topic_partitions=self._list() if lists_owned else None,
            # With every heartbeat, for the coordinator does not remember it; others skip the tagged field.
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
                # It has heard of a newer epoch since: that one counts.
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
        # An empty text takes an earlier pattern back; `None` would leave it.
        return "" if self.pattern is None and self._has_said_pattern else self.pattern

    def _list(self) -> list[heartbeat.TopicPartitions]:
        """List the partitions that no other member may get: the owned and the assigned ones."""
        # The list stays true until its answer, for the coordinator gives the rest to other members. The application may
        # be on its way into the callback for the partitions that it is just being given. Partitions of a topic without
        # a known name will be taken later.
        wanted = self.callbacks.open
        given = wanted.partitions if wanted is not None and wanted.kind is CallbackKind.ASSIGNED else ()
        listed = {topic_id: set(partitions) for topic_id, partitions in (self._target or {}).items()}
        for topic, partition in (*self.owned, *given):
            listed.setdefault(self._ids[topic], set()).add(partition)
        return [heartbeat.TopicPartitions(topic_id=each, partitions=sorted(listed[each])) for each in sorted(listed)]

    def _on_overtaken(self, answer: Answer, sent_ms: int, *, was_full: bool) -> None:
        """Read an answer that another heartbeat has overtaken; only the later answer is acted on."""
        response = message_of(answer, heartbeat.ConsumerGroupHeartbeatResponse)
        if response is None or response.error_code:
            # Its content may be lost. The heartbeat behind it meets the same failure, or is right by now.
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
            # An answer with an assignment has ended its hold by itself, not because of the request behind it.
            is_cut = beat.is_cut and response.assignment is None
            due_ms = self._schedule.next_ms(
                beat.sent_ms, self._interval_ms, now_ms, is_cut=is_cut, former_ms=beat.interval_ms
            )
            # A member that was told others' metadata heartbeats again at once, so that the broker can tell it the next
            # ones. So does a member that has joined without partitions: only a held heartbeat brings it its assignment.
            is_waiting = is_kohort and beat.was_full and not self._latest and not response.should_compute_assignment
            # A grant that is due is not held back either, and the heartbeat behind it may be held again.
            is_renewed = response.grant is not None and response.assignment is None
            self._due_ms = now_ms if is_waiting or is_renewed or response.metadata_news is not None else due_ms

    def _follow(self, now_ms: int) -> bool:
        """Go for the latest assignment; return whether to list the owned partitions at once."""
        self._target = self._latest
        if self.state is MemberState.JOINING or self.state in _AT_REST:
            self._reconcile(now_ms)
        if not self._is_owed or self.state is not MemberState.STABLE:
            return False
        # Nothing to take, nothing to give up. Perhaps partitions were assigned and are wanted back, and were never
        # taken.
        self._has_news, self._due_ms = True, now_ms
        return True

    def _reconcile(self, now_ms: int) -> None:
        """Compare the target with the owned partitions: first give up the surplus, then take the rest."""
        self._seen_generation = self._cluster.generation
        if self._target is None:
            return
        # A refused partition is given up before it is taken again.
        surplus = self._fenced & self.owned
        for each in self.owned:
            # By the id under which it was given: the name may belong to a younger topic, or to none, by now.
            if each.partition not in self._target.get(self._ids[each.topic], ()):
                surplus.add(each)
        if surplus:
            self._begin_revocation(surplus, now_ms)
            return
        gained: set[TopicPartition] = set()
        for topic_id, partitions in self._target.items():
            name = self._cluster.topic_name(topic_id)
            if name is None:
                # The target is kept whole and compared again with new metadata, so that a topic whose name is not known
                # yet is taken later and never forgotten (KAFKA-16198).
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
        """Take epoch, intervals and assignment from a good answer."""
        said = self.epoch, self._latest, self._is_full, self._lookup.updates.grants
        self._attempts = 0
        self._held_since_ms = None
        self._lookup.works()
        self._is_full = self._is_full and not was_full
        self._on_heard(sent_ms)
        # News beside heartbeats may have brought a later epoch already.
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
            # The coordinator waits for the list of owned partitions even if a heartbeat's answer assigns what the
            # member has.
            self._is_owed = self._is_owed or self.state is not MemberState.JOINING
            self._take(response.assignment, response.rebalance_reason)
        if response.grant is not None or self._leased_until_ms == 0:
            self._take_grant(response.grant, sent_ms)
        elif self._leased_until_ms is not None and response.assignment is not None:
            self._take_grant(None, sent_ms)
        if said != (self.epoch, self._latest, self._is_full, self._lookup.updates.grants):
            self._host.wake_fetches()

    def _take(self, assignment: heartbeat.Assignment, reason: str | None) -> None:
        """Take an assignment, from a heartbeat's answer or from news beside heartbeats."""
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
            # Version 0 of ConsumerGroupHeartbeat has no patterns, so only a list of topics can step down to it.
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
                # The broker does not say which of several topics it refuses.
                only = self.topics[0] if len(self.topics) == 1 else ""
                during = f"heartbeating in group {self.group_id}"
                error = refused(code, message, during=during, operation="read", name=only)
                self._host.on_trouble(error, is_fatal=False)
            elif code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # A loaded coordinator gives its members a whole session from the end of the loading on.
                self._on_heard(sent_ms)
            self._retry_all(now_ms)
        elif code is ErrorCode.UNSUPPORTED_VERSION and is_joining:
            self._host.fall_back_to_classic(message or "the broker does not offer the consumer protocol", now_ms)
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID and is_joining and self._may_be_released(now_ms):
            self._retry_all(now_ms)
        elif code in FENCED and not is_joining:
            self._lose(explain_fence(code, message), now_ms)
        elif code in FENCED and code is not ErrorCode.GROUP_ID_NOT_FOUND:
            # Epoch 0 joins whatever was before. The coordinator may know so after one pause.
            self._retry_all(now_ms)
        else:
            self._refuse(code, message, now_ms)

    def _may_be_released(self, now_ms: int) -> bool:
        """Return whether to wait on for a `group.instance.id` that another member holds; warn at the first time."""
        # KIP-345: a process that was killed holds its name until its session ends.
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
        # The coordinator may have missed any earlier field.
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
            # Of before the member joined anew.
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
        # The coordinator has noted the latest of them that long ago at most. The application's side is told as often.
        step_ms = (self._told_session_ms or self._session_ms) // _COUNTS_PER_SESSION
        if sent_ms - step_ms >= self._heard_ms + step_ms:
            self._heard_ms = sent_ms - step_ms
            self._host.wake_member()

    def _counted_until_ms(self) -> int:
        """Return until when the fetches that named the member stand for heartbeats; 0: they do not."""
        is_settled = self.state is MemberState.STABLE and self._doubt is None and not self._is_owed
        says_more = self._has_word or self._is_full or bool(self._settings.local_assignors)
        if self._in_flight or not is_settled or says_more or self._host.publishing.is_used:
            return 0
        updates = self._lookup.updates
        if updates.grant is None:
            known_until_ms = self._beat_ms + self._session_ms // _BEATS_BESIDE_FETCHES
        else:
            # The coordinator alone renews it, after a third of its lease, with the next fetch that ends.
            since_ms, until_ms = updates.grant.since_ms, updates.grant.until_ms
            known_until_ms = since_ms + (until_ms - since_ms) * 2 // 3
        # The coordinator may not have counted one that came within a quarter of an interval after another.
        return min(updates.fetched_ms + self._interval_ms * 3 // 4, known_until_ms)

    # -- grants, and leaders that refuse ----------------------------------------------------------------------------

    def _take_grant(self, told: heartbeat.OwnershipGrant | None, sent_ms: int) -> None:
        """Take the grant that came with an answer to a request of `sent_ms`."""
        updates = self._lookup.updates
        was_lapsed = updates.is_lapsed
        held = updates.grant
        if told is not None and told.lease_ms > 0:
            # Of one that was told before a part of the lease is over.
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
        """Return whether an answer without a grant, to a request of `sent_ms`, ends the one that the member has."""
        if self._leased_until_ms == 0 and sent_ms >= held.until_ms:
            # A member whose lease is over is given a grant, unless nothing is enforced any more.
            return True
        # So is one whose assignment is new, unless no token can name so many partitions.
        return any(not held.partitions.get(each, _NONE).issuperset(found) for each, found in self._latest.items())

    def _lapse(self, now_ms: int) -> None:
        """Fetch and hand out nothing until the grant is renewed, whose lease is over, and ask for that."""
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
            # That is why they are refused. Perhaps they still belong to the member.
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
        # Only the next assignment gives them again.
        self._latest, self._is_cut_down = self._without(self._latest, found), True
        self._target = None if self._target is None else self._without(self._target, found)
        self._has_news, self._due_ms = True, now_ms
        # The coordinator tells the same, and the reason.
        self._fenced_due_ms = now_ms + _NEWS_MS
        if self._after_leave is None:
            self._why = "their leader refuses to let this member read: the coordinator gives them to others"
        return True

    def _give_up_fenced(self, now_ms: int) -> None:
        """Give up refused partitions though the coordinator has not said anything."""
        if self.state in _AT_REST:
            self._reconcile(now_ms)

    def _without(
        self, assigned: Mapping[TopicId, tuple[int, ...]], gone: set[TopicPartition]
    ) -> Mapping[TopicId, tuple[int, ...]]:
        """Return an assignment but for some partitions."""
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
            # The coordinator may have assigned it anew meanwhile.
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

        # It lists no partitions, so it is harmless if it arrives late by either connection. The next one is a full one.
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
        # A join under way may succeed after all, so it is undone too.
        is_known = self.epoch > 0 or bool(self._in_flight)
        name = self._settings.options["group_instance_id"]
        # A member without a name that comes back sends no leave request.
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
