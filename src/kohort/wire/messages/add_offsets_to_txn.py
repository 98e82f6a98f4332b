"""AddOffsetsToTxn (key 25), KIP-98: add the offsets of a group to a producer's transaction, before they are committed.

Version 1: throttled after the answer (KIP-219). Version 2: the error PRODUCER_FENCED (KIP-588). Version 3: flexible
(KIP-482). Version 4: the error TRANSACTION_ABORTABLE (KIP-890). From version 5 of TxnOffsetCommit on that request
adds the offsets itself.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, field, message


@message(key=25, kind="request", versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    """One group; the coordinator adds the partition of `__consumer_offsets` that keeps it."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@message(key=25, kind="response", versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    """The result."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
