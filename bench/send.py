"""What an application can send: one by one with a look at each result, many by one call, and from send to poll.

Peer: confluent-kafka by `produce(on_delivery=...)` and `poll()`, `produce_batch()` and `produce()`, and aiokafka by
`send()`, through the same broker.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from statistics import quantiles
from typing import Any

import eventloop
from load import RawConnection
from report import Row, Table, alternate, compare, warmed
from servers import start_both
from topics import create_writable_topic

PARTITIONS = 4
#: (what, bytes of a value, records, what is aimed at beside confluent-kafka and aiokafka)
SIZES = (("100 B", 100, 200_000, (">= 0.6x", ">= 2.5x")), ("1 KB", 1024, 100_000, (">= 0.4x", ">= 3x")))
#: Records of which it is measured how long they take, one every so many seconds; and those before them.
PACED_RECORDS, WARM_RECORDS, PACE_S = 1_000, 200, 0.002
PATIENCE_S = 30
#: By Kafka's dotted names, which both clients take.
Options = Mapping[str, Any]


def rate_of_kohort(options: Options, topic: str, records: int, size: int) -> float:
    """Records per second from the first `send` to the last result."""
    import kohort

    value = b"x" * size
    with kohort.Producer(options) as producer:
        producer.send(topic, value).result(PATIENCE_S)
        began = time.perf_counter()
        results = [producer.send(topic, value) for _ in range(records)]
        producer.flush(PATIENCE_S)
        failures = [result for result in results if result.exception() is not None]
        took = time.perf_counter() - began
    assert not failures, failures[0].exception()
    return records / took


def rate_of_confluent(options: Options, topic: str, records: int, size: int) -> float:
    """The same by `produce(on_delivery=...)` and `poll` of confluent-kafka."""
    from confluent_kafka import Producer

    value = b"x" * size
    producer = Producer(dict(options))
    delivered = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    producer.produce(topic, value, on_delivery=on_delivery)
    producer.flush(PATIENCE_S)
    began = time.perf_counter()
    for _ in range(records):
        while time.perf_counter() < began + 2 * PATIENCE_S:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    took = time.perf_counter() - began
    assert delivered == records + 1, delivered
    return records / took


def send_with_kohort(bootstrap: str, size: int, records: int) -> float:
    """Over a plain connection."""
    return rate_of_kohort({"bootstrap.servers": bootstrap}, "send", records, size)


def send_with_confluent(bootstrap: str, size: int, records: int) -> float:
    """The same by confluent-kafka."""
    return rate_of_confluent({"bootstrap.servers": bootstrap}, "send", records, size)


def send_keys_with_kohort(bootstrap: str, size: int, records: int, *, with_keys: bool) -> float:
    """The same with keys of which none comes twice, or without."""
    import kohort

    value = b"x" * size
    keys = [b"%08d" % number if with_keys else None for number in range(records)]
    with kohort.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("send", value).result(PATIENCE_S)
        began = time.perf_counter()
        results = [producer.send("send", value, key) for key in keys]
        producer.flush(PATIENCE_S)
        failures = [result for result in results if result.exception() is not None]
        took = time.perf_counter() - began
    assert not failures, failures[0].exception()
    return records / took


def send_many_with_kohort(bootstrap: str, size: int, records: int) -> float:
    """Records per second of one call of `send_many`, until its future has its end."""
    import kohort

    values = [b"x" * size] * records
    with kohort.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("send", b"x").result(PATIENCE_S)
        began = time.perf_counter()
        stored = producer.send_many("send", values).result(PATIENCE_S)
        took = time.perf_counter() - began
    assert stored.record_count == records
    return records / took


def send_arrow_with_kohort(bootstrap: str, size: int, records: int) -> float:
    """The same of a table."""
    import pyarrow as pa

    import kohort

    table = pa.table({"value": pa.array([b"x" * size] * records, pa.binary())})
    with kohort.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("send", b"x").result(PATIENCE_S)
        began = time.perf_counter()
        (stored,) = producer.send_arrow(table, "send").result(PATIENCE_S)
        took = time.perf_counter() - began
    assert stored.record_count == records
    return records / took


def produce_with_confluent(bootstrap: str, size: int, records: int) -> float:
    """By `produce` without callbacks, which is what it has for a table."""
    from confluent_kafka import Producer

    value = b"x" * size
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("send", value)
    producer.flush(PATIENCE_S)
    began = time.perf_counter()
    for _ in range(records):
        while time.perf_counter() < began + 2 * PATIENCE_S:
            try:
                producer.produce("send", value)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0
    return records / (time.perf_counter() - began)


def produce_batch_with_confluent(bootstrap: str, size: int, records: int) -> float:
    """By `produce_batch`, in pieces that its queue takes."""
    from confluent_kafka import Producer

    value = b"x" * size
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("send", value)
    producer.flush(PATIENCE_S)
    waiting = [{"value": value} for _ in range(records)]
    began = time.perf_counter()
    while waiting and time.perf_counter() < began + 2 * PATIENCE_S:
        piece, waiting = waiting[:50_000], waiting[50_000:]
        if producer.produce_batch("send", piece) < len(piece):
            producer.poll(0.01)
            waiting = [{"value": value} for message in piece if "_error" in message] + waiting
    assert producer.flush(PATIENCE_S) == 0 and not waiting
    return records / (time.perf_counter() - began)


def send_with_aiokafka(bootstrap: str, size: int) -> float:
    """The same by aiokafka, on an event loop."""
    return asyncio.run(eventloop.send_with_aiokafka(bootstrap, "send", size))


def processor_us(send: Callable[[str, int, int], float], bootstrap: str, size: int, records: int) -> float:
    """What this process uses of processors for a record, microseconds; the client is made and closed within it."""
    began = time.process_time()
    send(bootstrap, size, records)
    return (time.process_time() - began) / records * 1e6


def rows_of_processor(address: str, name: str, runs: int, *, what: str, size: int, records: int) -> list[Row]:
    """What is left of a rate when the broker and its disk set the pace."""
    found = []
    for call, ours, theirs, peer in (
        ("send", send_with_kohort, send_with_confluent, "confluent-kafka produce(on_delivery)"),
        ("send_arrow", send_arrow_with_kohort, produce_with_confluent, "confluent-kafka produce()"),
    ):
        measured = alternate(
            runs,
            partial(processor_us, ours, address, size, records),
            partial(processor_us, theirs, address, size, records),
        )
        row = compare(
            f"processor for a record, {call}, {what}, to {name}",
            *measured,
            unit="us",
            reach="report",
            peer_name=peer,
            how=warmed(runs),
            less_is_better=True,
        )
        found.append(row)
    return found


def rows_of_many(address: str, name: str, runs: int, *, what: str, size: int, records: int) -> list[Row]:
    """By one call, beside what the peer has for that; and keys that never repeat, beside none."""
    found = []
    for call, ours, theirs, peer, reach in (
        ("send_many", send_many_with_kohort, produce_batch_with_confluent, "confluent-kafka produce_batch()", ">= 1x"),
        ("send_arrow", send_arrow_with_kohort, produce_with_confluent, "confluent-kafka produce()", ">= 2.5x"),
        (
            "send, new keys",
            partial(send_keys_with_kohort, with_keys=True),
            partial(send_keys_with_kohort, with_keys=False),
            "itself without keys",
            ">= 0.9x",
        ),
    ):
        measured = alternate(runs, partial(ours, address, size, records), partial(theirs, address, size, records))
        row = compare(
            f"{call}, {what}, to {name}", *measured, unit="rec/s", reach=reach, peer_name=peer, how=warmed(runs)
        )
        found.append(row)
    return found


def write_paced(client: str, bootstrap: str) -> None:
    """The other process: a record every two milliseconds, with the time at which it was sent."""
    if client == "kohort":
        import kohort

        ours = kohort.Producer(bootstrap_servers=bootstrap, linger_ms=0)
        for _ in range(WARM_RECORDS + PACED_RECORDS):
            ours.send("paced", struct.pack("<d", time.perf_counter()).ljust(100), partition=0)
            time.sleep(PACE_S)
        ours.close()
    else:
        from confluent_kafka import Producer

        theirs = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        for _ in range(WARM_RECORDS + PACED_RECORDS):
            theirs.produce("paced", struct.pack("<d", time.perf_counter()).ljust(100), partition=0)
            theirs.poll(0)
            time.sleep(PACE_S)
        theirs.flush(PATIENCE_S)


def read_with_kohort(bootstrap: str, writing: Callable[[], AbstractContextManager[object]]) -> list[float]:
    """Seconds from each send to the poll that gave the record."""
    import kohort

    with kohort.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer:
        place = kohort.TopicPartition("paced", 0)
        consumer.assign([place])
        consumer.position(place, timeout=PATIENCE_S)
        return _waited(writing, lambda: [record.value for record in consumer.poll(1.0)])


def read_with_confluent(bootstrap: str, writing: Callable[[], AbstractContextManager[object]]) -> list[float]:
    """The same by confluent-kafka."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition("paced", 0), timeout=PATIENCE_S)
    consumer.assign([TopicPartition("paced", 0, end)])

    def take() -> list[bytes]:
        message = consumer.poll(1.0)
        if message is None:
            return []
        assert message.error() is None, message.error()
        return [message.value()]

    found = _waited(writing, take)
    consumer.close()
    return found


