"""Tables that are sent by one call: the columns of Spark's Kafka sink, straight from Arrow's memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import kohort
from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.errors import BrokerError, BufferFullError, ConfigError, PartlySentError, StateError

WAIT_S = 20.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for topic in ("a", "b"):
                admin.create_topic(topic, 3)
        yield broker.bootstrap_servers


def read(address: str, topic: str, stored: kohort.SentMany) -> dict[int, list[kohort.ConsumerRecord]]:
    """What is in those ranges, by partition."""
    found: dict[int, list[kohort.ConsumerRecord]] = {}
    with Consumer(bootstrap_servers=address) as consumer:
        for part in stored.ranges:
            place = TopicPartition(topic, part.partition)
            consumer.assign([place])
            consumer.seek(place, part.base_offset)
            rows: list[kohort.ConsumerRecord] = []
            while len(rows) < part.record_count:
                rows += consumer.poll(1.0)
            found.setdefault(part.partition, []).extend(rows[: part.record_count])
    return found


def test_every_column_of_sparks_sink(address: str) -> None:
    """Slices and chunks, missing values, times, headers; two topics in one table."""
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([b"skipped", b"k", None, b"", b"k2"], pa.binary()),
            "value": pa.array(["skipped", "ä", None, "", "v2"], pa.string()),
            "topic": pa.array(["a", "a", "b", "b", "a"]).dictionary_encode(),
            "partition": pa.array([0, 1, 2, 2, None], pa.int32()),
            "timestamp": pa.array(
                [datetime.fromtimestamp(number, UTC) for number in range(5)], pa.timestamp("us", "UTC")
            ),
            "headers": pa.array([None, [{"key": "h", "value": b"1"}], None, [], [{"key": "h", "value": None}]], pairs),
        }
    )
    with Producer(bootstrap_servers=address) as producer:
        first, second = producer.send_arrow(pa.concat_tables([table.slice(1, 2), table.slice(3)])).result(WAIT_S)
        home = producer.send("a", b"", b"k2").result(WAIT_S).partition
    assert (first.topic, first.record_count, second.topic, second.record_count) == ("a", 2, "b", 2)
    rows = [row for records in read(address, "a", first).values() for row in records if row.value]
    assert sorted((row.partition, row.key, row.value, row.timestamp, row.headers) for row in rows) == sorted(
        [(1, b"k", "ä".encode(), 1_000, (("h", b"1"),)), (home, b"k2", b"v2", 4_000, (("h", None),))]
    )
    rows = read(address, "b", second)[2]
    assert [(row.key, row.value, row.timestamp) for row in rows] == [(None, None, 2_000), (b"", b"", 3_000)]


def test_many_rows_of_one_topic(address: str) -> None:
    """More than the buffer holds; as a record batch, with keys."""
    batch = pa.record_batch(
        {"key": [f"k{number % 50}" for number in range(30_000)], "value": [b"%d" % number for number in range(30_000)]}
    )
    with Producer(bootstrap_servers=address, buffer_memory=200_000) as producer:
        (stored,) = producer.send_arrow(batch, "a").result(WAIT_S)
        homes = {key: producer.send("a", b"", key).result(WAIT_S).partition for key in (b"k1", b"k2", b"k3")}
    assert stored.record_count == 30_000
    found = read(address, "a", stored)
    for key, home in homes.items():
        values = [int(row.value or 0) for row in found[home] if row.key == key and row.value]
        assert values == sorted(values) and len(values) == 600


@pytest.mark.parametrize(
    ("data", "topic", "kind", "words"),
    [
        ([1], "a", TypeError, "a list is no table"),
        (pa.table({"key": ["k"]}), "a", ConfigError, "there is no column value"),
        (
            pa.table({"value": ["v"], "valeu": [1]}),
            "a",
            ConfigError,
            "there cannot be a column valeu: some of key, value",
        ),
        (pa.table({"value": ["v"]}), None, ConfigError, "neither a topic nor a column topic"),
        (pa.table({"value": ["v"], "topic": ["a"]}), "a", ConfigError, "leave one of the two out"),
        (pa.table({"value": ["v"], "topic": pa.array([None], pa.string())}), None, ConfigError, "a row has no topic"),
        (pa.table({"value": ["v"], "topic": [""]}), None, ConfigError, "topic has 0 characters"),
        (pa.table({"value": [1]}), "a", TypeError, "column value is int64: binary or string is expected"),
        (pa.table({"value": ["v"], "key": [1.5]}), "a", TypeError, "column key is double"),
        (pa.table({"value": ["v"], "partition": ["1"]}), "a", TypeError, "column partition is string: whole numbers"),
        (pa.table({"value": ["v"], "partition": [-1]}), "a", ConfigError, "column partition has values from -1 to -1"),
        (pa.table({"value": ["v"], "timestamp": [1.5]}), "a", TypeError, "column timestamp is double"),
        (pa.table({"value": ["v"], "timestamp": [-5]}), "a", ConfigError, "column timestamp has values from -5"),
        (pa.table({"value": ["v"], "headers": ["h"]}), "a", TypeError, "column headers is string"),
        (
            pa.table({"value": ["v"], "headers": [[{"key": None, "value": b"x"}]]}),
            "a",
            TypeError,
            "column headers is .*: text that is never missing is expected as key",
        ),
        (
            pa.table({"value": ["v"], "headers": [[{"key": "h", "value": 1.5}]]}),
            "a",
            TypeError,
            "column headers is double: binary or string is expected",
        ),
        (pa.table({"value": [bytes(2_000_000)]}), "a", BrokerError, r"value\[0\] of 2000000 bytes is above"),
    ],
)
def test_wrong_table_is_refused_at_the_call(
    address: str, data: Any, topic: str | None, kind: type[Exception], words: str
) -> None:
    """With what is expected instead; the next good one is sent."""
    with Producer(bootstrap_servers=address) as producer:
        with pytest.raises(kind, match=words):
            producer.send_arrow(data, topic)
        (stored,) = producer.send_arrow(pa.table({"value": ["good"]}), "a").result(WAIT_S)
        assert stored.record_count == 1


def test_headers_of_all_stand_behind_those_of_the_row(address: str) -> None:
    """With a column for them and without; a map is as good as a list of structs."""
    maps = pa.map_(pa.string(), pa.binary())
    column = pa.array([[("h", b"1"), ("i", None)], None], maps)
    with Producer(bootstrap_servers=address) as producer:
        table = pa.table({"value": ["x", "y"], "partition": [0, 0], "headers": column})
        (with_own,) = producer.send_arrow(table, "a", headers={"run": "7", "none": None}).result(WAIT_S)
        (without,) = producer.send_arrow(table.drop_columns(["headers"]), "a", headers=[("run", b"8")]).result(WAIT_S)
        (bare,) = producer.send_arrow(table, "a").result(WAIT_S)
    more = (("run", b"7"), ("none", None))
    assert [row.headers for row in read(address, "a", with_own)[0]] == [(("h", b"1"), ("i", None), *more), more]
    assert [row.headers for row in read(address, "a", without)[0]] == [(("run", b"8"),)] * 2
    assert [row.headers for row in read(address, "a", bare)[0]] == [(("h", b"1"), ("i", None)), ()]


def test_rows_of_many_topics_keep_their_order(address: str) -> None:
    """Topics come in the order in which they come up."""
    names = ["b" if number % 3 else "a" for number in range(1, 3_000)]
    table = pa.table({"topic": names, "value": list(map(str, range(1, 3_000))), "partition": [0] * 2_999})
    with Producer(bootstrap_servers=address) as producer:
        sent = producer.send_arrow(table).result(WAIT_S)
    assert [each.topic for each in sent] == ["b", "a"]
    for stored in sent:
        values = [int(row.value or 0) for row in read(address, stored.topic, stored)[0]]
        assert values == [number for number in range(1, 3_000) if (number % 3 == 0) is (stored.topic == "a")]


@pytest.mark.parametrize("rule", ["round_robin", lambda _, key, count: int(key or 0) % count])
def test_other_rules_see_every_row(address: str, rule: Any) -> None:
    """Rules by name and functions are asked row by row; a row's own partition goes first."""
    rows = {"key": ["0", "1", "2", "3", None, "5"], "value": list("abcdef"), "partition": [None, None, 0, None, 1, 2]}
    with Producer(bootstrap_servers=address, partitioner=rule) as producer:
        (stored,) = producer.send_arrow(pa.table(rows), "a").result(WAIT_S)
    places = {row.value: number for number, found in read(address, "a", stored).items() for row in found}
    assert [places[value] for value in (b"c", b"e", b"f")] == [0, 1, 2]
    if callable(rule):
        assert [places[value] for value in (b"a", b"b", b"d")] == [0, 1, 0]


