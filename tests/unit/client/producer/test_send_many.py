"""Many records by one call: they go where single ones go, and the future tells where they are, or what is not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kohort
from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.client.producer import bulk_send
from kohort.client.producer.bulk_send import ListColumns
from kohort.client.producer.core.partitioner import Partitioner
from kohort.errors import BrokerError, BufferFullError, ConfigError, ErrorCode, PartlySentError, StateError
from kohort.records import build_kernels
from kohort.records.batch import encode_headers, iterate_records
from kohort.records.building import build
from kohort.records.kernel_form import plain_form

WAIT_S = 20.0
PARTITIONS = 4
FORMS = pytest.mark.parametrize("kernels", [build_kernels, plain_form(build_kernels)], ids=["as built", "plain"])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(address: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


def read(address: str, topic: str) -> dict[int, list[kohort.ConsumerRecord]]:
    """All that is in it, by partition."""
    found: dict[int, list[kohort.ConsumerRecord]] = {number: [] for number in range(PARTITIONS)}
    with Consumer(bootstrap_servers=address) as consumer:
        places = [TopicPartition(topic, number) for number in found]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        ends = consumer.end_offsets(places)
        while any(len(found[place.partition]) < ends[place] for place in places):
            for record in consumer.poll(1.0):
                found[record.partition].append(record)
    return found


def test_rows_are_stored_in_order_and_told_by_ranges(address: str, topic: str) -> None:
    """Text and bytes, a tombstone, times and headers."""
    with Producer(bootstrap_servers=address) as producer:
        future = producer.send_many(
            topic, ["a", b"b", None, bytearray(b"d")], partition=2, timestamps=[5, 9, 7, 6], headers=[("h", "1")]
        )
        stored = future.result(WAIT_S)
    assert stored == kohort.SentMany(topic, 4, (kohort.OffsetRange(2, 0, 4),))
    assert [(each.value, each.timestamp) for each in read(address, topic)[2]] == [
        (b"a", 5), (b"b", 9), (None, 7), (b"d", 6),
    ]  # fmt: skip
    assert {each.headers for each in read(address, topic)[2]} == {(("h", b"1"),)}


@pytest.mark.parametrize("rule", ["murmur2_random", "consistent"])
def test_keys_go_where_those_of_single_records_go(address: str, topic: str, rule: str) -> None:
    """And what was sent before stands in front, what was sent after behind."""
    keys: list[bytes | None] = [b"k%d" % (number % 37) for number in range(500)]
    with Producer(bootstrap_servers=address, partitioner=rule, linger_ms=1_000) as producer:
        before = [producer.send(topic, b"before", key) for key in keys[:37]]
        future = producer.send_many(topic, [b"%d" % number for number in range(500)], keys=keys)
        after = [producer.send(topic, b"after", key) for key in keys[:37]]
        producer.flush(WAIT_S)
        assert future.result(0).record_count == 500
        homes = {key: each.result(0).partition for key, each in zip(keys[:37], before, strict=True)}
        assert homes == {key: each.result(0).partition for key, each in zip(keys[:37], after, strict=True)}
    for number, records in read(address, topic).items():
        assert {homes[each.key] for each in records} <= {number}
        values = [each.value for each in records]
        middle = [value for value in values if value not in (b"before", b"after")]
        assert middle == sorted(middle, key=lambda value: int(value or b""))
        assert values == [*[b"before"] * values.count(b"before"), *middle, *[b"after"] * values.count(b"after")]


def test_rows_without_a_key_reach_every_partition(address: str, topic: str) -> None:
    """In pieces of a batch or more; much more than the buffer holds at a time goes through it."""
    with Producer(bootstrap_servers=address, buffer_memory=300_000, compression_type="lz4") as producer:
        stored = producer.send_many(topic, (b"%06d" % number + bytes(100) for number in range(20_000))).result(WAIT_S)
    assert stored.record_count == sum(each.record_count for each in stored.ranges) == 20_000
    assert stored.partitions == (0, 1, 2, 3)
    found = read(address, topic)
    assert sorted(each.value for records in found.values() for each in records)[-1] == b"019999" + bytes(100)
    for part in stored.ranges:
        assert found[part.partition][part.base_offset + part.record_count - 1].offset < 20_000


def test_function_of_the_application_chooses_for_each_row(address: str, topic: str) -> None:
    with Producer(bootstrap_servers=address, partitioner=lambda _, key, count: int(key) % count) as producer:
        stored = producer.send_many(topic, [b"x"] * 8, keys=[b"%d" % number for number in range(8)]).result(WAIT_S)
        assert [each[:3] for each in stored.ranges] == [(number, 0, 2) for number in range(4)]
        with pytest.raises(PartlySentError, match="8 records were not stored: the partitioner has failed"):
            producer.send_many(topic, [b"x"] * 8).result(WAIT_S)


def test_nothing_is_nothing(address: str) -> None:
    with Producer(bootstrap_servers=address) as producer:
        assert producer.send_many("empty", []).result(0) == kohort.SentMany("empty", 0, ())


def test_serializers_are_called_for_each(address: str, topic: str) -> None:
    with Producer(bootstrap_servers=address, value_serializer=lambda value: b"<%d>" % value) as producer:
        producer.send_many(topic, range(3), partition=0).result(WAIT_S)
    assert [each.value for each in read(address, topic)[0]] == [b"<0>", b"<1>", b"<2>"]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"values": b"abc"}, TypeError, "values cannot be a bytes: a list is expected"),
        ({"values": 5}, TypeError, "values cannot be a int"),
        ({"values": {"a": 1}}, TypeError, "values cannot be a dict"),
        ({"values": [b"a", 5]}, TypeError, r"values\[1\] is a int"),
        ({"values": [b"a", bytes(2_000_000)]}, BrokerError, r"values\[1\] of 2000000 bytes is above max.request.size"),
        ({"keys": [b"a"]}, ConfigError, "there are 2 values and 1 keys: one for each is expected"),
        ({"keys": "ab"}, TypeError, "keys cannot be a str"),
        ({"timestamps": [1]}, ConfigError, "there are 2 values and 1 timestamps"),
        ({"timestamps": [1, -1]}, ConfigError, "timestamp_ms cannot be -1"),
        ({"timestamps": "now"}, TypeError, "timestamps cannot be a str"),
        ({"partition": -1}, ConfigError, "partition cannot be -1"),
        ({"topic": None}, TypeError, "topic must be text"),
        ({"headers": [("a", 5)]}, TypeError, "header a is a int"),
    ],
)
def test_wrong_argument_is_refused_at_the_call(
    address: str, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """And nothing of it is sent."""
    with Producer(bootstrap_servers=address) as producer:
        with pytest.raises(kind, match=words):
            producer.send_many(**{"topic": "wrong", "values": [b"a", b"b"], **arguments})
        assert producer.send_many("wrong", [b"good"]).result(WAIT_S).record_count == 1


def test_partition_that_is_not_there_fails_all_rows(address: str, topic: str) -> None:
    with Producer(bootstrap_servers=address) as producer:
        future = producer.send_many(topic, [b"x"] * 3, partition=77)
        with pytest.raises(PartlySentError, match=r"3 records were not stored: .* has partitions 0 to 3") as failure:
            future.result(WAIT_S)
    assert failure.value.stored == kohort.SentMany(topic, 0, ())
    assert isinstance(failure.value.__cause__, ConfigError)


def test_batches_that_the_broker_finds_too_large_are_cut(address: str) -> None:
    """`max.message.bytes` of the topic."""
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("narrow", 1, configs={"max.message.bytes": "5000"})
    with Producer(bootstrap_servers=address, batch_size=4_000) as producer:
        assert producer.send_many("narrow", [bytes(300)] * 500).result(WAIT_S).record_count == 500
        with pytest.raises(PartlySentError, match="1 record was not stored: MESSAGE_TOO_LARGE") as failure:
            producer.send_many("narrow", [bytes(300), bytes(6_000), bytes(300)], partition=0).result(WAIT_S)
    assert (
        isinstance(failure.value.__cause__, BrokerError) and failure.value.__cause__.code is ErrorCode.MESSAGE_TOO_LARGE
    )
    assert failure.value.stored.record_count == 2  # type: ignore[attr-defined]


def test_full_buffer_ends_the_rows_that_have_no_room() -> None:
    """Those before them may be stored yet: the future tells; the very first are refused at the call."""
    producer = Producer(bootstrap_servers="127.0.0.1:1", buffer_memory=10_000, max_block_ms=0, linger_ms=60_000)
    future = producer.send_many("orders", [bytes(1_000)] * 30)
    with pytest.raises(BufferFullError):
        producer.send_many("orders", [bytes(4_000)])
    producer.close(0.0)
    with pytest.raises(PartlySentError, match="30 records were not stored"):
        future.result(WAIT_S)
    with pytest.raises(StateError, match="closed"):
        producer.send_many("orders", [b"x"])


@pytest.mark.logs_bugs
def test_rows_of_a_machine_that_fails_end(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch or on their way there."""
    producer = Producer(bootstrap_servers=address, linger_ms=60_000)

    all_are_sent = Event()

    def fail(*_: object) -> None:
        assert all_are_sent.wait(WAIT_S)
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("kohort.client.producer.core.sender.Sender.send_ready", fail)
    futures = [producer.send_many("orders", [b"x"] * 10, partition=0) for _ in range(3)]
    all_are_sent.set()
    assert wait(futures, WAIT_S).not_done == set()
    for future in futures:
        assert "planted" in str(future.exception(0))
    with pytest.raises(StateError, match="planted"):
        producer.close()


