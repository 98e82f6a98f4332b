"""Produce (key 0): append record batches to partitions.

Versions 0 to 2 carried the older record formats and are gone since Kafka 4.0; a broker still announces 0, because
librdkafka switches off newer features otherwise (KAFKA-18659), but decodes from 3 on.
Version 3: batches of format 2 and the transactional id (KIP-98). Version 4: a failed disk may be reported (KIP-112).
Version 5: the response tells where the log starts. Version 6: throttled after the answer (KIP-219).
Version 7: zstd (KIP-110). Version 8: which record spoiled the batch, and a message (KIP-467). Version 9: flexible
(KIP-482). Version 10: the response may name the present leader and its address (KIP-951). Version 11: the error
TRANSACTION_ABORTABLE; version 12: a transaction's partitions are added by the request itself (both KIP-890).
Version 13: topics are named by id, no longer by name (KIP-516).
"""

from kohort.wire.messages import RecordBuffers
from kohort.wire.schema import INT16, INT32, INT64, RECORDS, STRING, UUID, Message, array, field, message


class PartitionProduceData(Message):
    """Record batches for one partition."""

    index: int = field(INT32)
    records: RecordBuffers = field(RECORDS, nullable=0)


class TopicProduceData(Message):
    """Partitions of one topic, which is known by `name` up to version 12 and by `topic_id` after it."""

    name: str = field(STRING, until=12)
    topic_id: bytes = field(UUID, since=13)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@message(key=0, kind="request", versions="3-13", flexible="9+")
class ProduceRequest(Message):
    """Batches to append; `acks` is 0 (no answer at all), 1 (the leader) or -1 (every replica in sync)."""

    transactional_id: str | None = field(STRING, nullable=0, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Message):
    """A record, counted from 0 within its batch, for which the batch was refused."""

    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(STRING, nullable=0, default=None)


class LeaderIdAndEpoch(Message):
    """The leader that the refused producer should turn to; -1 means unknown."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class PartitionProduceResponse(Message):
    """The place of the appended batch; `log_append_time_ms` -1: the producer's timestamps were kept."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), since=8)
    error_message: str | None = field(STRING, since=8, nullable=8, default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Message):
    """Answers for one topic, named as in the request."""

    name: str = field(STRING, until=12)
    topic_id: bytes = field(UUID, since=13)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Message):
    """Address of a broker that is named as a leader."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)


@message(key=0, kind="response", versions="3-13", flexible="9+")
class ProduceResponse(Message):
    """One answer per partition of the request; the throttle time stands behind them."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=10, tag=0)
