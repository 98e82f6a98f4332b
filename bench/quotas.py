"""A producer that is held at 1 MB/s: what comes of it in ten seconds, and what another connection notices.

The producer is confluent-kafka's, with batches of 64 KB, and has had its first ten seconds' worth, which either broker
takes at once. By Kafka's rule a client that was quiet may send as much at once again, so that single ten seconds have 6
to 11 MB: the figure is the mean of a minute. The other connection asks for the versions every few milliseconds, with a
client id that has no quota.
Peer: Apache Kafka 4.3 with the same quota, in the same turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from statistics import quantiles
from typing import Any, NamedTuple

from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare
from servers import start_both
from topics import create_writable_topic

LIMIT = 1_000_000
SECONDS = 10.0
ROUND_SECONDS = 60.0
#: As long as eleven windows and some: what came at once in the beginning counts no more.
SETTLE_SECONDS = 25.0
VALUE = bytes(8_000)
BETWEEN_ASKS_S = 0.004
ANOTHER = ApiVersionsRequest(client_software_name="bench", client_software_version="1")


class Seen(NamedTuple):
    """Of a round: megabytes that were acknowledged in ten seconds, and the other connection's p99 in milliseconds."""

    megabytes: float
    p99: float


class Held:
    """A producer that sends as fast as it may, on a thread."""

    def __init__(self, server: Any) -> None:
        from confluent_kafka import Producer

        self.acknowledged = 0
        self._is_over = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": server.bootstrap_servers,
            "client.id": "held",
            "linger.ms": 5,
            "batch.size": 64_000,
            "queue.buffering.max.kbytes": 4_000,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and forget what is not acknowledged."""
        self._is_over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(10)

    def _send(self) -> None:
        def count(why: object, message: Any) -> None:
            self.acknowledged += 0 if why else len(message.value())

        while not self._is_over.is_set():
            try:
                self._producer.produce("held", VALUE, on_delivery=count)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            prepare(server)
        alone = [[p99_of(server, SECONDS) for _ in range(runs)] for server in servers]
        held = [Held(server) for server in servers]
        for each in held:
            stack.callback(each.stop)
        time.sleep(SETTLE_SECONDS)
        rounds = [one_round(servers, held) for _ in range(runs)]
    beside = [list(each) for each in zip(*rounds, strict=True)]
    return [Table("quotas", "A producer that is held at 1 MB/s", rows_of(beside, alone, runs), left_out)]


def prepare(server: Any) -> None:
    import kohort

    connection = RawConnection(server.port)
    create_writable_topic(connection, "held", 1)
    connection.close()
    quota = kohort.ClientQuota(entity={"client-id": "held"}, values={"producer_byte_rate": LIMIT})
    with kohort.Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.alter_client_quotas([quota])


def one_round(servers: Sequence[Any], held: Sequence[Held]) -> list[Seen]:
    """Both producers send all the time; the other connection asks one broker after the other."""
    before, began = [each.acknowledged for each in held], time.perf_counter()
    p99s = [p99_of(server, ROUND_SECONDS / len(servers)) for server in servers]
    tens = (time.perf_counter() - began) / SECONDS
    sent = [each.acknowledged - first for each, first in zip(held, before, strict=True)]
    return [Seen(size / 1e6 / tens, p99) for size, p99 in zip(sent, p99s, strict=True)]


def p99_of(server: Any, seconds: float) -> float:
    """Milliseconds from request to answer, over so many seconds."""
    connection = RawConnection(server.port)
    taken = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        connection.ask(ApiKey.API_VERSIONS, 3, ANOTHER)
        taken.append((time.perf_counter() - began) * 1e3)
        time.sleep(BETWEEN_ASKS_S)
    connection.close()
    return quantiles(taken, n=100)[98]


def rows_of(beside: list[list[Seen]], alone: list[list[float]], runs: int) -> list[Row]:
    row = partial(compare, how=str(runs), settings="batches of 64 KB; quota of the client id")
    ours, *peers = beside
    theirs = peers[0] if peers else []
    mean_bytes = row(
        "acknowledged in 10 s, the mean of a minute",
        [each.megabytes for each in ours],
        [each.megabytes for each in theirs],
        unit="MB",
        reach="10 MB, 5 % more or less",
        peer_name=APACHE_KAFKA,
    )
    latency = row(
        "p99 of another connection meanwhile",
        [each.p99 for each in ours],
        [each.p99 for each in theirs],
        unit="ms",
        reach="report",
        peer_name=APACHE_KAFKA,
        less_is_better=True,
    )
    unchanged = row(
        "the same, beside itself without that producer",
        [each.p99 for each in ours],
        alone[0],
        unit="ms",
        reach="unchanged",
        peer_name="itself",
        less_is_better=True,
    )
    return [mean_bytes, latency, unchanged]
