"""Clients of six kinds behind TLS and logins: each writes, reads as a member of a group, and tells of a refusal.

Laws: a client has what stands in its own documentation, and nothing else; each waits for an end, never for a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.compat
import kafka.net.sasl.oauth

import kohort
from kohort.errors import KohortError
from support.peers.apache import java_command
from support.peers.kafka_tools import run_kafka_tool
from support.peers.other_languages import go_program
from support.peers.secured import PASSWORD, USER, SecuredBroker, quoted, unsecured_token
from support.waiting import PATIENCE_SECONDS, until

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: (mechanism, listener): every login with TLS and without, and a certificate that is the login.
WAYS: Final = (
    *((mechanism, listener) for mechanism in MECHANISMS for listener in ("SASL_PLAINTEXT", "SASL_SSL")),
    ("certificate", "MTLS"),
)
_WRONG: Final = "open-sesame"
_LOGIN: Final = "org.apache.kafka.common.security"


class Way(NamedTuple):
    """How a client gets in: the broker, a mechanism and the listener, and whose name and password it gives."""

    broker: SecuredBroker
    mechanism: str
    listener: str
    user: str = USER
    password: str = PASSWORD

    @property
    def address(self) -> str:
        return self.broker.bootstrap(self.listener)

    @property
    def protocol(self) -> str:
        return "SSL" if self.listener == "MTLS" else self.listener

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def ca(self) -> str:
        return str(self.broker.certificates.ca)

    @property
    def own(self) -> str | None:
        """The file with the client's certificate and key."""
        return str(self.broker.certificates.client) if self.listener == "MTLS" else None

    def wrong(self) -> Way:
        """The same with a wrong password."""
        return self._replace(password=_WRONG)

    def token(self) -> str:
        """A token that the broker takes; where the password is wrong, one that is over and that no key has signed."""
        return unsecured_token(seconds=-600) if self.password == _WRONG else self.broker.token()


class Kind:
    """A kind of client."""

    #: The protocols of groups that it speaks; the first is its default.
    protocols: tuple[str, ...] = ("classic",)

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        """Write a record, read all as a member of the group named like the topic, commit; return what was read."""
        raise NotImplementedError

    def refused(self, way: Way, topic: str) -> str:
        """Return what it tells of a login that is refused."""
        raise NotImplementedError

    @contextmanager
    def sending(self, way: Way, topic: str) -> Iterator[Callable[[], None]]:
        """A producer that stays: each call writes one record and returns when it is acknowledged, or raises."""
        raise NotImplementedError


class Ours(Kind):
    protocols = ("consumer", "classic")

    def options(self, way: Way) -> dict[str, Any]:
        options: dict[str, Any] = {"bootstrap.servers": way.address, "security.protocol": way.protocol}
        if way.has_tls:
            options["ssl.ca.location"] = way.ca
        if way.own:
            options["ssl.certificate.location"] = way.own
        if way.mechanism == "OAUTHBEARER":
            options |= {"sasl.mechanism": way.mechanism, "sasl.oauth.token.provider": way.token}
        elif way.mechanism in MECHANISMS:
            options |= {"sasl.mechanism": way.mechanism, "sasl.username": way.user, "sasl.password": way.password}
        return options

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        with self.sending(way, topic) as send:
            send()
        options = {**self.options(way), "group.id": topic, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        with kohort.Consumer(options) as consumer:
            consumer.subscribe([topic])
            record = consumer.poll_one(PATIENCE_SECONDS)
            consumer.commit()
            return [] if record is None else [record.value or b""]

    def refused(self, way: Way, topic: str) -> str:
        del topic
        try:
            with kohort.Admin(self.options(way)) as admin:
                admin.list_topics()
        except KohortError as why:
            return str(why)
        return ""

    @contextmanager
    def sending(self, way: Way, topic: str) -> Iterator[Callable[[], None]]:
        with kohort.Producer(self.options(way)) as producer:
            yield lambda: producer.send(topic, b"record").result(PATIENCE_SECONDS) and None


class Confluent(Kind):
    protocols = ("classic", "consumer")

    def options(self, way: Way, said: list[str]) -> dict[str, Any]:
        options: dict[str, Any] = {
            "bootstrap.servers": way.address,
            "security.protocol": way.protocol,
            "error_cb": lambda error: said.append(error.str()),
            "reconnect.backoff.max.ms": 500,
        }
        if way.has_tls:
            options["ssl.ca.location"] = way.ca
        if way.own:
            options |= {"ssl.certificate.location": way.own, "ssl.key.location": way.own}
        if way.mechanism == "OAUTHBEARER":
            options |= {"sasl.mechanism": way.mechanism, "oauth_cb": lambda _: (way.token(), time.time() + 3_600)}
        elif way.mechanism in MECHANISMS:
            options |= {"sasl.mechanism": way.mechanism, "sasl.username": way.user, "sasl.password": way.password}
        return options

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        with self.sending(way, topic) as send:
            send()
        group = {"group.id": topic, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**self.options(way, []), **group})
        consumer.subscribe([topic])
        found: list[bytes] = []

        def read() -> None:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())

        until(lambda: found, what="confluent-kafka reads", step=read)
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def refused(self, way: Way, topic: str) -> str:
        del topic
        said: list[str] = []
        producer = confluent_kafka.Producer(self.options(way, said))
        until(lambda: said, what="confluent-kafka tells of the refusal", step=lambda: producer.poll(0.1))
        return "\n".join(said)

    @contextmanager
    def sending(self, way: Way, topic: str) -> Iterator[Callable[[], None]]:
        said: list[str] = []
        producer = confluent_kafka.Producer(self.options(way, said))

        def send() -> None:
            errors: list[Any] = []
            producer.produce(topic, b"record", on_delivery=lambda error, _: errors.append(error))
            until(
                lambda: errors or any("uthentication" in each for each in said),
                what="confluent-kafka is answered",
                step=lambda: producer.poll(0.1),
            )
            told, said[:] = list(said), []
            if errors != [None]:
                raise PermissionError(str(errors or told))

        yield send
        producer.purge()


