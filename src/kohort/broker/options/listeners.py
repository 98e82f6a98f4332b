"""The listeners of a broker: their names, protocols, addresses, and the options of single listeners.

Laws: names are in upper case and unique. Ports are unique, but an IPv4 and an IPv6 listener may share one. The order is
that of `listeners`. An advertised address belongs to a listener, and is an address that a client can connect to.
Source: Apache Kafka's `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `listener.name.<name>.*`;
`SocketServerConfigs.listenerListToEndPoints`, `AbstractKafkaConfig.validateValues`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from kohort.base.options import parse_list
from kohort.base.values import value
from kohort.errors import ConfigError

Each = TypeVar("Each", str, int)


class SecurityProtocol(Enum):
    """Kafka's security protocols, with whether they encrypt and whether they have a login."""

    PLAINTEXT = (False, False)
    SSL = (True, False)
    SASL_PLAINTEXT = (False, True)
    SASL_SSL = (True, True)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.value[0]

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in by SASL."""
        return self.value[1]


@value
class ListenerSettings:
    """One listener; its own address is advertised if `advertised_host` or `advertised_port` is `None`."""

    name: str
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None
    #: Every option of the broker by its name, with the values given for this listener; also
    #: `<mechanism>.sasl.jaas.config` with the mechanism in lower case. Some values are passwords.
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def has_login(self) -> bool:
        """Whether each client authenticates, by SASL or by a certificate."""
        needs_certificate = self.protocol.has_tls and self.values.get("ssl.client.auth") == "required"
        return self.protocol.has_sasl or needs_certificate

    @property
    def url(self) -> str:
        """The listener as it is written in `listeners`."""
        return f"{self.name}://{address(self.host, self.port)}"


class Endpoint(NamedTuple):
    """A name and an address, as `listeners` has them."""

    name: str
    host: str
    port: int


#: The listener of a broker that is not configured.
DEFAULT: Final = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
#: The host that an empty host stands for: every interface.
EVERY_HOST: Final = "0.0.0.0"
#: Addresses that stand for every interface; no client can connect to one.
EVERY_INTERFACE: Final = (EVERY_HOST, "::")
#: The most listeners of a broker, more than anything has a use for.
MOST_LISTENERS: Final = 100


def address(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets.

    >>> address("::1", 9092), address("localhost", 9092)
    ('[::1]:9092', 'localhost:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoints(option: str, text: str | None) -> list[Endpoint]:
    """Parse NAME://HOST:PORT, with commas; no name is PLAINTEXT, an empty host every interface.

    >>> parse_endpoints("listeners", "inside://127.0.0.1:9092,OUTSIDE://[::]:9093")
    [Endpoint(name='INSIDE', host='127.0.0.1', port=9092), Endpoint(name='OUTSIDE', host='::', port=9093)]
    """
    found = [] if text is None else [_endpoint(option, part) for part in parse_list(text)]
    if text is not None and not found:
        raise ConfigError(f"{option} cannot be empty: NAME://HOST:PORT is expected, such as PLAINTEXT://127.0.0.1:9092")
    if len(found) > MOST_LISTENERS:
        raise ConfigError(f"{option} has {len(found)} listeners: {MOST_LISTENERS} at most are expected")
    for name in _twice(each.name for each in found):
        raise ConfigError(f"{option} has the name {name} twice: each listener needs a name of its own")
    return found


def _endpoint(option: str, text: str) -> Endpoint:
    name, separator, rest = text.rpartition("://")
    host, colon, port = rest.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if (separator and not name) or not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{option} cannot be {text!r}: NAME://HOST:PORT is expected, such as PLAINTEXT://:9092")
    # As in Apache Kafka, an IPv6 address without brackets is accepted.
    if not all(each.isalnum() or each in "-._%:" for each in host) or (":" in host and not _version(host)):
        raise ConfigError(f"{option} cannot be {text!r}: {host!r} is no host")
    return Endpoint(name.upper() if separator else "PLAINTEXT", host or EVERY_HOST, int(port))


def _version(host: str) -> int | None:
    """Return the version of an IP address; `None` for a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    """Parse `listener.security.protocol.map`: NAME:PROTOCOL, with commas."""
    found: dict[str, SecurityProtocol] = {}
    for pair in parse_list(text):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not name or not colon:
            raise ConfigError(f"listener.security.protocol.map cannot have {pair!r}: NAME:PROTOCOL is expected")
        if protocol not in SecurityProtocol.__members__:
            expected = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(f"listener.security.protocol.map cannot have {pair!r}: one of {expected} is expected")
        known = found.setdefault(name, SecurityProtocol[protocol])
        # In Apache Kafka the last one applies without a warning.
        if known is not SecurityProtocol[protocol]:
            raise ConfigError(f"listener.security.protocol.map has {name} as {known.name} and as {protocol}: keep one")
    return found


