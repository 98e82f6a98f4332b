"""The parser of `sasl.jaas.config`, the form in which Java's clients and brokers get names and passwords.

Laws: one login module, of PLAIN or SCRAM, is read; every other one is refused by its name, with what to use. No error
or log line has a value of it.
Source: Apache Kafka's `sasl.jaas.config`; the login configuration file of Java's Configuration class.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from kohort.errors import ConfigError

#: Java's class, whose package may be another one: some programs carry Kafka's classes in a package of their own.
_PLAIN: Final = "PlainLoginModule"
_SCRAM: Final = "ScramLoginModule"
_OTHERS: Final = {
    "OAuthBearerLoginModule": "give a function that makes tokens as sasl.oauth.token.provider",
    "Krb5LoginModule": "Kerberos is not spoken: ask for a listener with SCRAM or OAUTHBEARER",
    "IAMLoginModule": "make the token by aws-msk-iam-sasl-signer-python in sasl.oauth.token.provider, with "
    "sasl.mechanism OAUTHBEARER",
}
#: A word, a text in quotes with its escapes, `=` or `;`.
_PARTS: Final = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_LONGEST: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A name and a password for PLAIN or SCRAM; `has_token`: they are those of a delegation token."""

    is_scram: bool
    username: str
    password: str = field(repr=False)
    has_token: bool = False


def parse_jaas(text: str) -> Login:
    """Return the login that a `sasl.jaas.config` describes.

    Raises:
        ConfigError: the text has another form, names another login module, or lacks name or password.

    >>> parse_jaas('org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";')
    Login(is_scram=False, username='a', has_token=False)
    """
    parts = _split(text)
    module = parts[0].rpartition(".")[2] if parts else ""
    if module in _OTHERS:
        raise ConfigError(f"sasl.jaas.config names {module}: {_OTHERS[module]}")
    if module not in (_PLAIN, _SCRAM):
        raise ConfigError(
            "sasl.jaas.config begins with no login module that is known: PlainLoginModule and ScramLoginModule are; or "
            "leave it out and set sasl.username and sasl.password"
        )
    options = _options(parts[2:])
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ConfigError(f"sasl.jaas.config says no {' and no '.join(missing)}")
    return Login(
        is_scram=module == _SCRAM,
        username=options["username"],
        password=options["password"],
        has_token=options.get("tokenauth", "").lower() == "true",
    )


def parse_jaas_users(text: str) -> dict[str, str]:
    """Return name -> password of the users that a broker's `plain.sasl.jaas.config` lists.

    Its own `username` and `password` are for connections to other brokers, and are not read.

    Raises:
        ConfigError: the text has another form, or names another login module.

    >>> parse_jaas_users('org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";')
    {'alice': 'wonder'}
    """
    parts = _split(text)
    if not parts or parts[0].rpartition(".")[2] != _PLAIN:
        raise ConfigError("plain.sasl.jaas.config begins with another login module than PlainLoginModule")
    options = _options(parts[2:])
    users = {name.removeprefix("user_"): value for name, value in options.items() if name.startswith("user_")}
    if empty := [name for name, value in users.items() if not name or not value]:
        raise ConfigError(f"plain.sasl.jaas.config has a user without a name or a password: user_{empty[0]}")
    return users


def _split(text: str) -> list[str]:
    parts: list[str] = []
    position, end = 0, len(text.rstrip())
    if end > _LONGEST:
        raise ConfigError(f"sasl.jaas.config is longer than {_LONGEST} characters")
    while position < end:
        found = _PARTS.match(text, position, end)
        if found is None:
            raise ConfigError("sasl.jaas.config has a quote that is not closed")
        quoted = found[1] if found[1] is not None else found[2]
        # Quoted text is marked by a leading quote, or a password of `;` would end the text.
        parts.append(found[3] or found[4] or "" if quoted is None else '"' + _ESCAPED.sub(r"\1", quoted))
        position = found.end()
    return parts


def _options(parts: list[str]) -> dict[str, str]:
    """Parse `name = value ... ;` to name -> value."""
    if not parts or parts[-1] != ";" or ";" in parts[:-1]:
        raise ConfigError("sasl.jaas.config is one login module, and ends with ; as in Java")
    words, options = parts[:-1], {}
    if len(words) % 3 or any(mark != "=" for mark in words[1::3]):
        raise ConfigError("sasl.jaas.config: after the login module and its flag name=value is expected")
    for name, value in zip(words[::3], words[2::3], strict=True):
        options[name] = value.removeprefix('"')
    return options
