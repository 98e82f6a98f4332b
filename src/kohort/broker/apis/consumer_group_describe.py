"""ConsumerGroupDescribe (key 69): members, epochs and assignments of KIP-848 groups.

Version 1: whether a member speaks the classic protocol or the new one (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.base.values import from_row
from kohort.broker.access.rights import Rights
from kohort.broker.chunked_responses import answer_groups
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Partitions, Refusal, admin
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import consumer_group_describe as wire
from kohort.wire.messages import describe_groups
from kohort.wire.private import SOFTWARE_NAME

#: Most bytes of published member metadata in the description of one group.
MOST_METADATA_BYTES: Final = 1024 * 1024


def handle(context: BrokerContext, request: Request, message: wire.ConsumerGroupDescribeRequest) -> None:
    """Ask the coordinator of each group."""
    rights = request.rights
    has_metadata = request.connection.software == SOFTWARE_NAME

    def row_of(group_id: str, reply: admin.DescribeConsumerGroupReply | Refusal) -> wire.DescribedGroup:
        if not isinstance(reply, Refusal) and rights.is_restricted and not _may_see(rights, reply):
            return _hidden(group_id)
        row = group_row(group_id, reply)
        if has_metadata and not isinstance(reply, Refusal):
            _add_metadata(row.members, reply.members)
            add_signs(context, group_id, row.members)
        if message.include_authorized_operations and row.error_code == ErrorCode.NONE:
            row.authorized_operations = rights.operations(ResourceType.GROUP, group_id)
        return row

    def response_of(rows: list[wire.DescribedGroup]) -> wire.ConsumerGroupDescribeResponse:
        return wire.ConsumerGroupDescribeResponse(groups=rows)

    answer_groups(
        context, request, message.group_ids, command=admin.DescribeConsumerGroup, row_of=row_of, response_of=response_of
    )


def add_signs(
    context: BrokerContext, group_id: str, rows: Iterable[wire.Member | describe_groups.DescribedGroupMember]
) -> None:
    """Add the latest signs of each member, for clients that know these fields."""
    for row in rows:
        signs = context.runtime.member_signs(group_id, row.member_id)
        # A member may have left since the coordinator answered.
        if signs is not None:
            for name, value in signs._asdict().items():
                setattr(row, name, value)
            row.is_connected = int(context.member_connections.is_connected(group_id, row.member_id))


def _may_see(rights: Rights, reply: admin.DescribeConsumerGroupReply) -> bool:
    """Whether the client may describe every topic of the group's assignments, present and coming."""
    named = {
        reply.topic_names.get(topic_id, "")
        for member in reply.members
        for topic_id in (*member.assignment, *member.target_assignment)
    }
    return all(rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in named if name)


def _hidden(group_id: str) -> wire.DescribedGroup:
    """Refuse the whole group, as Apache Kafka does: members without some partitions would be misleading."""
    return wire.DescribedGroup(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
        group_id=group_id,
    )


def group_row(group_id: str, reply: admin.DescribeConsumerGroupReply | Refusal) -> wire.DescribedGroup:
    """Build the row of a group from the coordinator's reply; fields of the same name are taken over."""
    if isinstance(reply, Refusal):
        return wire.DescribedGroup(error_code=reply.code, error_message=reply.message, group_id=group_id)
    members = [_member(member, reply.topic_names) for member in reply.members]
    return from_row(wire.DescribedGroup, reply, error_code=ErrorCode.NONE, group_state=reply.state, members=members)


def _add_metadata(rows: list[wire.Member], members: tuple[admin.DescribedConsumerMember, ...]) -> None:
    """Add the metadata that each member publishes, up to `MOST_METADATA_BYTES`, and its size always."""
    room = MOST_METADATA_BYTES
    for row, member in zip(rows, members, strict=True):
        if member.metadata is None:
            continue
        row.metadata_size = len(member.metadata)
        if row.metadata_size <= room:
            room -= row.metadata_size
            row.metadata = member.metadata


def _member(member: admin.DescribedConsumerMember, names: dict[TopicId, str]) -> wire.Member:
    return from_row(
        wire.Member,
        member,
        subscribed_topic_names=list(member.subscribed_topic_names),
        assignment=_assignment(member.assignment, names),
        target_assignment=_assignment(member.target_assignment, names),
        # `_add_metadata` sets it, for clients that know it and as far as there is room.
        metadata=None,
    )


def _assignment(partitions: Partitions, names: dict[TopicId, str]) -> wire.Assignment:
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(topic_id=topic_id, topic_name=names.get(topic_id, ""), partitions=list(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )
