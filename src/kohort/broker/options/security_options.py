"""The broker's options of listeners, TLS, logins, rights and quotas.

Laws: a secret is a `Password`. A value that only Apache Kafka supports is refused with advice.
Source: Apache Kafka 4.3's `SslConfigs`, `BrokerSecurityConfigs`, `SocketServerConfigs`, `QuotaConfig`.
"""

from __future__ import annotations

from typing import Final

from kohort.base.options import Option, parse_str
from kohort.broker.options.kinds import INT32_MAX, INT64_MAX, KIBI, count, flag, names, password, text
from kohort.errors import ConfigError

#: The mechanisms of SASL that are served.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: Kafka's own authorizers: of clusters with and without ZooKeeper.
AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
#: Hosts of this machine's loopback interface.
_NEAR: Final = ("localhost", "127.0.0.1", "[::1]")


def _store_type(text: object) -> str:
    """Parse the format of a key store; the error for JKS has the command that converts it."""
    kind = parse_str(text).upper()
    if kind == "JKS":
        raise ValueError(
            "PEM or PKCS12 is expected; keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 "
            "-deststoretype PKCS12 converts it"
        )
    if kind not in ("PEM", "PKCS12"):
        raise ValueError("PEM or PKCS12 is expected")
    return kind


def _keys_url(text: object) -> str:
    """Parse the URL of the keys that sign tokens; plain HTTP is accepted only on this machine."""
    url = parse_str(text)
    scheme, _, rest = url.partition("://")
    address = rest.partition("/")[0]
    host, _, port = address.rpartition(":")
    is_near = address in _NEAR or (host in _NEAR and port.isdecimal())
    if not (url.startswith(("https://", "file:///")) or (scheme == "http" and is_near)) or "@" in address:
        # Other errors repeat the value. This one does not: the URL may have a password or a key.
        raise ConfigError(
            "sasl.oauthbearer.jwks.endpoint.url cannot be what it is: https://..., file:///..., or http:// on "
            "127.0.0.1 is expected, without a user"
        )
    return url


def _authorizer(text: object) -> str:
    """Parse the name of Kafka's own authorizer, or an empty text for none."""
    name = parse_str(text).strip()
    if name and name not in AUTHORIZERS:
        raise ValueError(f"{AUTHORIZERS[0]} is expected, or nothing; no other classes of Java are loaded")
    return name


def numbers_by_host(text: object) -> dict[str, int]:
    """Parse HOST:NUMBER, separated by commas; the last colon of an entry precedes the number.

    >>> numbers_by_host("10.0.0.7:100, ::1:5")
    {'10.0.0.7': 100, '::1': 5}
    """
    found: dict[str, int] = {}
    for pair in filter(None, (each.strip() for each in parse_str(text).split(","))):
        host, colon, number = pair.rpartition(":")
        if not colon or not host or not number.isdecimal() or int(number) > INT32_MAX:
            raise ValueError(f"HOST:NUMBER, with commas, is expected, not {pair!r}")
        found[host.strip("[]")] = int(number)
    return found


def _overrides(text: object) -> str:
    """Check numbers by host, and return their text, which DescribeConfigs shows."""
    numbers_by_host(text)
    return parse_str(text).strip()


