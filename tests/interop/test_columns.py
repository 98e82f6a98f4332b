"""Columns and records by the door, from our broker: limits to the row, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from support.waiting import PATIENCE_SECONDS

PARTITIONS = [TopicPartition("orders", number) for number in range(2)]
EACH = 50


@pytest.fixture(scope="module", params=["none", "zstd"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker() as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", len(PARTITIONS))
        with Producer(bootstrap_servers=running.bootstrap_servers, compression_type=request.param) as producer:
            for number in range(EACH):
                for partition in PARTITIONS:
                    producer.send("orders", b"%d" % number, partition=partition.partition)
        yield running


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as made:
        made.assign(PARTITIONS)
        yield made


def test_columns_and_records_share_one_position(consumer: Consumer) -> None:
    """Whichever call comes next goes on at the row where the last one stopped."""
    pytest.importorskip("pyarrow")
    seen: dict[int, list[int]] = {0: [], 1: []}
    while sum(map(len, seen.values())) < EACH * len(PARTITIONS):
        batches = consumer.poll_arrow(PATIENCE_SECONDS, max_records=7)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert len(rows) <= 7
        found = [(row["partition"], row["offset"], row["value"]) for row in rows]
        records = [*consumer.poll(0, max_records=3), *filter(None, [consumer.poll_one(0)]), *consumer.consume(2, 0)]
        found += [(record.partition, record.offset, record.value) for record in records]
        for partition, offset, value in found:
            assert value == b"%d" % offset
            seen[partition].append(offset)
    assert seen == {0: list(range(EACH)), 1: list(range(EACH))}
    assert [consumer.position(partition) for partition in PARTITIONS] == [EACH, EACH]


def test_few_records_of_several_partitions_are_one_batch_of_bounded_size(consumer: Consumer) -> None:
    """`max_bytes`: what is beyond it comes with the next call."""
    pytest.importorskip("pyarrow")
    rows = 0
    while rows < EACH * len(PARTITIONS):
        batches = consumer.poll_arrow(PATIENCE_SECONDS, columns=["value"], max_bytes=100)
        assert len(batches) == 1
        assert 1 <= batches[0].num_rows <= 100
        assert sum(map(len, batches[0].column("value").to_pylist())) <= 100
        rows += batches[0].num_rows


@pytest.mark.parametrize("limits", [{"max_records": 0}, {"max_records": "7"}, {"max_bytes": 0}, {"max_bytes": None}])
def test_limit_that_is_none_is_refused(consumer: Consumer, limits: dict[str, object]) -> None:
    """And the next good call works."""
    pytest.importorskip("pyarrow")
    with pytest.raises((TypeError, ValueError)):
        consumer.poll_arrow(1.0, **limits)  # type: ignore[arg-type]
    assert consumer.poll_arrow(PATIENCE_SECONDS)
