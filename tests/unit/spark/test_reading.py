"""What executors do: spans of partitions, exactly, with a connection that is kept between tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kohort
from kohort.errors import BrokersUnreachableError, ErrorCode, KohortTimeoutError, UnknownTopicError
from kohort.spark import reading
from kohort.spark.offsets import RecordsLostError
from kohort.spark.options import EARLIEST, LATEST, SourceOptions, parse_options
from kohort.spark.reading import SpansToRead, SpanToRead, join_batches, read_spans, reading_config
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import Answer, ScriptedBroker
from support.ports import quiet_port


@pytest.fixture(autouse=True)
def forget_connections() -> Iterator[None]:
    """Each test begins like a fresh worker process."""
    yield
    while reading._idle:
        reading._idle.popitem()[1].close(timeout=0)


def options(address: str, **given: object) -> SourceOptions:
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    return parse_options({"kafka.bootstrap.servers": address, "subscribe": "any", **named})


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def one(topic: str, partition: int, start: int, end: int) -> SpansToRead:
    """A task of one span."""
    return SpansToRead([SpanToRead(topic, partition, start, end)])


def rows(batches: Iterator[pa.RecordBatch]) -> dict[int, list[int]]:
    """Partition -> the offsets that were handed on, in that order."""
    found: dict[int, list[int]] = {}
    for batch in batches:
        for partition, offset in zip(
            *(batch.column(name).to_pylist() for name in ("partition", "offset")), strict=True
        ):
            found.setdefault(partition, []).append(offset)
    return found


@pytest.mark.parametrize(("start", "end"), [(0, 100), (0, 1), (37, 61), (99, 100)])
def test_a_span_is_read_exactly(address: str, topic: Any, fill: Any, start: int, end: int) -> None:
    """It begins and ends inside batches of records."""
    name = topic(2)
    fill(name, {0: 100, 1: 10})
    assert offsets(read_spans(options(address), one(name, 0, start, end))) == list(range(start, end))


def test_a_span_that_takes_many_fetches(address: str, topic: Any, fill: Any) -> None:
    """In order, without a gap, where each answer carries a piece of it."""
    name = topic(1)
    fill(name, {0: 2_000})
    small = options(address, kafka__max__partition__fetch__bytes=700)
    assert offsets(read_spans(small, one(name, 0, 3, 1_990))) == list(range(3, 1_990))


def test_columns_without_the_offset(address: str, topic: Any, fill: Any) -> None:
    """It is fetched to find the end, but not handed to Spark."""
    name = topic(1)
    fill(name, {0: 20})
    batches = list(read_spans(options(address, columns="value,partition"), one(name, 0, 5, 8)))
    assert [batch.schema.names for batch in batches] == [["value", "partition"]] * len(batches)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"5", b"6", b"7"]


def test_a_connection_is_kept_for_the_next_task(address: str, topic: Any, fill: Any) -> None:
    """Of another partition too, whatever was fetched ahead for the one before."""
    name = topic(2)
    fill(name, {0: 50, 1: 50})
    same = options(address)
    assert offsets(read_spans(same, one(name, 0, 0, 10))) == list(range(10))
    (kept,) = reading._idle.values()
    assert offsets(read_spans(same, one(name, 1, 20, 30))) == list(range(20, 30))
    assert offsets(read_spans(same, one(name, 0, 10, 20))) == list(range(10, 20))
    assert list(reading._idle.values()) == [kept]
    assert kept.assignment() == set()


def test_a_task_that_is_given_up_leaves_no_connection(address: str, topic: Any, fill: Any) -> None:
    """As when Spark has enough rows: the next task begins with a fresh one."""
    name = topic(1)
    fill(name, {0: 50})
    same = options(address)
    batches = read_spans(same, one(name, 0, 0, 50))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not reading._idle
    assert len(offsets(read_spans(same, one(name, 0, 0, 50)))) == 50


def test_no_more_is_fetched_ahead_than_one_answer(address: str) -> None:
    """What is fetched behind the end of a span is fetched in vain."""
    assert reading_config(options(address))["fetch.buffer.bytes"] == 2 * 4 * 1024 * 1024
    assert reading_config(options(address, kafka__max__partition__fetch__bytes=1000))["fetch.buffer.bytes"] == 2000


def test_records_that_never_come_end_the_task(address: str, topic: Any, fill: Any) -> None:
    """A log that lost its end, say: not a hang."""
    name = topic(1)
    fill(name, {0: 5})
    impatient = options(address, kafka__default__api__timeout__ms=400)
    with pytest.raises(KohortTimeoutError, match=rf"{name}-0 gave nothing at offset 5 for 0\.4 s"):
        offsets(read_spans(impatient, one(name, 0, 0, 6)))
    assert not reading._idle


def test_open_bounds_are_those_of_the_log_when_the_task_runs(address: str, topic: Any, fill: Any) -> None:
    """A batch's end is bound late: what came between plan and task is read, too."""
    name = topic(2)
    fill(name, {0: 5})
    task, empty = one(name, 0, EARLIEST, LATEST), one(name, 1, EARLIEST, LATEST)
    assert offsets(read_spans(options(address), empty)) == []
    fill(name, {0: 3, 1: 1})
    assert offsets(read_spans(options(address), task)) == list(range(8))
    assert offsets(read_spans(options(address), one(name, 0, 6, LATEST))) == [6, 7]
    assert offsets(read_spans(options(address), empty)) == [0]


