"""A reader of batches in a file that may be damaged, cut or unreadable; reads windows, maps nothing.

Laws: memory is one window, whatever length a batch claims. A file that is cut meanwhile ends where it ends now:
what is missing is no batch. A page that the disk cannot give is an error of the file, never the end of the process.
Source: Apache Kafka's log recovery; mmap(2) on files that others cut.
"""

from __future__ import annotations

from typing import Final

from kohort.records.checksum import crc32c
from kohort.records.header import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    check_counts,
    damaged_batch,
    parse_header,
    torn_batch,
)
from kohort.storage.files.fs import LogFile

#: Windows for reading every byte, and for reading headers alone.
WINDOW_BYTES: Final = 1 << 20
HEADERS_WINDOW_BYTES: Final = 4 << 10


class BatchReader:
    """A reader of batches by position: reading forward costs one pass, each jump a window."""

    __slots__ = ("_base", "_file", "_window", "_window_bytes", "size")

    def __init__(self, file: LogFile, *, window_bytes: int = WINDOW_BYTES, limit_bytes: int | None = None) -> None:
        self._file = file
        self._window_bytes = window_bytes
        #: Bytes of the file from `_base` on.
        self._window = memoryview(b"")
        self._base = 0
        #: The size of the file when the reader was created, up to the limit.
        self.size: Final = file.size() if limit_bytes is None else min(file.size(), limit_bytes)

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer at the end."""
        return self._file.read(position, min(size, self.size - position))

    def is_blank(self, position: int) -> bool:
        """Whether all bytes from there on are zeros."""
        while position < self.size:
            piece = self.read(position, WINDOW_BYTES)
            if any(piece):
                return False
            position += len(piece) or self.size
        return True

    def header_at(self, position: int) -> BatchHeader:
        """Parse the header at `position`; raise as `parse_header` does, or `StorageError`."""
        here = position - self._base
        if here < 0 or here + HEADER_SIZE > len(self._window):
            self._move_to(position)
            here = 0
        return parse_header(self._window, here, origin=self._base)

    def check(self, position: int, header: BatchHeader, *, with_crc: bool = True) -> None:
        """Check a batch of the file as `check_batch` does; may raise `StorageError`, too."""
        check_counts(header)
        end = position + header.batch_length + LENGTH_OVERHEAD
        # The claimed length is checked before the bytes are read.
        if end > self.size:
            raise torn_batch(header, self.size - position)
        if with_crc and self._crc(position + CRC_START, end) != header.crc:
            raise damaged_batch(header)

    def _crc(self, start: int, end: int) -> int:
        base, size = self._base, len(self._window)
        if base <= start and end <= base + size:
            return crc32c(self._window[start - base : end - base])
        checksum = 0
        while start < end:
            if not self._base <= start < self._base + len(self._window):
                self._move_to(start)
                if not self._window:
                    # It was cut meanwhile.
                    break
            piece = self._window[start - self._base : end - self._base]
            checksum = crc32c(piece, checksum)
            start += len(piece)
        return checksum

    def _move_to(self, position: int) -> None:
        self._window = memoryview(self.read(position, self._window_bytes))
        self._base = position
