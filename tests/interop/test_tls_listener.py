"""Stock clients at our listeners with TLS: every version, certificates of both sides, files that change, strangers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.broker.connections.handshakes import FILES_SECONDS
from kohort.broker.embedded import Broker
from kohort.errors import AuthorizationError, BrokersUnreachableError
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request
from support.peers.certificates import Certificates
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

MESSAGES = [b"%d " % number + b"x" * 3_000 for number in range(300)]
VERSIONS = ("TLSv1.2", "TLSv1.3")
ASK = encode_request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="t", client_software_version="1"))
#: A listener of each kind: whether it asks for certificates, and what it speaks.
LISTENERS = {
    "OPEN": {},
    "MUTUAL": {"ssl.client.auth": "required"},
    **{name.replace("v1.", ""): {"ssl.enabled.protocols": name} for name in VERSIONS},
}


class Secured:
    """A broker with such listeners, and the certificates of it and of its clients."""

    def __init__(self, directory: Path) -> None:
        self.certificates = Certificates(directory)
        self.store = directory / "broker.pem"
        self.trust = directory / "trust.pem"
        self.names = ("localhost", "127.0.0.1")
        shutil.copy(self.certificates.store(*self.names), self.store)
        shutil.copy(self.certificates.ca, self.trust)
        config: dict[str, object] = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*LISTENERS, "PLAINTEXT")),
            "listener.security.protocol.map": ",".join([f"{name}:SSL" for name in LISTENERS] + ["PLAINTEXT:PLAINTEXT"]),
            "ssl.keystore.location": str(self.store),
            "ssl.truststore.location": str(self.trust),
            "group.initial.rebalance.delay.ms": 0,
            # Everyone may do everything here.
            "authorizer.class.name": "",
        }
        for name, options in LISTENERS.items():
            config |= {f"listener.name.{name.lower()}.{option}": value for option, value in options.items()}
        self.broker = Broker(config=config)

    def at(self, listener: str) -> str:
        return self.broker.bootstrap_of(listener)

    def port(self, listener: str) -> int:
        return int(self.at(listener).rpartition(":")[2])

    def client_context(self, own: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        if own is not None:
            context.load_cert_chain(own)
        return context

    @contextlib.contextmanager
    def connected(self, listener: str, own: Path | None = None) -> Iterator[ssl.SSLSocket]:
        """A session with it."""
        plain = socket.create_connection(("127.0.0.1", self.port(listener)), PATIENCE_SECONDS)
        with self.client_context(own).wrap_socket(plain, server_hostname="localhost") as tls:
            yield tls


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("tls"))
    with made.broker:
        yield made


def asked(tls: ssl.SSLSocket) -> bytes:
    """One request and its answer."""
    tls.sendall(ASK)
    size, answer = 4, bytearray()
    while len(answer) < size:
        part = tls.recv(1 << 16)
        if not part:
            raise ConnectionError("the broker has closed it")
        answer += part
        if len(answer) >= 4:
            size = 4 + int.from_bytes(answer[:4], "big")
    return bytes(answer)


# ---- what stock clients do, each over a topic of its own


def confluent(bootstrap: str, topic: str, ca: str, own: str | None) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    options = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": ca}
    if own is not None:
        options |= {"ssl.certificate.location": own, "ssl.key.location": own}
    producer = Producer({**options, "linger.ms": 5})
    for message in MESSAGES:
        producer.produce(topic, message, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    until(
        lambda: len(found) >= len(MESSAGES),
        what="the messages",
        step=lambda: found.extend(each.value() for each in consumer.consume(500, 0.2) if each.error() is None),
    )
    consumer.close()
    return found


def kafka_python(bootstrap: str, topic: str, ca: str, own: str | None) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer

    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_cafile": ca}
    if own is not None:
        options |= {"ssl_certfile": own, "ssl_keyfile": own}
    producer = KafkaProducer(**options)
    for message in MESSAGES:
        producer.send(topic, message, partition=0)
    producer.flush(PATIENCE_SECONDS)
    producer.close()
    # Now and then it assigns by metadata from before the topic; it looks again after this time.
    refreshing: dict[str, Any] = {"metadata_max_age_ms": 500}
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **options, **refreshing)
    found: list[bytes] = []

    def poll() -> None:
        for records in consumer.poll(200).values():
            found.extend(record.value for record in records)

    until(lambda: len(found) >= len(MESSAGES), what="the messages", step=poll)
    consumer.close()
    return found


def aiokafka(bootstrap: str, topic: str, ca: str, own: str | None) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    async def play() -> list[bytes]:
        context = create_ssl_context(cafile=ca, certfile=own, keyfile=own)
        options: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**options) as producer:
            for sent in [await producer.send(topic, message, partition=0) for message in MESSAGES]:
                await sent
        found: list[bytes] = []
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **options) as consumer:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(found) < len(MESSAGES):
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [record.value for record in records]
        return found

    return asyncio.run(play())


def ours(bootstrap: str, topic: str, ca: str, own: str | None) -> list[bytes]:
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_ca_location": ca}
    if own is not None:
        options["ssl_certificate_location"] = own
    with kohort.Producer(**options) as producer:
        producer.send_many(topic, MESSAGES, partition=0).result(PATIENCE_SECONDS)
    found: list[bytes] = []
    with kohort.Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        until(
            lambda: len(found) >= len(MESSAGES),
            what="the messages",
            step=lambda: found.extend(record.value for record in consumer.poll(0.2)),
        )
    return found


CLIENTS: dict[str, Callable[[str, str, str, str | None], list[bytes]]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kohort": ours,
}


def create(secured: Secured, topic: str) -> None:
    with kohort.Admin(bootstrap_servers=secured.at("PLAINTEXT")) as admin:
        admin.create_topic(topic, 1)


@pytest.mark.parametrize("listener", ["TLS2", "TLS3", "MUTUAL"])
@pytest.mark.parametrize("client", CLIENTS)
def test_stock_clients_send_and_read(secured: Secured, client: str, listener: str) -> None:
    """A producer, and a member of a group, over each version, and with a certificate of its own."""
    topic = f"{client}-{listener}"
    create(secured, topic)
    own = str(secured.certificates.client) if listener == "MUTUAL" else None
    assert CLIENTS[client](secured.at(listener), topic, str(secured.certificates.ca), own) == MESSAGES


def test_java_reads_and_is_refused_without_a_certificate(secured: Secured, tmp_path: Path) -> None:
    """Apache Kafka's own tools, by one Java."""
    from support.peers.apache import KafkaUnavailableError, kafka_libs
    from support.peers.kafka_tools import run_kafka_tool

    try:
        kafka_libs()
    except KafkaUnavailableError as why:
        pytest.skip(str(why))
    create(secured, "java")
    lines = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secured.certificates.ca,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": secured.certificates.client,
    }
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    tool = ("--bootstrap-server", secured.at("MUTUAL"), "--topic", "java")
    run_kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "java", "--num-records", "200", "--record-size", "2000", "--throughput", "-1"),
        *("--bootstrap-server", secured.at("MUTUAL"), "--command-config", str(config)),
    )
    said = run_kafka_tool("org.apache.kafka.tools.GetOffsetShell", *tool, "--command-config", str(config))
    assert said.split() == ["java:0:200"]


