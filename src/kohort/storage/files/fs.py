"""The file system as storage needs it: the port, and the disk behind it.

Laws: this is the only module of storage that knows the operating system. A write is whole or it is undone: after a
short write the file has its old size again. What `sync` and `sync_directory` have not covered may be gone after a
crash. A directory that cannot be opened to be synced is not synced, but no sync has failed. A view that was
given out stays valid whatever happens to the file later: nothing is mapped, since a file that is cut from outside would
end the process that reads its mapping.
Source: pwrite(2), fdatasync(2), flock(2); architecture, rooms.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeAlias

from kohort.errors import StorageError
from kohort.storage.files.descriptors import Descriptor, HeldBytes, OpenFiles, ReopenableFile, open_descriptor

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Files that are open at once, however many the process may have: more would save next to nothing.
MOST_OPEN_FILES: Final = 32_768
#: The beginning of the names of files with keys of users, which only their owner may read.
PRIVATE_NAME: Final = "kohort.catalog"


class LogFile(Protocol):
    """An open file; it closes with the last reference, so that a sync in another thread never loses it."""

    def size(self) -> int:
        """Return the size of the file in bytes."""

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`, or nothing and raise `StorageError`."""

    def read(self, position: int, size: int, *, wait: bool = True) -> bytes:
        """Read up to `size` bytes; fewer at the end of the file. `NotResidentError` unless `wait`."""

    def view(self, position: int, size: int, *, wait: bool = True) -> memoryview:
        """Read for clients: a read-only view, counted while it is in use; for the owner's thread."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def sync(self) -> None:
        """Make everything written so far durable; safe beside writes of another thread.

        Raises:
            SyncFailedError: the bytes may be lost.
        """


class Directory(Protocol):
    """An open directory, which can be synced without a further descriptor."""

    def sync(self) -> None:
        """Make creations, renames and removals in it durable; `SyncFailedError` if that fails."""


class FileLock(Protocol):
    """A lock that other processes see; it ends with the process at the latest."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""

    def find_loss(self) -> str:
        """Describe the loss of the lock's file or directory as a sentence; empty if both are in place."""


class FileSystem(Protocol):
    """Directories and files; errors of the system arrive as `StorageError` with the path and the reason."""

    #: Nothing survives the process, so nothing waits for a sync.
    volatile: bool
    #: Shared by all its files.
    health: DiskHealth
    #: The memory of views that are still in use.
    held: HeldBytes

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where they are missing."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""

    def stamp(self, path: str) -> tuple[int, int, int] | None:
        """Return inode, size and last change of a file or directory; `None` if it cannot be looked at."""

    def open(self, path: str, *, create: bool = False) -> LogFile:
        """Open a file for reading and writing; create an empty one if asked and missing."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing file is replaced in one step."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content; a missing one is ignored."""

    def open_directory(self, path: str) -> Directory:
        """Open a directory that is to be synced, before anything in it is changed."""

    def sync_directory(self, path: str) -> None:
        """Open and sync a directory; `SyncFailedError`, or another `StorageError` if no sync began."""

    def lock(self, path: str, owner: str) -> FileLock | None:
        """Lock a file that is created for it with the text `owner`; `None` if another process holds it."""

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes for new identities."""

    def space(self, path: str) -> tuple[int, int]:
        """Return a volume's total and usable bytes; -1 where they are unknown."""


def read_bounded(fs: FileSystem, path: str, *, limit_bytes: int) -> bytes:
    """Read a whole small file; `StorageError` if it is longer than kohort writes it."""
    file = fs.open(path)
    size = file.size()
    if size > limit_bytes:
        raise StorageError(f"{path} has {size} bytes, more than the {limit_bytes} that it may have; is it ours?")
    return file.read(0, size)


def place_file(fs: FileSystem, path: str, data: bytes) -> None:
    """Write a file without a sync; its readers have to check whether it is whole."""
    temporary = f"{path}.tmp"
    fs.remove(temporary)
    fs.open(temporary, create=True).write(0, data)
    # A rename replaces the old file in one step.
    fs.rename(temporary, path)


