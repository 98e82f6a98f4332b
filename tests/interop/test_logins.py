"""Stock clients that log in to our broker: every mechanism, wrong passwords, sessions that end, users that change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from kafka.net.compat import KafkaNetClient

import kohort
from kohort.errors import AuthenticationError, BrokersUnreachableError
from kohort.security.plain_users import LEAST_ITERATIONS, PasswordHash, write_users
from support.peers.cli import run_kohort
from support.peers.kafka_tools import run_kafka_tool
from support.waiting import until

pytestmark = pytest.mark.interop

# kafka-python and aiokafka escape no name: one with a comma cannot log in by SCRAM there.
ALICE, BOB = ("alice", 'wonder, "land"=1;'), ("bob", "can, =we")
MECHANISMS = {"PLAIN": ALICE, "SCRAM-SHA-256": BOB, "SCRAM-SHA-512": BOB}
LIFETIME_MS = 1_500
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's file of users for PLAIN."""
    path = tmp_path_factory.mktemp("users") / "users"
    write_users(path, {ALICE[0]: PasswordHash.of(ALICE[1].encode(), iterations=LEAST_ITERATIONS)})
    return path


@pytest.fixture(scope="module")
def broker(users: Path) -> Iterator[kohort.Broker]:
    """Its SCRAM users are made by its API, by a user of PLAIN; SCRAM-SHA-512 has short sessions."""
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SESSIONS://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,SESSIONS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.plain.users.file": str(users),
        "listener.name.sessions.connections.max.reauth.ms": LIFETIME_MS,
        "super.users": f"User:{ALICE[0]};User:{BOB[0]};User:carol",
        "group.consumer.heartbeat.interval.ms": 200,
    }
    with kohort.Broker(config=config) as made, kohort.Admin(**ours(made, "PLAIN")) as admin:
        admin.alter_user_scram_credentials(
            kohort.ScramCredential(user=BOB[0], password=BOB[1], mechanism=each, iterations=4096)
            for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        )
        admin.create_topic("t", 1)
        yield made


def ours(broker: kohort.Broker, mechanism: str, *, listener: str = "SASL_PLAINTEXT", **more: Any) -> dict[str, Any]:
    """Options of our client."""
    name, password = MECHANISMS[mechanism]
    return {
        "bootstrap_servers": broker.bootstrap_of(listener),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": name,
        "sasl_password": password,
        **more,
    }


def confluents(broker: kohort.Broker, mechanism: str, *, listener: str = "SASL_PLAINTEXT") -> dict[str, Any]:
    """The same of librdkafka."""
    return {name.replace("_", "."): value for name, value in ours(broker, mechanism, listener=listener).items()}


