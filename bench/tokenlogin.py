"""Logins by a capability token, how fast a revoked token ends a thousand connections, and a holder that is throttled.

A login is that of a connection without TLS, from its beginning to its first answer, one after the other. Each of the
thousand waits in a fetch. The holder with a rate produces as fast as it may; another connection asks every 4 ms.
Peer of the logins: Apache Kafka 4.3 with PLAIN. It has no tokens that end before their time, and its quota has a bench
of its own.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from kohort import Admin, capabilities
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import APACHE_KAFKA, NO_PEER, Row, Table, compare, take_turns, warmed
from servers import KohortServer, apache_left_out

#: Logins one after the other, of which the mean is one run's figure.
LOGINS: Final = 200
CROWD: Final = 1_000
LIMIT: Final = 1_000_000
#: What a new holder may send at once is a quarter of a second's worth.
SETTLE_S, ROUND_S = 1.0, 10.0
BETWEEN_ASKS_S: Final = 0.004
USER, PASSWORD = "root", "secret"
VERSIONS = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
_HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
_VALUE: Final = bytes(60_000)


class Ours:
    """Our broker, and the tokens that it takes."""

    def __init__(self, server: KohortServer) -> None:
        assert server.directory is not None, "its keys are there"
        self.port: Final = server.port
        self.keys: Final = capabilities.read_keys(Path(server.directory) / "capability.keys")
        self._number = 0

    def token(self, *caveats: capabilities.Caveat) -> str:
        """Return a token of a holder of its own."""
        self._number += 1
        return capabilities.mint(self.keys, *caveats, token_id=self._number.to_bytes(16, "big"))

    def admin(self) -> Admin:
        """Return an admin client that may do everything."""
        login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        options: dict[str, Any] = {**login, "sasl_username": USER, "sasl_password": PASSWORD}
        return Admin(bootstrap_servers=f"127.0.0.1:{self.port}", **options)


def connect(port: int, user: str, password: str) -> RawConnection:
    """Return a connection that has logged in by PLAIN and got its first answer."""
    connection = RawConnection(port)
    assert connection.ask(ApiKey.SASL_HANDSHAKE, 1, _HANDSHAKE).error_code == 0
    words = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, words)
    assert answer.error_code == 0, answer.error_message
    connection.ask(ApiKey.API_VERSIONS, 3, VERSIONS)
    return connection


def log_in(port: int, user: str, password: str) -> float:
    """Milliseconds of a connection, from its beginning to its first answer."""
    began = time.perf_counter()
    for _ in range(LOGINS):
        connect(port, user, password).close()
    return (time.perf_counter() - began) / LOGINS * 1e3


def log_in_anew(ours: Ours) -> float:
    """Milliseconds of such a connection whose token the broker has never seen."""
    tokens = [ours.token(*four_caveats()) for _ in range(LOGINS)]
    began = time.perf_counter()
    for token in tokens:
        connect(ours.port, "token", token).close()
    return (time.perf_counter() - began) / LOGINS * 1e3


def four_caveats() -> Sequence[capabilities.Caveat]:
    """Return the caveats of a token as it is given out."""
    return (
        capabilities.operations("read", "commit"),
        capabilities.topics("orders"),
        capabilities.groups("billing"),
        capabilities.not_after(int(time.time() * 1000) + 3_600_000),
    )


def revoke(ours: Ours) -> float:
    """Milliseconds from the call that revokes a token until the 990th of a thousand connections has ended."""
    label = f"crowd-{time.monotonic_ns()}"
    token = ours.token(capabilities.label(label))
    rows = [FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1_000)])]
    fetch = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1_000, session_epoch=-1, topics=rows)
    with ExitStack() as stack, ours.admin() as admin, selectors.DefaultSelector() as selector:
        admin.describe_tokens()
        for _ in range(CROWD):
            connection = connect(ours.port, "token", token)
            stack.callback(connection.close)
            connection.send(frame(ApiKey.FETCH, 12, fetch))
            selector.register(connection.descriptor, selectors.EVENT_READ)
        assert not selector.select(1), "they wait"
        began = time.perf_counter()
        admin.revoke_tokens(labels=[label])
        ended: list[float] = []
        while len(ended) < CROWD:
            for key, _ in selector.select(10):
                ended.append((time.perf_counter() - began) * 1e3)
                selector.unregister(key.fileobj)
    return quantiles(ended, n=100)[98]


def throttle(ours: Ours) -> tuple[float, float]:
    """Megabytes that a holder with a rate has sent in ten seconds, and another connection's p99 in milliseconds."""
    held = connect(ours.port, "token", ours.token(capabilities.byte_rate(LIMIT)))
    other = connect(ours.port, "token", ours.token())
    data = [PartitionProduceData(index=0, records=_batch())]
    rows = [TopicProduceData(name="orders", partition_data=data)]
    request = frame(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=rows))
    asked = frame(ApiKey.API_VERSIONS, 3, VERSIONS)
    sent, begin, took = 0, time.perf_counter() + SETTLE_S, []
    with selectors.DefaultSelector() as selector:
        selector.register(held.descriptor, selectors.EVENT_READ)
        held.send(request)
        while time.perf_counter() < begin + ROUND_S:
            if selector.select(BETWEEN_ASKS_S):
                held.receive()
                sent += len(request) if time.perf_counter() >= begin else 0
                held.send(request)
            began = time.perf_counter()
            other.send(asked)
            other.receive()
            took.append((time.perf_counter() - began) * 1e3)
    held.close()
    other.close()
    return sent / 1e6, quantiles(took, n=100)[98]


