"""What is over holds no memory: not until somebody drops the client, and not until the garbage collector comes by.

It counts objects, not bytes, and a client makes few: it may come after hours.
"""

from __future__ import annotations

import gc
import socket
import tracemalloc
from collections.abc import Iterator

import pytest

from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.client.core.connection import Connection
from kohort.errors import BrokersUnreachableError
from support.ports import quiet_port

ORDERS = TopicPartition("orders", 0)
MIB = 1 << 20


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Only what nobody refers to goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    return sum(isinstance(each, Connection) for each in gc.get_objects())


@pytest.mark.large
@pytest.mark.usefixtures("uncollected")
def test_attempts_to_connect_leave_nothing() -> None:
    """Each would keep the memory that answers are received in: 128 KiB, ten times a second, as long as it lasts."""
    before = connections()
    nowhere = f"127.0.0.1:{quiet_port()}"
    with Consumer(
        bootstrap_servers=nowhere,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=1,
        retry_backoff_ms=1,
        retry_backoff_max_ms=1,
    ) as consumer:
        consumer.assign([ORDERS])
        for _ in range(20):
            with pytest.raises(BrokersUnreachableError):
                consumer.poll(3_600.0)
        assert connections() <= before + 1, "the one that is being tried"


@pytest.mark.large
@pytest.mark.usefixtures("uncollected")
def test_connections_that_break_leave_nothing() -> None:
    """As those of a broker that hangs up, again and again."""
    before = connections()
    accepted: list[int] = []

    def hang_up(server: socket.socket) -> None:
        while len(accepted) < 20:
            server.accept()[0].close()
            accepted.append(connections())

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Producer(
            bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}",
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=1,
            retry_backoff_ms=1,
            retry_backoff_max_ms=1,
        ) as producer,
    ):
        producer.send("orders", b"x")
        hang_up(server)
        producer.close(0.0)
    assert max(accepted) <= before + 2, "the last, and the one that follows"


@pytest.mark.large
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("call", ["poll", "poll_arrow"])
def test_closed_consumer_holds_nothing_of_what_it_has_fetched(call: str) -> None:
    """Also where the application goes on referring to it."""
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many("orders", [bytes(1_000)] * 8_000)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as warm:
            warm.assign([ORDERS])
            getattr(warm, call)(60.0)
        tracemalloc.start()
        try:
            with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([ORDERS])
                assert getattr(consumer, call)(60.0, max_records=10)
                consumer.poll_one()
                busy, _ = tracemalloc.get_traced_memory()
            closed, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert busy > 2 * MIB
    assert closed < MIB
