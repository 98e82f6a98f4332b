"""The consumer's door: misuse is one clear error, nobody waits for ever."""

from __future__ import annotations

import socket
import threading

import pytest

from kohort.client.consumer.consumer import Consumer
from kohort.errors import BrokersUnreachableError, ConfigError, StateError, UnknownOptionError
from kohort.ids import TopicPartition
from support.ports import quiet_port

PARTITION = TopicPartition("orders", 0)
#: What a call may take: one that waits for that outlasts its test.
HOUR_S = 3_600.0


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{quiet_port()}"


def test_poll_says_at_once_that_nobody_is_there(nowhere: str) -> None:
    """Issue: refused on all addresses: an error naming host and port, not after the time that the call may take."""
    with Consumer(bootstrap_servers=nowhere, group_id="g") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(BrokersUnreachableError, match=nowhere) as refused:
            consumer.poll(HOUR_S)

    assert [address for address, _ in refused.value.attempts] == [nowhere]


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.commit({PARTITION: 1}),
        lambda consumer: consumer.committed([PARTITION]),
        lambda consumer: consumer.end_offsets([PARTITION]),
        lambda consumer: consumer.partitions_for("orders"),
    ],
    ids=["commit", "committed", "end_offsets", "partitions_for"],
)
def test_every_call_says_so(nowhere: str, call: object) -> None:
    """Whichever comes first."""
    with (
        Consumer(bootstrap_servers=nowhere, group_id="g", default_api_timeout_ms=int(HOUR_S * 1000)) as consumer,
        pytest.raises(BrokersUnreachableError, match=nowhere) as refused,
    ):
        call(consumer)  # type: ignore[operator]

    assert [address for address, _ in refused.value.attempts] == [nowhere]


def test_building_and_closing_touches_nothing() -> None:
    """No thread, no connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        threads = threading.enumerate()
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", group_id="g")
        assert threading.enumerate() == threads
        consumer.close()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_closing_twice_is_fine(nowhere: str) -> None:
    """As in `with` after an explicit close."""
    consumer = Consumer(bootstrap_servers=nowhere, group_id="g")
    consumer.subscribe(["orders"])
    consumer.close()
    consumer.close()


def test_close_does_not_wait_for_a_broker_that_is_not_there(nowhere: str) -> None:
    """Nobody to leave."""
    consumer = Consumer(bootstrap_servers=nowhere, group_id="g")
    consumer.subscribe(["orders"])
    with pytest.raises(BrokersUnreachableError):
        consumer.poll(5)

    consumer.close(HOUR_S)


@pytest.mark.parametrize("name", ["poll", "assignment_of", "commit", "subscribe", "assign", "partitions_for"])
def test_closed_consumer_says_that_it_is_closed(name: str) -> None:
    """After close, a new one has to be made."""
    consumer = Consumer(group_id="g")
    consumer.close()
    calls = {
        "poll": lambda: consumer.poll(0),
        "assignment_of": lambda: consumer.position(PARTITION),
        "commit": lambda: consumer.commit({PARTITION: 1}),
        "subscribe": lambda: consumer.subscribe(["orders"]),
        "assign": lambda: consumer.assign([PARTITION]),
        "partitions_for": lambda: consumer.partitions_for("orders"),
    }

    with pytest.raises(StateError, match="closed"):
        calls[name]()


def test_poll_without_anything_to_read_is_an_error() -> None:
    """A forgotten subscribe."""
    with Consumer(group_id="g") as consumer, pytest.raises(StateError, match="subscribe to topics or assign"):
        consumer.poll(0)


def test_subscribe_needs_a_group() -> None:
    """And says what to do."""
    with Consumer() as consumer, pytest.raises(ConfigError, match="needs the option group_id"):
        consumer.subscribe(["orders"])


@pytest.mark.parametrize("offsets", [None, {PARTITION: 1}], ids=["of poll", "chosen"])
def test_commit_needs_a_group(nowhere: str, offsets: dict[TopicPartition, int] | None) -> None:
    """Even if there is nothing to commit: a commit that does nothing would look like one that worked."""
    with Consumer(bootstrap_servers=nowhere) as consumer, pytest.raises(StateError) as refusal:
        consumer.commit(offsets)
    assert str(refusal.value) == (
        "there is no group to commit for: create the consumer with group_id, or keep the offsets yourself"
    )


def test_subscription_and_assignment_exclude_each_other(nowhere: str) -> None:
    """Either the group decides or the application does."""
    with Consumer(bootstrap_servers=nowhere, group_id="g") as consumer:
        consumer.assign([PARTITION])
        with pytest.raises(StateError, match="assigned by hand"):
            consumer.subscribe(["orders"])
        consumer.assign([])
        consumer.subscribe(["orders"])
        with pytest.raises(StateError, match="subscribed to"):
            consumer.assign([PARTITION])


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.seek(PARTITION, 1),
        lambda consumer: consumer.pause([PARTITION]),
        lambda consumer: consumer.position(PARTITION),
    ],
    ids=["seek", "pause", "position"],
)
def test_partition_that_is_not_assigned_cannot_be_moved(call: object) -> None:
    """Names it."""
    with Consumer(group_id="g") as consumer, pytest.raises(StateError, match="orders-0 is not assigned"):
        call(consumer)  # type: ignore[operator]


def test_negative_offsets_are_refused(nowhere: str) -> None:
    """Here, and not by a broker later."""
    with Consumer(bootstrap_servers=nowhere, group_id="g") as consumer:
        consumer.assign([PARTITION])
        with pytest.raises(ConfigError, match="offset cannot be -1"):
            consumer.seek(PARTITION, -1)
        with pytest.raises(ConfigError, match="offset cannot be -5"):
            consumer.commit({PARTITION: -5})


def test_column_that_does_not_exist_names_the_nearest() -> None:
    """`poll_arrow`."""
    pytest.importorskip("pyarrow")
    with Consumer(group_id="g") as consumer, pytest.raises(UnknownOptionError, match="did you mean timestamp"):
        consumer.poll_arrow(0, columns=["timestmp"])


def test_position_is_what_was_sought(nowhere: str) -> None:
    """No broker is needed to know that."""
    with Consumer(bootstrap_servers=nowhere, group_id="g") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 42)

        assert consumer.position(PARTITION) == 42
        assert consumer.assignment() == {PARTITION}
        assert consumer.has_assignment
