"""Sends fetches on its own, as far as the buffer has room: the background half of fetching.

Laws: a partition that can be read is asked for within one round trip of its broker, whatever other partitions, brokers
and the application do with theirs. So one long fetch per broker is under way, and beside it one that does not wait, for
what was not ready when the long one went out; where that one finds nothing, the partition waits for the next long one.
Each broker has its share of the buffer, and keeps some of it for the fetch beside; paused data gives way. Data of an
earlier reading of a partition is dropped; a fetch that serves no reading any more is broken off.
Source: the consumer threading refactor (CTR): FetchSender; Kafka's Fetch API without sessions (KIP-227 makes them
optional), KIP-320 (leader epochs), KIP-392 (preferred replica), KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from kohort.client.actions import Disconnect, Endpoint, Lane
from kohort.client.cluster import Cluster
from kohort.client.consumer.core.exchange import Chunk, Fence, GiveWay, Watermarks, WatermarksSeen
from kohort.client.consumer.core.readings import Reading, Readings
from kohort.client.fetch.buffer import FetchBuffer
from kohort.client.options import ConsumerSettings
from kohort.client.requests import Answer, Requests, message_of
from kohort.client.retry import Backoff
from kohort.errors import BrokerError, ErrorCode, KohortError
from kohort.ids import ZERO_TOPIC_ID, TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

#: From the next version on topics go by id only.
_LAST_BY_NAME: Final = 12
#: Base offset and length in front, and the offset delta of the last record, of a batch of any magic from 2 on.
_BATCH_START: Final = Struct(">qi")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
_LENGTH_END: Final = 12


@dataclass(slots=True, kw_only=True, eq=False)
class _Fetch:
    to: Endpoint
    lane: Lane
    token: int
    reserved_bytes: int
    #: Reading under way of each partition, by its fence.
    fences: dict[TopicPartition, Fence]
    #: topic id -> name, of the topics in the request.
    names: dict[bytes, str]


@dataclass(slots=True, kw_only=True, eq=False)
class _Broker:
    """What is to be had from one broker."""

    #: Bytes of its share that are in use.
    used_bytes: int
    #: Readings that no fetch is under way for, the one that has waited longest first.
    unasked: list[Reading] = field(default_factory=list)


class FetchSender:
    """Decides which partitions to fetch from which broker, when.

    Args:
        on_trouble: told of a partition that cannot be read, and of why.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        readings: Readings,
        settings: ConsumerSettings,
        *,
        retry: Backoff,
        on_trouble: Callable[[TopicPartition, KohortError], None],
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._readings = readings
        self._settings = settings
        self._retry = retry
        self._on_trouble = on_trouble
        self.buffer = FetchBuffer(limit_bytes=settings.fetch_buffer_bytes)
        self._under_way: dict[tuple[Endpoint, Lane], _Fetch] = {}
        #: Broker -> number of the fetch that went to it last: who has waited longest comes first.
        self._last_turn: dict[Endpoint, int] = {}
        #: Broker -> instant before which it is not asked: it could not be reached.
        self._not_before_ms: dict[Endpoint, int] = {}
        self._attempts: dict[Endpoint, int] = {}

    def next_deadline(self) -> int | None:
        """When a partition or broker may be asked again."""
        brokers = self._brokers()
        waiting = [
            max(reading.not_before_ms, self._not_before_ms.get(node, 0))
            for node, broker in brokers.items()
            if self._room_for(broker, len(brokers)) > 0
            for reading in self._askable(node, broker)
        ]
        return min(waiting, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send what can be sent."""
        for fetch in list(self._under_way.values()):
            if not any(self._readings.current(each, fence) for each, fence in fetch.fences.items()):
                self._break_off(fetch)
        if any(_is_ready(each, now_ms) and self._node_of(each) is None for each in self._readings.all()):
            self._cluster.refresh_soon(now_ms)
        brokers = self._brokers()
        missing = 0
        for node in sorted(brokers, key=lambda node: self._last_turn.get(node, 0)):
            broker = brokers[node]
            due = [each for each in self._askable(node, broker) if _is_ready(each, now_ms)]
            if not due or self._not_before_ms.get(node, 0) > now_ms:
                continue
            size = self._room_for(broker, len(brokers))
            if size > 0:
                self._send(node, due, size)
            elif self._share_left(broker, len(brokers)) > 0:
                missing += self._least(len(brokers))
        if missing:
            self._make_room(missing)

    def _brokers(self) -> dict[Endpoint, _Broker]:
        """Everyone that something could be read from, whether or not it is asked already."""
        brokers: dict[Endpoint, _Broker] = {}
        for reading in self._readings.all():
            node = self._node_of(reading) if _is_ready(reading) else None
            if node is None:
                continue
            broker = brokers.get(node)
            if broker is None:
                broker = brokers[node] = _Broker(used_bytes=self.buffer.reserved(node))
            broker.used_bytes += self.buffer.held(reading.partition)
            if reading.asked_of != node:
                broker.unasked.append(reading)
        return brokers

    def _askable(self, node: Endpoint, broker: _Broker) -> list[Reading]:
        """The readings that a fetch could go out for over a lane that is free."""
        if (node, Lane.FETCH) not in self._under_way:
            return broker.unasked
        if (node, Lane.FETCH_AT_ONCE) not in self._under_way:
            return [reading for reading in broker.unasked if not reading.is_waiting]
        return []

    # -- room -------------------------------------------------------------------------------------------------------

    def _least(self, brokers: int) -> int:
        """Bytes below which a fetch is not worth sending: it would cost more than it brings."""
        settings = self._settings
        quarter = max(1, self.buffer.share(brokers) // 4)
        return min(settings.fetch_max_bytes, settings.max_partition_fetch_bytes, quarter)

    def _share_left(self, broker: _Broker, brokers: int) -> int:
        """What the broker may use of its share; 0 if that is too little."""
        left = self.buffer.share(brokers) - broker.used_bytes
        return left if left >= self._least(brokers) else 0

    def _room_for(self, broker: _Broker, brokers: int) -> int:
        """Most bytes that the broker can be asked for now; 0 if that is too little."""
        size = min(self._share_left(broker, brokers), self.buffer.room)
        return size if size >= self._least(brokers) > 0 else 0

    def _make_room(self, missing: int) -> None:
        """Have paused partitions give up what they hold, those with the most first."""
        paused = [each for each in self._readings.all() if each.is_paused and self.buffer.held(each.partition)]
        paused.sort(key=lambda reading: (not reading.is_giving_way, -self.buffer.held(reading.partition)))
        for reading in paused:
            if missing <= 0:
                break
            missing -= self.buffer.held(reading.partition)
            if not reading.is_giving_way:
                reading.is_giving_way = True
                self._requests.deliver(GiveWay(partition=reading.partition, fence=reading.fence))

    def _node_of(self, reading: Reading) -> Endpoint | None:
        preferred = self._cluster.brokers.get(reading.preferred_node)
        return preferred if preferred is not None else self._cluster.leader_of(reading.partition)

    def _break_off(self, fetch: _Fetch) -> None:
        # The broker may hold it for fetch.max.wait.ms, and would serve nothing else on that connection meanwhile.
        self._requests.forget(fetch.token)
        self._requests.add(Disconnect(to=fetch.to, lane=fetch.lane))
        self._end(fetch, held={})

    def _end(self, fetch: _Fetch, *, held: Mapping[TopicPartition, int]) -> None:
        del self._under_way[fetch.to, fetch.lane]
        for partition, fence in fetch.fences.items():
            reading = self._readings.current(partition, fence)
            if reading is not None and reading.asked_of == fetch.to:
                reading.asked_of = None
        self.buffer.settle(fetch.to, reserved=fetch.reserved_bytes, held=held)

    # -- the request ------------------------------------------------------------------------------------------------

    def _send(self, node: Endpoint, readings: list[Reading], room: int) -> None:
        settings = self._settings
        lane = Lane.FETCH_AT_ONCE if (node, Lane.FETCH) in self._under_way else Lane.FETCH
        wanted = min(settings.fetch_max_bytes, len(readings) * settings.max_partition_fetch_bytes)
        if lane is Lane.FETCH and wanted > room * 3 // 4:
            # The rest is for partitions that become ready while this one is under way.
            wanted = max(1, room * 3 // 4)
        size = min(wanted, room)
        topics: dict[str, FetchTopic] = {}
        for reading in readings:
            name = reading.partition.topic
            if name not in topics:
                topics[name] = FetchTopic(topic=name, topic_id=self._cluster.topic_id(name))
            topics[name].partitions.append(self._entry(reading))
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms if lane is Lane.FETCH else 0,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=size,
            isolation_level=1 if settings.is_read_committed else 0,
            topics=list(topics.values()),
            rack_id=settings.client_rack,
        )
        has_ids = all(topic.topic_id != ZERO_TOPIC_ID for topic in topics.values())
        token = self._requests.send(
            node,
            lane,
            request,
            lambda answer, now_ms: self._on_answer(fetch, answer, now_ms),
            max_version=None if has_ids else _LAST_BY_NAME,
            timeout_ms=request.max_wait_ms + self._requests.request_timeout_ms,
        )
        fetch = _Fetch(
            to=node,
            lane=lane,
            token=token,
            reserved_bytes=size,
            fences={reading.partition: reading.fence for reading in readings},
            names={bytes(topic.topic_id): topic.topic for topic in topics.values()},
        )
        self._under_way[node, lane] = fetch
        self._last_turn[node] = token
        self.buffer.reserve(node, size)
        for reading in readings:
            reading.asked_of, reading.is_waiting = node, False

    def _entry(self, reading: Reading) -> FetchPartition:
        info = self._cluster.partition(reading.partition)
        assert reading.offset is not None
        return FetchPartition(
            partition=reading.partition.partition,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            fetch_offset=reading.offset,
            partition_max_bytes=self._settings.max_partition_fetch_bytes,
        )

    # -- the answer -------------------------------------------------------------------------------------------------

    def _on_answer(self, fetch: _Fetch, answer: Answer, now_ms: int) -> None:
        response = message_of(answer, FetchResponse)
        code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code)
        if response is None or code is not ErrorCode.NONE:
            self._end(fetch, held={})
            attempt = self._attempts.get(fetch.to, 0)
            self._attempts[fetch.to] = attempt + 1
            self._not_before_ms[fetch.to] = now_ms + max(1, self._retry.delay_ms(attempt))
            for reading in self._readings.all():
                if reading.partition in fetch.fences:
                    reading.preferred_node = -1
            self._cluster.refresh(now_ms)
            return
        self._attempts.pop(fetch.to, None)
        self._note_watermarks(fetch, response)
        held: dict[TopicPartition, int] = {}
        for topic in response.responses:
            name = topic.topic or fetch.names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                size_bytes = self._on_partition(fetch, partition, data, now_ms)
                if size_bytes:
                    held[partition] = held.get(partition, 0) + size_bytes
        self._end(fetch, held=held)

    def _note_watermarks(self, fetch: _Fetch, response: FetchResponse) -> None:
        seen: dict[TopicPartition, Watermarks] = {}
        for topic in response.responses:
            name = topic.topic or fetch.names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                fence = fetch.fences.get(partition)
                reading = None if fence is None else self._readings.current(partition, fence)
                if reading is None or data.error_code or data.high_watermark < 0:
                    continue
                now = Watermarks(data.log_start_offset, data.last_stable_offset, data.high_watermark)
                if now != reading.watermarks:
                    reading.watermarks = seen[partition] = now
        if seen:
            self._requests.deliver(WatermarksSeen(seen=seen))

    def _on_partition(self, fetch: _Fetch, partition: TopicPartition, data: PartitionData, now_ms: int) -> int:
        """Take in one partition's answer; returns the bytes that are held from now on."""
        fence = fetch.fences.get(partition)
        reading = None if fence is None else self._readings.current(partition, fence)
        if reading is None or reading.offset is None:
            return 0
        code = ErrorCode.of(data.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(reading, code, now_ms)
            return 0
        reading.attempts = 0
        if data.preferred_read_replica >= 0:
            reading.preferred_node = data.preferred_read_replica
        if data.records is None or len(data.records) == 0:
            reading.is_waiting = fetch.lane is Lane.FETCH_AT_ONCE
            return 0
        assert isinstance(data.records, memoryview), "records that were decoded are a slice of their response"
        end = end_of(data.records)
        if end is None or end.next_offset <= reading.offset:
            # Not even one whole batch, or nothing new: nothing is lost by asking again, a little later.
            reading.not_before_ms = now_ms + max(1, self._retry.delay_ms(0))
            return 0
        self._requests.deliver(
            Chunk(
                partition=partition,
                fence=reading.fence,
                offset=reading.offset,
                next_offset=end.next_offset,
                records=data.records[: end.size_bytes],
                size_bytes=end.size_bytes,
                aborted=[(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()],
            )
        )
        reading.offset = end.next_offset
        self._readings.to_back(reading)
        return end.size_bytes

    def _on_error(self, reading: Reading, code: ErrorCode, now_ms: int) -> None:
        reading.preferred_node = -1
        reading.not_before_ms = now_ms + max(1, self._retry.delay_ms(reading.attempts))
        reading.attempts += 1
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._readings.reset(reading, f"offset {reading.offset} of {reading.partition} does not exist (any more)")
        elif code.invalidates_metadata:
            self._cluster.refresh(now_ms)
        elif not code.retriable:
            reading.is_stuck = True
            self._on_trouble(reading.partition, BrokerError(code, during=f"reading {reading.partition}"))


class End(NamedTuple):
    """Where the whole batches of an answer end; a broker cuts the last one where the limit of bytes is."""

    next_offset: int
    size_bytes: int


def end_of(records: memoryview) -> End | None:
    """The end of the last whole batch; `None` if there is no whole batch."""
    position, size = 0, len(records)
    last: int | None = None
    while size - position > _LAST_DELTA_AT + _LAST_DELTA.size:
        _, length = _BATCH_START.unpack_from(records, position)
        if length < _LAST_DELTA_AT or position + _LENGTH_END + length > size:
            break
        last, position = position, position + _LENGTH_END + length
    if last is None:
        return None
    base_offset, _ = _BATCH_START.unpack_from(records, last)
    (last_delta,) = _LAST_DELTA.unpack_from(records, last + _LAST_DELTA_AT)
    return End(base_offset + last_delta + 1, position)


def _is_ready(reading: Reading, now_ms: int | None = None) -> bool:
    """Whether it can be read, now if that is given or later."""
    if reading.offset is None or reading.is_paused or reading.is_stuck:
        return False
    return now_ms is None or reading.not_before_ms <= now_ms
