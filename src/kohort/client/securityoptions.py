"""The parsers of the options of TLS and SASL, and the settings that a client makes of them.

Laws: a secret is in no text, in no representation and in no error. Options that cannot work together are refused when
the client is made, and so is a login that the chosen protocol would never use.
Source: Apache Kafka's security.protocol, ssl.* (PEM, KIP-651) and sasl.*; what librdkafka and kafka-python call them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from kohort.base import values
from kohort.base.options import parse_bool, parse_function, parse_str
from kohort.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from kohort.security.jaas import Login

#: Values of `sasl.mechanism`.
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
MECHANISMS: Final = get_args(Mechanism)
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def parse_upper(given: object) -> str:
    """Read a word in any case."""
    return parse_str(given).strip().upper()


def parse_mechanism(given: object) -> str:
    """Read the name of a SASL mechanism; refuse an unsupported one with the names of the others."""
    name = parse_upper(given)
    if name == "GSSAPI":
        raise ValueError("Kerberos is not spoken; SCRAM-SHA-512, PLAIN or OAUTHBEARER are")
    if name == "AWS_MSK_IAM":
        raise ValueError("use OAUTHBEARER, and a token of aws-msk-iam-sasl-signer-python")
    return name


def parse_identification(given: object) -> str:
    """Read how brokers' names are verified: https, or none; kafka-python says it as true or false."""
    if isinstance(given, str) and given.strip().lower() in ("https", "none", ""):
        return given.strip().lower() or "none"
    try:
        return "https" if parse_bool(given) else "none"
    except ValueError:
        raise ValueError("https or none is expected") from None


def parse_context(given: object) -> ssl.SSLContext:
    """Read an `ssl.SSLContext` that the application has set up."""
    import ssl

    if not isinstance(given, ssl.SSLContext):
        raise ValueError("an ssl.SSLContext is expected")
    return given


def parse_provider(given: object) -> Callable[[], object]:
    """Read the function that makes tokens, its name as module:function, or kafka-python's token provider."""
    if isinstance(given, str):
        module, mark, name = given.partition(":")
        if not mark or not all(part.isidentifier() for part in (*module.split("."), name)):
            raise ValueError("a function that returns a token is expected, or its name: module:function")
        return partial(_call_named, module, name)
    method = getattr(given, "token", None)
    return _without_arguments(parse_function(method if callable(method) and not isinstance(given, type) else given))


def _without_arguments(provider: Callable[..., object]) -> Callable[[], object]:
    """Wrap librdkafka's function: its argument is sasl.oauthbearer.config, `None` by default."""
    import inspect

    try:
        parameters = inspect.signature(provider).parameters.values()
    except (TypeError, ValueError):
        return provider
    needed = [each for each in parameters if each.default is each.empty and each.kind <= each.POSITIONAL_OR_KEYWORD]
    return partial(provider, None) if len(needed) == 1 else provider


def _call_named(module: str, name: str) -> object:
    # Imported when it is called: settings travel to processes that make tokens of their own.
    return getattr(import_module(module), name)()


