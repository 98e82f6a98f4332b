"""File systems in memory for tests: with power loss and a full disk, or with injected errors.

Laws: `crash` keeps synced data, and unsynced data only as the test specifies. Outside of tests no broker uses them.
Source: the durability rules of `fs.py`; a journalling file system keeps the order of changes inside a directory;
SQLite's I/O error tests (a fault at every call); pwrite(2), fsync(2), rename(2), mount(8).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kohort.errors import StorageError
from kohort.storage.files import fs, volatilefs

#: (path, durable size, written size) -> size that survives.
Survives: TypeAlias = Callable[[str, int, int], int]
#: One change of a directory: name, and the node it names since (None: removed).
_Change: TypeAlias = tuple[tuple[str, volatilefs.Node | None], ...]


class Crashed(Exception):
    """The simulated machine stopped in the middle of an operation."""


class MemoryFile(volatilefs.VolatileFile):
    """A file in memory; only synced bytes survive a crash."""

    __slots__ = ("_disk", "durable_size")

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__(disk)
        self._disk = disk
        #: Bytes from the start that a crash cannot take.
        self.durable_size = 0

    def write(self, position: int, data: fs.Buffer) -> None:
        self._disk.check_room(len(data))
        super().write(position, data)
        self._disk.step()

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self.durable_size = min(self.durable_size, size)
        self._disk.step()

    def sync(self) -> None:
        if self._disk.sync_error:
            raise fs.SyncFailedError(f"cannot make a file durable: {self._disk.sync_error}")
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
        """Cut the file to `size` bytes; with `zero_fill` keep its length, with zeros after them."""
        kept = bytearray(memoryview(self._buffer)[:size])
        self._buffer = kept + bytes(self._size - size) if zero_fill else kept
        self.changes += 1
        self._size = self.durable_size = len(self._buffer)


class MemoryDirectory(volatilefs.VolatileDirectory):
    """A directory in memory; its changes are undone by a crash until they are synced."""

    __slots__ = ("_disk", "unsynced")

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__()
        self._disk = disk
        #: Inverse of each change since the last sync, oldest first.
        self.unsynced: list[_Change] = []

    def change(self, *changes: tuple[str, volatilefs.Node | None]) -> None:
        self.unsynced.append(tuple((name, self.entries.get(name)) for name, _ in changes))
        super().change(*changes)

    def undo_last(self) -> None:
        """Undo the last change."""
        super().change(*self.unsynced.pop())

    def sync(self) -> None:
        if self._disk.sync_error:
            raise fs.SyncFailedError(f"cannot make a directory durable: {self._disk.sync_error}")
        covered = {id(change): change for change in self.unsynced}
        self._disk.step()
        # Changes by another thread meanwhile are not covered.
        self.unsynced = [change for change in self.unsynced if id(change) not in covered]

    def copy(self, disk: MemoryFileSystem, known: dict[int, volatilefs.Node]) -> MemoryDirectory:
        """Copy the directory to another disk; `known`: copies made so far, by the original's identity."""
        twin = MemoryDirectory(disk)
        known[id(self)] = twin

        def copied(node: volatilefs.Node | None) -> volatilefs.Node | None:
            if node is not None and id(node) not in known:
                assert isinstance(node, MemoryFile | MemoryDirectory)
                known[id(node)] = node.copy(disk) if isinstance(node, MemoryFile) else node.copy(disk, known)
            return node and known[id(node)]

        # Another thread may be changing it: a list is made in one step.
        unsynced = [tuple((name, copied(node)) for name, node in change) for change in list(self.unsynced)]
        twin.change(*((name, copied(node)) for name, node in list(self.entries.items())))
        twin.unsynced = unsynced
        return twin


class MemoryFileSystem(volatilefs.VolatileFileSystem):
    """Directories and files in memory, with the faults that tests inject into a disk.

    `volatile`: written data counts as durable at once. `seed`: seed of `random_bytes`.
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
        """Lose power: every file and directory returns to its durable state.

        The arguments may let more data survive.

        `survives`: size that each file keeps, between durable and written. `changes_kept`: how many of a directory's
        unsynced changes, oldest first, became durable by chance. `zero_fill`: files keep their written length, and read
        zeros where bytes are lost.
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
        """Count a change; raise `Crashed` if the test makes the machine stop here."""
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise Crashed
            self.steps_left -= 1

    def check_room(self, count: int) -> None:
        """Refuse a write of `count` bytes if they exceed the space left."""
        if self.space_left is None:
            return
        if self.space_left < count:
            raise StorageError(f"cannot write to memory: {self.space_left} of {count} bytes fit; free some space")
        self.space_left -= count

    def _new_file(self) -> MemoryFile:
        return MemoryFile(self)

    def _new_directory(self) -> MemoryDirectory:
        return MemoryDirectory(self)

    def _change(self, directory: volatilefs.VolatileDirectory, *changes: tuple[str, volatilefs.Node | None]) -> None:
        super()._change(directory, *changes)
        self.step()


