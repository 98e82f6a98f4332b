"""A file system in memory: the in-memory broker's, and a disk that can lose power for tests.

Laws: a view given out stays valid and unchanged in its range when the file grows, because a file moves to a larger
buffer instead of stretching the one that views look into. `crash` keeps what was synced, and of the rest only what
the test asks for.
Source: the durability rules of `fs.py`; a journalling file system keeps the order of changes inside a directory.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, TypeAlias

from kohort.errors import StorageError
from kohort.storage.descriptors import HeldBytes
from kohort.storage.diskerrors import DiskHealth, SyncFailedError
from kohort.storage.fs import Buffer

_FIRST_CAPACITY: Final = 4096
#: From here on a buffer is memory that the system hands out page by page, as it is written.
_LAZY_CAPACITY: Final = 1 << 20

#: (path, durable size, written size) -> size that survives.
Survives: TypeAlias = Callable[[str, int, int], int]
#: One change of a directory: name, and the node it names since (None: removed).
_Change: TypeAlias = "tuple[tuple[str, MemoryFile | _Directory | None], ...]"


class Crashed(Exception):
    """The simulated machine stopped in the middle of an operation."""


class MemoryFile:
    """A file: a buffer that is larger than what was written, so that appending rarely moves it."""

    __slots__ = ("_buffer", "_fs", "_size", "durable_size")

    def __init__(self, fs: MemoryFileSystem) -> None:
        self._fs = fs
        self._buffer: bytearray | mmap = bytearray()
        self._size = 0
        #: Bytes from the start that a crash cannot take.
        self.durable_size = 0

    def size(self) -> int:
        return self._size

    def write(self, position: int, data: Buffer) -> None:
        fits = self._fs.room_for(len(data))
        end = position + len(data)
        if fits < len(data):
            raise StorageError(f"cannot write to memory: {fits} of {len(data)} bytes fit; free some space")
        if end > len(self._buffer):
            grown = _buffer_of(max(_FIRST_CAPACITY, end, len(self._buffer) * _growth(len(self._buffer))))
            grown[: self._size] = memoryview(self._buffer)[: self._size]
            self._buffer = grown
        self._buffer[position:end] = data
        self._size = max(self._size, end)
        self._fs.step()

    def read(self, position: int, size: int, *, wait: bool = True) -> bytes:
        return bytes(self.view(position, size))

    def view(self, position: int, size: int, *, wait: bool = True) -> memoryview:
        return memoryview(self._buffer)[position : min(position + size, self._size)].toreadonly()

    def map(self, size: int) -> memoryview:
        return memoryview(self._buffer)[:size].toreadonly()

    def truncate(self, size: int) -> None:
        # A fresh buffer: views of what is cut keep the old one.
        self._buffer = bytearray(memoryview(self._buffer)[:size])
        self._size = size
        self.durable_size = min(self.durable_size, size)
        self._fs.step()

    def sync(self) -> None:
        if self._fs.sync_error:
            raise SyncFailedError(f"cannot make a file durable: {self._fs.sync_error}")
        # A sync covers what was written before it began; a crash inside it leaves it undone.
        covered = self._size
        self._fs.step()
        self.durable_size = covered

    def copy(self, fs: MemoryFileSystem) -> MemoryFile:
        """The same file on another disk, as durable as here."""
        twin = MemoryFile(fs)
        twin.durable_size = self.durable_size
        twin._buffer = bytearray(memoryview(self._buffer)[: self._size])
        twin._size = len(twin._buffer)
        return twin

    def lose_power(self, size: int, *, zero_fill: bool) -> None:
        """Keep the first `size` bytes; with `zero_fill` the file keeps its length and reads zeros behind them."""
        kept = bytearray(memoryview(self._buffer)[:size])
        self._buffer = kept + bytes(self._size - size) if zero_fill else kept
        self._size = self.durable_size = len(self._buffer)


class _Directory:
    __slots__ = ("entries", "unsynced")

    def __init__(self) -> None:
        self.entries: dict[str, MemoryFile | _Directory] = {}
        #: Inverse of each change since the last sync, oldest first.
        self.unsynced: list[_Change] = []

    def change(self, *changes: tuple[str, MemoryFile | _Directory | None]) -> None:
        """Apply changes as one step that a crash undoes as a whole."""
        self.unsynced.append(tuple((name, self.entries.get(name)) for name, _ in changes))
        self._apply(changes)

    def undo_last(self) -> None:
        self._apply(self.unsynced.pop())

    def copy(self, fs: MemoryFileSystem, known: dict[int, MemoryFile | _Directory]) -> _Directory:
        """The same directory on another disk; `known`: what is copied already, by the identity of the original."""
        twin = _Directory()
        known[id(self)] = twin

        def copied(node: MemoryFile | _Directory | None) -> MemoryFile | _Directory | None:
            if node is not None and id(node) not in known:
                known[id(node)] = node.copy(fs, known) if isinstance(node, _Directory) else node.copy(fs)
            return node and known[id(node)]

        # Another thread may be changing it: a list is made in one step.
        twin.unsynced = [tuple((name, copied(node)) for name, node in change) for change in list(self.unsynced)]
        twin._apply(tuple((name, copied(node)) for name, node in list(self.entries.items())))
        return twin

    def _apply(self, changes: _Change) -> None:
        for name, node in changes:
            if node is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = node


class _OpenDirectory:
    __slots__ = ("_fs", "_node", "_path")

    def __init__(self, fs: MemoryFileSystem, path: str, node: _Directory) -> None:
        self._fs, self._path, self._node = fs, path, node

    def sync(self) -> None:
        if self._fs.sync_error:
            raise SyncFailedError(f"cannot make directory {self._path} durable: {self._fs.sync_error}")
        self._fs.step()
        self._node.unsynced.clear()


class _Lock:
    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFileSystem:
    """Directories and files in memory.

    Args:
        volatile: `True` for a broker without a disk: what is written counts as durable at once.
        seed: where `random_bytes` starts.
    """

    def __init__(self, *, volatile: bool = False, seed: bytes = b"") -> None:
        self.volatile = volatile
        self.health = DiskHealth()
        self.held = HeldBytes()
        #: Steps (changes of files and directories) until `Crashed`; None: never.
        self.steps_left: int | None = None
        #: Bytes that still fit; None: no limit.
        self.space_left: int | None = None
        #: Reason why every sync fails; empty: they work.
        self.sync_error = ""
        self._root = _Directory()
        self._locks: set[str] = set()
        self._seed = seed
        self._drawn = 0

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if isinstance(node, MemoryFile):
                raise StorageError(f"cannot create directory {path}: Not a directory")
            if node is None:
                node = _Directory()
                directory.change((name, node))
                self.step()
            directory = node

    def list_directory(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, _Directory) else []

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if isinstance(node, _Directory) or (node is None and not create):
            raise StorageError(f"cannot open {path}: {'Is a directory' if node else 'No such file or directory'}")
        if node is None:
            node = MemoryFile(self)
            parent.change((name, node))
            self.step()
        return node

    def rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        assert parent is other, "renames stay inside one directory"
        node = parent.entries.get(name)
        if node is None:
            raise StorageError(f"cannot rename {source}: No such file or directory")
        parent.change((name, None), (new_name, node))
        self.step()

    def remove(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, _Directory):
            for name in list(node.entries):
                self.remove(f"{path}/{name}")
        parent, name = self._parent(path)
        parent.change((name, None))
        self.step()

    def open_directory(self, path: str) -> _OpenDirectory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise StorageError(f"cannot open directory {path}: No such file or directory")
        return _OpenDirectory(self, path, node)

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def lock(self, path: str, owner: str) -> _Lock | None:
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
        return -1, -1

    def crash(
        self,
        survives: Survives = lambda _path, durable, _written: durable,
        *,
        changes_kept: Callable[[str, int], int] = lambda _path, _unsynced: 0,
        zero_fill: bool = False,
    ) -> None:
        """Lose power: every file and directory falls back to what was durable, plus what the arguments let live.

        Args:
            survives: size that each file keeps, between durable and written.
            changes_kept: how many of a directory's unsynced changes, oldest first, became durable by chance.
            zero_fill: files keep their written length, and read zeros where bytes are lost.
        """
        self.steps_left = None
        self._locks = set()
        self._lose_power("", self._root, survives, changes_kept, zero_fill)

    def _lose_power(
        self, path: str, node: _Directory, survives: Survives, kept: Callable[[str, int], int], zero_fill: bool
    ) -> None:
        keep = kept(path, len(node.unsynced))
        while len(node.unsynced) > keep:
            node.undo_last()
        node.unsynced.clear()
        for name, child in node.entries.items():
            if isinstance(child, _Directory):
                self._lose_power(f"{path}/{name}", child, survives, kept, zero_fill)
            else:
                size = survives(f"{path}/{name}", child.durable_size, child.size())
                assert child.durable_size <= size <= child.size()
                child.lose_power(size, zero_fill=zero_fill)

    def copy(self) -> MemoryFileSystem:
        """The disk as it is now, which another machine may lose power with."""
        twin = MemoryFileSystem(volatile=self.volatile, seed=self._seed)
        twin._root = self._root.copy(twin, {})
        return twin

    def step(self) -> None:
        """Count a change; `Crashed` when the test wants the machine to stop here."""
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise Crashed
            self.steps_left -= 1

    def room_for(self, count: int) -> int:
        """How many of `count` bytes still fit; they are taken if all do."""
        if self.space_left is None:
            return count
        if self.space_left < count:
            return self.space_left
        self.space_left -= count
        return count

    def _find(self, path: str) -> MemoryFile | _Directory | None:
        node: MemoryFile | _Directory | None = self._root
        for name in _parts(path):
            node = node.entries.get(name) if isinstance(node, _Directory) else None
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *parents, name = _parts(path)
        node = self._find("/".join(parents))
        if not isinstance(node, _Directory):
            raise StorageError(f"cannot open {path}: No such file or directory")
        return node, name


def _growth(capacity: int) -> int:
    # Up to 16 MB in big steps: pages that nobody wrote to do not exist, and growing copies.
    return 16 if capacity <= _LAZY_CAPACITY else 2


def _buffer_of(capacity: int) -> bytearray | mmap:
    if capacity < _LAZY_CAPACITY:
        return bytearray(capacity)
    return mmap(-1, capacity, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
