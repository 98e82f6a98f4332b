"""Transactions through a confluent-kafka producer: of one and of 1,000 records, of 20 producers, and read back.

A transaction is begun, written and committed before the next begins; its latency is from begin to the return of the
commit. Peer: Apache Kafka 4.3, which leaves syncing to the system; ours syncs each append unless the row says
otherwise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import quantiles
from typing import Any
from uuid import uuid4

from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare, take_turns, warmed
from servers import start_both
from topics import PAGE_CACHE, create_writable_topic

TRANSACTIONS = 60
PRODUCERS = 20
VALUE = b"x" * 100
TIMEOUT_S = 60
#: (what, records of a transaction, producers at once, reach)
LOADS = (
    ("one record a transaction", 1, 1, ">= 2x"),
    ("1,000 records a transaction", 1_000, 1, ">= 2x"),
    ("one record a transaction, 20 producers", 1, PRODUCERS, ">= 1x"),
)
SYNCED = (("ours synced", "1"), ("ours in the page cache", PAGE_CACHE))


def producer_of(server: Any) -> Any:
    from confluent_kafka import Producer

    producer = Producer({
        "bootstrap.servers": server.bootstrap_servers,
        "transactional.id": f"bench-{uuid4().hex[:8]}",
        "linger.ms": 0,
    })  # fmt: skip
    producer.init_transactions(TIMEOUT_S)
    return producer


def run_transactions(producer: Any, topic: str, records: int, taken: list[float]) -> None:
    for _ in range(TRANSACTIONS):
        began = time.perf_counter()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(TIMEOUT_S)
        taken.append((time.perf_counter() - began) * 1_000)


def one_load(server: Any, flush: str, records: int, producers: int) -> tuple[float, float, float]:
    """Transactions per second of all producers, and the p50 and p99 of one, ms."""
    topic = f"transactions-{uuid4().hex[:8]}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, topic, 1, {"flush.messages": flush})
    connection.close()
    clients = [producer_of(server) for _ in range(producers)]
    taken: list[float] = []
    threads = [threading.Thread(target=run_transactions, args=(each, topic, records, taken)) for each in clients]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    cuts = quantiles(taken, n=100)
    return len(taken) / elapsed, cuts[49], cuts[98]


def rows_of(servers: Sequence[Any], runs: int) -> list[Row]:
    rows = []
    for how, flush in SYNCED:
        for what, records, producers, reach in LOADS:
            sides: list[Callable[[], tuple[float, float, float]]] = [
                partial(one_load, server, flush, records, producers) for server in servers
            ]
            ours, *peers = take_turns(runs, *sides)
            theirs = peers[0] if peers else []
            compared = {"peer_name": APACHE_KAFKA, "how": warmed(runs), "settings": f"{how}: flush.messages={flush}"}
            rows.append(
                compare(
                    f"{what}, {how}", [row[0] for row in ours], [row[0] for row in theirs], unit="transactions/s",
                    reach=reach, **compared,
                )
            )  # fmt: skip
            if producers == 1:
                for place, name in ((1, "p50"), (2, "p99")):
                    rows.append(
                        compare(
                            f"{what}, {how}, begin to committed {name}", [row[place] for row in ours],
                            [row[place] for row in theirs], unit="ms", reach="<= 0.5x", less_is_better=True,
                            **compared,
                        )
                    )  # fmt: skip
    return rows


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        return [Table("transactions", "Transactions", rows_of(servers, runs), left_out)]
