"""The aborted transactions of a segment, in Apache Kafka's `<base>.txnindex`.

Each entry is of a transaction whose abort marker is in the segment. Readers of committed records are told the entries
that concern what they read, and skip those records themselves.

Laws: entries are in the order of their markers, and are written before them: a marker without its entry would show
aborted records as committed, an entry without its marker hides nothing that is not aborted. No entry is kept in memory,
only the smallest first offset of each block of a file that was read far. Their checksums stand in `log.state`; what
does not match is made again from the segment.
Source: Apache Kafka's TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from kohort.errors import StorageError
from kohort.records.checksum import crc32c
from kohort.storage.files.descriptors import WorkNeededError
from kohort.storage.files.fs import FileSystem, LogFile, place_file
from kohort.storage.segments.indexes import TRANSACTION_SUFFIX, index_path

#: Version 0, producer id, first offset, offset of the marker, last stable offset behind it.
_ENTRY: Final = Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
#: Entries that are read at a time: a block.
_CHUNK: Final = 256
#: Blocks that a reader looks through; of more a thread finds out first which have to be.
BLOCKS_AT_ONCE: Final = 32


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
    count = size // ENTRY_SIZE
    for first in range(_first_ended(file, path, size, ended_from), count, _CHUNK):
        wanted = min(_CHUNK, count - first)
        yield from _entries(file.read(first * ENTRY_SIZE, wanted * ENTRY_SIZE), wanted, path)


class BlockStarts:
    """The smallest first offset in each whole block of a file's entries, for as many blocks as were looked through.

    All that ends while one long transaction is open has to be looked through to find what begins before an offset: the
    blocks of which nothing does are left out.
    """

    __slots__ = ("_starts", "is_broken")

    def __init__(self) -> None:
        self._starts = array("q")
        #: Whether the file could not be read.
        self.is_broken = False

    def __len__(self) -> int:
        return len(self._starts)

    def is_before(self, block: int, offset: int) -> bool:
        """Return whether a transaction of a block may begin before an offset."""
        starts = self._starts
        return block >= len(starts) or starts[block] < offset

    def extend(self, file: LogFile, blocks: int, path: str) -> None:
        """Look through a file up to a number of whole blocks; blocking, for a thread."""
        starts = array("q", self._starts)
        try:
            for block in range(len(starts), blocks):
                content = file.read(block * _CHUNK * ENTRY_SIZE, _CHUNK * ENTRY_SIZE)
                starts.append(min(entry.first_offset for entry in _entries(content, _CHUNK, path)))
        except StorageError:
            # A reader finds the error itself.
            self.is_broken = True
        self._starts = starts


class Found:
    """The transactions with records from `offset` to before `up_to`, by their markers.

    If there are more than `most`, `up_to` is lowered to where there are so many; those that are open at `offset` are
    found in any case.
    """

    __slots__ = ("_room", "is_over", "most", "offset", "transactions", "up_to")

    def __init__(self, offset: int, up_to: int, most: int) -> None:
        self.offset: Final = offset
        self.up_to = up_to
        self.most: Final = most
        self.transactions: list[EndedTransaction] = []
        #: Transactions up to which none are let go: each look at all of them is paid for by as many new ones.
        self._room = 2 * most + 100
        #: Whether all that begin before `up_to` are known.
        self.is_over = False

    def add(self, entry: EndedTransaction) -> None:
        """Add a transaction that begins before `up_to`."""
        self.transactions.append(entry)
        if len(self.transactions) > self._room:
            self.cut()
            self._room = max(self._room, 2 * len(self.transactions))

    def cut(self) -> None:
        """Lower `up_to` until there are not too many."""
        begins = sorted(each.first_offset for each in self.transactions)
        cut = next((each for each in begins[self.most :] if each > self.offset), None)
        if cut is not None:
            self.up_to = cut
            self.transactions = [each for each in self.transactions if each.first_offset < cut]


def read_between(file: LogFile, path: str, size: int, starts: BlockStarts, found: Found, *, wait: bool) -> None:
    """Add the transactions in the first `size` bytes of a file to those that are found.

    Raises:
        StorageError: the file has less, or something else in it.
        WorkNeededError: there is more to look through than the caller shall wait for, unless `wait`.
    """
    count, low = size // ENTRY_SIZE, _first_ended(file, path, size, found.offset)
    looked = 0
    for block in range(low // _CHUNK, -(-count // _CHUNK)):
        if not starts.is_before(block, found.up_to):
            continue
        looked += block >= len(starts)
        whole = count // _CHUNK
        if looked > BLOCKS_AT_ONCE and len(starts) < whole and not starts.is_broken:
            work = partial(starts.extend, file, whole, path)
            if not wait:
                raise WorkNeededError(f"{path} has many transactions behind offset {found.offset}", work)
            work()
        begin, end = max(low, block * _CHUNK), min(count, (block + 1) * _CHUNK)
        content = file.read(begin * ENTRY_SIZE, (end - begin) * ENTRY_SIZE)
        if len(content) != (end - begin) * ENTRY_SIZE:
            raise _too_short(path)
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(content):
            if version or not 0 <= first <= last:
                raise _damaged(path, version)
            if first < found.up_to:
                found.add(EndedTransaction(producer_id, first, last, stable))
            if stable >= found.up_to:
                found.is_over = True
                return


def _first_ended(file: LogFile, path: str, size: int, offset: int) -> int:
    """Return the number of the first entry whose marker has `offset` or a later one."""
    low, high = 0, size // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        (entry,) = _entries(file.read(middle * ENTRY_SIZE, ENTRY_SIZE), 1, path)
        if entry.last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _entries(content: bytes, count: int, path: str) -> list[EndedTransaction]:
    if len(content) != count * ENTRY_SIZE:
        raise _too_short(path)
    found = []
    for version, *numbers in _ENTRY.iter_unpack(content):
        entry = EndedTransaction(*numbers)
        if version or not 0 <= entry.first_offset <= entry.last_offset:
            raise _damaged(path, version)
        found.append(entry)
    return found


def _too_short(path: str) -> StorageError:
    return StorageError(f"{path} has fewer bytes than were written to it")


def _damaged(path: str, version: int) -> StorageError:
    if version:
        return StorageError(f"{path} has an entry of version {version}, which is not known")
    return StorageError(f"{path} is damaged: it has a transaction that ends before it begins")
