"""ConsumerGroupDescribe (key 69): members, epochs and assignments of KIP-848 groups.

Version 1: whether a member speaks the classic protocol or the new one (KIP-1099).
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext
from kohort.broker.gather import Gather
from kohort.broker.limits import MOST_NAMED, check_rows
from kohort.broker.operations import GROUP_OPERATIONS
from kohort.broker.request import Request
from kohort.coordinator import commands
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


def handle(
    context: BrokerContext, request: Request, message: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | None:
    """Ask the coordinator of each group."""
    # Asked for twice is answered once, as in `describe_groups`.
    group_ids = list(dict.fromkeys(message.group_ids))
    check_rows(len(group_ids), MOST_NAMED, "groups")
    if not group_ids:
        return ConsumerGroupDescribeResponse()

    def complete(replies: list[commands.ReplyBody]) -> None:
        if not request.is_open:
            return
        rows = [_describe(group_id, reply) for group_id, reply in zip(group_ids, replies, strict=True)]
        if message.include_authorized_operations:
            for row in rows:
                row.authorized_operations = GROUP_OPERATIONS
        request.answer(ConsumerGroupDescribeResponse(groups=rows))

    whole = Gather(len(group_ids), complete)
    for index, group_id in enumerate(group_ids):
        token = context.runtime.next_token()
        command = commands.DescribeConsumerGroup(cause=CauseId(token), request=token, group_id=group_id)
        context.runtime.ask(command, whole.slot(index))
    return None


def _describe(group_id: str, reply: commands.ReplyBody) -> DescribedGroup:
    if isinstance(reply, commands.Refusal):
        return DescribedGroup(error_code=reply.code, error_message=reply.message, group_id=group_id)
    assert isinstance(reply, commands.DescribeConsumerGroupReply)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor_name,
        members=[_member(member, reply.topic_names) for member in reply.members],
    )


def _member(member: commands.DescribedConsumerMember, names: dict[TopicId, str]) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assignment, names),
        target_assignment=_assignment(member.target_assignment, names),
        member_type=member.member_type,
    )


def _assignment(partitions: commands.Partitions, names: dict[TopicId, str]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names.get(topic_id, ""), partitions=list(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )
