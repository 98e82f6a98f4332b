"""`timeout_ms` of requests that change topics: what is told when it is over, and what becomes of the change."""

from __future__ import annotations

import asyncio
import threading

from kohort.broker.durability import DiskFull
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.metadata import Cluster
from kohort.broker.topics.topic_operations import Outcome, Wanted, ask_within
from kohort.errors import ErrorCode
from kohort.storage.store import Store
from kohort.testing.clock import VirtualClock
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient

BEGUN = "the change is not in force after 1 ms; it has begun, and goes on"
NOT_BEGUN = "the change is not in force after 1 ms; it had not begun, and is not done"
LONG_MS = 3_600_000


class Gated(MemoryFileSystem):
    """A disk whose directories are synced only when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def sync_directory(self, path: str) -> None:
        assert self.gate.wait(10)
        super().sync_directory(path)


def _fail(error: Exception) -> None:
    raise AssertionError("the disk takes everything") from error


class Bench:
    """Topics on a disk that can be held up, on a running loop."""

    def __init__(self, fs: Gated) -> None:
        self.cluster = Cluster(Store.open("/data", fs=fs), BrokerSettings.of({}))
        self.loop = asyncio.get_running_loop()
        self.cluster.work.begin(self.loop, is_beside=True, on_failure=_fail)
        self.disk_full = DiskFull(VirtualClock())
        self.told: dict[str, str | None] = {}
        self._all_told = asyncio.Event()

    def creation(self, name: str) -> Wanted:
        def done(why: Outcome) -> None:
            assert name not in self.told, "told twice"
            self.told[name] = why and str(why)
            self._all_told.set()

        return self.cluster.creation(name, lambda: (1, {}), done)

    def ask(self, timeout_ms: int, *names: str) -> None:
        wanted = [self.creation(name) for name in names]
        ask_within(self.loop, self.cluster.work, wanted, timeout_ms=timeout_ms, on_refusal=self.disk_full.refused)

    async def hear(self, count: int) -> None:
        while len(self.told) < count:
            self._all_told.clear()
            await asyncio.wait_for(self._all_told.wait(), 10)


def test_what_has_begun_goes_on_and_what_has_not_is_never_done() -> None:
    fs = Gated()

    async def scene() -> None:
        bench = Bench(fs)
        fs.gate.clear()
        bench.ask(1, "first")
        bench.ask(1, "second")
        bench.ask(LONG_MS, "third")
        await bench.hear(2)
        assert bench.told == {"first": BEGUN, "second": NOT_BEGUN}
        fs.gate.set()
        await bench.cluster.work.drain()
        assert bench.told == {"first": BEGUN, "second": NOT_BEGUN, "third": None}
        assert sorted(bench.cluster.topics) == ["first", "third"]
        bench.cluster.work.stop()

    asyncio.run(scene())


def test_what_is_in_force_in_time_is_told_once() -> None:
    async def scene() -> None:
        bench = Bench(Gated())
        bench.ask(LONG_MS, "a", "b")
        bench.ask(LONG_MS)
        await bench.cluster.work.drain()
        assert bench.told == {"a": None, "b": None}
        bench.cluster.work.stop()

    asyncio.run(scene())


def test_without_any_time_nothing_is_done(client: RawClient) -> None:
    """As with Apache Kafka since there is no ZooKeeper any more."""
    client.create_topic("there", 2)
    late = ErrorCode.REQUEST_TIMED_OUT
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("new", "there")]
    created = client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=new, timeout_ms=0)).topics
    assert [row.error_code for row in created] == [late, late]
    assert created[0].error_message == NOT_BEGUN.replace("1 ms", "0 ms")
    more = [CreatePartitionsTopic(name="there", count=5, assignments=None)]
    grown = client.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=more, timeout_ms=-1)).results
    assert [row.error_code for row in grown] == [late]
    request = DeleteTopicsRequest(topic_names=["there", "unknown"], timeout_ms=0)
    deleted = client.ask(ApiKey.DELETE_TOPICS, 5, request).responses
    assert [row.error_code for row in deleted] == [late, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    shown = client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None)).topics
    assert {row.name: len(row.partitions) for row in shown if not row.is_internal} == {"there": 2}


def test_what_is_only_tried_needs_no_time(client: RawClient) -> None:
    new = [CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    request = CreateTopicsRequest(topics=new, timeout_ms=0, validate_only=True)
    assert [row.error_code for row in client.ask(ApiKey.CREATE_TOPICS, 5, request).topics] == [0]
