"""ConsumerGroupHeartbeat (key 68), KIP-848.

Version 0: the broker makes the member id of a member that joins without one. Version 1: the client makes it
(KIP-1082), and may subscribe by regular expression.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kohort.broker.access.rights import Rights
from kohort.broker.connections.heartbeats import CachedHeartbeat
from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.coordination import new_member_id
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeat, Terms
from kohort.broker.groups.waiting_rights import watch_group_right
from kohort.coordinator import commands
from kohort.coordinator.commands import Partitions, Refusal
from kohort.errors import ErrorCode
from kohort.ids import RequestToken, TopicId
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.codec import encode
from kohort.wire.messages import consumer_group_heartbeat as wire
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

_DENIED: Final = ConsumerGroupHeartbeatResponse(
    error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="Group authorization failed."
)


def handle(context: BrokerContext, request: Request, message: wire.ConsumerGroupHeartbeatRequest) -> bytes | None:
    """Ask the group's coordinator; return the answer if it is known at once and nothing is new."""
    rights = request.connection.rights
    if rights.is_restricted and (denied := _denied(rights, message)) is not None:
        return encode(denied, request.version)
    runtime, connections = context.runtime, context.member_connections
    # Only these two can do harm when they come late: they acknowledge a revocation, or leave.
    if message.topic_partitions is not None or message.member_epoch < 0:
        connections.check(request.connection, message.group_id, message.member_id)
    owned, member_id = message.topic_partitions, message.member_id
    if request.version == 0 and not member_id and message.member_epoch == 0:
        # KIP-848: in version 0 the coordinator makes the id; from version 1 on the client does (KIP-1082).
        member_id = new_member_id(request.client_id)
    member = (message.group_id, member_id)
    session_ms = runtime.session_timeout_ms(message.group_id)
    terms = context.delayed_heartbeats.terms(request, member, is_join=message.member_epoch == 0, session_ms=session_ms)
    if message.wants_numbers and terms.hold_ms > 0 and message.member_epoch > 0:
        # A member whose grant is to be renewed does not wait for it.
        terms = terms._replace(hold_ms=0) if context.member_grants.is_due(request.connection, member) else terms
    runtime.reads.note_poll(member, message.last_poll_ms)
    command = _command(request, message, member_id, runtime.next_token(), terms, hides_topics=runtime.hides_topics)
    # A heartbeat that names no partitions may be repeated byte for byte; see `connections.heartbeats`.
    if owned is None and message.member_epoch > 0:
        repeatable = _RepeatableHeartbeat(context, request, command, is_numbered=message.wants_numbers)
        request.repeatable = repeatable
        if command.hold_ms < 0 and (answer := repeatable.renew()) is not None:
            return answer
        context.delayed_heartbeats.attach(request, repeatable)
        _watch_right(context, request, command)
        runtime.answer(request, command, repeatable.translate)
    else:
        context.delayed_heartbeats.attach(
            request, DelayedHeartbeat(context.delayed_heartbeats, runtime, request.connection, command)
        )
        _watch_right(context, request, command)
        runtime.answer(request, command, partial(_translate, context, command, is_numbered=message.wants_numbers))
    if command.hold_ms > 0 and request.is_open:
        # The heartbeat is accepted and held: its member is known before the answer leaves.
        connections.heartbeat(request.connection, message.group_id, member_id)
    return None


def _command(
    request: Request,
    message: wire.ConsumerGroupHeartbeatRequest,
    member_id: str,
    token: RequestToken,
    terms: Terms,
    *,
    hides_topics: bool,
) -> commands.ConsumerGroupHeartbeat:
    names, owned = message.subscribed_topic_names, message.topic_partitions
    return commands.ConsumerGroupHeartbeat(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        member_id=member_id,
        member_epoch=message.member_epoch,
        client_id=request.client_id,
        client_host=request.client_host,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        topic_partitions=None if owned is None else _partitions(owned),
        proposed_heartbeat_interval_ms=message.proposed_heartbeat_interval_ms,
        hold_ms=terms.hold_ms,
        since_cut_ms=terms.since_cut_ms,
        counts_requests=terms.counts_requests,
        registration_timeout_ms=message.registration_timeout_ms,
        expansion_timeout_ms=message.expansion_timeout_ms,
        client_assignors=_assignors(message.client_assignors),
        metadata=None if message.metadata is None else bytes(message.metadata),
        watched_version=message.watched_version,
        sight=TopicSight(request.rights) if message.subscribed_topic_regex and hides_topics else None,
    )


class TopicSight:
    """The topics that a member's principal may see; equal for all connections with the same rights."""

    __slots__ = ("_rights",)

    def __init__(self, rights: Rights) -> None:
        self._rights: Final = rights

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicSight) and other._rights is self._rights

    def __hash__(self) -> int:
        return hash(self._rights)

    @property
    def edition(self) -> int:
        """Implement `Sight.edition`."""
        return self._rights.edition

    def sees(self, topic: str) -> bool:
        """Implement `Sight.sees`."""
        return self._rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _denied(rights: Rights, message: wire.ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
    """Return the refusal of a member without the right to its group, or to a topic that it names; `None`: it has all.

    KAFKA-18813: the response would tell which of the named topics exist.
    """
    code, text = ErrorCode.NONE, ""
    if not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        code, text = ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
    elif not all(
        rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        for name in dict.fromkeys(message.subscribed_topic_names or ())
    ):
        code, text = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    return None if code is ErrorCode.NONE else ConsumerGroupHeartbeatResponse(error_code=code, error_message=text)


def _watch_right(context: BrokerContext, request: Request, command: commands.ConsumerGroupHeartbeat) -> None:
    """Have the heartbeat refused while it is held, if its client may not read the group any more."""
    if request.connection.rights.is_restricted:
        watch_group_right(request, command.group_id, _DENIED, partial(context.runtime.abandon, command))


class _RepeatableHeartbeat(DelayedHeartbeat[commands.ConsumerGroupHeartbeat]):
    """A member's heartbeat that may be repeated byte for byte, with its latest answer."""

    __slots__ = ("_body", "_context", "_is_numbered", "_is_over", "_told", "_version")

    def __init__(
        self, context: BrokerContext, request: Request, command: commands.ConsumerGroupHeartbeat, *, is_numbered: bool
    ) -> None:
        super().__init__(context.delayed_heartbeats, context.runtime, request.connection, command)
        self._context: Final = context
        self._version: Final = request.version
        self._is_numbered: Final = is_numbered
        #: Interval and session timeout that its latest answer tells, and whether fetches count; and that answer.
        self._told: tuple[int, int, bool] | None = None
        self._body = b""
        #: Whether its answer had news; then the member's next heartbeat is a new request, even if its bytes are equal.
        self._is_over = False

    def cache(self, frame: memoryview, request: Request) -> CachedHeartbeat:
        """Implement `Repeatable.cache`."""
        return CachedHeartbeat(frame, request, self)

    def hold_ms(self) -> int:
        """Implement `RepeatableHeartbeat.hold_ms`."""
        command = self.command
        if command.hold_ms < 0:
            return -1
        return self._context.delayed_heartbeats.hold_ms(self._connection, (command.group_id, command.member_id))

    def hold(self, request: Request, hold_ms: int) -> bool:
        """Implement `RepeatableHeartbeat.hold`."""
        command = self.command
        if (
            self._is_over
            or hold_ms <= 0
            or hold_ms != command.hold_ms
            or self._is_grant_due
            # A client that has cut a hold is told a different interval each time.
            or (command.group_id, command.member_id) in self._connection.cuts
        ):
            return False
        self._context.delayed_heartbeats.attach(request, self)
        _watch_right(self._context, request, command)
        if not self._context.runtime.hold(request, command, self.translate):
            return False
        self._context.member_connections.heartbeat(self._connection, command.group_id, command.member_id)
        return True

    def renew(self) -> bytes | None:
        """Implement `RepeatableHeartbeat.renew`."""
        command = self.command
        interval_ms = None if self._is_grant_due else self._context.runtime.renew(command)
        if interval_ms is None:
            return None
        self._context.member_connections.heartbeat(self._connection, command.group_id, command.member_id)
        return self._answer(interval_ms)

    def translate(
        self, request: Request, body: commands.ConsumerGroupHeartbeatReply | Refusal
    ) -> ConsumerGroupHeartbeatResponse | bytes:
        """Translate the coordinator's reply into the response."""
        command = self.command
        if (
            isinstance(body, Refusal)
            or body.assignment is not None
            or body.member_epoch != command.member_epoch
            or body.should_compute
            or body.client_assignment is not None
            or body.metadata_news is not None
            or self._is_grant_due
        ):
            self._is_over = True
            return _translate(self._context, command, request, body, is_numbered=self._is_numbered)
        if command.hold_ms <= 0:
            self._context.member_connections.heartbeat(request.connection, command.group_id, command.member_id)
        _note_told(self._context, request, command.group_id, body, is_numbered=self._is_numbered)
        return self._answer(body.heartbeat_interval_ms)

    @property
    def _is_grant_due(self) -> bool:
        """Whether an answer has to tell a grant."""
        command = self.command
        return self._is_numbered and self._context.member_grants.is_due(
            self._connection, (command.group_id, command.member_id)
        )

    @property
    def _session_timeout_ms(self) -> int:
        return self._context.runtime.session_timeout_ms(self.command.group_id)

    def _answer(self, interval_ms: int) -> bytes:
        """Return the encoded response without an assignment; it is encoded once while its values are equal."""
        command = self.command
        session_ms, counts_fetches = self._session_timeout_ms, self._context.runtime.counts_fetches(command.group_id)
        told = interval_ms, session_ms, counts_fetches
        if told != self._told:
            answer = ConsumerGroupHeartbeatResponse(
                member_id=command.member_id,
                member_epoch=command.member_epoch,
                heartbeat_interval_ms=interval_ms,
                session_timeout_ms=session_ms if command.counts_requests else -1,
                counts_fetches=counts_fetches and command.counts_requests,
            )
            self._told, self._body = told, encode(answer, self._version)
        return self._body


def _partitions(rows: list[wire.TopicPartitions]) -> Partitions:
    """Return the partitions by topic; rows and partitions that are repeated count once."""
    found: dict[TopicId, set[int]] = {}
    for row in rows:
        found.setdefault(TopicId(row.topic_id), set()).update(row.partitions)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in found.items()}


