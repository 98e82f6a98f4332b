"""Keys go where the client sends them whose rule was chosen; records without one fill batch after batch."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kohort.client.producer.core.partitioner import Partitioner, fnv1a, parse_partitioner
from kohort.errors import ConfigError
from kohort.records.build_kernels import murmur2


@given(st.binary(max_size=64))
def test_hash_is_that_of_another_client(key: bytes) -> None:
    """kafka-python carries a port of the Java hash of its own."""
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_hash_is_that_of_java() -> None:
    """Values from the tests of Kafka's Java client, signed there."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


BATCH_BYTES = 1_000
#: Bytes of a record.
SIZE = 100


def test_equal_keys_share_a_partition() -> None:
    """Order by key depends on it."""
    partitioner = Partitioner(batch_bytes=BATCH_BYTES)
    chosen = {partitioner.choose("orders", b"customer-7", 12, SIZE) for _ in range(100)}
    assert chosen == {(murmur2(b"customer-7") & 0x7FFFFFFF) % 12}


def test_records_without_a_key_fill_a_batch_of_each_partition_in_turn() -> None:
    """KIP-794: so many bytes to one, then the next, whatever becomes of the batches."""
    partitioner = Partitioner(batch_bytes=BATCH_BYTES)
    seen = [partitioner.choose("orders", None, 3, SIZE) for _ in range(60)]
    turns = [seen[start : start + 10] for start in range(0, 60, 10)]
    assert all(len(set(turn)) == 1 for turn in turns)
    order = [turn[0] for turn in turns]
    assert sorted(order[:3]) == [0, 1, 2]
    assert order[:3] == order[3:]


def test_each_topic_has_turns_of_its_own() -> None:
    partitioner = Partitioner(batch_bytes=BATCH_BYTES)
    orders = [partitioner.choose("orders", None, 3, SIZE)]
    for _ in range(5):
        partitioner.choose("bills", None, 3, BATCH_BYTES)
        orders.append(partitioner.choose("orders", None, 3, SIZE))
    assert len(set(orders)) == 1


def test_producers_do_not_all_begin_with_the_same_partition() -> None:
    """Programs that send a record and end would fill one partition."""
    first = {Partitioner(batch_bytes=1, seed=seed).choose("orders", None, 5, SIZE) for seed in range(5)}
    assert first == set(range(5))


def test_partition_that_is_gone_is_not_chosen() -> None:
    """A topic that was created again with fewer."""
    partitioner = Partitioner(batch_bytes=BATCH_BYTES, seed=7)
    assert partitioner.choose("orders", None, 9, SIZE) == 8
    assert partitioner.choose("orders", None, 1, SIZE) == 0


@pytest.mark.parametrize("rule", ["round_robin", "random"])
def test_rules_that_change_with_each_record(rule: str) -> None:
    """Whatever the key."""
    partitioner = Partitioner(rule, batch_bytes=BATCH_BYTES)
    seen = [partitioner.choose("orders", b"k", 4, SIZE) for _ in range(8)]
    assert set(seen[:4]) == set(seen[4:]) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("rule", "key", "number"),
    [
        ("murmur2", b"k", (murmur2(b"k") & 0x7FFFFFFF) % 1000),
        ("murmur2", None, (murmur2(b"") & 0x7FFFFFFF) % 1000),
        ("murmur2_random", b"", (murmur2(b"") & 0x7FFFFFFF) % 1000),
        ("consistent", b"k", zlib.crc32(b"k") % 1000),
        ("consistent", None, 0),
        ("consistent_random", b"k", zlib.crc32(b"k") % 1000),
        ("fnv1a", b"k", fnv1a(b"k") % 1000),
        ("fnv1a", None, fnv1a(b"") % 1000),
        ("fnv1a_random", b"", fnv1a(b"") % 1000),
    ],
)
def test_rules_of_librdkafka(rule: str, key: bytes | None, number: int) -> None:
    """Held against librdkafka itself by a test with a broker."""
    assert Partitioner(rule, batch_bytes=BATCH_BYTES, seed=500).choose("orders", key, 1000, SIZE) == number


@pytest.mark.parametrize(
    ("rule", "key"), [("murmur2_random", None), ("fnv1a_random", None), ("consistent_random", b"")]
)
def test_rules_that_spread_what_has_no_key(rule: str, key: bytes | None) -> None:
    """In turns."""
    assert Partitioner(rule, batch_bytes=BATCH_BYTES, seed=500).choose("orders", key, 1000, SIZE) == 501


def test_function_of_the_application_decides() -> None:
    """With topic, key and number of partitions."""
    asked: list[Any] = []

    def rule(topic: str, key: bytes | None, count: int) -> int:
        asked.append((topic, key, count))
        return count - 1

    assert Partitioner(rule, batch_bytes=BATCH_BYTES).choose("orders", b"k", 7, SIZE) == 6
    assert asked == [("orders", b"k", 7)]


@pytest.mark.parametrize("answer", [-1, 7, None, "1", 1.0, True])
def test_answer_that_is_no_partition_is_refused(answer: object) -> None:
    with pytest.raises(ConfigError, match="the partitioner has"):
        Partitioner(lambda *_: answer, batch_bytes=BATCH_BYTES).choose("orders", b"k", 7, SIZE)  # type: ignore[arg-type, return-value]


def test_function_that_raises_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"the partitioner has failed for a record of orders: ZeroDivisionError"
    ) as why:
        Partitioner(lambda *_: 1 // 0, batch_bytes=BATCH_BYTES).choose("orders", b"k", 7, SIZE)
    assert isinstance(why.value.__cause__, ZeroDivisionError)


def test_names_of_rules() -> None:
    """Ours are librdkafka's; Kafka's class is known, too."""
    assert parse_partitioner("org.apache.kafka.clients.producer.RoundRobinPartitioner") == "round_robin"
    assert parse_partitioner(len) is len
    for wrong in ("sticky", 5, None, ["murmur2"]):
        with pytest.raises(ValueError, match="one of murmur2_random, murmur2, "):
            parse_partitioner(wrong)
