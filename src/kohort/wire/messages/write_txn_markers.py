"""WriteTxnMarkers (key 27), KIP-98: write the ends of transactions at their partitions' leaders.

Coordinators send it, and administrators for a transaction that no coordinator ends (KIP-664). Version 0 is gone;
version 1 is flexible (KIP-482). Version 2: the version of the protocol of transactions (KIP-1228).
"""

from kohort.wire.schema import BOOL, INT8, INT16, INT32, INT64, STRING, Message, array, field, message


class WritableTxnMarkerTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class WritableTxnMarker(Message):
    """The end of one producer's transaction; `transaction_result` says whether it is committed."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)
    transaction_version: int = field(INT8, since=2)


@message(key=27, kind="request", versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Message):
    """Markers to write."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Message):
    """The result for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class WritableTxnMarkerTopicResult(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Message):
    """Answers for one producer."""

    producer_id: int = field(INT64)
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult))


@message(key=27, kind="response", versions="1-2", flexible="1+")
class WriteTxnMarkersResponse(Message):
    """One answer per marker; this response has no throttle time."""

    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))
