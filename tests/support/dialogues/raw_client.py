"""A client that says exactly what it is told to, right or wrong: bytes over a socket, one thing at a time."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType
from typing import Self

from kohort.wire.codec import decode, encode
from kohort.wire.registry import (
    ApiKey,
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_class,
    response_header_version,
)
from kohort.wire.schema import Message, schema_of

#: A broker that has not answered by then never will.
TIMEOUT_SECONDS = 10.0


def frame(api_key: int, version: int, body: bytes, *, correlation_id: int = 1, header_version: int = 1) -> bytes:
    """A request with any key and version."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id="raw"
    )
    content = encode(header, header_version) + body
    return len(content).to_bytes(4, "big") + content


def request_frame(message: Message, version: int, *, correlation_id: int = 1) -> bytes:
    """A request as it should be."""
    key = schema_of(type(message)).key
    assert key is not None
    header_version = request_header_version(ApiKey(key), version)
    return frame(key, version, encode(message, version), correlation_id=correlation_id, header_version=header_version)


class RawClient:
    """One connection; a context manager."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.socket.sendall(data)

    def send_rest_lost(self, data: bytes) -> None:
        """Write bytes that the peer may stop reading half-way."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def receive(self) -> bytes:
        """The content of the next frame."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def ask(self, message: Message, version: int, *, correlation_id: int = 1) -> Message:
        """One request and its answer."""
        self.send(request_frame(message, version, correlation_id=correlation_id))
        key = ApiKey(schema_of(type(message)).key or 0)
        content = self.receive()
        header, position = decode(ResponseHeader, response_header_version(key, version), content)
        assert header.correlation_id == correlation_id
        answer, end = decode(response_class(key), version, content, position)
        assert end == len(content), "bytes behind the answer"
        assert isinstance(answer, Message)
        return answer

    def is_closed_by_peer(self) -> bool:
        """Whether the peer closes the connection without a further byte; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def receive_rest(self) -> bytes:
        """Everything until the peer closes the connection."""
        pieces = []
        while piece := self.socket.recv(4096):
            pieces.append(piece)
        return b"".join(pieces)

    def end_writing(self) -> None:
        """Nothing more will come from here."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ways."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.socket.recv(size - len(received))
            if not piece:
                raise ConnectionError(f"closed after {len(received)} of {size} bytes")
            received += piece
        return bytes(received)
