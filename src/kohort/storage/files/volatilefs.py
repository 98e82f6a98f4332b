"""The file system of a broker without a directory: in memory, bounded, and gone with the process.

Laws: what is written counts as durable at once. A view given out stays valid and unchanged in its range when the file
grows, because a file moves to a larger buffer instead of stretching the one that views look into. Files take no more
bytes than the limit; what is removed, cut or replaced is room again. One file system for several threads.
Source: requirement G1 (a broker in memory); the laws of `fs.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from hashlib import sha256
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, TypeAlias

from kohort.errors import StorageError
from kohort.storage.files.descriptors import HeldBytes
from kohort.storage.files.fs import Buffer, DiskHealth, FileLock, NoRoomError

#: Bytes of a file's first buffer.
_FIRST_CAPACITY: Final = 4096
#: From here on a buffer is memory that the system hands out page by page, as it is written.
_LAZY_CAPACITY: Final = 1 << 20


class MemoryFullError(NoRoomError):
    """The memory limit for a broker's files in memory is reached."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"the broker's memory for records is full (memory.limit.bytes={self.limit_bytes}); let retention keep "
            "less, raise the limit, or give the broker a directory (--data-dir, log.dir)"
        )


class VolatileFile:
    """A file in memory: a buffer larger than its content, so that appending rarely moves it."""

    __slots__ = ("_buffer", "_fs", "_is_counted", "_size", "changes")

    def __init__(self, fs: VolatileFileSystem) -> None:
        self._fs = fs
        self._buffer: bytearray | mmap = bytearray()
        self._size = 0
        #: Number of changes.
        self.changes = 0
        #: Whether it has a name; a file without one goes with its last reference.
        self._is_counted = True

    def size(self) -> int:
        return self._size

    def write(self, position: int, data: Buffer) -> None:
        end = position + len(data)
        if end > self._size and self._is_counted:
            self._fs.take(end - self._size)
        if end > len(self._buffer):
            grown = _buffer_of(max(_FIRST_CAPACITY, end, len(self._buffer) * _growth(len(self._buffer))))
            grown[: self._size] = memoryview(self._buffer)[: self._size]
            self._buffer = grown
        self._buffer[position:end] = data
        self.changes += 1
        self._size = max(self._size, end)

    def read(self, position: int, size: int, *, wait: bool = True) -> bytes:
        return bytes(self.view(position, size))

    def view(self, position: int, size: int, *, wait: bool = True) -> memoryview:
        return memoryview(self._buffer)[position : min(position + size, self._size)].toreadonly()

    def truncate(self, size: int) -> None:
        # A new buffer: views of the truncated bytes keep the old one.
        self._buffer = bytearray(memoryview(self._buffer)[:size])
        if self._is_counted:
            self._fs.take(size - self._size)
        self._size = size
        self.changes += 1

    def sync(self) -> None:
        """Do nothing; nothing outlives the process."""

    def leave(self) -> None:
        """Release the file's bytes from the limit; it has no name any more."""
        if self._is_counted:
            self._is_counted = False
            self._fs.take(-self._size)


class VolatileDirectory:
    """A directory in memory: names and their files or directories."""

    __slots__ = ("changes", "entries")

    def __init__(self) -> None:
        #: Number of names that were added or removed.
        self.changes = 0
        self.entries: dict[str, Node] = {}

    def change(self, *changes: tuple[str, Node | None]) -> None:
        """Set the file or directory of each name in one step; `None` removes the name."""
        self.changes += 1
        for name, node in changes:
            if node is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = node

    def sync(self) -> None:
        """Do nothing; nothing outlives the process."""


Node: TypeAlias = VolatileFile | VolatileDirectory


class _Lock:
    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)

    def find_loss(self) -> str:
        return ""


