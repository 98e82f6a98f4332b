"""The answers to fetches: records, ends of logs, errors, other replicas, truncated logs.

Laws: an answer has no effect on a partition that has a newer reading or another position by now. Records are passed on
as slices of the answer, without a copy, up to the end of the last whole batch.
Source: Kafka's Fetch API; KIP-320 (a truncated log is found by the epoch of the last record, which each fetch names),
KIP-392 (preferred replica).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kohort.client.actions import Lane
from kohort.client.application_events import Chunk, Watermarks, WatermarksSeen
from kohort.client.cluster import Cluster
from kohort.client.fetch.fetch_targets import Fetch
from kohort.client.fetch.partition_state import Reading, Readings
from kohort.client.refusals import refused
from kohort.client.requests import Requests
from kohort.client.retry import Backoff
from kohort.errors import CorruptRecordError, ErrorCode
from kohort.ids import TopicPartition
from kohort.records.header import check_batch, parse_header
from kohort.wire.messages.fetch import FetchResponse, PartitionData

#: The start of a batch of format 2: base offset, length, leader epoch; further behind its last offset's delta.
_BATCH_START: Final = Struct(">qii")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
#: Answers in a row without a whole batch that prove damage: a broker sends the first batch whole, however large.
_TORN_ANSWERS: Final = 5
_LENGTH_END: Final = 12


class Held(NamedTuple):
    """The data of an answer that stays in memory."""

    #: Memory that stays in use until its last record is taken.
    pinned_bytes: int
    #: partition -> bytes of its piece; no zeros.
    pieces: dict[TopicPartition, int]


class FetchAnswers:
    """Changes the readings by the brokers' answers.

    Args:
        requests: takes deliveries to the application.
        cluster: the brokers and the leaders.
        readings: of all partitions.
        retry: pauses after an error.
        preference_ms: how long a replica that the leader has named is preferred.
    """

    def __init__(
        self, requests: Requests, cluster: Cluster, readings: Readings, *, retry: Backoff, preference_ms: int
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._readings = readings
        self._retry = retry
        self._preference_ms = preference_ms

    def take(self, fetch: Fetch, response: FetchResponse, now_ms: int) -> Held:
        """Take in a good answer; return the data that is held from now on."""
        seen: dict[TopicPartition, Watermarks] = {}
        chunks: list[Chunk] = []
        for topic in response.responses:
            name = topic.topic or fetch.names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                asked = fetch.asked.get(TopicPartition(name, data.partition_index))
                # A seek, a reset or another fetch may have moved the reading since.
                if asked is None or asked.reading.is_over or asked.reading.offset != asked.entry.fetch_offset:
                    continue
                if data.error_code:
                    self._on_error(fetch, asked.reading, ErrorCode.of(data.error_code), now_ms)
                    continue
                # A good answer ends an earlier refusal.
                self._readings.accept(asked.reading)
                ends = Watermarks(data.log_start_offset, data.last_stable_offset, data.high_watermark)
                if ends != asked.reading.watermarks and data.high_watermark >= 0:
                    asked.reading.watermarks = seen[asked.reading.partition] = ends
                chunk = self._on_data(fetch, asked.reading, data, now_ms)
                if chunk is not None:
                    chunks.append(chunk)
        if seen:
            self._requests.deliver(WatermarksSeen(seen=seen))
        for chunk in chunks:
            self._requests.deliver(chunk)
        # Mostly one object, the frame that all slices of the answer refer to.
        pinned = {id(chunk.records.obj): memoryview(chunk.records.obj).nbytes for chunk in chunks}
        return Held(sum(pinned.values()), {chunk.partition: chunk.size_bytes for chunk in chunks})

    def _on_data(self, fetch: Fetch, reading: Reading, data: PartitionData, now_ms: int) -> Chunk | None:
        """Take in one partition's part of an answer; return the application's records of it, if any."""
        assert reading.offset is not None
        if data.preferred_read_replica >= 0:
            reading.preferred_node = data.preferred_read_replica
            reading.preferred_until_ms = now_ms + self._preference_ms
            self._readings.touch(reading)
        if data.diverging_epoch.end_offset >= 0:
            self._on_divergence(reading, data)
            return None
        if data.records is None or len(data.records) == 0:
            # A partition that was asked for by the short fetch waits in the next long fetch.
            reading.is_waiting, reading.attempts = fetch.lane is Lane.FETCH_AT_ONCE, 0
            return None
        assert isinstance(data.records, memoryview), "records that were decoded are a slice of their response"
        end = end_of(data.records, reading.offset)
        self._readings.touch(reading)
        if end is None or end.next_offset <= reading.offset:
            self._on_nothing_whole(reading, now_ms)
            return None
        reading.attempts = 0
        chunk = Chunk(
            partition=reading.partition,
            fence=reading.fence,
            offset=reading.offset,
            next_offset=end.next_offset,
            records=data.records[: end.size_bytes],
            size_bytes=end.size_bytes,
            aborted=[(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()],
            leader_epoch=end.leader_epoch,
        )
        reading.offset, reading.offset_epoch = end.next_offset, end.leader_epoch
        return chunk

    def _on_nothing_whole(self, reading: Reading, now_ms: int) -> None:
        """Pause a partition after an answer without a whole batch; report damage after several in a row."""
        reading.not_before_ms = now_ms + max(1, self._retry.delay_ms(reading.attempts))
        reading.attempts += 1
        if reading.attempts >= _TORN_ANSWERS:
            text = (
                f"{reading.partition} cannot be read at offset {reading.offset}: {_TORN_ANSWERS} answers in a row had "
                "no whole batch there, so its length is damaged in the broker's log; seek behind it to go on"
            )
            error = CorruptRecordError(text, partition=reading.partition, offset=reading.offset)
            self._readings.stick(reading, error)

    def _on_divergence(self, reading: Reading, data: PartitionData) -> None:
        was, now = reading.offset, data.diverging_epoch
        if was is not None and now.end_offset < was:
            if self._readings.truncate(reading, now.end_offset, now.epoch):
                self._requests.warn(
                    f"the log of {reading.partition} was cut at offset {now.end_offset}, before the position {was}: "
                    "reading goes on there"
                )
        else:
            # Only the epoch is gone: no record was written under it before this position.
            reading.offset_epoch = now.epoch
            self._readings.touch(reading)

    def _on_error(self, fetch: Fetch, reading: Reading, code: ErrorCode, now_ms: int) -> None:
        # KIP-392: after an error the leader is asked next.
        reading.preferred_node = -1
        self._readings.rest(reading, now_ms)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and fetch.source.endpoint != self._cluster.leader_of(
            reading.partition
        ):
            # A replica that lags behind may lack an offset. The leader is asked next.
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._readings.reset(reading, f"offset {reading.offset} of {reading.partition} does not exist (any more)")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            # Java's consumer stops, too: damage stays, whichever client asks again.
            text = (
                f"{reading.partition} cannot be read at offset {reading.offset}: the records there are damaged in the "
                "broker's log, which says where they end; seek behind them to go on"
            )
            error = CorruptRecordError(text, partition=reading.partition, offset=reading.offset)
            self._readings.stick(reading, error)
        elif code.invalidates_metadata:
            self._cluster.refresh(now_ms)
        elif not code.retriable:
            during = f"reading {reading.partition}"
            self._readings.refuse(reading, refused(code, during=during, operation="read", name=reading.partition.topic))


class End(NamedTuple):
    """The end of the whole batches in an answer; a broker cuts the last batch at the limit of bytes."""

    next_offset: int
    size_bytes: int
    #: Leader epoch of the last batch (KIP-320).
    leader_epoch: int


def end_of(records: memoryview, offset: int) -> End | None:
    """Find the end of the last whole batch; `None`: there is none. `offset` is the one that was asked for."""
    position, size = 0, len(records)
    last: int | None = None
    while size - position > _LAST_DELTA_AT + _LAST_DELTA.size:
        _, length, _ = _BATCH_START.unpack_from(records, position)
        if length < _LAST_DELTA_AT or position + _LENGTH_END + length > size:
            break
        last, position = position, position + _LENGTH_END + length
    if last is None:
        return None
    base_offset, _, leader_epoch = _BATCH_START.unpack_from(records, last)
    (last_delta,) = _LAST_DELTA.unpack_from(records, last + _LAST_DELTA_AT)
    next_offset = base_offset + last_delta + 1
    if next_offset <= offset and _is_damaged(records, last):
        # The length may be all that is right. The decoder reports the damage, and where to go on.
        next_offset = offset + 1
    return End(next_offset, position, leader_epoch)


def _is_damaged(records: memoryview, position: int) -> bool:
    try:
        check_batch(records, position, parse_header(records, position))
    except CorruptRecordError:
        return True
    return False
