"""For how long a second connection waits while the broker is at its heaviest work: for the longest turn of its loop.

Laws: how long a turn takes is told by the calls that are made in it, which are the same on every machine: eight of
them take a microsecond on a slow one. What runs in C for long has benches (`make bench`).
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.builders.coldness import make_cold
from support.dialogues.broker_wire import RawClient, batch_of, encode_request, produce_request
from support.peers.turning_broker import Turn, TurningBroker
from support.waiting import until

pytestmark = pytest.mark.process

#: In one turn of the loop: 20 ms.
MOST_CALLS = 160_000
MANY = 2_000
SOME = 500
A_FEW = 250
OFTEN = 100
CROWD = 50
CONFIG = {
    "log.cleaner.backoff.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.flush.interval.messages": (1 << 63) - 1,
    "max.topics": 50_000,
    "max.partitions": 100_000,
}
#: The broker answers what its own disk delays.
PATIENCE_SECONDS = 60.0


class Stage:
    """A broker with a wide topic, its clients, and names that nobody has used."""

    def __init__(self, data_dir: Path, broker: TurningBroker, admin: kohort.Admin) -> None:
        self.data_dir = data_dir
        self.broker = broker
        self.admin = admin
        self._last = 0

    def ask(self, key: ApiKey, version: int, message: Message) -> Any:
        """One request of a new connection."""
        with RawClient(self.broker.port) as client:
            client.socket.settimeout(PATIENCE_SECONDS)
            return client.ask(key, version, message)

    def fresh(self) -> str:
        self._last += 1
        return f"n{self._last:06}"

    def fresh_topics(self, count: int) -> list[str]:
        return [self.fresh() for _ in range(count)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data_dir = tmp_path_factory.mktemp("turns")
    with TurningBroker(data_dir, CONFIG) as broker:
        servers = {"bootstrap_servers": broker.bootstrap_servers, "request_timeout_ms": PATIENCE_SECONDS * 1e3}
        with kohort.Admin(**servers) as admin:
            admin.create_topic("wide", MANY)
            yield Stage(data_dir, broker, admin)


def offsets(partitions: int) -> dict[kohort.TopicPartition, int]:
    return {kohort.TopicPartition("wide", number): 5 for number in range(partitions)}


# What a broker may be asked to do: what is done before does not count, what the function that is returned does counts.


def create_wide_topic(stage: Stage) -> Callable[[], object]:
    return lambda: stage.admin.create_topic(stage.fresh(), MANY)


def create_many_topics(stage: Stage) -> Callable[[], object]:
    return lambda: stage.admin.create_topics(stage.fresh_topics(MANY))


def grow(stage: Stage) -> Callable[[], object]:
    name = stage.fresh()
    stage.admin.create_topic(name, 1)
    return lambda: stage.admin.create_partitions(name, SOME)


def delete_many_topics(stage: Stage) -> Callable[[], object]:
    names = stage.fresh_topics(SOME)
    stage.admin.create_topics(names)
    return lambda: stage.admin.delete_topics(names)


def delete_wide_topic(stage: Stage) -> Callable[[], object]:
    name = stage.fresh()
    stage.admin.create_topic(name, SOME)
    return lambda: stage.admin.delete_topics([name])


def describe_everything(stage: Stage) -> Callable[[], object]:
    return lambda: stage.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))


def describe_directories(stage: Stage) -> Callable[[], object]:
    return stage.admin.describe_log_dirs


def describe_configs(stage: Stage) -> Callable[[], object]:
    names = stage.fresh_topics(SOME)
    stage.admin.create_topics(names)
    return lambda: stage.admin.describe_configs([("topic", name) for name in names])


def describe_broker(stage: Stage) -> Callable[[], object]:
    return stage.admin.describe_broker


def elect_all_leaders(stage: Stage) -> Callable[[], object]:
    return stage.admin.elect_leaders


def list_ends(stage: Stage) -> Callable[[], object]:
    return lambda: stage.admin.list_offsets(["wide"])


def commit(stage: Stage) -> Callable[[], object]:
    return lambda: stage.admin.alter_group_offsets(stage.fresh(), offsets(SOME))


def fetch_committed(stage: Stage) -> Callable[[], object]:
    group = stage.fresh()
    stage.admin.alter_group_offsets(group, offsets(MANY))
    return lambda: stage.admin.group_offsets(group)


def _many_groups(stage: Stage) -> list[str]:
    groups = stage.fresh_topics(SOME)
    for group in groups:
        stage.admin.alter_group_offsets(group, offsets(1))
    return groups


def describe_many_groups(stage: Stage) -> Callable[[], object]:
    groups = _many_groups(stage)

    def ask() -> None:
        stage.admin.list_groups()
        stage.admin.describe_groups(groups)
        stage.admin.list_group_offsets(groups)

    return ask


def delete_many_groups(stage: Stage) -> Callable[[], object]:
    groups = _many_groups(stage)
    return lambda: stage.admin.delete_groups(groups)


def read_history(stage: Stage) -> Callable[[], object]:
    group = stage.fresh()
    for _ in range(SOME):
        stage.admin.alter_group_offsets(group, offsets(1))
    return lambda: stage.admin.group_history(group, whole=True)


def join(stage: Stage, protocol: str) -> Callable[[], object]:
    """Members of a group that reads the wide topic come, and leave."""
    group = stage.fresh()

    def play() -> None:
        members = [
            kohort.Consumer(bootstrap_servers=stage.broker.bootstrap_servers, group_id=group, group_protocol=protocol)
            for _ in range(3)
        ]
        for member in members:
            member.subscribe(["wide"])

        def poll() -> None:
            for member in members:
                member.poll(0.05)

        until(lambda: all(member.assignment() for member in members), what="an assignment", step=poll)
        for member in members:
            member.close()

    return play


def join_as_consumers(stage: Stage) -> Callable[[], object]:
    return join(stage, "consumer")


def join_as_of_old(stage: Stage) -> Callable[[], object]:
    return join(stage, "classic")


def write_everywhere(stage: Stage) -> Callable[[], object]:
    """The first batch of each partition, whose file is made with it, in one request; a batch takes 30 to 50 us."""
    return _written_everywhere(stage)[1]


def _written_everywhere(stage: Stage) -> tuple[str, Callable[[], object]]:
    name, batch = stage.fresh(), batch_of(b"x")
    stage.admin.create_topic(name, A_FEW)
    rows = [PartitionProduceData(index=number, records=batch) for number in range(A_FEW)]
    data = [TopicProduceData(name=name, partition_data=rows)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    return name, lambda: stage.ask(ApiKey.PRODUCE, 9, request)


def read_everywhere(stage: Stage) -> Callable[[], object]:
    name, write = _written_everywhere(stage)
    write()

    def read() -> None:
        seen = 0
        with kohort.Consumer(
            bootstrap_servers=stage.broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([kohort.TopicPartition(name, number) for number in range(A_FEW)])

            def poll() -> None:
                nonlocal seen
                seen += len(consumer.poll(0.2))

            until(lambda: seen == A_FEW, what="every record", step=poll)

    return read


def read_what_is_cold(stage: Stage) -> Callable[[], object]:
    name, count = stage.fresh(), 20_000
    stage.admin.create_topic(name, 1, configs={"segment.bytes": 1 << 20})
    _fill(stage, name, records=count, compression="none")
    for path in (stage.data_dir / f"{name}-0").glob("*.log"):
        make_cold(path)

    def read() -> None:
        seen = 0
        with kohort.Consumer(bootstrap_servers=stage.broker.bootstrap_servers) as consumer:
            consumer.assign([kohort.TopicPartition(name, 0)])
            consumer.seek_to_beginning()

            def poll() -> None:
                nonlocal seen
                seen += len(consumer.poll(0.2))

            until(lambda: seen == count, what="every record", step=poll)

    return read


def _fill(stage: Stage, topic: str, *, records: int, compression: str, keys: int | None = None) -> None:
    with kohort.Producer(bootstrap_servers=stage.broker.bootstrap_servers, compression_type=compression) as producer:
        for number in range(records):
            producer.send(topic, bytes(500), None if keys is None else b"%d" % (number % keys))


def find_by_time(stage: Stage) -> Callable[[], object]:
    """In batches that unfold to a hundred times their bytes."""
    name = stage.fresh()
    stage.admin.create_topic(name, 1, configs={"segment.bytes": 1 << 20})
    since = int(time.time() * 1000)
    _fill(stage, name, records=20_000, compression="gzip")
    places = [kohort.TopicPartition(name, 0)]
    return lambda: [stage.admin.list_offsets(places, at=since + number * 10) for number in range(100)]


def compact(stage: Stage) -> Callable[[], object]:
    name = stage.fresh()
    configs = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.01}
    stage.admin.create_topic(name, 1, configs=configs)

    def size() -> int:
        found = 0
        for path in (stage.data_dir / f"{name}-0").glob("*.log"):
            # Compaction removes segments between the listing and the look.
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        return found

    def play() -> None:
        _fill(stage, name, records=20_000, compression="none", keys=100)
        until(lambda: size() < 4 << 20, what="a short log", step=lambda: stage.admin.describe_topics([name]))

    return play


def pipeline(stage: Stage, key: ApiKey, version: int, messages: Sequence[Message]) -> Callable[[], object]:
    """Very many requests of one connection, sent together, which has room for them: a long one came before."""
    room = encode_request(ApiKey.PRODUCE, 9, produce_request("wide", batch_of(bytes(1 << 19))))

    def play() -> None:
        with RawClient(stage.broker.port) as client:
            client.socket.settimeout(PATIENCE_SECONDS)
            client.socket.sendall(room)
            assert client.receive_frame()
            data = b"".join(encode_request(key, version, message) for message in messages)
            sending = threading.Thread(target=client.socket.sendall, args=(data,))
            sending.start()
            for _ in messages:
                assert client.receive_frame()
            sending.join()

    return play


def ask_for_one_topic_often(stage: Stage) -> Callable[[], object]:
    return pipeline(stage, ApiKey.METADATA, 12, [MetadataRequest(topics=[MetadataRequestTopic(name="wide")])] * OFTEN)


def ask_for_configs_often(stage: Stage) -> Callable[[], object]:
    wide = DescribeConfigsResource(resource_type=2, resource_name="wide", configuration_keys=None)
    return pipeline(stage, ApiKey.DESCRIBE_CONFIGS, 4, [DescribeConfigsRequest(resources=[wide])] * SOME)


def commit_often(stage: Stage) -> Callable[[], object]:
    rows = [OffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in range(100)]
    topic = OffsetCommitRequestTopic(name="wide", partitions=rows)
    return pipeline(
        stage, ApiKey.OFFSET_COMMIT, 8, [OffsetCommitRequest(group_id=stage.fresh(), topics=[topic])] * SOME
    )


def join_by_hundreds(stage: Stage) -> Callable[[], object]:
    """All members of a group by one connection."""
    joins = [
        ConsumerGroupHeartbeatRequest(
            group_id="many",
            member_id=member,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["wide"],
            topic_partitions=[],
        )
        for member in stage.fresh_topics(SOME)
    ]
    return pipeline(stage, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joins)


def read_much_by_many(stage: Stage) -> Callable[[], object]:
    """Fetches of a wide topic that many connections send at the same time."""
    rows = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1024) for number in range(MANY)]
    fetch = FetchRequest(min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic="wide", partitions=rows)])
    request = encode_request(ApiKey.FETCH, 11, fetch)

    def play() -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(stage.broker.port)) for _ in range(CROWD)]
            for client in clients:
                client.socket.settimeout(PATIENCE_SECONDS)
                client.socket.sendall(request * 2)
            for client in clients:
                assert client.receive_frame() and client.receive_frame()

    return play


HEAVY = [
    create_wide_topic,
    create_many_topics,
    grow,
    delete_many_topics,
    delete_wide_topic,
    describe_everything,
    describe_directories,
    describe_configs,
    describe_broker,
    elect_all_leaders,
    list_ends,
    commit,
    fetch_committed,
    describe_many_groups,
    delete_many_groups,
    read_history,
    join_as_consumers,
    join_as_of_old,
    write_everywhere,
    read_everywhere,
    read_what_is_cold,
    find_by_time,
    compact,
    ask_for_one_topic_often,
    ask_for_configs_often,
    commit_often,
    join_by_hundreds,
    read_much_by_many,
]


def longest(stage: Stage, heavy: Callable[[Stage], Callable[[], object]]) -> Turn:
    act = heavy(stage)
    stage.broker.begin()
    act()
    return stage.broker.end()


@pytest.mark.parametrize("heavy", HEAVY, ids=lambda heavy: heavy.__name__)
def test_nobody_waits_long_beside_heavy_work(stage: Stage, heavy: Callable[[Stage], Callable[[], object]]) -> None:
    turn = longest(stage, heavy)
    assert 0 < turn.calls <= MOST_CALLS


def test_a_turn_that_is_too_long_is_seen(stage: Stage) -> None:
    """Planted: the loop works for half as long again as it may."""
    turn = longest(stage, lambda stage: lambda: stage.broker.work(MOST_CALLS * 3 // 2))
    assert turn.calls > MOST_CALLS
