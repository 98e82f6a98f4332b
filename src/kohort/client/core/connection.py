"""One connection to one broker: frames, correlation ids, versions, a login, responses in order.

Laws: responses arrive in the order of their requests; any other order closes the connection. A connection that is
closed, or was never open, has no memory for frames and is in no reference cycle. So hours of attempts leave nothing for
the garbage collector, which counts objects and not bytes.
Source: Kafka's wire protocol; KIP-511 (how ApiVersions steps down).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

from kohort.base import VERSION
from kohort.base.values import value
from kohort.client.core import authenticator
from kohort.client.core.actions import Endpoint, Send
from kohort.client.core.broker_version import software_of
from kohort.client.core.requests import Failure
from kohort.client.metrics import Traffic
from kohort.client.options import ClientSettings
from kohort.errors import ErrorCode, ForeignProtocolError, LocalProtocolError, ProtocolError, RemoteProtocolError
from kohort.records.row_kernels import blank
from kohort.security.tls import explain
from kohort.wire.codec import decode, encode, encode_parts
from kohort.wire.foreign import impossible_length
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.private import SOFTWARE_NAME
from kohort.wire.registry import (
    AnyApiKey,
    ApiKey,
    RequestHeader,
    ResponseHeader,
    api_key_of,
    negotiate,
    request_header_version,
    response_class,
    response_header_version,
)
from kohort.wire.schema import Message, schema_of

_LENGTH: Final = Struct(">i")
_CLOSED: Final = "the broker closed the connection"
#: Longest response to ApiVersions, the first on every connection; bytes of other protocols look like a longer one.
_FIRST_ANSWER_LIMIT_BYTES: Final = 1024 * 1024
#: The parts of requests up to this size, that of a TLS record, are joined before they are sent.
_JOINED_BYTES: Final = 16 * 1024
#: Version of ApiVersions that every broker since 2.4 supports; older ones refuse it by a response of version 0.
_API_VERSIONS_FIRST: Final = 3

Buffer = bytes | bytearray | memoryview


class UnsupportedError(LocalProtocolError):
    """The broker has no version of the API that the request can use."""


@value(frozen=False)
class _InFlight:
    correlation_id: int
    #: The request; `None` for the connection's own requests: ApiVersions and those of a login.
    send: Send | None
    key: AnyApiKey
    version: int
    deadline_ms: int
    sent_ms: int


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket."""

    #: Exists as long as the socket is open.
    _receiver: FrameReceiver

    def __init__(
        self,
        *,
        client_id: str,
        frame_limit_bytes: int,
        pool: BodyPool,
        traffic: Traffic,
        sign_in: authenticator.Authenticator | None = None,
        on_ready: Callable[[], None],
        on_response: Callable[[int, int, Message], None],
        on_closed: Callable[[Connection, str, list[Send]], None],
    ) -> None:
        self._client_id = client_id
        self._pool = pool
        self._frame_limit_bytes = frame_limit_bytes
        self._traffic = traffic
        self._sign_in = sign_in
        #: Called when requests may be sent: after the negotiation of versions and the login, and after each renewal.
        self._on_ready = on_ready
        #: Called with token, version and message of each response, in the order of the requests.
        self._on_response = on_response
        #: Called once, if the connection was ever open: with itself, the reason, and the sends without a response.
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 1
        #: API -> (lowest, highest) version that the broker supports.
        self._versions: dict[int, tuple[int, int]] = {}
        #: (request class, lowest, highest version) -> its API, and the highest version that both sides support.
        self._agreed: dict[tuple[type[Message], int | None, int | None], tuple[AnyApiKey, int]] = {}
        #: Name and version of the broker's software.
        self._software = ""
        #: Whether the broker is kohort's.
        self.is_kohort = False
        #: The finalized level of the feature `transaction.version` when the connection was opened; 0: none.
        self.transaction_version = 0
        #: Whether the connection was ready at any time, even if it is closed now.
        self.was_ready = False
        self._close_reason: str | None = None
        #: Deadline of the connection's own requests.
        self._own_deadline_ms = 0
        #: The start of the session, and its lifetime, ms; 0: it does not end.
        self._session: tuple[int, int] = (0, 0)
        #: The lifetime of a login, milliseconds; 0: without end.
        self.login_ms = 0
        self._logs_in = sign_in is not None
        #: Whether the broker has responded to any request but the connection's own.
        self._has_answered = False
        #: Whether the client or the broker has refused the login or a certificate.
        self.is_refused = False

    @property
    def is_ready(self) -> bool:
        """Whether the connection is open, its versions are negotiated, and no login is in progress."""
        return self.was_ready and self._sign_in is None and self._close_reason is None

    @property
    def renew_at_ms(self) -> int | None:
        """The time to renew the login before its session ends, ms; `None`: the session does not end."""
        began_ms, lifetime_ms = self._session
        return began_ms + authenticator.renewal_ms(lifetime_ms, id(self) >> 4) if lifetime_ms > 0 else None

    def renew_again_ms(self, now_ms: int) -> int | None:
        """Return the time to repeat a failed renewal, ms; `None`: too little of the session is left."""
        began_ms, lifetime_ms = self._session
        pause_ms = authenticator.repeat_ms(began_ms + lifetime_ms - now_ms)
        return None if pause_ms is None else now_ms + pause_ms

    def next_deadline(self) -> int | None:
        """Return the earliest timeout of a request in flight, ms; `None`: none is in flight."""
        return min((each.deadline_ms for each in self._in_flight), default=None)

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether a request in flight has timed out."""
        return any(each.deadline_ms <= now_ms for each in self._in_flight)

    # -- sending --------------------------------------------------------------------------------------------------

    def negotiate_versions(self, *, deadline_ms: int) -> None:
        """Request the broker's versions, and log in if a login is configured; `on_ready` follows."""
        self._own_deadline_ms = deadline_ms
        self._ask_versions(_API_VERSIONS_FIRST)

    def sign_in_again(self, sign_in: authenticator.Authenticator, *, deadline_ms: int) -> None:
        """Renew the login, after the requests in flight; no request may be sent until `on_ready`."""
        assert self.is_ready, "a session is begun anew where there is one"
        self._own_deadline_ms = deadline_ms
        self._sign_in = sign_in
        self._say(sign_in.start())

    def send(self, send: Send, *, deadline_ms: int) -> None:
        """Send a request on a ready connection.

        Raises:
            UnsupportedError: the broker has no version that fits.
            LocalProtocolError: the request cannot be encoded.
        """
        assert self._transport is not None, "the connection is not ready"
        what = type(send.request), send.min_version, send.max_version
        agreed = self._agreed.get(what)
        if agreed is None:
            key = api_key_of(cast(int, schema_of(type(send.request)).key))
            assert key is not None, "only requests that the registry knows are sent"
            agreed = self._agreed[what] = key, self._agree(key, send.min_version, send.max_version)
        key, version = agreed
        self._write(send.request, key, version, send=send, deadline_ms=deadline_ms)
        if not send.has_response:
            # The broker does not respond, so the request counts as its own response.
            self._in_flight.pop()
            self._on_response(send.token, version, send.request)

    def _agree(self, key: AnyApiKey, lowest: int | None, highest: int | None) -> int:
        theirs = self._versions.get(key)
        version = None if theirs is None else negotiate(key, theirs[0], theirs[1], highest)
        if version is None or (lowest is not None and version < lowest):
            name = "".join(word.capitalize() for word in key.name.split("_"))
            lack = (
                f"no {name}"
                if theirs is None
                else f"versions {theirs[0]} to {theirs[1]} of {name}, not what this needs"
            )
            raise UnsupportedError(f"is {self._software} and has {lack}")
        return version

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        self._write(request, ApiKey.API_VERSIONS, version, send=None, deadline_ms=self._own_deadline_ms)

    def _say(self, request: SaslHandshakeRequest | SaslAuthenticateRequest) -> None:
        is_handshake = isinstance(request, SaslHandshakeRequest)
        key = ApiKey.SASL_HANDSHAKE if is_handshake else ApiKey.SASL_AUTHENTICATE
        try:
            version = self._agree(key, 1 if is_handshake else 0, None)
        except UnsupportedError as why:
            self._refuse(f"no login is possible there: it {why}")
            return
        self._write(request, key, version, send=None, deadline_ms=self._own_deadline_ms)

    def _refuse(self, reason: str) -> None:
        self.is_refused = True
        self.close(reason)

    def _write(self, request: Message, key: AnyApiKey, version: int, *, send: Send | None, deadline_ms: int) -> None:
        assert self._transport is not None
        correlation_id = self._next_correlation_id
        # An int32 on the wire, so it starts again before it overflows.
        self._next_correlation_id = correlation_id % 0x7FFFFFFF + 1
        header = RequestHeader(
            request_api_key=int(key),
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        parts: list[Buffer] = [encode(header, request_header_version(key, version)), *encode_parts(request, version)]
        size = sum(map(len, parts))
        self._in_flight.append(
            _InFlight(
                correlation_id=correlation_id,
                send=send,
                key=key,
                version=version,
                deadline_ms=deadline_ms,
                sent_ms=self._traffic.now_ms(),
            )
        )
        self._traffic.on_sent(size, is_answered=send is None or send.has_response)
        # Each part would be a separate TLS record, which costs both sides more than copying a few bytes.
        if size <= _JOINED_BYTES:
            self._transport.write(b"".join((_LENGTH.pack(size), *parts)))
        else:
            self._transport.writelines([_LENGTH.pack(size), *parts])

    # -- receiving (called by the event loop) ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to receive: the socket is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._receiver = FrameReceiver(limit_bytes=_FIRST_ANSWER_LIMIT_BYTES, pool=self._pool)
        self._traffic.on_opened()
        # The machines bound their requests. A pause of writing would only hide a slow broker.
        self._transport.set_write_buffer_limits(high=1 << 30)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Process the frames that have arrived."""
        try:
            for frame in self._receiver.received(nbytes):
                self._on_frame(frame)
                if self._close_reason is not None:
                    return
        except ForeignProtocolError as error:
            self.close(str(error))
        except ProtocolError as error:
            self.close(f"bytes that do not follow the protocol: {error}")

    def eof_received(self) -> bool:
        """Record that the broker has closed its side."""
        self._close_reason = self._close_reason or _CLOSED + self._hint()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests in flight: the socket is closed."""
        reason = self._close_reason
        if reason is None:
            reason = explain(exc) if isinstance(exc, ssl.SSLError) else (str(exc) if exc else _CLOSED) + self._hint()
        # With TLS 1.3 a broker refuses this client's certificate after the handshake has ended on this side.
        self.is_refused = self.is_refused or isinstance(exc, ssl.SSLError)
        self._close_reason = reason
        lost = [each.send for each in self._in_flight if each.send is not None]
        self._traffic.on_closed(len(self._in_flight))
        self._in_flight.clear()
        # Frees the memory for frames, and leaves no reference cycle.
        del self._receiver
        self._on_closed(self, reason, lost)

    def _hint(self) -> str:
        """Return the likely reason why the broker has closed the connection without a response."""
        if self._has_answered or self._transport is None:
            return ""
        if self.was_ready and not self._logs_in:
            return ": it may want a login, see security.protocol"
        if self._sign_in is not None and self._versions:
            return " in the middle of the login: the log of the broker says why"
        is_tls = self._transport.get_extra_info("sslcontext") is not None
        return ": it may want a certificate of this client, see ssl.certificate.location" if is_tls else ""

    def close(self, reason: str) -> None:
        """Close now; `on_closed` follows with the requests in flight."""
        self._close_reason = self._close_reason or reason
        if self._transport is not None:
            self._transport.abort()

    def _on_frame(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise RemoteProtocolError("an answer without a request")
        # The request stays in flight until its response is decoded: an invalid response fails it with the connection.
        waiting = self._in_flight[0]
        header, position = decode(ResponseHeader, response_header_version(waiting.key, waiting.version), frame)
        if header.correlation_id != waiting.correlation_id:
            raise RemoteProtocolError(
                f"answer {header.correlation_id} came in place of {waiting.correlation_id} ({waiting.key.name})"
            )
        message = None
        if waiting.key is not ApiKey.API_VERSIONS or waiting.send is not None:
            message, _ = decode(response_class(waiting.key), waiting.version, frame, position)
        self._in_flight.popleft()
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        self._traffic.on_answered(
            waiting.key.name, sent_ms=waiting.sent_ms, size=len(frame) + 4, throttle_ms=throttle_ms
        )
        if message is None:
            self._on_versions(frame, position, waiting.version)
        elif waiting.send is None:
            self._on_said(message)
        else:
            self._has_answered = True
            self._on_response(waiting.send.token, waiting.version, message)

    def _on_said(self, message: Message) -> None:
        assert self._sign_in is not None, "a login is under way"
        try:
            request = self._sign_in.on_answer(cast(authenticator.Response, message))
        except authenticator.AuthenticationRefused as why:
            self._refuse(str(why))
            return
        if request is not None:
            self._say(request)
            return
        self.login_ms = self._sign_in.lifetime_ms
        self._session = (self._traffic.now_ms(), self.login_ms)
        self._sign_in = None
        self._become_ready()

    def _become_ready(self) -> None:
        self.was_ready = True
        # The peer speaks Kafka's protocol, so long responses may follow.
        self._receiver.limit_bytes = self._frame_limit_bytes
        self._on_ready()

    def _on_versions(self, frame: memoryview, position: int, version: int) -> None:
        if int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # KIP-511: a broker refuses an unknown version by a response of version 0, with the versions that it knows.
            response, _ = decode(ApiVersionsResponse, 0, frame, position)
            theirs = next((each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS), None)
            self._ask_versions(0 if theirs is None else max(0, min(theirs.max_version, version - 1)))
            return
        response, _ = decode(ApiVersionsResponse, version, frame, position)
        if response.error_code != ErrorCode.NONE:
            raise RemoteProtocolError(f"the broker refuses ApiVersions: {ErrorCode.of(response.error_code).name}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._software, self.is_kohort = software_of(response), response.broker_version is not None
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        self.transaction_version = finalized.get("transaction.version", 0)
        if self._sign_in is None:
            self._become_ready()
        else:
            self._say(self._sign_in.start())


async def connect(
    factory: Callable[[], Connection], to: Endpoint, tls: ssl.SSLContext | None = None
) -> asyncio.Transport:
    """Open a connection, with TLS if a context is given; `OSError` if no address of the host accepts one.

    The caller limits the time. An `ssl.SSLError`, which is an `OSError`, means that the handshake has failed.
    """
    loop = asyncio.get_running_loop()
    name = None if tls is None else to.host
    try:
        return (await loop.create_connection(factory, to.host, to.port, ssl=tls, server_hostname=name))[0]
    except RuntimeError:
        # At the exit of a program no thread can be started, in which the loop would resolve the name.
        found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for *_, (host, *_) in found:
        try:
            return (await loop.create_connection(factory, str(host), to.port, ssl=tls, server_hostname=name))[0]
        except OSError as error:
            failure = error
    raise failure or OSError("the name has no address")


_SCRATCH_BYTES: Final = 128 * 1024
#: The most bytes of buffers that all connections of a client keep for large responses: as many as a consumer buffers by
#: default.
POOL_BYTES: Final = 64 * 1024 * 1024


class BodyPool:
    """Buffers for large frames; a buffer without a view is reused, because new memory is slow.

    >>> pool = BodyPool(limit_bytes=1 << 20)
    >>> frame = pool.take(100_000)
    >>> del frame
    >>> len(pool.take(50_000)), pool.held_bytes
    (50000, 131072)
    """

    __slots__ = ("_buffers", "_limit")

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffers: list[bytearray] = []

    @property
    def held_bytes(self) -> int:
        """The bytes of all buffers of the pool, in use or not."""
        return sum(map(len, self._buffers))

    def take(self, size: int) -> memoryview:
        """Return writable memory of that size; it is free again once its last view is deleted."""
        for index, buffer in enumerate(self._buffers):
            if len(buffer) >= size and _is_unseen(buffer):
                # The least recently used one comes first.
                self._buffers.append(self._buffers.pop(index))
                return memoryview(buffer)[:size]
        # The size is rounded up, because the next response is seldom of exactly this size.
        fresh = blank(-(-size // _SCRATCH_BYTES) * _SCRATCH_BYTES)
        self._buffers.append(fresh)
        while self.held_bytes > self._limit:
            del self._buffers[0]
        return memoryview(fresh)[:size]

    def clear(self) -> None:
        """Drop all buffers; a buffer with a view lives as long as the view."""
        self._buffers.clear()


def _is_unseen(buffer: bytearray) -> bool:
    """Return whether a buffer has no view: a byte array with one refuses to change its size."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


class FrameReceiver:
    """The frames of a byte stream: small ones are copied from a scratch buffer, large ones stay in place.

    Law: no memory is allocated for a frame that is longer than the limit.
    Source: Kafka's wire protocol: each response follows its size as int32.

    >>> receiver = FrameReceiver(limit_bytes=100)
    >>> space = receiver.buffer()
    >>> space[:8] = b"\\x00\\x00\\x00\\x04abcd"
    >>> [bytes(frame) for frame in receiver.received(8)]
    [b'abcd']
    """

    __slots__ = ("_body", "_filled", "_pool", "_scratch", "_scratch_filled", "_scratch_view", "limit_bytes")

    def __init__(self, *, limit_bytes: int, pool: BodyPool | None = None) -> None:
        #: Longest frame that is received, bytes.
        self.limit_bytes = limit_bytes
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._scratch_view = memoryview(self._scratch)
        self._scratch_filled = 0
        #: The frame that is being received in place; `None` between frames.
        self._body: memoryview | None = None
        self._filled = 0
        self._pool = BodyPool(limit_bytes=POOL_BYTES) if pool is None else pool

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes of the stream; never empty."""
        if self._body is not None:
            return self._body[self._filled :]
        return self._scratch_view[self._scratch_filled :]

    def received(self, count: int) -> list[memoryview]:
        """Count bytes that were written to `buffer()`, and return the frames that they complete."""
        if self._body is None:
            self._scratch_filled += count
            return self._cut()
        self._filled += count
        if self._filled < len(self._body):
            return []
        frame, self._body = self._body, None
        return [frame]

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        position, end = 0, self._scratch_filled
        while end - position >= 4:
            (size,) = _LENGTH.unpack_from(self._scratch, position)
            if not 4 <= size <= self.limit_bytes:
                start = self._scratch_view[position : position + 4]
                raise impossible_length(start, least=4, most=self.limit_bytes)
            if end - position - 4 < size:
                self._start_body(size, position + 4)
                return frames
            frames.append(memoryview(bytes(self._scratch_view[position + 4 : position + 4 + size])))
            position += 4 + size
        rest = end - position
        self._scratch[:rest] = self._scratch[position:end]
        self._scratch_filled = rest
        return frames

    def _start_body(self, size: int, start: int) -> None:
        held = self._scratch_filled - start
        self._body = self._pool.take(size)
        self._body[:held] = self._scratch_view[start : self._scratch_filled]
        self._filled, self._scratch_filled = held, 0


#: TLS errors for a peer that does not speak TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


class Unopened(Exception):
    """A connection could not be opened; `failure`: the kind, for the machine; `reason`: a text."""

    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(failure, reason)
        self.failure = failure
        self.reason = reason


class Opener:
    """The opener of one client's connections: a socket, TLS, and the login.

    Law: an attempt ends in time, with a connection or with a sentence that names the failure and the option to set.
    Source: Kafka's `socket.connection.setup.timeout.ms` and `security.protocol`.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings: Final = settings
        self._tls: Final = settings.security.tls
        sasl = settings.security.sasl
        self._credentials: Final = None if sasl is None else authenticator.Credentials(sasl)

    async def sign_in(self) -> authenticator.Authenticator | None:
        """Return a login for one connection; `None`: no login is configured. `Unopened` without a token."""
        if self._credentials is None:
            return None
        limit_ms = self._settings.options["request_timeout_ms"]
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._credentials.sign_in()
        except authenticator.TokenFailed as why:
            raise Unopened(Failure.NOT_AUTHENTICATED, str(why)) from None
        except TimeoutError:
            reason = f"sasl.oauth.token.provider made no token within {limit_ms / 1000:g} s"
            raise Unopened(Failure.NOT_AUTHENTICATED, reason) from None

    def on_refused(self) -> None:
        """Drop the token, because a broker has refused the login."""
        if self._credentials is not None:
            self._credentials.forget_token()

    async def open(
        self, to: Endpoint, build: Callable[[authenticator.Authenticator | None], Connection], *, timeout_ms: int
    ) -> Connection:
        """Open the connection that `build` creates for a login; raise `Unopened` if that fails."""
        connection = build(await self.sign_in())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transport = await connect(lambda: connection, to, self._tls)
        except ssl.SSLError as error:
            is_other = (error.reason or "") in _NO_TLS
            failure = Failure.NO_BROKER if is_other else Failure.NOT_AUTHENTICATED
            raise Unopened(failure, explain(error, to.host)) from error
        except (OSError, ValueError, OverflowError) as error:
            # An invalid host or port raises ValueError or OverflowError. Brokers may advertise one.
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
    # asyncio's own errors have the address, which the caller adds anyway.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))