# An operation that is struck has changed nothing behind this file system, and raises what the real disk raises for the
# same error number. Every operation has a number, reading ones included, so that a test can go through all of them.
#: Names of operations: of a file system and of its files.
SYNCS: Final = frozenset({"sync", "sync_directory"})
READS: Final = frozenset({"read"})
CHANGES: Final = frozenset({"make_directory", "create", "write", "truncate", "rename", "remove"})
OPENINGS: Final = frozenset({"open", "create", "open_directory", "list_directory", "lock"})
_GROWTH: Final = frozenset({"make_directory", "create", "write", "rename", "lock"})
#: The names of operations in messages.
_DOING: Final = {
    "make_directory": "create directory",
    "list_directory": "list",
    "create": "open",
    "open_directory": "open directory",
    "write": "write to",
    "truncate": "cut",
}


class Operation(NamedTuple):
    """One call of a file system or of one of its files."""

    #: From 1 on, in the order of the calls.
    number: int
    #: As the method is called; "create" is an `open` that makes a file.
    name: str
    path: str


class Fault(Enum):
    """A disk fault: its error number and the operations that it can make fail."""

    NO_SPACE = (errno.ENOSPC, _GROWTH)
    NO_QUOTA = (errno.EDQUOT, _GROWTH)
    TOO_LARGE = (errno.EFBIG, frozenset({"write"}))
    NO_DESCRIPTOR = (errno.EMFILE, OPENINGS)
    #: Half of the bytes are written, then the disk is full.
    SHORT_WRITE = (errno.ENOSPC, frozenset({"write"}))
    FAILING_WRITE = (errno.EIO, CHANGES)
    FAILING_SYNC = (errno.EIO, SYNCS)
    FAILING_RENAME = (errno.EACCES, frozenset({"rename"}))
    UNREADABLE = (errno.EIO, READS)
    READ_ONLY = (errno.EROFS, CHANGES | {"lock"})
    #: The machine stops; every later operation stops, too, until `crash`.
    POWER_LOSS = (0, CHANGES | SYNCS)

    def __init__(self, number: int, strikes: frozenset[str]) -> None:
        self.number: Final = number
        self.strikes: Final = strikes


@dataclass(slots=True, kw_only=True)
class _Injected:
    fault: Fault
    at: int
    #: How often it still strikes; `None`: until `heal`.
    times: int | None
    where: Callable[[Operation], bool]


