"""A broker's small HTTP server: `/metrics`, `/healthz` and `/readyz`; the console serves the same paths.

Laws: the server changes nothing. A connection has one request at a time, with a bounded head. The times for the head
and for the response are bounded. At the limit of connections a new one replaces the connection that has waited longest
for a request. A page is built once for all scrapers that request it meanwhile. On a loopback address the header Host
has to name this machine, so that a page in a browser cannot read the metrics by DNS rebinding.
Source: RFC 9112; slow clients are those of requirement B4.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

from kohort.broker.connections.sockets import is_loopback, plain_host

log = logging.getLogger("kohort.broker.http")

#: The most bytes of a request's head; Prometheus sends some 300.
HEAD_BYTES: Final = 16 * 1024
#: The most connections at a time, for a few scrapers and health checks.
MOST_CONNECTIONS: Final = 64
#: The time limits of a connection's first request, and of its next ones. The last is that of building the response, and
#: of sending it.
HEAD_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 75.0
ANSWER_SECONDS: Final = 30.0
#: The most bytes of a response in the buffer of a transport.
_PIECE_BYTES: Final = 64 * 1024
#: Headers that announce a body, which no request needs.
_WITH_BODY: Final = ("content-length", "transfer-encoding")
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its path, its query parameters, and its headers by their names in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    body: bytes
    content_type: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK


Handler = Callable[[Asked], Awaitable[Answer]]


class HttpServing(Protocol):
    """A server of a table of paths: this module's, or the console."""

    async def start(self, bound: socket.socket) -> None: ...
    def sockets(self) -> list[socket.socket]: ...
    def stop(self) -> None: ...


#: Creates a server; arguments: path -> handler, and the name of each listener -> its address.
HttpMaker = Callable[[Mapping[str, Handler], Mapping[str, tuple[str, int]]], HttpServing]


class _BadRequestError(Exception):
    """A request that is refused; its connection is closed."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status: Final = status


class _Open:
    """One open connection; `since`: when it began to wait for a request, `None` during a request."""

    __slots__ = ("since", "writer")

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer: Final = writer
        self.since: float | None = time.monotonic()


class HttpServer:
    """An HTTP server of a table of paths, on one socket."""

    def __init__(self, paths: Mapping[str, Handler], *, names: Iterable[str] = ()) -> None:
        """Create a server; `names`: further names of this machine that Host may have."""
        self._paths: Final = paths
        self._names: Final = {"localhost", *names}
        self._is_loopback = True
        self._server: asyncio.Server | None = None
        self._open: Final[set[_Open]] = set()

    async def start(self, bound: socket.socket) -> None:
        """Serve on a bound socket."""
        self._is_loopback = is_loopback(bound.getsockname()[0])
        self._server = await asyncio.start_server(self._serve, sock=bound, limit=HEAD_BYTES)

    def sockets(self) -> list[socket.socket]:
        """Return the sockets, which a forked child closes."""
        found = [] if self._server is None else list(self._server.sockets)
        return [*found, *(each.writer.get_extra_info("socket") for each in self._open)]

    def stop(self) -> None:
        """Close the socket and all connections."""
        if self._server is not None:
            self._server.close()
        for each in list(self._open):
            each.writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this = _Open(writer)
        if not self._make_room():
            writer.write(_head(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, 0, is_last=True))
            writer.close()
            return
        self._open.add(this)
        writer.transport.set_write_buffer_limits(high=_PIECE_BYTES)
        try:
            limit_s = HEAD_SECONDS
            while await self._answer_next(this, reader, limit_s):
                this.since, limit_s = time.monotonic(), IDLE_SECONDS
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            # The client has disconnected, or is too slow.
            writer.transport.abort()
        finally:
            self._open.discard(this)
            writer.close()

    def _make_room(self) -> bool:
        """Close the longest waiting connection if the limit is reached; return `False` if none waits."""
        if len(self._open) < MOST_CONNECTIONS:
            return True
        waiting = [each for each in self._open if each.since is not None]
        if not waiting:
            return False
        longest = min(waiting, key=lambda each: each.since or 0.0)
        self._open.discard(longest)
        longest.writer.transport.abort()
        return True

    async def _answer_next(self, this: _Open, reader: asyncio.StreamReader, limit_s: float) -> bool:
        """Read a request and respond to it; return whether another one may follow."""
        try:
            async with asyncio.timeout(limit_s):
                head = await _read_head(reader)
            this.since = None
            asked, is_last = _parse(head)
            self._check_host(asked)
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._answer(asked)
        except _BadRequestError as why:
            asked, is_last = Asked("GET", "", {}, {}), True
            answer = Answer(f"{why}\n".encode(), status=why.status)
        writer = this.writer
        writer.write(_head(answer.status, answer.content_type, len(answer.body), is_last=is_last))
        body = memoryview(answer.body if asked.method != "HEAD" else b"")
        async with asyncio.timeout(ANSWER_SECONDS):
            for at in range(0, len(body), _PIECE_BYTES):
                writer.write(body[at : at + _PIECE_BYTES])
                await writer.drain()
            await writer.drain()
        return not is_last

    async def _answer(self, asked: Asked) -> Answer:
        handler = self._paths.get(asked.path)
        if handler is None:
            known = " ".join(path for path in self._paths if path != "/")
            return Answer(f"there is no such page; there are: {known}\n".encode(), status=HTTPStatus.NOT_FOUND)
        try:
            return await handler(asked)
        except Exception:
            log.exception("event=http_failed path=%s", asked.path)
            return Answer(b"the page could not be made; the log says why\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)

    def _check_host(self, asked: Asked) -> None:
        if not self._is_loopback or "host" not in asked.headers:
            return
        host = urlsplit(f"//{asked.headers['host']}").hostname or ""
        if host.lower() in self._names:
            return
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(plain_host(host))
            return
        raise _BadRequestError(HTTPStatus.FORBIDDEN, "the header Host names another machine")


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    first = await reader.readexactly(1)
    # Kafka requests begin with a length below 2**30, and TLS with 22. Both get a response in HTTP.
    if not first.isalpha():
        raise _BadRequestError(
            HTTPStatus.BAD_REQUEST,
            "HTTP without TLS is spoken at this port: Kafka's clients connect to the port of `listeners`",
        )
    try:
        return first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _BadRequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head may have {HEAD_BYTES} bytes"
        ) from None


def _parse(head: bytes) -> tuple[Asked, bool]:
    """Parse the head of a request; return the request, and whether its connection closes afterwards."""
    request, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = request.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "METHOD PATH HTTP/1.1 is expected")
    method, target, version = words
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name == "host" and name in headers):
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, "a header is NAME: VALUE, and Host comes once")
        headers[name] = f"{headers[name]},{value.strip()}" if name in headers else value.strip()
    if version == "HTTP/1.1" and "host" not in headers:
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "HTTP/1.1 has a header Host")
    if method not in ("GET", "HEAD"):
        raise _BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD are served")
    if any(headers.get(name, "0") != "0" for name in _WITH_BODY):
        raise _BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body")
    try:
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query, max_num_fields=20).items()}
    except ValueError:
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "the path cannot be read") from None
    wishes = headers.get("connection", "").lower()
    is_last = "close" in wishes or (version == "HTTP/1.0" and "keep-alive" not in wishes)
    return Asked(method, parts.path, query, headers), is_last


def _head(status: HTTPStatus, content_type: str, size: int, *, is_last: bool) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{allow}"
        f"Connection: {'close' if is_last else 'keep-alive'}\r\n\r\n"
    ).encode()
