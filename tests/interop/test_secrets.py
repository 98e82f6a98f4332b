"""Secrets that are planted wherever one may be given, and looked for wherever a client says something."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import kohort
import kohort.aio
from kohort.errors import AuthenticationError, ConfigError
from kohort.spark.options import parse_options, parse_sink_options
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import ScriptedBroker
from support.peers.certificates import Certificates, server_context
from support.peers.cli import run_kohort

pytestmark = pytest.mark.interop

#: In every secret, and in nothing else.
MARK = "xyzzy"
PASSWORD = f"{MARK}-password"
KEY_PASSWORD = f"{MARK}-key-password"
MODULE = "org.apache.kafka.common.security.{}LoginModule required username=alice password={};"


def refuse(api: ApiKey, version: int, request: Message) -> Message:
    """A broker that lets nobody in."""
    if isinstance(request, SaslHandshakeRequest):
        return SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
    assert isinstance(request, SaslAuthenticateRequest)
    return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed")


def good_token() -> str:
    """One that a broker refuses."""
    return f"{MARK}.token"


def no_token() -> str:
    """As a library fails that repeats what it has asked and with what."""
    raise RuntimeError(f"401 for https://me:{MARK}@id.example/token?client_secret={MARK}: {{'assertion': '{MARK}'}}")


LOGINS: dict[str, dict[str, object]] = {
    "password": {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD},
    "proof": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": PASSWORD},
    "Java's words": {"sasl.jaas.config": MODULE.format("plain.Plain", PASSWORD)},
    "token": {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": good_token},
    "no token": {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": no_token},
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def options(certificates: Certificates) -> dict[str, object]:
    """TLS with a key of its own, encrypted; the text of the key is one more secret."""
    own = certificates.store("client.example", password=KEY_PASSWORD.encode())
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": str(own),
        "ssl.key.location": own.read_text().partition("-----BEGIN CERTIFICATE")[0],
        "ssl.key.password": KEY_PASSWORD,
    }


@pytest.fixture
def broker(certificates: Certificates) -> Iterator[ScriptedBroker]:
    with ScriptedBroker(refuse, tls=server_context(certificates.store("127.0.0.1"))) as made:
        yield made


def secrets_of(options: Mapping[str, object]) -> list[str]:
    """What must not be found: the mark, and a line of the key."""
    return [MARK, *str(options.get("ssl.key.location", "")).splitlines()[1:2]]


def told_by(call: Callable[[], object]) -> str:
    """Everything that the error of a call can be made to say, the variables on its way included."""
    with pytest.raises(AuthenticationError) as caught:
        call()
    error = caught.value
    lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
    return "".join([str(error), repr(error), repr(error.args), repr(pickle.dumps(error)), *lines])


def said_by(client: Any, *calls: Callable[[], object]) -> str:
    """What a client and its errors say."""
    return "".join([repr(client), str(client), *map(told_by, calls), repr(client.metrics())])


@pytest.mark.parametrize("login", LOGINS)
def test_clients_say_no_secret(
    broker: ScriptedBroker, options: dict[str, object], login: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In nothing that is shown, raised, counted, logged or sent beside the login itself."""
    config = {**options, **LOGINS[login], "bootstrap.servers": str(broker.endpoint)}
    with caplog.at_level(logging.DEBUG):
        with kohort.Consumer(config, group_id="g") as consumer:
            consumer.subscribe(["t"])
            said = said_by(consumer, lambda: consumer.poll(10.0))
        with kohort.Producer(config) as producer:
            said += said_by(producer, lambda: producer.send("t", b"x").result(10.0))
        with kohort.Admin(config) as admin:
            said += said_by(admin, admin.list_topics)
        said += asyncio.run(said_in_loop(lambda: kohort.aio.Consumer(config, group_id="g")), debug=True)
    said += caplog.text + repr(broker.client_ids)

    assert len(caplog.records) > 0
    assert [secret for secret in secrets_of(options) if secret in said] == []


async def said_in_loop(make: Callable[[], kohort.aio.Consumer]) -> str:
    """The same of a client on an event loop, which tells more while it is looked for mistakes."""
    async with make() as consumer:
        consumer.subscribe(["t"])
        try:
            await consumer.poll(10.0)
        except AuthenticationError as error:
            return repr(consumer) + repr(consumer.metrics()) + told_by(_again(error))
    raise AssertionError("it was let in")


def _again(error: AuthenticationError) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": f"{MARK}\ud800"},
        {"sasl.password": f"{MARK}\0"},
        {"sasl.password": MARK.encode()},
        {"sasl.password": [MARK]},
        {"sasl.password": {"password": MARK}},
        {"sasl.jaas.config": MODULE.format("plain.Plain", PASSWORD)},
        {"sasl.jaas.config": f"{MARK} required;", "sasl.username": None, "sasl.password": None},
        {"sasl.mechanism": "OAUTHBEARER"},
        {"ssl.key.password": f"{MARK}-another"},
        {"ssl.key.password": MARK * 1_000},
        {"ssl.key.location": MARK},
        {"ssl.key.location": f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----"},
        {"ssl.key.location": MARK.encode()},
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
    ],
    ids=str,
)
def test_options_that_are_refused_say_no_secret(options: dict[str, object], wrong: dict[str, object]) -> None:
    """Neither to a client nor to Spark's source and sink."""
    config = {**options, **LOGINS["password"], **wrong}
    given = {name: value for name, value in config.items() if value is not None}
    with pytest.raises(ConfigError) as told:
        kohort.Admin(given, bootstrap_servers="127.0.0.1:1")
    said = str(told.value) + repr(told.value)
    spark = {f"kafka.{name}": value for name, value in given.items() if isinstance(value, str)}
    spark["kafka.bootstrap.servers"] = "127.0.0.1:1"
    parsers: list[Callable[[dict[str, str]], object]] = [parse_options, parse_sink_options]
    for parse, own in zip(parsers, ({"subscribe": "t"}, {"topic": "t"}), strict=True):
        try:
            said += repr(parse({**spark, **own}))
        except ConfigError as why:
            said += str(why) + repr(why)

    assert [secret for secret in secrets_of(options) if secret in said] == []


def test_command_line_says_no_secret(broker: ScriptedBroker, certificates: Certificates, tmp_path: Path) -> None:
    """Whatever is wrong with what was given: in a file, in the environment's file, or by hand."""
    good = tmp_path / "client.properties"
    good.write_text(
        f"bootstrap.servers={broker.endpoint}\nsecurity.protocol=SASL_SSL\nssl.ca.location={certificates.ca}\n"
        f"sasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password={PASSWORD}\n"
    )
    broken = tmp_path / "broken.toml"
    broken.write_text(f'"sasl.password" = {PASSWORD}"\n')
    line = tmp_path / "line.properties"
    line.write_text(f"sasl.username=alice\n{PASSWORD}\n")
    outcomes = [
        run_kohort("group", "list", "--json", "--command-config", str(good)),
        run_kohort("topic", "list", "--command-config", str(broken)),
        run_kohort("topic", "list", "--command-config", str(line)),
        run_kohort("topic", "list", "-X", f"sasl.pasword={PASSWORD}"),
        run_kohort("topic", "list", "-X", f"sasl.password:{PASSWORD}"),
        run_kohort("topic", "list", "-X", f"sasl.password={PASSWORD}"),
    ]
    assert [each.code == 0 for each in outcomes] == [False] * len(outcomes)
    assert [each.out + each.err for each in outcomes if MARK in each.out + each.err] == []
