"""TxnOffsetCommit (key 28): remember how far a group has read, if the producer's transaction is committed.

Versions 0 to 5 are served, and not announced: see `api_versions`. Version 3: the consumer says who it is (KIP-447).
Version 5: implies AddOffsetsToTxn (KIP-890), which is the transaction coordinator's part.
"""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.limits import MOST_PARTITIONS, check_rows
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID, CauseId
from kohort.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle(context: BrokerContext, request: Request, message: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
    """Ask the group's coordinator."""
    check_rows(sum(len(topic.partitions) for topic in message.topics), MOST_PARTITIONS, "partitions")
    offsets = tuple(
        commands.OffsetToCommit(
            topic=topic.name,
            topic_id=ZERO_TOPIC_ID,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
        )
        for topic in message.topics
        for partition in topic.partitions
    )
    if not offsets:
        return _answer(message, [])
    token = context.runtime.next_token()
    command = commands.CommitTransactionOffsets(
        cause=CauseId(token),
        request=token,
        group_id=message.group_id,
        member_id=message.member_id,
        generation_or_member_epoch=message.generation_id,
        offsets=offsets,
        instance_id=message.group_instance_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
    )

    def translate(request: Request, body: commands.CommitOffsetsReply | commands.Refusal) -> TxnOffsetCommitResponse:
        del request
        if isinstance(body, commands.Refusal):
            return _answer(message, [body.code] * len(offsets))
        return _answer(message, list(body.errors))

    context.runtime.answer(request, command, translate)
    return None


def _answer(message: TxnOffsetCommitRequest, errors: list[ErrorCode]) -> TxnOffsetCommitResponse:
    codes = iter(errors)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=next(codes))
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
