"""Transactions by their requests, in both flows; what a log has of them, through a start of the broker."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import kohort
from kohort import Admin, OffsetAndMetadata
from kohort.broker.apis import fetch
from kohort.broker.embedded import Broker
from kohort.cli.main import main
from kohort.coordinator import commands
from kohort.coordinator.commands import Done
from kohort.coordinator.decision import ReplyBody
from kohort.coordinator.records.codec import build_log_batch
from kohort.coordinator.records.types import OffsetCommitted, TransactionalOffsetCommitted
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC, ZERO_TOPIC_ID, TopicPartition, coordinator_partition
from kohort.records.batch import build_batch, build_marker
from kohort.records.header import split_batches
from kohort.storage.store import Store
from kohort.testing.broker import Broker as ClockedBroker
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages import offset_fetch
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey
from support.builders.storage_logs import TOPIC_ID, empty_log, open_log
from support.dialogues.broker_wire import RawClient, encode_request, fetch_request, make
from support.dialogues.running_coordinator import RunningCoordinator
from support.dialogues.transactional_wire import WireProducer, committed
from support.dialogues.wired_connection import WiredConnection, wired_broker
from support.waiting import until


def fetched(client: RawClient, version: int, *, stable: bool) -> tuple[int, int]:
    """Offset and error of the partition."""
    topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=topics, require_stable=stable)
    if version >= 8:
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable)
    answer = client.ask(ApiKey.OFFSET_FETCH, version, request)
    rows = answer.groups[0].topics if version >= 8 else answer.topics
    partition = rows[0].partitions[0]
    return partition.committed_offset, partition.error_code


FLOWS = pytest.mark.parametrize("flow", [1, 2])


def begun(client: RawClient, flow: int, transactional_id: str = "x") -> WireProducer:
    """A producer whose transaction has one record, "a", and one offset of group "g", 5."""
    producer = WireProducer(client, transactional_id, flow=flow)
    assert producer.init() == ErrorCode.NONE
    put(producer, b"a")
    if flow == 1:
        assert producer.add_offsets("g") == ErrorCode.NONE
    assert producer.commit_offset("g", "t", 5) == ErrorCode.NONE
    return producer


def put(producer: WireProducer, *values: bytes) -> None:
    if producer.flow == 1:
        assert producer.add("t", 0) == ErrorCode.NONE
    assert producer.send("t", *values) == ErrorCode.NONE


@FLOWS
def test_records_and_offsets_become_visible_together(client: RawClient, flow: int) -> None:
    client.create_topic("t")
    producer = begun(client, flow)
    assert committed(client, "t") == []
    assert fetched(client, 9, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert producer.end() == ErrorCode.NONE
    assert committed(client, "t") == [b"a"]
    assert fetched(client, 9, stable=True) == (5, ErrorCode.NONE)


@FLOWS
def test_what_was_aborted_is_never_seen(client: RawClient, flow: int) -> None:
    client.create_topic("t")
    producer = begun(client, flow)
    assert producer.end(commit=False) == ErrorCode.NONE
    assert committed(client, "t") == []
    assert fetched(client, 9, stable=True) == (-1, ErrorCode.NONE)
    put(producer, b"b")
    assert producer.end() == ErrorCode.NONE
    assert committed(client, "t") == [b"b"]


@FLOWS
def test_second_producer_of_an_id_ends_the_transaction_of_the_first_and_fences_it(client: RawClient, flow: int) -> None:
    client.create_topic("t")
    first = begun(client, flow)
    second = WireProducer(client, flow=flow)
    assert second.init() == ErrorCode.NONE
    assert (second.producer_id, second.epoch > first.epoch) == (first.producer_id, True)
    assert first.send("t", b"zombie") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end() == ErrorCode.PRODUCER_FENCED
    put(second, b"b")
    assert second.end() == ErrorCode.NONE
    assert committed(client, "t") == [b"b"]


@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_batch_for_a_partition_that_was_not_added_is_refused(client: RawClient, version: int, error: ErrorCode) -> None:
    client.create_topic("t")
    producer = WireProducer(client, flow=1)
    assert producer.init() == ErrorCode.NONE
    assert producer.send("t", b"stray", version=version) == error
    assert client.ask(ApiKey.FETCH, 12, fetch_request("t")).responses[0].partitions[0].high_watermark == 0


@FLOWS
def test_offsets_of_a_transaction_that_does_not_know_them_are_refused(client: RawClient, flow: int) -> None:
    client.create_topic("t")
    producer = WireProducer(client, flow=flow)
    assert producer.init() == ErrorCode.NONE
    stranger = WireProducer(client, flow=flow)
    stranger.producer_id, stranger.epoch = producer.producer_id + 1, 0
    assert stranger.commit_offset("g", "t", 5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if flow == 1:
        assert producer.commit_offset("g", "t", 5) == ErrorCode.INVALID_TXN_STATE
    assert fetched(client, 9, stable=True) == (-1, ErrorCode.NONE)


@FLOWS
@pytest.mark.parametrize("commit", [True, False])
def test_transaction_survives_a_restart_of_the_broker(tmp_path: Path, flow: int, commit: bool) -> None:
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        producer = begun(client, flow)
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        producer._client = client
        assert committed(client, "t") == []
        put(producer, b"b")
        assert producer.end(commit=commit) == ErrorCode.NONE
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert committed(client, "t") == ([b"a", b"b"] if commit else [])
        assert fetched(client, 9, stable=True) == (5 if commit else -1, ErrorCode.NONE)


def test_transaction_ends_by_its_timeout() -> None:
    with ClockedBroker() as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        producer = begun(client, 2)
        broker.clock.advance(61)
        assert fetched(client, 9, stable=True) == (-1, ErrorCode.NONE)
        assert producer.send("t", b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert committed(client, "t") == []


def test_waiting_reader_of_committed_records_is_answered_by_the_marker(client: RawClient, broker: Broker) -> None:
    client.create_topic("t")
    producer = begun(client, 2)
    request = fetch_request("t", max_wait_ms=30_000)
    request.isolation_level = 1
    with RawClient(broker.port) as reader:
        reader.send(ApiKey.FETCH, 12, request)
        assert producer.end() == ErrorCode.NONE
        _, answer = reader.receive(ApiKey.FETCH, 12)
    assert answer.responses[0].partitions[0].last_stable_offset == 2


def test_answer_with_many_aborted_transactions_ends_before_they_are_too_many(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told in some microseconds, and a fetch of small transactions has thousands."""
    monkeypatch.setattr(fetch, "ABORTED_AT_ONCE", 3)
    client.create_topic("t")
    long, short = WireProducer(client, "long"), WireProducer(client, "short")
    assert [long.init(), short.init()] == [ErrorCode.NONE] * 2
    put(long, b"long")
    for number in range(12):
        put(short, b"%d" % number)
        assert short.end(commit=number % 4 == 0) == ErrorCode.NONE
    assert long.end(commit=False) == ErrorCode.NONE
    offset, told, values = 0, [], []
    while offset < 26:
        request = fetch_request("t", offset, max_wait_ms=10_000, min_bytes=1 << 20)
        request.isolation_level = 1
        (row,) = client.ask(ApiKey.FETCH, 12, request).responses[0].partitions
        told.append(len(row.aborted_transactions))
        # The long one is told to each that begins behind its record.
        values += committed(client, "t", offset)
        (*_, (_, last)) = split_batches(memoryview(bytes(row.records)))
        assert last.next_offset > offset
        offset = last.next_offset
    assert (values, max(told), sum(told) >= 9 + 3) == ([b"0", b"4", b"8"], 3, True)


