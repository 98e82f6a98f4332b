"""A day of a broker whose disk fails at one operation: what clients were told, and whether it is so in the end.

The broker is whole but for its sockets: requests go through its connections, syncs, compaction and removals have their
threads. The day makes topics, grows, alters and deletes one, produces over many segments, commits, compacts, lets old
segments go, deletes records, stops and starts. Whatever is refused is asked for again once the disk is well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kohort.broker.groups.shard_log import UnservedShard
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server
from kohort.errors import ErrorCode, StorageError
from kohort.records.batch import build_batch, iterate_records
from kohort.storage.files.fs import DiskFailedError
from kohort.testing import FaultyFileSystem
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from support.dialogues.wired_connection import WiredConnection

#: What a client is told of a disk that takes nothing: it asks again.
REFUSALS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR})
CONFIG = {
    # Nearly every batch begins a file.
    "log.segment.bytes": 150,
    "offsets.topic.num.partitions": 1,
    "log.cleaner.backoff.ms": 3_600_000,
    "log.retention.check.interval.ms": 3_600_000,
    "journal.ring.rows": 0,
}
PATIENCE_S = 10.0
UNANSWERED_S = 0.1


class Day:
    """One broker after another on a disk, and what their clients were told."""

    def __init__(self, disk: FaultyFileSystem) -> None:
        self.disk = disk
        #: Topic -> values of partition 0 that were acknowledged, by offset.
        self.acknowledged: dict[str, dict[int, bytes]] = {}
        #: Topic -> offset below which nothing has to be there.
        self.start: dict[str, int] = {}
        self.committed: int | None = None
        self.producer_ids: list[int] = []
        self.configs: dict[str, str] = {}
        #: What was refused, and how often brokers had to end.
        self.refusals: list[str] = []
        self.ends = 0
        #: Before the disk is well, whatever was wrong.
        self.operations = 0
        self._batches = 0
        self._server: Server | None = None
        self._wired: WiredConnection | None = None

    async def live(self) -> None:
        """All of the day; in the end the disk is well, and everything is looked at after a stop and after a crash."""
        try:
            await self._live()
        finally:
            if self._server is not None:
                await self._end()

    async def _live(self) -> None:
        for step in (
            self._begin,
            self._create("logs", 1),
            self._create("keys", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
            self._create("gone", 2),
            *[self._produce("logs") for _ in range(4)],
            *[self._produce("keys") for _ in range(4)],
            self._produce("gone"),
            *[self._commit(offset) for offset in range(1, 5)],
            self._take_producer_id,
            self._alter("logs", "retention.bytes", "150"),
            self._look_after,
            self._grow("keys", 2),
            self._delete("gone"),
            self._delete_records("keys", 1),
            self._produce("logs"),
            self._stop,
            self._begin,
            self._produce("keys"),
            self._create("gone", 1),
            self._stop,
        ):
            await self._insist(step)
        self.operations = self.disk.operations
        self.disk.heal()
        for end in (self.disk.restart, self.disk.crash):
            end()
            await self._begin()
            await self._check()
            await self._stop()

    async def _insist(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do it, and again with a disk that is well if it was refused."""
        for _ in range(3):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._ensure_running(step)
                    await step()
                return
            except Refusal as why:
                self.refusals.append(str(why))
                self.disk.heal()
                if self.disk.health.failure is not None:
                    await self._notice_end()
                elif self._has_unread():
                    # The next start reads it.
                    await self._end()
            except StorageError as why:
                # The start was refused, or the broker has ended: another process.
                self.refusals.append(str(why))
                await self._end()
        raise AssertionError(f"a disk that is well still refuses {step}: {self.refusals}")

    def _has_unread(self) -> bool:
        """The start could not read a partition, or the groups in one."""
        context = None if self._server is None else self._server._context
        if context is None:
            return False
        homes = self._server.runtime._shard_logs  # type: ignore[union-attr]
        return bool(context.store.recovery.offline) or any(isinstance(home.shard, UnservedShard) for home in homes)

    async def _ensure_running(self, step: Callable[[], Awaitable[None]]) -> None:
        if self._server is None and step not in (self._begin, self._stop):
            await self._begin()

    async def _begin(self) -> None:
        if self._server is not None:
            return
        server = Server(BrokerSettings.of(CONFIG, port=0, data_dir="/data"), fs=self.disk)
        self._wired = WiredConnection(server.open())
        self._server = server

    async def _stop(self) -> None:
        server, self._server, self._wired = self._server, None, None
        if server is not None:
            await server.stop()
            if server.failure is not None:
                raise server.failure
        self.disk.restart()

    async def _notice_end(self) -> None:
        """The broker stops by itself when its disk has failed, whoever met it."""
        assert self._server is not None
        try:
            await self._server.wait()
        except DiskFailedError:
            await self._end()

    async def _end(self) -> None:
        """The process is gone, whatever it was doing."""
        server, self._server, self._wired = self._server, None, None
        self.ends += 1
        self.disk.heal()
        if server is not None:
            context = server._context
            if context is not None:
                await server.stop()
        self.disk.restart()

    async def _ask(self, key: ApiKey, version: int, message: Any) -> Any:
        """An answer, or what ended the broker."""
        assert self._server is not None and self._wired is not None
        asked = asyncio.create_task(self._wired.ask(key, version, message))
        ended = asyncio.create_task(self._server.wait())
        both = [asked, ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED, timeout=UNANSWERED_S)
        if not asked.done():
            # A sync that cannot begin is tried again, and answers nobody before.
            self.disk.heal()
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            ended.result()
        ended.cancel()
        return await asked

    def _create(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> Step:
        async def step() -> None:
            row = CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
            )
            answer = await self._ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[row]))
            # Whoever was refused cannot know: Kafka's clients take that for success when they come again.
            took(answer.topics, but_for=ErrorCode.TOPIC_ALREADY_EXISTS)
            self.acknowledged.setdefault(topic, {})
            self.start.setdefault(topic, 0)

        return step

    def _produce(self, topic: str) -> Step:
        self._batches += 1
        value = f"batch {self._batches}".encode()

        async def step() -> None:
            records = bytearray(build_batch([(b"key", value, 1_000, ()), (b"other", value, 1_000, ())]))
            rows = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
            answer = await self._ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=rows))
            (row,) = took(answer.responses[0].partition_responses)
            self.acknowledged[topic] |= {row.base_offset: value, row.base_offset + 1: value}

        return step

    def _commit(self, offset: int) -> Step:
        async def step() -> None:
            row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topics = [OffsetCommitRequestTopic(name="logs", partitions=[row])]
            request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
            answer = await self._ask(ApiKey.OFFSET_COMMIT, 8, request)
            took(answer.topics[0].partitions)
            self.committed = offset

        return step

    async def _take_producer_id(self) -> None:
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        took([answer])
        assert answer.producer_id not in self.producer_ids
        self.producer_ids.append(answer.producer_id)

    def _alter(self, topic: str, name: str, value: str) -> Step:
        async def step() -> None:
            rows = [AlterableConfig(name=name, config_operation=0, value=value)]
            resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=rows)
            request = IncrementalAlterConfigsRequest(resources=[resource])
            took((await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses)
            self.configs[name] = value

        return step

    def _grow(self, topic: str, count: int) -> Step:
        async def step() -> None:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=60_000
            )
            answer = await self._ask(ApiKey.CREATE_PARTITIONS, 2, request)
            took(answer.results, but_for=ErrorCode.INVALID_PARTITIONS)

        return step

    def _delete(self, topic: str) -> Step:
        async def step() -> None:
            request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000)
            answer = await self._ask(ApiKey.DELETE_TOPICS, 5, request)
            took(answer.responses, but_for=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.acknowledged.pop(topic, None)
            self.start.pop(topic, None)

        return step

    def _delete_records(self, topic: str, offset: int) -> Step:
        async def step() -> None:
            self.start[topic] = max(self.start[topic], offset)
            row = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
            answer = await self._ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[row], timeout_ms=1_000))
            took(answer.topics[0].partitions, but_for=ErrorCode.POLICY_VIOLATION)

        return step

    async def _look_after(self) -> None:
        """One round of retention and of compaction, whatever comes of them."""
        server = self._server
        assert server is not None and server._compactor is not None
        for each in server._retention:
            each._begin()
        compactor = server._compactor
        for _ in range(3):
            await compactor._is_idle.wait()
            if compactor._timer is not None:
                compactor._timer.cancel()
            compactor._look()
            await compactor._is_idle.wait()
        if server.failure is not None:
            raise server.failure

    async def _check(self) -> None:
        """All that clients were told is so."""
        assert self._server is not None
        store = self._server._context.store  # type: ignore[union-attr]
        assert set(self.acknowledged) <= set(store.topics)
        for name, value in self.configs.items():
            assert store.topics["logs"].configs[name] == value
        for topic, acknowledged in self.acknowledged.items():
            found = await self._read(topic)
            newest = max(acknowledged, default=-1)
            for offset, value in acknowledged.items():
                # Retention and compaction have left the newest batch.
                is_due = offset >= self.start[topic] and (topic == "gone" or offset >= newest - 1)
                assert found.get(offset, None if is_due else value) == value, (topic, offset, sorted(found))
        if self.committed is not None:
            group = OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="logs", partition_indexes=[0])]
            )
            answer = await self._ask(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[group]))
            assert answer.groups[0].topics[0].partitions[0].committed_offset == self.committed
        await self._take_producer_id()

    async def _read(self, topic: str) -> dict[int, bytes | None]:
        assert self._server is not None
        log = self._server._context.store.topics[topic].partitions[0]  # type: ignore[union-attr]
        found: dict[int, bytes | None] = {}
        offset = log.log_start_offset
        while offset < log.high_watermark:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic=topic, partitions=[partition])]
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
            (row,) = took((await self._ask(ApiKey.FETCH, 12, request)).responses[0].partitions)
            records = list(iterate_records(row.records))
            assert records, "what is visible can be read"
            found |= {record.offset: record.value for record in records}
            offset = records[-1].offset + 1
        return found


Step = Callable[[], Awaitable[None]]


class Refusal(Exception):
    """A client was told to ask again."""


def took(rows: Sequence[Any], *, but_for: ErrorCode = ErrorCode.NONE) -> Sequence[Any]:
    """Rows of an answer without an error, or with one that says that it is done already."""
    for row in rows:
        code = ErrorCode(row.error_code)
        if code in REFUSALS:
            raise Refusal(f"{code.name}: {getattr(row, 'error_message', None)}")
        assert code in (ErrorCode.NONE, but_for), (code, row)
    return rows
