"""AddOffsetsToTxn (key 25): add the offsets of a group to a producer's transaction."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.transactions.coordination import code_of
from kohort.coordinator.transactions import commands
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import add_offsets_to_txn as wire


def handle(
    context: BrokerContext, request: Request, message: wire.AddOffsetsToTxnRequest
) -> wire.AddOffsetsToTxnResponse | None:
    """Ask the coordinator of the transaction to add the partition that keeps the group."""
    rights = request.rights
    if not rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
        return wire.AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        return wire.AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    token = context.runtime.next_token()
    command = commands.AddPartitions(
        cause=token,
        request=token,
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        partitions=((OFFSETS_TOPIC, context.runtime.index_of(message.group_id)),),
        version=0,
    )

    def translate(request: Request, reply: object) -> wire.AddOffsetsToTxnResponse:
        return wire.AddOffsetsToTxnResponse(error_code=code_of(reply, request.version))

    context.transactions.answer(request, command, translate)
    return None