# ---- who is let in


def refusals(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if "tls_refused" in record.getMessage())


def test_client_of_a_stranger_or_of_none_is_refused(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over each version that is spoken at the listener; the broker says why."""
    for own, why in (
        (None, "the client has no certificate, and ssl.client.auth is required"),
        (Certificates(tmp_path).client, "the certificate of the client is refused: "),
    ):
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            secured.connected("MUTUAL", own) as tls,
        ):
            asked(tls)
        until(lambda: why in refusals(caplog), what=why, step=lambda: time.sleep(0.01))  # noqa: B023


def test_our_client_says_what_is_wrong(secured: Secured) -> None:
    """Plain text at a port with TLS, and TLS at one without."""
    for given, words in (
        ({"bootstrap_servers": secured.at("OPEN")}, "it looks like TLS"),
        ({"bootstrap_servers": secured.at("PLAINTEXT"), "security_protocol": "SSL"}, "is TLS spoken there"),
    ):
        with (
            pytest.raises(BrokersUnreachableError, match=words),
            kohort.Admin(request_timeout_ms=3_000, **given) as admin,
        ):  # type: ignore[arg-type]
            admin.list_topics()


def openssl(secured: Secured, listener: str, *options: str, words: str) -> str:
    """What openssl s_client says that gets these words."""
    command = [
        "openssl",
        "s_client",
        "-connect",
        secured.at(listener),
        "-CAfile",
        str(secured.certificates.ca),
        *options,
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if "Verify return code" in line or "Max Early Data" in line:
                break
        # The command reads one letter of each line that comes by itself.
        process.stdin.write(words)
        process.stdin.flush()
        hurry = threading.Timer(10, process.kill)
        hurry.start()
        for line in process.stdout:
            said.append(line)
            if "no renegotiation" in line or "KEYUPDATE" in line:
                break
        if process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        process.wait(PATIENCE_SECONDS)
        hurry.cancel()
    return "".join(said)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_renegotiation_is_refused_and_new_keys_are_not(secured: Secured) -> None:
    assert "no renegotiation" in openssl(secured, "TLS2", "-tls1_2", words="R\n")
    assert "KEYUPDATE" in openssl(secured, "TLS3", "-tls1_3", words="K\n")


# ---- while they work


def test_certificate_changes_while_clients_work(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost or doubled; who connects then sees the new one."""
    caplog.set_level(logging.INFO)
    create(secured, "renewed")
    options = {
        "bootstrap_servers": secured.at("OPEN"),
        "security_protocol": "SSL",
        "ssl_ca_location": str(secured.certificates.ca),
    }
    with kohort.Producer(**options) as producer, secured.connected("OPEN") as old:
        before = old.getpeercert()
        producer.send_many("renewed", MESSAGES, partition=0).result(PATIENCE_SECONDS)
        beside = secured.store.with_suffix(".new")
        shutil.copy(secured.certificates.store(*secured.names, "renewed.example"), beside)
        beside.replace(secured.store)
        sent = [producer.send("renewed", message, partition=0) for message in MESSAGES]
        until(
            lambda: sum("certificates_taken" in record.getMessage() for record in caplog.records) == len(LISTENERS),
            what="the new certificate",
            step=lambda: time.sleep(0.02),
        )
        for each in sent:
            each.result(PATIENCE_SECONDS)
        assert asked(old)
        with secured.connected("OPEN") as new:
            assert "renewed.example" in str(new.getpeercert())
            assert "renewed.example" not in str(before)
    found: list[bytes] = []
    with kohort.Consumer(**options, group_id="renewed", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["renewed"])
        until(
            lambda: len(found) >= 2 * len(MESSAGES),
            what="the messages",
            step=lambda: found.extend(record.value for record in consumer.poll(0.2)),
        )
    assert found == 2 * MESSAGES


def test_authority_that_goes_takes_its_clients_with_it(secured: Secured, tmp_path: Path) -> None:
    """Within a second; those of the other authority, and those without a certificate, stay."""
    other = Certificates(tmp_path)
    kept = secured.trust.read_bytes()
    try:
        secured.trust.write_bytes(kept + other.ca.read_bytes())

        def is_let_in() -> bool:
            with contextlib.suppress(ssl.SSLError, ConnectionError), secured.connected("MUTUAL", other.client) as tls:
                return bool(asked(tls))
            return False

        until(is_let_in, what="the other authority", step=lambda: time.sleep(0.05))
        with (
            secured.connected("MUTUAL", other.client) as theirs,
            secured.connected("MUTUAL", secured.certificates.client) as ours_,
            secured.connected("OPEN") as plain,
        ):
            assert asked(theirs) and asked(ours_) and asked(plain)
            secured.trust.write_bytes(kept)
            assert FILES_SECONDS < 1, "a look comes within a second"
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert theirs.recv(1) == b""
            assert asked(ours_) and asked(plain)
    finally:
        secured.trust.write_bytes(kept)


def test_principal_of_a_certificate_has_its_rights(tmp_path: Path) -> None:
    """By the rules; another certificate of the same authority has none, and is told so."""
    certificates = Certificates(tmp_path)
    config: dict[str, object] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.store("127.0.0.1")),
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)@example.org,.*$/$1/U,DEFAULT",
        "super.users": "User:CLIENT",
    }
    with Broker(config=config) as broker:
        options = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_ca_location": str(certificates.ca),
        }
        with kohort.Admin(**options, ssl_certificate_location=str(certificates.client)) as admin:
            admin.create_topic("t", 1)
        other = certificates.store("other@example.org")
        with (
            kohort.Admin(**options, ssl_certificate_location=str(other)) as admin,
            pytest.raises(AuthorizationError),
        ):
            admin.create_topic("u", 1)
