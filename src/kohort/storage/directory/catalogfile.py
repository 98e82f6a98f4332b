"""The catalog's file: a log of changes, read at each start, at times rewritten as the present state.

Laws: a change is in force when its record is durable, and costs what changed, however many topics there are. A record
stands twice, one copy behind the other, so that one damaged copy loses nothing; what a crash tore at the end is cut, a
change that is missing in the middle is an error. A rewritten file takes the place of the old one in one step.
Source: Apache Kafka's metadata log and its snapshots (KIP-631, KIP-630). The format, docs/internals/data-directory.md:
`@`, eight digits of length, a space, eight of CRC-32C, a space, JSON `[number, change]`, a line feed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from kohort.errors import Refused, StorageError
from kohort.jsontext import parse_json
from kohort.records.checksum import crc32c
from kohort.storage.directory.catalog import Catalog, CatalogChange
from kohort.storage.files.diskerrors import DiskFailedError
from kohort.storage.files.fs import FileSystem, LogFile, read_bounded, replace_file

#: The catalog's file in the data directory.
CATALOG_NAME: Final = "kohort.catalog"
#: The file of the first format: the whole catalog as one JSON document.
FORMER_CATALOG_NAME: Final = "kohort.catalog.json"
CATALOG_FORMAT: Final = 2
#: More than any catalog that kohort writes.
CATALOG_LIMIT_BYTES: Final = 256 << 20
#: The file is rewritten when it exceeds twice its size after the last rewrite by so much.
SPARE_BYTES: Final = 64 << 10
#: Topics in one record of a rewritten file: encoding one never keeps other threads waiting for long.
_TOPICS_EACH: Final = 50
_RECORD: Final = re.compile(rb"@([0-9a-f]{8}) ([0-9a-f]{8}) ")
#: The errors of reading a file that is damaged, or of other software.
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, Refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCut:
    """Bytes that were cut off the end of a catalog, because neither copy of a change in them was whole."""

    path: str
    #: Byte at which the file ends now, behind that change.
    position: int
    change: int
    bytes_cut: int

    def __str__(self) -> str:
        return f"{self.path}: cut {self.bytes_cut} bytes from byte {self.position} on, behind change {self.change}"


class CatalogFile:
    """The catalog in force, and the file that keeps it; used by one thread at a time."""

    def __init__(self, fs: FileSystem, directory: str, *, first: Catalog | None = None) -> None:
        """Open the catalog of a directory, or make the first one; raise `StorageError` if it is damaged.

        `first` is the content of a new file; `None` means no topics.
        """
        self._fs: Final = fs
        self._directory: Final = directory
        #: Opened by the first change that is appended.
        self._file: LogFile | None = None
        #: Bytes of the file now, and after it was last rewritten.
        self._size = self._base = 0
        #: The number of the last change.
        self._number = 0
        self.catalog = first or Catalog()
        #: The bytes that were cut when it was opened; `None` if none were.
        self.cut: CatalogCut | None = None
        if fs.volatile:
            return
        if fs.exists(self._path):
            self._read()
        elif fs.exists(f"{directory}/{FORMER_CATALOG_NAME}"):
            self.catalog = _read_former(fs, f"{directory}/{FORMER_CATALOG_NAME}")
            self._rewrite(self.catalog)
            self._remove_former()
        else:
            self._rewrite(self.catalog)

    def write(self, change: CatalogChange) -> None:
        """Put a change in force, durably.

        Raises:
            StorageError: nothing has changed.
            DiskFailedError: what has changed is unknown.
        """
        catalog = self.catalog.changed(change)
        if not self._fs.volatile:
            # In memory the file is never read again.
            record = _record(self._number + 1, change)
            # A rewrite costs as much as all topics, so it waits until the log of changes has doubled.
            if self._size + len(record) > 2 * self._base + SPARE_BYTES:
                self._rewrite(catalog)
            else:
                self._append(record)
                self._number += 1
        self.catalog = catalog

    @property
    def _path(self) -> str:
        return f"{self._directory}/{CATALOG_NAME}"

    def _append(self, record: bytes) -> None:
        file = self._file = self._file or self._fs.open(self._path)
        file.write(self._size, record)
        try:
            file.sync()
        except DiskFailedError:
            raise
        except StorageError as why:
            # A disk that takes it back: the record must not be found by the next start.
            try:
                file.truncate(self._size)
            except StorageError:
                raise DiskFailedError(str(why)) from why
            raise
        self._size += len(record)

    def _rewrite(self, catalog: Catalog) -> None:
        records = [_record(0, {"kohort.catalog": CATALOG_FORMAT})]
        records += [_record(at, each) for at, each in enumerate(catalog.as_changes(topics_each=_TOPICS_EACH), start=1)]
        content = b"".join(records)
        replace_file(self._fs, self._directory, CATALOG_NAME, content)
        self._file = None
        self._size = self._base = len(content)
        self._number = len(records) - 1

    def _read(self) -> None:
        raw = read_bounded(self._fs, self._path, limit_bytes=CATALOG_LIMIT_BYTES)
        catalog, number, end = read_records(raw, self._path)
        self._file = self._fs.open(self._path)
        if end < len(raw):
            self._file.truncate(end)
            self.cut = CatalogCut(path=self._path, position=end, change=number, bytes_cut=len(raw) - end)
        # The previous broker may have ended before the changes were durable, which they must be before they count.
        self._file.sync()
        self.catalog, self._number, self._size = catalog, number, end
        self._base = end // 2
        self._remove_former()

    def _remove_former(self) -> None:
        path = f"{self._directory}/{FORMER_CATALOG_NAME}"
        if self._fs.exists(path):
            self._fs.remove(path)
            self._fs.sync_directory(self._directory)


def has_catalog(fs: FileSystem, directory: str) -> bool:
    """Whether a directory has a catalog, of this format or of the first."""
    return any(fs.exists(f"{directory}/{name}") for name in (CATALOG_NAME, FORMER_CATALOG_NAME))


def remedy_of_missing(directory: str) -> str:
    """Return the advice for a directory without its catalog, as a sentence."""
    return f"restore it from a backup, or have it made from the folders: kohort log repair {directory}"


def load_catalog(fs: FileSystem, directory: str) -> Catalog:
    """Read the catalog of a directory that no broker changes; write nothing."""
    path = f"{directory}/{CATALOG_NAME}"
    if not has_catalog(fs, directory):
        raise StorageError(f"{path} is missing; {remedy_of_missing(directory)}")
    if not fs.exists(path):
        return _read_former(fs, f"{directory}/{FORMER_CATALOG_NAME}")
    return read_records(read_bounded(fs, path, limit_bytes=CATALOG_LIMIT_BYTES), path)[0]


def read_records(raw: bytes, path: str) -> tuple[Catalog, int, int]:
    """Read a catalog file: return the catalog, the number of its last change, and its end.

    Raises:
        StorageError: the format is newer, or a change before the last one is missing.
    """
    changes: list[CatalogChange] = []
    number, end, position = -1, 0, 0
    while found := _RECORD.search(raw, position):
        # A copy that does not hold may have a marker inside: it is looked for from the next byte on.
        position = found.start() + 1
        size, checksum = int(found[1], 16), int(found[2], 16)
        body = raw[found.end() : found.end() + size]
        if len(body) < size or crc32c(body) != checksum:
            continue
        try:
            current, document = parse_json(body)
            # The second copy of a record has the number of the first, and is skipped.
            if current > number:
                if current != number + 1:
                    raise StorageError(f"{path} is damaged (change {number + 1} is missing); restore it from a backup")
                if current == 0:
                    _check_format(document, path)
                else:
                    changes.append(CatalogChange.of(document))
                number = current
        except _UNREADABLE as why:
            raise StorageError(f"{path} is damaged ({why}); restore it from a backup") from why
        position = found.end() + size
        end = min(position + 1, len(raw))
    if number < 1:
        raise StorageError(f"{path} is damaged (it does not begin as a catalog does); restore it from a backup")
    try:
        return Catalog().changed(*changes), number, end
    except KeyError as why:
        raise StorageError(f"{path} is damaged (it deletes {why} twice); restore it from a backup") from why


def _record(number: int, change: CatalogChange | dict[str, object]) -> bytes:
    document = change.document() if isinstance(change, CatalogChange) else change
    body = json.dumps([number, document], separators=(",", ":")).encode()
    # Two copies: one damaged copy loses nothing.
    return (b"@%08x %08x %s\n" % (len(body), crc32c(body), body)) * 2


def _check_format(document: dict[str, object], path: str) -> None:
    version = int(str(document["kohort.catalog"]))
    if version > CATALOG_FORMAT:
        raise _newer(path, version, known=CATALOG_FORMAT)


def _newer(path: str, version: int, *, known: int) -> StorageError:
    return StorageError(f"{path} has format {version}, this kohort reads up to {known}; upgrade kohort")


def _read_former(fs: FileSystem, path: str) -> Catalog:
    """Read a catalog in the first format."""
    raw = read_bounded(fs, path, limit_bytes=CATALOG_LIMIT_BYTES)
    try:
        document = parse_json(raw)
        if document["format_version"] != 1:
            raise _newer(path, document["format_version"], known=1)
        return Catalog().changed(
            CatalogChange.of({name: document[name] for name in ("topics", "deleting", "next_producer_id")})
        )
    except _UNREADABLE as why:
        raise StorageError(f"{path} is damaged ({why}); restore it from a backup") from why
