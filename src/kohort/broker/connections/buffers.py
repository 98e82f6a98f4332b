"""The buffers of one connection: received bytes that are not handled yet, and responses to be written.

Laws: memory beyond the base size is only allocated after `ByteBudget` has granted it, and each grant is given back
exactly once. A buffer grows to at most twice the bytes that have arrived, whatever a length prefix promises.
Source: architecture: bounded frames and buffered bytes; requirement B4.
"""

from __future__ import annotations

from asyncio import Transport
from collections import deque
from collections.abc import Iterable
from typing import Final

from kohort.broker.connections.request import Buffer
from kohort.broker.limits.memory import SHORT_BYTES, ByteBudget

#: Every connection has this much; not counted in the budget, so bounded by max.connections.
BASE_BYTES: Final = 32 * 1024
#: A grown buffer up to this size is kept for the next request; a longer one is given back after its request.
KEPT_BYTES: Final = 4 * 1024 * 1024
#: Growth goes in steps of this size.
STEP_BYTES: Final = 64 * 1024


class ReceiveBuffer:
    """A receive buffer: the socket appends bytes, and the connection removes handled bytes from the front."""

    __slots__ = ("_budget", "buffer", "granted", "have", "view")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget: Final = budget
        #: Bytes that the budget has granted.
        self.granted = 0
        self.buffer = bytearray(BASE_BYTES)
        #: A view of the whole buffer.
        self.view = memoryview(self.buffer)
        #: Bytes at the front that have come and are not handled.
        self.have = 0

    def free(self) -> memoryview:
        """Return the free part of the buffer; an empty one means that nothing more may be read now."""
        return self.view[self.have :]

    def discard(self, size: int) -> None:
        """Remove the first `size` bytes, which the connection has handled."""
        rest = self.have - size
        if rest and size:
            self.buffer[:rest] = self.buffer[size : self.have]
        self.have = rest

    def make_room(self, needed: int) -> bool:
        """Grow a full buffer for a request of `needed` bytes; `False`: the budget does not allow it now."""
        size = len(self.buffer)
        if self.have < size:
            return True
        # At most twice the bytes that have really come: a length prefix alone allocates nothing.
        target = min(needed, 2 * size)
        target = -(-target // STEP_BYTES) * STEP_BYTES
        is_short = needed <= SHORT_BYTES
        # A short one is granted whole: it does not hold a part while it waits for the rest.
        wanted = (-(-needed // STEP_BYTES) * STEP_BYTES if is_short else target) - BASE_BYTES
        if wanted > self.granted:
            if not self._budget.grow(self, wanted - self.granted, is_short=is_short):
                return False
            self.granted = wanted
        buffer = bytearray(target)
        buffer[: self.have] = self.view
        self.buffer, self.view = buffer, memoryview(buffer)
        return True

    def settle(self) -> None:
        """Keep an empty grown buffer for the next requests, or shrink one above `KEPT_BYTES`."""
        if self.granted and not self.have:
            if len(self.buffer) > KEPT_BYTES:
                self._replace(BASE_BYTES)
            else:
                self._budget.keep(self)

    def shrink(self) -> None:
        """Shrink an empty buffer to the base size."""
        if self.granted and not self.have:
            self._replace(BASE_BYTES)

    def close(self) -> None:
        """Give all granted bytes back to the budget."""
        self.have = 0
        self._replace(0)

    def _replace(self, size: int) -> None:
        granted, self.granted = self.granted, 0
        self.buffer = bytearray(size)
        self.view = memoryview(self.buffer)
        if granted:
            self._budget.give_back(self, granted)


# The output of one connection: small answers share a buffer, large parts are kept as they are.
#
# Laws: bytes leave in the order in which they came; small parts are copied, large ones never.
# Source: architecture, journey of an OffsetCommit.

#: Answers are written at the latest when so many bytes of them are there.
WRITE_AT_BYTES: Final = 1024 * 1024
#: Parts of answers up to this size are copied together.
COPIED_PART_BYTES: Final = 4096


class Output:
    """The responses of one connection that are ready and not yet written to the transport."""

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
        """The number of bytes that are still to be written."""
        return len(self.small) + self._part_bytes

    def clear(self) -> None:
        """Discard all output."""
        self.small = bytearray()
        self._parts.clear()
        self._part_bytes = 0

    def extend(self, parts: Iterable[Buffer]) -> None:
        """Append the parts of ready responses."""
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
        """Write about `WRITE_AT_BYTES` bytes to the transport; return `False` if there is nothing to write."""
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
