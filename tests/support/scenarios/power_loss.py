"""A whole broker on a disk that remembers how it was at each operation, and what clients had been promised by then.

One run gives every moment at which the power may go: the disk is copied after each change and inside each sync, before
it has made anything durable. Each copy then loses what was not durable, all of it or by chance some, and is opened
again: whatever was acknowledged when the copy was made has to be there.

Laws: a promise counts from the moment at which its answer is written to the connection. Threads of the broker let the
loop take some turns within each of their operations, as many as a seed says, so that what must wait has the time to
come too early.
Source: requirement B3; SQLite's crash tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from kohort.broker.context import BrokerContext
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server
from kohort.coordinator.records.codec import decode as decode_group_record
from kohort.coordinator.records.types import OffsetCommitted
from kohort.errors import StorageError
from kohort.ids import OFFSETS_TOPIC
from kohort.records.batch import build_batch, iterate_records
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.codec import decode
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey, ResponseHeader, response_class, response_header_version
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import Wire, WiredConnection

DIRECTORY: Final = "/data"
CONFIG: Final[dict[str, object]] = {
    "log.dirs": DIRECTORY,
    "log.cleaner.backoff.ms": 1,
    "log.retention.check.interval.ms": 2,
    "log.flush.offset.checkpoint.interval.ms": 20,
    "offsets.topic.num.partitions": 2,
    "num.partitions": 1,
    "auto.create.topics.enable": False,
}
#: The most turns of the loop within one operation of another thread.
MOST_TURNS: Final = 6
PATIENCE_SECONDS: Final = 10.0
#: Longer than any scenario.
_NEVER_SECONDS: Final = 600.0

_Versions: Final = {
    ApiKey.PRODUCE: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 2,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A record is stored."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """A group has committed; offsets of a group rise."""

    group: str
    topic: str
    offset: int


@dataclass(frozen=True, slots=True)
class Exists:
    """A topic exists, with so many partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Doomed:
    """Somebody has asked for the end of a topic; it may be gone from here on."""

    topic: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A topic does not exist any more."""

    topic: str


Promise = Stored | Committed | Exists | Doomed | Gone


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk at one operation, and how many promises there were."""

    disk: MemoryFileSystem
    promised: int


@dataclass(slots=True)
class Run:
    """What a scenario left."""

    promises: list[Promise] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)


class RememberingDisk(MemoryFileSystem):
    """Copies itself at each step."""

    def __init__(self, run: Run, random: Random) -> None:
        super().__init__(seed=b"power loss")
        self._run: Final = run
        self._random: Final = random
        self._home: Final = threading.current_thread()
        self._loop: Final = asyncio.get_running_loop()

    def step(self) -> None:
        super().step()
        # Others of this process may have switched it on again, such as a broker of an earlier test that was loading.
        gc.disable()
        if threading.current_thread() is not self._home:
            self._take_turns(self._random.randrange(MOST_TURNS))
        self._run.moments.append(Moment(self.copy(), len(self._run.promises)))

    def _take_turns(self, count: int) -> None:
        is_over = threading.Event()

        def take(left: int) -> None:
            if left:
                self._loop.call_soon(take, left - 1)
            else:
                is_over.set()

        with contextlib.suppress(RuntimeError):
            # Closed: nobody is promised anything any more.
            self._loop.call_soon_threadsafe(take, count)
            # A loop that waits for this very thread takes no turns.
            is_over.wait(0.05)


class _DiskServer(Server):
    """A broker on a disk of the test's."""

    def __init__(self, settings: BrokerSettings, disk: MemoryFileSystem) -> None:
        super().__init__(settings)
        self._disk: Final = disk

    def _open_store(self) -> Store:
        return open_store(self._disk, self._settings)


def open_store(disk: MemoryFileSystem, settings: BrokerSettings) -> Store:
    """What a start of the broker reads."""
    return Store.open(DIRECTORY, settings=settings.topic_defaults(), fs=disk)


