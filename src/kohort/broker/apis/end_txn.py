"""EndTxn (key 26): commit or abort a producer's transaction.

Version 5: the answer has the epoch of the producer's next transaction (KIP-890).
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.transactions.coordination import code_of
from kohort.coordinator.transactions import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import end_txn as wire

#: The first version of clients whose transactions have an epoch each.
_BUMPED_SINCE = 5


def handle(context: BrokerContext, request: Request, message: wire.EndTxnRequest) -> wire.EndTxnResponse | None:
    """Ask the coordinator of the transaction."""
    if not request.rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
        return wire.EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    token = context.runtime.next_token()
    command = commands.EndTransaction(
        cause=token,
        request=token,
        principal=request.principal,
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        is_commit=message.committed,
        version=2 if request.version >= _BUMPED_SINCE else 0,
    )

    def translate(request: Request, reply: object) -> wire.EndTxnResponse:
        if isinstance(reply, commands.EndTransactionReply):
            return wire.EndTxnResponse(producer_id=reply.producer_id, producer_epoch=reply.producer_epoch)
        return wire.EndTxnResponse(error_code=code_of(reply, request.version))

    context.transactions.answer(request, command, translate)
    return None
