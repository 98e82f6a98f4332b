"""uvicorn on a socket, with a loop and a thread of its own.

Laws: a request has a bounded head, and a connection a bounded time for it: half a request holds no place for long. What
the broker's loop answers is asked there, and never computed here.
Source: `broker/http.py`, whose limits these are.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kohort.broker.connections.sockets import is_loopback
from kohort.broker.http import HEAD_BYTES, HEAD_SECONDS, IDLE_SECONDS
from kohort.broker.options.listeners import address
from kohort.console.access import Access, Mode
from kohort.console.app import Console
from kohort.console.reader import ClusterReader
from kohort.errors import ConfigError
from kohort.security.server_tls import build_own_context

if TYPE_CHECKING:
    from kohort.broker.http import Answer, Asked, Handler
    from kohort.broker.options.settings import BrokerSettings

#: Connections at a time: tabs have two each. From the second number on those make room that have sent no request.
_MOST_CONNECTIONS, _FULL = 1_000, 700
#: Calls of the admin client at a time.
_THREADS: Final = 4
#: Calls of the console answer soon, or the page says that the cluster does not.
_TIMES: Final = {"request.timeout.ms": 5_000, "default.api.timeout.ms": 8_000}


class _Protocol(H11Protocol):
    """A connection that is closed if a request that it has begun, or its first one, is not whole soon."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        waiting = self.connections if len(self.connections) >= _FULL else ()
        late = [(each._late.when(), each) for each in waiting if isinstance(each, _Protocol) and each._late]
        if late:
            _, oldest = min(late, key=itemgetter(0))
            # It is lost, and counted, until the next turn of the loop.
            oldest._forget_wait()
            oldest.transport.abort()
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not (self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]):
            self._forget_wait()
        elif self._late is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_wait()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _forget_wait(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class ConsoleServer:
    """Serves a console on a bound socket.

    `options`: of the admin client; one with a user is the console's own login, unless `asks_for_users`.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        bound: socket.socket,
        *,
        paths: Mapping[str, Handler] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        has_changes: bool = False,
        has_free_metrics: bool = False,
        asks_for_users: bool = False,
        token: str = "",
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        """Create a server; `loop`: where the handlers of `paths` run, by default that of the server."""
        self._options: Final = {**_TIMES, "client.id": "kohort-console", **options}
        self.bound: Final = bound
        self._scheme: Final = "https" if certificate else "http"
        self._threads: Final = ThreadPoolExecutor(_THREADS, "kohort-console")
        is_near = is_loopback(bound.getsockname()[0])
        mode: Mode = "users" if asks_for_users else "token" if token or not is_near else "open"
        token = token or (secrets.token_urlsafe(18) if mode == "token" else "")
        free = ("/metrics",) if has_free_metrics else ()
        self.access: Final = Access(mode, self._open_reader, is_loopback=is_near, token=token, free=free)
        paths = {path: _elsewhere(handler, loop) if loop else handler for path, handler in (paths or {}).items()}
        self.console: Final = Console(self.access, paths=paths, has_changes=has_changes)
        # What a browser does wrong is no error of this program: the console logs what is.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        settings = uvicorn.Config(
            self.console.app(),
            loop="asyncio",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=int(IDLE_SECONDS),
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD_BYTES,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        try:
            settings.load()
        except (OSError, ValueError) as why:
            raise ConfigError(f"the certificate {certificate} or its key cannot be used: {why}") from None
        self._server: Final = uvicorn.Server(settings)
        #: A console that has its process for itself reads its cluster before the first page is asked for.
        self._reads_ahead: Final = loop is None
        self._thread: threading.Thread | None = None

    def _open_reader(self, name: str = "", password: str = "") -> ClusterReader:
        options = dict(self._options)
        if name:
            options |= {"sasl.username": name, "sasl.password": password}
            options.setdefault("sasl.mechanism", "SCRAM-SHA-512")
        return ClusterReader(options, self._threads)

    def url(self) -> str:
        """Return the address to open, with its token if it has one."""
        host, port = self.bound.getsockname()[:2]
        query = f"?token={self.access.token}" if self.access.token else ""
        return f"{self._scheme}://{address(host, port)}/{query}"

    def start(self) -> None:
        """Serve on a thread."""
        self._thread = threading.Thread(target=self.run, name="kohort-console", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Serve until `stop`."""
        with asyncio.Runner() as runner:
            runner.run(self._serve())
        self.access.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        ahead = asyncio.create_task(self._read_ahead()) if self._reads_ahead else None
        try:
            await self._server.serve(sockets=[self.bound])
        finally:
            if ahead is not None:
                ahead.cancel()

    async def _read_ahead(self) -> None:
        self.console.prepare()
        if self.access.mode != "users":
            await self.access.own().reader.know()

    def stop(self) -> None:
        """End soon, and do not wait for tabs."""
        self._server.should_exit = True

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join(seconds)


def _elsewhere(handler: Handler, loop: asyncio.AbstractEventLoop) -> Handler:
    """Let a handler run on another loop."""

    async def ask(asked: Asked) -> Answer:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(handler(asked), loop))  # type: ignore[arg-type]

    return ask


