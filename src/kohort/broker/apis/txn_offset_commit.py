"""TxnOffsetCommit (key 28): store a group's offsets with the outcome of a producer's transaction.

Version 3: the consumer names itself, so that it can be fenced (KIP-447). Up to version 4 the producer has added the
group's offsets to its transaction by AddOffsetsToTxn; from version 5 on this request adds them (KIP-890).
"""

from __future__ import annotations

from kohort.broker.apis.offset_commit import checked_name, offsets_of
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.broker.transactions.coordination import TRANSIENT
from kohort.coordinator import commands
from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions.commands import AddPartitions
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import txn_offset_commit as wire

#: The first version that adds the group's offsets to the transaction.
_ADDS_SINCE = 5
#: The first version whose clients know TRANSACTION_ABORTABLE.
_ABORTABLE_SINCE = 4


def handle(
    context: BrokerContext, request: Request, message: wire.TxnOffsetCommitRequest
) -> wire.TxnOffsetCommitResponse | None:
    """Add the group's offsets to the transaction, or look whether they were added; then ask the group's coordinator."""
    rights = request.rights
    if not rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
        return _answer(message, [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(message.topics), [])
    if not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        return _answer(message, [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(message.topics), [])
    check_rows(sum(len(topic.partitions) for topic in message.topics), MOST_PARTITIONS, "partitions")
    names = [checked_name(request.connection.rights, topic.name) for topic in message.topics]
    offsets = offsets_of(message.topics, names)
    if not offsets:
        return _answer(message, names, [])
    token = context.runtime.next_token()
    command = commands.CommitTransactionOffsets(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        member_id=message.member_id,
        generation_or_member_epoch=message.generation_id,
        offsets=offsets,
        instance_id=message.group_instance_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
    )

    def translate(_: Request, reply: commands.CommitOffsetsReply | Refusal) -> wire.TxnOffsetCommitResponse:
        errors = [reply.code] * len(offsets) if isinstance(reply, Refusal) else list(reply.errors)
        return _answer(message, names, errors)

    def commit(refused: ErrorCode) -> None:
        if not request.is_open:
            return
        if refused is ErrorCode.NONE:
            context.runtime.answer(request, command, translate)
            return
        # As Apache Kafka: the coordinator of the transaction is not the one that this request was sent to.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if refused in TRANSIENT else refused
        request.answer(_answer(message, names, [code] * len(offsets)))

    # A broker that does not coordinate the group has nothing to add.
    if not context.runtime.coordinates(message.group_id):
        return _answer(message, names, [ErrorCode.NOT_COORDINATOR] * len(offsets))
    token = context.runtime.next_token()
    addition = AddPartitions(
        cause=token,
        request=token,
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        partitions=((OFFSETS_TOPIC, context.runtime.index_of(message.group_id)),),
        is_verify_only=request.version < _ADDS_SINCE,
        version=2 if request.version >= _ADDS_SINCE else 1 if request.version >= _ABORTABLE_SINCE else 0,
    )
    context.transactions.add(addition, commit)
    return None


def _answer(
    message: wire.TxnOffsetCommitRequest, names: list[str | ErrorCode], errors: list[ErrorCode]
) -> wire.TxnOffsetCommitResponse:
    """Build the answer: one code per partition; `errors` are those of named topics, in order."""
    codes = iter(errors)
    return wire.TxnOffsetCommitResponse(
        topics=[
            wire.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    wire.TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=name if isinstance(name, ErrorCode) else next(codes),
                    )
                    for row in topic.partitions
                ],
            )
            for topic, name in zip(message.topics, names, strict=True)
        ]
    )