@values.value
class SaslSettings:
    """The settings of a login; `token_provider` of OAUTHBEARER only."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    #: Extensions in the first message of SCRAM.
    extensions: Mapping[str, str] = field(default_factory=dict)
    token_provider: Callable[[], object] | None = field(default=None, repr=False)


@values.value
class SecuritySettings:
    """The settings of TLS and login; `None` if not wanted."""

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = None
    sasl: SaslSettings | None = None


def security_settings(values: Mapping[str, Any]) -> SecuritySettings:
    """Build settings from options that were checked one by one; read the files that they name.

    Raises:
        ConfigError: they contradict each other, something is missing, or a file cannot be used.
    """
    protocol: str = values["security.protocol"]
    has_tls, has_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    _refuse_idle(values, protocol, has_tls=has_tls, has_login=has_login)
    return SecuritySettings(
        protocol=protocol, tls=_tls(values) if has_tls else None, sasl=_login(values, protocol) if has_login else None
    )


def _refuse_idle(values: Mapping[str, Any], protocol: str, *, has_tls: bool, has_login: bool) -> None:
    tls = (
        *("ssl.context", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.crl.location", "ssl.cipher.suites"),
    )
    login = ("sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config", "sasl.oauth.token.provider")
    idle_tls = [] if has_tls else [name for name in tls if values[name] is not None]
    idle_login = [] if has_login else [name for name in login if values[name] is not None]
    if not idle_tls and not idle_login:
        return
    needed = ("SASL_" if has_login or idle_login else "") + ("SSL" if has_tls or idle_tls else "PLAINTEXT")
    hint = "SASL_SSL, or SASL_PLAINTEXT on a network that you trust" if needed == "SASL_PLAINTEXT" else needed
    raise ConfigError(
        f"{(idle_tls + idle_login)[0]} would change nothing: security.protocol is {protocol}; set it to {hint}"
    )


def _tls(values: Mapping[str, Any]) -> ssl.SSLContext:
    # A client without TLS does not pay for this import.
    from kohort.security.tls import TlsSettings, build_context

    return build_context(
        TlsSettings(
            context=values["ssl.context"],
            ca=values["ssl.ca.location"],
            certificate=values["ssl.certificate.location"],
            key=values["ssl.key.location"],
            key_password=values["ssl.key.password"],
            crl=values["ssl.crl.location"],
            ciphers=values["ssl.cipher.suites"],
            verifies=values["enable.ssl.certificate.verification"],
            verifies_names=values["ssl.endpoint.identification.algorithm"] == "https",
        )
    )


def _login(values: Mapping[str, Any], protocol: str) -> SaslSettings:
    from kohort.security.jaas import Login, parse_jaas

    given = values["sasl.jaas.config"]
    login = None if given is None else parse_jaas(given)
    mechanism: str | None = values["sasl.mechanism"]
    if mechanism is None and login is not None and not login.is_scram:
        mechanism = "PLAIN"
    if mechanism is None:
        raise ConfigError(f"sasl.mechanism is needed with a login: one of {', '.join(MECHANISMS)}")
    provider = values["sasl.oauth.token.provider"]
    if mechanism == "OAUTHBEARER":
        return _bearer(values, provider)
    if provider is not None:
        raise ConfigError(f"sasl.oauth.token.provider is for OAUTHBEARER, and sasl.mechanism is {mechanism}")
    if login is not None and (values["sasl.username"] is not None or values["sasl.password"] is not None):
        raise ConfigError("sasl.jaas.config has name and password: leave sasl.username and sasl.password out")
    if login is not None and login.is_scram != (mechanism in _SCRAM):
        raise ConfigError(f"the login module in sasl.jaas.config is not that of sasl.mechanism {mechanism}")
    if mechanism == "PLAIN" and not protocol.endswith("SSL"):
        import logging

        text = "security.protocol is %s: the password of PLAIN can be read on its way; use SASL_SSL"
        logging.getLogger("kohort.client").warning(text, protocol)
    if login is None:
        for name in ("sasl.username", "sasl.password"):
            if values[name] is None:
                raise ConfigError(f"{name} is needed for {mechanism}")
        is_scram = mechanism in _SCRAM
        login = Login(is_scram=is_scram, username=values["sasl.username"], password=values["sasl.password"])
    return _with_password(mechanism, login)


def _bearer(values: Mapping[str, Any], provider: Callable[[], object] | None) -> SaslSettings:
    if provider is None:
        raise ConfigError("OAUTHBEARER needs sasl.oauth.token.provider: a function that returns a token")
    for name in ("sasl.username", "sasl.password", "sasl.jaas.config"):
        if values[name] is not None:
            raise ConfigError(f"{name} is not for OAUTHBEARER: the token says who the user is")
    return SaslSettings(mechanism="OAUTHBEARER", token_provider=provider)


def _with_password(mechanism: str, login: Login) -> SaslSettings:
    from kohort.security.sasl import unsendable

    if not login.username or not login.password:
        raise ConfigError(f"{'sasl.password' if login.username else 'sasl.username'} cannot be empty")
    for name, value in (("sasl.username", login.username), ("sasl.password", login.password)):
        if (why := unsendable(value)) is not None:
            raise ConfigError(f"{name} cannot be sent by {mechanism}: it {why}")
    return SaslSettings(
        mechanism=mechanism,
        username=login.username,
        password=login.password,
        extensions={"tokenauth": "true"} if login.has_token else {},
    )