def test_rows_that_nobody_asks_for_are_counted_when_they_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    """As single records are."""
    producer = Producer(bootstrap_servers="127.0.0.1:1", linger_ms=60_000)
    producer.send_many("orders", [b"x"] * 7)
    producer.close(0.2)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("7 records were not stored, and the program")], lines


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=5)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.integers(0, 2**50),
        st.one_of(st.none(), st.integers(0, PARTITIONS - 1)),
        st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


@FORMS
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, limit=st.integers(60, 600))
def test_rows_are_spread_measured_and_written_as_records_are(
    kernels: ModuleType, rows: list[tuple[Any, ...]], limit: int
) -> None:
    """By the compiled kernels and the plain ones."""
    keys, values, times, partitions, headers = (list(column) for column in zip(*rows, strict=True))
    partitioner = Partitioner(batch_bytes=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_send, "spread_rows", kernels.spread_rows)
        patch.setattr(ListColumns, "_measured", staticmethod(kernels.measure_rows))
        patch.setattr(ListColumns, "_written", staticmethod(kernels.write_rows))
        columns = ListColumns(
            len(values),
            keys,
            values,
            times=times,
            time_ms=0,
            tails=[encode_headers(each) for each in headers],
            partitions=partitions,
        )
        spread = columns.spread(PARTITIONS, 3)
        found: dict[int, tuple[Any, ...]] = {}
        for chosen in spread:
            start = 0
            while start < len(chosen):
                stop, size_bytes = columns.measure(chosen, start, len(chosen), limit)
                assert size_bytes <= limit or stop == start + 1
                first = chosen[start]
                batch = build(
                    [columns.writer(chosen, start, stop)],
                    count=stop - start,
                    base_timestamp=times[first],
                    room_bytes=size_bytes + 12 * (stop - start),
                    compression="none",
                    level=None,
                    producer_id=-1,
                    producer_epoch=-1,
                    base_sequence=-1,
                )
                for row, record in zip(chosen[start:stop], iterate_records(batch), strict=True):
                    found[row] = (record.key, record.value, record.timestamp, record.headers)
                start = stop
    assert [found[row] for row in range(len(rows))] == [(row[0], row[1], row[2], row[4]) for row in rows]
    for number, chosen in enumerate(spread):
        for row in chosen:
            usual = 3 if keys[row] is None else partitioner.choose("orders", keys[row], PARTITIONS, 1)
            assert number == (usual if partitions[row] is None else partitions[row])


@FORMS
def test_row_that_names_a_partition_that_is_not_there_spreads_nothing(kernels: ModuleType) -> None:
    assert kernels.spread_rows(None, [0, 4], 2, 4, 0) == []
    for keys, partitions, turn in (([b"a"], None, 0), (None, [0], 0), ([b"a"], [0, 1], 0), (None, None, 4)):
        with pytest.raises(IndexError, match="shorter"):
            kernels.spread_rows(keys, partitions, 2, 4, turn)
    with pytest.raises(IndexError, match="the turn"):
        kernels.spread_rows(None, None, 1, 0, -1)
    assert kernels.spread_rows([b"a"], [0], 0, 4, 9) == [[], [], [], []]
    assert kernels.first_unfit([None, b"a", b"abc"], 2) == 2
    assert kernels.first_unfit([None, bytearray(b"a")], 2) == 1
    assert kernels.first_unfit([None, b"a"], 2) == -1
