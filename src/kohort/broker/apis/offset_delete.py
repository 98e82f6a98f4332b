"""OffsetDelete (key 47): delete committed offsets of topics that the group no longer reads."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.coordinator.commands import Refusal, admin
from kohort.wire.messages import offset_delete as wire


def handle(context: BrokerContext, request: Request, message: wire.OffsetDeleteRequest) -> None:
    """Ask the group's coordinator."""
    check_rows(sum(len(topic.partitions) for topic in message.topics), MOST_PARTITIONS, "partitions")
    token = context.runtime.next_token()
    command = admin.DeleteOffsets(
        cause=token,
        request=token,
        group_id=message.group_id,
        partitions=tuple(
            (topic.name, partition.partition_index) for topic in message.topics for partition in topic.partitions
        ),
    )

    def translate(request: Request, body: admin.DeleteOffsetsReply | Refusal) -> wire.OffsetDeleteResponse:
        del request
        if isinstance(body, Refusal):
            return wire.OffsetDeleteResponse(error_code=body.code)
        codes = iter(body.errors)
        return wire.OffsetDeleteResponse(
            topics=[
                wire.OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        wire.OffsetDeleteResponsePartition(
                            partition_index=partition.partition_index, error_code=next(codes)
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    context.runtime.answer(request, command, translate)