def _waited(writing: Callable[[], AbstractContextManager[object]], take: Callable[[], list[bytes]]) -> list[float]:
    """How long the records that count took; the clock is the same in both processes."""
    found: list[float] = []
    deadline = time.monotonic() + PATIENCE_S
    with writing():
        while len(found) < WARM_RECORDS + PACED_RECORDS:
            assert time.monotonic() < deadline, f"{len(found)} records came within {PATIENCE_S} s"
            values = take()
            now = time.perf_counter()
            found += [now - struct.unpack_from("<d", value)[0] for value in values]
    return found[WARM_RECORDS:]


def measure(runs: int) -> list[Table]:
    sent: list[Row] = []
    many: list[Row] = []
    used: list[Row] = []
    waited: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            connection = RawConnection(server.port)
            create_writable_topic(connection, "send", PARTITIONS)
            create_writable_topic(connection, "paced", 1)
            connection.close()
            address = server.bootstrap_servers
            for what, size, records, reaches in SIZES:
                sent += rows_of_send(address, server.name, runs, what=what, size=size, records=records, reaches=reaches)
                many += rows_of_many(address, server.name, runs, what=what, size=size, records=records)
                if server is servers[0]:
                    used += rows_of_processor(address, server.name, runs, what=what, size=size, records=records)
            waited += rows_of_latency(address, server.name, runs)
    return [
        Table("send", "Producer.send", sent, left_out),
        Table("many", "Many records by one call, and keys", many, left_out),
        Table("processor", "What a record takes of the sender's processors", used, left_out),
        Table("latency", "From send to poll", waited, left_out),
    ]


