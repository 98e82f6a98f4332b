"""Clients that log in at our broker by signed tokens: of five kinds, with good tokens and with every bad one."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest

import kohort
from kohort.errors import AuthenticationError
from support.peers.apache import java_command
from support.peers.certificates import Certificates
from support.peers.token_issuer import AUDIENCE, ISSUER, KeyEndpoint, claims, jwk, jwks, sign
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.required.scope": "kafka",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 200,
    "connection.failed.authentication.delay.ms": 1,
    "sasl.failures.per.second.per.ip": 1_000,
    "super.users": "User:alice",
    "group.initial.rebalance.delay.ms": 0,
}
SECURED = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}

Provider = Callable[[], str]


def token(*, seconds: float = 3_600, key: str = "one", **more: object) -> str:
    now = time.time()
    return sign({**claims(now, exp=now + seconds, scope="kafka other", jti=time.monotonic_ns()), **more}, key)


@pytest.fixture(scope="module")
def issuer() -> Iterator[KeyEndpoint]:
    with KeyEndpoint() as endpoint:
        endpoint.answer = (200, jwks(jwk("one")))
        yield endpoint


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(issuer: KeyEndpoint, certificates: Certificates) -> Iterator[kohort.Broker]:
    own = {
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "ssl.keystore.location": str(certificates.store("127.0.0.1")),
    }
    with kohort.Broker(config={**OPTIONS, **own}) as broker:
        yield broker


class Client:
    """A client of one kind: what it does, and the text of its refusal; with an authority's file it speaks TLS."""

    def __init__(self, ca: Path | None = None) -> None:
        self.ca = ca
        self.protocol = "SASL_PLAINTEXT" if ca is None else "SASL_SSL"

    def work(self, address: str, provider: Provider, topic: str) -> list[bytes]:
        """Write a record, and read it as a member of a group."""
        raise NotImplementedError

    def refused(self, address: str, provider: Provider) -> str:
        """Log in by a bad token; return what the client says of it."""
        raise NotImplementedError


class Ours(Client):
    def work(self, address: str, provider: Provider, topic: str) -> list[bytes]:
        options = {**SECURED, "bootstrap.servers": address, "sasl.oauth.token.provider": provider}
        if self.ca is not None:
            options |= {"security.protocol": self.protocol, "ssl.ca.location": str(self.ca)}
        with kohort.Producer(options) as producer:
            producer.send(topic, b"ours").result(PATIENCE_SECONDS)
        with kohort.Consumer(options, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            record = consumer.poll_one(PATIENCE_SECONDS)
            return [] if record is None or record.value is None else [record.value]

    def refused(self, address: str, provider: Provider) -> str:
        options = {**SECURED, "bootstrap.servers": address, "sasl.oauth.token.provider": provider}
        with kohort.Admin(options) as admin, pytest.raises(AuthenticationError) as caught:
            admin.list_topics()
        return str(caught.value)


class Confluent(Client):
    def options(self, address: str, provider: Provider, said: list[str]) -> dict[str, Any]:
        def fetch(_config: str) -> tuple[str, float]:
            return provider(), time.time() + 3_600

        return {
            "bootstrap.servers": address,
            "security.protocol": self.protocol,
            **({} if self.ca is None else {"ssl.ca.location": str(self.ca)}),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": fetch,
            "error_cb": lambda error: said.append(error.str()),
            "logger": logging.getLogger("confluent"),
        }

    def work(self, address: str, provider: Provider, topic: str) -> list[bytes]:
        options = self.options(address, provider, [])
        producer = confluent_kafka.Producer(options)
        producer.produce(topic, b"confluent")
        assert producer.flush(PATIENCE_SECONDS) == 0
        consumer = confluent_kafka.Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([topic])
            found = consumer.poll(PATIENCE_SECONDS)
            assert found is not None and found.error() is None, found
            return [found.value()]
        finally:
            consumer.close()

    def refused(self, address: str, provider: Provider) -> str:
        said: list[str] = []
        producer = confluent_kafka.Producer(self.options(address, provider, said))
        until(lambda: said, what="librdkafka tells of the refusal", step=lambda: producer.poll(0.1))
        return "\n".join(said)


class KafkaPython(Client):
    def options(self, address: str, provider: Provider) -> dict[str, Any]:
        class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
            def token(self) -> str:
                return provider()

        return {
            "bootstrap_servers": address,
            "security_protocol": self.protocol,
            "ssl_cafile": None if self.ca is None else str(self.ca),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Tokens(),
        }

    def work(self, address: str, provider: Provider, topic: str) -> list[bytes]:
        options = self.options(address, provider)
        producer = kafka.KafkaProducer(**options)
        producer.send(topic, b"kafka-python").get(PATIENCE_SECONDS)
        producer.close()
        # Now and then it assigns by metadata from before the topic; it looks again after the last of these times.
        limits = {"consumer_timeout_ms": PATIENCE_SECONDS * 1000, "metadata_max_age_ms": 500}
        consumer = kafka.KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **limits, **options)
        try:
            return [next(consumer).value]
        finally:
            consumer.close()

    def refused(self, address: str, provider: Provider) -> str:
        with pytest.raises(kafka.errors.KafkaError) as caught:
            kafka.KafkaAdminClient(**self.options(address, provider), bootstrap_timeout_ms=3_000).list_topics()
        return repr(caught.value)


