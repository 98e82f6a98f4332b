"""The bound on open files: those that were not used for long give their descriptors back.

Laws: a file that is told to let its descriptor go opens itself again when somebody uses it, so nobody but the clock of
the system notices. Files with bytes that no sync has covered keep theirs while others can give one: the system reports
what it could not write to descriptors that are open then (and, from Linux 4.16 on, once to the next that is opened, so
that a sync by a new descriptor covers the bytes and tells of their errors as well). Safe in every thread: each step is
one operation on a dictionary.
Source: Corbató's clock algorithm; errseq(9) in the kernel's documentation; fsync(2).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, Protocol
from weakref import ref

#: Of the files that may be open, so many are closed at once when another one is opened.
_SHARE_CLOSED: Final = 16


class Evictable(Protocol):
    """A file that can do without its descriptor for a while."""

    #: Whether it was used since the cache's last look; the cache resets it.
    is_used: bool

    @property
    def is_unsynced(self) -> bool:
        """Whether the file has bytes that no sync has covered."""
        ...

    def let_go(self) -> None:
        """Close the descriptor, as soon as no other thread is using it."""
        ...


class OpenFiles:
    """The files of one file system that have a descriptor, by weak references."""

    __slots__ = ("_files", "access", "limit")

    def __init__(self, limit: int, *, reads_only: bool = False) -> None:
        """Create the cache; more than `limit` files are open only while the next one is opened."""
        assert limit > 0
        self.limit: Final = limit
        #: How they are opened, of the flags of open(2).
        self.access: Final = os.O_RDONLY if reads_only else os.O_RDWR
        #: By identity, the one that was opened first in front.
        self._files: Final[dict[int, ref[Evictable]]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: Evictable) -> None:
        """Add a file that was just opened."""
        self._files[id(file)] = ref(file)
        if len(self._files) > self.limit:
            self.close_some()

    def closed(self, file: Evictable) -> None:
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

    def _least_used(self) -> Iterator[Evictable]:
        """Yield the files in the order in which they should be closed."""
        unsynced: list[Evictable] = []
        used: list[Evictable] = []
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
