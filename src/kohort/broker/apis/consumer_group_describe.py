"""ConsumerGroupDescribe (key 69): members, epochs and assignments of KIP-848 groups.

Version 1: whether a member speaks the classic protocol or the new one (KIP-1099).
"""

from __future__ import annotations

from typing import Final

from kohort.base.values import from_row
from kohort.broker.authorized_operations import GROUP_OPERATIONS
from kohort.broker.chunked_responses import answer_rows, rows_of_coordinators
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import Partitions, Refusal
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import CauseId, TopicId
from kohort.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kohort.wire.private import SOFTWARE_NAME

#: Most bytes of published member metadata in the description of one group.
MOST_METADATA_BYTES: Final = 1024 * 1024


def handle(context: BrokerContext, request: Request, message: ConsumerGroupDescribeRequest) -> None:
    """Ask the coordinator of each group."""
    # Asked for twice is answered once, as in `describe_groups`.
    group_ids = list(dict.fromkeys(message.group_ids))
    check_rows(len(group_ids), MOST_NAMED, "groups")
    runtime = context.runtime

    def command_of(group_id: str) -> commands.DescribeConsumerGroup:
        token = runtime.next_token()
        return commands.DescribeConsumerGroup(cause=CauseId(token), request=token, group_id=group_id)

    has_metadata = request.connection.software == SOFTWARE_NAME

    def row_of(group_id: str, reply: ReplyBody) -> DescribedGroup:
        row = group_row(group_id, reply)
        if has_metadata and isinstance(reply, commands.DescribeConsumerGroupReply):
            _add_metadata(row.members, reply.members)
        if message.include_authorized_operations:
            row.authorized_operations = GROUP_OPERATIONS
        return row

    rows_of = rows_of_coordinators(runtime, command_of, row_of)
    answer_rows(
        context.loop.call_soon, request, group_ids, rows_of, lambda rows: ConsumerGroupDescribeResponse(groups=rows)
    )


def group_row(group_id: str, reply: ReplyBody) -> DescribedGroup:
    """Build the row of a group from the coordinator's reply; fields of the same name are taken over."""
    if isinstance(reply, Refusal):
        return DescribedGroup(error_code=reply.code, error_message=reply.message, group_id=group_id)
    assert isinstance(reply, commands.DescribeConsumerGroupReply)
    members = [_member(member, reply.topic_names) for member in reply.members]
    return from_row(DescribedGroup, reply, error_code=ErrorCode.NONE, group_state=reply.state, members=members)


def _add_metadata(rows: list[Member], members: tuple[commands.DescribedConsumerMember, ...]) -> None:
    """Add the metadata that each member publishes, up to `MOST_METADATA_BYTES`, and its size always."""
    room = MOST_METADATA_BYTES
    for row, member in zip(rows, members, strict=True):
        if member.metadata is None:
            continue
        row.metadata_size = len(member.metadata)
        if row.metadata_size <= room:
            room -= row.metadata_size
            row.metadata = member.metadata


def _member(member: commands.DescribedConsumerMember, names: dict[TopicId, str]) -> Member:
    return from_row(
        Member,
        member,
        subscribed_topic_names=list(member.subscribed_topic_names),
        assignment=_assignment(member.assignment, names),
        target_assignment=_assignment(member.target_assignment, names),
        # `_add_metadata` sets it, for clients that know it and as far as there is room.
        metadata=None,
    )


def _assignment(partitions: Partitions, names: dict[TopicId, str]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names.get(topic_id, ""), partitions=list(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )
