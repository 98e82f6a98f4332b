"""Fetch (key 1): read record batches, now or once there are enough of them.

Versions 4 to 18 are served. From version 7 on clients may ask for fetch sessions (KIP-227), see `fetchsessions`. From
version 13 on topics are named by id.
Both isolation levels read the same, since nothing transactional can be in a log.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.storage.partition import PartitionLog
from kohort.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

READ_COMMITTED: Final = 1


class _Reading:
    """One look at everything that a fetch asks for."""

    __slots__ = ("context", "error_count", "has_divergence", "logs", "message", "remaining", "size")

    def __init__(self, context: BrokerContext, message: FetchRequest) -> None:
        self.context = context
        self.message = message
        #: Bytes that may still be added.
        self.remaining = min(message.max_bytes, context.settings.values["fetch.max.bytes"])
        self.size = 0
        self.error_count = 0
        #: Some client has read what the log does not have.
        self.has_divergence = False
        #: The logs that were read.
        self.logs: list[PartitionLog] = []

    def read(self) -> FetchResponse:
        """Read each partition in the order of the request, as far as the bytes allow."""
        return FetchResponse(responses=[self._read_topic(topic) for topic in self.message.topics])

    @property
    def is_enough(self) -> bool:
        """Whether the client wants to hear of it now."""
        return self.size >= self.message.min_bytes or self.error_count > 0 or self.has_divergence

    def _read_topic(self, asked: FetchTopic) -> FetchableTopicResponse:
        topic, missing = self.context.cluster.find(asked.topic, asked.topic_id)
        rows = []
        for partition in asked.partitions:
            if topic is None:
                rows.append(self._refuse(partition, missing))
            elif not 0 <= partition.partition < len(topic.partitions):
                rows.append(self._refuse(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                rows.append(self._read_partition(topic.partitions[partition.partition], partition))
        return FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=rows)

    def _read_partition(self, log: PartitionLog, asked: FetchPartition) -> PartitionData:
        refusal = self.context.leadership.refusal(log, asked.current_leader_epoch)
        if refusal is not ErrorCode.NONE:
            return self._refuse(asked, refusal)
        high_watermark = log.high_watermark
        try:
            diverging = self.context.leadership.divergence(log, asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is not None:
                return self._tell_divergence(log, asked.partition, diverging)
            views = log.read(
                asked.fetch_offset,
                max(min(asked.partition_max_bytes, self.remaining), 0),
                at_least_one=self.size == 0,
                up_to=high_watermark,
            )
        except Refused as refused:
            return self._refuse(asked, refused.code, log)
        except StorageError:
            return self._refuse(asked, ErrorCode.KAFKA_STORAGE_ERROR, log)
        size = sum(map(len, views))
        self.size += size
        self.remaining -= size
        self.logs.append(log)
        return PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self.message.isolation_level == READ_COMMITTED else None,
            records=views or b"",
        )

    def _tell_divergence(self, log: PartitionLog, number: int, diverging: tuple[int, int]) -> PartitionData:
        """The client has read records that are gone."""
        self.has_divergence = True
        high_watermark = log.high_watermark
        return PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=log.log_start_offset,
            diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
            aborted_transactions=None,
            records=b"",
        )

    def _refuse(self, asked: FetchPartition, code: ErrorCode, log: PartitionLog | None = None) -> PartitionData:
        self.error_count += 1
        return PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=-1 if log is None else log.high_watermark,
            log_start_offset=-1 if log is None else log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )


def handle(context: BrokerContext, request: Request, message: FetchRequest) -> FetchResponse | None:
    """Answer at once if there is enough, something is wrong or the client does not want to wait."""
    if request.version >= 13 and any(topic.topic_id == ZERO_TOPIC_ID for topic in message.topics):
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        session = context.fetch_sessions.find(request.connection, message, request.version)
    except Refused as refused:
        return FetchResponse(error_code=refused.code)
    if session is not None:
        message.topics = session.topics()

    def answer_of(full: FetchResponse) -> FetchResponse:
        return full if session is None else session.reduce(full)

    reading = _Reading(context, message)
    response = reading.read()
    if reading.is_enough or message.max_wait_ms <= 0 or not reading.logs:
        return answer_of(response)

    def complete(is_over: bool) -> bool:
        if not request.is_open:
            return True
        again = _Reading(context, message)
        later = again.read()
        if not (is_over or again.is_enough):
            return False
        request.answer(answer_of(later))
        return True

    parked = context.purgatory.park(reading.logs, max_wait_ms=message.max_wait_ms, complete=complete)
    request.on_abandon = parked.cancel
    return None