class Aiokafka(Client):
    def options(self, address: str, provider: Provider) -> dict[str, Any]:
        class Tokens(aiokafka.abc.AbstractTokenProvider):
            async def token(self) -> str:
                return provider()

        return {
            "bootstrap_servers": address,
            "security_protocol": self.protocol,
            "ssl_context": None if self.ca is None else ssl.create_default_context(cafile=str(self.ca)),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Tokens(),
        }

    def work(self, address: str, provider: Provider, topic: str) -> list[bytes]:
        async def main() -> list[bytes]:
            options = self.options(address, provider)
            async with aiokafka.AIOKafkaProducer(**options) as producer:
                await producer.send_and_wait(topic, b"aiokafka")
            consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **options)
            async with consumer, asyncio.timeout(PATIENCE_SECONDS):
                return [(await consumer.getone()).value]

        return asyncio.run(main())

    def refused(self, address: str, provider: Provider) -> str:
        async def main() -> str:
            producer = aiokafka.AIOKafkaProducer(**self.options(address, provider))
            with pytest.raises(aiokafka.errors.KafkaError) as caught:
                await producer.start()
            await producer.stop()
            return repr(caught.value)

        return asyncio.run(main())


CLIENTS: dict[str, Client] = {
    "kohort": Ours(),
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_client_logs_in_writes_and_reads(broker: kohort.Broker, kind: str) -> None:
    """RFC 7628: the broker asks the issuer's keys, and takes the user from the token."""
    assert CLIENTS[kind].work(broker.bootstrap_servers, token, f"of-{kind}") == [kind.removesuffix("-kafka").replace(
        "kohort", "ours").encode()]  # fmt: skip


@pytest.mark.parametrize("kind", CLIENTS)
def test_client_logs_in_over_tls(broker: kohort.Broker, kind: str, certificates: Certificates) -> None:
    client = type(CLIENTS[kind])(certificates.ca)
    assert client.work(broker.bootstrap_of("SASL_SSL"), token, f"tls-of-{kind}") != []


@pytest.mark.parametrize("kind", CLIENTS)
def test_client_with_a_bad_token_is_told_so(broker: kohort.Broker, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """In their own words where they have some; the reason is in the broker's log, without the token."""
    late = token(seconds=-60)
    with caplog.at_level(logging.WARNING, "kohort.broker"):
        said = CLIENTS[kind].refused(broker.bootstrap_servers, lambda: late)
    # kafka-python tries on until its time is over, and aiokafka takes the refusal for the end of its login.
    assert "uthentication" in said or kind in ("kafka-python", "aiokafka"), said
    lines = [record.getMessage() for record in caplog.records if "event=login_failed" in record.getMessage()]
    assert lines
    assert "the token ended " in lines[0]
    assert late.split(".")[1] not in caplog.text
    assert late.split(".")[2] not in caplog.text


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda: token(key="foreign"), "signed by no key of the issuer"),
        (lambda: token(iss="https://evil.example/"), "another issuer"),
        (lambda: token(aud="mail"), "another audience"),
        (lambda: token(scope="other"), "the token's scope lacks kafka"),
        (lambda: token(seconds=-3_600), "the token ended 3600 s ago"),
        (lambda: token(iat=time.time() + 3_599, exp=time.time() + 7_200), "the token begins in 35"),
        (lambda: token(sub=None), "names no user"),
        (lambda: token(more="x" * 45_000), "longer than 49152 bytes"),
        (lambda: "eyJhbGciOiJub25lIn0.e30.", "not signed by one of RS, PS, ES"),
        (lambda: "opaque", "no signed JWT"),
    ],
    ids=["key", "issuer", "audience", "scope", "late", "early", "nameless", "huge", "none", "opaque"],
)
def test_every_bad_token_is_refused(
    broker: kohort.Broker, bad: Provider, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kohort.broker"):
        said = CLIENTS["kohort"].refused(broker.bootstrap_servers, bad)
    assert why in caplog.text
    assert why in said


def test_rotated_key_lets_new_tokens_in_and_old_ones_out(broker: kohort.Broker, issuer: KeyEndpoint) -> None:
    """The first login with the new key fetches it; the one that the issuer has taken back is gone with that."""
    before = issuer.answer
    issuer.answer = (200, jwks(jwk("two")))
    try:
        assert CLIENTS["kohort"].work(broker.bootstrap_servers, lambda: token(key="two"), "rotated") == [b"ours"]
        assert "no key of the issuer" in CLIENTS["kohort"].refused(broker.bootstrap_servers, token)
    finally:
        issuer.answer = before
    assert CLIENTS["kohort"].work(broker.bootstrap_servers, token, "rotated-back") == [b"ours"]


def test_issuer_that_is_gone_keeps_no_user_out_that_needs_no_new_key(
    broker: kohort.Broker, issuer: KeyEndpoint
) -> None:
    before = issuer.answer
    issuer.answer = (500, b"")
    try:
        assert "no key of the issuer" in CLIENTS["kohort"].refused(broker.bootstrap_servers, lambda: token(key="new"))
        assert CLIENTS["kohort"].work(broker.bootstrap_servers, token, "issuer-gone") == [b"ours"]
    finally:
        issuer.answer = before


@pytest.mark.parametrize("kind", ["kohort", "confluent-kafka", "kafka-python"])
def test_session_ends_with_its_token_and_a_new_token_carries_it_on(broker: kohort.Broker, kind: str) -> None:
    """KIP-368: each of them logs in again on the connection that it has, before the broker would end it."""
    asked = [0]

    def short() -> str:
        asked[0] += 1
        return token(seconds=2)

    topic, address = f"session-of-{kind}", broker.bootstrap_servers
    if kind == "kohort":
        options = {**SECURED, "bootstrap.servers": address, "sasl.oauth.token.provider": short}
        with kohort.Producer(options) as producer:
            _sends_until_asked(lambda: producer.send(topic, b"x").result(PATIENCE_SECONDS), asked)
    elif kind == "confluent-kafka":
        errors: list[str] = []
        given = Confluent().options(address, short, errors)
        given["oauth_cb"] = lambda _config: (short(), time.time() + 2)
        producer = confluent_kafka.Producer(given)

        def send() -> None:
            producer.produce(topic, b"x")
            assert producer.flush(PATIENCE_SECONDS) == 0

        _sends_until_asked(send, asked)
        assert [each for each in errors if "uthentication" in each] == []
    else:
        python = kafka.KafkaProducer(**KafkaPython().options(address, short))
        _sends_until_asked(lambda: python.send(topic, b"x").get(PATIENCE_SECONDS), asked)
        python.close()


def _sends_until_asked(send: Callable[[], object], asked: list[int]) -> None:
    send()
    first = asked[0]
    until(lambda: asked[0] >= first + 2, what="the client has asked for two further tokens", step=send)
    send()


def test_token_of_another_user_does_not_carry_a_session_on(
    broker: kohort.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-368: a connection stays its user's. The client goes on as the other one, at a connection of its own."""
    users = iter(["alice"])

    def other() -> str:
        return token(seconds=2, sub=next(users, "bob"))

    options = {**SECURED, "bootstrap.servers": broker.bootstrap_servers, "sasl.oauth.token.provider": other}
    with kohort.Admin(options) as admin, caplog.at_level(logging.WARNING, "kohort.broker"):
        refused = "Cannot change principals during re-authentication from User.alice: User.bob"
        until(lambda: refused in caplog.text, what="the session has ended", step=admin.list_topics)


@pytest.mark.apache
def test_java_client_logs_in(broker: kohort.Broker, tmp_path: Path) -> None:
    """With Kafka's own login, which takes the token from a file."""
    file = tmp_path / "token.jwt"
    file.write_text(token())
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
    )
    command = java_command(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config)),
        *("--create", "--topic", "by-java"),
    )
    command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.stdout == "Created topic by-java.\n", done.stdout + done.stderr