class KafkaPython(Kind):
    def options(self, way: Way) -> dict[str, Any]:
        class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
            def token(self) -> str:
                return way.token()

        options: dict[str, Any] = {"bootstrap_servers": way.address, "security_protocol": way.protocol}
        if way.has_tls:
            options["ssl_cafile"] = way.ca
        if way.own:
            options |= {"ssl_certfile": way.own, "ssl_keyfile": way.own}
        if way.mechanism == "OAUTHBEARER":
            options |= {"sasl_mechanism": way.mechanism, "sasl_oauth_token_provider": Tokens()}
        elif way.mechanism in MECHANISMS:
            options |= {"sasl_mechanism": way.mechanism}
            options |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        return options

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        del protocol
        with self.sending(way, topic) as send:
            send()
        found: list[bytes] = []
        # A member that led its group before it knew the topic gives itself nothing until its metadata are old.
        fresh = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
        with closing(kafka.KafkaConsumer(topic, group_id=topic, **fresh, **self.options(way))) as consumer:

            def read() -> None:
                for records in consumer.poll(200).values():
                    found.extend(record.value for record in records)

            until(lambda: found, what="kafka-python reads", step=read)
            consumer.commit()
        return found

    def refused(self, way: Way, topic: str) -> str:
        del topic
        # A producer that is not made leaves its sockets behind, unless they are closed here.
        made: list[kafka.net.compat.KafkaNetClient] = []

        def make(**config: Any) -> kafka.net.compat.KafkaNetClient:
            made.append(kafka.net.compat.KafkaNetClient(**config))
            return made[-1]

        limits = {"bootstrap_timeout_ms": 500, "max_block_ms": 500}
        with _heard("kafka") as lines:
            try:
                kafka.KafkaProducer(**self.options(way), **limits, kafka_client=make)
            except kafka.errors.KafkaError as why:
                lines.append(repr(why))
            finally:
                for each in made:
                    each.close()
        return "\n".join(lines)

    @contextmanager
    def sending(self, way: Way, topic: str) -> Iterator[Callable[[], None]]:
        with kafka.KafkaProducer(**self.options(way), max_block_ms=2_000, request_timeout_ms=5_000) as producer:
            yield lambda: producer.send(topic, b"record").get(5) and None


