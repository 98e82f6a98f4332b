"""The keys of an identity provider: fetched in a thread, kept, and fetched again for an unknown key.

Laws: a fetch is bounded in time and size, follows no redirect, and uses http:// only with this machine. Keys stay in
force until new ones have been fetched. So an endpoint that hangs, is unreachable or returns HTML blocks only logins
that need a new key, and those fail in bounded time. The backoff alone limits how often keys are fetched, however many
unknown keys tokens name.
Source: RFC 7517 (JWKS); Apache Kafka's RefreshingHttpsJwks and `sasl.oauthbearer.jwks.endpoint.*`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import logging
import os
import socket
import ssl
import stat
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kohort.base.values import value
from kohort.broker.scheduling import BlockingWork
from kohort.errors import ConfigError
from kohort.security.jwt import (
    LONGEST_KEYS_BYTES,
    NO_KEYS,
    KeySet,
    TokenRules,
    UnverifiedToken,
    parse_keys,
    require_library,
)

log = logging.getLogger("kohort.broker.access")

#: The time limit of a fetch, and of each wait for the endpoint within it.
FETCH_SECONDS: Final = 5.0
#: The time that a login waits for a key; the client's login may take twice as long.
WAIT_SECONDS: Final = 4.0
_OPTION: Final = "sasl.oauthbearer.jwks.endpoint.url"
_CHUNK_BYTES: Final = 65_536


@value
class JwksUrl:
    """The URL of the keys; `host` is empty for a file."""

    is_encrypted: bool
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        """Return the URL without its query, which may have a secret."""
        path = self.path.partition("?")[0]
        if not self.host:
            return f"file://{path}"
        name = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{'https' if self.is_encrypted else 'http'}://{name}{port}{path}"

    @classmethod
    def of(cls, text: str) -> JwksUrl:
        """Parse the URL of keys; the message of a `ConfigError` has no secret of the URL."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise ConfigError(f"{_OPTION} is no address: https://HOST/PATH or file:///PATH is expected") from None
        if "@" in parts.netloc:
            raise ConfigError(f"{_OPTION} has a user or password in it: keys are public, and are fetched without")
        if parts.scheme == "file":
            if host not in ("", "localhost") or not parts.path:
                raise ConfigError(f"{_OPTION} names no file of this machine: file:///PATH is expected")
            return cls(is_encrypted=False, host="", port=None, path=unquote(parts.path))
        if parts.scheme not in ("https", "http") or not host:
            raise ConfigError(f"{_OPTION} is no address: https://HOST/PATH or file:///PATH is expected")
        # Over plain HTTP an attacker in the network could replace the keys.
        if parts.scheme == "http" and not _is_this_machine(host):
            raise ConfigError(f"{_OPTION} is http://, which is for this machine alone: https:// is expected")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not path.isascii() or any(not "!" <= character <= "~" for character in path):
            raise ConfigError(f"{_OPTION} has a character that no address has")
        return cls(is_encrypted=parts.scheme == "https", host=host, port=port, path=path)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def token_rules(values: Mapping[str, Any]) -> TokenRules:
    """Return the rules by which a listener with these options verifies tokens."""
    return TokenRules(
        issuer=values["sasl.oauthbearer.expected.issuer"] or None,
        audiences=tuple(values["sasl.oauthbearer.expected.audience"] or ()),
        scope_claim=values["sasl.oauthbearer.scope.claim.name"],
        required_scope=tuple((values["sasl.oauthbearer.required.scope"] or "").split()),
        name_claim=values["sasl.oauthbearer.sub.claim.name"],
        clock_skew_ms=values["sasl.oauthbearer.clock.skew.seconds"] * 1000,
    )