class VolatileFileSystem:
    """Directories and files in memory, `limit_bytes` of them; `random_bytes` starts at `seed`."""

    volatile: bool = True

    def __init__(self, *, limit_bytes: int | None = None, seed: bytes = b"") -> None:
        self.health = DiskHealth()
        self.held = HeldBytes()
        self.limit_bytes: Final = limit_bytes
        #: Bytes of the files that have a name.
        self.used_bytes = 0
        self._counting: Final = threading.Lock()
        self._root: VolatileDirectory = self._new_directory()
        self._locks: set[str] = set()
        self._seed = seed
        self._drawn = 0

    def take(self, count: int) -> None:
        """Count `count` bytes of growth (negative: of shrinking); `MemoryFullError` beyond the limit."""
        with self._counting:
            used = self.used_bytes + count
            if count > 0 and self.limit_bytes is not None and used > self.limit_bytes:
                raise MemoryFullError(self.limit_bytes)
            self.used_bytes = used

    def _new_file(self) -> VolatileFile:
        return VolatileFile(self)

    def _new_directory(self) -> VolatileDirectory:
        return VolatileDirectory()

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if isinstance(node, VolatileFile):
                raise StorageError(f"cannot create directory {path}: Not a directory")
            if node is None:
                node = self._new_directory()
                self._change(directory, (name, node))
            directory = node

    def list_directory(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, VolatileDirectory) else []

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def stamp(self, path: str) -> tuple[int, int, int] | None:
        node = self._find(path)
        if node is None:
            return None
        return id(node), node.size() if isinstance(node, VolatileFile) else 0, node.changes

    def open(self, path: str, *, create: bool = False) -> VolatileFile:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if isinstance(node, VolatileDirectory) or (node is None and not create):
            raise StorageError(f"cannot open {path}: {'Is a directory' if node else 'No such file or directory'}")
        if node is None:
            node = self._new_file()
            self._change(parent, (name, node))
        return node

    def rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        assert parent is other, "renames stay inside one directory"
        node = parent.entries.get(name)
        if node is None:
            raise StorageError(f"cannot rename {source}: No such file or directory")
        replaced = parent.entries.get(new_name)
        if isinstance(replaced, VolatileDirectory) and replaced.entries:
            raise StorageError(f"cannot rename {source}: Directory not empty")
        self._change(parent, (name, None), (new_name, node))
        if isinstance(replaced, VolatileFile) and replaced is not node:
            replaced.leave()

    def remove(self, path: str) -> None:
        if self._find(path) is not None:
            self._remove(*self._parent(path))

    def _remove(self, parent: VolatileDirectory, name: str) -> None:
        node = parent.entries[name]
        if isinstance(node, VolatileDirectory):
            for each in list(node.entries):
                self._remove(node, each)
        self._change(parent, (name, None))
        if isinstance(node, VolatileFile):
            node.leave()

    def open_directory(self, path: str) -> VolatileDirectory:
        node = self._find(path)
        if not isinstance(node, VolatileDirectory):
            raise StorageError(f"cannot open directory {path}: No such file or directory")
        return node

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def lock(self, path: str, owner: str) -> FileLock | None:
        if path in self._locks:
            return None
        file = self.open(path, create=True)
        file.truncate(0)
        file.write(0, f"{owner} 0\n".encode())
        self._locks.add(path)
        return _Lock(self._locks, path)

    def random_bytes(self, count: int) -> bytes:
        assert count <= 32, "identities are short"
        self._drawn += 1
        return sha256(self._seed + self._drawn.to_bytes(8, "big")).digest()[:count]

    def space(self, path: str) -> tuple[int, int]:
        # Without a limit the volume's size is unknown.
        return (-1, -1) if self.limit_bytes is None else (self.limit_bytes, self.limit_bytes - self.used_bytes)

    def _change(self, directory: VolatileDirectory, *changes: tuple[str, Node | None]) -> None:
        directory.change(*changes)

    def _find(self, path: str) -> Node | None:
        return self._walk(_parts(path))

    def _walk(self, names: Iterable[str]) -> Node | None:
        node: Node | None = self._root
        for name in names:
            node = node.entries.get(name) if isinstance(node, VolatileDirectory) else None
        return node

    def _parent(self, path: str) -> tuple[VolatileDirectory, str]:
        *parents, name = _parts(path)
        node = self._walk(parents)
        if not isinstance(node, VolatileDirectory):
            raise StorageError(f"cannot open {path}: No such file or directory")
        return node, name


def _growth(capacity: int) -> int:
    # Up to 16 MB in big steps: unwritten pages take no memory, while growing copies the content.
    return 16 if capacity <= _LAZY_CAPACITY else 2


def _buffer_of(capacity: int) -> bytearray | mmap:
    if capacity < _LAZY_CAPACITY:
        return bytearray(capacity)
    return mmap(-1, capacity, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
