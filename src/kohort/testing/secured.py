"""Brokers with TLS and a login, for tests of programs that have to use both.

Certificates and the password are made anew for each test, and are not kept after it.

Apart: pytest loads the plugin in every run, but this module only if a test uses TLS or a login.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kohort.errors import ConfigError

#: The user that every secured broker of a test knows; it is a super user.
USER: Final = "tester"
PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DAYS: Final = 1


class Secured(NamedTuple):
    """Configs of a secured broker, and the further options that its clients need."""

    config: dict[str, object]
    client_options: dict[str, str]


def secure(protocol: str, directory: Path, *, host: str = "127.0.0.1") -> Secured:
    """Return configs of a broker and options of its clients, by Kafka's names, for one security protocol.

    `protocol`: SSL (a certificate is the login), SASL_PLAINTEXT or SASL_SSL (SASL/PLAIN is the login). `directory`:
    existing directory to which certificates are written. `host`: the broker's address; the port is a free one.

    Raises:
        ConfigError: there is no such protocol.
        MissingDependencyError: certificates need cryptography, the extra `tls`.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"a secured broker cannot speak {protocol!r}: {', '.join(PROTOCOLS)} are possible")
    config: dict[str, object] = {"listeners": f"{protocol}://{host}:0", "super.users": f"User:{USER}"}
    options = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        files = _certificates(directory, host)
        config |= {"ssl.keystore.location": str(files["server.pem"])}
        options |= {"ssl.ca.location": str(files["ca.pem"])}
    if protocol == "SSL":
        config |= {
            "ssl.truststore.location": str(files["ca.pem"]),
            "ssl.client.auth": "required",
            "super.users": f"User:CN={USER}",
        }
        own = str(files["client.pem"])
        options |= {"ssl.certificate.location": own, "ssl.key.location": own}
    else:
        password = secrets.token_urlsafe(16)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        config |= {
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f'{module} required user_{USER}="{password}";',
        }
        options |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": password}
    return Secured(config, options)


def _certificates(directory: Path, host: str) -> Mapping[str, Path]:
    """Write an authority's certificate, the broker's and the client's; return their paths by name."""
    from kohort.cli.verbs.tls import make_certificates

    files = {}
    for name, text in make_certificates([host, "localhost"], USER, _DAYS).items():
        files[name] = directory / name
        files[name].touch(mode=0o600)
        files[name].write_text(text)
    return files
