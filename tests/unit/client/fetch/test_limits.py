"""Limits that change while the consumer runs: from the next fetch on, without a reading that begins anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import Broker, Consumer, Producer, TopicPartition
from kohort.client.consumer.application_events import ChunkTaken, Configured, PartitionsAssigned, Start
from kohort.errors import ConfigError, StateError, UnknownOptionError
from kohort.wire.messages.fetch import FetchRequest
from support.dialogues.consumer_dialogue import ConsumerDialogue, batch, orders
from support.waiting import PATIENCE_SECONDS

KIB = 1024
ORDERS = TopicPartition("orders", 0)


def reading(**options: object) -> ConsumerDialogue:
    consumer = ConsumerDialogue(**{"group_id": None, **options})
    consumer.take(PartitionsAssigned(starts={orders(0)[0]: Start(fence=consumer.new_fence(), offset=0)}))
    consumer.settle()
    return consumer


def configure(consumer: ConsumerDialogue, **changes: int) -> None:
    consumer.take(Configured(settings=consumer.settings.changed(**changes)))
    consumer.settle()


def test_next_fetch_keeps_to_the_new_limits() -> None:
    """The one under way is not broken off for them."""
    consumer = reading()
    before = consumer.expect(FetchRequest)

    configure(
        consumer,
        fetch_max_bytes=30 * KIB,
        fetch_max_wait_ms=7,
        fetch_min_bytes=3,
        max_partition_fetch_bytes=40 * KIB,
    )
    assert consumer.expect(FetchRequest) is before
    consumer.serve()

    request = consumer.expect(FetchRequest)
    assert (request.max_bytes, request.max_wait_ms, request.min_bytes) == (30 * KIB, 7, 3)
    assert request.topics[0].partitions[0].partition_max_bytes == 40 * KIB


def test_larger_buffer_is_used_at_once() -> None:
    """Nothing else has to happen."""
    consumer = reading(fetch_buffer_bytes=0)
    assert consumer.find(FetchRequest) == []

    configure(consumer, fetch_buffer_bytes=16 * KIB)

    assert consumer.expect(FetchRequest).max_bytes == 12 * KIB


def test_what_a_smaller_buffer_cannot_hold_is_kept_until_it_is_taken() -> None:
    """No record is lost, and none is fetched meanwhile."""
    consumer = reading(fetch_buffer_bytes=64 * KIB)
    data = [batch(0, 1_000), batch(1_000, 1_000)]
    for each in data:
        consumer.serve({0: each})

    configure(consumer, fetch_buffer_bytes=16 * KIB)
    consumer.serve()
    assert consumer.find(FetchRequest) == []
    consumer.take(ChunkTaken(sizes={orders(0)[0]: sum(map(len, data))}))

    assert consumer.expect(FetchRequest).max_bytes <= 12 * KIB


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A consumer of ten records."""
    with Broker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("orders", value=b"%d" % number, partition=0)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", fetch_buffer_bytes=0
        ) as made:
            made.assign([ORDERS])
            yield made


def test_limits_of_a_running_consumer_change(consumer: Consumer) -> None:
    """By keyword or dotted name, as where it is created."""
    assert consumer.poll(0.2) == [], "a buffer of nothing fetches nothing"

    consumer.configure({"fetch.buffer.bytes": 1 << 20}, max_poll_records=3)

    assert [record.offset for record in consumer.poll(PATIENCE_SECONDS)] == [0, 1, 2]


def test_other_options_do_not_change(consumer: Consumer) -> None:
    """They are told apart from those that do not exist; nothing of such a call counts."""
    with pytest.raises(ConfigError, match=r"group\.id cannot be changed while the consumer runs"):
        consumer.configure(max_poll_records=1, group_id="other")
    with pytest.raises(UnknownOptionError, match=r"did you mean max_poll_records\?"):
        consumer.configure(max_poll_record=1)
    with pytest.raises(ConfigError, match=r"fetch\.max\.bytes"):
        consumer.configure(fetch_max_bytes=0)
    assert consumer._context.settings.options["max_poll_records"] == 500

    consumer.close()
    with pytest.raises(StateError, match="closed"):
        consumer.configure(max_poll_records=1)
