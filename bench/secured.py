"""What TLS takes away from fetching and sending, and how long a connection takes that logs in.

Everything is against one Apache Kafka 4.3 with listeners of both kinds, since the broker has a part in each figure:
plain answers leave it by sendfile, and encrypted ones do not. Peer: confluent-kafka, whose own rates are compared
likewise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from consume import PARTITIONS, SETTINGS, TUNED, arrow_batches, many_messages, one_message, our_records
from report import Row, Table, alternate, compare, take_turns, warmed
from send import PATIENCE_S, Options, rate_of_confluent, rate_of_kohort
from servers import apache_left_out

#: (what, bytes of a value, records)
SIZES = (("100 B", 100, 1_000_000), ("1 KB", 1024, 200_000))
#: Logins one after the other of which the mean is one run's figure.
LOGINS = 20


def options_of(kafka: Any, protocol: str) -> Options:
    """What both clients understand."""
    from support.peers.secured import PASSWORD, USER

    options: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap(protocol), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl.ca.location"] = str(kafka.certificates.ca)
    if protocol.startswith("SASL"):
        options |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
    return options


def read_with_kohort(options: Options, topic: str, records: int, take: Callable[[Any], int]) -> float:
    """Records per second, from the first poll to the last record."""
    import kohort

    with kohort.Consumer(options, auto_offset_reset="earliest") as consumer:
        consumer.assign([kohort.TopicPartition(topic, number) for number in range(PARTITIONS)])
        return _rate(partial(take, consumer), records)


def read_with_confluent(options: Options, topic: str, records: int, take: Callable[[Any], int]) -> float:
    """The same by confluent-kafka."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest", **TUNED}
    consumer = Consumer({**options, **config})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rate = _rate(partial(take, consumer), records)
    consumer.close()
    return rate


def _rate(take: Callable[[], int], records: int) -> float:
    began, seen = time.perf_counter(), 0
    while seen < records:
        seen += take()
    return seen / (time.perf_counter() - began)


def log_in_with_kohort(options: Options) -> float:
    """Milliseconds from a client to its first answer, and to its end."""
    import kohort

    began = time.perf_counter()
    for _ in range(LOGINS):
        with kohort.Admin(options) as admin:
            admin.list_topics()
    return (time.perf_counter() - began) / LOGINS * 1000


def log_in_with_confluent(options: Options) -> float:
    """The same by confluent-kafka; its client ends when nobody has it any more."""
    from confluent_kafka.admin import AdminClient

    began = time.perf_counter()
    for _ in range(LOGINS):
        AdminClient(dict(options)).list_topics(timeout=PATIENCE_S)
    return (time.perf_counter() - began) / LOGINS * 1000


def fill(kafka: Any, topic: str, records: int, size: int) -> None:
    """A topic to read, and one to write."""
    import kohort

    options = options_of(kafka, "PLAINTEXT")
    with kohort.Admin(options) as admin:
        admin.create_topic(topic, PARTITIONS)
        admin.create_topic(f"to-{topic}", PARTITIONS)
    with kohort.Producer(options) as producer:
        for partition in range(PARTITIONS):
            values = [b"x" * size] * (records // PARTITIONS)
            producer.send_many(topic, values, partition=partition).result(PATIENCE_S)


class Pair(NamedTuple):
    """What both clients do, and how the peer's call is named."""

    what: str
    ours: Callable[..., float]
    peer_call: str
    theirs: Callable[..., float]


def measure(runs: int) -> list[Table]:
    if left_out := apache_left_out():
        return [Table("secured", "TLS beside plain", [], left_out), Table("logins", "Logins", [], left_out)]
    from support.peers.secured import SecuredKafka

    rows: list[Row] = []
    with SecuredKafka() as kafka:
        ways = [options_of(kafka, protocol) for protocol in ("PLAINTEXT", "SSL")]
        for what, size, records in SIZES:
            topic = f"read-{size}"
            fill(kafka, topic, records, size)
            for pair, place, count in (
                (_reading(f"poll_arrow, {what}", arrow_batches, "consume(10000)", many_messages), topic, records),
                (_reading(f"poll, {what}", our_records, "poll()", one_message), topic, records),
                (_sending(what, size), f"to-{topic}", records // 5),
            ):
                sides = (pair.ours, pair.theirs)
                calls = [partial(side, options, place, count) for side in sides for options in ways]
                rows += _beside_plain(pair, take_turns(runs, *calls), runs)
        logins = _logins(kafka, runs)
    return [Table("secured", "TLS beside plain", rows), Table("logins", "Logins", logins)]


def _reading(what: str, ours: Callable[[Any], int], peer_call: str, theirs: Callable[[Any], int]) -> Pair:
    return Pair(what, partial(read_with_kohort, take=ours), peer_call, partial(read_with_confluent, take=theirs))


def _sending(what: str, size: int) -> Pair:
    sides = (partial(each, size=size) for each in (rate_of_kohort, rate_of_confluent))
    return Pair(f"send, {what}", next(sides), "produce(on_delivery)", next(sides))


def _beside_plain(pair: Pair, found: list[list[float]], runs: int) -> list[Row]:
    """Which part of its plain rate each client has over TLS 1.3, and both rates over TLS."""
    our_plain, our_tls, peer_plain, peer_tls = found
    ours, theirs = (
        [over / under for over, under in zip(*each, strict=True)]
        for each in ((our_tls, our_plain), (peer_tls, peer_plain))
    )
    row = partial(compare, peer_name=f"confluent-kafka {pair.peer_call}", how=warmed(runs), settings=SETTINGS)
    return [
        row(f"{pair.what}: TLS / plain", ours, theirs, unit="", reach=">= 1x"),
        row(f"{pair.what}: TLS", our_tls, peer_tls, unit="rec/s", reach=">= 1x"),
    ]


def _logins(kafka: Any, runs: int) -> list[Row]:
    rows = []
    for what, protocol in (("plain", "PLAINTEXT"), ("TLS", "SSL"), ("TLS, SCRAM-SHA-512", "SASL_SSL")):
        options = options_of(kafka, protocol)
        found = alternate(runs, partial(log_in_with_kohort, options), partial(log_in_with_confluent, options))
        rows.append(
            compare(
                f"client, connection and first answer, {what}",
                *found,
                unit="ms",
                reach="report",
                peer_name="confluent-kafka AdminClient.list_topics()",
                how=f"{warmed(runs)}, of {LOGINS} each",
                less_is_better=True,
            )
        )
    return rows
