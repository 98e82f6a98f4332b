"""OffsetDelete (key 47): delete committed offsets of topics that the group no longer reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.coordinator.commands import Refusal, admin
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import offset_delete as wire


def handle(context: BrokerContext, request: Request, message: wire.OffsetDeleteRequest) -> None:
    """Ask the group's coordinator."""
    check_rows(sum(len(topic.partitions) for topic in message.topics), MOST_PARTITIONS, "partitions")
    rights, kind = request.rights, ResourceType.TOPIC
    if not rights.allows(AclOperation.DELETE, ResourceType.GROUP, message.group_id):
        request.answer(wire.OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    allowed = {each.name for each in message.topics if rights.allows(AclOperation.READ, kind, each.name)}
    if message.topics and not allowed:
        request.answer(_answer(message, allowed, []))
        return
    token = context.runtime.next_token()
    command = admin.DeleteOffsets(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        partitions=tuple(
            (topic.name, partition.partition_index)
            for topic in message.topics
            if topic.name in allowed
            for partition in topic.partitions
        ),
    )

    def translate(request: Request, body: admin.DeleteOffsetsReply | Refusal) -> wire.OffsetDeleteResponse:
        del request
        if isinstance(body, Refusal):
            return wire.OffsetDeleteResponse(error_code=body.code)
        return _answer(message, allowed, body.errors)

    context.runtime.answer(request, command, translate)


def _answer(
    message: wire.OffsetDeleteRequest, allowed: Collection[str], errors: Iterable[ErrorCode]
) -> wire.OffsetDeleteResponse:
    """Build the answer; `errors` are those of the partitions of `allowed` topics, in order."""
    codes = iter(errors)
    return wire.OffsetDeleteResponse(
        topics=[
            wire.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    wire.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=next(codes) if topic.name in allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
