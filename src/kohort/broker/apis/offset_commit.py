"""OffsetCommit (key 8): store the offsets up to which a group has read.

Up to version 4 the offsets may be given a retention time of their own. Version 7: static members. Version 9: members of
KIP-848 groups commit with their member epoch. Version 10: topics by id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kohort.broker.access.rights import Rights
from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.membership_updates import build_update, partitions_of
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.coordinator import commands
from kohort.coordinator.commands import Partitions, Refusal
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID, TopicId
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import offset_commit as wire
from kohort.wire.messages.offset_commit import OffsetCommitResponsePartition
from kohort.wire.messages.txn_offset_commit import TxnOffsetCommitRequestTopic


def handle(
    context: BrokerContext, request: Request, message: wire.OffsetCommitRequest
) -> wire.OffsetCommitResponse | None:
    """Ask the group's coordinator to commit; refuse topics without name and id, or without the right, here."""
    rights = request.connection.rights
    if rights.is_restricted and not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        return _answer(message, [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(message.topics), [])
    if message.member_id:
        context.member_connections.check(request.connection, message.group_id, message.member_id)
    _check_size(message)
    names = [_name(context, rights, topic, request.version) for topic in message.topics]
    if message.grant is not None and (refused := _check_grant(context, request, message, names)) is not None:
        return _answer(message, [refused] * len(message.topics), [])
    denied = _denied_partitions(context, rights, message, names) if rights.is_partial else frozenset()
    offsets = offsets_of(message.topics, names, denied)
    released = _released(context, message, names, denied)
    if not offsets and not released:
        return _answer(message, names, [], denied)
    runtime, listening = context.runtime, context.membership_updates
    # Look before the commit: its answer leaves when everything that is in the log by then is durable.
    look = None if message.member is None else listening.look(request.connection, message.member)
    token = runtime.next_token()
    command = commands.CommitOffsets(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        member_id=message.member_id,
        generation_or_member_epoch=message.generation_id_or_member_epoch,
        offsets=offsets,
        instance_id=message.group_instance_id,
        # KIP-848: from version 9 on the number is a member epoch in groups of the new protocol.
        is_member_epoch_aware=request.version >= 9,
        retention_ms=message.retention_time_ms,
        released=released,
        shows_grant=message.grant is not None,
    )

    def translate(request: Request, body: commands.CommitOffsetsReply | Refusal) -> wire.OffsetCommitResponse:
        connection = request.connection
        errors = [body.code] * len(offsets) if isinstance(body, Refusal) else list(body.errors)
        answer = _answer(message, names, errors, denied)
        if look is not None:
            key, now_ms = (message.group_id, message.member_id), context.clock.now_ms()
            if look.news is None:
                # The news of fetches may be older than what the commit shows to be known.
                update = listening.tell(key, now_ms, known=look.number)
            else:
                update = listening.with_grant(look.news, connection, key, now_ms)
            if not isinstance(body, Refusal) and body.news is not None:
                # The commit released partitions: these news are newer.
                news = build_update(runtime, message.group_id, body.news)
                update = listening.with_grant(news, connection, key, now_ms)
            answer.membership_update = update
        return answer

    runtime.answer(request, command, translate)
    return None


def _check_grant(
    context: BrokerContext, request: Request, message: wire.OffsetCommitRequest, names: Sequence[str | ErrorCode]
) -> ErrorCode | None:
    """Return the error of a commit that the member's grant does not cover; `None`: it does."""
    assert message.grant is not None, "there is one"
    places: list[tuple[str, TopicId, int]] = []
    for topic, name in zip(message.topics, names, strict=True):
        if isinstance(name, ErrorCode):
            continue
        found = context.cluster.topic(name) if name else None
        topic_id = TopicId(topic.topic_id) if found is None else found.topic_id
        places += [(name, topic_id, row.partition_index) for row in topic.partitions]
    code = context.member_grants.check_commit(
        message.grant,
        (message.group_id, message.member_id),
        message.generation_id_or_member_epoch,
        places,
        peer=request.connection.peer_host,
    )
    return None if code is ErrorCode.NONE else code


def _check_size(message: wire.OffsetCommitRequest) -> None:
    known = () if message.member is None else message.member.topic_partitions
    sizes = [len(row.partitions) for rows in (message.topics, known, message.released or ()) for row in rows]
    if sum(sizes) <= MOST_PARTITIONS:
        return
    check_rows(sum(len(topic.partitions) for topic in message.topics), MOST_PARTITIONS, "partitions")
    check_rows(sum(len(topic.partitions) for topic in known), MOST_PARTITIONS, "partitions that are known")
    check_rows(sum(len(row.partitions) for row in message.released or ()), MOST_PARTITIONS, "released partitions")


def _released(
    context: BrokerContext,
    message: wire.OffsetCommitRequest,
    names: Sequence[str | ErrorCode],
    denied: Collection[tuple[int, int]] = (),
) -> Partitions | None:
    """Return the partitions that the member gives up, without topics of which a commit is refused here."""
    if message.released is None:
        return None
    released = partitions_of(message.released)
    with_denied = {place for place, _ in denied}
    for place, (topic, name) in enumerate(zip(message.topics, names, strict=True)):
        if isinstance(name, ErrorCode) or place in with_denied:
            found = context.cluster.topic(topic.name) if topic.name else None
            released.pop(TopicId(topic.topic_id) if found is None else found.topic_id, None)
    return released


def _name(
    context: BrokerContext, rights: Rights, topic: wire.OffsetCommitRequestTopic, version: int
) -> str | ErrorCode:
    """Return the topic's name, empty for an unknown id, or the error of one that cannot be committed."""
    # The coordinator checks the name.
    name = topic.name
    if version >= 10:
        # From version 10 on a topic has an id only: without one the partition is refused.
        if topic.topic_id == ZERO_TOPIC_ID:
            return ErrorCode.UNKNOWN_TOPIC_ID
        found = context.cluster.topic_by_id(topic.topic_id)
        name = found.name if found is not None else ""
    return checked_name(rights, name)


def checked_name(rights: Rights, name: str) -> str | ErrorCode:
    """Return a topic's name, or the error if the client has no right to commit offsets of it."""
    if rights.is_restricted and name and not rights.allows_commit(name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name


def offsets_of(
    topics: Sequence[wire.OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
    names: Sequence[str | ErrorCode],
    denied: Collection[tuple[int, int]] = (),
) -> tuple[commands.OffsetToCommit, ...]:
    """Return the offsets of topics with a name, without those of `denied` partitions."""
    return tuple(
        commands.OffsetToCommit(
            topic=name,
            topic_id=TopicId(getattr(topic, "topic_id", ZERO_TOPIC_ID)),
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
        )
        for place, (topic, name) in enumerate(zip(topics, names, strict=True))
        if not isinstance(name, ErrorCode)
        for partition in topic.partitions
        if (place, partition.partition_index) not in denied
    )


def _denied_partitions(
    context: BrokerContext, rights: Rights, message: wire.OffsetCommitRequest, names: Sequence[str | ErrorCode]
) -> Collection[tuple[int, int]]:
    """Return the partitions, with the place of their topic, that a token leaves out."""
    return {
        (place, row.partition_index)
        for place, (topic, name) in enumerate(zip(message.topics, names, strict=True))
        if isinstance(name, str) and (found := context.cluster.topic(name)) is not None
        for row in topic.partitions
        if not rights.allows_partition(name, found.topic_id, row.partition_index)
    }


def _answer(
    message: wire.OffsetCommitRequest,
    names: Sequence[str | ErrorCode],
    errors: list[ErrorCode],
    denied: Collection[tuple[int, int]] = (),
) -> wire.OffsetCommitResponse:
    """Build the answer: one code per partition; `errors` are those of named topics, in order.

    `denied`: partitions without the right, by the place of their topic.
    """
    no_right = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    codes = iter(errors)
    return wire.OffsetCommitResponse(
        topics=[
            wire.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=(
                            name
                            if isinstance(name, ErrorCode)
                            else no_right
                            if (place, partition.partition_index) in denied
                            else next(codes)
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for place, (topic, name) in enumerate(zip(message.topics, names, strict=True))
        ]
    )
