"""Stock clients that log in with capability tokens at a broker in this process.

A client reads a topic of two partitions by hand; Java's, as the only member of its group.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import aiokafka.abc
import kafka.net.sasl.oauth
import pytest

from kohort import Admin, Broker
from kohort.broker.apis import list_offsets, sasl_handshake
from kohort.broker.context import BrokerContext
from kohort.capabilities import Caveat, mint, not_after, read_keys
from support.dialogues.broker_wire import RawClient
from support.peers.token_issuer import jwk, jwks
from support.scenarios.refusal_codes import AiokafkaReader, JavaReader, KafkaPythonReader, LibrdkafkaReader, Reader
from support.waiting import until

PLAIN: Final = "PLAIN"
BEARER: Final = "OAUTHBEARER"
LISTENER: Final = "SASL_PLAINTEXT"
_LOGIN: Final = "org.apache.kafka.common.security"
JAAS: Final = f"{_LOGIN}.plain.PlainLoginModule required user_nobody={secrets.token_hex(16)};"
#: Makes a token for each login.
Provider = Callable[[], str]
#: No fetch waits for long: clients log in again when earlier requests are answered.
WAIT_MS: Final = 100


def librdkafka(address: str, mechanism: str, provider: Provider, lease_s: float) -> Reader:
    """With PLAIN the token is fixed."""
    options: dict[str, Any] = {
        "security.protocol": LISTENER, "sasl.mechanism": mechanism, "fetch.wait.max.ms": WAIT_MS,
        "reconnect.backoff.max.ms": 500, "enable.auto.commit": False,
    }  # fmt: skip
    if mechanism == PLAIN:
        options |= {"sasl.username": "token", "sasl.password": provider()}
    else:
        options["oauth_cb"] = lambda _: (provider(), time.time() + lease_s)
    told: list[str] = []
    options["error_cb"] = lambda error: told.append(error.name())
    reader = LibrdkafkaReader(address, options)
    reader.errors = told
    return reader


def kafka_python(address: str, mechanism: str, provider: Provider, lease_s: float) -> Reader:
    class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self) -> str:
            return provider()

    return KafkaPythonReader(address, _python_options(mechanism, provider, Tokens))


def aio_kafka(address: str, mechanism: str, provider: Provider, lease_s: float) -> Reader:
    class Tokens(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return provider()

    return AiokafkaReader(address, _python_options(mechanism, provider, Tokens))


def _python_options(mechanism: str, provider: Provider, tokens: Callable[[], object]) -> dict[str, Any]:
    """The options of kafka-python and aiokafka, which have the same names; `tokens` makes a provider of theirs."""
    options: dict[str, Any] = {
        "security_protocol": LISTENER, "sasl_mechanism": mechanism, "fetch_max_wait_ms": WAIT_MS,
    }  # fmt: skip
    if mechanism == PLAIN:
        return options | {"sasl_plain_username": "token", "sasl_plain_password": provider()}
    return options | {"sasl_oauth_token_provider": tokens()}


def java(address: str, mechanism: str, provider: Provider, lease_s: float) -> Reader:
    """By PLAIN, as the only member of a group."""
    del lease_s
    assert mechanism == PLAIN
    module = f"{_LOGIN}.plain.PlainLoginModule"
    jaas = f'{module} required username="token" password="{provider()}";'
    login = {"security_protocol": LISTENER, "sasl_mechanism": mechanism, "sasl_jaas_config": jaas}
    return JavaReader(address, "consumer", {**login, "fetch_max_wait_ms": str(WAIT_MS)})


CLIENTS: Final[Mapping[str, Callable[[str, str, Provider, float], Reader]]] = {
    "librdkafka": librdkafka,
    "Java": java,
    "kafka-python": kafka_python,
    "aiokafka": aio_kafka,
}


def counting(counts: Counter[int], handle: Callable[..., Any]) -> Callable[..., Any]:
    """Count the requests of an API by their connections."""

    def count(context: BrokerContext, request: Any, message: Any) -> Any:
        counts[request.connection.number] += 1
        return handle(context, request, message)

    return count


class Stage:
    """A broker whose clients log in, with a topic of two partitions, and the logins of each connection."""

    def __init__(self, stack: ExitStack, directory: Path, monkeypatch: pytest.MonkeyPatch, **config: object) -> None:
        issuers = directory / "issuer.json"
        issuers.write_bytes(jwks(jwk("one")))
        #: Connection -> how often its client has logged in, and has looked for the offsets of partitions.
        self.logins, self.lookups = Counter[int](), Counter[int]()
        for module, counts in ((sasl_handshake, self.logins), (list_offsets, self.lookups)):
            monkeypatch.setattr(module, "handle", counting(counts, module.handle))
        options = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,{LISTENER}://127.0.0.1:0",
            "sasl.enabled.mechanisms": f"{PLAIN},{BEARER}",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "sasl.oauthbearer.jwks.endpoint.url": issuers.as_uri(),
            "super.users": "User:ANONYMOUS",
            "connection.failed.authentication.delay.ms": 10,
            "sasl.failures.per.second.per.ip": 1_000,
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.assignment.window.ms": 0,
            "quota.window.num": 2,
        }
        options |= {name.replace("_", "."): value for name, value in config.items()}
        broker = stack.enter_context(Broker(data_dir=str(directory / "data"), config=options))
        self._plain = broker.bootstrap_of("PLAINTEXT")
        self.address = broker.bootstrap_of(LISTENER)
        self._keys = read_keys(directory / "data" / "capability.keys")
        self._producer = stack.enter_context(RawClient(int(self._plain.rpartition(":")[2])))
        self._producer.create_topic("t", 2)
        self._stack = stack
        self.sent = 0
        self.reader: Reader | None = None
        #: All tokens that were given out.
        self.tokens: list[str] = []

    def provider(self, *caveats: Caveat, lease_s: float = 0) -> Provider:
        """A function that makes tokens of one holder, each with a lease of its own."""
        token_id = secrets.token_bytes(16)

        def provide() -> str:
            lease = [not_after(int((time.time() + lease_s) * 1000))] if lease_s else []
            self.tokens.append(mint(self._keys, *caveats, *lease, token_id=token_id))
            return self.tokens[-1]

        return provide

    def start(self, client: str, provider: Provider, *, mechanism: str = PLAIN, lease_s: float = 3_600) -> Reader:
        """Start a client; with PLAIN its token is the first that is made."""
        self.reader = CLIENTS[client](self.address, mechanism, provider, lease_s)
        self._stack.callback(self.reader.close)
        return self.reader

    def send(self, size: int = 1) -> None:
        """Append a record to each partition."""
        for partition in (0, 1):
            self._producer.produce("t", bytes(size), partition=partition)
        self.sent += 1

    def wait(self, *partitions: int) -> None:
        """Wait until the client has read all of these partitions."""
        reader = self.reader
        assert reader is not None

        def is_read() -> bool:
            return all(reader.read[each] >= self.sent for each in partitions)

        def tell() -> str:
            return f"{dict(reader.read)} of {self.sent} each, {reader.errors}"

        until(is_read, what=tell)

    def rows(self) -> list[object]:
        """What the broker tells of the groups and tokens that there were."""
        with Admin(bootstrap_servers=self._plain) as admin:
            groups = [group.group_id for group in admin.list_groups()]
            return [admin.describe_tokens(), admin.describe_broker(), *map(admin.group_history, groups)]

    def revoke(self, label: str) -> None:
        """Revoke all tokens of a label."""
        with Admin(bootstrap_servers=self._plain) as admin:
            admin.revoke_tokens(labels=[label])