def listeners_of(
    values: Mapping[str, Any],
    overrides: Mapping[str, Mapping[str, Any]],
    *,
    host: str | None = None,
    port: int | None = None,
) -> tuple[ListenerSettings, ...]:
    """Return the listeners of a broker's checked options.

    `overrides`: the options of single listeners, by the listener's name in lower case. `host` and `port` replace those
    of `listeners`, which may have only one listener then. If the advertised port is the port in `listeners`, `port`
    replaces it as well.
    """
    endpoints = parse_endpoints("listeners", values["listeners"]) or [DEFAULT]
    if len(endpoints) > 1 and (host is not None or port is not None):
        names = ", ".join(each.name for each in endpoints)
        raise ConfigError(
            f"host and port cannot be given beside {len(endpoints)} listeners ({names}): write them there"
        )
    advertised = _advertised(values["advertised.listeners"], endpoints)
    protocols = parse_protocols(values["listener.security.protocol.map"])
    found = []
    for each in endpoints:
        if each.name not in protocols:
            raise ConfigError(
                f"listeners has {each.name}, of which listener.security.protocol.map does not say the protocol: "
                f"add {each.name}:PLAINTEXT, {each.name}:SSL, {each.name}:SASL_PLAINTEXT or {each.name}:SASL_SSL"
            )
        told = advertised.get(each.name)
        # If `port` replaces the port of `listeners`, clients would connect to a port on which nothing listens.
        follows = told is not None and port is not None and values["listeners"] is not None and told.port == each.port
        found.append(
            ListenerSettings(
                name=each.name,
                protocol=protocols[each.name],
                host=each.host if host is None else host,
                port=each.port if port is None else port,
                advertised_host=None if told is None else told.host,
                # Port 0 stands for the port that the system chooses.
                advertised_port=None if told is None or follows or not told.port else told.port,
                values={**values, **overrides.get(each.name.lower(), {})},
            )
        )
    _check_ports(found)
    _check_names(overrides, found)
    for listener in found:
        _check_mechanisms(listener)
    return tuple(found)


def _advertised(text: str | None, endpoints: Iterable[Endpoint]) -> dict[str, Endpoint]:
    known = [each.name for each in endpoints]
    found = parse_endpoints("advertised.listeners", text)
    for each in found:
        if each.name not in known:
            raise ConfigError(
                f"advertised.listeners has {each.name}, which is none of listeners ({', '.join(known)}): "
                "give it a listener, or leave it out"
            )
        if each.host in EVERY_INTERFACE:
            raise ConfigError(
                f"advertised.listeners cannot have {address(each.host, each.port)} for {each.name}: "
                "clients need an address to connect to"
            )
    return {each.name: each for each in found}


def _check_ports(found: list[ListenerSettings]) -> None:
    """Refuse two listeners on one port, unless one of them is of IPv4 and the other of IPv6."""
    for port in _twice(each.port for each in found if each.port):
        sharing = [each for each in found if each.port == port]
        if sorted(_version(each.host) or 0 for each in sharing) != [4, 6]:
            names = " and ".join(each.name for each in sharing)
            raise ConfigError(f"listeners has port {port} for {names}: each listener needs a port of its own")


def _check_names(overrides: Iterable[str], found: list[ListenerSettings]) -> None:
    known = {each.name.lower(): each.name for each in found}
    for name in overrides:
        if name not in known:
            listener, _, rest = name.partition(".")
            if listener in known:
                raise ConfigError(f"listener.name.{name}.* is given, and {rest} is no mechanism of logins here")
            raise ConfigError(f"listener.name.{name}.* is given, and listeners has {', '.join(known.values())} only")


def _check_mechanisms(listener: ListenerSettings) -> None:
    if listener.protocol.has_sasl and not listener.values["sasl.enabled.mechanisms"]:
        raise ConfigError(
            f"listener {listener.name} is {listener.protocol.name}, and sasl.enabled.mechanisms is empty: "
            "set it to some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
        )


def moved(listener: ListenerSettings, host: str, port: int) -> ListenerSettings:
    """Return the same listener at another address."""
    return replace(listener, host=host, port=port)


def _twice(entries: Iterable[Each]) -> list[Each]:
    """Return the entries that occur more than once."""
    listed = list(entries)
    return [each for each in dict.fromkeys(listed) if listed.count(each) > 1]
