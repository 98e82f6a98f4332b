"""ListOffsets (key 2): offsets by time, and the ends of a partition.

Versions 1 to 11 are served. Special times: -1 the end that consumers see, -2 the beginning, -3 the record with the
latest time (version 7), -4 the beginning of what is on this disk (8), -5 the end of tiered storage (9), -6 the first
offset that tiered storage lacks (11). There is no tiered storage, so -5 and -6 find nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kohort.broker.context import BrokerContext
from kohort.broker.leadership import Leadership
from kohort.broker.request import Request
from kohort.errors import ErrorCode, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.storage.partition import PartitionLog
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

#: What is answered where no offset fits.
_NOTHING: Final = (-1, -1)
#: Special time -> first version that may ask for it.
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(context: BrokerContext, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look each partition up on its own; one that is named twice is refused once, as by Apache Kafka."""
    named = Counter((asked.name, row.partition_index) for asked in message.topics for row in asked.partitions)
    rows = []
    for asked in message.topics:
        topic, _ = context.cluster.find(asked.name, ZERO_TOPIC_ID)
        once = {row.partition_index: row for row in asked.partitions}
        answers = [
            _answer(context.leadership, context.cluster.partition(topic, number), row, request.version)
            if named[asked.name, number] == 1
            else ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.INVALID_REQUEST)
            for number, row in once.items()
        ]
        rows.append(ListOffsetsTopicResponse(name=asked.name, partitions=answers))
    return ListOffsetsResponse(topics=rows)


def _answer(
    leadership: Leadership, log: PartitionLog | None, asked: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    number = asked.partition_index
    if log is None:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refusal = leadership.refusal(log, asked.current_leader_epoch)
    if refusal is not ErrorCode.NONE:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=refusal)
    if asked.timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(asked.timestamp, 0):
        return ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        timestamp, offset = _look_up(log, asked.timestamp)
    except StorageError:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=number,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=_epoch_of(log, asked.timestamp, offset),
    )


def _epoch_of(log: PartitionLog, timestamp: int, offset: int) -> int:
    """The leader epoch of the record that was found; that of the end is today's."""
    if offset < 0:
        return -1
    epoch = -1 if timestamp == LATEST else log.epochs.of(offset)
    return log.leader_epoch if epoch < 0 else epoch


def _look_up(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    """(timestamp, offset); consumers hear of nothing at or above the high watermark but the watermark itself."""
    match timestamp:
        case -1:
            return -1, log.high_watermark
        case -2 | -4:
            return -1, log.log_start_offset
        case -5 | -6:
            return _NOTHING
        case -3:
            found: tuple[int, int] | None = log.max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return found if found is not None and found[1] < log.high_watermark else _NOTHING
