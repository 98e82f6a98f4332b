"""The group log between kohort and Apache Kafka: ours reads what Kafka wrote, and Kafka's tools read ours, compacted.

Source: requirement G1; Apache Kafka 4.3's `__consumer_offsets`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from kohort.coordinator.records import codec
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.codec import build_log_batch
from kohort.ids import OFFSETS_TOPIC, TopicId, parse_topic_id
from kohort.records.batch import build_batch
from kohort.storage.compaction import compact, finish_replacement, plan_compaction
from kohort.storage.files.fs import DiskFileSystem
from kohort.storage.recovery import mark_sparse
from kohort.storage.store import Store
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.apache_broker import ApacheKafka
from support.peers.kafka_tools import run_kafka_tool
from support.peers.restarts import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

PARTITIONS = 4
LOGS = 2
PROPERTIES = {
    "offsets.topic.num.partitions": LOGS,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 1000,
}
#: The group's epoch rises here, and who has nothing to give up follows it when the new target is there: not in a test.
UNHURRIED = {"group.consumer.assignment.window.ms": 600_000, "group.consumer.assignment.window.max.ms": 600_000}


class Told:
    """What a broker says of both groups."""

    def __init__(self, port: int) -> None:
        with RawClient(port) as client:
            asked = ConsumerGroupDescribeRequest(group_ids=["modern"])
            (self.modern,) = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups
            (self.classic,) = client.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["classic"])).groups
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("classic", "modern", "simple")]
            rows = client.ask(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups)).groups
        self.offsets = {
            (row.group_id, topic.name, partition.partition_index): (
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
            )
            for row in rows
            for topic in row.topics
            for partition in topic.partitions
        }

    def modern_members(self) -> dict[str, tuple[object, ...]]:
        """Member id -> everything that is durable of it."""
        return {
            member.member_id: (
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                member.client_id,
                member.client_host,
                member.subscribed_topic_names,
                _partitions(member.assignment),
                _partitions(member.target_assignment),
            )
            for member in self.modern.members
        }

    def classic_members(self) -> dict[str, tuple[object, ...]]:
        return {
            member.member_id: (
                member.group_instance_id,
                member.client_id,
                member.client_host,
                bytes(member.member_metadata),
                bytes(member.member_assignment),
            )
            for member in self.classic.members
        }


def _partitions(assignment: Any) -> dict[bytes, list[int]]:
    return {bytes(row.topic_id): sorted(row.partitions) for row in assignment.topic_partitions}


def consumer(address: str, group: str, stack: ExitStack, **config: object) -> confluent_kafka.Consumer:
    made = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "client.id": "theirs",
            "enable.auto.commit": False,
            "log_level": 0,
            **config,
        }
    )
    stack.callback(made.close)
    made.subscribe(["orders"])
    return made


def use_kafka(kafka: ApacheKafka, stack: ExitStack) -> Told:
    """Make groups of both kinds on it, with two members each that have settled and committed."""
    address = kafka.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result()
    members = [
        *(consumer(address, "modern", stack, **{"group.protocol": "consumer"}) for _ in range(2)),
        *(consumer(address, "classic", stack) for _ in range(2)),
    ]

    def are_settled() -> bool:
        for member in members:
            member.poll(0.02)
        return all(len(member.assignment()) == 2 for member in members)

    wait_until(are_settled, "all members own two partitions", seconds=60)
    for member in members:
        rows = [
            confluent_kafka.TopicPartition("orders", row.partition, 10 + row.partition, metadata="why")
            for row in member.assignment()
        ]
        member.commit(offsets=rows, asynchronous=False)
    simple = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "simple"})
    simple.commit(offsets=[confluent_kafka.TopicPartition("orders", 3, 77)], asynchronous=False)
    simple.close()

    def is_at_rest() -> bool:
        for member in members:
            member.poll(0.02)
        told = Told(kafka.port)
        return bool(told.modern.group_state == told.classic.group_state == "Stable")

    # Kafka writes the state of a member that has reached its target with one of its next heartbeats.
    wait_until(is_at_rest, "both groups are stable")
    return Told(kafka.port)


def move_over(kafka: ApacheKafka, directory: Path) -> None:
    """Our data directory with Kafka's topics, by its ids, and its group log."""
    logs = kafka.directory / "logs"

    def id_of(topic: str) -> TopicId:
        text = (logs / f"{topic}-0" / "partition.metadata").read_text()
        return parse_topic_id(text.partition("topic_id: ")[2].strip())

    store = Store.open(str(directory))
    store.create_topic("orders", PARTITIONS, topic_id=id_of("orders"))
    configs = {"cleanup.policy": "compact"}
    store.create_topic(OFFSETS_TOPIC, LOGS, topic_id=id_of(OFFSETS_TOPIC), configs=configs)
    store.close(clean=False)
    for number in range(LOGS):
        for file in (logs / f"{OFFSETS_TOPIC}-{number}").glob("*.log"):
            shutil.copy(file, directory / f"{OFFSETS_TOPIC}-{number}" / file.name)
        mark_sparse(DiskFileSystem(), f"{directory}/{OFFSETS_TOPIC}-{number}", 1 << 40)


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Told, Path]]:
    directory = tmp_path_factory.mktemp("moved")
    # Members that close after their broker is gone cannot leave: it stays as it was at rest.
    with ExitStack() as stack, ApacheKafka(PROPERTIES) as kafka:
        told = use_kafka(kafka, stack)
        kafka.stop()
        move_over(kafka, directory)
        yield told, directory