#: Options of listeners; the addresses themselves are `listeners` and `advertised.listeners`.
LISTENERS: Final = [
    text(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The protocol of each name in listeners, as NAME:PROTOCOL with commas.",
    ),
    text(
        "inter.broker.listener.name",
        None,
        "The listener whose new connections are accepted even at max.connections: the connection of another listener "
        "that was idle for longest is closed (Kafka: brokers connect to it, and it is that of PLAINTEXT by default).",
    ),
    flag(
        "allow.anonymous.beyond.loopback",
        False,
        "Whether a listener without login and TLS may be reached from other machines, whose clients may do everything "
        "(not in Kafka).",
    ),
    Option(
        name="max.connections.per.ip.overrides",
        parse=_overrides,
        default="",
        doc="Other limits than max.connections.per.ip, as HOST:NUMBER with commas.",
    ),
    count(
        "max.connection.creation.rate",
        INT32_MAX,
        "Most new connections per second; further ones wait to be accepted.",
        low=1,
    ),
]
#: Options of encryption.
TLS: Final = [
    Option(
        name="ssl.keystore.type",
        parse=_store_type,
        default="PEM",
        doc="Format of ssl.keystore.location: PEM or PKCS12; JKS has to be converted (Kafka: JKS).",
    ),
    text("ssl.keystore.location", None, "File with the broker's private key and its certificates."),
    password("ssl.keystore.password", "Password of a PKCS12 file in ssl.keystore.location."),
    password("ssl.keystore.certificate.chain", "The broker's certificates as PEM, in place of ssl.keystore.location."),
    password("ssl.keystore.key", "The broker's private key as PEM, in place of ssl.keystore.location."),
    password("ssl.key.password", "Password of the private key, if it is encrypted."),
    Option(
        name="ssl.truststore.type",
        parse=_store_type,
        default="PEM",
        doc="Format of ssl.truststore.location: PEM or PKCS12; JKS has to be converted (Kafka: JKS).",
    ),
    text("ssl.truststore.location", None, "File with the certificates of authorities that sign clients' ones."),
    password("ssl.truststore.password", "Password of a PKCS12 file in ssl.truststore.location."),
    password("ssl.truststore.certificates", "These certificates as PEM, in place of ssl.truststore.location."),
    text(
        "ssl.client.auth",
        "none",
        "Whether clients send a certificate: none: not asked; requested: if they have one; required: or they are "
        "refused.",
        choices=("none", "requested", "required"),
    ),
    names(
        "ssl.enabled.protocols",
        ["TLSv1.2", "TLSv1.3"],
        "Versions of TLS that are enabled.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    text("ssl.protocol", "TLSv1.3", "The newest version of TLS that is enabled.", choices=("TLSv1.2", "TLSv1.3")),
    names("ssl.cipher.suites", [], "Cipher suites by their names in OpenSSL or Java; empty: those of OpenSSL."),
    text(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How a certificate's name becomes a user's: RULE:PATTERN/REPLACEMENT/[LU] with commas, DEFAULT: as it is.",
    ),
    count("ssl.handshake.timeout.ms", 10_000, "Time limit of a TLS handshake (not in Kafka).", low=1),
    count("ssl.handshakes.max", 64, "Most handshakes at a time; further ones wait (not in Kafka).", low=1, high=10_000),
    count("ssl.handshakes.max.per.ip", 16, "Most handshakes of one address (not in Kafka).", low=1, high=10_000),
]
#: Options of logins by SASL.
LOGINS: Final = [
    names(
        "sasl.enabled.mechanisms",
        [],
        "Mechanisms with which clients log in to a SASL listener (Kafka: GSSAPI, which is not supported).",
        choices=MECHANISMS,
    ),
    count(
        "sasl.server.max.receive.size",
        64 * KIBI,
        "Longest request before the login has succeeded (Kafka: 524288).",
        low=KIBI,
    ),
    count(
        "connections.max.reauth.ms",
        0,
        "Longest session of a login; then the client has to re-authenticate; 0: as long as its connection.",
        high=INT64_MAX,
    ),
    password(
        "sasl.jaas.config",
        'The users of PLAIN as in Kafka: ...PlainLoginModule required user_NAME="PASSWORD"; given as '
        "listener.name.NAME.plain.sasl.jaas.config.",
    ),
    text(
        "sasl.plain.users.file",
        None,
        "File with the users of PLAIN and their salted hashes, made by kohort user add (not in Kafka).",
    ),
    flag(
        "sasl.capability.tokens.enable",
        True,
        "Whether PLAIN (user: token) and OAUTHBEARER accept capability tokens of this broker, too (not in Kafka).",
    ),
    count("sasl.login.timeout.ms", 10_000, "Time limit of a login (not in Kafka).", low=1),
    count(
        "sasl.failures.per.second.per.ip",
        5,
        "Logins of one address that may fail per second; further ones wait (not in Kafka).",
        low=1,
    ),
    count(
        "connection.failed.authentication.delay.ms",
        100,
        "Delay before a failed login is refused and its connection closed, so that guessing takes time.",
        high=60_000,
    ),
]
#: Options of logins by tokens (OAUTHBEARER).
TOKENS: Final = [
    Option(
        name="sasl.oauthbearer.jwks.endpoint.url",
        parse=_keys_url,
        default=None,
        doc="URL of the keys that sign tokens: https://..., file:///..., or http:// on 127.0.0.1.",
    ),
    count("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often the keys are fetched.", low=1_000),
    count(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "The first pause after a failed fetch of the keys.",
        low=1,
    ),
    count(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, "The longest pause between such fetches.", low=1
    ),
    text("sasl.oauthbearer.expected.issuer", None, "The required issuer of a token; by default any."),
    names("sasl.oauthbearer.expected.audience", [], "The audiences of which a token needs one; empty: any."),
    text("sasl.oauthbearer.scope.claim.name", "scope", "The claim of a token that has its scopes."),
    text("sasl.oauthbearer.required.scope", None, "The required scope of a token; by default any (not in Kafka)."),
    text("sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that names its user."),
    count(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of a token's issuer may be off.",
        high=3_600,
    ),
]
#: Options of rights.
RIGHTS: Final = [
    Option(
        name="authorizer.class.name",
        parse=_authorizer,
        default=None,
        doc="Whether ACLs are enforced: with the name of one of Kafka's authorizers they are, with an empty one "
        "not; by default they are if a listener has SASL or ssl.client.auth=required (Kafka: not).",
    ),
    text(
        "super.users",
        "",
        "Users that may do everything, as User:NAME with semicolons (an option of Kafka's authorizer).",
    ),
    flag(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether all users may do everything with resources without an ACL (an option of Kafka's authorizer).",
    ),
]
#: Options of quotas; the quotas themselves are set while the broker runs (kafka-configs, kohort).
QUOTAS: Final = [
    count("quota.window.num", 11, "Windows over which bytes and processing time of a client are measured.", low=1),
    count("quota.window.size.seconds", 1, "Length of each of them.", low=1),
    count(
        "controller.quota.window.num", 11, "Windows over which the changes of topics by a client are measured.", low=1
    ),
    count("controller.quota.window.size.seconds", 1, "Length of each of them.", low=1),
]
#: All of them.
SECURITY_OPTIONS: Final = [*LISTENERS, *TLS, *LOGINS, *TOKENS, *RIGHTS, *QUOTAS]

#: Options that may be given for one listener: `listener.name.<name>.<option>`.
PER_LISTENER: Final = frozenset({
    *(option.name for option in (*TLS, *LOGINS, *TOKENS)),
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
})  # fmt: skip
#: Options that may be given for one mechanism of a listener: `listener.name.<name>.<mechanism>.<option>`.
PER_MECHANISM: Final = frozenset({
    *(option.name for option in (*LOGINS, *TOKENS) if option.name != "sasl.enabled.mechanisms"),
})  # fmt: skip
