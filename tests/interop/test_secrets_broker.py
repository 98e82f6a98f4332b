"""Secrets that are planted wherever a broker takes one, and looked for wherever a broker or its tools say something."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

import kohort
from kohort.base.options import Password
from kohort.broker.options.settings import BROKER_OPTIONS, BrokerSettings
from kohort.cli.output import plain
from kohort.errors import AuthenticationError, BrokersUnreachableError, KohortError
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, encode_request
from support.peers.certificates import Certificates
from support.peers.cli import run_kohort, started_kohort
from support.peers.token_issuer import AUDIENCE, ISSUER, claims, jwk, jwks, sign
from support.waiting import until

pytestmark = pytest.mark.interop

#: In every secret, and in nothing else.
MARK = "xyzzy"
KEY_PASSWORD, TRUST_PASSWORD = f"{MARK}-key-password", f"{MARK}-trust-password"
JAAS_PASSWORD, FILE_PASSWORD, SCRAM_PASSWORD = f"{MARK}-of-jaas", f"{MARK}-of-file", f"{MARK}-of-scram"
NEW_PASSWORD, WRONG_PASSWORD = f"{MARK}-changed", f"{MARK}-wrong"
LOGIN = "org.apache.kafka.common.security"
#: Names of APIs and listeners below.
TOPIC, BROKER, LOGGER = 2, 4, 8


def token(**more: object) -> str:
    """A token of alice, which is a secret as a whole: its parts are what must not be found."""
    return sign(claims(time.time(), jti=f"{MARK}-{time.monotonic_ns()}", **more))


class Secrets:
    """Everything that was planted, and texts of which a part is a secret."""

    def __init__(self) -> None:
        self.texts = {MARK}

    def add_token(self, text: str) -> str:
        """Plant a token; return it."""
        _, payload, signature = text.split(".")
        self.texts |= {payload[:40], payload[-40:], signature[:40]}
        return text

    def found_in(self, where: str, said: str | bytes) -> list[str]:
        """Where a secret was found, and which."""
        texts = self.texts if isinstance(said, str) else {text.encode() for text in self.texts}
        return [f"{where}: {text!r}" for text in texts if text in said]  # type: ignore[operator]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def options(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A broker with every kind of secret: one listener for passwords and tokens, one for certificates' users."""
    folder = tmp_path_factory.mktemp("options")
    store = certificates.store("127.0.0.1", "localhost", password=KEY_PASSWORD.encode())
    (folder / "keys.json").write_bytes(jwks(jwk("one")))
    (folder / "password").write_text(f"{FILE_PASSWORD}\n")
    made = run_kohort(
        "user", "add", "bob", "--file", str(folder / "users"), "--password-file", str(folder / "password"),
        "--iterations", "10000",
    )  # fmt: skip
    assert made.code == 0, made
    return {
        "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.location": str(store),
        "ssl.key.password": KEY_PASSWORD,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required "
        f'user_alice="{JAAS_PASSWORD}";',
        "sasl.plain.users.file": str(folder / "users"),
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "super.users": "User:alice;User:bob",
        "connection.failed.authentication.delay.ms": "1",
        "sasl.failures.per.second.per.ip": "1000",
    }


