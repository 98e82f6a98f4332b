"""What a disk refuses, and what it fails at: the errors of a file system, and whether it can be trusted still.

Laws: errors are of four kinds: what is used up and may come back (`NoRoomError`), what cannot be read
(`UnreadableError`), what is refused for another reason (`StorageError`), and a disk that fails (`DiskFailedError`).
After the last nothing more is written through that file system, and whoever watches its health is told once. What
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
    """The disk failed while something was changed: what it holds is uncertain, and the broker is to stop."""

    fatal = True


class SyncFailedError(DiskFailedError):
    """The operating system could not make written bytes durable; nothing about the file is certain any more."""


class UnreadableError(StorageError):
    """The disk cannot give what is on it; nothing was changed, and what is elsewhere on it may be as it was."""


class FilesOverlapError(StorageError):
    """Two files of a log have the same offsets: somebody put one of them there, and nothing says which."""


class SegmentsGoneError(StorageError):
    """Segments were to be replaced that have left their log meanwhile; nothing was changed."""


class NoRoomError(StorageError):
    """Space, descriptors or another limit is used up: nothing was stored, and later it may work."""

    retriable = True


class DiskFullError(NoRoomError):
    """The file system of a directory has no room, or the user's quota there is used up."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return f"no space left in {self.directory}"


#: What a disk or a quota says that is used up.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: What else may be there again later.
_USED_UP: Final = frozenset({errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: What a disk says that fails, if it is to change something.
_BROKEN: Final = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ESTALE})
#: Also of a directory, a file or a link where something else should be: only that is concerned.
_NOT_READ: Final = _BROKEN | {errno.EISDIR, errno.ENOTDIR, errno.ELOOP}


def refusal_of(why: OSError, doing: str, path: str) -> StorageError:
    """What an error of the system means to who wanted to do that, and would have changed nothing."""
    if why.errno in _FULL:
        return DiskFullError(os.path.dirname(path))
    kind = NoRoomError if why.errno in _USED_UP else UnreadableError if why.errno in _NOT_READ else StorageError
    return kind(f"cannot {doing} {path}: {why.strerror or why}{_advice(why)}")


class DiskHealth:
    """Whether the disk behind a file system can be trusted; it never heals. Used from several threads."""

    __slots__ = ("failure", "on_failure")

    def __init__(self) -> None:
        #: What failed first; `None` while nothing has.
        self.failure: DiskFailedError | None = None
        #: Told of that, once, on the thread that met it.
        self.on_failure: Callable[[DiskFailedError], None] = lambda _: None

    def check(self) -> None:
        """Before a change: `DiskFailedError` if an earlier one failed, since to try again proves nothing."""
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)

    def fail(self, failure: DiskFailedError) -> DiskFailedError:
        """A change or a sync has failed; the error to raise."""
        if self.failure is None:
            self.failure = failure
            self.on_failure(failure)
        return failure

    def judge(self, why: OSError, doing: str, path: str) -> StorageError:
        """The error to raise when the system refuses a change with `why`."""
        if why.errno in _BROKEN:
            return self.fail(DiskFailedError(f"cannot {doing} {path}: {why.strerror}; check the disk, then restart"))
        return refusal_of(why, doing, path)

    def judge_sync(self, why: OSError, path: str) -> SyncFailedError:
        """The error to raise when the system says that a sync failed, whatever the reason."""
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
