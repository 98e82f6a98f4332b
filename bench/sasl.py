"""What a login costs: connections with TLS and SCRAM-SHA-512, one after the other, and a thousand at once.

Each connection shakes hands, logs in and asks once. A thousand come from a process of its own, while a connection that
has logged in asks every 5 ms. The client computes the salted password once: its own part is small for both brokers.
Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from kohort.security import scram
from kohort.wire.codec import decode
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import ApiKey, response_class, response_header_version
from load import RawConnection, frame
from report import APACHE_KAFKA, Row, Table, compare, take_turns, warmed
from servers import KohortServer, apache_left_out
from tls import come

MECHANISM = "SCRAM-SHA-512"
CROWD, ASK_EVERY_S = 1_000, 0.005
#: Logins one after the other, of which the mean is one run's figure.
LOGINS = 50
VERSIONS = frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="bench", client_software_version="1"))
_HANDSHAKE = frame(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=MECHANISM))

scram.salted_password = lru_cache(scram.salted_password)


class Server(NamedTuple):
    """A broker, what its clients believe, and how they log in."""

    name: str
    port: int
    ca: str
    user: str
    password: str


def open_servers(stack: ExitStack) -> tuple[list[Server], list[str]]:
    """Ours, and Apache Kafka, with certificates of one kind."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from support.peers.certificates import Certificates
    from support.peers.secured import PASSWORD, USER

    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-bench-")))
    certificates = Certificates(directory)
    secret = directory / "secret"
    secret.write_text(PASSWORD)
    options = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "ssl.keystore.location": certificates.store("localhost", "127.0.0.1"),
        "sasl.enabled.mechanisms": MECHANISM,
        "super.users": f"User:{USER}",
        # A client that opens a thousand at once is one address.
        "max.connections.per.ip": CROWD + 100,
    }
    ours = stack.enter_context(KohortServer(options, arguments=["--scram-user", f"{USER}:{MECHANISM}=@{secret}"]))
    servers = [Server("kohort", ours.port, str(certificates.ca), USER, PASSWORD)]
    left_out = apache_left_out()
    if not left_out:
        from support.peers.secured import SecuredKafka

        theirs = stack.enter_context(SecuredKafka())
        port = int(theirs.bootstrap("SASL_SSL").rsplit(":", 1)[1])
        servers.append(Server(APACHE_KAFKA, port, str(theirs.certificates.ca), USER, PASSWORD))
    return servers, left_out


def log_in(user: str, password: str) -> Generator[bytes, bytes, None]:
    """Yield the frames of a login and of a first question; take the answers, without their lengths."""
    yield _HANDSHAKE
    exchange = scram.ScramExchange(MECHANISM, user, password, nonce=secrets.token_hex(16))
    word = exchange.first()
    while word:
        body = yield frame(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=word))
        start = 4 if response_header_version(ApiKey.SASL_AUTHENTICATE, 2) == 0 else 5
        answer, _ = decode(response_class(ApiKey.SASL_AUTHENTICATE), 2, body, start)
        assert answer.error_code == 0, answer.error_message
        word = exchange.reply(answer.auth_bytes)
    yield VERSIONS


def connect(server: Server) -> RawConnection:
    """Return a connection that has logged in and got its first answer."""
    connection = RawConnection(server.port, tls=ssl.create_default_context(cafile=server.ca))
    talk = log_in(server.user, server.password)
    asked = next(talk)
    while True:
        connection.send(asked)
        try:
            asked = talk.send(connection.receive())
        except StopIteration:
            return connection


def one_by_one(server: Server) -> float:
    """Milliseconds of a connection, from its beginning to its first answer."""
    began = time.perf_counter()
    for _ in range(LOGINS):
        connect(server).close()
    return (time.perf_counter() - began) / LOGINS * 1e3


class _Client:
    """One connection of the crowd: a handshake, then a talk."""

    def __init__(self, tls: ssl.SSLSocket, server: Server) -> None:
        self.tls = tls
        self._talk = log_in(server.user, server.password)
        self._received = b""
        self._is_shaken = False

    def go_on(self) -> bool:
        """Do what can be done now; whether that was all."""
        try:
            if not self._is_shaken:
                self.tls.do_handshake()
                self._is_shaken = True
                self.tls.send(next(self._talk))
                return False
            self._received += self.tls.recv(1 << 16)
        except ssl.SSLWantReadError:
            return False
        assert self._received, "the broker closed a connection"
        if len(self._received) < 4 + int.from_bytes(self._received[:4]):
            return False
        body, self._received = self._received[4:], b""
        try:
            self.tls.send(self._talk.send(body))
        except StopIteration:
            return True
        return False


def be_crowd(server: Server) -> None:
    """Open the connections, log in and ask once on each; print how long that took."""
    context = ssl.create_default_context(cafile=server.ca)
    selector = selectors.DefaultSelector()
    # The salted password is the client's own work, and the same for all.
    connect(server).close()
    began = time.perf_counter()
    for _ in range(CROWD):
        raw = socket.socket()
        raw.setblocking(False)
        raw.connect_ex(("127.0.0.1", server.port))
        selector.register(raw, selectors.EVENT_WRITE, None)
    left, kept = CROWD, []
    while left:
        for key, _ in selector.select(30):
            client = key.data
            if client is None:
                # OpenSSL begins on a connected socket.
                selector.unregister(key.fileobj)
                tls = context.wrap_socket(key.fileobj, server_hostname="localhost", do_handshake_on_connect=False)  # type: ignore[arg-type]
                client = _Client(tls, server)
                kept.append(client)
                selector.register(tls, selectors.EVENT_READ, client)
            if client.go_on():
                selector.unregister(client.tls)
                left -= 1
    print(time.perf_counter() - began, flush=True)


def be_settled(server: Server) -> None:
    """Ask until a line comes; print the 99th percentile."""
    connection = connect(server)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    took: list[float] = []
    print("ready", flush=True)
    while not selector.select(ASK_EVERY_S):
        began = time.perf_counter()
        connection.send(VERSIONS)
        connection.receive()
        took.append((time.perf_counter() - began) * 1e3)
    print(quantiles(took, n=100)[98], flush=True)


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = open_servers(stack)
        single = take_turns(runs, *(partial(one_by_one, server) for server in servers))
        crowds = take_turns(runs, *(partial(come, __file__, *map(str, server)) for server in servers))

    def row(what: str, found: list[list[Any]], unit: str, reach: str) -> Row:
        ours, peers = found[0], found[1] if len(found) > 1 else []
        how = warmed(runs)
        return compare(what, ours, peers, unit=unit, reach=reach, peer_name=APACHE_KAFKA, how=how, less_is_better=True)

    def part(name: str) -> list[list[Any]]:
        return [[getattr(each, name) for each in side] for side in crowds]

    rows = [
        row("a connection with TLS and SCRAM-SHA-512, to its first answer", single, "ms", "<= 1x"),
        row(f"{CROWD:,} such connections at once, to the last first answer", part("all_s"), "s", "<= 1x"),
        row("a settled connection meanwhile, p99", part("p99_ms"), "ms", "<= 20 ms"),
    ]
    return [Table("sasl", "Connections with TLS and a login", rows, left_out)]


if __name__ == "__main__":
    name, port, ca, user, password = sys.argv[2:]
    {"crowd": be_crowd, "settled": be_settled}[sys.argv[1]](Server(name, int(port), ca, user, password))
