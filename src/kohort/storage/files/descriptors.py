"""Files that give their descriptor back and reopen themselves, and the memory that reads use.

Laws: a descriptor is closed when the last thread that uses it is done, never under its hands. A file that was opened
again is the same one as before: another that has taken its name is an error, not an answer. What is read is what the
file has; a read of more than that returns less.
Source: preadv2(2), RWF_NOWAIT: what lies in the page cache is read, and nothing is waited for.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final
from weakref import ref

from kohort.records.row_kernels import blank as blank_bytes

#: 0 where the system cannot tell which bytes are in its cache.
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
#: Errors of systems and file systems that cannot tell it either.
_NOT_KNOWN: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)

#: Shorter blocks are neither counted nor kept.
_LEAST_COUNTED_BYTES: Final = 16 * 1024
#: From this size on a block is a mapping of its own, which the system has back when it is let go; what goes back to the
#: allocator may stay with the process for ever.
_LEAST_MAPPED_BYTES: Final = 128 * 1024
#: Bytes of free blocks that are kept for reuse.
_MOST_KEPT_BYTES: Final = 32 << 20
#: Blocks that are checked at each loan, and in one check of all.
_LOOKS: Final = 4
_LOOKS_OF_ALL: Final = 2_000
#: Of the files that may be open, so many are closed at once when another one is opened.
_SHARE_CLOSED: Final = 16


class NotResidentError(Exception):
    """A read that would have to wait for the disk, which the caller does not."""

    def __init__(self, file: ReopenableFile, position: int, size: int) -> None:
        super().__init__(file, position, size)
        self.file = file
        #: The bytes to read so that the next try finds them in memory.
        self.position = position
        self.size = size

    def __str__(self) -> str:
        return f"{self.size} bytes at {self.position} of {self.file.path} are not in memory"


class WorkNeededError(NotResidentError):
    """A read that needs other work before the next try, for which the caller does not wait either."""

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
    """Memory for data that is read for clients: reused, since fresh pages are expensive, and counted.

    For one thread. A block is free when no view of it is left, which regular looks find out.
    """

    __slots__ = ("_free", "_is_wanted", "_kept", "_lent", "_used")

    def __init__(self) -> None:
        #: Size -> free blocks of it; `_kept`: their bytes.
        self._free: Final[dict[int, list[Block]]] = {}
        self._kept = 0
        #: Blocks that were in use at their last check, and their bytes.
        self._lent: Final[deque[Block]] = deque()
        self._used = 0
        #: Whether a block was asked for since the last look at all.
        self._is_wanted = False

    @property
    def used(self) -> int:
        """Bytes of the blocks in use, or a little more."""
        self._look(_LOOKS)
        return self._used

    def block(self, size: int) -> Block:
        """Lend a block of at least `size` bytes, with arbitrary content."""
        # Counting and keeping short blocks would cost more than allocating them.
        if size < _LEAST_COUNTED_BYTES:
            return bytearray(size)
        self._look(_LOOKS)
        self._is_wanted = True
        # An eighth of a power of two: slightly different sizes share the same blocks.
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
        """Take back free blocks, and release them if none was asked for meanwhile; return whether any is left.

        Call it regularly as long as it returns `True`: without further requests nothing else frees these blocks.
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
        """Take back free blocks, of those that were not looked at for longest."""
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
    """Whether only the caller references a block; a view of it counts as a reference."""
    return sys.getrefcount(block) <= _KNOWN_TO_CALLER


def _known_to_caller() -> int:
    block = bytearray()
    return _references(block)


def _references(block: Block) -> int:
    return sys.getrefcount(block)


#: References to a block that has a name in the caller of `_is_free` and none elsewhere.
_KNOWN_TO_CALLER: Final = _known_to_caller()


