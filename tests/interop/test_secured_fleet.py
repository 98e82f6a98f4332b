"""Rights, users and certificates are taken away from many connections that wait: all end, and the others do not.

`make soak ONLY=secured` has 1,000 connections and prints how long it took.
"""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import Acl, ScramCredential
from kohort.errors import ErrorCode
from kohort.wire.registry import ApiKey
from support.depth import at_depth
from support.peers.certificates import Certificates
from support.peers.waiting_fleet import SCRAM, WaitingClient, ended_ms

pytestmark = pytest.mark.interop

CONNECTIONS = at_depth(60, 1_000)
#: Of another user, which wait on.
OTHERS = 10
#: Bearers of certificates, of the authority that stays and of the other.
INSIDER, OUTSIDER = "client@example.org", "outsider@example.org"
PASSWORD = "wonder"
GROUPS = "g-"


class Place:
    """A broker whose users are alice, bob and the bearer of a certificate, who may all read; root may everything."""

    def __init__(self, directory: Path) -> None:
        (directory / "other").mkdir()
        self.certificates, self.other = Certificates(directory), Certificates(directory / "other")
        self.trust = directory / "trust.pem"
        self._trust(self.certificates, self.other)
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        config = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} user_root="{PASSWORD}";',
            "ssl.keystore.location": str(self.certificates.store("127.0.0.1")),
            "ssl.truststore.location": str(self.trust),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/",
            "super.users": "User:root",
            "group.push.enable": True,
            "group.consumer.assignment.window.ms": 0,
            # Heartbeats are held for an interval, if that is not long.
            "group.consumer.max.heartbeat.interval.ms": 300_000,
            "group.consumer.heartbeat.interval.ms": 300_000,
            "group.consumer.max.session.timeout.ms": 600_000,
            "group.consumer.session.timeout.ms": 600_000,
        }
        self.broker = kohort.Broker(config=config, process=True)

    def __enter__(self) -> Place:
        self.broker.start()
        self.root = kohort.Admin(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "root",
                "sasl.password": PASSWORD,
            }
        )
        self.root.create_topic("t", 1)
        users = [ScramCredential(user=each, password=PASSWORD, mechanism=SCRAM, iterations=4096) for each in USERS]
        self.root.alter_user_scram_credentials(users)
        self.root.create_acls([acl for user in (*USERS, INSIDER, OUTSIDER) for acl in rights(user)])
        return self

    def __exit__(self, *raised: Any) -> None:
        self.root.close()
        self.broker.stop()

    def port(self, listener: str) -> int:
        return int(self.broker.bootstrap_of(listener).rpartition(":")[2])

    def user(self, name: str) -> WaitingClient:
        client = WaitingClient(self.port("SASL_PLAINTEXT"))
        client.log_in(name, PASSWORD)
        return client

    def bearer(self, store: Path) -> WaitingClient:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        context.load_cert_chain(store)
        return WaitingClient(self.port("SSL"), tls=context)

    def _trust(self, *authorities: Certificates) -> None:
        fresh = self.trust.with_suffix(".new")
        fresh.write_bytes(b"".join(each.ca.read_bytes() for each in authorities))
        shutil.move(fresh, self.trust)

    def distrust_the_other(self) -> None:
        self._trust(self.certificates)


USERS = ("alice", "bob")


def rights(user: str) -> list[Acl]:
    topic = Acl(resource_type="topic", name="t", principal=f"User:{user}", operation="read")
    group = Acl(
        resource_type="group", name=GROUPS, pattern_type="prefixed", principal=topic.principal, operation="read"
    )
    return [topic, group]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def open_clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def waiting(stack: ExitStack, count: int, connect: Callable[[], WaitingClient], prefix: str) -> list[WaitingClient]:
    """So many connections, of which each second one waits for records, the others for news of their groups.

    They wait for some seconds, which it may take to connect the next ones: those that are fewer come last.
    """
    clients = [stack.enter_context(connect()) for _ in range(count)]
    for number, client in enumerate(clients):
        if number % 2:
            client.join_and_hold(f"{GROUPS}{prefix}-{number}", "t")
        else:
            client.park("t")
    return clients


def end(place: Place, what: str, clients: Sequence[WaitingClient], change: Callable[[], object]) -> None:
    """Make a change that all of them are to feel, and print when they did and what it took of the broker."""
    before = on_processor_ms(place)
    ended = ended_ms(clients, change)
    computed, waited = (now - then for now, then in zip(on_processor_ms(place), before, strict=True))
    assert len(ended) == len(clients)
    p99 = ended[int(len(ended) * 0.99) - 1]
    print(
        f"{what}: {len(ended)} ended; ms: the first {ended[0]:.1f}, p99 {p99:.1f}, the last {ended[-1]:.1f}, "
        f"between them {ended[-1] - ended[0]:.1f}; the broker computed {computed:.1f}, "
        f"and waited for a processor {waited:.1f}"
    )


def on_processor_ms(place: Place) -> tuple[float, float]:
    """How long the broker's loop has had a processor, and has waited for one."""
    schedule = Path(f"/proc/{place.broker.process_id}/schedstat")
    computed, waited = schedule.read_text().split()[:2] if schedule.exists() else ("0", "0")
    return int(computed) / 1e6, int(waited) / 1e6


def test_rights_are_taken_away(place: Place, open_clients: ExitStack) -> None:
    """Each request is answered with a refusal at once, and the connections stay; bob's wait on."""
    alices = waiting(open_clients, CONNECTIONS, lambda: place.user("alice"), "alice")
    bobs = waiting(open_clients, OTHERS, lambda: place.user("bob"), "bob-stays")

    end(place, "a right", alices, lambda: place.root.delete_acls(rights("alice")))

    refusals = {
        ApiKey.FETCH: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    assert [client.outcome() for client in alices] == [refusals[client.waits_for] for client in alices]
    assert_all_wait(bobs)


def test_user_is_taken_away(place: Place, open_clients: ExitStack) -> None:
    """Connections are closed, and those of the other user are not."""
    bobs = waiting(open_clients, CONNECTIONS, lambda: place.user("bob"), "bob")
    insiders = waiting(open_clients, OTHERS, lambda: place.bearer(place.certificates.client), "insider")

    end(place, "a user", bobs, lambda: place.root.alter_user_scram_credentials(deletions=[("bob", SCRAM)]))

    assert {client.outcome() for client in bobs} == {None}
    assert_all_wait(insiders)


def test_certificate_is_taken_away(place: Place, open_clients: ExitStack) -> None:
    """All connections of the authority that is trusted no more end at the broker's next look at its files."""
    outsider = place.other.store(OUTSIDER)
    outsiders = waiting(open_clients, CONNECTIONS, lambda: place.bearer(outsider), "outsider")
    insiders = waiting(open_clients, OTHERS, lambda: place.bearer(place.certificates.client), "insider-stays")

    end(place, "a certificate", outsiders, place.distrust_the_other)

    assert {client.outcome() for client in outsiders} == {None}
    assert_all_wait(insiders)


def assert_all_wait(clients: Sequence[WaitingClient]) -> None:
    for client in clients:
        client.socket.setblocking(False)
        try:
            heard = client.socket.recv(1 << 16)
        except (BlockingIOError, ssl.SSLWantReadError):
            continue
        raise AssertionError(f"{client.waits_for.name} does not wait any more: {heard!r}")
