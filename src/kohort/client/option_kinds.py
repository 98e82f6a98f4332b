"""The kinds of client options, each as one call in the tables of `typed_options.py`, whose fields have the names.

Source: Apache Kafka's ConfigDef.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, get_args

from kohort.base.options import Option, parse_bool, parse_function, parse_int, parse_list, parse_str
from kohort.client.core.actions import Endpoint
from kohort.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
#: Values of `security.protocol`.
Protocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS: Final = get_args(Protocol)


def number(default: int | None, doc: str, *, minimum: int = 0, maximum: int | None = INT32_MAX) -> Option:
    """Declare an option for a whole number within limits."""
    return Option(parse=parse_int, default=default, doc=doc, minimum=minimum, maximum=maximum)


def switch(default: bool, doc: str) -> Option:
    """Declare an option that is true or false."""
    return Option(parse=parse_bool, default=default, doc=doc)


def text(default: str | None, doc: str) -> Option:
    """Declare an option for any text, or for the words of a `Literal`; `None`: there is none by default."""
    return Option(parse=parse_str, default=default, doc=doc)


def secret(doc: str) -> Option:
    """Declare an option for a text that no message shows; none by default."""
    return Option(parse=parse_str, default=None, doc=doc, is_secret=True)


def function(doc: str) -> Option:
    """Declare an option for a function of the application's; none by default."""
    return Option(parse=parse_function, default=None, doc=doc)


def parsed(parse: Callable[[object], Any], default: object, doc: str) -> Option:
    """Declare an option that has a parser of its own."""
    return Option(parse=parse, default=default, doc=doc)


def parse_codec(given: object) -> str:
    """Read a codec; kafka-python and aiokafka call "none" `None`."""
    return "none" if given is None else parse_str(given)


def parse_servers(given: object) -> list[str]:
    """Read host:port addresses, a list or one text with commas, and check each."""
    servers = parse_list(given)
    if not servers:
        raise ValueError("at least one host:port is expected")
    for server in servers:
        endpoint_of(server)
    return servers


def check_protocols(servers: list[str], protocol: str) -> None:
    """Refuse addresses with another protocol than `security.protocol`."""
    for server in servers:
        said = server.rpartition("://")[0].upper()
        if said not in ("", protocol):
            raise ConfigError(
                f"bootstrap.servers says {said}, and security.protocol is {protocol}: set that to {said}, or leave "
                f"{said}:// out"
            )


def endpoint_of(server: str) -> Endpoint:
    """Read one address, with or without the protocol before it."""
    # Kafka writes listeners as "SASL_SSL://host:port" elsewhere, which is easily pasted here.
    protocol, _, address = server.rpartition("://")
    if protocol.upper() not in ("", *PROTOCOLS):
        raise ValueError(f"{protocol} is no protocol of Kafka's: {', '.join(PROTOCOLS)} are")
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{server!r} is not host:port, for example 127.0.0.1:9092")
    if len(port.lstrip("0")) > 5 or not 0 < int(port[-5:]) < 65536:
        raise ValueError(f"the port of {server!r} is out of range, 1 to 65535")
    return Endpoint(host, int(port))
