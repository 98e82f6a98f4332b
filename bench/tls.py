"""What TLS costs a broker: ready-made batches and fetches over one connection, and a thousand connections at once.

64 KB and 1 MB a request, 5 in flight, TLS 1.3, data in the page cache. The client is one and the same, and has a core
for itself, which its own part of TLS keeps busy: the broker's processor time is measured beside it. A thousand clients
come at once, each with a handshake and a first answer, while a connection that is settled asks every 5 ms.
Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import APACHE_KAFKA, Row, Table, compare, take_turns, warmed
from servers import KohortServer, apache_left_out, exact_cpu_s
from topics import PAGE_CACHE, batch_of, create_writable_topic, delete_topic, fetch_request, produce_request

IN_FLIGHT = 5
#: As bench/fetch.py: about 32 KB.
BATCH_RECORDS, BATCH_BYTES, BATCHES = 280, 32_500, 4_000
#: Requests of one run.
PRODUCED, FETCHED = 3_000, {64 << 10: 4_000, 1 << 20: 400}
LOADS = (("fetch 64 KB", 64 << 10, ">= 1x"), ("fetch 1 MB", 1 << 20, ">= 1x"))
CROWD, ASK_EVERY_S = 1_000, 0.005
VERSIONS = frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="bench", client_software_version="1"))


class Server(NamedTuple):
    """A broker with TLS, and what its clients believe."""

    name: str
    port: int
    pid: int
    ca: str

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)


class Run(NamedTuple):
    """Megabytes a second, and milliseconds of the broker's processor time for each."""

    rate: float
    cpu_ms: float


