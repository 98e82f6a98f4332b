"""Listeners as Apache Kafka's options say them: names, protocols, addresses, and options of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.base.options import Password
from kohort.broker.options.configfile import load_config_file
from kohort.broker.options.listeners import ListenerSettings, SecurityProtocol
from kohort.broker.options.settings import BROKER_OPTIONS, BrokerSettings
from kohort.errors import ConfigError, UnknownOptionError

SECRET = "swordfish"
MAP = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL"}
TWO = {"listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://[::]:9093", **MAP, "sasl.enabled.mechanisms": "PLAIN"}


def of(config: dict[str, object]) -> dict[str, ListenerSettings]:
    return {each.name: each for each in BrokerSettings.of(config).listeners}


def test_listeners_have_names_protocols_and_addresses_in_their_order() -> None:
    found = of({**TWO, "advertised.listeners": "outside://kafka.example:443"})
    assert [(each.name, each.protocol, each.host, each.port) for each in found.values()] == [
        ("INSIDE", SecurityProtocol.PLAINTEXT, "127.0.0.1", 9092),
        ("OUTSIDE", SecurityProtocol.SASL_SSL, "::", 9093),
    ]
    told = {name: (each.advertised_host, each.advertised_port) for name, each in found.items()}
    assert told == {"INSIDE": (None, None), "OUTSIDE": ("kafka.example", 443)}
    assert (found["OUTSIDE"].has_login, found["INSIDE"].has_login) == (True, False)
    assert found["OUTSIDE"].url == "OUTSIDE://[::]:9093"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:7000", "0.0.0.0", 7000),
        ("127.0.0.1:7000", "127.0.0.1", 7000),
        ("plaintext://broker-1.example:7000", "broker-1.example", 7000),
        ("PLAINTEXT://[2001:db8::7]:7000", "2001:db8::7", 7000),
        ("PLAINTEXT://::1:7000", "::1", 7000),
        ("PLAINTEXT://[fe80::1%eth0]:7000", "fe80::1%eth0", 7000),
        (" PLAINTEXT://localhost:0 ,", "localhost", 0),
    ],
)
def test_address_is_written_as_in_kafka(text: str, host: str, port: int) -> None:
    (listener,) = BrokerSettings.of({"listeners": text}).listeners
    assert (listener.host, listener.port) == (host, port)


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("", "listeners cannot be empty: NAME://HOST:PORT is expected"),
        ("PLAINTEXT://localhost", "listeners cannot be 'PLAINTEXT://localhost': NAME://HOST:PORT is expected"),
        ("PLAINTEXT://localhost:99999", "NAME://HOST:PORT is expected"),
        ("PLAINTEXT://localhost:-1", "NAME://HOST:PORT is expected"),
        ("://localhost:1", "NAME://HOST:PORT is expected"),
        ("PLAINTEXT://local host:1", "'local host' is no host"),
        ("PLAINTEXT://user@host:1", "'user@host' is no host"),
        ("PLAINTEXT://[::1:1", "'[::1' is no host"),
        ("PLAINTEXT://a:1:2", "'a:1' is no host"),
        ("MIDDLE://:1", "listeners has MIDDLE, of which listener.security.protocol.map does not say the protocol"),
        ("INSIDE://:1,inside://:2", "listeners has the name INSIDE twice: each listener needs a name of its own"),
        ("INSIDE://a:1,SSL://b:1", "listeners has port 1 for INSIDE and SSL: each listener needs a port of its own"),
        ("INSIDE://127.0.0.1:1,SSL://127.0.0.2:1", "listeners has port 1 for INSIDE and SSL"),
        ("INSIDE://127.0.0.1:1,SSL://[::1]:1,PLAINTEXT://[::2]:1", "port 1 for INSIDE and SSL and PLAINTEXT"),
        ("OUTSIDE://:1", "listener OUTSIDE is SASL_SSL, and sasl.enabled.mechanisms is empty: set it to some of PLAIN"),
        (",".join(f"PLAINTEXT://:{port}" for port in range(1, 102)), "listeners has 101 listeners: 100 at most"),
    ],
)
def test_wrong_listener_is_one_clear_sentence(listeners: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.of({**MAP, "listeners": listeners})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"advertised.listeners": "MIDDLE://h:1"},
            "advertised.listeners has MIDDLE, which is none of listeners (INSIDE, ",
        ),
        (
            {"advertised.listeners": "INSIDE://:1"},
            "advertised.listeners cannot have 0.0.0.0:1 for INSIDE: clients need",
        ),
        ({"advertised.listeners": "INSIDE://[::]:1"}, "advertised.listeners cannot have [::]:1 for INSIDE"),
        ({"advertised.listeners": "INSIDE://a:1,INSIDE://b:1"}, "advertised.listeners has the name INSIDE twice"),
        ({"listener.security.protocol.map": "INSIDE"}, "cannot have 'INSIDE': NAME:PROTOCOL is expected"),
        (
            {"listener.security.protocol.map": "INSIDE:TLS"},
            "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL is expected",
        ),
        ({"listener.security.protocol.map": "A:SSL,a:PLAINTEXT"}, "map has A as SSL and as PLAINTEXT: keep one"),
        ({"inter.broker.listener.name": "MIDDLE"}, "cannot be 'MIDDLE': one of INSIDE, OUTSIDE is expected"),
        ({"max.connections.per.ip.overrides": "10.0.0.7"}, "HOST:NUMBER, with commas, is expected, not '10.0.0.7'"),
        ({"max.connections.per.ip.overrides": "10.0.0.7:-1"}, "HOST:NUMBER, with commas, is expected"),
        ({"authorizer.class.name": "mine.Authorizer"}, "StandardAuthorizer is expected, or nothing; no other classes"),
        ({"ssl.keystore.type": "jks"}, "-deststoretype PKCS12 converts it"),
        ({"ssl.keystore.type": "DER"}, "ssl.keystore.type cannot be 'DER': PEM or PKCS12 is expected"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER is expected"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1@there.example/"}, "http:// on 127.0.0.1 is expected"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:a@there.example/"}, "https://..., file:///..., or"),
        ({"sasl.jaas.config": b"swordfish"}, "sasl.jaas.config cannot be what it is: text is expected"),
    ],
)
def test_what_goes_with_listeners_is_checked_too(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.of({**TWO, **config})
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


def test_one_port_may_be_of_ipv4_and_of_ipv6() -> None:
    found = of({"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092"})
    assert [each.port for each in found.values()] == [9092, 9092]
    assert len(of({"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"})) == 2


def test_port_zero_is_told_as_the_one_that_the_system_chose() -> None:
    (listener,) = of({"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://broker:0"}).values()
    assert (listener.advertised_host, listener.advertised_port) == ("broker", None)


def test_host_and_port_of_one_among_several_listeners_are_not_guessed() -> None:
    with pytest.raises(ConfigError, match=r"host and port cannot be given beside 2 listeners \(INSIDE, OUTSIDE\)"):
        BrokerSettings.of(TWO, port=7)


@pytest.mark.parametrize("dots", [True, False], ids=["dotted", "underscores"])
def test_options_of_one_listener_are_in_its_values_alone(dots: bool) -> None:
    own: dict[str, object] = {
        "listener.name.outside.max.connections": "5",
        "listener.name.outside.ssl.key.password": SECRET,
        "listener.name.outside.scram-sha-256.connections.max.reauth.ms": 60_000,
        "listener.name.outside.plain.sasl.jaas.config": SECRET,
    }
    if not dots:
        own = {name.replace(".", "_").replace("-", "_"): value for name, value in own.items()}
    settings = BrokerSettings.of({**TWO, **own})
    inside, outside = settings.listeners
    assert outside.values["max.connections"] == 5
    assert outside.values["ssl.key.password"] == Password(SECRET)
    assert outside.values["plain.sasl.jaas.config"].value == SECRET
    assert outside.values["scram-sha-256.connections.max.reauth.ms"] == 60_000
    assert inside.values["max.connections"] == settings.values["max.connections"] == 10_000
    assert inside.values["ssl.key.password"] is None
    assert "plain.sasl.jaas.config" not in inside.values
    assert SECRET not in f"{settings!r} {outside!r} {outside.values}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "listener.name.middle.ssl.key.password",
            "listener.name.middle.* is given, and listeners has INSIDE, OUTSIDE only",
        ),
        ("listener.name.inside.num.partitions", "cannot be set for one listener: num.partitions holds for all of them"),
        ("listener.name.inside.max.connection", "did you mean listener.name.inside.max.connections?"),
        ("listener.name.inside.sasl.kerberos.service.name", "is not served: Kerberos (GSSAPI) is not spoken"),
        ("listener.name.inside.plain.sasl.server.callback.handler.class", "no classes of Java are loaded"),
        ("listener.name.inside.principal.builder.class", "is not served: no classes of Java are loaded"),
        ("listener.name.inside.ssl.engine.factory.class", "is not served: no classes of Java are loaded"),
        ("listener.name.max.connections", "has no listener: listener.name.NAME.OPTION is expected"),
        ("listener.name.", "unknown broker option listener.name."),
        ("listener.name.inside.gssapi.sasl.jaas.config", "gssapi is no mechanism of logins here"),
    ],
)
def test_option_that_no_listener_can_have_is_told_as_what_it_is(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.of({**TWO, name: SECRET})
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


def test_value_of_one_listener_is_checked_like_that_of_all() -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.of({**TWO, "listener.name.inside.max.connections": "many"})
    assert str(raised.value) == "listener.name.inside.max.connections cannot be 'many': a whole number is expected"
    with pytest.raises(ConfigError, match="is given twice"):
        BrokerSettings.of({**TWO, "listener.name.inside.max.connections": 1, "listener_name_INSIDE_max_connections": 2})
    with pytest.raises(UnknownOptionError):
        BrokerSettings.of({**TWO, "listener.name.inside": 1})


@pytest.mark.parametrize(
    ("config", "has_login"),
    [
        ({"ssl.client.auth": "required"}, True),
        ({"ssl.client.auth": "requested"}, False),
        ({"listener.name.ssl.ssl.client.auth": "required"}, True),
        ({"ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "none"}, False),
    ],
)
def test_certificate_that_each_client_has_to_show_is_a_login(config: dict[str, object], has_login: bool) -> None:
    assert of({"listeners": "SSL://:1", **config})["SSL"].has_login is has_login
    assert not of({"listeners": "PLAINTEXT://:1", "ssl.client.auth": "required"})["PLAINTEXT"].has_login


def test_password_is_in_no_text() -> None:
    secret = Password(SECRET)
    assert {str(secret), repr(secret), f"{secret}", f"{secret!s:>8}", f"{secret:}", f"{[secret]}"} == {
        "[hidden]",
        "[[hidden]]",
    }
    assert (secret.value, secret) == (SECRET, Password(SECRET))
    hidden = {option.name for option in BROKER_OPTIONS if option.is_secret}
    assert {"ssl.keystore.key", "ssl.key.password", "sasl.jaas.config", "ssl.truststore.password"} <= hidden
    assert all("password" not in option.name or option.is_secret for option in BROKER_OPTIONS)


def test_properties_are_unescaped_as_java_does(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    users = "listener.name.inside.plain.sasl.jaas.config"
    file.write_text(
        "ssl.keystore.key=-----BEGIN KEY-----\\nabc=\\n\\\n   -----END KEY-----\\n\n"
        f'{users}=org...PlainLoginModule required \\\n  user_alice="a\\\\b\\u00e9";\n'
    )
    read = load_config_file(str(file)).values
    assert read["ssl.keystore.key"] == "-----BEGIN KEY-----\nabc=\n-----END KEY-----\n"
    assert read[users] == 'org...PlainLoginModule required user_alice="a\\bé";'