class BrokerConsole:
    """The console of a broker in its own process, in place of its small HTTP server.

    Law: it asks the broker over the wire, as any other client: the broker's loop computes no page but its own paths.
    """

    def __init__(self, settings: BrokerSettings, **options: Any) -> None:
        """Create a console; `options`: further arguments of its `ConsoleServer`."""
        self._settings: Final = settings
        self._options: Final = options
        self._paths: Mapping[str, Handler] = {}
        self._addresses: Mapping[str, tuple[str, int]] = {}
        self._server: ConsoleServer | None = None

    def make(self, paths: Mapping[str, Handler], addresses: Mapping[str, tuple[str, int]]) -> BrokerConsole:
        """Take the paths and the addresses of the broker that starts (`HttpMaker`)."""
        self._paths, self._addresses = paths, addresses
        return self

    async def start(self, bound: socket.socket) -> None:
        """Serve on a bound socket, with the paths on this loop."""
        options = self_options(self._settings, self._addresses)
        is_open = bool(self._settings.values["allow.anonymous.beyond.loopback"])
        has_users = str(options["security.protocol"]).startswith("SASL")
        # With the broker's own certificate a visitor would do without one of his own.
        is_guarded = not has_users and all(each.has_login for each in self._settings.listeners)
        self._server = ConsoleServer(
            options,
            bound,
            paths=self._paths,
            loop=asyncio.get_running_loop(),
            has_free_metrics=is_open or is_loopback(bound.getsockname()[0]),
            asks_for_users=has_users,
            token=secrets.token_urlsafe(18) if is_guarded else "",
            **self._options,
        )
        self._server.start()

    def url(self) -> str:
        """Return the address to open, with its token if it has one."""
        assert self._server is not None, "it was started"
        return self._server.url()

    def sockets(self) -> list[socket.socket]:
        """Return the socket that is listened on, which a forked child gives up."""
        return [] if self._server is None else [self._server.bound]

    def stop(self) -> None:
        """End soon; the broker does not wait for it."""
        if self._server is not None:
            self._server.stop()

    def join(self) -> None:
        """Wait a little for the end of its thread."""
        if self._server is not None:
            self._server.join(3.0)


def self_options(settings: BrokerSettings, addresses: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """Return the client options with which a program reaches the broker within it: by the listener that asks least."""
    listener = min(settings.listeners, key=lambda each: (each.has_login, each.protocol.has_tls))
    host, port = addresses[listener.name]
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    options: dict[str, Any] = {
        "bootstrap.servers": address(near, port),
        "security.protocol": listener.protocol.name,
    }
    if listener.protocol.has_tls:
        # The port is this process's own: its certificate has nothing to prove here, but may have to be shown.
        options["ssl.context"] = build_own_context(listener.values)
    if listener.protocol.has_sasl:
        enabled = listener.values["sasl.enabled.mechanisms"]
        known = [each for each in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN") if each in enabled]
        options["sasl.mechanism"] = (known or ["SCRAM-SHA-512"])[0]
    return options
