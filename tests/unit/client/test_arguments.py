"""What the consumer's calls are given: refused at the call, and the next good call works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import kafka
import pytest

import kohort
from kohort import Consumer, OffsetAndMetadata, TopicPartition
from kohort.client.arguments import to_offsets, to_partition, to_partitions, to_seconds
from kohort.errors import ConfigError

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        yield broker.bootstrap_servers


#: Calls with arguments that are none; each ended the client, took 30 s, or raised what nobody understands.
WRONG: list[tuple[str, Callable[[Any], object]]] = [
    ("commit of pairs", lambda c: c.commit([("orders", 0)])),
    ("commit of text", lambda c: c.commit("orders")),
    ("commit of one", lambda c: c.commit(ORDERS)),
    ("commit of half an offset", lambda c: c.commit({ORDERS: 5.5})),
    ("commit below 0", lambda c: c.commit({ORDERS: -1})),
    ("commit of a topic", lambda c: c.commit({"orders": 3})),
    ("commit beyond int64", lambda c: c.commit({ORDERS: 2**63})),
    ("seek to text", lambda c: c.seek(ORDERS, "5")),
    ("seek to half an offset", lambda c: c.seek(ORDERS, 5.5)),
    ("seek below 0", lambda c: c.seek(ORDERS, -1)),
    ("seek to true", lambda c: c.seek(ORDERS, True)),
    ("seek to a record of nowhere", lambda c: c.seek(ORDERS)),
    ("seek to epoch half", lambda c: c.seek(ORDERS, OffsetAndMetadata(1, "", 0.5))),
    ("seek to the beginning of a name", lambda c: c.seek_to_beginning("orders")),
    ("seek to the end of a number", lambda c: c.seek_to_end(3)),
    ("seek to a time that is text", lambda c: c.seek_to_timestamp("now")),
    ("seek to a time before 1970", lambda c: c.seek_to_timestamp(-1)),
    ("lag of a name", lambda c: c.lag("orders")),
    ("lag of half", lambda c: c.current_lag(0.5)),
    ("watermarks of a name", lambda c: c.watermarks("orders")),
    ("watermarks for ever", lambda c: c.get_watermark_offsets(ORDERS, -1)),
    ("high water of nothing", lambda c: c.highwater(None)),
    ("stored text", lambda c: c.store_offsets("orders")),
    ("seek in a topic", lambda c: c.seek("orders", 0)),
    ("committed of names", lambda c: c.committed(["orders"])),
    ("end of one", lambda c: c.end_offsets(ORDERS)),
    ("end of nothing", lambda c: c.end_offsets(None)),
    ("beginning of a number", lambda c: c.beginning_offsets([3])),
    ("times without times", lambda c: c.offsets_for_times([ORDERS])),
    ("times of text", lambda c: c.offsets_for_times({ORDERS: "now"})),
    ("partitions of nothing", lambda c: c.partitions_for(None)),
    ("partitions of bytes", lambda c: c.partitions_for(b"orders")),
    ("partitions of no name", lambda c: c.partitions_for("")),
    ("position of a name", lambda c: c.position("orders")),
    ("assign of names", lambda c: c.assign(["orders"])),
    ("assign of one", lambda c: c.assign(ORDERS)),
    ("assign of a negative one", lambda c: c.assign([("orders", -1)])),
    ("assign beyond int32", lambda c: c.assign([("orders", 2**31)])),
    ("assign of nothing", lambda c: c.assign(None)),
    ("pause of a name", lambda c: c.pause("orders")),
    ("resume of one", lambda c: c.resume(ORDERS)),
    ("subscribe to bytes", lambda c: c.subscribe([b"orders"])),
    ("subscribe to a number", lambda c: c.subscribe([1])),
    ("subscribe to nothing", lambda c: c.subscribe(None)),
    ("subscribe to no name", lambda c: c.subscribe([""])),
    ("poll for nothing", lambda c: c.poll(None)),
    ("poll for text", lambda c: c.poll("1")),
    ("poll for less than nothing", lambda c: c.poll(-1)),
    ("poll for ever", lambda c: c.poll(float("inf"))),
    ("a timeout of text", lambda c: c.end_offsets([ORDERS], timeout="1")),
]


@pytest.fixture(scope="module")
def consumer(address: str) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as made:
        made.assign([("orders", 0)])
        yield made


@pytest.mark.parametrize(("what", "call"), WRONG, ids=[what for what, _ in WRONG])
def test_wrong_argument_is_refused_and_the_next_good_call_works(
    what: str, call: Callable[[Consumer], object], consumer: Consumer
) -> None:
    """In one sentence that shows what is expected; the background never hears of it."""
    with pytest.raises((TypeError, ConfigError)) as refused:
        call(consumer)
    assert "expected" in str(refused.value) or "text, not" in str(refused.value)

    consumer.commit({ORDERS: 0})
    assert consumer.committed([ORDERS]) == {ORDERS: 0}
    assert consumer.assignment() == {ORDERS}


@pytest.mark.parametrize(
    "one",
    [ORDERS, kafka.TopicPartition("orders", 0), confluent_kafka.TopicPartition("orders", 0)],
    ids=["ours", "a", "b"],
)
def test_one_partition_where_several_are_expected_is_told_so(one: object) -> None:
    """kafka-python pauses one; it is a tuple, as ours is, and not two partitions."""
    with pytest.raises(TypeError, match=r"^partitions cannot be TopicPartition.*: a list of them is expected"):
        to_partitions(one)


def test_shapes_of_other_clients_are_taken() -> None:
    """confluent-kafka's TopicPartition carries an offset; kafka-python's values are offsets with metadata."""
    theirs = confluent_kafka.TopicPartition("orders", 3, 7)
    assert to_partition(theirs) == TopicPartition("orders", 3)
    assert to_offsets([theirs]) == {TopicPartition("orders", 3): 7}
    assert to_offsets({ORDERS: SimpleNamespace(offset=4, metadata="")}) == {ORDERS: OffsetAndMetadata(4)}
    assert to_offsets({("orders", 1): 4}) == {TopicPartition("orders", 1): 4}
    with pytest.raises(ConfigError, match="offset cannot be -1001"):
        to_offsets([confluent_kafka.TopicPartition("orders", 3)])
    assert to_seconds(2) == 2.0


@pytest.mark.parametrize("seconds", [1e305, 10**400, 1e10])
def test_time_beyond_all_clocks_is_as_long_as_clocks_go(seconds: float) -> None:
    """It could not be told in milliseconds, or waited for."""
    assert to_seconds(seconds) == to_seconds(1e9) == 1e9