class _Answers(Wire):
    """Hands each answer to who waits for it, in the moment in which it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Final[dict[int, tuple[ApiKey, Callable[[Any], None]]]] = {}

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        while len(self.written) >= 4 and len(self.written) >= (end := 4 + int.from_bytes(self.written[:4])):
            frame = bytes(self.written[4:end])
            del self.written[:end]
            key, take = self.waiting.pop(int.from_bytes(frame[:4]))
            _, at = decode(ResponseHeader, response_header_version(key, _Versions[key]), frame)
            take(decode(response_class(key), _Versions[key], frame, at)[0])


class Client:
    """Asks the broker and notes what it promises."""

    def __init__(self, context: BrokerContext, run: Run) -> None:
        self._answers: Final = _Answers()
        self._wired: Final = WiredConnection(context, self._answers)
        self._run: Final = run
        self._asked = 0
        #: Numbers make every value another.
        self._sent = 0

    def produce(self, *places: tuple[str, int], key: bytes = b"k", size: int = 40) -> asyncio.Future[None]:
        """A record for each partition, in one request with acks=all."""
        rows: dict[str, list[PartitionProduceData]] = {}
        values: dict[tuple[str, int], bytes] = {}
        for topic, partition in places:
            self._sent += 1
            value = values[topic, partition] = b"%d" % self._sent + bytes(size)
            batch = build_batch([(key, value, 1_000, ())])
            rows.setdefault(topic, []).append(PartitionProduceData(index=partition, records=batch))

        def note(answer: Any) -> None:
            for topic in answer.responses:
                for row in topic.partition_responses:
                    assert row.error_code == 0, answer
                    value = values[topic.name, row.index]
                    self._run.promises.append(Stored(topic.name, row.index, row.base_offset, key, value))

        topics = [TopicProduceData(name=name, partition_data=data) for name, data in rows.items()]
        return self._ask(ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), note)

    def commit(self, group: str, topic: str, offset: int) -> asyncio.Future[None]:
        """By no member."""
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
        )

        def note(answer: Any) -> None:
            assert answer.topics[0].partitions[0].error_code == 0, answer
            self._run.promises.append(Committed(group, topic, offset))

        return self._ask(ApiKey.OFFSET_COMMIT, request, note)

    def create(self, name: str, partitions: int, **configs: object) -> asyncio.Future[None]:
        """`segment_bytes=600` stands for segment.bytes."""
        rows = [CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)

        def note(answer: Any) -> None:
            assert answer.topics[0].error_code == 0, answer
            self._run.promises.append(Exists(name, partitions))

        return self._ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), note)

    def grow(self, name: str, count: int) -> asyncio.Future[None]:
        """To so many partitions."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)

        def note(answer: Any) -> None:
            assert answer.results[0].error_code == 0, answer
            self._run.promises.append(Exists(name, count))

        return self._ask(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), note)

    def delete(self, name: str) -> asyncio.Future[None]:
        """A topic."""
        self._run.promises.append(Doomed(name))

        def note(answer: Any) -> None:
            assert answer.responses[0].error_code == 0, answer
            self._run.promises.append(Gone(name))

        return self._ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), note)

    def _ask(self, key: ApiKey, request: Any, note: Callable[[Any], None]) -> asyncio.Future[None]:
        self._asked += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def take(answer: Any) -> None:
            note(answer)
            if not done.done():
                done.set_result(None)

        self._answers.waiting[self._asked] = key, take
        self._wired.feed(encode_request(key, _Versions[key], request, correlation_id=self._asked))
        return done


async def _play(seed: int) -> Run:
    random = Random(seed)
    run = Run()
    disk = RememberingDisk(run, random)
    server = _DiskServer(_settings(), disk)
    context = server.open()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS * 2):
            await _scenario(Client(context, run), context.store, random)
    finally:
        await server.stop()
    return run


def _settings() -> BrokerSettings:
    return BrokerSettings.of(CONFIG)


async def _spread(random: Random, asks: list[Callable[[], asyncio.Future[None]]]) -> None:
    """One behind the other without waiting for answers, but while the disk is at work."""
    asked = []
    for ask in asks:
        asked.append(ask())
        for _ in range(random.randrange(MOST_TURNS)):
            await asyncio.sleep(0)
    await asyncio.gather(*asked)


