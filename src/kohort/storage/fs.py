"""Files as storage needs them: the port, and the disk behind it.

Laws: this is the only module of storage that knows the operating system. A write is whole or it is undone: after a
short write the file has its old size again. What `sync` and `sync_directory` have not covered may be gone after a
crash. A directory that cannot be opened to be synced is not synced, but no sync has failed. A view given out by `map`
stays valid whatever happens to the file later, as long as nobody cuts it from outside.
Source: pwrite(2), fdatasync(2), flock(2); architecture, rooms.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeAlias

from kohort.errors import StorageError
from kohort.storage.diskerrors import DiskFailedError, DiskFullError, DiskHealth, refusal_of

Buffer: TypeAlias = bytes | bytearray | memoryview

#: How much of a file may lie beyond its mapping before the file is mapped anew; less is read by a copy.
REMAP_BYTES: Final = 64 * 1024


class LogFile(Protocol):
    """An open file; it closes when the last reference to it goes, so that a sync in another thread never loses it."""

    #: See `REMAP_BYTES`; 0 where a new mapping costs nothing.
    remap_bytes: int

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`, or nothing and `StorageError`."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer at the end of the file."""
        ...

    def map(self, size: int) -> memoryview:
        """The first `size` bytes, which must be there, as a read-only view without a copy."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Make everything written so far durable; safe beside writes of another thread; `SyncFailedError`."""
        ...


class Directory(Protocol):
    """An open directory: to sync it takes no descriptor any more."""

    def sync(self) -> None:
        """Make creations, renames and removals in it durable; `SyncFailedError`."""
        ...


class FileLock(Protocol):
    """A lock that other processes see; gone with the process at the latest."""

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        ...


class FileSystem(Protocol):
    """Directories and files; errors of the system arrive as `StorageError` with the path and the reason."""

    #: Nothing survives the process, so nothing waits for a sync.
    volatile: bool
    #: Shared by all its files.
    health: DiskHealth

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where they are missing."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Names in a directory, sorted; none if there is no such directory."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        ...

    def open(self, path: str, *, create: bool = False) -> LogFile:
        """Open for reading and writing; created empty if asked and missing."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory; replaces a file of that name in one step."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it; fine if it is not there."""
        ...

    def open_directory(self, path: str) -> Directory:
        """Open a directory that is to be synced, before anything in it is changed."""
        ...

    def sync_directory(self, path: str) -> None:
        """Open and sync a directory: `SyncFailedError`, or another `StorageError` if that was not even begun."""
        ...

    def lock(self, path: str, owner: str) -> FileLock | None:
        """Lock a file that is created for it and says `owner`; `None` if somebody else holds it."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Bytes for new identities."""
        ...


def read_bounded(fs: FileSystem, path: str, *, limit_bytes: int) -> bytes:
    """All of a small file; `StorageError` if it is longer than anything that kohort writes there."""
    file = fs.open(path)
    size = file.size()
    if size > limit_bytes:
        raise StorageError(f"{path} has {size} bytes, more than the {limit_bytes} that it may have; is it ours?")
    return file.read(0, size)


def replace_file(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Put a file in place so that a crash leaves the old or the new one, whole and durable.

    What is refused (`StorageError`) leaves the old one in force, for this process and after a crash.
    """
    # Opened first: once the file is renamed there is no way back, and the descriptor might be missing.
    entries = fs.open_directory(directory)
    temporary = f"{directory}/{name}.tmp"
    fs.remove(temporary)
    file = fs.open(temporary, create=True)
    file.write(0, data)
    file.sync()
    fs.rename(temporary, f"{directory}/{name}")
    entries.sync()


@contextmanager
def _clear_errors(doing: str, path: str, changing: DiskHealth | None = None) -> Iterator[None]:
    """Errors of the system as ours; `changing`: whose disk has failed if it fails here."""
    if changing is not None:
        changing.check()
    try:
        yield
    except OSError as why:
        raise (refusal_of if changing is None else changing.judge)(why, doing, path) from why


class DiskFile:
    """A file of the operating system by its descriptor."""

    __slots__ = ("_descriptor", "_health", "path", "remap_bytes")

    def __init__(self, path: str, descriptor: int, health: DiskHealth) -> None:
        #: For messages only; the file may have been renamed since.
        self.path = path
        self.remap_bytes = REMAP_BYTES
        self._health = health
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def write(self, position: int, data: Buffer) -> None:
        self._health.check()
        try:
            written = os.pwrite(self._descriptor, data, position)
        except OSError as why:
            raise self._health.judge(why, "write to", self.path) from why
        if written != len(data):
            self._take_back(position)
            raise DiskFullError(os.path.dirname(self.path))

    def _take_back(self, size: int) -> None:
        """Undo a half write; what cannot be undone would lie between the batches one day."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as why:
            words = f"cannot take a half write back from {self.path}: {why.strerror}; check the disk, then restart"
            raise self._health.fail(DiskFailedError(words)) from why

    def read(self, position: int, size: int) -> bytes:
        with _clear_errors("read", self.path):
            return os.pread(self._descriptor, size, position)

    def map(self, size: int) -> memoryview:
        if size == 0:
            return memoryview(b"")
        try:
            return memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as why:
            raise StorageError(f"cannot map {size} bytes of {self.path}: {why}; was it cut from outside?") from why

    def truncate(self, size: int) -> None:
        with _clear_errors("cut", self.path, self._health):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        self._health.check()
        try:
            _FDATASYNC(self._descriptor)
        except OSError as why:
            raise self._health.judge_sync(why, self.path) from why


#: macOS has no fdatasync.
_FDATASYNC: Final = getattr(os, "fdatasync", os.fsync)


class DiskDirectory:
    """A directory by its descriptor, which is closed when nobody refers to this any more."""

    __slots__ = ("_descriptor", "_health", "path")

    def __init__(self, path: str, descriptor: int, health: DiskHealth) -> None:
        self.path = path
        self._health = health
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def sync(self) -> None:
        self._health.check()
        try:
            os.fsync(self._descriptor)
        except OSError as why:
            raise self._health.judge_sync(why, f"directory {self.path}") from why


class DiskLock:
    """flock(2) on a descriptor of its own: conflicts inside one process, too."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.release()


class DiskFileSystem:
    """The real one."""

    volatile = False

    def __init__(self) -> None:
        self.health = DiskHealth()

    def make_directory(self, path: str) -> None:
        with _clear_errors("create directory", path, self.health):
            os.makedirs(path, exist_ok=True)

    def list_directory(self, path: str) -> list[str]:
        with _clear_errors("list", path):
            try:
                return sorted(os.listdir(path))
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _clear_errors("open", path, self.health if create else None):
            return DiskFile(path, os.open(path, flags, 0o644), self.health)

    def rename(self, source: str, target: str) -> None:
        with _clear_errors("rename", source, self.health):
            os.rename(source, target)

    def remove(self, path: str) -> None:
        with _clear_errors("remove", path, self.health):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):
                # A directory: EISDIR on Linux, EPERM elsewhere.
                for name in os.listdir(path):
                    self.remove(f"{path}/{name}")
                os.rmdir(path)

    def open_directory(self, path: str) -> DiskDirectory:
        with _clear_errors("open directory", path):
            return DiskDirectory(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), self.health)

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def lock(self, path: str, owner: str) -> DiskLock | None:
        with _clear_errors("lock", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            lock = DiskLock(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{owner} {os.getpid()}\n".encode(), 0)
            return lock

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
