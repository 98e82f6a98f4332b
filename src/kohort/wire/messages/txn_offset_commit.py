"""TxnOffsetCommit (key 28), KIP-98: store a group's offsets with the outcome of a transaction.

Version 1: throttled after the answer (KIP-219). Version 2: leader epoch of the committed record (KIP-320). Version 3:
flexible, and the consumer names itself, so that it can be fenced (KIP-447). Versions 4 and 5 change what the answer
may say and what the request implies, not the fields (KIP-890).
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


class TxnOffsetCommitRequestPartition(Message):
    """The next offset to read, and the committer's metadata."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, default=-1)
    committed_metadata: str | None = field(STRING, nullable=0)


class TxnOffsetCommitRequestTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))


@message(key=28, kind="request", versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(Message):
    """Offsets of one group; generation -1 and an empty member id say nothing about the consumer."""

    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1)
    member_id: str = field(STRING, since=3, default="")
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Message):
    """The result for one offset."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TxnOffsetCommitResponseTopic(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))


@message(key=28, kind="response", versions="0-5", flexible="3+")
class TxnOffsetCommitResponse(Message):
    """One answer per partition; a refusal of the whole group is repeated in each of them."""

    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))
