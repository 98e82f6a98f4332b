"""Scrapes of a broker with 1,000 groups of 10 partitions: the time of one, the wait of others, its cost.

Peer: kafka_exporter at the same broker, where it is (on PATH, or named by KAFKA_EXPORTER).
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import kohort
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from load import RawConnection
from report import NO_PEER, Row, Table, alternate, compare, warmed
from servers import exact_cpu_s

GROUPS, PARTITIONS = 1_000, 10
#: Seconds between two scrapes, and of one measurement of the load beside them; records of a call, and their bytes.
EVERY_S, LOAD_S = 15.0, 15.0
RECORDS, RECORD_BYTES = 20_000, 100


def scrape(address: str) -> bytes:
    """One page, as Prometheus asks for it."""
    host, _, port = address.rpartition(":")
    client = http.client.HTTPConnection(host, int(port), timeout=120)
    client.request("GET", "/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    answer = client.getresponse()
    body = answer.read()
    client.close()
    assert answer.status == 200, (address, answer.status)
    return body


def took_ms(address: str) -> float:
    began = time.perf_counter()
    assert body_has_groups(scrape(address)), "all groups are told"
    return (time.perf_counter() - began) * 1000


def body_has_groups(body: bytes) -> bool:
    return body.count(b"\nkafka_consumergroup_lag{") >= GROUPS * PARTITIONS


def longest_wait_ms(broker: kohort.Broker) -> float:
    """Milliseconds that a small request of another client waits at most while a page is made: a turn of the loop."""
    request, waits, is_over = ApiVersionsRequest(), [0.0], threading.Event()
    connection = RawConnection(broker.port)

    def ask() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            connection.ask(ApiKey.API_VERSIONS, 2, request)
            waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    scrape(broker.http_address)
    is_over.set()
    thread.join()
    connection.close()
    return max(waits) * 1000


@contextmanager
def exporter_of(address: str) -> Iterator[str | None]:
    """The address of a kafka_exporter of a cluster; `None`: there is no such program here."""
    program = os.environ.get("KAFKA_EXPORTER") or shutil.which("kafka_exporter")
    if program is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [program, f"--kafka.server={address}", f"--web.listen-address={listen}", "--kafka.version=2.8.0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and child.poll() is None:
                with suppress(OSError):
                    scrape(listen)
                    break
                time.sleep(0.1)
            yield listen
        finally:
            child.terminate()


def records_per_cpu_s(broker: kohort.Broker, *, scrapes: bool) -> float:
    """Records a second of the broker's processor, sent and read as fast as it goes, with a scraper or without."""
    address, value, count = broker.bootstrap_servers, b"x" * RECORD_BYTES, 0
    assert broker.process_id is not None
    with (
        kohort.Producer(bootstrap_servers=address) as producer,
        kohort.Consumer(bootstrap_servers=address, auto_offset_reset="latest", max_poll_records=RECORDS) as consumer,
    ):
        consumer.assign([kohort.TopicPartition("load", 0)])
        consumer.poll(0.1)
        began, before = time.monotonic(), exact_cpu_s(broker.process_id)
        due = began + EVERY_S / 2
        while time.monotonic() - began < LOAD_S:
            sent = producer.send_many("load", [value] * RECORDS)
            count += RECORDS
            consumer.poll(0)
            sent.result(30)
            if scrapes and time.monotonic() >= due:
                scrape(broker.http_address)
                due += EVERY_S
        return count / (exact_cpu_s(broker.process_id) - before)


def measure(runs: int) -> list[Table]:
    how, left_out = warmed(runs), []
    config = {"http.listen": "127.0.0.1:0"}
    with kohort.Broker(process=True, config=config) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", PARTITIONS)
            admin.create_topic("load", 1)
            offsets = {kohort.TopicPartition("orders", number): 0 for number in range(PARTITIONS)}
            for number in range(GROUPS):
                admin.alter_group_offsets(f"group-{number:04}", offsets)

        def alone(what: str, found: list[float], reach: str) -> Row:
            return compare(what, found, [], unit="ms", reach=reach, peer_name=NO_PEER, how=how, less_is_better=True)

        with exporter_of(broker.bootstrap_servers) as peer:
            theirs = None if peer is None else lambda: took_ms(peer)
            answers = alternate(runs, lambda: took_ms(broker.http_address), theirs)
            if peer is None:
                left_out.append("kafka_exporter, which is not here: KAFKA_EXPORTER=/path/to/it")
        turns = alternate(runs, lambda: longest_wait_ms(broker), None)[0]
        costs = alternate(
            runs, lambda: records_per_cpu_s(broker, scrapes=True), lambda: records_per_cpu_s(broker, scrapes=False)
        )
    rows = [
        compare(
            f"{GROUPS:,} groups of {PARTITIONS} partitions: a scrape",
            *answers,
            unit="ms",
            reach=">= 5x",
            peer_name="kafka_exporter at the same broker",
            how=how,
            less_is_better=True,
        ),
        alone("the same: the longest wait of another client's small request", turns, "<= 20 ms"),
        compare(
            f"records a second of the broker's processor, sent and read, scraped every {EVERY_S:.0f} s",
            *costs,
            unit="records/s",
            reach=">= 0.98x",
            peer_name="ours without",
            how=f"{how}, of {LOAD_S:.0f} s each",
        ),
    ]
    return [Table("scrapes", "Scrapes", rows, left_out)]
