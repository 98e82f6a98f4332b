"""InitProducerId (key 22): assign a producer id to an idempotent producer.

Version 3: a producer whose batch was refused asks for a new epoch of its id (KIP-360). Without transactions there is
nothing to fence, so it gets a new id at epoch 0, which is as good. A transactional id is refused with a code that every
client reports as fatal: transactions are not served yet.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.topic_operations import Outcome
from kohort.errors import ErrorCode, StorageError
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import init_producer_id as wire


def handle(
    context: BrokerContext, request: Request, message: wire.InitProducerIdRequest
) -> wire.InitProducerIdResponse | None:
    """Answer with a producer id that was never assigned before."""
    # Transactions are not served: every client reports this code as fatal.
    if message.transactional_id is not None:
        return wire.InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1
        )

    rights = request.rights
    if rights.is_restricted and not (
        rights.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        # KIP-679: the right to write any topic is enough.
        or rights.allows_any(AclOperation.WRITE, ResourceType.TOPIC)
    ):
        return wire.InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1)

    def answer(producer_id: int, why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.disk_full.refused("producer-ids", why)
        if not request.is_open:
            return
        if why is None:
            # KIP-360 asks for a new epoch of an id; without transactions a new id does as well.
            request.answer(wire.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        else:
            request.answer(wire.InitProducerIdResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, producer_epoch=-1))

    context.producer_ids.take(answer)
    return None
