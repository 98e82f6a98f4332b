"""Sends fetches on its own, as far as the buffer has room: the background half of fetching.

Laws: one fetch per broker is under way; the next goes out as soon as it is answered and there is room, whether or not
the application has taken anything; data of an earlier reading of a partition is dropped; a fetch that serves no reading
any more is broken off.
Source: the consumer threading refactor (CTR): FetchSender; Kafka's Fetch API without sessions (KIP-227 makes them
optional), KIP-320 (leader epochs), KIP-392 (preferred replica), KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from kohort.client.actions import Disconnect, Endpoint, Lane
from kohort.client.cluster import Cluster
from kohort.client.exchange import Chunk, Fence
from kohort.client.fetch.buffer import FetchBuffer
from kohort.client.options import ConsumerSettings
from kohort.client.positions import Reading, Readings
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
    token: int
    reserved_bytes: int
    #: Reading under way of each partition, by its fence.
    fences: dict[TopicPartition, Fence]
    #: topic id -> name, of the topics in the request.
    names: dict[bytes, str]


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
        self._under_way: dict[Endpoint, _Fetch] = {}
        #: Broker -> instant before which it is not asked: it could not be reached.
        self._not_before_ms: dict[Endpoint, int] = {}
        self._attempts: dict[Endpoint, int] = {}

    def next_deadline(self) -> int | None:
        """When a partition or broker may be asked again."""
        if not self._has_room():
            return None
        waiting = [
            max(reading.not_before_ms, self._not_before_ms.get(node, 0))
            for reading in self._readings.all()
            if _is_ready(reading) and (node := self._node_of(reading)) is not None and node not in self._under_way
        ]
        return min(waiting, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send what can be sent."""
        for fetch in list(self._under_way.values()):
            if not any(self._readings.current(each, fence) for each, fence in fetch.fences.items()):
                self._break_off(fetch)
        by_node: dict[Endpoint, list[Reading]] = {}
        for reading in self._readings.all():
            if not _is_ready(reading) or reading.not_before_ms > now_ms:
                continue
            node = self._node_of(reading)
            if node is None:
                self._cluster.refresh_soon(now_ms)
            elif node not in self._under_way and self._not_before_ms.get(node, 0) <= now_ms:
                by_node.setdefault(node, []).append(reading)
        for node, readings in by_node.items():
            if self._has_room():
                self._send(node, readings)

    def _has_room(self) -> bool:
        # Small fetches would cost more than they bring: wait until a quarter is free.
        limit = self.buffer.limit_bytes
        return limit > 0 and self.buffer.room >= min(self._settings.fetch_max_bytes, max(1, limit // 4))

    def _node_of(self, reading: Reading) -> Endpoint | None:
        preferred = self._cluster.brokers.get(reading.preferred_node)
        return preferred if preferred is not None else self._cluster.leader_of(reading.partition)

    def _break_off(self, fetch: _Fetch) -> None:
        # The broker may hold it for fetch.max.wait.ms, and would serve nothing else on that connection meanwhile.
        self._requests.forget(fetch.token)
        self._requests.add(Disconnect(to=fetch.to, lane=Lane.FETCH))
        self._end(fetch, held=0)

    def _end(self, fetch: _Fetch, *, held: int) -> None:
        del self._under_way[fetch.to]
        self.buffer.settle(reserved=fetch.reserved_bytes, held=held)

    # -- the request ------------------------------------------------------------------------------------------------

    def _send(self, node: Endpoint, readings: list[Reading]) -> None:
        size = min(self._settings.fetch_max_bytes, self.buffer.room)
        topics: dict[str, FetchTopic] = {}
        for reading in readings:
            name = reading.partition.topic
            if name not in topics:
                topics[name] = FetchTopic(topic=name, topic_id=self._cluster.topic_id(name))
            topics[name].partitions.append(self._entry(reading))
        request = FetchRequest(
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=size,
            isolation_level=1 if self._settings.is_read_committed else 0,
            topics=list(topics.values()),
            rack_id=self._settings.client_rack,
        )
        has_ids = all(topic.topic_id != ZERO_TOPIC_ID for topic in topics.values())
        token = self._requests.send(
            node,
            Lane.FETCH,
            request,
            lambda answer, now_ms: self._on_answer(fetch, answer, now_ms),
            max_version=None if has_ids else _LAST_BY_NAME,
            timeout_ms=self._settings.fetch_max_wait_ms + self._requests.request_timeout_ms,
        )
        fetch = _Fetch(
            to=node,
            token=token,
            reserved_bytes=size,
            fences={reading.partition: reading.fence for reading in readings},
            names={bytes(topic.topic_id): topic.topic for topic in topics.values()},
        )
        self._under_way[node] = fetch
        self.buffer.reserve(size)

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
            self._end(fetch, held=0)
            attempt = self._attempts.get(fetch.to, 0)
            self._attempts[fetch.to] = attempt + 1
            self._not_before_ms[fetch.to] = now_ms + max(1, self._retry.delay_ms(attempt))
            for reading in self._readings.all():
                if reading.partition in fetch.fences:
                    reading.preferred_node = -1
            self._cluster.refresh(now_ms)
            return
        self._attempts.pop(fetch.to, None)
        held = 0
        for topic in response.responses:
            name = topic.topic or fetch.names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                held += self._on_partition(fetch, TopicPartition(name, data.partition_index), data, now_ms)
        self._end(fetch, held=held)

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


def _is_ready(reading: Reading) -> bool:
    return reading.offset is not None and not reading.is_paused and not reading.is_stuck