def test_partition_that_is_not_there_fails_its_topic_alone(address: str) -> None:
    """What was stored of the others is told."""
    table = pa.table({"value": ["x", "y", "z"], "topic": ["a", "b", "b"], "partition": [77, 1, 1]})
    with Producer(bootstrap_servers=address) as producer:
        future = producer.send_arrow(table)
        with pytest.raises(PartlySentError, match="1 record was not stored: a has partitions 0 to 2") as failure:
            future.result(WAIT_S)
        assert isinstance(failure.value.stored, tuple)
        assert [each.record_count for each in failure.value.stored] == [0, 2]


def test_table_that_is_half_handed_over_is_told_by_its_future() -> None:
    """Only where nothing of it was taken the call itself raises: it may be made again."""
    table = pa.table({"value": [bytes(60_000)] * 2, "topic": ["a", "b"]})
    given = {"buffer_memory": 100_000, "max_block_ms": 50, "delivery_timeout_ms": 400, "request_timeout_ms": 200}
    with Producer(bootstrap_servers="127.0.0.1:1", linger_ms=0, **given) as producer:  # type: ignore[arg-type]
        future = producer.send_arrow(table)
        with pytest.raises(BufferFullError):
            producer.send_arrow(table)
        with pytest.raises(PartlySentError, match="2 records were not stored"):
            future.result(WAIT_S)


def test_nothing_is_nothing(address: str) -> None:
    """A table without rows, and a closed producer."""
    empty = pa.table({"value": pa.array([], pa.binary()), "topic": pa.array([], pa.string())})
    producer = Producer(bootstrap_servers=address)
    assert producer.send_arrow(empty).result(0) == ()
    assert producer.send_arrow(empty.drop_columns(["topic"]), "a").result(0) == ()
    producer.close()
    with pytest.raises(StateError, match="closed"):
        producer.send_arrow(empty)
