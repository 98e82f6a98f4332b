"""One connection of a broker, and a test in the place of its socket: bytes go in and come out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kohort.base.clock import WallClock
from kohort.broker.connection import Connection
from kohort.broker.context import BrokerContext
from kohort.broker.dispatch import Routes
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server
from kohort.wire.codec import decode
from kohort.wire.registry import AnyApiKey, ResponseHeader, response_class, response_header_version
from kohort.wire.schema import Message
from support.dialogues.broker_wire import encode_request


class Wire(asyncio.Transport):
    """What was written, and whether it is read."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 9092)})
        self.written = bytearray()
        self.has_written = asyncio.Event()
        self.has_closed = asyncio.Event()
        self.is_closed = False
        #: What its client has not taken of what was written.
        self.untaken_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.has_written.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The test says what is buffered."""

    def get_write_buffer_size(self) -> int:
        return self.untaken_bytes

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """The test sends what it likes."""

    def resume_reading(self) -> None:
        """The test sends what it likes."""

    def close(self) -> None:
        self.is_closed = True
        self.has_closed.set()

    def abort(self) -> None:
        self.close()


class WiredConnection:
    """A connection in the hands of a test."""

    def __init__(self, context: BrokerContext, wire: Wire | None = None) -> None:
        self.context = context
        self.connection = Connection(context, Routes())
        self._wire = wire or Wire()
        self.connection.connection_made(self._wire)

    def feed(self, *frames: bytes) -> None:
        """All of this has come with one read, or with as many as the buffer needs."""
        data = memoryview(b"".join(frames))
        while data:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)

    async def ask(self, key: AnyApiKey, version: int, message: Message) -> Any:
        """One request and its answer, however long that takes."""
        self.feed(encode_request(key, version, message))
        ((_, answer),) = await self.receive(key, version)
        return answer

    async def receive(self, key: AnyApiKey, version: int) -> list[tuple[int, Any]]:
        """`take_answers`, once there are some."""
        while not self._wire.written:
            self._wire.has_written.clear()
            await self._wire.has_written.wait()
        return self.take_answers(key, version)

    async def writes(self) -> bytes:
        """What the broker writes next."""
        while not self._wire.written:
            self._wire.has_written.clear()
            await self._wire.has_written.wait()
        return self.take_written()

    async def ends(self) -> None:
        """The broker closes it."""
        await self._wire.has_closed.wait()

    def take_written(self) -> bytes:
        """What has been written since the last call."""
        written = bytes(self._wire.written)
        self._wire.written.clear()
        return written

    def take_answers(self, key: AnyApiKey, version: int) -> list[tuple[int, Any]]:
        """The same as answers to requests of one kind: (correlation id, message)."""
        data = memoryview(self.take_written())
        answers = []
        while data:
            end = 4 + int.from_bytes(data[:4])
            header, at = decode(ResponseHeader, response_header_version(key, version), data[4:end])
            answers.append((header.correlation_id, decode(response_class(key), version, data[4:end], at)[0]))
            data = data[end:]
        return answers

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed it."""
        return self._wire.is_closed

    @property
    def has_written(self) -> bool:
        """Whether the broker has written something that nobody took."""
        return bool(self._wire.written)

    def counted(self, group_id: str, what: str) -> int:
        """How often the journal has counted something of a group."""
        return self.context.runtime.journal.history(group_id).counts[what]

    def requests_carried_out(self) -> int:
        """Rises by one with each call, and with each group request that is read and handed to a coordinator."""
        return self.context.runtime.next_token()


@contextmanager
def wired_broker(config: Mapping[str, object], *, clock: WallClock | None = None) -> Iterator[BrokerContext]:
    """The parts of a broker in memory on the running loop, without a socket; `clock` may be the test's."""
    server = Server(BrokerSettings.of(config), clock=clock)
    store = server._open_store()
    context = server._put_together(store)
    try:
        yield context
    finally:
        context.runtime.stop()
        context.durability.stop()
        store.close(clean=True)
