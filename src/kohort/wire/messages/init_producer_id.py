"""InitProducerId (key 22), KIP-98: assign a producer the id and epoch of its batches.

Version 1: throttled after the answer (KIP-219). Version 2: flexible (KIP-482). Version 3: a producer may offer its
present id and epoch to have the epoch raised (KIP-360). Version 4: the error PRODUCER_FENCED (KIP-588).
Version 5: the error TRANSACTION_ABORTABLE (KIP-890). Kafka's version 6, two-phase commit (KIP-939), is not stable.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, field, message


@message(key=22, kind="request", versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    """The producer to assign an id; only idempotent without `transactional_id`; -1: no id or epoch yet."""

    transactional_id: str | None = field(STRING, nullable=0)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)


@message(key=22, kind="response", versions="0-5", flexible="2+")
class InitProducerIdResponse(Message):
    """The id and epoch to use from now on."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
