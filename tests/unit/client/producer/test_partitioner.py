"""Keys go where Kafka's Java clients send them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kohort.client.producer.core.partitioner import Partitioner, murmur2


@given(st.binary(max_size=64))
def test_hash_is_that_of_another_client(key: bytes) -> None:
    """kafka-python carries a port of the Java hash of its own."""
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_hash_is_that_of_java() -> None:
    """Values from the tests of Kafka's Java client, signed there."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


def test_equal_keys_share_a_partition() -> None:
    """Order by key depends on it."""
    partitioner = Partitioner()
    chosen = {partitioner.choose("orders", b"customer-7", 12) for _ in range(100)}
    assert chosen == {(murmur2(b"customer-7") & 0x7FFFFFFF) % 12}


def test_records_without_a_key_change_partition_with_each_batch() -> None:
    """KIP-480: whole batches, then the next partition."""
    partitioner = Partitioner()
    first = [partitioner.choose("orders", None, 3) for _ in range(10)]
    partitioner.on_batch_closed("orders", first[0])
    second = [partitioner.choose("orders", None, 3) for _ in range(10)]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


def test_sticky_partition_survives_only_while_it_exists() -> None:
    """A topic that was re-created with fewer partitions must not be sent to one that is gone."""
    partitioner = Partitioner()
    while (chosen := partitioner.choose("orders", None, 8)) != 7:
        partitioner.on_batch_closed("orders", chosen)
    assert partitioner.choose("orders", None, 8) == 7, "its batch is open"
    assert partitioner.choose("orders", None, 1) == 0


def test_batches_without_a_key_go_around() -> None:
    partitioner = Partitioner()
    seen = []
    for _ in range(16):
        seen.append(partitioner.choose("orders", None, 8))
        partitioner.on_batch_closed("orders", seen[-1])
    assert set(seen[:8]) == set(seen[8:]) == set(range(8))


def test_batch_of_another_partition_leaves_the_present_one_as_it_is() -> None:
    """One that was full of records with keys, or that was named by the application."""
    partitioner = Partitioner()
    present = partitioner.choose("orders", None, 8)
    partitioner.on_batch_closed("orders", (present + 1) % 8)
    assert partitioner.choose("orders", None, 8) == present