def replace_file(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Replace a file so that a crash leaves the old or the new one, whole and durable.

    After a refusal (`StorageError`) the old one stays in force, for this process and after a crash.
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


def remove_file(fs: FileSystem, directory: str, name: str) -> None:
    """Remove a file of a directory durably, if it is there."""
    if fs.exists(f"{directory}/{name}"):
        fs.remove(f"{directory}/{name}")
        fs.sync_directory(directory)


@contextmanager
def _clear_errors(doing: str, path: str, changing: DiskHealth | None = None) -> Iterator[None]:
    """Turn errors of the system into kohort's; for a change, `changing` is the disk's health."""
    if changing is not None:
        changing.check()
    try:
        yield
    except OSError as why:
        raise (refusal_of if changing is None else changing.judge)(why, doing, path) from why


#: The error for a directory or a pipe in the place of a file.
_NO_FILE: Final = "It is no file; move it away"


class DiskFile(ReopenableFile):
    """A file of the operating system; it may close its descriptor while it is not used."""

    __slots__ = ("_health", "_held")

    def __init__(self, path: str, descriptor: int, disk: DiskFileSystem) -> None:
        super().__init__(path, descriptor, disk.files)
        self._health = disk.health
        self._held = disk.held

    def size(self) -> int:
        with _clear_errors("look at", self.path):
            held = self.descriptor()
            return os.fstat(held.number).st_size

    def write(self, position: int, data: Buffer) -> None:
        self._health.check()
        open_one = self._descriptor or self._reopened()
        self.is_used = True
        self._written += 1
        try:
            written = os.pwrite(open_one.number, data, position)
        except OSError as why:
            raise self._health.judge(why, "write to", self.path) from why
        if written != len(data):
            self._take_back(open_one.number, position)
            # A short write means a full disk; the part that was written is gone again.
            raise DiskFullError(os.path.dirname(self.path))

    def _reopened(self) -> Descriptor:
        # To open is no change: a disk that refuses it has not failed.
        with _clear_errors("open", self.path):
            return self.descriptor()

    def _take_back(self, descriptor: int, size: int) -> None:
        """Undo an incomplete write, which would otherwise lie between batches later."""
        try:
            os.ftruncate(descriptor, size)
        except OSError as why:
            words = f"cannot take a half write back from {self.path}: {why.strerror}; check the disk, then restart"
            raise self._health.fail(DiskFailedError(words)) from why

    def read(self, position: int, size: int, *, wait: bool = True) -> bytes:
        try:
            if wait:
                # Keep a reference: files that are opened meanwhile may make this one close its descriptor.
                held = self.descriptor()
                return os.pread(held.number, size, position)
            buffer = bytearray(size)
            return bytes(memoryview(buffer)[: self.read_into(buffer, position, wait=False)])
        except OSError as why:
            raise refusal_of(why, "read", self.path) from why

    def view(self, position: int, size: int, *, wait: bool = True) -> memoryview:
        block = memoryview(self._held.block(size))[:size]
        try:
            return block[: self.read_into(block, position, wait=wait)].toreadonly()
        except OSError as why:
            raise refusal_of(why, "read", self.path) from why

    def truncate(self, size: int) -> None:
        open_one = self._reopened()
        with _clear_errors("cut", self.path, self._health):
            self._written += 1
            os.ftruncate(open_one.number, size)

    def sync(self) -> None:
        self._health.check()
        open_one = self._reopened()
        # Writes of other threads during the sync may not be covered by it.
        covered = self._written
        try:
            _FDATASYNC(open_one.number)
        except OSError as why:
            raise self._health.judge_sync(why, self.path) from why
        self._synced = covered


#: macOS has no fdatasync.
_FDATASYNC: Final = getattr(os, "fdatasync", os.fsync)


class DiskDirectory:
    """A directory by its descriptor, which closes with the last reference."""

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
    """A lock by flock(2) on a file and its directory, also effective within one process.

    A forked child does not release it. Removing the file does not free the directory for others.
    """

    __slots__ = ("_held", "_process_id")

    def __init__(self) -> None:
        #: (path, descriptor).
        self._held: list[tuple[str, int]] = []
        self._process_id: Final = os.getpid()

    def try_to_hold(self, path: str, descriptor: int) -> bool:
        """Lock one more file; `False` if another process has it, then all is released."""
        self._held.append((path, descriptor))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        except OSError:
            # Some network file systems lock no directories; the file is held all the same.
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise
        return True

    def find_loss(self) -> str:
        for path, descriptor in self._held:
            try:
                found, held = os.stat(path), os.fstat(descriptor)
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} was removed or moved away while it was in use"
            except OSError:
                # Without permission to look, no loss is seen.
                continue
            if (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
                return f"{path} was replaced by another one while it was in use"
        return ""

    def release(self) -> None:
        while self._held:
            _, descriptor = self._held.pop()
            # A forked child shares the lock: releasing it there would release the parent's.
            if self._process_id == os.getpid():
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def is_locked_by_record(path: str) -> bool:
    """Whether another process holds a record lock (fcntl(2)) on a file, as Java's file locks are."""
    with _clear_errors("lock", path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        finally:
            os.close(descriptor)
    return False


class DiskFileSystem:
    """The file system of the operating system."""

    volatile = False

    def __init__(self, *, most_open: int | None = None, reads_only: bool = False) -> None:
        """Open the file system, for a broker or for a tool that only reads.

        `most_open`: files that have a descriptor at once; `None`: half of those that the process may have.
        `reads_only`: write nothing except the holder's name in locks, and not even that where it is not allowed.
        """
        self._reads_only = reads_only
        self.health = DiskHealth()
        self.held = HeldBytes()
        self.files = OpenFiles(most_open or _half_of_descriptors(), reads_only=reads_only)

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

    def stamp(self, path: str) -> tuple[int, int, int] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        # A pipe without a writer would be waited for; files of records know no waiting.
        flags = self.files.access | os.O_NONBLOCK | (os.O_CREAT if create else 0)
        with _clear_errors("open", path, self.health if create else None):
            is_private = os.path.basename(path).startswith(PRIVATE_NAME)
            try:
                descriptor = open_descriptor(path, flags, self.files, 0o600 if is_private else 0o644)
            except FileNotFoundError:
                if os.path.islink(path):
                    raise OSError(errno.ELOOP, "It is a link to nothing") from None
                raise
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
                os.close(descriptor)
                raise OSError(errno.EISDIR, _NO_FILE)
            if is_private and stat.S_IMODE(mode) & 0o077 and self.files.access != os.O_RDONLY:
                # An earlier version had no keys in it, and let every user of the machine read it.
                with suppress(OSError):
                    os.fchmod(descriptor, 0o600)
            return DiskFile(path, descriptor, self)

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
            descriptor = open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY, self.files)
            return DiskDirectory(path, descriptor, self.health)

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def lock(self, path: str, owner: str) -> DiskLock | None:
        directory, lock = os.path.dirname(path) or ".", DiskLock()
        with _clear_errors("lock", path):
            if not lock.try_to_hold(directory, open_descriptor(directory, os.O_RDONLY | os.O_DIRECTORY, self.files)):
                return None
            if self._reads_only and not os.access(path if self.exists(path) else directory, os.W_OK):
                # The lock has no owner's name; where no file exists or can be made, no broker can start either.
                if self.exists(path) and not lock.try_to_hold(path, open_descriptor(path, os.O_RDONLY, self.files)):
                    return None
                return lock
            descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT, self.files)
            if not lock.try_to_hold(path, descriptor):
                return None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{owner} {os.getpid()}\n".encode(), 0)
            return lock

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def space(self, path: str) -> tuple[int, int]:
        with _clear_errors("measure", path):
            found = os.statvfs(path)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _half_of_descriptors() -> int:
    """Return half of the process's descriptors; the other half is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else max(1, min(soft // 2, MOST_OPEN_FILES))


# The errors of a file system, and the health of the disk behind it.
#
# Laws: errors are of four kinds: what is used up and may come back (`NoRoomError`), what cannot be read
# (`UnreadableError`), what is refused for another reason (`StorageError`), and a disk that fails (`DiskFailedError`).
# After the last nothing more is written through that file system, and its `on_failure` is called once. What
# failed is never tried again: the next sync of the same file would succeed, and prove nothing.
# Source: write(2), fsync(2); the fsync error handling that PostgreSQL had to learn in 2018.


class DiskFailedError(StorageError):
    """A disk that failed during a change: its content is uncertain, and the broker has to stop."""

    fatal = True


class SyncFailedError(DiskFailedError):
    """A sync that failed: nothing about the file is certain any more."""


class UnreadableError(StorageError):
    """Data that the disk cannot read; nothing was changed, and other files may be intact."""


class FilesOverlapError(StorageError):
    """Two files of a log with the same offsets, of which one is of other origin."""


class SegmentsGoneError(StorageError):
    """Segments that left their log before they could be replaced; nothing was changed."""


class NoRoomError(StorageError):
    """A used-up limit, such as space or descriptors: nothing was stored, and later it may work."""

    retriable = True


class DiskFullError(NoRoomError):
    """A file system without room, or a used-up quota of the user."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return f"no space left in {self.directory}"


