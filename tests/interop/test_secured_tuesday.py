"""An ordinary day with security: Kafka's own file, clients that are early or asleep, a neighbour that tries passwords.

`make soak ONLY=secured` gives the same file to Apache Kafka, and prints what a client waits beside a flood of logins.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import kohort
from kohort import Acl, ScramCredential
from kohort.errors import AuthorizationError
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import ApiKey
from support.depth import IS_SOAK
from support.dialogues.broker_wire import RawClient
from support.peers.apache_broker import ApacheKafka
from support.peers.certificates import Certificates
from support.peers.cli import Running, environment, run_kohort, started, started_kohort
from support.ports import quiet_port
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
_MODULES = "org.apache.kafka.common.security"
SESSION_MS = 1_500


def secured_file(directory: Path, certificates: Certificates, *ports: int) -> dict[str, str]:
    """A server.properties as the documentation of Apache Kafka builds it up for SASL_SSL with ACLs."""
    outside, controller = ports
    text = certificates.store("127.0.0.1", "localhost").read_text()
    # The key and the chain stand in the file itself, as operators of containers have it.
    key, certificate = text[: text.index("-----BEGIN CERTIFICATE")], text[text.index("-----BEGIN CERTIFICATE") :]
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items() if name != "bob")
    own = f'username="admin" password="{PASSWORDS["admin"]}"'
    in_one_line = {
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": certificate,
        "ssl.truststore.certificates": certificates.ca.read_text(),
    }
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"SASL_SSL://127.0.0.1:{outside},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"SASL_SSL://127.0.0.1:{outside}",
        "inter.broker.listener.name": "SASL_SSL",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {own} {users};",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "listener.name.controller.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {own} {users};",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        **{name: value.replace("\n", "\\n") for name, value in in_one_line.items()},
        "ssl.client.auth": "none",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.protocol": "TLSv1.3",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "false",
        "connections.max.reauth.ms": "3600000",
        "quota.window.num": "11",
        "log.dirs": str(directory / "logs"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def client(address: str, certificates: Certificates, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-512" if user == "bob" else "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
        "reconnect.backoff.max.ms": 200,
    }


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.mark.parametrize("kind", ["kohort", *([pytest.param("apache", marks=pytest.mark.apache)] if IS_SOAK else [])])
def test_file_of_a_secured_apache_kafka_works_unchanged(tmp_path: Path, certificates: Certificates, kind: str) -> None:
    """Its users are let in with the rights that they are given; what has no effect here is named once."""
    outside = quiet_port()
    lines = secured_file(tmp_path, certificates, outside, quiet_port())
    with contextlib.ExitStack() as stack:
        if kind == "apache":
            stack.enter_context(ApacheKafka(lines, directory=str(tmp_path)))
        else:
            file = tmp_path / "server.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            broker: Running = stack.enter_context(started_kohort("up", "--config-file", str(file)))
            broker.wait_for_lines(1, start="ready ")
            said = "\n".join(broker.complaints + broker.lines)
            # Each line is a sentence about options that are passed over; none is a secret.
            assert "not needed here: process.roles, controller.quorum.voters" in said
            assert not [each for each in (*PASSWORDS.values(), "PRIVATE KEY") if each in said]
        address = f"127.0.0.1:{outside}"
        with kohort.Admin(client(address, certificates, "admin")) as admin:
            until(lambda: admin.describe_cluster().brokers, what="the broker is there")
            admin.create_topic("orders", 1)
            admin.alter_user_scram_credentials([ScramCredential(user="bob", password=PASSWORDS["bob"])])
            entries = [("alice", "topic", "write"), ("bob", "topic", "read"), ("bob", "group", "read")]
            admin.create_acls(
                Acl(resource_type=kind, name="orders", principal=f"User:{user}", operation=operation)
                for user, kind, operation in entries
            )
        alices, bobs = (client(address, certificates, each) for each in ("alice", "bob"))
        producer = confluent_kafka.Producer(alices)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE_SECONDS) == 0
        consumer = confluent_kafka.Consumer({**bobs, "group.id": "orders", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        until(lambda: (found := consumer.poll(0.2)) is not None and found.error() is None, what="bob reads")
        consumer.close()
        with kohort.Producer(bobs) as theirs, pytest.raises(AuthorizationError):
            theirs.send("orders", b"two").result(PATIENCE_SECONDS)


def test_file_with_what_is_not_there_is_refused_in_a_sentence_for_each_line(
    tmp_path: Path, certificates: Certificates
) -> None:
    """All of them at once, with their places."""
    lines = secured_file(tmp_path, certificates, quiet_port(), quiet_port()) | {
        "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-512",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_ssl.plain.sasl.server.callback.handler.class": "com.example.Ldap",
        "authorizer.class.name": "com.example.RangerAuthorizer",
        "ssl.keystore.type": "JKS",
        "principal.builder.class": "com.example.Principals",
        "delegation.token.secret.key": "delegation-secret",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    done = run_kohort("up", "--config-file", str(file))
    assert done.code != 0
    print(done.err)
    names = list(lines)
    for name in (
        "sasl.enabled.mechanisms",
        "listener.name.sasl_ssl.plain.sasl.server.callback.handler.class",
        "authorizer.class.name",
        "ssl.keystore.type",
        "principal.builder.class",
        "delegation.token.secret.key",
    ):
        place = re.escape(f"{file}:{names.index(name) + 1}: ")
        assert re.search(f"^(kohort: )?{place}.*{re.escape(name)}", done.err, re.MULTILINE), (name, done.err)
    assert "secret" not in done.err.replace("delegation.token.secret.key", "")
    assert "PRIVATE KEY" not in done.err


class Logins:
    """A broker in a process of its own with short sessions over TLS, always at the same port."""

    def __init__(self, certificates: Certificates, **more: object) -> None:
        self.certificates = certificates
        self.port = quiet_port()
        login = f"{_MODULES}.plain.PlainLoginModule required"
        config = {
            "listeners": f"SASL_SSL://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.location": str(certificates.store("127.0.0.1")),
            "sasl.enabled.mechanisms": "PLAIN",
            **{
                f"listener.name.{each}.plain.sasl.jaas.config": f'{login} user_alice="{PASSWORDS["alice"]}";'
                for each in ("sasl_ssl", "sasl_plaintext")
            },
            "super.users": "User:alice",
            "group.initial.rebalance.delay.ms": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.broker = kohort.Broker(config=config, process=True)

    @property
    def client(self) -> dict[str, Any]:
        return client(f"127.0.0.1:{self.port}", self.certificates, "alice")

    def __enter__(self) -> Logins:
        self.broker.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.broker.stop()


def test_clients_that_start_before_their_broker_wait_for_it(certificates: Certificates) -> None:
    """Ours and librdkafka's; what they sent meanwhile comes through."""
    place = Logins(certificates)
    theirs = confluent_kafka.Consumer({**place.client, "group.id": "g", "auto.offset.reset": "earliest"})
    theirs.subscribe(["early"])
    assert theirs.poll(0.1) is None
    with kohort.Producer(place.client) as producer:
        sent = producer.send("early", b"one")
        with place:
            sent.result(PATIENCE_SECONDS)
            # A topic that was not there is looked for again when its metadata is over.
            with kohort.Consumer(place.client, auto_offset_reset="earliest", group_id="ours") as ours:
                ours.subscribe(["early"])
                assert ours.poll_one(PATIENCE_SECONDS) is not None
            until(lambda: (found := theirs.poll(0.2)) is not None and found.error() is None, what="librdkafka reads")
            theirs.close()