def rows_of_send(
    address: str, name: str, runs: int, *, what: str, size: int, records: int, reaches: tuple[str, str]
) -> list[Row]:
    """One by one, beside both peers."""
    ours = partial(send_with_kohort, address, size, records)
    confluent, aiokafka = reaches
    return [
        compare(
            f"send, {what}, to {name}",
            *alternate(runs, ours, partial(send_with_confluent, address, size, records)),
            unit="rec/s",
            reach=confluent,
            peer_name="confluent-kafka produce(on_delivery)",
            how=warmed(runs),
        ),
        compare(
            f"send beside aiokafka, {what}, to {name}",
            *alternate(runs, ours, partial(send_with_aiokafka, address, size)),
            unit="rec/s",
            reach=aiokafka,
            peer_name="aiokafka send()",
            how=warmed(runs),
            settings="aiokafka: enable_idempotence",
        ),
    ]


def rows_of_latency(address: str, name: str, runs: int) -> list[Row]:
    """p50 and p99 of each run, through one broker; writer and reader are of the same client."""
    found: list[list[list[float]]] = [[], []]
    for run in range(1 + runs):
        for place, (client, read) in enumerate((("kohort", read_with_kohort), ("confluent", read_with_confluent))):
            command = [sys.executable, __file__, client, address]
            percentiles = quantiles(read(address, partial(subprocess.Popen, command)), n=100)
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


if __name__ == "__main__":
    write_paced(*sys.argv[1:])