async def _scenario(client: Client, store: Store, random: Random) -> None:
    """Everything that changes files: appends and rolls, commits, compaction, retention, topics that come and go."""
    await client.create("plain", 2, segment_bytes=400)
    await client.create("keyed", 1, segment_bytes=300, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    await client.create("short", 1, segment_bytes=200, retention_bytes=200)
    both = ("plain", 0), ("plain", 1)
    for turn in range(8):
        one, other = both[turn % 2], both[1 - turn % 2]
        asks: list[Callable[[], asyncio.Future[None]]] = [
            partial(client.produce, one),
            partial(client.produce, *both),
            partial(client.commit, f"g{turn % 2}", "plain", turn),
            partial(client.produce, other, ("short", 0)),
            partial(client.produce, ("keyed", 0), key=b"k%d" % (turn % 2)),
            partial(client.produce, other, one),
        ]
        if turn == 3:
            asks.insert(2, partial(client.create, "later", 1))
        if turn == 5:
            asks[2:2] = [partial(client.delete, "later"), partial(client.grow, "plain", 3)]
        await _spread(random, asks)
        if turn % 3 == 1:
            # Files are closed and begun faster than they are synced.
            await asyncio.gather(*[client.produce(one, other, size=250) for _ in range(4)])
        if turn == 3:
            await client.produce(("later", 0))
    keyed, short = store.topics["keyed"].partitions[0], store.topics["short"].partitions[0]
    # Compaction and retention look every few milliseconds.
    while len(keyed.segments) > 3 or short.log_start_offset == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.gather(client.produce(("plain", 2)), client.commit("g0", "plain", 9))


def play(seed: int) -> Run:
    """The scenario once; the seed says how long the threads of the broker take.

    They change places only where one waits, so that a disk is copied and promises are counted in one step. Nothing is
    collected meanwhile: a socket among the garbage is closed wherever the collector comes by, which lets others run.
    """
    interval, is_collecting = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(_NEVER_SECONDS)
    gc.disable()
    try:
        return asyncio.run(_play(seed))
    finally:
        sys.setswitchinterval(interval)
        if is_collecting:
            gc.enable()


#: Offset -> key and value.
_Records = dict[int, tuple[bytes | None, bytes | None]]


class PromiseBroken(AssertionError):
    """What was acknowledged is not there."""


def check_moment(run: Run, moment: Moment, seed: int) -> None:
    """Let the power go at a moment, start again, and look for everything that was promised until then."""
    random = Random(seed)
    disk = moment.disk.copy()
    is_all_lost = random.random() < 0.3

    def survives(_: str, durable: int, written: int) -> int:
        # Files are written in any order, so that one may be whole though one before it is not.
        return durable if is_all_lost else random.choice((durable, written, random.randint(durable, written)))

    disk.crash(
        survives,
        changes_kept=lambda _, unsynced: 0 if is_all_lost else random.randint(0, unsynced),
        zero_fill=random.random() < 0.2,
    )
    promises = run.promises[: moment.promised]
    if not disk.exists(DIRECTORY):
        if promises:
            raise PromiseBroken(f"the directory is gone, and with it {promises}")
        return
    try:
        store = open_store(disk, _settings())
    except StorageError as why:
        raise PromiseBroken(f"the broker does not start: {why}") from why
    try:
        if store.recovery.holes:
            raise PromiseBroken(f"readers stop at what nobody was promised: {store.recovery.holes}")
        _check(store, promises)
    finally:
        store.close(clean=False)


def _check(store: Store, promises: list[Promise]) -> None:
    doomed = {each.topic for each in promises if isinstance(each, Doomed)}
    records: dict[tuple[str, int], _Records] = {}
    newest: dict[tuple[str, bytes], Stored] = {}
    for each in promises:
        match each:
            case Exists(topic, partitions) if topic not in doomed:
                there = store.topics.get(topic)
                if there is None or len(there.partitions) < partitions:
                    raise PromiseBroken(f"{each}, and there is {there}")
            case Gone(topic) if topic in store.topics:
                raise PromiseBroken(f"{each}, and it is there")
            case Stored(topic, partition, offset, key, value) if topic not in doomed:
                log = store.topics[topic].partitions[partition]
                found = records.get((topic, partition))
                if found is None:
                    found = records[topic, partition] = _records_of(store, topic, partition)
                if log.config.is_compacted:
                    newest[topic, key] = each
                elif offset >= log.log_start_offset and found.get(offset) != (key, value):
                    raise PromiseBroken(f"{each}, and there is {found.get(offset)}")
            case _:
                pass
    for (topic, key), latest in newest.items():
        left = [offset for offset, (its, _) in records[topic, latest.partition].items() if its == key]
        if not left or max(left) < latest.offset:
            raise PromiseBroken(f"{latest} is the newest of its key, and there is {left}")
    _check_commits(store, promises)


def _records_of(store: Store, topic: str, partition: int) -> _Records:
    log = store.topics[topic].partitions[partition]
    views = log.read(log.log_start_offset, 1 << 40)
    return {record.offset: (record.key, record.value) for view in views for record in iterate_records(view)}


def _check_commits(store: Store, promises: list[Promise]) -> None:
    promised = {(each.group, each.topic): each.offset for each in promises if isinstance(each, Committed)}
    if not promised:
        return
    found: dict[tuple[str, str], int] = {}
    for log in store.topics[OFFSETS_TOPIC].partitions:
        for key, value in _records_of(store, log.topic, log.partition).values():
            fact = decode_group_record(key or b"", value)
            if isinstance(fact, OffsetCommitted):
                found[fact.group_id, fact.topic] = fact.offset
    for (group, topic), offset in promised.items():
        if found.get((group, topic), -1) < offset:
            raise PromiseBroken(f"group {group} has committed {offset} of {topic}, and there is {found}")