def test_groups_of_apache_kafka_go_on_here(moved: tuple[Told, Path], tmp_path: Path) -> None:
    """Epochs, targets, members, assignments and offsets of a classic, a KIP-848 and a simple group."""
    before, directory = moved
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    with kohort.Broker(data_dir=copy, config=UNHURRIED) as broker:
        after = Told(broker.port)
        assert after.offsets == before.offsets and len(after.offsets) == 2 * PARTITIONS + 1
        assert after.modern_members() == before.modern_members() and len(after.modern_members()) == 2
        assert after.modern.assignor_name == before.modern.assignor_name
        # Our hash of the subscribed topics is not Kafka's: the group's epoch rises once, members stay where they are.
        assert after.modern.group_epoch - before.modern.group_epoch in (0, 1)
        assert after.classic_members() == before.classic_members() and len(after.classic_members()) == 2
        assert (after.classic.group_state, after.classic.protocol_type, after.classic.protocol_data) == (
            before.classic.group_state,
            before.classic.protocol_type,
            before.classic.protocol_data,
        )
        member = before.modern.members[0]
        with RawClient(broker.port) as client:
            heartbeat = ConsumerGroupHeartbeatRequest(
                group_id="modern",
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                rebalance_timeout_ms=-1,
                topic_partitions=None,
            )
            answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat)
            assert answer.error_code == 0 and answer.member_epoch >= member.member_epoch


def test_what_was_loaded_is_compacted_and_loaded_again(moved: tuple[Told, Path], tmp_path: Path) -> None:
    """Kafka's batches, and what a broker of ours wrote behind them."""
    before, directory = moved
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    store = Store.open(str(copy))
    for log in store.topics[OFFSETS_TOPIC].partitions:
        # A new segment behind Kafka's: only closed ones are compacted.
        foreign = build_batch([(b"\0\x0b\0\1g", b"\0\0\0\0\0\1\0", 1, ())])
        log.configure(replace(log.config, segment_bytes=14))
        log.append(foreign, now_ms=1, validate=False)
        compact_now(store, log)
    store.close()
    with kohort.Broker(data_dir=copy, config=UNHURRIED) as broker:
        after = Told(broker.port)
        assert after.offsets == before.offsets
        assert after.modern_members() == before.modern_members()
        assert after.classic_members() == before.classic_members()


def compact_now(store: Store, log: Any, *, now_ms: int = 1_000) -> None:
    log.mark_durable(log.sync())
    found = plan_compaction(log, 0, now_ms=now_ms, dedupe_buffer_bytes=1 << 20)
    if found is None:
        return
    for part in compact(store.fs, found[0], now_ms=now_ms).segments:
        finish_replacement(
            store.fs, log.directory, log.replace(part.segment(store.fs, log.directory), part.cleaned_path)
        )


ID = TopicId(bytes(range(16)))
GROUP: dict[str, Any] = {"group_id": "g"}
MEMBER: dict[str, Any] = {"group_id": "g", "member_id": "m"}


