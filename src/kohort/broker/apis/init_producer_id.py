"""InitProducerId (key 22): a number for an idempotent producer.

Versions 0 to 5 are served. Version 3: a producer whose batch was refused asks for a new epoch of its id (KIP-360).
Without transactions there is nothing to fence, so it gets a new id at epoch 0, which is as good.
A transactional id is refused with a code that every client reports as fatal: transactions are not served yet.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.errors import ErrorCode, StorageError
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(context: BrokerContext, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse:
    """An id that nobody was given before."""
    del request
    if message.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
    try:
        producer_id = context.producer_ids.take()
    except StorageError as failure:
        context.outage.refused("producer-ids", failure)
        return InitProducerIdResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
