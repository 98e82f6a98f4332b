"""A broker of kohort's with a listener for every security protocol, which stands in for `SecuredKafka` in tests."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

import kohort
from support.peers.certificates import Certificates
from support.peers.secured import LISTENERS, PASSWORD, SHORT_S, USER, quoted
from support.ports import quiet_port

_ISSUER: Final = "https://issuer.example"
_AUDIENCE: Final = "kafka"


class TokenIssuer:
    """An authority that signs tokens, and the file with its public key (RFC 7517)."""

    def __init__(self, directory: Path) -> None:
        self._key: Final = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.public_key().public_numbers()
        x, y = (
            base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()
            for number in (numbers.x, numbers.y)
        )
        key = {"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "one", "alg": "ES256", "use": "sig"}
        self.path: Final = directory / "jwks.json"
        self.path.write_text(json.dumps({"keys": [key]}))

    def token(self, user: str = USER, *, seconds: float = 3600) -> str:
        """Return a token of that user."""
        now = time.time()
        claims = {"sub": user, "iss": _ISSUER, "aud": _AUDIENCE, "iat": int(now), "exp": now + seconds}
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "one"})


class SecuredKohort:
    """One broker with all listeners of `SecuredKafka`; the same user may everything.

    Args:
        properties: configs besides, by Kafka's names.
    """

    def __init__(self, properties: Mapping[str, object] | None = None) -> None:
        self.directory: Final = Path(tempfile.mkdtemp(prefix="secured-kohort-"))
        self.certificates: Final = Certificates(self.directory)
        self.issuer: Final = TokenIssuer(self.directory)
        self._store: Final = self.directory / "server.pem"
        self.present(self.certificates.store("127.0.0.1", "localhost"))
        self._ports: Final = {name: quiet_port() for name in LISTENERS}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        config: dict[str, object] = {
            "listeners": listeners,
            "listener.security.protocol.map": ",".join(
                f"{name}:{'SSL' if name == 'MTLS' else name}" for name in LISTENERS
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.path.as_uri(),
            "sasl.oauthbearer.expected.issuer": _ISSUER,
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            **{
                f"listener.name.{name}.plain.sasl.jaas.config": f"{login} user_{USER}={quoted(PASSWORD)};"
                for name in ("sasl_plaintext", "sasl_ssl")
            },
            # Everybody may everything here, as at an Apache Kafka without an authorizer.
            "authorizer.class.name": "",
            **(properties or {}),
        }
        self.broker: Final = kohort.Broker(config=config)

    def bootstrap(self, listener: str) -> str:
        """HOST:PORT of a listener."""
        return f"127.0.0.1:{self._ports[listener]}"

    def present(self, store: Path) -> None:
        """Have the broker be who this says: a running one takes its files again."""
        fresh = self._store.with_suffix(".new")
        shutil.copyfile(store, fresh)
        fresh.replace(self._store)

    def token(self) -> str:
        """Return a token that the broker takes; for `sasl.oauth.token.provider`."""
        return self.issuer.token()

    def short_token(self) -> tuple[str, float]:
        """Return one that ends soon, and when."""
        return self.issuer.token(seconds=SHORT_S), time.time() + SHORT_S

    def __enter__(self) -> SecuredKohort:
        self.broker.__enter__()
        with kohort.Admin(bootstrap_servers=self.bootstrap("PLAINTEXT")) as admin:
            admin.alter_user_scram_credentials(
                kohort.ScramCredential(user=USER, password=PASSWORD, mechanism=mechanism, iterations=4096)
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            )
        return self

    def __exit__(self, *raised: Any) -> None:
        self.broker.__exit__(*raised)
        shutil.rmtree(self.directory, ignore_errors=True)
