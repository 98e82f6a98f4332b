"""What an application can send: `Producer.send` with a look at each result, and from send to poll.

Peer: confluent-kafka by `produce(on_delivery=...)` and `poll()`, through the same broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import quantiles

from load import RawConnection
from report import Row, Table, alternate, compare, warmed
from servers import start_both
from topics import create_writable_topic

PARTITIONS = 4
#: (what, bytes of a value, records)
SIZES = (("100 B", 100, 200_000), ("1 KB", 1024, 100_000))
#: Records that are sent one after the other, each when the one before it has been read.
ROUNDS = 4_000
PATIENCE_S = 30


def send_with_kohort(bootstrap: str, size: int, records: int) -> float:
    """Records per second from the first send to the last result."""
    import kohort

    value = b"x" * size
    with kohort.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("send", value).result(PATIENCE_S)
        began = time.perf_counter()
        results = [producer.send("send", value) for _ in range(records)]
        producer.flush(PATIENCE_S)
        failures = [result for result in results if result.exception() is not None]
        took = time.perf_counter() - began
    assert not failures, failures[0].exception()
    return records / took


def send_with_confluent(bootstrap: str, size: int, records: int) -> float:
    """The same by confluent-kafka."""
    from confluent_kafka import Producer

    value = b"x" * size
    producer = Producer({"bootstrap.servers": bootstrap})
    delivered = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    producer.produce("send", value, on_delivery=on_delivery)
    producer.flush(PATIENCE_S)
    began = time.perf_counter()
    for _ in range(records):
        while time.perf_counter() < began + 2 * PATIENCE_S:
            try:
                producer.produce("send", value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    took = time.perf_counter() - began
    assert delivered == records + 1, delivered
    return records / took


def rounds_with_kohort(bootstrap: str) -> list[float]:
    """Seconds of each round, from before the send until the record has been polled."""
    import kohort

    with (
        kohort.Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        kohort.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer,
    ):
        place = kohort.TopicPartition("rounds", 0)
        consumer.assign([place])
        consumer.position(place, timeout=PATIENCE_S)

        def one() -> None:
            producer.send("rounds", b"x" * 100, partition=0)
            while not consumer.poll(1.0):
                pass

        return _timed(one)


def rounds_with_confluent(bootstrap: str) -> list[float]:
    """The same by confluent-kafka."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition("rounds", 0), timeout=PATIENCE_S)
    consumer.assign([TopicPartition("rounds", 0, end)])

    def one() -> None:
        producer.produce("rounds", b"x" * 100, partition=0)
        producer.poll(0)
        while (message := consumer.poll(1.0)) is None:
            pass
        assert message.error() is None, message.error()

    took = _timed(one)
    producer.flush(PATIENCE_S)
    consumer.close()
    return took


def _timed(one: Callable[[], None]) -> list[float]:
    # The first finds the connections and the partition.
    one()
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        one()
        took.append(time.perf_counter() - began)
    return took


def measure(runs: int) -> list[Table]:
    sent: list[Row] = []
    waited: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            connection = RawConnection(server.port)
            create_writable_topic(connection, "send", PARTITIONS)
            create_writable_topic(connection, "rounds", 1)
            connection.close()
            address = server.bootstrap_servers
            for what, size, records in SIZES:
                ours, peers = alternate(
                    runs,
                    partial(send_with_kohort, address, size, records),
                    partial(send_with_confluent, address, size, records),
                )
                row = compare(
                    f"send, {what}, to {server.name}",
                    ours,
                    peers,
                    unit="rec/s",
                    reach="report",
                    peer_name="confluent-kafka produce(on_delivery)",
                    how=warmed(runs),
                )
                sent.append(row)
            waited += rows_of_rounds(address, server.name, runs)
    return [
        Table("send", "Producer.send", sent, left_out),
        Table("latency", "From send to poll", waited, left_out),
    ]


def rows_of_rounds(address: str, name: str, runs: int) -> list[Row]:
    """p50 and p99 of each run, through one broker."""
    found: list[list[list[float]]] = [[], []]
    for run in range(1 + runs):
        for place, rounds in enumerate((rounds_with_kohort, rounds_with_confluent)):
            percentiles = quantiles(rounds(address), n=100)
            if run:
                found[place].append(percentiles)
    return [
        compare(
            f"send to poll, {what}, through {name}",
            [percentiles[at] * 1e6 for percentiles in found[0]],
            [percentiles[at] * 1e6 for percentiles in found[1]],
            unit="us",
            reach="report",
            peer_name="confluent-kafka",
            how=warmed(runs),
            settings="both: linger.ms=0",
            less_is_better=True,
        )
        for what, at in (("p50", 49), ("p99", 98))
    ]
