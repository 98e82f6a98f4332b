"""A disk in memory that can lose power and run full, for tests.

Laws: `crash` keeps what was synced, and of the rest only what the test asks for. No broker uses it.
Source: the durability rules of `fs.py`; a journalling file system keeps the order of changes inside a directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kohort.errors import StorageError
from kohort.storage.files.diskerrors import SyncFailedError
from kohort.storage.files.fs import Buffer
from kohort.storage.files.volatilefs import Node, VolatileDirectory, VolatileFile, VolatileFileSystem

#: (path, durable size, written size) -> size that survives.
Survives: TypeAlias = Callable[[str, int, int], int]
#: One change of a directory: name, and the node it names since (None: removed).
_Change: TypeAlias = tuple[tuple[str, Node | None], ...]


class Crashed(Exception):
    """The simulated machine stopped in the middle of an operation."""


class MemoryFile(VolatileFile):
    """A file in memory; only synced bytes survive a crash."""

    __slots__ = ("_disk", "durable_size")

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__(disk)
        self._disk = disk
        #: Bytes from the start that a crash cannot take.
        self.durable_size = 0

    def write(self, position: int, data: Buffer) -> None:
        self._disk.check_room(len(data))
        super().write(position, data)
        self._disk.step()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.durable_size = min(self.durable_size, size)
        self._disk.step()

    def sync(self) -> None:
        if self._disk.sync_error:
            raise SyncFailedError(f"cannot make a file durable: {self._disk.sync_error}")
        # A sync covers what was written before it began; a crash inside it leaves it undone.
        covered = self._size
        self._disk.step()
        # Another thread's may have covered more meanwhile, and the file may have been cut.
        self.durable_size = max(self.durable_size, min(covered, self._size))

    def copy(self, disk: MemoryFileSystem) -> MemoryFile:
        """Copy the file to another disk, equally durable."""
        twin = MemoryFile(disk)
        twin.durable_size = self.durable_size
        twin._buffer = bytearray(memoryview(self._buffer)[: self._size])
        twin._size = len(twin._buffer)
        return twin

    def lose_power(self, size: int, *, zero_fill: bool) -> None:
        """Cut the file to `size` bytes, or with `zero_fill` keep its length and read zeros behind them."""
        kept = bytearray(memoryview(self._buffer)[:size])
        self._buffer = kept + bytes(self._size - size) if zero_fill else kept
        self.changes += 1
        self._size = self.durable_size = len(self._buffer)


class MemoryDirectory(VolatileDirectory):
    """A directory in memory; its changes are undone by a crash until they are synced."""

    __slots__ = ("_disk", "unsynced")

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__()
        self._disk = disk
        #: Inverse of each change since the last sync, oldest first.
        self.unsynced: list[_Change] = []

    def change(self, *changes: tuple[str, Node | None]) -> None:
        self.unsynced.append(tuple((name, self.entries.get(name)) for name, _ in changes))
        super().change(*changes)

    def undo_last(self) -> None:
        """Undo the last change."""
        super().change(*self.unsynced.pop())

    def sync(self) -> None:
        if self._disk.sync_error:
            raise SyncFailedError(f"cannot make a directory durable: {self._disk.sync_error}")
        covered = {id(change): change for change in self.unsynced}
        self._disk.step()
        # Changes by another thread meanwhile are not covered.
        self.unsynced = [change for change in self.unsynced if id(change) not in covered]

    def copy(self, disk: MemoryFileSystem, known: dict[int, Node]) -> MemoryDirectory:
        """Copy the directory to another disk; `known`: copies made so far, by the original's identity."""
        twin = MemoryDirectory(disk)
        known[id(self)] = twin

        def copied(node: Node | None) -> Node | None:
            if node is not None and id(node) not in known:
                assert isinstance(node, MemoryFile | MemoryDirectory)
                known[id(node)] = node.copy(disk) if isinstance(node, MemoryFile) else node.copy(disk, known)
            return node and known[id(node)]

        # Another thread may be changing it: a list is made in one step.
        unsynced = [tuple((name, copied(node)) for name, node in change) for change in list(self.unsynced)]
        twin.change(*((name, copied(node)) for name, node in list(self.entries.items())))
        twin.unsynced = unsynced
        return twin


class MemoryFileSystem(VolatileFileSystem):
    """Directories and files in memory, with the faults that tests inject into a disk.

    Args:
        volatile: what is written counts as durable at once.
        seed: where `random_bytes` starts.
    """

    _root: MemoryDirectory

    def __init__(self, *, volatile: bool = False, seed: bytes = b"") -> None:
        super().__init__(seed=seed)
        self.volatile = volatile
        #: Steps (changes of files and directories) until `Crashed`; None: never.
        self.steps_left: int | None = None
        #: Bytes that still fit; None: no limit.
        self.space_left: int | None = None
        #: Reason why every sync fails; empty: they work.
        self.sync_error = ""

    def crash(
        self,
        survives: Survives = lambda _path, durable, _written: durable,
        *,
        changes_kept: Callable[[str, int], int] = lambda _path, _unsynced: 0,
        zero_fill: bool = False,
    ) -> None:
        """Lose power: every file and directory falls back to its durable state.

        The arguments may let more survive.

        Args:
            survives: size that each file keeps, between durable and written.
            changes_kept: how many of a directory's unsynced changes, oldest first, became durable by chance.
            zero_fill: files keep their written length, and read zeros where bytes are lost.
        """
        self.steps_left = None
        self._locks = set()
        self._lose_power("", self._root, survives, changes_kept, zero_fill)

    def _lose_power(
        self, path: str, node: MemoryDirectory, survives: Survives, kept: Callable[[str, int], int], zero_fill: bool
    ) -> None:
        keep = kept(path, len(node.unsynced))
        while len(node.unsynced) > keep:
            node.undo_last()
        node.unsynced.clear()
        for name, child in node.entries.items():
            if isinstance(child, MemoryDirectory):
                self._lose_power(f"{path}/{name}", child, survives, kept, zero_fill)
            else:
                assert isinstance(child, MemoryFile)
                size = survives(f"{path}/{name}", child.durable_size, child.size())
                assert child.durable_size <= size <= child.size()
                child.lose_power(size, zero_fill=zero_fill)

    def copy(self) -> MemoryFileSystem:
        """Copy the disk, so that a test can lose power with the copy."""
        twin = MemoryFileSystem(volatile=self.volatile, seed=self._seed)
        twin._root = self._root.copy(twin, {})
        return twin

    def step(self) -> None:
        """Count a change; `Crashed` when the test wants the machine to stop here."""
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise Crashed
            self.steps_left -= 1

    def check_room(self, count: int) -> None:
        """Refuse a write of so many bytes if they do not fit."""
        if self.space_left is None:
            return
        if self.space_left < count:
            raise StorageError(f"cannot write to memory: {self.space_left} of {count} bytes fit; free some space")
        self.space_left -= count

    def _new_file(self) -> MemoryFile:
        return MemoryFile(self)

    def _new_directory(self) -> MemoryDirectory:
        return MemoryDirectory(self)

    def _change(self, directory: VolatileDirectory, *changes: tuple[str, Node | None]) -> None:
        super()._change(directory, *changes)
        self.step()