#: Errors of a full disk or a used-up quota.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Errors of other limits, which may pass.
_USED_UP: Final = frozenset({errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: Errors of a failing disk, if they meet a change.
_BROKEN: Final = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ESTALE})
#: Also of a directory, a file or a link where something else should be: only that is concerned.
_NOT_READ: Final = _BROKEN | {errno.EISDIR, errno.ENOTDIR, errno.ELOOP}


def refusal_of(why: OSError, doing: str, path: str) -> StorageError:
    """Return the error for a failed operation that would have changed nothing."""
    if why.errno in _FULL:
        return DiskFullError(os.path.dirname(path))
    kind = NoRoomError if why.errno in _USED_UP else UnreadableError if why.errno in _NOT_READ else StorageError
    return kind(f"cannot {doing} {path}: {why.strerror or why}{_advice(why)}")


class DiskHealth:
    """The health of the disk behind a file system: it never heals. Used from several threads."""

    __slots__ = ("failure", "on_failure")

    def __init__(self) -> None:
        #: The first failure; `None` while there is none.
        self.failure: DiskFailedError | None = None
        #: Called with the first failure, once, on the thread that met it.
        self.on_failure: Callable[[DiskFailedError], None] = lambda _: None

    def check(self) -> None:
        """Raise `DiskFailedError` if an earlier change has failed; called before each change."""
        if self.failure is not None:
            # A new exception each time: a raised one collects the tracebacks of its raisers.
            raise type(self.failure)(*self.failure.args)

    def fail(self, failure: DiskFailedError) -> DiskFailedError:
        """Note a failed change or sync; return the error to raise."""
        if self.failure is None:
            self.failure = failure
            self.on_failure(failure)
        return failure

    def judge(self, why: OSError, doing: str, path: str) -> StorageError:
        """Return the error to raise when the system refuses a change with `why`."""
        if why.errno in _BROKEN:
            return self.fail(DiskFailedError(f"cannot {doing} {path}: {why.strerror}; check the disk, then restart"))
        return refusal_of(why, doing, path)

    def judge_sync(self, why: OSError, path: str) -> SyncFailedError:
        """Return the error to raise when a sync fails, for any reason."""
        failure = SyncFailedError(f"cannot make {path} durable: {why.strerror}{_advice(why)}")
        self.fail(failure)
        return failure


def _advice(why: OSError) -> str:
    match why.errno:
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "; choose a directory that this user may write to, or change its permissions"
        case errno.ENOTDIR | errno.ENOENT | errno.ENAMETOOLONG:
            return "; check the path"
        case errno.EMFILE | errno.ENFILE:
            return "; raise the limit of open files (ulimit -n)"
        case errno.EFBIG:
            return "; raise the limit of file sizes (ulimit -f)"
        case _:
            return ""
