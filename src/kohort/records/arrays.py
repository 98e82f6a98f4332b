"""Arrays of numbers and bytes that kernels fill, and a pool of their memory.

Laws: memory of a pool is reused only when no reference to it is left; the content of a blank array is undefined until
it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kohort.records.row_kernels import blank as blank_bytes

#: Makes an array of a kind (q: int64, i: int32, B: byte) and a length.
Allocate: TypeAlias = Callable[[str, int], memoryview]

_WIDTHS: Final = {"q": 8, "i": 4, "B": 1}
#: Smaller arrays are allocated as quickly, larger ones are needed too seldom to be kept.
_LEAST_POOLED_BYTES: Final = 32 * 1024
_MOST_POOLED_BYTES: Final = 4 * 1024 * 1024


def zeros(kind: str, count: int) -> memoryview:
    """Return an array of zeros."""
    return _as(kind, memoryview(bytearray(count * _WIDTHS[kind])))


def blank(kind: str, count: int) -> memoryview:
    """Return an array without initial values; the caller writes all of its elements."""
    return _as(kind, memoryview(blank_bytes(count * _WIDTHS[kind])))


class ArrayPool:
    """A pool of blank arrays, whose memory is reused.

    >>> pool = ArrayPool(limit_bytes=1 << 20)
    >>> first = pool.array("q", 10_000)
    >>> address = first.obj
    >>> del first
    >>> pool.array("q", 10_000).obj is address
    True
    """

    __slots__ = ("_blocks", "_kept_bytes", "_limit_bytes")

    def __init__(self, *, limit_bytes: int) -> None:
        """
        Args:
            limit_bytes: the most memory that is kept for reuse; arrays beyond it are allocated all the same.
        """
        self._limit_bytes: Final = limit_bytes
        #: A block is in use while a memoryview, also that of an Arrow buffer, refers to it; the last used is first.
        self._blocks: Final[list[bytearray]] = []
        self._kept_bytes = 0

    def array(self, kind: str, count: int) -> memoryview:
        """Return a blank array; its memory is reused when no reference to it is left."""
        size = count * _WIDTHS[kind]
        if not _LEAST_POOLED_BYTES <= size <= _MOST_POOLED_BYTES:
            return blank(kind, count)
        for index, block in enumerate(self._blocks):
            if size <= len(block) <= 2 * size and _is_free(block):
                self._blocks.insert(0, self._blocks.pop(index))
                return _as(kind, memoryview(block)[:size])
        # A quarter more, so that a slightly larger array fits the next time.
        block = blank_bytes(size + size // 4)
        self._keep(block)
        return _as(kind, memoryview(block)[:size])

    def _keep(self, block: bytearray) -> None:
        self._blocks.insert(0, block)
        self._kept_bytes += len(block)
        while self._kept_bytes > self._limit_bytes:
            # Other references to it stay valid.
            self._kept_bytes -= len(self._blocks.pop())


def _is_free(block: bytearray) -> bool:
    try:
        # A byte array with a view cannot change its size.
        block.append(block.pop())
    except BufferError:
        return False
    return True


def _as(kind: str, view: memoryview) -> memoryview:
    return view.cast(kind)  # type: ignore[call-overload,no-any-return]
