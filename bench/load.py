"""One blocking connection that speaks frames: what sets up both brokers alike, with the same bytes.

What is measured over it afterwards is the work of `generator.py`.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Any

from kohort.wire.codec import decode, encode
from kohort.wire.registry import ApiKey, RequestHeader, request_header_version, response_class, response_header_version
from kohort.wire.schema import Message

CLIENT_ID = "bench"


def frame(key: ApiKey, version: int, request: Message) -> bytes:
    """One request as bytes, correlation id 0."""
    header = RequestHeader(request_api_key=int(key), request_api_version=version, correlation_id=0, client_id=CLIENT_ID)
    body = encode(header, request_header_version(key, version)) + encode(request, version)
    return struct.pack(">i", len(body)) + body


def place_of_error(key: ApiKey, version: int, answer: Message, where: Message) -> int:
    """Where the error code of `where`, a part of `answer`, stands in the bytes of such answers, behind the length.

    Seen by writing the answer with two codes that have no byte in common.
    """
    written = []
    for code in (0x0102, 0x0304):
        where.error_code = code  # type: ignore[attr-defined]
        written.append(encode(answer, version))
    where.error_code = 0  # type: ignore[attr-defined]
    differs = [at for at, (one, other) in enumerate(zip(*written, strict=True)) if one != other]
    assert differs == [differs[0], differs[0] + 1], differs
    return (4 if response_header_version(key, version) == 0 else 5) + differs[0]


class RawConnection:
    """A blocking socket that speaks frames; `tls`: how it is encrypted, if it is."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._buffer = bytearray()
        self._have = 0

    @property
    def descriptor(self) -> int:
        """The socket's, for the generator."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        """One request and its decoded answer."""
        self._socket.sendall(frame(key, version, request))
        body = self.receive()
        start = 4 if response_header_version(key, version) == 0 else 5
        answer, _ = decode(response_class(key), version, body, start)
        return answer

    def send(self, frames: bytes) -> None:
        """Ready-made requests, one behind the other."""
        self._socket.sendall(frames)

    def receive(self) -> bytes:
        """One whole frame without its length."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def run(self, frames: Sequence[bytes], *, in_flight: int) -> tuple[float, int]:
        """Send all frames with at most `in_flight` unanswered; (seconds, bytes received)."""
        self._buffer = bytearray(8 << 20)
        sent, received, total = 0, 0, 0
        count = len(frames)
        began = time.perf_counter()
        while received < count:
            window = min(count, received + in_flight)
            if sent < window:
                self._socket.sendall(b"".join(frames[sent:window]))
                sent = window
            answers, size = self._skip_answers()
            received += answers
            total += size
        return time.perf_counter() - began, total

    def _skip_answers(self) -> tuple[int, int]:
        """Read once; how many answers ended in what was read, and how many bytes that was."""
        answers, position = 0, 0
        read = self._socket.recv_into(memoryview(self._buffer)[self._have :])
        if read == 0:
            raise ConnectionError("the broker closed the connection")
        self._have += read
        while self._have - position >= 4:
            size = 4 + int.from_bytes(self._buffer[position : position + 4], "big")
            if self._have - position < size:
                break
            position += size
            answers += 1
        if position:
            rest = self._have - position
            self._buffer[:rest] = self._buffer[position : self._have]
            self._have = rest
        return answers, read

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)
