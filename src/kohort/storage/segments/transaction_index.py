"""The aborted transactions of a segment, in Apache Kafka's `<base>.txnindex`.

Each entry is of a transaction whose abort marker is in the segment. Readers of committed records are told the entries
that concern what they read, and skip those records themselves.

Laws: entries are in the order of their markers, and are written before them: a marker without its entry would show
aborted records as committed, an entry without its marker hides nothing that is not aborted. Nothing of them is kept in
memory. Their checksums stand in `log.state`; what does not match is made again from the segment.
Source: Apache Kafka's TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from kohort.errors import StorageError
from kohort.records.checksum import crc32c
from kohort.storage.files.fs import FileSystem, place_file
from kohort.storage.segments.indexes import TRANSACTION_SUFFIX, index_path

#: Version 0, producer id, first offset, offset of the marker, last stable offset behind it.
_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
#: Entries that are read at a time.
_CHUNK: Final = 256


class EndedTransaction(NamedTuple):
    """A transaction that a marker has ended in this log."""

    producer_id: int
    #: Of its records; that of the marker is `last_offset`.
    first_offset: int
    last_offset: int
    #: The last stable offset once the marker is durable.
    last_stable_offset: int


def pack(entries: Iterable[EndedTransaction]) -> bytes:
    """Build the content of a file."""
    return b"".join(_ENTRY.pack(0, *entry) for entry in entries)


def append_entry(fs: FileSystem, directory: str, base_offset: int, size: int, entry: EndedTransaction) -> None:
    """Write an entry behind the first `size` bytes of a segment's file.

    Raises:
        StorageError: the disk takes nothing; what is behind these bytes does not count.
    """
    fs.open(index_path(directory, base_offset, TRANSACTION_SUFFIX), create=True).write(size, pack([entry]))


def replace_entries(fs: FileSystem, directory: str, base_offset: int, entries: Iterable[EndedTransaction]) -> int:
    """Write a segment's file anew, or remove it if there are no entries; return its size."""
    path, content = index_path(directory, base_offset, TRANSACTION_SUFFIX), pack(entries)
    if content:
        place_file(fs, path, content)
    elif fs.exists(path):
        fs.remove(path)
    return len(content)


def sum_of_entries(fs: FileSystem, directory: str, base_offset: int, size: int) -> int | None:
    """Return the CRC-32C of the first `size` bytes of a segment's file; `None` if there are fewer."""
    path = index_path(directory, base_offset, TRANSACTION_SUFFIX)
    try:
        content = fs.open(path).read(0, size) if fs.exists(path) else b""
    except StorageError:
        return None
    return crc32c(content) if len(content) == size else None


def read_entries(
    fs: FileSystem, directory: str, base_offset: int, size: int, *, ended_from: int = 0
) -> Iterator[EndedTransaction]:
    """Yield the entries in the first `size` bytes whose marker has the offset `ended_from` or a later one.

    Raises:
        StorageError: the file has less, or something else in it.
    """
    path = index_path(directory, base_offset, TRANSACTION_SUFFIX)
    file = fs.open(path)
    low, high = 0, size // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        (entry,) = _entries(file.read(middle * ENTRY_SIZE, ENTRY_SIZE), 1, path)
        if entry.last_offset < ended_from:
            low = middle + 1
        else:
            high = middle
    count = size // ENTRY_SIZE
    for first in range(low, count, _CHUNK):
        wanted = min(_CHUNK, count - first)
        yield from _entries(file.read(first * ENTRY_SIZE, wanted * ENTRY_SIZE), wanted, path)


def _entries(content: bytes, count: int, path: str) -> list[EndedTransaction]:
    if len(content) != count * ENTRY_SIZE:
        raise StorageError(f"{path} has fewer bytes than were written to it")
    found = []
    for version, *numbers in _ENTRY.iter_unpack(content):
        if version != 0:
            raise StorageError(f"{path} has an entry of version {version}, which is not known")
        entry = EndedTransaction(*numbers)
        if not 0 <= entry.first_offset <= entry.last_offset:
            raise StorageError(f"{path} is damaged: it has a transaction that ends before it begins")
        found.append(entry)
    return found
