"""InitProducerId (key 22): assign a producer its id and epoch.

Version 3: a producer whose batch was refused asks for a new epoch of its id (KIP-360). One without a transactional id
gets a new id at epoch 0, which is as good; one with such an id gets what its transaction coordinator decides, which
ends an open transaction of the id and fences the producer that began it.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.topic_operations import Outcome
from kohort.broker.transactions.coordination import code_of
from kohort.errors import ErrorCode, StorageError
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import init_producer_id as wire


def handle(
    context: BrokerContext, request: Request, message: wire.InitProducerIdRequest
) -> wire.InitProducerIdResponse | None:
    """Assign a new producer id; for a transactional id its coordinator answers with the producer's id and epoch."""
    rights = request.rights
    if message.transactional_id is not None:
        return _init_transactional(context, request, message, message.transactional_id)
    if rights.is_restricted and not (
        rights.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        # KIP-679: the right to write any topic is enough.
        or rights.allows_any(AclOperation.WRITE, ResourceType.TOPIC)
    ):
        return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def answer(producer_id: int, why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.disk_full.refused("producer-ids", why)
        if not request.is_open:
            return
        if why is None:
            # KIP-360 asks for a new epoch of an id; without transactions a new id does as well.
            request.answer(wire.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        else:
            request.answer(_refusal(ErrorCode.KAFKA_STORAGE_ERROR))

    context.producer_ids.take(answer)
    return None


def _init_transactional(
    context: BrokerContext, request: Request, message: wire.InitProducerIdRequest, transactional_id: str
) -> wire.InitProducerIdResponse | None:
    if not request.rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    # The request proves both or neither.
    if not transactional_id or (message.producer_id < 0) != (message.producer_epoch < 0):
        return _refusal(ErrorCode.INVALID_REQUEST)
    # Loaded with the first transaction.
    from kohort.coordinator.transactions import commands

    token = context.runtime.next_token()
    command = commands.InitProducer(
        cause=token,
        request=token,
        principal=request.principal,
        transactional_id=transactional_id,
        timeout_ms=message.transaction_timeout_ms,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
    )

    def translate(request: Request, reply: object) -> wire.InitProducerIdResponse:
        if isinstance(reply, commands.InitProducerReply):
            return wire.InitProducerIdResponse(producer_id=reply.producer_id, producer_epoch=reply.producer_epoch)
        # PRODUCER_FENCED came with version 4 (KIP-588).
        return _refusal(code_of(reply, request.version, fenced_since=4))

    context.transactions.answer(request, command, translate)
    return None


def _refusal(code: ErrorCode) -> wire.InitProducerIdResponse:
    return wire.InitProducerIdResponse(error_code=code, producer_epoch=-1)