def clients(address: str, certificates: Certificates, secrets: Secrets) -> dict[str, dict[str, object]]:
    """Logins that succeed and that fail, by every mechanism."""
    common = {"bootstrap.servers": address, "security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates.ca)}

    def by(mechanism: str, user: str, password: str) -> dict[str, object]:
        return {**common, "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}

    def with_token(text: str) -> dict[str, object]:
        secrets.add_token(text)
        return {**common, "sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": lambda: text}

    return {
        "good jaas": by("PLAIN", "alice", JAAS_PASSWORD),
        "good file": by("PLAIN", "bob", FILE_PASSWORD),
        "good scram": by("SCRAM-SHA-512", "alice", SCRAM_PASSWORD),
        "good token": with_token(token()),
        "bad jaas": by("PLAIN", "alice", WRONG_PASSWORD),
        "bad name": by("PLAIN", "carol", WRONG_PASSWORD),
        "bad scram": by("SCRAM-SHA-512", "alice", WRONG_PASSWORD),
        "bad key": with_token(sign(claims(time.time(), jti=MARK), "foreign")),
        "bad times": with_token(token(exp=time.time() - 600, iat=time.time() - 700)),
        "bad issuer": with_token(token(iss=f"https://{MARK}.example")),
        "bad subject": with_token(token(sub=f"{MARK}\nalice")),
    }


def properties(options: Mapping[str, str]) -> str:
    """A file of options as Java writes it."""
    return "".join(f"{name}={value}\n" for name, value in options.items())


def test_broker_says_no_secret(certificates: Certificates, options: dict[str, str], tmp_path: Path) -> None:
    """In no output with every logger at TRACE, no file of its directory, no answer, no list of processes."""
    secrets = Secrets()
    file, password = tmp_path / "server.properties", tmp_path / "scram-password"
    file.write_text(properties(options))
    password.write_text(SCRAM_PASSWORD)
    client = tmp_path / "client.properties"
    said: list[str] = []
    command = ("up", "--config-file", str(file), "--data-dir", str(tmp_path / "data"))
    with started_kohort(*command, "--scram-user", f"alice=@{password}") as broker:
        (ready,) = broker.wait_for_lines(1, start="ready ")
        address = next(word for word in ready.split() if word.startswith("127.0.0.1:"))
        logins = clients(address, certificates, secrets)
        client.write_text(
            properties({name: str(value) for name, value in logins["good jaas"].items()})  # as a tool is given it
        )
        tool = ("--command-config", str(client))
        run_kohort("broker", "log-level", "root=TRACE", *tool)
        for name, login in logins.items():
            said.append(_use(login, is_good=name.startswith("good")))
        with kohort.Admin(logins["good jaas"]) as admin:
            admin.alter_user_scram_credentials(
                [kohort.ScramCredential(user="dave", password=NEW_PASSWORD, mechanism="SCRAM-SHA-256", iterations=4096)]
            )
        for words in (
            ("broker", "status", "--json"),
            ("config", "describe", "broker", "1", "--all", "--json"),
            ("config", "describe", "broker-logger", "1", "--all", "--json"),
            ("user", "list", "--json"),
            ("user", "list", "--file", options["sasl.plain.users.file"], "--json"),
            ("acl", "list", "--json"),
            ("group", "list", "--json"),
            ("group", "history", "readers", "--json"),
            ("group", "why", "readers", "--json"),
        ):
            run = run_kohort(*words, *tool)
            said += [run.out, run.err]
        said += _processes(broker.process.pid)
        assert broker.end() == 0
        said += [*broker.lines, *broker.complaints]
    # The loggers have told of the logins at all.
    assert any("event=login_failed" in line for line in broker.complaints)
    wrong = [hit for text in said for hit in secrets.found_in("output", text)]
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            wrong += secrets.found_in(str(path.relative_to(tmp_path)), path.read_bytes())
    wrong += secrets.found_in("users", Path(options["sasl.plain.users.file"]).read_bytes())
    assert wrong == []


def _use(login: Mapping[str, object], *, is_good: bool) -> str:
    """Write and read as a member of a group, or be refused; return everything that the client says of it."""
    try:
        with kohort.Producer(login) as producer:
            producer.send("t", b"x").result(20)
        with kohort.Consumer(login, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(20)
            assert is_good, "it was let in"
            return repr(consumer) + repr(consumer.metrics())
    except (AuthenticationError, BrokersUnreachableError) as why:
        assert not is_good, why
        return "".join(traceback.TracebackException.from_exception(why, capture_locals=False).format())


def _processes(number: int) -> list[str]:
    """The command lines of a process and of those below it."""
    found = [Path(f"/proc/{number}/cmdline").read_text()]
    with suppress(OSError):
        for child in Path(f"/proc/{number}/task/{number}/children").read_text().split():
            found += _processes(int(child))
    return found


def test_broker_in_a_process_of_its_own_has_no_secret_on_its_command_line(options: dict[str, str]) -> None:
    with kohort.Broker(process=True, config=options) as broker:
        assert broker.process_id is not None
        lines = _processes(broker.process_id)
        said = repr(broker) + "".join(lines)
    assert "kohort.broker" in lines[0]
    assert Secrets().found_in("process list", said) == []


def test_answers_about_configs_hide_secrets(options: dict[str, str]) -> None:
    """KIP-226: null, and marked as sensitive; a synonym is no way round. Nor is an error about a change."""
    config = {
        **{name: value for name, value in options.items() if not name.startswith("listener.name.")},
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "ssl.truststore.password": TRUST_PASSWORD,
    }
    secret = {name for name in (option.name for option in BROKER_OPTIONS) if BROKER_OPTIONS.option(name).is_secret}
    assert {"ssl.key.password", "ssl.keystore.password", "ssl.keystore.key", "sasl.jaas.config"} <= secret
    with kohort.Broker(config=config) as broker, RawClient(broker.port) as client:
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1")],
            include_synonyms=True,
            include_documentation=True,
        )
        client.socket.sendall(encode_request(ApiKey.DESCRIBE_CONFIGS, 4, request))
        assert MARK.encode() not in client.receive_frame()
        (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request).results
        rows = {row.name: row for row in answer.configs}
        assert {name for name, row in rows.items() if row.is_sensitive} == secret
        assert {name: rows[name].value for name in secret} == dict.fromkeys(secret)
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin, pytest.raises(KohortError) as why:
            admin.alter_configs(("broker", 1), {"ssl.key.password": WRONG_PASSWORD})
        assert MARK not in str(why.value)


def test_settings_hide_secrets_in_every_text(options: dict[str, str]) -> None:
    settings = BrokerSettings.of({**options, "ssl.truststore.password": TRUST_PASSWORD})
    values = [*settings.listeners[0].values.values(), *settings.values.values()]
    said = [repr(settings), str(settings), repr(settings.listeners), repr(settings.values), *map(str, values)]
    said += [f"{value} {value!r} {value!s:>20}" for value in values]
    said += [json.dumps(plain(each), default=str) for each in (Password(MARK), {"password": Password(MARK)}, [*values])]
    assert [hit for text in said for hit in Secrets().found_in("text", text)] == []
    assert any(isinstance(value, Password) and MARK in value.value for value in values), "they were there"


#: Options of a broker that cannot start with them.
WRONG: list[dict[str, str]] = [
    {"ssl.key.password": WRONG_PASSWORD},
    {"ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----"},
    {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": WRONG_PASSWORD},
    {"ssl.keystore.password": MARK},
    {"sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required user_alice={MARK}"},
    {"sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required user_alice="{MARK};'},
    {"sasl.jaas.config": f"{MARK} required;"},
    {"listener.name.sasl_ssl.plain.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required password={MARK};"},
    {"listener.name.sasl_ssl.plain.sasl.jaas.config": f"required {MARK};", "sasl.jaas.config": f"{MARK};"},
    {"sasl.oauthbearer.jwks.endpoint.url": f"https://me:{MARK}@id.example/keys"},
    {"sasl.oauthbearer.jwks.endpoint.url": f"ftp://id.example/keys?key={MARK}"},
    {"listener.name.other.ssl.key.password": MARK},
    {"ssl.key.pasword": MARK},
]


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
def test_broker_that_cannot_start_says_no_secret(
    options: dict[str, str], wrong: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither to a program nor to a terminal."""
    config = {**options, **wrong}
    with caplog.at_level(logging.DEBUG):
        try:
            with kohort.Broker(config=config):
                pass
        except KohortError as why:
            told = "".join(traceback.TracebackException.from_exception(why).format()) + repr(why)
        else:
            told = ""
    said = ""
    # A command costs more than the broker; it ends by itself, for the same reason.
    if told and wrong in WRONG[::4]:
        file = tmp_path / "server.properties"
        file.write_text(properties({name: value.replace("\n", "\\n") for name, value in config.items()}))
        run = run_kohort("up", "--config-file", str(file))
        assert run.code != 0
        said = run.out + run.err
    assert Secrets().found_in("error", told + said + caplog.text) == []


@pytest.fixture(scope="module")
def broker(options: dict[str, str]) -> Iterator[kohort.Broker]:
    """A broker in this process, whose log can be read."""
    own = {name: value for name, value in options.items() if not name.startswith("listener.name.")}
    with kohort.Broker(config={**own, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", MARK])
@pytest.mark.parametrize(
    "message",
    [
        f"\0alice\0{MARK}", f"{MARK}", f"\0\0{MARK}", f"alice\0{MARK}\0x\0y", f"n,,n=alice,r={MARK}",
        f"n,a={MARK},n=x,r=y",
        f"n,,\x01auth=Bearer {MARK}\x01\x01", f"n,,\x01auth=Bearer {MARK}.{MARK}.{MARK}\x01\x01",
        f"n,,\x01auth=Basic {MARK}\x01\x01", f"n,,\x01{MARK}=1\x01auth={MARK}\x01\x01",
    ],
    ids=range(10),
)  # fmt: skip
def test_malformed_login_is_not_repeated(
    broker: kohort.Broker, mechanism: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a client says in a login is in no log and no answer, however wrong it is."""
    from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
    from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest

    with caplog.at_level(logging.DEBUG, "kohort"), RawClient(broker.port) as client:
        client.send(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism.replace(MARK, "NONE")))
        client.receive_frame()
        answer = b""
        with suppress(OSError):
            client.send(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message.encode()))
            answer = client.receive_frame()
        until(lambda: caplog.records or answer, what="the broker has said something")
    # SCRAM's own answer repeats the client's nonce, which is no secret.
    assert mechanism.startswith("SCRAM") or MARK.encode() not in answer
    assert MARK not in caplog.text
