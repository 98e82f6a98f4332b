"""The opening of connections to brokers: a socket, TLS around it, and the login to begin with.

Laws: an attempt ends in time, in a connection or in one sentence that says what failed and what to set.
Source: Kafka's `socket.connection.setup.timeout.ms` and `security.protocol`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from kohort.client.actions import Endpoint
from kohort.client.authenticator import SignIn
from kohort.client.events import Failure
from kohort.client.io.connection import Connection, connect
from kohort.client.io.credentials import Credentials, TokenFailed
from kohort.client.options import ClientSettings
from kohort.security.tls import explain

#: TLS errors for a peer that does not speak TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


class Unopened(Exception):
    """A connection could not be opened; `failure` is for machines, `reason` for people."""

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(failure, reason)
        self.failure = failure
        self.reason = reason


class Opener:
    """Opens the connections of one client."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings: Final = settings
        self._tls: Final = settings.security.tls
        sasl = settings.security.sasl
        self._credentials: Final = None if sasl is None else Credentials(sasl)

    async def sign_in(self) -> SignIn | None:
        """Return a login for one connection; `None`: none is wanted. Raise `Unopened` without a token."""
        if self._credentials is None:
            return None
        limit_ms = self._settings.options["request_timeout_ms"]
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._credentials.sign_in()
        except TokenFailed as why:
            raise Unopened(Failure.NOT_AUTHENTICATED, str(why)) from None
        except TimeoutError:
            reason = f"sasl.oauth.token.provider made no token within {limit_ms / 1000:g} s"
            raise Unopened(Failure.NOT_AUTHENTICATED, reason) from None

    def on_refused(self) -> None:
        """Forget the token, since a broker has refused the login."""
        if self._credentials is not None:
            self._credentials.forget_token()

    async def open(self, to: Endpoint, build: Callable[[SignIn | None], Connection], *, timeout_ms: int) -> Connection:
        """Connect the connection that `build` makes of a login. Raise `Unopened` if that fails."""
        connection = build(await self.sign_in())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transport = await connect(lambda: connection, to, self._tls)
        except ssl.SSLError as error:
            is_other = (error.reason or "") in _NO_TLS
            failure = Failure.NO_BROKER if is_other else Failure.NOT_AUTHENTICATED
            raise Unopened(failure, explain(error, to.host)) from error
        except (OSError, ValueError, OverflowError) as error:
            # An impossible name or port raises ValueError or OverflowError. Brokers name addresses, too.
            raise Unopened(Failure.UNREACHABLE, _reason(error, is_tls=self._tls is not None)) from error
        self._size_buffers(transport)
        return connection

    def _size_buffers(self, transport: asyncio.Transport) -> None:
        handle = transport.get_extra_info("socket")
        if self._settings.options["receive_buffer_bytes"] >= 0:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.options["receive_buffer_bytes"])
        if self._settings.options["send_buffer_bytes"] >= 0:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.options["send_buffer_bytes"])


def _reason(error: Exception, *, is_tls: bool) -> str:
    if isinstance(error, TimeoutError):
        asked = "; is TLS spoken there? see security.protocol" if is_tls else ""
        return f"no answer to the attempt to connect{asked}"
    if is_tls and isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return "it closes the connection during the TLS handshake: is TLS spoken there? see security.protocol"
    if not isinstance(error, OSError):
        return f"no address: {error}"
    # asyncio puts the address into its own errors; the caller names it anyway.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))