def test_patience_of_a_task_is_an_option(address: str, topic: Any, fill: Any) -> None:
    """Spark's, by default what a call of the client may take."""
    name = topic(1)
    fill(name, {0: 5})
    with pytest.raises(KohortTimeoutError, match=r"nothing at offset 5 for 0\.3 s \(kafkaConsumer\.pollTimeoutMs"):
        offsets(read_spans(options(address, kafkaConsumer__pollTimeoutMs=300), one(name, 0, 0, 6)))


def test_an_offset_behind_the_end_may_be_skipped(
    address: str, topic: Any, fill: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`failOnDataLoss=false`: the task ends, a line says what it did not read, and the next one reads."""
    name = topic(1)
    fill(name, {0: 5})
    lenient = options(address, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, logger="kohort.spark"):
        assert offsets(read_spans(lenient, one(name, 0, 7, 9))) == []
    assert f"{name}-0 goes on at offset 9 and not at 7: its log ends at 5" in caplog.text
    assert offsets(read_spans(lenient, one(name, 0, 2, 5))) == [2, 3, 4]


def test_an_offset_behind_the_end_is_a_loss(address: str, topic: Any, fill: Any) -> None:
    """The log was cut, or is another one."""
    name = topic(1)
    fill(name, {0: 5})
    with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset 7"):
        offsets(read_spans(options(address), one(name, 0, 7, 9)))


def test_a_topic_that_is_gone_is_named(address: str) -> None:
    """Deleted between plan and task."""
    with pytest.raises(UnknownTopicError, match="gone does not exist"):
        offsets(read_spans(options(address), one("gone", 0, 0, 1)))


def planned(address: str, *topics: str) -> dict[str, str]:
    """The topics' ids, as a plan gives them to its tasks."""
    with kohort.Consumer(bootstrap_servers=address) as consumer:
        return {name: topic.topic_id for name, topic in consumer.describe_topics(topics).items()}


def make_anew(admin: kohort.Admin, name: str, partitions: int = 1) -> None:
    admin.delete_topics([name])
    admin.create_topic(name, partitions)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_made_anew_while_it_is_read_loses_the_rest(
    address: str, topic: Any, admin: kohort.Admin, fails: bool
) -> None:
    """Its offsets are those of other records, of which none is handed on."""
    name = topic(1)

    def send(value: bytes) -> None:
        with kohort.Producer(bootstrap_servers=address, linger_ms=0) as producer:
            for _ in range(12):
                producer.send(name, value, partition=0).result(10)

    send(b"a" * 300_000)
    small = options(address, kafka__max__partition__fetch__bytes=300_000, failOnDataLoss=str(fails))
    task = SpansToRead([SpanToRead(name, 0, 0, 12)], planned(address, name))
    batches = read_spans(small, task)
    begun = next(batches)
    make_anew(admin, name)
    send(b"b" * 300_000)
    if fails:
        with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset .: its topic was deleted and"):
            list(batches)
        with pytest.raises(RecordsLostError):
            list(read_spans(small, task))
        return
    found = [value for batch in (begun, *batches) for value in batch.column("value").to_pylist()]
    assert set(found) == {b"a" * 300_000}
    assert len(found) < 12
    assert list(read_spans(small, task)) == []


def test_a_worker_that_knows_a_former_topic_reads_the_planned_one(
    address: str, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Its metadata are older than the plan."""
    name = topic(1)
    fill(name, {0: 3})
    assert offsets(read_spans(options(address), SpansToRead([SpanToRead(name, 0, 0, 3)], planned(address, name))))
    make_anew(admin, name)
    fill(name, {0: 2})
    task = SpansToRead([SpanToRead(name, 0, 0, 2)], planned(address, name))
    assert offsets(read_spans(options(address), task)) == [0, 1]


def test_a_topic_that_is_made_anew_and_is_shorter_is_noticed(
    address: str, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Its log ends where the span begins: no record ever comes."""
    name = topic(1)
    fill(name, {0: 5})
    ids = planned(address, name)
    make_anew(admin, name)
    fill(name, {0: 4})
    with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset 4: its topic was deleted and made"):
        list(read_spans(options(address), SpansToRead([SpanToRead(name, 0, 4, 5)], ids)))


def test_spans_of_a_task_are_read_at_once(address: str, topic: Any, fill: Any) -> None:
    """Each exactly and in order, over partitions and topics, as few batches."""
    first, second = topic(40), topic(42)
    fill(first, dict.fromkeys(range(40), 7))
    fill(second, {41: 9})
    spans = [SpanToRead(first, number, number % 4, 4 + number % 3) for number in range(40)]
    task = SpansToRead([*spans, *(SpanToRead(second, number, EARLIEST, LATEST) for number in (40, 41))])
    batches = list(read_spans(options(address), task))
    assert len(batches) == 1
    wanted = {number: list(range(number % 4, 4 + number % 3)) for number in range(40)}
    assert rows(iter(batches)) == {**wanted, 41: list(range(9))}


def test_nothing_behind_a_span_is_fetched(address: str, topic: Any, fill: Any) -> None:
    """And a task asks for no metadata of topics that its worker has read before."""
    name = topic(4)
    fill(name, dict.fromkeys(range(4), 20))
    ids = planned(address, name)
    spans = [SpanToRead(name, number, 0, 20) for number in range(4)]
    list(read_spans(options(address), SpansToRead(spans, ids)))
    (kept,) = reading._idle.values()
    before = kept.metrics()
    assert rows(read_spans(options(address), SpansToRead(spans, ids))) == {
        number: list(range(20)) for number in range(4)
    }
    after = kept.metrics()
    assert after["fetch-total"] - before["fetch-total"] <= 2
    assert after["bytes-fetched-total"] - before["bytes-fetched-total"] < 4 * 20 * 100


def test_a_loss_concerns_its_own_span_only(
    address: str, topic: Any, fill: Any, admin: kohort.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """One topic is deleted, one is made anew, of one partition the first records are deleted, one ends before."""
    kept, deleted, renewed = topic(4), topic(1), topic(1)
    fill(kept, dict.fromkeys(range(4), 6))
    fill(deleted, {0: 6})
    fill(renewed, {0: 6})
    names = [(kept, number) for number in range(4)] + [(deleted, 0), (renewed, 0)]
    task = SpansToRead([SpanToRead(*name, 0, 6) for name in names], planned(address, kept, deleted, renewed))
    task.spans[3] = SpanToRead(kept, 3, 8, 9)
    admin.delete_topics([deleted])
    make_anew(admin, renewed)
    fill(renewed, {0: 6})
    admin.delete_records({kohort.TopicPartition(kept, 2): 4})
    with pytest.raises((RecordsLostError, UnknownTopicError)):
        list(read_spans(options(address), task))
    with caplog.at_level(logging.WARNING, logger="kohort.spark"):
        assert rows(read_spans(options(address, failOnDataLoss="false"), task)) == {
            0: list(range(6)),
            1: list(range(6)),
            2: [4, 5],
        }
    said = sorted(line.getMessage() for line in caplog.records if line.name == "kohort.spark.reading")
    assert said == sorted(
        [
            f"{deleted}-0 goes on at offset 6 and not at 0: it was deleted (failOnDataLoss=false)",
            f"{renewed}-0 goes on at offset 6 and not at 0: its topic was deleted and made anew (failOnDataLoss=false)",
            f"{kept}-2 goes on at offset 4 and not at 0: its log begins at 4 (failOnDataLoss=false)",
            f"{kept}-3 goes on at offset 9 and not at 8: its log ends at 6 (failOnDataLoss=false)",
        ]
    )


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_marks_of_transactions_belong_to_a_span(address: str, topic: Any, isolation: str) -> None:
    """A span may end in them, or have nothing else; records of aborted transactions are left out if that is asked."""
    name = topic(2)
    with kohort.Producer(bootstrap_servers=address, transactional_id=f"marks-{isolation}") as producer:
        for number, is_kept in enumerate((True, False, True)):
            producer.begin_transaction()
            for partition in range(2 if number < 2 else 1):
                producer.send(name, b"v", partition=partition)
            producer.flush()
            (producer.commit_transaction if is_kept else producer.abort_transaction)()
    # Offsets 1, 3 and 5 are marks.
    spans = [SpanToRead(name, 0, 0, 6), SpanToRead(name, 1, 3, 4)]
    given = options(address, kafka__isolation__level=isolation)
    assert rows(read_spans(given, SpansToRead(spans))) == {0: [0, 4] if isolation == "read_committed" else [0, 2, 4]}


@given(st.lists(st.integers(0, 12_000), max_size=6))
def test_small_batches_are_joined(sizes: list[int]) -> None:
    """Each has 10,000 rows, but for the last; rows keep their order."""
    whole = pa.record_batch({"offset": pa.array(range(sum(sizes)), pa.int64())})
    given_ = [whole.slice(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
    joined = list(join_batches(given_))
    assert pa.Table.from_batches(joined, whole.schema).equals(pa.Table.from_batches([whole]))
    assert all(batch.num_rows >= 10_000 for batch in joined[:-1])


def test_a_broker_that_is_away_is_waited_for(tmp_path: Any) -> None:
    """Spark's local mode does not try a task again: one that begins while the broker restarts must not fail."""
    with kohort.Broker(data_dir=tmp_path, port=quiet_port()) as broker:
        address, port = broker.bootstrap_servers, broker.port
        with kohort.Producer(bootstrap_servers=address) as producer:
            producer.send("kept", b"v", partition=0).result(10)
    impatient = options(address, kafka__default__api__timeout__ms=700)
    with pytest.raises(KohortTimeoutError) as raised:
        offsets(read_spans(impatient, one("kept", 0, 0, 1)))
    assert isinstance(raised.value.__cause__, BrokersUnreachableError)
    batches = read_spans(options(address), one("kept", 0, 0, 1))
    with kohort.Broker(data_dir=tmp_path, port=port):
        assert offsets(batches) == [0]


def test_a_task_that_knows_its_topic_waits_for_a_broker(tmp_path: Any) -> None:
    """Its topic is looked up after a second without records, which is no reason to fail either."""
    with kohort.Broker(data_dir=tmp_path, port=quiet_port()) as broker:
        address = broker.bootstrap_servers
        with kohort.Producer(bootstrap_servers=address) as producer:
            producer.send("kept", b"v", partition=0).result(10)
        task = SpansToRead([SpanToRead("kept", 0, 0, 1)], planned(address, "kept"))
    patient = options(address, kafkaConsumer__pollTimeoutMs=2_200)
    with pytest.raises(KohortTimeoutError, match=r"kept-0 gave nothing at offset 0 for 2\.2 s") as raised:
        offsets(read_spans(patient, task))
    assert isinstance(raised.value.__cause__, BrokersUnreachableError)


def test_a_log_that_refuses_an_offset_it_has_ends_the_task() -> None:
    """Each refusal seeks to the same offset again, which is no progress: not a loop without an end."""
    refusals = iter([ErrorCode.OFFSET_OUT_OF_RANGE] * 1_000)

    def answer(api: ApiKey, version: int, request: Message) -> Answer:
        match request:
            case MetadataRequest():
                leads = MetadataResponsePartition(partition_index=0, leader_id=1)
                return MetadataResponse(
                    brokers=[MetadataResponseBroker(node_id=1, host=broker.endpoint.host, port=broker.endpoint.port)],
                    topics=[MetadataResponseTopic(name="t", partitions=[leads])],
                )
            case ListOffsetsRequest():
                row = ListOffsetsPartitionResponse(partition_index=0, offset=5)
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
            case FetchRequest():
                code = next(refusals, ErrorCode.NONE)
                refused = PartitionData(partition_index=0, error_code=code)
                return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[refused])])
        raise AssertionError(request)

    versions = {ApiKey.METADATA: (1, 9), ApiKey.LIST_OFFSETS: (1, 5), ApiKey.FETCH: (4, 11)}
    with ScriptedBroker(answer, versions=versions) as broker:
        given_ = options(str(broker.endpoint), kafkaConsumer__pollTimeoutMs=200, kafka__retry__backoff__ms=1)
        with pytest.raises(KohortTimeoutError, match=r"t-0 gave nothing at offset 5 for 0\.2 s"):
            offsets(read_spans(given_, one("t", 0, 5, 6)))
    assert next(refusals, None) is not None
