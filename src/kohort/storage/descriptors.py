"""A file of the operating system that opens itself again after it had to give its descriptor back, and how it is read.

Laws: a descriptor is closed when the last thread that uses it is done, never under its hands. A file that was opened
again is the same one as before: another that has taken its name is an error, not an answer. What is read is what the
file has; who asks for more than that gets less.
Source: preadv2(2), RWF_NOWAIT: what lies in the page cache is read, and nothing is waited for.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from kohort.storage.filecache import OpenFiles

#: 0 where the system cannot tell what lies in its cache.
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
#: What systems and file systems say that cannot tell it either.
_NOT_KNOWN: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class NotResidentError(Exception):
    """The bytes would have to come from the disk, and the caller does not wait for that."""

    def __init__(self, file: ReopenableFile, position: int, size: int) -> None:
        super().__init__(file, position, size)
        self.file = file
        #: What is to be read so that the next try finds it.
        self.position = position
        self.size = size

    def __str__(self) -> str:
        return f"{self.size} bytes at {self.position} of {self.file.path} are not in memory"


class ReadBuffer(bytearray):
    """Bytes that were read for an answer; they count as held until nobody has them any more."""

    __slots__ = ("_held",)

    def __init__(self, size: int, held: HeldBytes) -> None:
        super().__init__(size)
        self._held = held
        held.used += size

    def __del__(self) -> None:
        self._held.used -= len(self)


class HeldBytes:
    """How much memory the answers of readers take: what was read and not yet sent."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class Descriptor:
    """Closed with the last reference to it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number

    def __del__(self) -> None:
        os.close(self.number)


class ReopenableFile:
    """An open file among others; errors are those of the system."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_files",
        "_identity",
        "_is_nowait_known",
        "_synced",
        "_written",
        "is_used",
        "path",
    )

    def __init__(self, path: str, number: int, files: OpenFiles) -> None:
        """`number`: the descriptor, which is its own from now on."""
        #: Where it is opened again.
        self.path = path
        self._files = files
        self._descriptor: Descriptor | None = Descriptor(number)
        #: Device and number of the file; known once it had to let go.
        self._identity: tuple[int, int] | None = None
        self._is_nowait_known = _NOWAIT != 0
        self.is_used = True
        #: Counts the writes, and those that a sync has covered; each is raised by one thread only.
        self._written = self._synced = 0
        files.opened(self)

    def __del__(self) -> None:
        self._files.closed(self)

    @property
    def is_unsynced(self) -> bool:
        """Whether it was written to since the last sync began."""
        return self._written != self._synced

    def let_go(self) -> None:
        """Close the descriptor, as soon as no other thread is in the middle of using it."""
        held = self._descriptor
        if held is not None:
            found = os.fstat(held.number)
            self._identity = found.st_dev, found.st_ino
            self._descriptor = None

    def descriptor(self) -> Descriptor:
        """The open descriptor; the caller keeps it for as long as it uses the number."""
        self.is_used = True
        return self._descriptor or self._open_again()

    def _open_again(self) -> Descriptor:
        opened = Descriptor(open_descriptor(self.path, os.O_RDWR, self._files))
        found = os.fstat(opened.number)
        if self._identity != (found.st_dev, found.st_ino):
            raise OSError(errno.ESTALE, "another file has its name now")
        self._descriptor = opened
        self._files.opened(self)
        return opened

    def read_into(self, buffer: bytearray, position: int, *, wait: bool) -> int:
        """Fill `buffer` from `position` on; how many bytes there were. `NotResidentError` unless `wait`."""
        held = self.descriptor()
        if not wait and self._is_nowait_known:
            return self._read_resident(held, buffer, position)
        return os.preadv(held.number, [buffer], position)

    def _read_resident(self, held: Descriptor, buffer: bytearray, position: int) -> int:
        size = len(buffer)
        try:
            done = os.preadv(held.number, [buffer], position, _NOWAIT)
        except BlockingIOError:
            done = 0
        except OSError as why:
            if why.errno not in _NOT_KNOWN:
                raise
            # Nobody can tell: from now on it is read as if it were there.
            self._is_nowait_known = False
            return os.preadv(held.number, [buffer], position)
        missing = min(os.fstat(held.number).st_size - position, size) - done if done < size else 0
        if missing > 0:
            raise NotResidentError(self, position + done, missing)
        return done


def open_descriptor(path: str, flags: int, files: OpenFiles, mode: int = 0o644) -> int:
    """open(2); where no descriptor is left, others give theirs first."""
    flags |= os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except OSError as why:
        if why.errno not in (errno.EMFILE, errno.ENFILE) or not files.close_some():
            raise
        return os.open(path, flags, mode)
