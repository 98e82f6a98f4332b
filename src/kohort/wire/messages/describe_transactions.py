"""DescribeTransactions (key 65), KIP-664: transactions in detail, asked of their coordinator.

There is one version.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=65, kind="request", versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    """Transactional ids of producers; an empty list gives an empty answer."""

    transactional_ids: list[str] = field(array(STRING))


class TopicData(Message):
    """Partitions of one topic that the transaction has written to."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TransactionState(Message):
    """One transaction; while it ends, the partitions are those without its marker."""

    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


@message(key=65, kind="response", versions="0", flexible="0+")
class DescribeTransactionsResponse(Message):
    """One answer per id."""

    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(array(TransactionState))
