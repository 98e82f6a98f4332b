"""A member by KIP-848: the coordinator decides, each heartbeat carries one step.

Laws: the target is kept as the coordinator has sent it, whole. It is compared with the owned partitions whenever one of
the two changes, so a topic whose name is not known yet is taken later and never forgotten (KAFKA-16198). After any
failure the next heartbeat is a full one. A heartbeat without news waits for the answer to the one before, which a
broker may hold. A heartbeat with news overtakes that one, and so does the heartbeat that leaves. The list of owned
partitions in a heartbeat stays true until its answer, for the coordinator gives the rest to other members: so it names
every assigned partition, taken or not. The assignment of an overtaken answer counts only with the answer behind it.
Source: KIP-848; KIP-1082 (the client makes the member id); reactions to errors as in Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from kohort.client.actions import Endpoint, Lane
from kohort.client.application_events import CallbackKind, Subscribed, Word
from kohort.client.computations import ComputationDone
from kohort.client.events import RequestFailed, ResponseReceived
from kohort.client.membership import consumer_requests
from kohort.client.membership.computing import NOT_OFFERED, Computing
from kohort.client.membership.heartbeat_schedule import longest_interval_ms, patience_ms
from kohort.client.membership.host import Later
from kohort.client.membership.states import ACTIVE, MemberState
from kohort.client.membership.unanswered import FENCED, UnansweredMember, explain_fence
from kohort.client.requests import Answer, message_of
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.membership import MemberNews, MemberWord


class _Beat(NamedTuple):
    """An answered heartbeat: time of sending, interval by then (0: none yet), whether cut, whether full."""

    sent_ms: int
    interval_ms: int
    is_cut: bool
    was_full: bool


class ConsumerMember(UnansweredMember):
    """A member by ConsumerGroupHeartbeat."""

    is_classic = False
    _interval_ms: int = 0
    #: The group's session timeout as the coordinator says it, milliseconds; 0: it has not said.
    _told_session_ms: int = 0
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
    def _computing(self) -> Computing:
        return Computing(
            self._requests,
            self._lookup,
            self._settings.local_assignors,
            group_id=self.group_id,
            timeout_ms=self._settings.options["max_poll_interval_ms"],
            retry=self._retry,
            on_begun=self._hurry,
        )

    def _hurry(self, now_ms: int) -> None:
        self._due_ms = min(self._due_ms, now_ms)

    @property
    def _has_word(self) -> bool:
        """Whether the next heartbeat has news for the coordinator."""
        return self._has_news or self._has_new_topics or self._computing.has_news

    # -- heartbeats that are due ----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Give up a silent coordinator; reconcile with the target if the topics have changed."""
        self._check_application(now_ms)
        if self.state not in ACTIVE or self._give_up_silence(now_ms):
            return
        if self.state is MemberState.STABLE and self._seen_generation != self._cluster.generation:
            self._reconcile(now_ms)

    def speak(self, now_ms: int) -> None:
        """Send the heartbeat that is due, and the assignment that the application has computed."""
        if self.state not in ACTIVE:
            return
        self._computing.speak((self.member_id, self.epoch), now_ms)
        if now_ms >= self._next_ms and self._may_send():
            endpoint = self._lookup.need(now_ms)
            if endpoint is not None:
                self._heartbeat(endpoint, now_ms)

    def next_deadline(self) -> int | None:
        """Return when the next heartbeat or a time limit is due."""
        deadlines = [self._shared_deadline()]
        if self.state in ACTIVE:
            deadlines.append(self._computing.next_deadline())
            deadlines.append(self._given_up_ms())
            if self._lookup.endpoint is not None and self._may_send():
                deadlines.append(self._next_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

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
        """See `Member.subscribe`."""
        self._computing.describe(wanted.metadata, is_wanted=False)
        super().subscribe(wanted, now_ms)

    @property
    def _session_ms(self) -> int:
        return min(
            self._settings.options["session_timeout_ms"],
            self._told_session_ms or self._settings.options["session_timeout_ms"],
        )

    def _is_watched(self) -> bool:
        return self._has_epoch and self.state in ACTIVE

    @property
    def _has_epoch(self) -> bool:
        return self.epoch > 0

    def _may_send(self) -> bool:
        """Return whether a heartbeat may be sent now; one with news may overtake one that is held."""
        if self._in_flight:
            is_news = self.epoch > 0 and (self._has_word or self._publishes_ms is not None)
            # By another connection its answer might come before that of the one that it overtakes.
            return is_news and len(self._in_flight) == 1 and self._asked == self._lookup.endpoint
        return self.epoch > 0 or (self.state is MemberState.JOINING and not self._is_waiting_for_poll)

    @property
    def _publishes_ms(self) -> int | None:
        """When a heartbeat has to carry metadata or ask for them; `None`: no heartbeat only for that."""
        # A full heartbeat, and one that joins, carry the metadata anyway.
        return None if self.epoch <= 0 or self._is_full else self._host.publishing.due_ms

    @property
    def _next_ms(self) -> int:
        """The time at which the next heartbeat goes out, if it may."""
        publishes_ms = self._publishes_ms
        if publishes_ms is None or (self._in_flight and self._has_word):
            return self._due_ms
        return publishes_ms if self._in_flight else min(self._due_ms, publishes_ms)

    def _after_revocation(self, now_ms: int) -> None:
        self._has_news = True
        self._due_ms = now_ms

    def _after_assignment(self, now_ms: int) -> None:
        self._has_news = True
        self._due_ms = now_ms
        self._reconcile(now_ms)

    def _forget_membership(self) -> None:
        self.epoch = 0
        self._target = None
        self._latest, self._is_owed = {}, False
        self._ids = {}
        self._is_full = True
        self._has_news = False
        self._computing.forget()
        self._due_ms = self._told_session_ms = 0
        for token in self._in_flight:
            self._requests.forget(token)
        self._in_flight = self._listing = ()
        self._lookup.hearing.hearer = self

    # -- heartbeats -----------------------------------------------------------------------------------------------

    def _heartbeat(self, endpoint: Endpoint, now_ms: int) -> None:
        is_full, says_topics = self._is_full, self._is_full or self._has_new_topics
        # The overtaken one may bring a new epoch. By the old epoch a coordinator takes only heartbeats that list what
        # is owned.
        lists_owned = is_full or self._has_news or bool(self._in_flight)
        said = self._host.publishing.say(now_ms, is_full=is_full)
        self._is_owed = self._is_owed and not (lists_owned and self._target == self._latest)
        request = ConsumerGroupHeartbeatRequest(
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
            wants_numbers=self._lookup.hearing.is_on,
            metadata=said.metadata,
            watched_version=said.watched_version,
            client_assignors=self._computing.take_words(is_full=is_full),
        )
        epoch, interval_ms = self.epoch, self._interval_ms
        self._has_news = self._has_new_topics = False
        self._has_said_pattern = self._has_said_pattern or self.pattern is not None

        def then(answer: Answer, answered_ms: int) -> None:
            self._in_flight = tuple(each for each in self._in_flight if each != token)
            self._listing = tuple(each for each in self._listing if each != token)
            self._host.publishing.on_answer(said, answer)
            if self._in_flight:
                self._on_overtaken(answer, now_ms, was_full=is_full)
            elif 0 < epoch < self.epoch and consumer_requests.is_fenced(answer):
                # The member has heard of a newer epoch since this heartbeat was sent: that one counts.
                self._is_full, self._due_ms = True, answered_ms
            else:
                is_cut = self._requests.is_followed(endpoint, token)
                beat = _Beat(now_ms, interval_ms, is_cut, is_full)
                self._on_answer(answer, endpoint, answered_ms, beat)
            self._lookup.hearing.on_said(answered_ms)

        token = self._requests.send(
            endpoint,
            Lane.COORDINATOR,
            request,
            then,
            min_version=self._version,
            max_version=self._version,
            timeout_ms=patience_ms(self._requests.request_timeout_ms, self._interval_ms, self._session_ms),
        )
        self._in_flight, self._asked = (*self._in_flight, token), endpoint
        self._listing += (token,) if lists_owned else ()

    def _regex(self) -> str | None:
        # An empty text takes an earlier pattern back; `None` would leave it.
        return "" if self.pattern is None and self._has_said_pattern else self.pattern

    def _list(self) -> list[TopicPartitions]:
        """List the partitions that no other member may get: the owned and the assigned ones."""
        # The application may be on its way into the callback for the partitions that it is just being given. Partitions
        # of a topic without a known name will be taken later.
        wanted = self.callbacks.open
        given = wanted.partitions if wanted is not None and wanted.kind is CallbackKind.ASSIGNED else ()
        return consumer_requests.build_list(self._target or {}, (*self.owned, *given), self._ids)

    def _on_overtaken(self, answer: Answer, sent_ms: int, *, was_full: bool) -> None:
        """Read an answer that another heartbeat has overtaken; only the later answer is acted on."""
        response = message_of(answer, ConsumerGroupHeartbeatResponse)
        if response is None or response.error_code:
            # Its content may be lost. The heartbeat behind it meets the same failure, or is right by now.
            self._is_full = True
        else:
            self._note(response, sent_ms, was_full=was_full)

    def _on_answer(self, answer: Answer, endpoint: Endpoint, now_ms: int, beat: _Beat) -> None:
        response = message_of(answer, ConsumerGroupHeartbeatResponse)
        if response is None:
            assert isinstance(answer, RequestFailed)
            self._on_failure(answer, endpoint, now_ms)
            return
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(code, response.error_message, endpoint, beat.sent_ms, now_ms)
            return
        self._note(response, beat.sent_ms, was_full=beat.was_full)
        is_kohort = isinstance(answer, ResponseReceived) and answer.is_kohort
        if is_kohort:
            self._lookup.hearing.begin()
        elif self._settings.local_assignors:
            self._send_leave(None, now_ms)
            self._refuse(ErrorCode.UNSUPPORTED_VERSION, NOT_OFFERED, now_ms)
            return
        if not self._follow(now_ms) and not (self._has_word or self._is_full):
            # An answer with an assignment has ended its hold by itself, not because of the request behind it.
            is_cut = beat.is_cut and response.assignment is None
            due_ms = self._beats.next_ms(
                beat.sent_ms, self._interval_ms, now_ms, is_cut=is_cut, former_ms=beat.interval_ms
            )
            # A member that was told others' metadata heartbeats again at once, so that the broker can tell it the next
            # ones. So does a member that has joined without partitions: only a held heartbeat brings it its assignment.
            is_waiting = is_kohort and beat.was_full and not self._latest and not response.should_compute_assignment
            self._due_ms = now_ms if is_waiting or response.metadata_news is not None else due_ms

    def _follow(self, now_ms: int) -> bool:
        """Go for the latest assignment; return whether to list the owned partitions at once."""
        self._target = self._latest
        if self.state in (MemberState.JOINING, MemberState.PREPARING_REBALANCE, MemberState.STABLE):
            self._reconcile(now_ms)
        if not self._is_owed or self.state is not MemberState.STABLE:
            return False
        # Nothing to take, nothing to give up. Perhaps partitions were assigned and are wanted back, and were never
        # taken.
        self._has_news, self._due_ms = True, now_ms
        return True

    def _note(self, response: ConsumerGroupHeartbeatResponse, sent_ms: int, *, was_full: bool) -> None:
        """Take epoch, intervals and assignment from a good answer."""
        self._attempts = 0
        self._held_since_ms = None
        self._lookup.works()
        self._is_full = self._is_full and not was_full
        self._on_heard(sent_ms)
        # News beside heartbeats may have brought a later epoch already.
        self.epoch = max(response.member_epoch, self.epoch)
        self.member_id = response.member_id or self.member_id
        self._told_session_ms = max(response.session_timeout_ms, 0)
        self._interval_ms = longest_interval_ms(response.heartbeat_interval_ms, self._session_ms)
        if self._asked is not None:
            self._computing.on_told(response, self._asked, (self.member_id, self.epoch))
        if response.assignment is not None and self._lookup.hearing.takes(response.number):
            # The coordinator waits for the list of owned partitions even if a heartbeat's answer assigns what the
            # member has.
            self._is_owed = self._is_owed or self.state is not MemberState.JOINING
            self._take(response.assignment, response.rebalance_reason)

    def _take(self, assignment: Assignment, reason: str | None) -> None:
        """Take an assignment, from a heartbeat's answer or from news beside heartbeats."""
        if self._after_leave is None:
            why = f" ({reason})" if reason else ""
            self._why = f"the coordinator's assignment at member epoch {self.epoch}{why}"
        told = consumer_requests.read_assignment(assignment)
        self._is_owed = self._is_owed or told != self._latest
        self._latest = told

    # -- beside heartbeats: see `membership_updates` ----------------------------------------------------------------

    def say(self) -> MemberWord | None:
        """See `Hearer.say`."""
        if self.epoch <= 0 or self.state not in ACTIVE or self._is_full:
            return None
        return self._lookup.hearing.build_word(self.group_id, self.member_id, self.epoch, self._latest)

    def has_list_to_say(self) -> bool:
        """See `Hearer.has_list_to_say`."""
        return bool(self._listing) or self._has_word or self._is_full

    def take_news(self, news: MemberNews, now_ms: int) -> None:
        """See `Hearer.take_news`."""
        if self.epoch <= 0 or self.state not in ACTIVE or news.member_id != self.member_id:
            return
        if news.assignment is not None:
            self.epoch = max(news.member_epoch, self.epoch)
            self._take(news.assignment, news.rebalance_reason)
            self._follow(now_ms)

    def take_refusal(self, news: MemberNews, lane: Lane, now_ms: int) -> None:
        """See `Hearer.take_refusal`."""
        if news.member_id == self.member_id:
            self.on_refused(ErrorCode.of(news.error_code), news.member_epoch, lane, now_ms)

    def _ask_whether_known(self, lane: Lane, now_ms: int) -> int:
        self._is_full, self._due_ms = True, now_ms
        endpoint, epoch = self._lookup.endpoint, self.epoch
        if endpoint is None:
            return self._interval_ms
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._settings.options["group_instance_id"],
        )

        def then(answer: Answer, answered_ms: int) -> None:
            response = message_of(answer, ConsumerGroupHeartbeatResponse)
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
        request = consumer_requests.build_leave(self.group_id, self.member_id, name, self.goes_for_good)
        if endpoint is None or request is None or not is_known:
            if then is not None:
                then(now_ms)
            return

        def answered(_: Answer, now_ms: int) -> None:
            if then is not None:
                then(now_ms)

        self._requests.send(endpoint, Lane.COORDINATOR, request, answered, max_version=self._version)
