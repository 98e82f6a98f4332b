"""OffsetDelete (key 47): delete committed offsets of topics that the group no longer reads."""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.coordinator.commands import Refusal
from kohort.coordinator.commands import admin as commands
from kohort.ids import CauseId
from kohort.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(context: BrokerContext, request: Request, message: OffsetDeleteRequest) -> None:
    """Ask the group's coordinator."""
    check_rows(sum(len(topic.partitions) for topic in message.topics), MOST_PARTITIONS, "partitions")
    token = context.runtime.next_token()
    command = commands.DeleteOffsets(
        cause=CauseId(token),
        request=token,
        group_id=message.group_id,
        partitions=tuple(
            (topic.name, partition.partition_index) for topic in message.topics for partition in topic.partitions
        ),
    )

    def translate(request: Request, body: commands.DeleteOffsetsReply | Refusal) -> OffsetDeleteResponse:
        del request
        if isinstance(body, Refusal):
            return OffsetDeleteResponse(error_code=body.code)
        codes = iter(body.errors)
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=next(codes))
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    context.runtime.answer(request, command, translate)
