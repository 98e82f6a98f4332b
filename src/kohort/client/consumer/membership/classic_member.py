"""A member by the classic protocol, eager or cooperative.

Laws: an eager member revokes every partition before each rebalance, so its JoinGroup is sent only when it owns none. A
cooperative member's JoinGroup has the owned partitions. The member revokes those that the new assignment lacks, adds
the new ones, and joins again if it has revoked any. A response of an earlier generation changes nothing.
Source: Kafka's JoinGroup, SyncGroup, Heartbeat and LeaveGroup; KIP-394 (MEMBER_ID_REQUIRED), KIP-62; static members:
KIP-345, KIP-814; cooperative rebalancing: KIP-429; reasons: KIP-800; requirement H1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Final

from kohort.client.consumer.application_events import RebalanceEnforced, Word
from kohort.client.consumer.membership.member import Later, Member, longest_interval_ms, patience_ms
from kohort.client.consumer.membership.states import ACTIVE, MemberState, Step
from kohort.client.core.actions import Disconnect, Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import BUSY, MOVED
from kohort.client.core.requests import Answer, Failure, RequestFailed, message_of
from kohort.errors import ErrorCode, ProtocolError
from kohort.ids import TopicPartition, by_topic
from kohort.wire.embedded import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.client.consumer.membership.client_assignor import Assignment


#: The first versions of JoinGroup and LeaveGroup that support static members.
FIRST_STATIC: Final = 5
FIRST_LEAVE_BY_NAME: Final = 3
_PROTOCOL_TYPE: Final = "consumer"
#: Longest reason that brokers accept, characters (KIP-800).
_LONGEST_REASON: Final = 255
#: The response to JoinGroup is sent at the end of the rebalance: at most so long after max.poll.interval.ms.
_JOIN_MARGIN_MS = 5_000
#: The reason of a rebalance if the broker sends none, as Apache Kafka.
_ANY_REASON = "a member came, went, fell silent or changed its subscription"
_TIMEOUTS_REFUSED: Final = (
    "registration.timeout.ms and expansion.timeout.ms have to be within the broker's bounds: 100 ms to a day, "
    "unless it is set to others"
)
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class ClassicMember(Member):
    """A member by JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    is_classic = True
    _due_ms: int = 0
    #: Token of the JoinGroup, SyncGroup or Heartbeat in flight; `None`: none.
    _in_flight: int | None = None
    #: Whether that request is a Heartbeat.
    _is_beating: bool = False
    _protocol_name: str = ""
    #: The member's work as leader of the group.
    _leader: LeaderAssignment
    #: Whether to join again, because the group rebalances or the subscription has changed.
    _must_rejoin: bool = False
    #: The new assignment, while partitions have to be revoked first; `None` otherwise.
    _target: Set[TopicPartition] | None = None
    _attempts: int = 0
    _matched: PatternSubscription

    # -- requests that are due ------------------------------------------------------------------------------------

    def work(self, now_ms: int) -> None:
        """Handle a silent coordinator, compute the assignment as leader, and join again if necessary."""
        is_late = self._check_application(now_ms)
        if self.state not in ACTIVE or not self._knows_topics() or (is_late and self._give_up_silence(now_ms)):
            return
        if self._leader.open is not None:
            self._compute(now_ms)
        if self.state is MemberState.STABLE:
            self._check_rejoin(now_ms)

    def speak(self, now_ms: int) -> None:
        """Send the JoinGroup or Heartbeat if it is due."""
        is_knowing = self.pattern is None or self._matched.is_known
        is_busy = self._in_flight is not None or self._leader.open is not None
        if self.state not in ACTIVE or not is_knowing or is_busy or now_ms < self._due_ms:
            return
        endpoint = self._lookup.need(now_ms)
        if endpoint is None:
            return
        if self.state in (MemberState.JOINING, MemberState.PREPARING_REBALANCE):
            if not self._is_waiting_for_poll:
                self._join(endpoint, now_ms)
        else:
            self._heartbeat(endpoint, now_ms)

    def next_deadline(self) -> int | None:
        """Return the time of the next request or time limit, ms; `None`: there is none."""
        deadlines = self._shared_deadlines()
        if self.state in ACTIVE:
            is_idle = self._in_flight is None and self._leader.open is None and not self._is_waiting_for_poll
            if is_idle and self._lookup.endpoint is not None:
                deadlines.append(self._due_ms)
        return min(deadlines, default=None)

    def on_topics_changed(self, now_ms: int) -> None:
        """Join again with the new subscription."""
        self._must_rejoin, self._why = True, "the subscription has changed"
        self._matched = PatternSubscription(self._cluster)

    def on_word(self, word: Word, now_ms: int) -> None:
        """Join again with the application's reason, if the application has requested a rebalance."""
        if self.epoch >= 0 and isinstance(word, RebalanceEnforced):
            self._must_rejoin, self._why = True, word.reason

    def _knows_topics(self) -> bool:
        """Match the pattern with the topics of the cluster; return whether all topics have been listed yet."""
        if self.pattern is None:
            return True
        if (found := self._matched.look(self.pattern)) is not None:
            if self.topics != found and self.epoch >= 0:
                self._want_rejoin("other topics match the pattern")
            self.topics = found
        return self._matched.is_known

    def _want_rejoin(self, why: str) -> None:
        """Record that the member has to join again, once no callback of the application is open."""
        if not self._must_rejoin:
            self._must_rejoin, self._why = True, why

    def followed_topics(self) -> set[str]:
        """Return the topics of the member's subscription; for the leader, those of every member of the group."""
        return {*self.topics, *self._leader.topics}

    @property
    def _is_cooperative(self) -> bool:
        # With eager assignors in the list as well, the member is eager: so a group can be migrated to cooperative.
        return set(self._settings.assignment_strategy) == {"cooperative-sticky"}

    @property
    def _session_ms(self) -> int:
        return self._settings.options["session_timeout_ms"]

    def _is_watched(self) -> bool:
        # JoinGroup and SyncGroup requests in flight have their own time limits.
        if self.state in (MemberState.JOINING, MemberState.PREPARING_REBALANCE):
            return bool(self.owned) and self._in_flight is None and self._leader.open is None
        return self.epoch >= 0

    @property
    def _has_epoch(self) -> bool:
        return self.epoch >= 0

    def _ask_whether_known(self, lane: Lane, now_ms: int) -> int:
        # Every request that could be refused uses the connection of the heartbeats, so a heartbeat on it is enough.
        self._drop_request()
        self._due_ms = now_ms
        return self._interval_ms

    @property
    def _interval_ms(self) -> int:
        return longest_interval_ms(self._settings.heartbeat_interval_ms, self._session_ms)

    def _on_heard_late(self, sent_ms: int, now_ms: int) -> None:
        """Count the session from a response to JoinGroup or SyncGroup, which a broker may delay for long."""
        # The transit time of the response is unknown. It is taken as half a session at most, or the next heartbeat
        # would be late.
        self._on_heard(max(sent_ms, now_ms - self._session_ms // 2))

    def _check_rejoin(self, now_ms: int) -> None:
        if self._leader.has_changed():
            self._want_rejoin("topics have changed, and this member leads")
        if not self._must_rejoin:
            return
        self._must_rejoin = False
        self._due_ms = now_ms
        # An eager member revokes every partition before a rebalance.
        surplus = set(self.owned)
        if self._is_cooperative:
            # KIP-429: only partitions of topics that are no longer subscribed to.
            surplus = {partition for partition in self.owned if partition.topic not in self.topics}
        if surplus:
            self._begin_revocation(surplus, now_ms)
        else:
            self._drop_request()
            self._move(Step.MUST_REJOIN)

    def _after_revocation(self, now_ms: int) -> None:
        self._drop_request()
        target, self._target = self._target, None
        # KIP-429: the rebalance that this member begins next assigns the revoked partitions to other members.
        self._must_rejoin = False
        if target is not None:
            self._want_rejoin("what this member has given up is to be handed on")
            self._take(target - self.owned, now_ms)
        else:
            self._due_ms = now_ms

    def _after_assignment(self, now_ms: int) -> None:
        self._check_rejoin(now_ms)

    def _take(self, gained: Set[TopicPartition], now_ms: int) -> None:
        self._gain(set(gained), now_ms)
        if self.state is MemberState.STABLE:
            self._check_rejoin(now_ms)

    def _forget_membership(self) -> None:
        self.epoch = -1
        # Both have state of the generation that has ended.
        self._target = None
        self._leader, self._matched = LeaderAssignment(self._cluster), PatternSubscription(self._cluster)
        self._must_rejoin = False
        self._due_ms = 0
        self._drop_request()

    def _drop_request(self) -> None:
        self._leader.open = None
        # A broker may delay the response to a heartbeat. A member that joins again or leaves ignores that response.
        if self._in_flight is not None:
            self._requests.forget(self._in_flight)
            self._in_flight = None

    def _send(
        self,
        endpoint: Endpoint,
        request: Message,
        on_answer: Callable[[Answer, Endpoint, int], None],
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
    ) -> int:
        def then(answer: Answer, now_ms: int) -> None:
            self._in_flight = None
            on_answer(answer, endpoint, now_ms)

        self._is_beating = False
        self._in_flight = self._requests.send(
            endpoint, Lane.COORDINATOR, request, then, timeout_ms=timeout_ms, min_version=min_version
        )
        return self._in_flight

    # -- joining --------------------------------------------------------------------------------------------------

    def _join(self, endpoint: Endpoint, sent_ms: int) -> None:
        assert self._is_cooperative or not self.owned, "an eager member joins with nothing"
        options = self._settings.options
        subscription = encode_subscription(
            list(self.topics),
            owned_partitions=by_topic(self.owned),
            generation_id=self.epoch if self.owned else -1,
            rack_id=options["client_rack"] or None,
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=options["session_timeout_ms"],
            rebalance_timeout_ms=options["max_poll_interval_ms"],
            member_id=self.member_id,
            group_instance_id=options["group_instance_id"],
            protocol_type=_PROTOCOL_TYPE,
            reason=self._why[:_LONGEST_REASON],
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=subscription)
                for name in self._settings.assignment_strategy
            ],
            registration_timeout_ms=self._settings.registration_timeout_ms,
            expansion_timeout_ms=self._settings.expansion_timeout_ms,
        )
        self._must_rejoin = False
        self._send(
            endpoint,
            request,
            lambda answer, endpoint, now_ms: self._on_joined(answer, endpoint, sent_ms, now_ms),
            timeout_ms=self._rebalance_patience_ms(),
            min_version=None if self._settings.options["group_instance_id"] is None else FIRST_STATIC,
        )

    def _on_joined(self, answer: Answer, endpoint: Endpoint, sent_ms: int, now_ms: int) -> None:
        response = message_of(answer, JoinGroupResponse)
        code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code)
        if response is not None and code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._due_ms = now_ms
            return
        is_unsupported = isinstance(answer, RequestFailed) and answer.failure is Failure.UNSUPPORTED
        if is_unsupported and self._settings.options["group_instance_id"] is not None:
            self._refuse(ErrorCode.UNSUPPORTED_VERSION, "this broker knows no group.instance.id", now_ms)
            return
        if response is None or code is not ErrorCode.NONE:
            self._on_join_error(code, endpoint, now_ms)
            return
        self._attempts = 0
        self._lookup.works()
        self._on_heard_late(sent_ms, now_ms)
        self.member_id = response.member_id
        self.epoch = response.generation_id
        self._protocol_name = response.protocol_name or ""
        self._leader.stop()
        # Only the leader gets the members' subscriptions, and computes from them.
        if response.leader == self.member_id:
            self._leader.open = response
        else:
            self._sync(endpoint, {}, now_ms)

    def _on_join_error(self, code: ErrorCode, endpoint: Endpoint, now_ms: int) -> None:
        if self._attempts == 0:
            # The silence of the coordinator counts from now on, and not from the start of a long join.
            self._waited_ms = now_ms
        if code in _UNKNOWN:
            # The next JoinGroup asks for a new id.
            former, self.member_id = self.member_id, ""
            if self.owned:
                self._lose(code.name, now_ms, member_id=former)
            self._again(now_ms)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._due_ms = now_ms
        elif code in BUSY:
            self._again(now_ms)
        elif code in MOVED or code is ErrorCode.NETWORK_EXCEPTION:
            self._lookup.lost(endpoint, now_ms)
            self._again(now_ms)
        elif code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            mine = ", ".join(self._settings.assignment_strategy)
            self._refuse(code, f"its members are no consumers, or have none of these assignors: {mine}", now_ms)
        else:
            timeouts = self._settings.registration_timeout_ms, self._settings.expansion_timeout_ms
            # The broker sends no text that names the option.
            is_timeout = code is ErrorCode.INVALID_REQUEST and max(timeouts) >= 0
            self._refuse(code, _TIMEOUTS_REFUSED if is_timeout else None, now_ms)

    def _again(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._requests.retry.delay_ms(self._attempts)
        self._attempts += 1

    def _compute(self, now_ms: int) -> None:
        """Compute and send the assignment of all members, once every topic and the coordinator are known."""
        endpoint = self._lookup.need(now_ms)
        if endpoint is None:
            return
        try:
            assignment = self._leader.compute()
        except ProtocolError as error:
            self._leader.stop()
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's subscription: {error}", now_ms)
            return
        if assignment is not None:
            self._sync(endpoint, assignment, now_ms)

    def _sync(self, endpoint: Endpoint, assignment: Mapping[str, Mapping[str, list[int]]], sent_ms: int) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._settings.options["group_instance_id"],
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
                for member_id, partitions in assignment.items()
            ],
        )
        self._send(
            endpoint,
            request,
            lambda answer, endpoint, now_ms: self._on_synced(answer, endpoint, sent_ms, now_ms),
            timeout_ms=self._rebalance_patience_ms(),
        )

    def _rebalance_patience_ms(self) -> int:
        # A broker responds to JoinGroup when every member has joined, for which it waits max.poll.interval.ms.
        return max(self._settings.options["max_poll_interval_ms"] + _JOIN_MARGIN_MS, self._requests.request_timeout_ms)

    def _on_synced(self, answer: Answer, endpoint: Endpoint, sent_ms: int, now_ms: int) -> None:
        response = message_of(answer, SyncGroupResponse)
        code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code)
        if response is None or code is not ErrorCode.NONE:
            self._on_join_error(code, endpoint, now_ms)
            return
        self._on_heard_late(sent_ms, now_ms)
        self._due_ms = now_ms  # A delayed heartbeat is at the broker when the next rebalance begins.
        try:
            assigned = decode_assignment(response.assignment).partitions
        except ProtocolError as error:
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the leader's assignment: {error}", now_ms)
            return
        target = {TopicPartition(topic, number) for topic, numbers in assigned.items() for number in numbers}
        if self._after_leave is not None:
            return  # Every partition is being revoked.
        if surplus := self.owned - target:
            self._has_assignment, self._target = True, target
            self._begin_revocation(surplus, now_ms)
        else:
            self._take(target - self.owned, now_ms)

    # -- heartbeats and the end -----------------------------------------------------------------------------------

    def _heartbeat(self, endpoint: Endpoint, now_ms: int) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._settings.options["group_instance_id"],
            last_poll_ms=self.last_poll_ms(now_ms),
        )
        interval_ms = self._interval_ms

        def on_answer(answer: Answer, endpoint: Endpoint, answered_ms: int) -> None:
            is_cut = self._requests.is_followed(endpoint, token)
            self._due_ms = self._schedule.next_ms(now_ms, interval_ms, answered_ms, is_cut=is_cut)
            self._on_heartbeat(answer, endpoint, now_ms, answered_ms)

        patience = patience_ms(self._requests.request_timeout_ms, interval_ms, self._session_ms)
        token = self._send(endpoint, request, on_answer, timeout_ms=patience)
        self._is_beating = True

    def _on_heartbeat(self, answer: Answer, endpoint: Endpoint, sent_ms: int, now_ms: int) -> None:
        response = message_of(answer, HeartbeatResponse)
        code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._attempts = 0
            self._lookup.works()
            self._on_heard(sent_ms)
            if code is ErrorCode.REBALANCE_IN_PROGRESS and response is not None:
                self._want_rejoin(f"the group rebalances: {response.rebalance_reason or _ANY_REASON}")
        elif code in _UNKNOWN:
            former = self.member_id
            # After ILLEGAL_GENERATION the coordinator still knows the member id.
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._lose(code.name, now_ms, member_id=former)
        elif code in BUSY:
            self._again(now_ms)
        elif code in MOVED or code is ErrorCode.NETWORK_EXCEPTION:
            self._lookup.lost(endpoint, now_ms)
            self._again(now_ms)
        else:
            self._refuse(code, None, now_ms)

    def _send_leave(self, then: Later | None, now_ms: int) -> None:
        endpoint = self._lookup.endpoint
        if endpoint is None or not self.member_id:
            if then is not None:
                then(now_ms)
            return
        name = self._settings.options["group_instance_id"]
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=name, reason="the consumer is leaving")
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[identity])
        self.member_id = ""
        if self._in_flight is not None and not self._is_beating:
            # A broker handles one request of a connection at a time, and JoinGroup may wait for minutes.
            self._requests.add(Disconnect(to=endpoint, lane=Lane.COORDINATOR))
        self._drop_request()
        if not (name is None if self.goes_for_good is None else self.goes_for_good):
            # KIP-345: a static member sends no leave request. Its partitions are kept until its session ends.
            if then is not None:
                then(now_ms)
            return

        def answered(answer: Answer, now_ms: int) -> None:
            message_of(answer, LeaveGroupResponse)
            if then is not None:
                then(now_ms)

        oldest = None if name is None else FIRST_LEAVE_BY_NAME  # Earlier versions have no instance id.
        self._requests.send(endpoint, Lane.COORDINATOR, request, answered, min_version=oldest)