def test_partition_that_is_named_twice_is_answered_twice(client: RawClient) -> None:
    client.create_topic("t")
    producer = WireProducer(client, flow=1)
    assert producer.init() == ErrorCode.NONE
    assert producer.add("t", 0, 0) == ErrorCode.NONE
    assert producer.send("t", b"a") == ErrorCode.NONE
    assert producer.end() == ErrorCode.NONE


def test_many_transactions_may_exceed_their_timeout_at_once() -> None:
    """Of one shard, in memory, where each step would follow at once from the one before."""
    with ClockedBroker(config={"transaction.state.log.num.partitions": 1}) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        for number in range(250):
            producer = WireProducer(client, str(number))
            assert (producer.init(), producer.send("t", b"late")) == (ErrorCode.NONE, ErrorCode.NONE)
        broker.clock.advance(61)
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            until(lambda: not admin.list_transactions(["Ongoing", "PrepareAbort"]), what="all are aborted")
        assert committed(client, "t") == []


@FLOWS
def test_marker_that_a_power_cut_took_is_written_by_the_next_start(
    tmp_path: Path, flow: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In a topic that does not sync each append: what was aborted is never shown by a later commit."""
    before, after = tmp_path / "before", tmp_path / "after"
    # The journal's topic is made beside, and could come into the copy in part.
    config = {"journal.topic.enable": False}
    with Broker(data_dir=before, config=config) as broker, RawClient(broker.port) as client:
        client.create_topic("t", **{"flush.messages": "1000"})
        producer = begun(client, flow)
        assert producer.end(commit=False) == ErrorCode.NONE
        # The next one's begin waits until the coordinator has written its last record of this one.
        assert producer.init() == ErrorCode.NONE
        shutil.copytree(before, after, ignore=shutil.ignore_patterns("*lock"))
    # The marker is much younger than the record, and so in the next file.
    (after / "t-0" / f"{1:020d}.log").unlink()
    with Broker(data_dir=after) as broker, RawClient(broker.port) as client:
        assert any(line.startswith("event=transaction_aborted partition=t-0") for line in caplog.messages)
        producer = WireProducer(client, flow=flow)
        assert producer.init() == ErrorCode.NONE
        put(producer, b"b")
        assert producer.end() == ErrorCode.NONE
        assert committed(client, "t") == [b"b"]


def test_id_beyond_the_limit_is_refused_and_the_others_go_on() -> None:
    with Broker(config={"max.transactional.ids": 2}) as broker, RawClient(broker.port) as client:
        first, second, third = (WireProducer(client, name) for name in "abc")
        assert (first.init(), second.init()) == (ErrorCode.NONE, ErrorCode.NONE)
        assert third.init() == ErrorCode.POLICY_VIOLATION
        assert first.init() == ErrorCode.NONE


@FLOWS
def test_transaction_of_too_many_partitions_is_refused_whole(flow: int) -> None:
    with Broker(config={"max.transaction.partitions": 2}) as broker, RawClient(broker.port) as client:
        client.create_topic("t", 3)
        producer = WireProducer(client, flow=flow)
        assert producer.init() == ErrorCode.NONE
        if flow == 1:
            assert producer.add("t", 0, 1) == ErrorCode.NONE
            assert producer.add("t", 1, 2) == ErrorCode.POLICY_VIOLATION
        assert [producer.send("t", b"a", partition=number) for number in (0, 1)] == [ErrorCode.NONE] * 2
        assert producer.send("t", b"a", partition=2) != ErrorCode.NONE
        assert producer.end() == ErrorCode.NONE


def test_request_beyond_those_that_may_wait_for_markers_is_refused_at_once() -> None:
    """Markers that no partition takes keep the transaction's end waiting."""

    async def play(most: int) -> list[int]:
        with wired_broker({"max.transaction.waiting.requests": most}) as context:
            context.transactions.start(context.producer_ids.take)
            connections = [WiredConnection(context) for _ in range(4)]
            context.cluster.create_topic("t", 1, {})
            begin = make(ApiKey.INIT_PRODUCER_ID, transactional_id="x", transaction_timeout_ms=60_000)
            producer = await connections[0].ask(ApiKey.INIT_PRODUCER_ID, 5, begin)
            of = {"transactional_id": "x", "producer_id": producer.producer_id, "producer_epoch": 0}
            named = {f"v3_and_below_{name}": value for name, value in of.items()}
            rows = [{"name": "t", "partitions": [0]}]
            await connections[0].ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, 3, make(ApiKey.ADD_PARTITIONS_TO_TXN, v3_and_below_topics=rows, **named)
            )
            context.cluster.topics["t"].partitions[0].offline = "for now"
            await connections[0].ask(ApiKey.END_TXN, 3, make(ApiKey.END_TXN, committed=True, **of))
            for each in connections:
                each.feed(encode_request(ApiKey.INIT_PRODUCER_ID, 5, begin))
            await asyncio.sleep(0)
            answered = [each.take_answers(ApiKey.INIT_PRODUCER_ID, 5) for each in connections]
            return [answers[0][1].error_code for answers in answered if answers]

    assert asyncio.run(play(0)) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 4
    assert asyncio.run(play(3)) == [ErrorCode.CONCURRENT_TRANSACTIONS]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_out_of_bounds_is_refused(client: RawClient, timeout_ms: int) -> None:
    assert WireProducer(client).init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def commit(client: RawClient, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    assert client.ask(ApiKey.OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code == ErrorCode.NONE


def leave_open(directory: Path) -> None:
    """Two producers' transactions with an offset of "g" each, as a coordinator's log may have them."""
    store = Store.open(str(directory))
    logs = store.topics[OFFSETS_TOPIC].partitions
    home = logs[coordinator_partition("g", len(logs))]
    for producer_id in (7, 8):
        offset = OffsetCommitted(
            group_id="g", topic="t", partition=0, offset=5, leader_epoch=-1, metadata="", commit_timestamp_ms=1_000
        )
        record = TransactionalOffsetCommitted(group_id="g", producer_id=producer_id, producer_epoch=0, commit=offset)
        batch = build_log_batch([record], now_ms=1_000)
        assert batch is not None
        home.append(bytearray(batch), now_ms=1_000, validate=False)
    store.close()


def test_transaction_that_nothing_can_end_is_aborted_by_a_start_which_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        commit(client, 3)
    leave_open(tmp_path)
    for start in range(2):
        caplog.clear()
        with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
            assert fetched(client, 9, stable=True) == (3, ErrorCode.NONE)
        told = [line for line in caplog.messages if line.startswith("event=transactions_aborted")]
        # The markers are in the log: the next start finds no open one.
        assert len(told) == (1 if start == 0 else 0)
        assert all("transactions=2 groups=g" in line for line in told)


class Coordinator(RunningCoordinator):
    """One that is asked about transactions of group "g"."""

    async def commit(self, offset: int, *, producer_id: int = 7) -> ReplyBody:
        return await self.ask(
            commands.CommitTransactionOffsets(
                **self.ids(),
                group_id="g",
                member_id="",
                generation_or_member_epoch=-1,
                offsets=(commands.OffsetToCommit(topic="t", topic_id=ZERO_TOPIC_ID, partition=0, offset=offset),),
                producer_id=producer_id,
                producer_epoch=0,
            )
        )

    async def complete(self, *, is_commit: bool, producer_id: int = 7) -> ReplyBody:
        """What a transaction coordinator says."""
        return await self.ask(
            commands.CompleteTransaction(**self.ids(), producer_id=producer_id, producer_epoch=0, is_commit=is_commit)
        )

    async def fetch(self) -> tuple[int, int]:
        reply = await self.ask(
            commands.FetchOffsets(**self.ids(), group_id="g", partitions=(("t", 0),), require_stable=True)
        )
        assert isinstance(reply, commands.FetchOffsetsReply)
        return reply.offsets[0].offset, reply.offsets[0].error


def test_transactions_are_found_again_after_a_start() -> None:
    """An open one is still open, and its marker can come; what a marker said stays said."""
    disk = MemoryFileSystem()
    log = empty_log(disk, "/__consumer_offsets-0")
    kept = commands.CommitOffsetsReply(errors=(ErrorCode.NONE,))

    async def before_the_marker() -> None:
        coordinator = Coordinator(log)
        assert await coordinator.commit(5) == kept
        await coordinator.stop()

    async def the_marker() -> None:
        coordinator = Coordinator(open_log(disk, "/__consumer_offsets-0"))
        assert await coordinator.fetch() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await coordinator.complete(is_commit=True) == Done()
        assert await coordinator.commit(9, producer_id=8) == kept
        assert await coordinator.complete(producer_id=8, is_commit=False) == Done()
        await coordinator.stop()

    async def after_it() -> None:
        coordinator = Coordinator(open_log(disk, "/__consumer_offsets-0"))
        assert await coordinator.fetch() == (5, ErrorCode.NONE)
        await coordinator.stop()

    for step in (before_the_marker, the_marker, after_it):
        asyncio.run(step())


def test_transaction_that_hangs_before_a_hole_is_found_and_aborted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its marker was in the hole. The administrator's abort lets readers of committed records go on."""
    place = TopicPartition("orders", 0)
    store = Store.open(f"{tmp_path}/data")
    (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions
    rows = [(None, b"value", 1_000, ())]
    data = build_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = build_marker(producer_id=7, producer_epoch=0, is_commit=False, timestamp_ms=1_000)
    for batch in (build_batch(rows), data, marker, build_batch(rows)):
        log.append(bytearray(batch), now_ms=1, validate=False)
    damage = log.segments[0].position_of(2) + 50
    store.close(clean=False)
    folder = tmp_path / "data" / "orders-0"
    with (folder / f"{0:020d}.log").open("r+b") as file:
        file.seek(damage)
        byte = file.read(1)[0]
        file.seek(damage)
        file.write(bytes([byte ^ 1]))
    with Broker(data_dir=f"{tmp_path}/data") as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_offsets([place], isolation_level="read_committed")[place].offset == 1
        assert main(["topic", "describe", "orders", "--bootstrap", broker.bootstrap_servers]) == 0
        assert "partition 0: readers of committed records wait at offset 1 for a" in capsys.readouterr().out
        facts = admin.describe_broker()
        assert (facts["transactions.hanging"], facts["transactions.hanging.in"]) == ("1", "orders-0")
        admin.alter_group_offsets("g", {place: OffsetAndMetadata(1)})
        assert [each.sentence for each in admin.explain_group("g").held_by] == [
            "orders:0 is held back from readers of committed records at offset 1 by producer 7: no coordinator knows "
            "it: kohort transactions abort ends it"
        ]
        (found,) = admin.find_hanging_transactions([place], older_than_ms=0)
        assert (found.producer_id, found.transaction_start_offset) == (7, 1)
        admin.abort_transaction(place, 1)
        assert admin.list_offsets([place], isolation_level="read_committed")[place].offset == 5
        assert admin.find_hanging_transactions([place], older_than_ms=0) == []
        assert admin.describe_broker()["transactions.hanging"] == "0"
        assert admin.explain_group("g").held_by == ()


@FLOWS
def test_why_names_the_transaction_that_holds_offsets_and_readers_of_a_group_back(
    client: RawClient, broker: Broker, flow: int, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t")
    producer = begun(client, flow)
    assert producer.end() == ErrorCode.NONE
    put(producer, b"b")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("reader", {TopicPartition("t", 0): OffsetAndMetadata(2)})
        if flow == 1:
            assert producer.add_offsets("g") == ErrorCode.NONE
        assert producer.commit_offset("g", "t", 6) == ErrorCode.NONE
        assert admin.describe_broker()["transactions.hanging"] == "0"
        ((pending,), (held,)) = (admin.explain_group(group).held_by for group in ("g", "reader"))
        assert (pending.topic, pending.partition, pending.offset) == ("t", 0, None)
        assert (held.offset, held.transactional_id, held.producer_id, held.state) == (2, "x", 0, "Ongoing")
        address = ["--bootstrap", broker.bootstrap_servers]
        assert main(["group", "why", "g", *address]) == 0
        pending_in = "the offset of t:0 is pending in a transaction of x (producer 0): Ongoing for "
        assert pending_in in capsys.readouterr().out
        assert main(["transactions", "history", "x", *address]) == 0
        assert "producer 0 began a transaction, 2 times until " in capsys.readouterr().out
        assert producer.end() == ErrorCode.NONE
        assert [admin.explain_group(group).held_by for group in ("g", "reader")] == [(), ()]
        steps = [event.event for event in admin.transaction_history("x").events]
    assert steps == ["transaction_began", "transaction_decided", "transaction_completed"]
