"""The quarantine of damaged records in the middle of a log: their offsets and their bytes.

What is damaged is moved out of its segment into a file of its own, `<first offset>.quarantine`, and what follows it
becomes a segment of its own. So every segment holds whole batches and nothing else, and a hole in the offsets is one
that such a file explains.

Laws: no byte is lost. A file is made durable before the segment is cut. A file that is itself damaged explains nothing:
its hole is found and written again. A reader that comes to a hole gets an error, unless a user has settled it.
Source: Apache Kafka's log recovery, which drops what follows; the error is one of which stock clients tell their users.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Final

from kohort.base.jsontext import parse_json
from kohort.base.values import value
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.records.checksum import crc32c
from kohort.storage.files.fs import FileSystem, LogFile

#: The suffix of a file with damaged bytes.
QUARANTINE_SUFFIX: Final = ".quarantine"
#: The suffix of an unfinished file, which is renamed when it is whole; after a crash the next start removes it.
UNFINISHED_SUFFIX: Final = ".cleaned"
_HEAD_LIMIT_BYTES: Final = 16 << 10
_COPY_BYTES: Final = 1 << 20
_REASON_LIMIT: Final = 1_000


@value
class Hole:
    """Offsets without records, with records behind them."""

    first_offset: int
    #: The offset behind the last missing one.
    next_offset: int
    #: The segment's file in which they were, the byte at which the damage begins, and how many bytes it has.
    file: str
    position: int
    size_bytes: int
    reason: str
    #: Whether a user has accepted the loss; then readers go on behind it.
    is_settled: bool = False

    @property
    def name(self) -> str:
        """The name of its file in the partition's folder."""
        return f"{self.first_offset:020d}{QUARANTINE_SUFFIX}"

    def __str__(self) -> str:
        return (
            f"offsets {self.first_offset} to {self.next_offset - 1} are missing: {self.reason}; "
            f"{self.size_bytes} damaged bytes of {self.file}, from byte {self.position} on, are kept in {self.name}"
        )


def readable_end(holes: Sequence[Hole], offset: int, end_offset: int) -> int:
    """Return the offset at which a reader from `offset` to `end_offset` has to stop.

    Raises:
        Refused: CORRUPT_MESSAGE, it is in a hole.
    """
    for hole in holes:
        if offset >= hole.next_offset or (hole.is_settled and offset >= hole.first_offset):
            continue
        # What was aborted before a settled hole is told of no record behind it, where its marker is missing.
        if offset >= hole.first_offset:
            text = f"{hole}; seek to offset {hole.next_offset}, or settle it with kohort log repair"
            raise Refused(ErrorCode.CORRUPT_MESSAGE, text)
        return min(end_offset, hole.first_offset)
    return end_offset


def behind_hole(holes: Sequence[Hole], offset: int) -> int:
    """Return `offset`, or the end of the hole that contains it."""
    return next((hole.next_offset for hole in holes if hole.first_offset <= offset < hole.next_offset), offset)


def load_holes(fs: FileSystem, directory: str, names: Iterable[str]) -> list[Hole]:
    """Read the holes from the whole quarantine files, ascending."""
    found = (_load(fs, f"{directory}/{name}") for name in names if name.endswith(QUARANTINE_SUFFIX))
    return sorted((hole for hole in found if hole is not None), key=lambda hole: hole.first_offset)


def _load(fs: FileSystem, path: str) -> Hole | None:
    try:
        head, newline, _ = fs.open(path).read(0, _HEAD_LIMIT_BYTES).partition(b"\n")
        checksum, _, text = head.partition(b" ")
        # A damaged file explains no hole: recovery finds the hole and writes the file again.
        if not newline or int(checksum, 16) != crc32c(text):
            return None
        return Hole(**parse_json(text))
    except (StorageError, ValueError, TypeError):
        return None


def keep_damage(fs: FileSystem, directory: str, hole: Hole, damaged: LogFile | None) -> None:
    """Write a hole's file durably; `damaged` is the file with the bytes, `None` if there are none."""
    size = 0 if damaged is None else hole.size_bytes
    copy_range(fs, directory, hole.name, damaged, start=hole.position, size=size, head=_head(hole))


def settle(fs: FileSystem, directory: str, hole: Hole) -> Hole:
    """Let readers go on behind a hole, and keep its bytes; only while no broker has the directory."""
    old = fs.open(f"{directory}/{hole.name}")
    start = old.read(0, _HEAD_LIMIT_BYTES).find(b"\n") + 1
    settled = replace(hole, is_settled=True)
    copy_range(fs, directory, hole.name, old, start=start, size=old.size() - start, head=_head(settled))
    return settled


def copy_range(
    fs: FileSystem, directory: str, name: str, source: LogFile | None, *, start: int, size: int, head: bytes = b""
) -> None:
    """Copy a part of a file into a new one behind `head`, durably; `source` may be `None` if `size` is 0."""
    temporary = f"{directory}/{name}{UNFINISHED_SUFFIX}"
    fs.remove(temporary)
    file = fs.open(temporary, create=True)
    if head:
        file.write(0, head)
    for at in range(0, size, _COPY_BYTES):
        assert source is not None, "there are bytes to copy"
        file.write(len(head) + at, source.read(start + at, min(_COPY_BYTES, size - at)))
    file.sync()
    fs.rename(temporary, f"{directory}/{name}")
    fs.sync_directory(directory)


def _head(hole: Hole) -> bytes:
    text = json.dumps(asdict(replace(hole, reason=hole.reason[:_REASON_LIMIT]))).encode()
    return b"%08x %s\n" % (crc32c(text), text)
