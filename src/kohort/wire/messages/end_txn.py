"""EndTxn (key 26), KIP-98: commit or abort a producer's transaction.

Version 1: throttled after the answer (KIP-219). Version 2: the error PRODUCER_FENCED (KIP-588). Version 3: flexible
(KIP-482). Version 4: the error TRANSACTION_ABORTABLE (KIP-890). Version 5: each transaction has an epoch of its own,
and the answer says which the next one has (KIP-890).
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, field, message


@message(key=26, kind="request", versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    """The transaction to end; `committed` says how."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


@message(key=26, kind="response", versions="0-5", flexible="3+")
class EndTxnResponse(Message):
    """The result, with the producer's id and epoch for its next transaction; -1: they stay."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, since=5, default=-1)
    producer_epoch: int = field(INT16, since=5, default=-1)