def pythons(broker: kohort.Broker, mechanism: str, **more: Any) -> dict[str, Any]:
    """The same of kafka-python and aiokafka."""
    options = ours(broker, mechanism)
    return {
        "bootstrap_servers": options["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["sasl_username"],
        "sasl_plain_password": options["sasl_password"],
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_write_and_read_as_a_group(broker: kohort.Broker, mechanism: str) -> None:
    """confluent-kafka, kafka-python and aiokafka, each by each mechanism."""
    producer = confluent_kafka.Producer(confluents(broker, mechanism))
    producer.produce("t", b"confluent")
    assert producer.flush(20) == 0
    group = {"group.id": f"c-{mechanism}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**confluents(broker, mechanism), **group})
    consumer.subscribe(["t"])
    until(lambda: (found := consumer.poll(0.2)) is not None and found.error() is None, what="confluent-kafka reads")
    consumer.close()

    with kafka.KafkaProducer(**pythons(broker, mechanism)) as other:
        other.send("t", b"kafka-python").get(20)
    fresh = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
    with closing(kafka.KafkaConsumer("t", group_id=f"p-{mechanism}", **fresh, **pythons(broker, mechanism))) as reader:
        until(lambda: reader.poll(200), what="kafka-python reads")

    async def play() -> None:
        async with aiokafka.AIOKafkaProducer(**pythons(broker, mechanism)) as producer:
            await producer.send_and_wait("t", b"aiokafka")
        options = pythons(broker, mechanism, group_id=f"a-{mechanism}", auto_offset_reset="earliest")
        async with aiokafka.AIOKafkaConsumer("t", **options) as consumer:
            await asyncio.wait_for(consumer.getone(), 20)

    asyncio.run(play())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_password_is_told_to_clients(
    broker: kohort.Broker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the broker's words, and without the password in its log."""
    said = "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials with SASL mechanism"
    errors: list[str] = []
    wrong = {**confluents(broker, mechanism), "sasl.password": "open-sesame"}
    producer = confluent_kafka.Producer({**wrong, "error_cb": lambda error: errors.append(error.str())})
    until(lambda: errors, what="confluent-kafka is told", step=lambda: producer.poll(0.1))
    assert said in errors[0]

    limits = {"bootstrap_timeout_ms": 500, "max_block_ms": 500}
    made: list[KafkaNetClient] = []

    def make(**config: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**config))
        return made[-1]

    with caplog.at_level(logging.WARNING, logger="kafka"), pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(
            **pythons(broker, mechanism, sasl_plain_password="open-sesame", kafka_client=make, **limits)
        )
    # A producer of kafka-python that is not made leaves its sockets behind.
    for each in made:
        each.close()
    assert (
        f"SaslAuthenticationFailedError: Authentication failed{'' if mechanism == 'PLAIN' else ' during'}"
        in caplog.text
    )
    with (
        kohort.Admin(**ours(broker, mechanism, sasl_password="open-sesame")) as admin,
        pytest.raises(AuthenticationError, match=said),
    ):
        admin.list_topics()
    assert "open-sesame" not in caplog.text


def test_clients_log_in_again_and_a_changed_password_holds(
    broker: kohort.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-368: librdkafka goes on over the end of sessions, until its password is changed and the new one holds."""
    caplog.set_level(logging.DEBUG, logger="kohort.broker")
    errors: list[str] = []
    options = {**confluents(broker, "SCRAM-SHA-512", listener="SESSIONS"), "sasl.username": "carol"}
    with kohort.Admin(**ours(broker, "PLAIN")) as admin:

        def allow(password: str) -> None:
            admin.alter_user_scram_credentials(
                [kohort.ScramCredential(user="carol", password=password, mechanism="SCRAM-SHA-512", iterations=4096)]
            )

        allow("old")
        producer = confluent_kafka.Producer(
            {**options, "sasl.password": "old", "error_cb": lambda error: errors.append(error.str())}
        )
        undelivered: list[object] = []

        def send() -> None:
            producer.produce("t", b"x", on_delivery=lambda error, _: undelivered.append(error) if error else None)
            producer.poll(0.1)

        until(lambda: caplog.text.count("event=logged_in_again") >= 3, what="three later logins", step=send)
        assert producer.flush(20) == 0
        assert undelivered == []
        assert errors == []
        allow("new")
        until(lambda: errors, what="the old password is refused", step=send)
        assert "re-authentication due to invalid credentials" in errors[0]
        producer = confluent_kafka.Producer({**options, "sasl.password": "new"})
        producer.produce("t", b"x")
        assert producer.flush(20) == 0


def test_user_that_is_taken_out_of_the_file_is_out(broker: kohort.Broker, users: Path) -> None:
    """By `kohort user`; the broker reads the file again."""
    words = ("--file", str(users), "--iterations", str(LEAST_ITERATIONS), "--password-env", "DAVES")
    assert run_kohort("user", "add", "dave", *words, env={"DAVES": "x"}).code == 0
    options = ours(broker, "PLAIN", sasl_username="dave", sasl_password="x")

    def is_in() -> bool:
        try:
            with kohort.Admin(**options) as admin:
                admin.describe_cluster()
        except (AuthenticationError, BrokersUnreachableError):
            # Beyond five failures a second the broker closes connections of the address unread.
            return False
        return True

    until(is_in, what="dave is let in")
    assert run_kohort("user", "remove", "dave", "--file", str(users), "--execute").code == 0
    until(lambda: not is_in(), what="dave is let in no more")


@pytest.mark.apache
def test_kafkas_tool_administers_users(broker: kohort.Broker, tmp_path: Path) -> None:
    """kafka-configs, which logs in as a Java client by SCRAM."""
    properties = tmp_path / "admin.properties"
    password = BOB[1]
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{BOB[0]}" password="{password}";\n'
    )

    def tool(*words: str) -> str:
        at = (
            "--bootstrap-server",
            broker.bootstrap_servers,
            "--command-config",
            str(properties),
            "--entity-type",
            "users",
        )
        return run_kafka_tool(CONFIGS, *at, *words)

    tool("--alter", "--entity-name", "erin", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=sesame]")
    said = tool("--describe", "--entity-name", "erin")
    assert "SCRAM credential configs for user-principal 'erin' are SCRAM-SHA-512=iterations=8192" in said
    with kohort.Admin(**ours(broker, "SCRAM-SHA-512", sasl_username="erin", sasl_password="sesame")) as admin:
        admin.describe_cluster()
    tool("--alter", "--entity-name", "erin", "--delete-config", "SCRAM-SHA-512")
    assert "erin" not in tool("--describe")
    with kohort.Producer(**ours(broker, "SCRAM-SHA-512")) as producer:
        producer.send("t", b"for Java").result(20)
    out = run_kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties), "--topic", "t"),
        *("--group", "java", "--from-beginning", "--max-messages", "1"),
    )
    assert out.strip()
