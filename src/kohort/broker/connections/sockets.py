"""The binding of a broker's listening sockets, and the refusal of insecure listeners.

Laws: all sockets are bound or none is, before anything else of the broker is opened. A listener that other machines can
reach without a login or without TLS is refused, unless `allow.anonymous.beyond.loopback` allows it.
Source: Apache Kafka's `SocketServer.Acceptor.openServerSocket`; there an open listener starts without a word.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from typing import Final

from kohort.broker.options.listeners import ListenerSettings, address
from kohort.broker.options.settings import BrokerSettings
from kohort.errors import ConfigError, KohortError, StorageError
from kohort.storage.data_directory import broker_on
from kohort.storage.files.fs import DiskFileSystem


class BrokerStartError(KohortError):
    """A broker that could not be started; the message has the reason and a remedy."""


#: The three ways out for a listener that strangers could reach.
WAYS_OUT: Final = (
    "secure it (SASL_SSL, or SSL with ssl.client.auth=required), listen on 127.0.0.1, or let everyone in with "
    "--allow-anonymous (allow.anonymous.beyond.loopback=true)"
)


def listen_on_all(settings: BrokerSettings, *, speaks_http: bool = False) -> list[socket.socket]:
    """Bind a socket for each listener in order, then for HTTP; `BrokerStartError` names a failing one.

    `ConfigError`: a listener with TLS lacks a usable key or certificate.
    """
    for each in settings.listeners:
        check_certificates(each)
    with contextlib.ExitStack() as opened:
        http = settings.http_listener if speaks_http else None
        places = settings.listeners if http is None else (*settings.listeners, http)
        bound = [opened.enter_context(listen_on(settings, each)) for each in places]
        opened.pop_all()
    return bound


def listen_on(settings: BrokerSettings, listener: ListenerSettings | None = None) -> socket.socket:
    """Bind the socket of a listener, by default the first one; `BrokerStartError` names its host and port."""
    listener = listener or settings.listeners[0]
    host, port = listener.host, listener.port
    try:
        # Of a text the module `encodings.idna` is loaded, two milliseconds, which an address does not need.
        place = host.encode() if host.replace(".", "").isdecimal() and host.isascii() else host
        family, kind, protocol, _, found = socket.getaddrinfo(
            place, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as why:
        # A name with an empty or too long part is no error of the system's.
        reason = getattr(why, "strerror", None) or "it is no host name"
        raise BrokerStartError(f"cannot listen on {address(host, port)}: {reason}; check the host name") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and _shares_port(settings, listener):
            # By itself a socket of every IPv6 address takes IPv4's as well.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(found)
        # An address may stand behind a name: what counts is where the socket is.
        refuse_strangers(listener, listening.getsockname()[0])
        # Two sockets may be bound to one port until one of them listens.
        listening.listen(listener.values["socket.listen.backlog.size"])
    except OSError as why:
        listening.close()
        raise BrokerStartError(f"cannot listen on {address(host, port)}: {_advice(settings, why)}") from None
    except BaseException:
        listening.close()
        raise
    return listening


def check_certificates(listener: ListenerSettings) -> None:
    """Raise `ConfigError` if a listener has TLS and its certificates cannot be loaded."""
    if not listener.protocol.has_tls:
        return
    # A broker without TLS does not pay for this import.
    from kohort.security.server_tls import ServerTls

    try:
        ServerTls(listener.values)
    except ConfigError as why:
        raise ConfigError(f"listener {listener.name}: {why}") from None


def refuse_strangers(listener: ListenerSettings, bound_to: str) -> None:
    """Raise `BrokerStartError` if other machines can reach a listener that lacks a login or TLS."""
    lacking = lacks(listener)
    if lacking and not is_loopback(bound_to) and not listener.values["allow.anonymous.beyond.loopback"]:
        raise BrokerStartError(
            f"listener {listener.name} on {address(listener.host, listener.port)} can be reached from other machines "
            f"without {lacking}: {WAYS_OUT}"
        )


def lacks(listener: ListenerSettings) -> str:
    """Return the missing protection of a listener, as words (login, TLS); empty if both are there."""
    missing = (("a login", listener.has_login), ("TLS", listener.protocol.has_tls))
    return " and ".join(words for words, is_there in missing if not is_there)


def is_loopback(bound_to: str) -> bool:
    """Return whether a listening socket with this address is reachable from this machine only.

    >>> [is_loopback(each) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "10.0.0.7")]
    [True, True, True, False, False, False]
    """
    found = ipaddress.ip_address(bound_to)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def plain_host(host: str) -> str:
    """Return a peer's address in canonical form: an IPv4-mapped IPv6 address becomes plain IPv4.

    >>> plain_host("::ffff:10.0.0.7"), plain_host("fe80::1")
    ('10.0.0.7', 'fe80::1')
    """
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def _shares_port(settings: BrokerSettings, listener: ListenerSettings) -> bool:
    return listener.port != 0 and sum(each.port == listener.port for each in settings.listeners) > 1


def _advice(settings: BrokerSettings, why: OSError) -> str:
    if why.errno == errno.EACCES:
        return "this user may not use that port; choose one above 1023"
    if why.errno == errno.EADDRNOTAVAIL:
        return "this host has no such address"
    if why.errno != errno.EADDRINUSE:
        return str(why.strerror)
    running = None
    if settings.data_dir is not None:
        with contextlib.suppress(StorageError):
            running = broker_on(DiskFileSystem(), settings.data_dir)
    if running is None:
        return "the port is in use; stop the program that holds it or choose another port (0 takes a free one)"
    return f"kohort is already running{running} on {settings.data_dir}; use that one, or stop it first"
