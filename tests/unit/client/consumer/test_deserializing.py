"""Keys and values through functions of the application's."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kohort import Broker, Consumer, Producer, TopicPartition
from kohort.errors import ConfigError, DeserializationError
from support.waiting import PATIENCE_SECONDS, until

ORDERS = TopicPartition("orders", 0)
VALUES: list[bytes | None] = [b'{"n": 0}', b'{"n": 1}', b"{", None, b'{"n": 4}']


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for value in VALUES:
                producer.send("orders", value, key="k", partition=0)
        yield running


def reader(broker: Broker, **options: object) -> Consumer:
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **options)
    consumer.assign([ORDERS])
    return consumer


def test_a_value_that_cannot_be_read_says_where_it_is_and_stays(broker: Broker) -> None:
    with reader(broker, value_deserializer=json.loads, key_deserializer=bytes.decode) as consumer:
        first = consumer.poll(PATIENCE_SECONDS)
        assert [(record.key, record.value) for record in first] == [("k", {"n": 0}), ("k", {"n": 1})]
        for _ in range(2):
            with pytest.raises(
                DeserializationError, match=r"value of the record at orders-0, offset 2.*seek to 3"
            ) as why:
                consumer.poll(PATIENCE_SECONDS)
            assert (why.value.topic, why.value.partition, why.value.offset) == ("orders", ORDERS, 2)
            assert isinstance(why.value.__cause__, json.JSONDecodeError)
            assert consumer.position(ORDERS) == 2
        consumer.seek(why.value.partition, why.value.next_offset)
        assert [record.value for record in consumer.poll(PATIENCE_SECONDS)] == [None, {"n": 4}]


@pytest.mark.parametrize("way", ["poll_one", "iteration", "consume"])
def test_every_way_to_read_deserializes(broker: Broker, way: str) -> None:
    with reader(broker, value_deserializer=len) as consumer:
        seen: list[object] = []
        reads = {
            "poll_one": lambda: [record for record in [consumer.poll_one(1.0)] if record],
            "iteration": lambda: [next(consumer)],
            "consume": lambda: consumer.consume(2, 1.0),
        }
        until(
            lambda: len(seen) == len(VALUES),
            what="every record",
            step=lambda: seen.extend(record.value for record in reads[way]()),
        )
    assert seen == [None if value is None else len(value) for value in VALUES]


def test_what_was_not_handed_out_is_not_committed(broker: Broker) -> None:
    options = {"group_id": "billing", "value_deserializer": json.loads}
    with reader(broker, **options) as consumer:
        assert len(consumer.poll(PATIENCE_SECONDS)) == 2
        with pytest.raises(DeserializationError):
            consumer.poll(PATIENCE_SECONDS)
        consumer.commit()
        assert consumer.committed([ORDERS]) == {ORDERS: 2}


def test_columns_are_bytes(broker: Broker) -> None:
    with reader(broker, value_deserializer=json.loads) as consumer:
        batches = consumer.poll_arrow(PATIENCE_SECONDS)
        assert batches[0].column("value").to_pylist() == VALUES


@pytest.mark.parametrize("given", ["json", 3, b"x"])
def test_what_cannot_be_called_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match=r"value\.deserializer"):
        Consumer(value_deserializer=given)
