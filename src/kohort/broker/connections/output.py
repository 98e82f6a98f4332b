"""The output of one connection: small answers share a buffer, large parts are kept as they are.

Laws: bytes leave in the order in which they came; small parts are copied, large ones never.
Source: architecture, journey of an OffsetCommit.
"""

from __future__ import annotations

from asyncio import Transport
from collections import deque
from collections.abc import Iterable
from typing import Final

from kohort.broker.connections.replies import Buffer

#: Answers are written at the latest when so many bytes of them are there.
WRITE_AT_BYTES: Final = 1024 * 1024
#: Parts of answers up to this size are copied together.
COPIED_PART_BYTES: Final = 4096


class Output:
    """Answers of one connection that may leave and are not written yet."""

    __slots__ = ("_part_bytes", "_parts", "small", "written_bytes")

    def __init__(self) -> None:
        #: The end of the output: small answers, copied together.
        self.small = bytearray()
        self._parts: deque[Buffer] = deque()
        self._part_bytes = 0
        #: Bytes given to transports so far.
        self.written_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that are to be written."""
        return len(self.small) + self._part_bytes

    def clear(self) -> None:
        """Discard all output."""
        self.small = bytearray()
        self._parts.clear()
        self._part_bytes = 0

    def extend(self, parts: Iterable[Buffer]) -> None:
        """Append ready answers to the output."""
        for part in parts:
            if len(part) <= COPIED_PART_BYTES:
                # One buffer for many small answers is cheaper than many buffers.
                self.small += part
                continue
            if self.small:
                self._parts.append(self.small)
                self._part_bytes += len(self.small)
                self.small = bytearray()
            self._part_bytes += len(part)
            if len(part) <= WRITE_AT_BYTES:
                self._parts.append(part)
                continue
            view = memoryview(part)
            self._parts.extend(view[at : at + WRITE_AT_BYTES] for at in range(0, len(view), WRITE_AT_BYTES))

    def write_some(self, transport: Transport) -> bool:
        """Write as much as one write should have; `False` if there is nothing to write."""
        # The transport gets little more than it may hold: some loops copy the bytes that they cannot send at once.
        if self._parts:
            transport.writelines(self._next_parts())
            return True
        if self.small:
            small, self.small = self.small, bytearray()
            self.written_bytes += len(small)
            transport.write(small)
            return True
        return False

    def _next_parts(self) -> list[Buffer]:
        parts: list[Buffer] = []
        size = 0
        while self._parts and size < WRITE_AT_BYTES:
            part = self._parts.popleft()
            parts.append(part)
            size += len(part)
        self._part_bytes -= size
        if not self._parts and self.small:
            parts.append(self.small)
            size += len(self.small)
            self.small = bytearray()
        self.written_bytes += size
        return parts
