"""A file of the operating system that opens itself again after it had to give its descriptor back, and how it is read.

Laws: a descriptor is closed when the last thread that uses it is done, never under its hands. A file that was opened
again is the same one as before: another that has taken its name is an error, not an answer. What is read is what the
file has; who asks for more than that gets less.
Source: preadv2(2), RWF_NOWAIT: what lies in the page cache is read, and nothing is waited for.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from kohort.records.row_kernels import blank as blank_bytes
from kohort.storage.files.filecache import OpenFiles

#: 0 where the system cannot tell what lies in its cache.
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
#: What systems and file systems say that cannot tell it either.
_NOT_KNOWN: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)

#: Less is not counted, and not worth keeping.
_LEAST_COUNTED_BYTES: Final = 16 * 1024
#: From this size on a block is a mapping of its own, which the system has back when it is let go; what goes back to the
#: allocator may stay with the process for ever.
_LEAST_MAPPED_BYTES: Final = 128 * 1024
#: What is kept to be used again.
_MOST_KEPT_BYTES: Final = 32 << 20
#: Blocks that are looked at for each that is lent, and in one look at all.
_LOOKS: Final = 4
_LOOKS_OF_ALL: Final = 2_000


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


class WorkNeededError(NotResidentError):
    """More than to read is to be done before the next try, and the caller does not wait for that either."""

    def __init__(self, what: str, work: Callable[[], None]) -> None:
        Exception.__init__(self, what)
        self.what = what
        #: For a thread.
        self.work = work
        self.position = self.size = 0

    def __str__(self) -> str:
        return self.what


#: Memory that is lent as a whole.
Block = bytearray | mmap


class HeldBytes:
    """Memory for what is read for clients: used again, since fresh pages cost more than to fill them, and counted.

    For one thread. A block is free when nobody has a view of it any more; that is found out by looking now and then.
    """

    __slots__ = ("_free", "_is_wanted", "_kept", "_lent", "_used")

    def __init__(self) -> None:
        #: Size -> blocks of it that nobody has; `_kept`: their bytes.
        self._free: Final[dict[int, list[Block]]] = {}
        self._kept = 0
        #: Those that somebody had when they were looked at last, and their bytes.
        self._lent: Final[deque[Block]] = deque()
        self._used = 0
        #: Whether a block was asked for since the last look at all.
        self._is_wanted = False

    @property
    def used(self) -> int:
        """Bytes of the blocks that somebody has, or a little more."""
        self._look(_LOOKS)
        return self._used

    def block(self, size: int) -> Block:
        """At least `size` bytes, which hold anything."""
        if size < _LEAST_COUNTED_BYTES:
            return bytearray(size)
        self._look(_LOOKS)
        self._is_wanted = True
        # An eighth of a power of two: what is little larger fits the same blocks.
        step = 1 << (size.bit_length() - 4)
        size = -(-size // step) * step
        free = self._free.get(size)
        if free:
            block = free.pop()
            self._kept -= size
        else:
            is_mapped = size >= _LEAST_MAPPED_BYTES
            block = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS) if is_mapped else blank_bytes(size)
        self._lent.append(block)
        self._used += size
        return block

    def settle(self) -> bool:
        """Take back all that nobody has, and let go of it if nothing was asked for meanwhile; whether any is left.

        To be called now and then as long as it says so: of what is never asked for again nobody would know.
        """
        for _ in range(min(_LOOKS_OF_ALL, len(self._lent))):
            block = self._lent.popleft()
            if _is_free(block):
                self._take_back(block)
            else:
                self._lent.append(block)
        if not self._is_wanted:
            self._free.clear()
            self._kept = 0
        self._is_wanted = False
        return bool(self._lent or self._kept)

    def _look(self, count: int) -> None:
        """Take back what nobody has any more, of the blocks that were not looked at for longest."""
        for _ in range(min(count, len(self._lent))):
            block = self._lent.popleft()
            if not _is_free(block):
                self._lent.append(block)
                # Those behind it were lent later, or looked at before.
                break
            self._take_back(block)

    def _take_back(self, block: Block) -> None:
        self._used -= len(block)
        if self._kept + len(block) <= _MOST_KEPT_BYTES:
            self._kept += len(block)
            self._free.setdefault(len(block), []).append(block)


def _is_free(block: Block) -> bool:
    """Whether the caller alone knows it: a view of it counts as well."""
    return sys.getrefcount(block) <= _KNOWN_TO_CALLER


def _known_to_caller() -> int:
    block = bytearray()
    return _references(block)


def _references(block: Block) -> int:
    return sys.getrefcount(block)


#: References to a block that has a name in the caller of `_is_free` and none elsewhere.
_KNOWN_TO_CALLER: Final = _known_to_caller()


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
        opened = Descriptor(open_descriptor(self.path, self._files.access, self._files))
        found = os.fstat(opened.number)
        if self._identity != (found.st_dev, found.st_ino):
            raise OSError(errno.ESTALE, "another file has its name now")
        self._descriptor = opened
        self._files.opened(self)
        return opened

    def read_into(self, buffer: bytearray | memoryview, position: int, *, wait: bool) -> int:
        """Fill `buffer` from `position` on; how many bytes there were. `NotResidentError` unless `wait`."""
        held = self.descriptor()
        if not wait and self._is_nowait_known:
            return self._read_resident(held, buffer, position)
        return os.preadv(held.number, [buffer], position)

    def _read_resident(self, held: Descriptor, buffer: bytearray | memoryview, position: int) -> int:
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
