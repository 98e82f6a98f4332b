"""Length-prefixed frames, into which a byte stream is split.

Laws: no frame longer than the limit is ever stored, not even in part; memory held is at most one frame and what came
with it; a frame handed out is never written to again.
Source: the protocol guide: each request and response follows its size as int32.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.primitives import Buffer

#: Bytes of the size in front of a frame.
SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">i")
_INT32_MAX: Final = 0x7FFFFFFF


def encode_frame(parts: Iterable[Buffer]) -> list[Buffer]:
    """Return the buffers of one frame: its size, then `parts` as they are, not copied."""
    buffers: list[Buffer] = [b"", *parts]
    size = sum(each.nbytes if isinstance(each, memoryview) else len(each) for each in buffers)
    if size > _INT32_MAX:
        raise LocalProtocolError(f"a frame of {size} bytes does not fit the protocol; send less at a time")
    buffers[0] = _SIZE.pack(size)
    return buffers


class FrameSplitter:
    """The splitter of one stream into frames.

    >>> splitter = FrameSplitter(limit_bytes=100)
    >>> splitter.feed(bytes([0, 0, 0, 2]) + b"o")
    []
    >>> [bytes(frame) for frame in splitter.feed(b"k" + bytes([0, 0, 0, 1]) + b"!")]
    [b'ok', b'!']
    """

    __slots__ = ("_frame", "_limit_bytes", "_size", "_wanted")

    def __init__(self, limit_bytes: int) -> None:
        """Begin a stream; `limit_bytes` is the longest accepted frame, without its size prefix."""
        self._limit_bytes = limit_bytes
        #: Bytes of a size prefix that is not whole yet.
        self._size = b""
        #: The bytes of the incomplete frame, and its whole length; `None` between frames.
        self._frame: bytearray | None = None
        self._wanted = 0

    @property
    def is_between_frames(self) -> bool:
        """Whether a stream may end here."""
        return self._frame is None and not self._size

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take bytes from the stream.

        Args:
            data: may be written over after the call unless it is `bytes`.

        Returns:
            The frames that are now whole, without their sizes; views of `data` where it is `bytes`, else copies.

        Raises:
            RemoteProtocolError: a size that is negative or above the limit; the stream cannot be read any further.
        """
        view = memoryview(data)
        frames: list[memoryview] = []
        position, end = 0, len(view)
        while position < end:
            if self._frame is not None:
                position = self._fill(view, position, frames)
                continue
            if self._size or end - position < SIZE_BYTES:
                missing = SIZE_BYTES - len(self._size)
                self._size += bytes(view[position : position + missing])
                position = min(end, position + missing)
                if len(self._size) < SIZE_BYTES:
                    break
                size, self._size = self._checked(_SIZE.unpack(self._size)[0]), b""
            else:
                size = self._checked(_SIZE.unpack_from(view, position)[0])
                position += SIZE_BYTES
            if size <= end - position:
                piece = view[position : position + size]
                # Other buffers may be overwritten after the call, so their frames are copies.
                frames.append(piece if isinstance(data, bytes) else memoryview(bytes(piece)))
                position += size
            else:
                self._start(size)
        return frames

    def _checked(self, size: int) -> int:
        if not 0 <= size <= self._limit_bytes:
            raise RemoteProtocolError(f"a frame of {size} bytes was announced; 0 to {self._limit_bytes} are accepted")
        return size

    def _start(self, size: int) -> None:
        """Begin an incomplete frame."""
        # The buffer grows as bytes come: a size alone must not allocate memory.
        self._frame = bytearray()
        self._wanted = size

    def _fill(self, view: memoryview, position: int, frames: list[memoryview]) -> int:
        """Add to the incomplete frame; return the position behind the taken bytes."""
        assert self._frame is not None
        missing = self._wanted - len(self._frame)
        self._frame += view[position : position + missing]
        if len(self._frame) == self._wanted:
            frames.append(memoryview(self._frame))
            self._frame = None
        return min(len(view), position + missing)