def _batch() -> bytes:
    from kohort.records.batch import build_batch

    return bytes(build_batch([(None, _VALUE, int(time.time() * 1000), ())]))


def open_servers(stack: ExitStack) -> tuple[Ours, int | None, list[str]]:
    """Start ours, and find the port of Apache Kafka's listener with PLAIN if that runs."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    options = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": jaas,
        "super.users": f"User:{USER}",
        # A client that opens a thousand at once is one address.
        "max.connections": CROWD + 200,
        "max.connections.per.ip": CROWD + 100,
    }
    ours = Ours(stack.enter_context(KohortServer(options)))
    with ours.admin() as admin:
        admin.create_topic("orders", 1)
    left_out = apache_left_out()
    if left_out:
        return ours, None, left_out
    from support.peers.secured import SecuredKafka

    theirs = stack.enter_context(SecuredKafka())
    return ours, int(theirs.bootstrap("SASL_PLAINTEXT").rpartition(":")[2]), []


def measure(runs: int) -> list[Table]:
    """Time logins beside Apache Kafka's, then the end of a crowd and a rate at ours."""
    with ExitStack() as stack:
        ours, peer, left_out = open_servers(stack)
        token = ours.token(*four_caveats())
        sides = [partial(log_in, ours.port, "token", token), partial(log_in_anew, ours)]
        if peer is not None:
            from support.peers.secured import PASSWORD as THEIRS
            from support.peers.secured import USER as THEIR_USER

            sides.append(partial(log_in, peer, THEIR_USER, THEIRS))
        kept, anew, *theirs = take_turns(runs, *sides)
        (ends,) = take_turns(runs, partial(revoke, ours))
        megabytes, p99s = zip(*(throttle(ours) for _ in range(runs)), strict=True)

    def row(what: str, found: Sequence[float], unit: str, reach: str, how: str, *, has_peer: bool = False) -> Row:
        peers, name = (theirs[0], APACHE_KAFKA) if has_peer and theirs else ([], NO_PEER)
        return compare(what, found, peers, unit=unit, reach=reach, peer_name=name, how=how, less_is_better=True)

    times = warmed(runs)
    rows = [
        row("a login with a token of 4 caveats, to its first answer", kept, "ms", ">= 0.83x", times, has_peer=True),
        row("the same, each with a token of its own", anew, "ms", ">= 0.83x", times, has_peer=True),
        row(f"revoked, {CROWD:,} connections: the end of 99 %", ends, "ms", "<= 100 ms", times),
        row("throttled to 1 MB/s by its caveat: sent in 10 s", megabytes, "MB", "10 ± 5 %", f"{runs} times 10 s"),
        row("another connection meanwhile, p99", p99s, "ms", "", f"{runs} times 10 s"),
    ]
    return [Table("tokenlogin", "Logins, ends and rates of capability tokens", rows, left_out)]