def _assignors(rows: list[wire.ClientAssignor] | None) -> tuple[commands.ClientAssignor, ...] | None:
    """Convert the assignors that the member can run, in the order of its preference."""
    if rows is None:
        return None
    return tuple(
        commands.ClientAssignor(
            name=row.name,
            minimum_version=row.minimum_version,
            maximum_version=row.maximum_version,
            reason=row.reason,
            version=row.metadata_version,
            metadata=bytes(row.metadata_bytes),
        )
        for row in rows
    )


def _client_assignment(said: commands.ClientAssignment | None) -> wire.ClientAssignment | None:
    if said is None:
        return None
    return wire.ClientAssignment(error=said.error, metadata_version=said.version, metadata_bytes=said.metadata)


def _metadata_news(news: commands.MetadataNews | None) -> wire.MetadataNews | None:
    if news is None:
        return None
    members = [
        wire.PublishedMetadata(member_id=each.member_id, instance_id=each.instance_id, metadata=each.metadata)
        for each in news.members
    ]
    return wire.MetadataNews(version=news.version, is_whole=news.is_whole, has_more=news.has_more, members=members)


def _translate(
    context: BrokerContext,
    command: commands.ConsumerGroupHeartbeat,
    request: Request,
    body: commands.ConsumerGroupHeartbeatReply | Refusal,
    *,
    is_numbered: bool,
) -> ConsumerGroupHeartbeatResponse:
    group_id = command.group_id
    if isinstance(body, Refusal):
        return ConsumerGroupHeartbeatResponse(error_code=body.code, error_message=body.message or body.code.name)
    session_ms = context.runtime.session_timeout_ms(group_id)
    if command.sight is not None:
        context.runtime.pattern_sent(command)
    if body.member_epoch < 0:
        context.member_connections.left(group_id, body.member_id)
        context.member_grants.forget((group_id, body.member_id))
    else:
        context.member_connections.heartbeat(request.connection, group_id, body.member_id)
        _note_told(context, request, group_id, body, is_numbered=is_numbered)
    assignment, is_ours = body.assignment, context.delayed_heartbeats.counts_requests(request.connection)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        heartbeat_interval_ms=body.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else wire.Assignment(
            topic_partitions=[
                wire.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in assignment.items()
            ]
        ),
        rebalance_reason=None if assignment is None else context.runtime.journal.reason(group_id),
        should_compute_assignment=body.should_compute,
        client_assignment=_client_assignment(body.client_assignment),
        metadata_news=_metadata_news(body.metadata_news),
        number=context.runtime.next_token() if is_numbered and assignment is not None else 0,
        session_timeout_ms=session_ms if is_ours else -1,
        grant=_grant(context, command, request, body) if is_numbered else None,
        counts_fetches=is_ours and context.runtime.counts_fetches(group_id),
    )


def _note_told(
    context: BrokerContext,
    request: Request,
    group_id: str,
    body: commands.ConsumerGroupHeartbeatReply,
    *,
    is_numbered: bool,
) -> None:
    """Note the heartbeat interval of the response, and the time by which the broker has to respond."""
    limit_ms = context.runtime.session_timeout_ms(group_id)
    if is_numbered and (lease_ms := context.member_grants.lease_ms(group_id)):
        # A hold ends in time for the grant to be renewed.
        limit_ms = min(limit_ms, lease_ms)
    member = group_id, body.member_id
    context.delayed_heartbeats.note_told(request.connection, member, body.heartbeat_interval_ms, limit_ms)


def _grant(
    context: BrokerContext,
    command: commands.ConsumerGroupHeartbeat,
    request: Request,
    body: commands.ConsumerGroupHeartbeatReply,
) -> wire.OwnershipGrant | None:
    """Return the grant that belongs to an assignment, or is to be renewed."""
    if body.member_epoch <= 0:
        return None
    is_new = body.assignment is not None or body.member_epoch != command.member_epoch
    return context.member_grants.tell(request.connection, (command.group_id, body.member_id), is_new=is_new)
