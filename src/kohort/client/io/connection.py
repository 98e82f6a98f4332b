"""One connection to one broker: frames in and out, correlation ids, versions agreed, answers in order.

Laws: the answer to a request is the next frame that arrives; any other order ends the connection. One that is closed,
or was never open, has no memory for frames and is in no reference cycle: the attempts of hours leave nothing for the
garbage collector, which counts objects and not bytes.
Source: Kafka's wire protocol; KIP-511 (how ApiVersions steps down).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final, cast

import kohort
from kohort.client.actions import Endpoint, Send
from kohort.client.io.frame_receiver import BodyPool, FrameReceiver
from kohort.client.io.traffic import Traffic
from kohort.errors import ErrorCode, ForeignProtocolError, LocalProtocolError, ProtocolError, RemoteProtocolError
from kohort.wire.codec import decode, encode, encode_parts
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.header import RequestHeader, ResponseHeader
from kohort.wire.private import SOFTWARE_NAME
from kohort.wire.registry import (
    AnyApiKey,
    ApiKey,
    api_key_of,
    negotiate,
    request_header_version,
    response_class,
    response_header_version,
)
from kohort.wire.schema import Message, schema_of

_LENGTH: Final = Struct(">i")
#: Longest answer to ApiVersions, the first on every connection; what other protocols send reads as more.
_FIRST_ANSWER_LIMIT_BYTES: Final = 1024 * 1024
#: The version of ApiVersions that every broker since 2.4 reads; older ones refuse it in version 0.
_API_VERSIONS_FIRST: Final = 3

Buffer = bytes | bytearray | memoryview


class UnsupportedError(LocalProtocolError):
    """The broker has no version of the API that the request can use."""


@dataclass(slots=True, kw_only=True)
class _InFlight:
    correlation_id: int
    #: The request; `None` for the connection's own ApiVersions.
    send: Send | None
    key: AnyApiKey
    version: int
    deadline_ms: int
    sent_ms: int


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket.

    Args:
        client_id: sent with every request.
        frame_limit_bytes: longest answer that is accepted.
        pool: memory for large answers.
        traffic: counts.
        on_ready: versions are agreed, requests may be sent.
        on_response: (token, version, message), in the order of the requests.
        on_closed: (itself, reason, sends that were not answered); called once, if it was ever open.
    """

    #: From the first moment of the socket to its last.
    _receiver: FrameReceiver

    def __init__(
        self,
        *,
        client_id: str,
        frame_limit_bytes: int,
        pool: BodyPool,
        traffic: Traffic,
        on_ready: Callable[[], None],
        on_response: Callable[[int, int, Message], None],
        on_closed: Callable[[Connection, str, list[Send]], None],
    ) -> None:
        self._client_id = client_id
        self._pool = pool
        self._frame_limit_bytes = frame_limit_bytes
        self._traffic = traffic
        self._on_ready = on_ready
        self._on_response = on_response
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 1
        #: API -> (first, last) version that the broker announced.
        self._versions: dict[int, tuple[int, int]] = {}
        self._is_ready = False
        self._close_reason: str | None = None
        self._deadline_of_versions_ms = 0

    @property
    def is_ready(self) -> bool:
        """Whether versions are agreed and the connection is open."""
        return self._is_ready and self._close_reason is None

    @property
    def was_ready(self) -> bool:
        """Whether versions were agreed, be the connection open or not."""
        return self._is_ready

    def next_deadline(self) -> int | None:
        """When the earliest request in flight times out."""
        return min((each.deadline_ms for each in self._in_flight), default=None)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether a request has waited for its answer for too long."""
        return any(each.deadline_ms <= now_ms for each in self._in_flight)

    # -- sending --------------------------------------------------------------------------------------------------

    def negotiate_versions(self, *, deadline_ms: int) -> None:
        """Ask the broker what it speaks; `on_ready` follows."""
        self._deadline_of_versions_ms = deadline_ms
        self._ask_versions(_API_VERSIONS_FIRST)

    def send(self, send: Send, *, deadline_ms: int) -> None:
        """Send a request on a ready connection.

        Raises:
            UnsupportedError: the broker has no version that fits.
            LocalProtocolError: the request cannot be encoded.
        """
        assert self.is_ready and self._transport is not None, "the connection is not ready"
        key = api_key_of(cast(int, schema_of(type(send.request)).key))
        assert key is not None, "only requests that the registry knows are sent"
        version = self._agree(key, send.min_version, send.max_version)
        self._write(send.request, key, version, send=send, deadline_ms=deadline_ms)
        if not send.has_response:
            self._in_flight.pop()
            self._on_response(send.token, version, send.request)

    def _agree(self, key: AnyApiKey, lowest: int | None, highest: int | None) -> int:
        theirs = self._versions.get(key)
        version = None if theirs is None else negotiate(key, theirs[0], theirs[1], highest)
        if version is None or (lowest is not None and version < lowest):
            announced = "none" if theirs is None else f"versions {theirs[0]} to {theirs[1]}"
            raise UnsupportedError(f"the broker speaks {announced} of {key.name}, which this call cannot use")
        return version

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=kohort.__version__)
        self._write(request, ApiKey.API_VERSIONS, version, send=None, deadline_ms=self._deadline_of_versions_ms)

    def _write(self, request: Message, key: AnyApiKey, version: int, *, send: Send | None, deadline_ms: int) -> None:
        assert self._transport is not None
        correlation_id = self._next_correlation_id
        self._next_correlation_id = correlation_id % 0x7FFFFFFF + 1
        header = RequestHeader(
            request_api_key=int(key),
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        parts: list[Buffer] = [encode(header, request_header_version(key, version)), *encode_parts(request, version)]
        size = sum(len(part) for part in parts)
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
        self._transport.writelines([_LENGTH.pack(size), *parts])

    # -- receiving (called by the event loop) ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._receiver = FrameReceiver(limit_bytes=_FIRST_ANSWER_LIMIT_BYTES, pool=self._pool)
        self._traffic.on_opened()
        # Requests are bounded by the machines; a pause of writing would only hide a slow broker.
        self._transport.set_write_buffer_limits(high=1 << 30)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts the next bytes."""
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
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
        """The broker has closed its side."""
        self._close_reason = self._close_reason or "the broker closed the connection"
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: everything in flight has failed."""
        reason = self._close_reason or (str(exc) if exc is not None else "the broker closed the connection")
        self._close_reason = reason
        lost = [each.send for each in self._in_flight if each.send is not None]
        self._traffic.on_closed(len(self._in_flight))
        self._in_flight.clear()
        del self._receiver
        self._on_closed(self, reason, lost)

    def close(self, reason: str) -> None:
        """Close now; `on_closed` follows with what was in flight."""
        self._close_reason = self._close_reason or reason
        if self._transport is not None:
            self._transport.abort()

    def _on_frame(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise RemoteProtocolError("an answer that nobody asked for")
        # It stays in flight until its answer is whole: if that is broken, it has to fail with the connection.
        waiting = self._in_flight[0]
        header, position = decode(ResponseHeader, response_header_version(waiting.key, waiting.version), frame)
        if header.correlation_id != waiting.correlation_id:
            raise RemoteProtocolError(
                f"answer {header.correlation_id} came in place of {waiting.correlation_id} ({waiting.key.name})"
            )
        if waiting.send is None:
            self._in_flight.popleft()
            self._note_answer(waiting, frame, None)
            self._on_versions(frame, position, waiting.version)
            return
        message, _ = decode(response_class(waiting.key), waiting.version, frame, position)
        self._in_flight.popleft()
        self._note_answer(waiting, frame, message)
        self._on_response(waiting.send.token, waiting.version, message)

    def _note_answer(self, waiting: _InFlight, frame: memoryview, message: Message | None) -> None:
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        self._traffic.on_answered(
            waiting.key.name, sent_ms=waiting.sent_ms, size=len(frame) + 4, throttle_ms=throttle_ms
        )

    def _on_versions(self, frame: memoryview, position: int, version: int) -> None:
        if int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            response, _ = decode(ApiVersionsResponse, 0, frame, position)
            theirs = next((each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS), None)
            self._ask_versions(0 if theirs is None else max(0, min(theirs.max_version, version - 1)))
            return
        response, _ = decode(ApiVersionsResponse, version, frame, position)
        if response.error_code != ErrorCode.NONE:
            raise RemoteProtocolError(f"the broker refuses ApiVersions: {ErrorCode.of(response.error_code).name}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._is_ready = True
        self._receiver.limit_bytes = self._frame_limit_bytes
        self._on_ready()


async def connect(factory: Callable[[], Connection], to: Endpoint) -> asyncio.Transport:
    """Open a connection; `OSError` if no address of that name accepts one."""
    loop = asyncio.get_running_loop()
    try:
        return (await loop.create_connection(factory, to.host, to.port))[0]
    except RuntimeError:
        # A program that ends starts no thread any more in which the loop could look the name up.
        found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for *_, (host, *_) in found:
        try:
            return (await loop.create_connection(factory, str(host), to.port))[0]
        except OSError as error:
            failure = error
    raise failure or OSError("the name has no address")