#: Sends for ever, and says so; what fails ends it.
_SENDER = """
import json, sys, kohort
with kohort.Producer(json.loads(sys.argv[1])) as producer:
    while True:
        print("sent", producer.send("asleep", b"x").result(30).offset, flush=True)
"""


@pytest.mark.parametrize("sleeper", ["client", "broker"])
def test_machine_that_sleeps_beyond_its_sessions(certificates: Certificates, sleeper: str) -> None:
    """A laptop that was closed: its client logs in anew; a broker that was away counts the session from then on."""
    with Logins(certificates, connections_max_reauth_ms=SESSION_MS) as place:
        given = json.dumps(place.client)
        with started([sys.executable, "-c", _SENDER, given], env=environment()) as running:
            running.wait_for_lines(3)
            pid = running.process.pid if sleeper == "client" else place.broker.process_id
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                # The session of every connection is over meanwhile.
                threading.Event().wait(2 * SESSION_MS / 1000)
            finally:
                os.kill(pid, signal.SIGCONT)
            count = len(running.lines)
            running.wait_for_lines(count + 5)
            assert running.process.poll() is None, running.complaints
            offsets = [int(line.split()[1]) for line in list(running.lines)]
    assert offsets == list(range(len(offsets))), "each once"


class Guesser:
    """Tries passwords, so many a second, until it is told to stop."""

    def __init__(self, port: int, a_second: int) -> None:
        self._port, self._pause_s = port, 1 / a_second
        self._is_over = threading.Event()
        self.refused = self.cut = 0
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(20)]

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_s * len(self._threads)):
            # The broker lets those of an address wait that has failed often, and ends them after some time.
            with contextlib.suppress(OSError, AssertionError), RawClient(self._port) as guess:
                guess.socket.settimeout(2)
                guess.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
                said = SaslAuthenticateRequest(auth_bytes=b"\0alice\0open-sesame")
                answer = guess.ask(ApiKey.SASL_AUTHENTICATE, 2, said)
                assert answer.error_code
                self.refused += 1
                continue
            self.cut += 1

    def __enter__(self) -> Guesser:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)


def test_neighbour_that_tries_passwords_holds_up_no_other(certificates: Certificates) -> None:
    """A hundred a second from the same address: a client that has logged in goes on, and a new one comes in."""
    rounds = 300 if IS_SOAK else 20
    with Logins(certificates) as place, kohort.Producer({**place.client, "linger.ms": 0}) as producer:

        def latencies_ms() -> list[float]:
            found = []
            for _ in range(rounds):
                began = time.perf_counter()
                producer.send("t", b"x").result(PATIENCE_SECONDS)
                found.append((time.perf_counter() - began) * 1000)
            return sorted(found)

        producer.send("t", b"first").result(PATIENCE_SECONDS)
        alone = latencies_ms()
        with Guesser(int(place.broker.bootstrap_of("SASL_PLAINTEXT").rpartition(":")[2]), 100) as guesser:
            until(lambda: guesser.refused >= 5, what="some are refused", step=lambda: time.sleep(0.01))
            beside = latencies_ms()
            began = time.perf_counter()
            with kohort.Admin(place.client) as admin:
                admin.list_topics()
            login_ms = (time.perf_counter() - began) * 1000
        for what, found in (("alone", alone), ("beside", beside)):
            p99 = found[int(len(found) * 0.99) - 1]
            print(f"{what}: ms: median {statistics.median(found):.2f}, p99 {p99:.2f}, longest {found[-1]:.2f}")
        print(f"a new login beside it: {login_ms:.0f} ms; guesses refused {guesser.refused}, cut {guesser.cut}")
