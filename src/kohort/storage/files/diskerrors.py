"""The errors of a file system, and the health of the disk behind it.

Laws: errors are of four kinds: what is used up and may come back (`NoRoomError`), what cannot be read
(`UnreadableError`), what is refused for another reason (`StorageError`), and a disk that fails (`DiskFailedError`).
After the last nothing more is written through that file system, and its `on_failure` is called once. What
failed is never tried again: the next sync of the same file would succeed, and prove nothing.
Source: write(2), fsync(2); the fsync error handling that PostgreSQL had to learn in 2018.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from kohort.errors import StorageError


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
