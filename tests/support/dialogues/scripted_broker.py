"""A broker on a real socket that answers what a test says: for the parts of a client that touch the network."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Self

from kohort.client.core.actions import Endpoint
from kohort.wire.codec import decode, encode
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.registry import (
    VERSIONS,
    AnyApiKey,
    ApiKey,
    RequestHeader,
    ResponseHeader,
    api_key_of,
    request_class,
    request_header_version,
    response_header_version,
)
from kohort.wire.schema import Message

#: What a handler returns: a response, raw bytes in place of a frame, or `None` for silence.
Answer = Message | bytes | None
Handler = Callable[[ApiKey, int, Message], Answer]
#: The longest request; what other protocols send reads as more, and ends the connection.
_LONGEST_BYTES: Final = 100 * 1024 * 1024


class ScriptedBroker:
    """Serves each connection on a thread; keeps what it was asked.

    Args:
        handler: called with API, version and request, for everything but ApiVersions.
        versions: what ApiVersions announces.
        newest_api_versions: an ApiVersions request above it is refused as old brokers refuse it.
        port: where it listens; 0 takes a free one.
        tls: what is spoken around it; `None`: nothing.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        versions: Mapping[AnyApiKey, tuple[int, int]] | None = None,
        newest_api_versions: int = 4,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._handler = handler
        self._versions = VERSIONS if versions is None else versions
        self._newest = newest_api_versions
        #: What is spoken around the next connections.
        self.tls = tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = []
        #: (number of the connection, API, version, request), in the order of arrival.
        self.requests: list[tuple[int, ApiKey, int, Message]] = []
        #: Client ids as headers carried them.
        self.client_ids: set[str | None] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(*self._listener.getsockname()[:2])

    @property
    def connection_count(self) -> int:
        return len(self._sockets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Shutting the listener down wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        self._accepting.join(5)
        for thread in self._threads:
            thread.join(5)

    def drop_connections(self) -> None:
        """Break every connection that is open."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            number = len(self._sockets)
            thread = threading.Thread(target=self._serve, args=(connection, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
                self._sockets[number - 1] = connection
            stream = connection.makefile("rb")
            with stream:
                while size := stream.read(4):
                    (length,) = struct.unpack(">i", size)
                    if not 0 <= length <= _LONGEST_BYTES:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    frame = stream.read(length)
                    answer = self._answer(frame, number)
                    if answer is not None:
                        connection.sendall(answer)
        except OSError:
            return

    def _answer(self, frame: bytes, number: int) -> bytes | None:
        key, version = struct.unpack_from(">hh", frame)
        api = api_key_of(key)
        assert api is not None
        header, position = decode(RequestHeader, request_header_version(api, version), frame)
        self.client_ids.add(header.client_id)
        if api is ApiKey.API_VERSIONS:
            self.requests.append((number, api, version, header))
            return self._frame(api, *self._announce(version), header.correlation_id)
        request, _ = decode(request_class(api), version, frame, position)
        self.requests.append((number, api, version, request))
        answer = self._handler(api, version, request)
        if answer is None or isinstance(answer, bytes):
            return answer
        return self._frame(api, version, answer, header.correlation_id)

    def _announce(self, version: int) -> tuple[int, Message]:
        if version > self._newest:
            known = [ApiVersion(api_key=int(ApiKey.API_VERSIONS), min_version=0, max_version=self._newest)]
            return 0, ApiVersionsResponse(error_code=35, api_keys=known)
        keys = [
            ApiVersion(api_key=int(key), min_version=low, max_version=high)
            for key, (low, high) in self._versions.items()
        ]
        return version, ApiVersionsResponse(api_keys=keys)

    @staticmethod
    def _frame(api: ApiKey, version: int, message: Message, correlation_id: int) -> bytes:
        return frame(api, version, message, correlation_id)


def frame(api: ApiKey, version: int, message: Message, correlation_id: int) -> bytes:
    """A whole response as it travels."""
    header = encode(ResponseHeader(correlation_id=correlation_id), response_header_version(api, version))
    body = header + encode(message, version)
    return struct.pack(">i", len(body)) + body
