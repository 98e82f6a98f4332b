"""Keys and values of the records of `__transaction_state`, the transaction coordinator's log.

As in `__consumer_offsets`, an int16 that is no part of these messages precedes each: in a key the record's type, in a
value the version of the value. Version 1 of the value is the first flexible one; Apache Kafka writes it from level 1 of
the feature `transaction.version` on (KIP-890). Its fields since then are tagged (KIP-915).
"""

from kohort.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=0, kind="coordinator-key", versions="0", flexible="none")
class TransactionLogKey(Message):
    """One transactional id."""

    transactional_id: str = field(STRING)


class PartitionsSchema(Message):
    """Partitions of one topic."""

    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


@message(key=0, kind="coordinator-value", versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    """A transactional id's producer and its transaction; times in milliseconds since 1970, -1: no transaction yet."""

    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1)
    producer_epoch: int = field(INT16)
    next_producer_epoch: int = field(INT16, since=1, tag=3, default=-1)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable=0)
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, since=1, tag=2, default=0)
