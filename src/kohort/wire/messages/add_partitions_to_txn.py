"""AddPartitionsToTxn (key 24), KIP-98: add partitions to a producer's transaction, before it writes to them.

Clients send versions 0 to 3, brokers 4 and 5: several transactions at once, and a partition that is only looked for
(KIP-890). Version 1: throttled after the answer (KIP-219). Version 2: the error PRODUCER_FENCED (KIP-588). Version 3:
flexible (KIP-482). Version 5: the error TRANSACTION_ABORTABLE (KIP-890).
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message


class AddPartitionsToTxnTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AddPartitionsToTxnTransaction(Message):
    """One transaction; `verify_only` asks whether its partitions were added, and adds none."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    verify_only: bool = field(BOOL)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic))


@message(key=24, kind="request", versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Message):
    """One transaction up to version 3, several from version 4 on."""

    transactions: list[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), since=4)
    v3_and_below_transactional_id: str = field(STRING, until=3)
    v3_and_below_producer_id: int = field(INT64, until=3)
    v3_and_below_producer_epoch: int = field(INT16, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), until=3)


class AddPartitionsToTxnPartitionResult(Message):
    """The result for one partition."""

    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnTopicResult(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Message):
    """Answers for one transaction."""

    transactional_id: str = field(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult))


@message(key=24, kind="response", versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Message):
    """One answer per partition; one for the whole request from version 4 on."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), until=3
    )
