"""An Apache Kafka with a listener for every security protocol, and what its clients need of users and tokens."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

from kohort import Admin, ScramCredential
from support.peers.apache_broker import ApacheKafka
from support.peers.certificates import Certificates
from support.ports import quiet_port
from support.waiting import until

#: The user that every mechanism knows, and the one that PLAIN knows besides.
USER: Final = "alice"
PASSWORD: Final = 'wonder, "land"=1;'
#: How long a short token lasts.
SHORT_S: Final = 2.0
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def quoted(text: str) -> str:
    """A value as a login configuration of Java has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unsecured_token(user: str = USER, *, seconds: float = 3600, issued_s: float | None = None) -> str:
    """A token without a signature, which Kafka's own validator for tests takes."""
    now = time.time() if issued_s is None else issued_s
    claims = {"sub": user, "iat": now, "exp": now + seconds}
    parts = [{"alg": "none"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def short_token() -> tuple[str, float]:
    """One that ends soon, and when; the workers of a query call it by its name."""
    return unsecured_token(seconds=SHORT_S), time.time() + SHORT_S


LISTENERS: Final = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")


def listeners_at(ports: Mapping[str, int], certificates: Certificates) -> dict[str, object]:
    """Configs of a broker that speaks every protocol, each at its port, and knows the one user."""
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = ",".join(f"{name}:{'SSL' if name == 'MTLS' else name}" for name in ports)
    properties: dict[str, object] = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.store("127.0.0.1", "localhost"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        login = "org.apache.kafka.common.security"
        properties |= {
            f"listener.name.{listener}.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required "
            f"user_{USER}={quoted(PASSWORD)};".replace("\\", "\\\\"),
            f"listener.name.{listener}.oauthbearer.sasl.jaas.config": f"{login}.oauthbearer.OAuthBearerLoginModule "
            "required unsecuredLoginStringClaim_sub=broker;",
            **{
                f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": f"{login}.scram.ScramLoginModule "
                "required;"
                for mechanism in _SCRAM
            },
        }
    return properties


class SecuredKafka:
    """`count` brokers that are one cluster; `bootstrap(listener)` is where they speak which.

    Args:
        properties: configs that all of them get.
        count: how many; the first one is the controller, too.
    """

    def __init__(self, properties: Mapping[str, object] | None = None, *, count: int = 1) -> None:
        self.directory: Final = Path(tempfile.mkdtemp(prefix="secured-kafka-"))
        self.certificates: Final = Certificates(self.directory)
        self._ports: Final = [{name: quiet_port() for name in LISTENERS} for _ in range(count)]
        controller = quiet_port()
        self.brokers: Final = []
        for node, ports in enumerate(self._ports, start=1):
            settings = {
                **listeners_at(ports, self.certificates),
                "node.id": node,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                **(properties or {}),
            }
            if node == 1:
                settings["listeners"] = f"{settings['listeners']},CONTROLLER://127.0.0.1:{controller}"
            else:
                settings["process.roles"] = "broker"
            self.brokers.append(ApacheKafka(settings, heap="1g" if count == 1 else "512m"))
        #: The first one.
        self.broker: Final = self.brokers[0]
        self._stack = ExitStack()

    def token(self) -> str:
        """A token that it takes; for `sasl.oauth.token.provider`."""
        return unsecured_token()

    def short_token(self) -> tuple[str, float]:
        """One that ends soon, and when."""
        return short_token()

    def bootstrap(self, listener: str) -> str:
        """HOST:PORT of a listener of every broker."""
        return ",".join(f"127.0.0.1:{ports[listener]}" for ports in self._ports)

    def __enter__(self) -> SecuredKafka:
        with ExitStack() as stack:
            for broker in self.brokers:
                stack.enter_context(broker)
            with Admin(bootstrap_servers=self.bootstrap("PLAINTEXT")) as admin:
                admin.alter_user_scram_credentials(
                    ScramCredential(user=USER, password=PASSWORD, mechanism=mechanism, iterations=4096)
                    for mechanism in _SCRAM
                )
                # The brokers hear of it from their controller.
                until(lambda: len(admin.describe_user_scram_credentials()) == len(_SCRAM), what="the user is known")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class SecuredBroker(Protocol):
    """Brokers with a listener for every protocol: Apache Kafka's or kohort's."""

    @property
    def certificates(self) -> Certificates:
        """What signs the brokers' certificate, and a client's."""

    def bootstrap(self, listener: str) -> str:
        """HOST:PORT of a listener of every broker."""

    def token(self) -> str:
        """A token that they take."""

    def short_token(self) -> tuple[str, float]:
        """One that ends soon, and when."""


def login(kafka: SecuredBroker, mechanism: str, **more: Any) -> dict[str, Any]:
    """Options of a client that logs in with TLS around it."""
    who: dict[str, Any] = {"sasl_username": USER, "sasl_password": PASSWORD}
    if mechanism == "OAUTHBEARER":
        who = {"sasl_oauth_token_provider": kafka.token}
    return {
        "bootstrap_servers": kafka.bootstrap("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": str(kafka.certificates.ca),
        "sasl_mechanism": mechanism,
        **who,
        **more,
    }


#: The ways in.
WAYS: Final = ("SSL", "MTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def options_of(kafka: SecuredBroker, way: str) -> dict[str, Any]:
    """How a client gets in on each way."""
    if way not in ("SSL", "MTLS"):
        return login(kafka, way)
    own = {"ssl_certificate_location": str(kafka.certificates.client)} if way == "MTLS" else {}
    ca = str(kafka.certificates.ca)
    return {"bootstrap_servers": kafka.bootstrap(way), "security_protocol": "SSL", "ssl_ca_location": ca, **own}