def open_servers(stack: ExitStack) -> tuple[list[Server], list[str]]:
    """Ours, and Apache Kafka with the same certificate."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from support.peers.certificates import Certificates

    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-bench-")))
    certificates = Certificates(directory)
    store = certificates.store("localhost", "127.0.0.1")
    ours = stack.enter_context(
        KohortServer(
            {
                "listener.security.protocol.map": "PLAINTEXT:SSL",
                "ssl.keystore.location": store,
                # A client that opens a thousand at once is one address.
                "max.connections.per.ip": CROWD + 100,
            }
        )
    )
    assert ours.process is not None
    servers = [Server("kohort", ours.port, ours.process.pid, str(certificates.ca))]
    left_out = apache_left_out()
    if not left_out:
        from support.peers.secured import SecuredKafka

        theirs = stack.enter_context(SecuredKafka())
        port = int(theirs.bootstrap("SSL").rsplit(":", 1)[1])
        pid = theirs.broker.process.pid
        servers.append(Server(APACHE_KAFKA, port, pid, str(theirs.certificates.ca)))
    return servers, left_out


def fill(server: Server) -> None:
    """About 130 MB in one partition."""
    connection = RawConnection(server.port, tls=server.context)
    create_writable_topic(connection, "read", 1, {"flush.messages": PAGE_CACHE})
    one = frame(ApiKey.PRODUCE, 8, produce_request("read", 0, batch_of(BATCH_RECORDS, b"x" * 100)))
    connection.run([one] * BATCHES, in_flight=IN_FLIGHT)
    connection.close()


def fetch(server: Server, size: int) -> Run:
    """One run over the partition, over and over."""
    at_once, count = max(1, size // BATCH_BYTES), FETCHED[size]
    offsets = [turn * at_once % (BATCHES - at_once) * BATCH_RECORDS for turn in range(count)]
    frames = [frame(ApiKey.FETCH, 11, fetch_request("read", 0, offset, size)) for offset in offsets]
    connection = RawConnection(server.port, tls=server.context)
    began_cpu = exact_cpu_s(server.pid)
    seconds, taken = connection.run(frames, in_flight=IN_FLIGHT)
    cpu_s = exact_cpu_s(server.pid) - began_cpu
    connection.close()
    assert taken >= count * at_once * BATCH_BYTES * 0.9, taken
    return Run(taken / 1e6 / seconds, cpu_s * 1e3 / (taken / 1e6))


def produce(server: Server) -> Run:
    """One run into a new topic."""
    connection = RawConnection(server.port, tls=server.context)
    create_writable_topic(connection, "written", 1, {"flush.messages": PAGE_CACHE})
    request = produce_request("written", 0, batch_of(560, b"x" * 100))
    answer = connection.ask(ApiKey.PRODUCE, 8, request)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
    one = frame(ApiKey.PRODUCE, 8, request)
    began_cpu = exact_cpu_s(server.pid)
    seconds, _ = connection.run([one] * PRODUCED, in_flight=IN_FLIGHT)
    cpu_s = exact_cpu_s(server.pid) - began_cpu
    delete_topic(connection, "written")
    connection.close()
    sent_mb = PRODUCED * len(one) / 1e6
    return Run(sent_mb / seconds, cpu_s * 1e3 / sent_mb)


# ---- a thousand at once


class Come(NamedTuple):
    """Seconds until the last of a crowd was answered, and the 99th percentile of a settled connection, ms."""

    all_s: float
    p99_ms: float


def come(script: str, *arguments: str) -> Come:
    """Run `script` with these arguments twice: as a crowd, and as a settled client beside it."""
    settled = _start(script, "settled", arguments)
    assert settled.stdin is not None and settled.stdout is not None
    settled.stdout.readline()
    crowd = _start(script, "crowd", arguments)
    assert crowd.stdout is not None
    all_s = float(crowd.stdout.readline())
    settled.stdin.write("stop\n")
    settled.stdin.flush()
    p99_ms = float(settled.stdout.readline())
    for each in (settled, crowd):
        each.wait(60)
    return Come(all_s, p99_ms)


def _start(script: str, what: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, script, what, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def be_crowd(port: int, ca: str) -> None:
    """Open the connections, shake hands and ask once on each; print how long that took."""
    context = ssl.create_default_context(cafile=ca)
    selector = selectors.DefaultSelector()
    began = time.perf_counter()
    for _ in range(CROWD):
        raw = socket.socket()
        raw.setblocking(False)
        raw.connect_ex(("127.0.0.1", port))
        selector.register(raw, selectors.EVENT_WRITE, None)
    left = CROWD
    connections = []
    while left:
        for key, _ in selector.select(30):
            if key.data is None:
                # OpenSSL begins on a connected socket.
                selector.unregister(key.fileobj)
                tls = context.wrap_socket(key.fileobj, server_hostname="localhost", do_handshake_on_connect=False)  # type: ignore[arg-type]
                connections.append(tls)
                selector.register(tls, selectors.EVENT_READ, "shake")
                _shake(selector, tls)
            elif key.data == "shake":
                _shake(selector, key.fileobj)
            else:
                try:
                    answered = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                except ssl.SSLWantReadError:
                    continue
                assert answered, "the broker closed a connection"
                selector.unregister(key.fileobj)
                left -= 1
    print(time.perf_counter() - began, flush=True)


def _shake(selector: selectors.BaseSelector, tls: Any) -> None:
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return
    tls.send(VERSIONS)
    selector.modify(tls, selectors.EVENT_READ, "answer")


def be_settled(port: int, ca: str) -> None:
    """Ask until a line comes; print the 99th percentile."""
    connection = RawConnection(port, tls=ssl.create_default_context(cafile=ca))
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    took: list[float] = []
    while not selector.select(ASK_EVERY_S):
        began = time.perf_counter()
        connection.send(VERSIONS)
        connection.receive()
        took.append((time.perf_counter() - began) * 1e3)
        if len(took) == 100:
            print("ready", flush=True)
            took = took[-1:] + [0.0] * 100
    del took[:101]
    print(quantiles(took, n=100)[98], flush=True)


# ---- tables


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = open_servers(stack)
        for server in servers:
            fill(server)
        loads: list[tuple[str, str, Callable[[Server], Run]]] = [("produce 64 KB", ">= 1.2x", produce)]
        loads += [(what, reach, partial(fetch, size=size)) for what, size, reach in LOADS]
        for what, reach, run in loads:
            found = take_turns(runs, *(partial(run, server) for server in servers))
            rows += _rows(what, reach, found, runs)
        crowds = take_turns(runs, *(partial(come, __file__, str(each.port), each.ca) for each in servers))
    ours, peers = crowds[0], crowds[1] if len(crowds) > 1 else []
    for what, reach, place in (
        (f"{CROWD:,} connections at once, to the last first answer", "<= 1x", 0),
        ("a settled connection meanwhile, p99", "<= 20 ms", 1),
    ):
        ways = [[each[place] for each in side] for side in (ours, peers)]
        unit = "s" if place == 0 else "ms"
        rows.append(
            compare(
                what,
                *ways,
                unit=unit,
                reach=reach,
                peer_name=APACHE_KAFKA,
                how=warmed(runs),
                less_is_better=True,
            )
        )
    return [Table("tls", "A broker with TLS", rows, left_out)]


def _rows(what: str, reach: str, found: list[list[Run]], runs: int) -> list[Row]:
    ours, peers = found[0], found[1] if len(found) > 1 else []
    row = partial(compare, peer_name=APACHE_KAFKA, how=warmed(runs), settings="ours: flush.messages=2^63-1")
    return [
        row(what, [each.rate for each in ours], [each.rate for each in peers], unit="MB/s", reach=reach),
        row(
            f"{what}: the broker's processor time",
            [each.cpu_ms for each in ours],
            [each.cpu_ms for each in peers],
            unit="ms/MB",
            reach="report",
            less_is_better=True,
        ),
    ]


if __name__ == "__main__":
    {"crowd": be_crowd, "settled": be_settled}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
