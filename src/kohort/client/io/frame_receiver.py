"""The cutting of a broker's bytes into frames, with little copying and bounded memory.

Laws: a large frame is received straight into a buffer of its own. The decoded message refers to that without a copy. No
frame longer than the limit is given memory.
Source: Kafka's wire protocol: each answer follows its size as int32.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kohort.records.row_kernels import blank
from kohort.wire.foreign import impossible_length

_LENGTH: Final = Struct(">i")
_SCRATCH_BYTES: Final = 128 * 1024
#: Buffers of large answers that are kept to be used again, by all connections of a client together: as much as a
#: consumer holds by default.
POOL_BYTES: Final = 64 * 1024 * 1024


class BodyPool:
    """Buffers for large frames, used again without views: fresh memory costs more than receiving.

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
        """Bytes that are kept, in use or not."""
        return sum(map(len, self._buffers))

    def take(self, size: int) -> memoryview:
        """Return writable memory of that size; it is free again when the last view of it is gone."""
        for index, buffer in enumerate(self._buffers):
            if len(buffer) >= size and _is_unseen(buffer):
                # The least recently used one comes first.
                self._buffers.append(self._buffers.pop(index))
                return memoryview(buffer)[:size]
        # Rounded up, since the next answer is seldom of exactly this size.
        fresh = blank(-(-size // _SCRATCH_BYTES) * _SCRATCH_BYTES)
        self._buffers.append(fresh)
        while self.held_bytes > self._limit:
            del self._buffers[0]
        return memoryview(fresh)[:size]

    def clear(self) -> None:
        """Keep no buffer for later; those with a view live as long as it does."""
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
    """Cuts a stream into frames: small ones are copied out of a scratch buffer, large ones stay in place.

    >>> receiver = FrameReceiver(limit_bytes=100)
    >>> space = receiver.buffer()
    >>> space[:8] = b"\\x00\\x00\\x00\\x04abcd"
    >>> [bytes(frame) for frame in receiver.received(8)]
    [b'abcd']
    """

    __slots__ = ("_body", "_filled", "_pool", "_scratch", "_scratch_filled", "_scratch_view", "limit_bytes")

    def __init__(self, *, limit_bytes: int, pool: BodyPool | None = None) -> None:
        #: Longest frame that is given memory.
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
        """Count bytes that were put into `buffer()`; return the frames that they complete."""
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
