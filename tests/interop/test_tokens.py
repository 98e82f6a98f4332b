"""Clients that log in with capability tokens: stock ones and ours, what each may do, and the end of a revoked token."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import kohort
from kohort.capabilities import Caveat, attenuate, groups, label, mint, not_after, operations, read_keys, topics
from kohort.errors import AuthorizationError, KohortError
from support.peers.cli import Finished, run_kohort
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_root="secret";'
SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


class Place:
    """A broker whose clients log in, with a topic of two records, and its root keys."""

    def __init__(self, broker: kohort.Broker, directory: Path) -> None:
        self.address = broker.bootstrap_servers
        self._keys = read_keys(directory / "capability.keys")

    def token(self, *caveats: Caveat) -> str:
        return mint(self._keys, *caveats, token_id=secrets.token_bytes(16))

    def admin(self, user: str = "root", password: str = "secret") -> kohort.Admin:
        return kohort.Admin(bootstrap_servers=self.address, **SASL, sasl_username=user, sasl_password=password)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("tokens")
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "super.users": "User:root",
    }
    with kohort.Broker(data_dir=str(directory), process=True, config=config) as broker:
        found = Place(broker, directory)
        with found.admin() as admin:
            for topic in ("mine", "other"):
                admin.create_topic(topic, 1)
        options: Any = {**SASL, "sasl_username": "root", "sasl_password": "secret"}
        with kohort.Producer(bootstrap_servers=found.address, **options) as producer:
            for topic in ("mine", "other"):
                producer.send(topic, b"a").result(20)
        yield found


def read_by_confluent(place: Place, token: str, topic: str) -> bytes:
    config = {
        "bootstrap.servers": place.address, "group.id": "g", "auto.offset.reset": "earliest",
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "token",
        "sasl.password": token, "enable.auto.commit": False,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        message = consumer.poll(20)
        assert message is not None, "neither a record nor an error"
        if message.error() is not None:
            raise PermissionError(message.error().str())
        return bytes(message.value() or b"")
    finally:
        consumer.close()


def read_by_kafka_python(place: Place, token: str, topic: str) -> bytes:
    options = {**SASL, "sasl_plain_username": "token", "sasl_plain_password": token}
    consumer = kafka.KafkaConsumer(bootstrap_servers=place.address, auto_offset_reset="earliest", **options)
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        found = consumer.poll(timeout_ms=20_000)
        return bytes(found[kafka.TopicPartition(topic, 0)][0].value)
    except kafka.errors.TopicAuthorizationFailedError as why:
        raise PermissionError(str(why)) from why
    finally:
        consumer.close()


def read_by_aiokafka(place: Place, token: str, topic: str) -> bytes:
    import asyncio

    async def read() -> bytes:
        options = {**SASL, "sasl_plain_username": "token", "sasl_plain_password": token}
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=place.address, auto_offset_reset="earliest", enable_auto_commit=False, **options
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)
        except aiokafka.errors.TopicAuthorizationFailedError as why:
            raise PermissionError(str(why)) from why
        finally:
            await consumer.stop()

    return asyncio.run(read())


def read_by_ours(place: Place, token: str, topic: str) -> bytes:
    options: Any = {
        **SASL,
        "sasl_username": "token",
        "sasl_password": token,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with kohort.Consumer(bootstrap_servers=place.address, group_id="g", **options) as consumer:
        consumer.assign([kohort.TopicPartition(topic, 0)])
        try:
            return next(iter(consumer.poll(20.0))).value or b""
        except AuthorizationError as why:
            raise PermissionError(str(why)) from why


@pytest.mark.parametrize("read", [read_by_confluent, read_by_kafka_python, read_by_aiokafka, read_by_ours])
def test_a_client_reads_what_its_token_lets_it_and_nothing_else(place: Place, read: Any) -> None:
    """H6: by PLAIN, with the token as the password of the user `token`."""
    token = place.token(operations("read", "describe", "commit"), topics("mine"), groups("g"))
    assert read(place, token, "mine") == b"a"
    with pytest.raises(PermissionError):
        read(place, attenuate(token, operations("commit")), "mine")


def test_a_revoked_token_ends_its_connections_and_what_was_made_of_it(place: Place, tmp_path: Path) -> None:
    """By the command line; another token of the same caveats goes on."""
    properties = tmp_path / "root.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=root\nsasl.password=secret\n"
    )
    end = datetime.now(UTC) + timedelta(hours=1)
    lease = not_after(int(end.timestamp() * 1000))
    wide, other = (place.token(operations("describe"), label(name), lease) for name in ("gone", "stays"))
    narrow = attenuate(wide, label("child"))
    with place.admin("token", narrow) as child, place.admin("token", other) as stays, place.admin() as root:
        assert child.describe_cluster() and stays.describe_cluster()
        in_use = {each.label: each for each in root.describe_tokens().in_use}
        assert {"gone/child", "stays"} <= in_use.keys()
        minted = in_use["gone/child"].chain[0]
        options = ("--command-config", str(properties))
        done = run_kohort("token", "revoke", f"Token:{minted}", "--bootstrap-server", place.address, *options)
        assert (done.code, done.out.strip()) == (0, f"revoked: {minted}"), done.err
        with pytest.raises(KohortError, match="revoked"):
            child.describe_cluster()
        assert stays.describe_cluster()
        until(
            lambda: "gone/child" not in {each.label for each in root.describe_tokens().in_use},
            what="its connections to end",
        )
        told = run_kohort("token", "list", "--bootstrap-server", place.address, *options)
        assert minted in told.out and "stays" in told.out
        for words in (("token", "list", "--json"), ("broker", "status", "--json")):
            found = run_kohort(*words, "--bootstrap-server", place.address, *options)
            assert found.code == 0 and "stays" in found.out, found.err
            told = Finished(code=0, out=told.out + found.out, err=told.err + found.err)
        assert wide[8:40] not in told.out
        assert not any(token[-40:] in told.out + told.err + done.err for token in (wide, narrow, other))