class LeaderAssignment:
    """The assignment that a member computes as the leader of its group; empty while it is no leader.

    Laws: nothing is computed before the metadata of every subscribed topic of the group are known. The leader joins
    again, once, when the number of partitions of a topic differs from that of the computation.
    Source: KIP-814 (a static leader that returns computes nothing, but watches the topics).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The response to JoinGroup, until the assignment can be computed; `None` for a follower.
        self.open: JoinGroupResponse | None = None
        #: The subscribed topics of all members; empty for a follower.
        self.topics: Set[str] = frozenset()
        #: topic -> number of partitions with which this member has computed; empty for a follower.
        self._counted: Mapping[str, int] = {}

    def stop(self) -> None:
        """Stop leading: another member leads, or the generation has ended."""
        self.open, self.topics, self._counted = None, frozenset(), {}

    def has_changed(self) -> bool:
        """Return whether the numbers of partitions differ from those of the computed assignment."""
        return bool(self._counted) and self._counted != self._count(self._counted.keys())

    def compute(self) -> Assignment | None:
        """Compute the assignment of all members; empty: the former one stays; `None`: a topic is unknown.

        Raises:
            ProtocolError: a member's subscription cannot be read.
        """
        # Only leaders import the assignors.
        from kohort.client.consumer.membership.client_assignor import GroupMember, assign

        response = self.open
        assert response is not None
        members = [
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                subscription=decode_subscription(each.metadata),
            )
            for each in response.members
        ]
        self.topics = frozenset(topic for member in members for topic in member.subscription.topics)
        if any(topic not in self._cluster.topics for topic in self.topics):
            return None
        self.open = None
        self._counted = self._count(self.topics)
        return {} if response.skip_assignment else assign(response.protocol_name or "", members, self._counted)

    def _count(self, topics: Set[str]) -> dict[str, int]:
        # A topic that the leader may not see at present counts as unchanged.
        return {
            topic: self._counted.get(topic, 0)
            if self._cluster.is_hidden(topic)
            else len(self._cluster.partitions_of(topic))
            for topic in sorted(topics)
        }


class PatternSubscription:
    """The topics that match the pattern of one member, matched again after each change of metadata.

    Source: Kafka's subscriptions by pattern, which the classic protocol leaves to the client.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Generation of the cluster's metadata that was matched last; 0 before the first match.
        self._seen_generation = 0

    @property
    def is_known(self) -> bool:
        """Whether a broker has listed all topics."""
        return self._seen_generation > 0

    def look(self, pattern: str) -> tuple[str, ...] | None:
        """Return the matching topics, sorted; `None`: nothing has changed since the last match."""
        if not self._cluster.knows_all or self._seen_generation == self._cluster.generation:
            return None
        self._seen_generation = self._cluster.generation
        # Internal topics and those with an error never match.
        matches = re.compile(pattern).fullmatch
        return tuple(
            sorted(
                topic.name
                for topic in self._cluster.topics.values()
                if topic.error is ErrorCode.NONE and not topic.is_internal and matches(topic.name)
            )
        )