class Descriptor:
    """A file descriptor that closes with the last reference to it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number

    def __del__(self) -> None:
        os.close(self.number)


class ReopenableFile:
    """A file that can close its descriptor and reopen it; errors are those of the system."""

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
        """Take over the open descriptor `number`."""
        #: The path by which it is reopened.
        self.path = path
        self._files = files
        self._descriptor: Descriptor | None = Descriptor(number)
        #: Device and number of the file; known once it had to let go.
        self._identity: tuple[int, int] | None = None
        self._is_nowait_known = _NOWAIT != 0
        #: Whether it was used since the last look of `OpenFiles`, which resets it.
        self.is_used = True
        #: Counts the writes, and those that a sync has covered; each is raised by one thread only.
        self._written = self._synced = 0
        files.opened(self)

    def __del__(self) -> None:
        self._files.closed(self)

    @property
    def is_unsynced(self) -> bool:
        """Whether the file was written to since the last sync began."""
        return self._written != self._synced

    def let_go(self) -> None:
        """Close the descriptor, as soon as no other thread is using it."""
        held = self._descriptor
        if held is not None:
            found = os.fstat(held.number)
            # By device and inode a reopened file is known to be the same.
            self._identity = found.st_dev, found.st_ino
            self._descriptor = None

    def descriptor(self) -> Descriptor:
        """Return the open descriptor; the caller keeps it for as long as it uses the number."""
        self.is_used = True
        return self._descriptor or self._open_again()

    def _open_again(self) -> Descriptor:
        opened = Descriptor(open_descriptor(self.path, self._files.access, self._files))
        found = os.fstat(opened.number)
        if self._identity != (found.st_dev, found.st_ino):
            # The file was replaced from outside: its content would be wrong, so it is an error.
            raise OSError(errno.ESTALE, "another file has its name now")
        self._descriptor = opened
        self._files.opened(self)
        return opened

    def read_into(self, buffer: bytearray | memoryview, position: int, *, wait: bool) -> int:
        """Fill `buffer` from `position` on; return the number of bytes. `NotResidentError` unless `wait`."""
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
            # The system cannot tell: from now on all bytes are read as if they were in memory.
            self._is_nowait_known = False
            return os.preadv(held.number, [buffer], position)
        missing = min(os.fstat(held.number).st_size - position, size) - done if done < size else 0
        if missing > 0:
            raise NotResidentError(self, position + done, missing)
        return done


def open_descriptor(path: str, flags: int, files: OpenFiles, mode: int = 0o644) -> int:
    """Open a file (open(2)); if no descriptor is left, other files give theirs first."""
    flags |= os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except OSError as why:
        if why.errno not in (errno.EMFILE, errno.ENFILE) or not files.close_some():
            raise
        return os.open(path, flags, mode)


class OpenFiles:
    """The files of one file system that have a descriptor, by weak references.

    Laws: a file that was told to let its descriptor go opens itself again at its next use. Files with bytes that no
    sync has covered keep theirs while others can give one: the system reports what it could not write to descriptors
    that are open then (and, from Linux 4.16 on, once to the next that is opened, so that a sync by a new descriptor
    covers the bytes and tells of their errors as well). Safe in every thread: each step is one operation on a
    dictionary.
    Source: Corbató's clock algorithm; errseq(9) in the kernel's documentation; fsync(2).
    """

    __slots__ = ("_files", "access", "limit")

    def __init__(self, limit: int, *, reads_only: bool = False) -> None:
        """Create the cache; more than `limit` files are open only while the next one is opened."""
        assert limit > 0
        self.limit: Final = limit
        #: How they are opened, of the flags of open(2).
        self.access: Final = os.O_RDONLY if reads_only else os.O_RDWR
        #: By identity, the one that was opened first in front.
        self._files: Final[dict[int, ref[ReopenableFile]]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: ReopenableFile) -> None:
        """Add a file that was just opened."""
        self._files[id(file)] = ref(file)
        if len(self._files) > self.limit:
            self.close_some()

    def closed(self, file: ReopenableFile) -> None:
        """Remove a file that is closed or gone."""
        self._files.pop(id(file), None)

    def close_some(self) -> bool:
        """Close the descriptors of some files; `False` if there is none to close."""
        wanted = max(1, self.limit // _SHARE_CLOSED)
        for file in self._least_used():
            self.closed(file)
            file.let_go()
            wanted -= 1
            if not wanted:
                break
        return wanted < max(1, self.limit // _SHARE_CLOSED)

    def _least_used(self) -> Iterator[ReopenableFile]:
        """Yield the files in the order in which they should be closed."""
        unsynced: list[ReopenableFile] = []
        used: list[ReopenableFile] = []
        for key, known in list(self._files.items()):
            file = known()
            if file is None:
                continue
            if file.is_used:
                # A second chance, behind those that have not been looked at yet.
                file.is_used = False
                used.append(file)
                if self._files.pop(key, None) is not None:
                    self._files[key] = known
            elif file.is_unsynced:
                unsynced.append(file)
            else:
                yield file
        yield from (file for file in used if not file.is_unsynced)
        # Unsynced files come late: the system reports their write errors to descriptors that are open.
        yield from unsynced
        yield from (file for file in used if file.is_unsynced)