class Jwks:
    """The keys of one listener's identity provider; all methods are called on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        url: JwksUrl,
        *,
        refresh_ms: int,
        backoff_ms: int,
        most_backoff_ms: int,
        fetch_seconds: float = FETCH_SECONDS,
    ) -> None:
        self._loop: Final = loop
        self._url: Final = url
        self._refresh_seconds: Final = refresh_ms / 1000
        self._least_pause: Final = backoff_ms / 1000
        self._most_pause: Final = max(backoff_ms, most_backoff_ms) / 1000
        self._fetch_seconds: Final = fetch_seconds
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-jwks")
        #: The keys in force.
        self.keys: KeySet = NO_KEYS
        #: The number of fetches that have begun, and the fetch in progress.
        self._begun = 0
        self._under_way: _Fetch | None = None
        #: The number of the last finished fetch, and the logins that wait for the end of a fetch.
        self._ended = 0
        self._waiting: Final[set[asyncio.Future[None]]] = set()
        #: The timer of the next fetch, and that of the time limit of the fetch in progress.
        self._next: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        #: The pause before the next requested fetch, seconds, and its end, in the loop's time.
        self._pause = self._least_pause
        self._not_before = 0.0
        self._has_failed = False
        self._is_stopped = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, values: Mapping[str, Any]) -> Jwks:
        """Create the keys of a listener with these options; raise `ConfigError` if options are missing."""
        require_library()
        if not values[_OPTION]:
            raise ConfigError(f"OAUTHBEARER needs {_OPTION}: where the issuer's keys are, https:// or file://")
        if not values["sasl.oauthbearer.expected.audience"]:
            # Apache Kafka has the same default, with which a token for another service of the issuer logs in here.
            log.warning(
                "event=tokens_for_any_audience action='set sasl.oauthbearer.expected.audience, or a token for "
                "another service logs in here'"
            )
        prefix = "sasl.oauthbearer.jwks.endpoint."
        return cls(
            loop,
            JwksUrl.of(values[_OPTION]),
            refresh_ms=values[f"{prefix}refresh.ms"],
            backoff_ms=values[f"{prefix}retry.backoff.ms"],
            most_backoff_ms=values[f"{prefix}retry.backoff.max.ms"],
        )

    def start(self) -> None:
        """Read the file, or begin to fetch the keys; `ConfigError` if the file has none."""
        if not self._url.host:
            try:
                self.keys = read_keys(self._url, _Fetch())
            except (OSError, ValueError) as why:
                raise ConfigError(f"{_OPTION}: {self._url} cannot be used: {_reason(why)}") from None
            self._next = self._loop.call_later(self._refresh_seconds, self._begin)
        else:
            # The provider may start after the broker, so logins wait for the first fetch, and the start does not.
            self._begin()

    def stop(self) -> None:
        """Abort the fetch in progress, and start no other."""
        self._is_stopped = True
        for timer in (self._next, self._limit):
            if timer is not None:
                timer.cancel()
        if self._under_way is not None:
            self._under_way.abort()
        self._thread.stop()
        self._tell()

    async def fetch(self, token: UnverifiedToken) -> None:
        """Fetch keys until a key of the token is known; give up after a bounded time."""
        until = self._loop.time() + WAIT_SECONDS
        # The fetch in progress may have begun before the key was published. The next one has not.
        enough = self._begun + 1
        while not self.keys.knows(token) and self._ended < enough and not self._is_stopped:
            left = until - self._loop.time()
            if left <= 0 or (self._under_way is None and not self._may_begin_within(left)):
                return
            told = self._loop.create_future()
            self._waiting.add(told)
            try:
                await asyncio.wait_for(told, left)
            except TimeoutError:
                return
            finally:
                self._waiting.discard(told)

    def _may_begin_within(self, seconds: float) -> bool:
        """Schedule a fetch as soon as the backoff allows; return `False` if `seconds` are too short for it."""
        now = self._loop.time()
        if now > self._not_before + self._most_pause:
            # The last fetch without a new key is long ago, so the backoff starts again.
            self._pause = self._least_pause
        pause = max(self._not_before - now, 0.0)
        if pause > seconds:
            return False
        if self._next is None or self._next.when() > now + pause:
            self._plan(pause)
        return True

    def _plan(self, seconds: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = None if self._is_stopped else self._loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._next = None
        if self._under_way is not None:
            return
        self._begun += 1
        fetch = self._under_way = _Fetch()
        # An endpoint that sends a byte at times passes the limit of each wait. Only this timer limits the whole fetch.
        self._limit = self._loop.call_later(self._fetch_seconds, fetch.abort)
        self._thread.submit(lambda: read_keys(self._url, fetch, seconds=self._fetch_seconds), self._end)

    def _end(self, result: KeySet | Exception) -> None:
        """Use the new keys, or keep the old ones after a failure; schedule the next fetch."""
        self._under_way = None
        if self._limit is not None:
            self._limit.cancel()
        if self._is_stopped:
            return
        if isinstance(result, Exception):
            self._note_failure(result)
        else:
            self._take(result)
        self._not_before = self._loop.time() + self._pause
        self._plan(self._pause if self._has_failed else self._refresh_seconds)
        self._tell()

    def _take(self, keys: KeySet) -> None:
        if self._has_failed:
            log.info("event=jwks_fetched url=%s keys=%d", self._url, len(keys))
        is_changed, self._has_failed = keys.ids != self.keys.ids, False
        self.keys = keys
        # A fetch without a new key was requested for a key that does not exist, so the next one waits longer.
        self._pause = self._least_pause if is_changed else min(self._pause * 2, self._most_pause)

    def _note_failure(self, why: Exception) -> None:
        if not isinstance(why, OSError | ValueError | http.client.HTTPException):
            log.error("event=jwks_failed url=%s", self._url, exc_info=why)
        elif not self._has_failed:
            # Fetches are repeated every few seconds, so only the first failure in a row is logged.
            log.warning(
                "event=jwks_failed url=%s reason=%r; the %d keys from before stay, logins that need another one fail",
                *(str(self._url), _reason(why), len(self.keys)),
            )
        self._has_failed = True
        self._pause = min(self._pause * 2, self._most_pause)

    def _tell(self) -> None:
        self._ended = self._begun
        waiting = list(self._waiting)
        self._waiting.clear()
        for each in waiting:
            if not each.done():
                each.set_result(None)


def _reason(why: Exception) -> str:
    """Return the reason why a fetch failed, without any text of the endpoint."""
    if isinstance(why, http.client.HTTPException):
        return "it does not speak HTTP"
    if isinstance(why, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({why.verify_message})"
    if isinstance(why, TimeoutError):
        return "it does not respond in time"
    return str(why.strerror or why) if isinstance(why, OSError) else str(why)


class _Fetch:
    """One fetch, which the loop can abort while a thread carries it out."""

    __slots__ = ("_connection", "is_aborted")

    def __init__(self) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self.is_aborted = False

    def abort(self) -> None:
        """Abort the fetch: shut its socket down, so that a thread that waits for the endpoint wakes up."""
        self.is_aborted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                # The `shutdown` of a TLS socket would let the thread read on without TLS.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def hold(self, connection: http.client.HTTPConnection) -> None:
        """Keep the connection for `abort`; raise `TimeoutError` if the fetch was aborted before."""
        self._connection = connection
        if self.is_aborted:
            raise TimeoutError


def read_keys(url: JwksUrl, fetch: _Fetch, *, seconds: float = FETCH_SECONDS) -> KeySet:
    """Fetch and parse the keys; called in a thread.

    Raises `OSError`, `ValueError` or `HTTPException`.
    """
    return parse_keys(_read(url, fetch, seconds) if url.host else _read_file(url.path))


def _read_file(path: str) -> bytes:
    # A device may never end and a pipe may wait for a writer, so neither is read.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is no file")
    with open(path, "rb") as file:
        return file.read(LONGEST_KEYS_BYTES + 1)


def _read(url: JwksUrl, fetch: _Fetch, seconds: float) -> bytes:
    until = time.monotonic() + seconds
    connection: http.client.HTTPConnection
    if url.is_encrypted:
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(url.host, url.port, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(url.host, url.port, timeout=seconds)
    fetch.hold(connection)
    with contextlib.closing(connection):
        try:
            connection.request("GET", url.path, headers={"Accept": "application/json", "User-Agent": "kohort"})
            response = connection.getresponse()
            if response.status != 200:
                # A redirect fails as well: the keys of another host are those of another issuer.
                raise ValueError(f"it responds with HTTP {response.status}")
            parts, size = [], 0
            # `read` would wait for the requested number of bytes; `read1` returns the bytes that have arrived.
            while part := response.read1(_CHUNK_BYTES):
                parts.append(part)
                size += len(part)
                if size > LONGEST_KEYS_BYTES:
                    raise ValueError(f"it has more than {LONGEST_KEYS_BYTES} bytes")
                if time.monotonic() > until:
                    raise TimeoutError
            if fetch.is_aborted:
                raise TimeoutError
            return b"".join(parts)
        except (OSError, http.client.HTTPException):
            if fetch.is_aborted:
                raise TimeoutError from None
            raise
