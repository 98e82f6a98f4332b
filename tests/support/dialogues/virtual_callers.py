"""Connections of bytes to a broker in virtual time: what comes when, and when the broker hangs up."""

from __future__ import annotations

import asyncio


class Caller(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began_s = loop.time()
        self._buffer = bytearray(65536)
        self.received = bytearray()
        self.transport: asyncio.Transport
        #: How long the broker has borne it, in seconds; `None` while it does.
        self.lasted_s: float | None = None
        self.has_news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lasted_s = self._loop.time() - self._began_s
        self.has_news.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.has_news.set()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    async def answer(self) -> bytes:
        """The next answer without its length; empty if the broker has closed the connection instead."""
        while True:
            received = self.received
            if len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4])):
                answer = bytes(received[4:end])
                del received[:end]
                return answer
            if self.lasted_s is not None:
                return b""
            self.has_news.clear()
            await self.has_news.wait()


async def call(address: str) -> Caller:
    """Connect to a broker."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    _, caller = await loop.create_connection(lambda: Caller(loop), host, int(port))
    return caller