class FaultyFileSystem:
    """A file system with the faults that a test injects.

    `behind`: the file system with the data; by default a new `MemoryFileSystem`, which can lose power.

    >>> disk = FaultyFileSystem()
    >>> disk.inject(Fault.NO_SPACE, where=lambda operation: operation.path.endswith("orders.log"))
    >>> file = disk.open("/orders.log")
    Traceback (most recent call last):
    kohort.errors.StorageError: cannot open /orders.log: No such file or directory
    >>> disk.open("/orders.log", create=True)
    Traceback (most recent call last):
    kohort.storage.files.fs.DiskFullError: no space left in /
    >>> disk.heal()
    >>> disk.open("/orders.log", create=True).write(0, b"three flights")
    >>> [operation.name for operation in disk.struck]
    ['create']

    A single call of a program can be made to fail, by its number:

    >>> disk.inject(Fault.FAILING_SYNC, at=disk.operations + 2, times=1)
    >>> file = disk.open("/orders.log")
    >>> file.sync()
    Traceback (most recent call last):
    kohort.storage.files.fs.SyncFailedError: cannot make /orders.log durable: Input/output error
    """

    def __init__(self, behind: fs.FileSystem | None = None) -> None:
        self._behind: Final = behind or MemoryFileSystem()
        self.volatile: Final = self._behind.volatile
        self.held: Final = self._behind.held
        #: Of the process that uses the disk at present.
        self.health = fs.DiskHealth()
        #: How many operations there were.
        self.operations = 0
        #: Operations that a fault has struck, in order.
        self.struck: list[Operation] = []
        #: Told of each operation before it is done.
        self.on_operation: Callable[[Operation], None] = lambda _: None
        self._injected: list[_Injected] = []
        self._is_down = False
        self._locks: list[fs.FileLock] = []

    def inject(
        self,
        fault: Fault,
        *,
        at: int = 1,
        times: int | None = None,
        where: Callable[[Operation], bool] = lambda _: True,
    ) -> None:
        """Make operations fail from now on.

        `at`: the number of the first operation that may fail; `operations` is the number so far. `times`: how many
        fail; `None`: all until `heal`. `where`: selects among the operations that the fault can make fail.
        """
        self._injected.append(_Injected(fault=fault, at=at, times=times, where=where))

    def heal(self) -> None:
        """Remove every fault from the disk."""
        # A log that has met a failed write or sync remembers it.
        self._injected.clear()

    def restart(self) -> None:
        """Forget the process that used the disk: release its locks and forget its failures."""
        self.health = fs.DiskHealth()
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def crash(
        self,
        survives: Callable[[str, int, int], int] = lambda _path, durable, _written: durable,
        *,
        changes_kept: Callable[[str, int], int] = lambda _path, _unsynced: 0,
        zero_fill: bool = False,
    ) -> None:
        """Lose power and start again; this needs a `MemoryFileSystem` as `behind`.

        See `MemoryFileSystem.crash`.
        """
        assert isinstance(self._behind, MemoryFileSystem), "only a disk in memory can lose power"
        self._behind.crash(survives, changes_kept=changes_kept, zero_fill=zero_fill)
        self._is_down = False
        self.heal()
        self.restart()

    def begin(self, name: str, path: str) -> Fault | None:
        """Count an operation and raise its fault, if any; `SHORT_WRITE` is returned to the caller."""
        if self._is_down:
            raise Crashed
        self.operations += 1
        operation = Operation(self.operations, name, path)
        self.on_operation(operation)
        if name in CHANGES or name in SYNCS:
            self.health.check()
        fault = self._fault_of(operation)
        if fault is not None:
            self.struck.append(operation)
            if fault is not Fault.SHORT_WRITE:
                raise self._error_of(fault, operation)
        return fault

    def _fault_of(self, operation: Operation) -> Fault | None:
        for each in self._injected:
            if (
                operation.name in each.fault.strikes
                and operation.number >= each.at
                and each.times != 0
                and each.where(operation)
            ):
                if each.times is not None:
                    each.times -= 1
                return each.fault
        return None

    def _error_of(self, fault: Fault, operation: Operation) -> Exception:
        if fault is Fault.POWER_LOSS:
            self._is_down = True
            return Crashed()
        name, path = operation.name, operation.path
        why = OSError(fault.number, os.strerror(fault.number))
        if name in SYNCS:
            return self.health.judge_sync(why, f"directory {path}" if name == "sync_directory" else path)
        judge = self.health.judge if name in CHANGES else fs.refusal_of
        return judge(why, _DOING.get(name, name), path)

    def make_directory(self, path: str) -> None:
        self.begin("make_directory", path)
        self._behind.make_directory(path)

    def list_directory(self, path: str) -> list[str]:
        self.begin("list_directory", path)
        return self._behind.list_directory(path)

    def exists(self, path: str) -> bool:
        self.begin("exists", path)
        return self._behind.exists(path)

    def stamp(self, path: str) -> tuple[int, int, int] | None:
        self.begin("stamp", path)
        return self._behind.stamp(path)

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        self.begin("create" if create else "open", path)
        return FaultyFile(self, path, self._behind.open(path, create=create))

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source)
        self._behind.rename(source, target)

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        self._behind.remove(path)

    def open_directory(self, path: str) -> FaultyDirectory:
        self.begin("open_directory", path)
        return FaultyDirectory(self, path, self._behind.open_directory(path))

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def lock(self, path: str, owner: str) -> fs.FileLock | None:
        self.begin("lock", path)
        lock = self._behind.lock(path, owner)
        if lock is not None:
            self._locks.append(lock)
        return lock

    def random_bytes(self, count: int) -> bytes:
        return self._behind.random_bytes(count)

    def space(self, path: str) -> tuple[int, int]:
        return self._behind.space(path)


class FaultyFile:
    """A file of a faulty disk."""

    __slots__ = ("_behind", "_disk", "path")

    def __init__(self, disk: FaultyFileSystem, path: str, behind: fs.LogFile) -> None:
        self._disk = disk
        self._behind = behind
        self.path = path

    def size(self) -> int:
        self._disk.begin("size", self.path)
        return self._behind.size()

    def write(self, position: int, data: fs.Buffer) -> None:
        fault = self._disk.begin("write", self.path)
        if fault is Fault.SHORT_WRITE:
            self._behind.write(position, memoryview(data)[: len(data) // 2])
            self._behind.truncate(position)
            raise fs.refusal_of(OSError(errno.ENOSPC, ""), "write to", self.path)
        self._behind.write(position, data)

    def read(self, position: int, size: int, *, wait: bool = True) -> bytes:
        self._disk.begin("read", self.path)
        return self._behind.read(position, size, wait=wait)

    def view(self, position: int, size: int, *, wait: bool = True) -> memoryview:
        self._disk.begin("read", self.path)
        return self._behind.view(position, size, wait=wait)

    def truncate(self, size: int) -> None:
        self._disk.begin("truncate", self.path)
        self._behind.truncate(size)

    def sync(self) -> None:
        self._disk.begin("sync", self.path)
        self._behind.sync()


class FaultyDirectory:
    """An open directory of a faulty disk."""

    __slots__ = ("_behind", "_disk", "path")

    def __init__(self, disk: FaultyFileSystem, path: str, behind: fs.Directory) -> None:
        self._disk = disk
        self._behind = behind
        self.path = path

    def sync(self) -> None:
        self._disk.begin("sync_directory", self.path)
        self._behind.sync()