class _Ear(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _heard(name: str) -> Iterator[list[str]]:
    """What a client logs meanwhile."""
    lines: list[str] = []
    ear = _Ear(lines)
    logging.getLogger(name).addHandler(ear)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(ear)


class Aiokafka(Kind):
    def options(self, way: Way) -> dict[str, Any]:
        class Tokens(aiokafka.abc.AbstractTokenProvider):
            async def token(self) -> str:
                return way.token()

        options: dict[str, Any] = {"bootstrap_servers": way.address, "security_protocol": way.protocol}
        if way.has_tls:
            context = ssl.create_default_context(cafile=way.ca)
            if way.own:
                context.load_cert_chain(way.own)
            options["ssl_context"] = context
        if way.mechanism == "OAUTHBEARER":
            options |= {"sasl_mechanism": way.mechanism, "sasl_oauth_token_provider": Tokens()}
        elif way.mechanism in MECHANISMS:
            options |= {"sasl_mechanism": way.mechanism}
            options |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        return options

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        del protocol

        async def main() -> list[bytes]:
            async with aiokafka.AIOKafkaProducer(**self.options(way)) as producer:
                await producer.send_and_wait(topic, b"record")
            consumer = aiokafka.AIOKafkaConsumer(
                topic, group_id=topic, auto_offset_reset="earliest", **self.options(way)
            )
            async with consumer, asyncio.timeout(PATIENCE_SECONDS):
                found = [(await consumer.getone()).value]
                await consumer.commit()
                return found

        return asyncio.run(main())

    def refused(self, way: Way, topic: str) -> str:
        del topic

        async def main() -> None:
            producer = aiokafka.AIOKafkaProducer(**self.options(way))
            try:
                await producer.start()
            except aiokafka.errors.KafkaError as why:
                lines.append(repr(why))
            finally:
                await producer.stop()

        with _heard("aiokafka") as lines:
            asyncio.run(main())
        return "\n".join(lines)

    @contextmanager
    def sending(self, way: Way, topic: str) -> Iterator[Callable[[], None]]:
        async def start() -> aiokafka.AIOKafkaProducer:
            made = aiokafka.AIOKafkaProducer(**self.options(way), request_timeout_ms=5_000)
            await made.start()
            return made

        with asyncio.Runner() as runner:
            producer = runner.run(start())
            yield lambda: runner.run(producer.send_and_wait(topic, b"record")) and None
            runner.run(producer.stop())


class Java(Kind):
    """Apache Kafka's own tools, by one Java where that is possible."""

    protocols = ("classic", "consumer")

    def config(self, way: Way) -> dict[str, str]:
        lines = {"security.protocol": way.protocol}
        if way.has_tls:
            lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": way.ca}
        if way.own:
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": way.own}
        if way.mechanism in MECHANISMS:
            module = "plain.PlainLoginModule" if way.mechanism == "PLAIN" else "scram.ScramLoginModule"
            words = f"username={quoted(way.user)} password={quoted(way.password)}"
            if way.mechanism == "OAUTHBEARER":
                module = "oauthbearer.OAuthBearerLoginModule"
                words = f"unsecuredLoginStringClaim_sub={quoted(way.user)}"
                # A token without a signature Java makes by itself, and reads none from a file.
                if not (token := way.token()).endswith("."):
                    words = ""
                    self._token_file(way).write_text(token)
                    handler = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
                    lines |= {"sasl.login.callback.handler.class": handler}
                    lines |= {"sasl.oauthbearer.token.endpoint.url": self._token_file(way).as_uri()}
            lines |= {"sasl.mechanism": way.mechanism, "sasl.jaas.config": f"{_LOGIN}.{module} required {words};"}
        return lines

    def _token_file(self, way: Way) -> Path:
        return way.broker.certificates.directory / "java-token.jwt"

    def _run(self, way: Way, tool: str, *arguments: str) -> str:
        file = way.broker.certificates.directory / "java.properties"
        # A backslash stands twice in Java's properties.
        text = [f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in self.config(way).items()]
        file.write_text("".join(text))
        words = ("--bootstrap-server", way.address, "--command-config", str(file), *arguments)
        if way.mechanism != "OAUTHBEARER":
            return run_kafka_tool(tool, *words)
        # Java reads a token from those files only that its command line names.
        command = java_command(tool, *words)
        allowed = self._token_file(way).as_uri()
        command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return done.stdout

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        self.send(way, topic, count=1, a_second=-1)
        said = self._run(
            way,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "40000"),
            *("--command-property", f"group.protocol={protocol}"),
        )
        return [b"record"] if said.strip() else []

    def send(self, way: Way, topic: str, *, count: int, a_second: int) -> str:
        """Write so many records at that pace; return what the tool says of it."""
        return self._run(
            way,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", "6", "--throughput", str(a_second)),
        )

    def refused(self, way: Way, topic: str) -> str:
        del topic
        try:
            return self._run(way, "org.apache.kafka.tools.TopicCommand", "--list")
        except RuntimeError as why:
            return str(why)


class FranzGo(Kind):
    """A program of its own, `go_clients/secured`."""

    def _run(self, way: Way, topic: str) -> subprocess.CompletedProcess[str]:
        given = {
            "ADDRESS": way.address,
            "MECHANISM": way.mechanism,
            "USERNAME": way.user,
            "PASSWORD": way.token() if way.mechanism == "OAUTHBEARER" else way.password,
            "CA": way.ca if way.has_tls else "",
            "OWN": way.own or "",
            "TOPIC": topic,
        }
        return subprocess.run(
            [str(go_program("secured"))],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def pass_on(self, way: Way, topic: str, protocol: str) -> list[bytes]:
        del protocol
        done = self._run(way, topic)
        assert done.returncode == 0, done.stdout + done.stderr
        return [done.stdout.strip().encode()]

    def refused(self, way: Way, topic: str) -> str:
        return self._run(way, topic).stderr


KINDS: Final[Mapping[str, Kind]] = {
    "kohort": Ours(),
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "java": Java(),
    "franz-go": FranzGo(),
}