def one_of_each() -> list[facts.Record]:
    """A record of every type that we write, and a tombstone."""
    return [
        facts.OffsetCommitted(
            **GROUP, topic="t", partition=0, offset=5, leader_epoch=1, metadata="m", commit_timestamp_ms=7, topic_id=ID
        ),
        facts.OffsetForgotten(**GROUP, topic="t", partition=1),
        facts.ClassicGroupStored(
            group_id="c",
            protocol_type="consumer",
            generation=3,
            protocol_name="range",
            leader="x",
            state_timestamp_ms=1,
            members=(),
        ),
        facts.ConsumerGroupEpochSet(**GROUP, epoch=2, metadata_hash=9),
        facts.ConsumerMemberSubscribed(
            **MEMBER,
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=("t",),
            subscribed_topic_regex="t.*",
            rebalance_timeout_ms=1,
            server_assignor="uniform",
        ),
        facts.TargetAssignmentEpochSet(**GROUP, assignment_epoch=2, assignment_timestamp_ms=8),
        facts.MemberTargetSet(**MEMBER, partitions={ID: (0, 1)}),
        facts.CurrentAssignmentSet(
            **MEMBER,
            member_epoch=2,
            previous_member_epoch=1,
            state=facts.MemberState.STABLE,
            assigned={ID: {0: 1, 1: 2}},
            pending_revocation={},
        ),
        facts.RegularExpressionResolved(**GROUP, regex="t.*", topics=("t",), image_version=1, timestamp_ms=2),
        facts.GroupConfigsSet(**GROUP, configs={"consumer.session.timeout.ms": "45000"}),
    ]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_dump_reads_every_type_of_ours(tmp_path: Path, *, is_compacted: bool) -> None:
    """Also types that Kafka does not know (from 20,000 on), and batches that compaction made: sparse, empty, dated."""
    store = Store.open(str(tmp_path / "data"))
    configs = {"cleanup.policy": "compact", "segment.bytes": "3000"}
    (log,) = store.create_topic(OFFSETS_TOPIC, 1, topic_id=ID, configs=configs).partitions
    for turn in range(30):
        rows = [(*codec.encode(record), turn, ()) for record in one_of_each()]
        log.append(build_batch(rows), now_ms=1, validate=False)
    if is_compacted:
        before = log.size_bytes
        compact_now(store, log)
        assert log.size_bytes < before / 2
    files = [segment.path for segment in log.segments]
    store.close()

    said = run_kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", ",".join(files))

    assert "isvalid: false" not in said and "invalid" not in said.lower().replace("isvalid", "")
    rows = [line for line in said.splitlines() if line.startswith("| offset: ")]
    kinds = [int(json.loads(found[1])["type"]) for row in rows if (found := re.search(r"key: (\{.*?\}\}) ", row))]
    assert set(kinds) >= {1, 2, 3, 5, 6, 7, 8, 16}, said
    turns = {int(found[1]) for found in re.finditer(r"CreateTime: (\d+) keySize", said)}
    assert max(turns) == 29 and (is_compacted or turns == set(range(30)))


def test_dump_reads_offsets_of_our_transactions(tmp_path: Path) -> None:
    """Committed, aborted and still open ones: batches of their producers, and markers."""
    store = Store.open(str(tmp_path / "data"))
    (log,) = store.create_topic(OFFSETS_TOPIC, 1, topic_id=ID, configs={"cleanup.policy": "compact"}).partitions
    commit = one_of_each()[0]
    assert isinstance(commit, facts.OffsetCommitted)

    def write(record: facts.Record) -> None:
        batch = build_log_batch([record], now_ms=3)
        assert batch is not None
        log.append(batch, now_ms=3, validate=False)

    for producer_id, is_commit in ((7, True), (8, False), (9, None)):
        write(
            facts.TransactionalOffsetCommitted(
                **GROUP, producer_id=producer_id, producer_epoch=2, commit=replace(commit, offset=producer_id)
            )
        )
        if is_commit is not None:
            write(
                facts.TransactionCompleted(group_id="", producer_id=producer_id, producer_epoch=2, is_commit=is_commit)
            )
    files = [segment.path for segment in log.segments]
    store.close()

    said = run_kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", ",".join(files))

    assert "isvalid: false" not in said
    written = re.findall(r"producerId: (\d+) producerEpoch: 2 .*?isTransactional: true isControl: (\w+)", said)
    assert written == [("7", "false"), ("7", "true"), ("8", "false"), ("8", "true"), ("9", "false")], said
    assert re.findall(r"endTxnMarker: (\w+)", said) == ["COMMIT", "ABORT"]
    assert re.findall(r'"offset":(\d+)', said) == ["7", "8", "9"]
