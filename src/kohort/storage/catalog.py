"""The catalog: topics, broker configs, access lists, SCRAM keys, quotas, revoked tokens, the next producer id.

Laws: a catalog is a value, and so is a change of it; the catalog that follows from both is the same now and when the
changes are read again. A topic exists from the moment the file has the change that names it and is gone from the
moment it has the one that does not, whatever folders lie about. Producer ids are given out in blocks, written down
before the first of them is used, so that none is used twice.
Source: Apache Kafka's naming rules of topics and its blocks of 1,000 producer ids; its metadata log and the snapshots
of that (KIP-631, KIP-630).
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from kohort.base.jsontext import parse_json
from kohort.base.values import value
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import TopicId, format_topic_id, parse_topic_id
from kohort.records.checksum import crc32c
from kohort.storage.client_quotas import QuotaChange, Quotas, changed_quotas
from kohort.storage.files.fs import DiskFailedError, FileSystem, LogFile, read_bounded, remove_file, replace_file

#: Producer ids that one change of the catalog gives out, as in Kafka.
PRODUCER_ID_BLOCK: Final = 1000
_LONGEST_NAME: Final = 249
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_FOLDER_NAME: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
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
#: Entries of the access control lists in one record, for the same reason.
_ACLS_EACH: Final = 1_000
#: Entities with quotas in one record of a rewritten file.
_QUOTAS_EACH: Final = 500
#: Revoked tokens in one record of a rewritten file.
_REVOCATIONS_EACH: Final = 1_000
_RECORD: Final = re.compile(rb"@([0-9a-f]{8}) ([0-9a-f]{8}) ")
#: The errors of reading a file that is damaged, or of other software.
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, Refused)


#: An entry of the access control lists: Kafka's numbers of the type of resource and of the pattern, the name, the
#: principal, the host, and Kafka's numbers of the operation and the permission.
AclRow = tuple[int, int, str, str, str, int, int]
#: What is revoked: the number of its kind, and the id or label.
RevokedName = tuple[int, str]
#: When it was revoked, and until when that is remembered, ms since 1970.
RevokedTimes = tuple[int, int]


@value
class TopicEntry:
    """One topic as the catalog holds it; partitions are 0 to `partition_count` - 1."""

    name: str
    topic_id: TopicId
    partition_count: int
    configs: Mapping[str, str]

    def folders(self) -> list[str]:
        """Return the names of its partitions' folders."""
        return [f"{self.name}-{partition}" for partition in range(self.partition_count)]


@value
class ScramUser:
    """The keys by which a user logs in with one SCRAM mechanism; they are secret, and not shown."""

    name: str
    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @property
    def key(self) -> tuple[str, str]:
        """Its name and mechanism, which together are unique."""
        return self.name, self.mechanism


@value
class CatalogChange:
    """The difference between a catalog and the next one."""

    #: Topics that are new or changed.
    topics: tuple[TopicEntry, ...] = ()
    #: Topics that are to be deleted, by name.
    gone: tuple[str, ...] = ()
    #: Topics whose folders are still in the way; a whole catalog has them, a change does not.
    deleting: tuple[TopicEntry, ...] = ()
    #: Whether the folders of all that were deleted before are out of the way.
    is_freed: bool = False
    #: `None` where no producer ids are given out.
    next_producer_id: int | None = None
    #: Every config of the broker that was set while it ran; `None` where they stay.
    broker_configs: Mapping[str, str] | None = None
    #: Entries of the access control lists that are new, and those that are gone.
    acls: tuple[AclRow, ...] = ()
    acls_gone: tuple[AclRow, ...] = ()
    #: SCRAM users that are new or changed, and names with mechanisms of those that are removed.
    scram_users: tuple[ScramUser, ...] = ()
    scram_gone: tuple[tuple[str, str], ...] = ()
    #: See `Catalog.login_secret`; empty where it stays.
    login_secret: bytes = field(default=b"", repr=False)
    #: Limits of clients that are new, changed or removed.
    client_quotas: tuple[QuotaChange, ...] = ()
    #: Tokens that are revoked, and those that are forgotten.
    revocations: tuple[tuple[RevokedName, RevokedTimes], ...] = ()
    revocations_gone: tuple[RevokedName, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the change as JSON, without the fields that do not change."""
        found: dict[str, object] = {
            "topics": [_write_entry(entry) for entry in self.topics],
            "gone": list(self.gone),
            "deleting": [_write_entry(entry) for entry in self.deleting],
            "acls": self.acls,
            "acls_gone": self.acls_gone,
            "client_quotas": [change.document() for change in self.client_quotas],
            "revocations": [(*name, *times) for name, times in self.revocations],
            "revocations_gone": self.revocations_gone,
        }
        found = {name: value for name, value in found.items() if value}
        if self.is_freed:
            found["freed"] = True
        if self.next_producer_id is not None:
            found["next_producer_id"] = self.next_producer_id
        if self.broker_configs is not None:
            found["broker_configs"] = dict(self.broker_configs)
        if self.scram_users:
            found["scram_users"] = [_write_user(each) for each in self.scram_users]
        if self.scram_gone:
            found["scram_gone"] = [list(key) for key in self.scram_gone]
        if self.login_secret:
            found["login_secret"] = b64encode(self.login_secret).decode()
        return found

    @classmethod
    def of(cls, document: Mapping[str, object]) -> CatalogChange:
        """Read a change from its JSON.

        Raises:
            ValueError, KeyError, TypeError, Refused: it is no change that `document` wrote.
        """
        ids, configs = document.get("next_producer_id"), document.get("broker_configs")
        return cls(
            topics=tuple(_read_entry(entry) for entry in _list(document, "topics")),
            gone=tuple(str(name) for name in _list(document, "gone")),
            deleting=tuple(_read_entry(entry) for entry in _list(document, "deleting")),
            is_freed=bool(document.get("freed")),
            next_producer_id=None if ids is None else int(str(ids)),
            broker_configs=None if configs is None else _texts(configs),
            acls=tuple(_read_acl(row) for row in _list(document, "acls")),
            acls_gone=tuple(_read_acl(row) for row in _list(document, "acls_gone")),
            scram_users=tuple(_read_user(user) for user in _list(document, "scram_users")),
            scram_gone=tuple((str(name), str(mechanism)) for name, mechanism in _list(document, "scram_gone")),
            login_secret=b64decode(str(document.get("login_secret", "")), validate=True),
            client_quotas=tuple(QuotaChange.of(change) for change in _list(document, "client_quotas")),
            revocations=tuple(_read_revocation(row) for row in _list(document, "revocations")),
            revocations_gone=tuple((int(kind), str(name)) for kind, name in _list(document, "revocations_gone")),
        )


@value
class Catalog:
    """The catalog of topics at one moment."""

    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    #: Deleted topics; their folders may still have their names.
    deleting: tuple[TopicEntry, ...] = ()
    #: Smallest producer id that was not given out.
    next_producer_id: int = 0
    #: Configs of the broker that were set while it ran.
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    #: The entries of the access control lists, in the order in which they came.
    acls: Mapping[AclRow, None] = field(default_factory=dict)
    #: (name, mechanism) -> the keys of that user.
    scram_users: Mapping[tuple[str, str], ScramUser] = field(default_factory=dict)
    #: Bytes from which the answers to unknown users are made; empty until they are needed.
    login_secret: bytes = field(default=b"", repr=False)
    #: Limits of clients, by entity.
    client_quotas: Quotas = field(default_factory=dict)
    #: Tokens that are revoked, in the order in which they came.
    revocations: Mapping[RevokedName, RevokedTimes] = field(default_factory=dict)

    def changed(self, *changes: CatalogChange) -> Catalog:
        """Return the catalog after `changes`; `KeyError` if a missing topic is deleted."""
        topics, deleting = dict(self.topics), self.deleting
        next_producer_id, broker_configs = self.next_producer_id, self.broker_configs
        # There may be 100,000 of them: they are copied where they change.
        acls = dict(self.acls) if any(each.acls or each.acls_gone for each in changes) else None
        is_revoking = any(each.revocations or each.revocations_gone for each in changes)
        revocations = dict(self.revocations) if is_revoking else None
        scram_users, login_secret = self.scram_users, self.login_secret
        for change in changes:
            topics.update((entry.name, entry) for entry in change.topics)
            # The freed folders are those of earlier deletions, not of this change's.
            deleting = (() if change.is_freed else deleting) + change.deleting
            deleting += tuple(topics.pop(name) for name in change.gone)
            if change.next_producer_id is not None:
                next_producer_id = change.next_producer_id
            if change.broker_configs is not None:
                broker_configs = change.broker_configs
            if change.scram_users or change.scram_gone:
                # The object stays the same where the users do, which tells others that nothing has changed.
                gone = set(change.scram_gone)
                kept = {key: user for key, user in scram_users.items() if key not in gone}
                scram_users = kept | {user.key: user for user in change.scram_users}
            if acls is not None:
                for row in change.acls_gone:
                    acls.pop(row, None)
                acls.update(dict.fromkeys(change.acls))
            if revocations is not None:
                for name in change.revocations_gone:
                    revocations.pop(name, None)
                revocations.update(change.revocations)
            login_secret = change.login_secret or login_secret
        quota_changes = [each for change in changes for each in change.client_quotas]
        return Catalog(
            topics=topics,
            deleting=deleting,
            next_producer_id=next_producer_id,
            broker_configs=broker_configs,
            acls=self.acls if acls is None else acls,
            scram_users=scram_users,
            login_secret=login_secret,
            client_quotas=changed_quotas(self.client_quotas, quota_changes) if quota_changes else self.client_quotas,
            revocations=self.revocations if revocations is None else revocations,
        )

    def as_changes(self, *, topics_each: int) -> Iterable[CatalogChange]:
        """Yield the changes from an empty catalog to this one, each of `topics_each` topics at most."""
        yield CatalogChange(
            deleting=self.deleting,
            next_producer_id=self.next_producer_id,
            broker_configs=self.broker_configs,
            login_secret=self.login_secret,
        )
        users = list(self.scram_users.values())
        for first in range(0, len(users), topics_each):
            yield CatalogChange(scram_users=tuple(users[first : first + topics_each]))
        entries = list(self.topics.values())
        for first in range(0, len(entries), topics_each):
            yield CatalogChange(topics=tuple(entries[first : first + topics_each]))
        rows = list(self.acls)
        for first in range(0, len(rows), _ACLS_EACH):
            yield CatalogChange(acls=tuple(rows[first : first + _ACLS_EACH]))
        quotas = [QuotaChange(entity=entity, limits=limits) for entity, limits in self.client_quotas.items()]
        for first in range(0, len(quotas), _QUOTAS_EACH):
            yield CatalogChange(client_quotas=tuple(quotas[first : first + _QUOTAS_EACH]))
        revoked = list(self.revocations.items())
        for first in range(0, len(revoked), _REVOCATIONS_EACH):
            yield CatalogChange(revocations=tuple(revoked[first : first + _REVOCATIONS_EACH]))


def join(changes: Sequence[CatalogChange]) -> CatalogChange:
    """Join changes of different things into one."""
    ids = [each.next_producer_id for each in changes if each.next_producer_id is not None]
    configs = [each.broker_configs for each in changes if each.broker_configs is not None]
    return CatalogChange(
        topics=tuple(entry for each in changes for entry in each.topics),
        gone=tuple(name for each in changes for name in each.gone),
        deleting=tuple(entry for each in changes for entry in each.deleting),
        is_freed=any(each.is_freed for each in changes),
        # Blocks are given out in order: the last change has the largest id.
        next_producer_id=ids[-1] if ids else None,
        broker_configs=configs[-1] if configs else None,
        acls=tuple(row for each in changes for row in each.acls),
        acls_gone=tuple(row for each in changes for row in each.acls_gone),
        scram_users=tuple(user for each in changes for user in each.scram_users),
        scram_gone=tuple(key for each in changes for key in each.scram_gone),
        login_secret=next((each.login_secret for each in reversed(changes) if each.login_secret), b""),
        client_quotas=tuple(each for change in changes for each in change.client_quotas),
        revocations=tuple(each for change in changes for each in change.revocations),
        revocations_gone=tuple(each for change in changes for each in change.revocations_gone),
    )


def check_topic_name(name: str) -> None:
    """Refuse a topic name that Kafka does not allow, in Kafka's words."""
    # The name becomes part of a folder's name.
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = "'.' or '..' is not allowed"
    elif len(name) > _LONGEST_NAME:
        why = f"the length of '{name[:_LONGEST_NAME]}...' is longer than the max allowed length {_LONGEST_NAME}"
    elif not _TOPIC_NAME.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def collision_key(name: str) -> str:
    """Return the form of a topic name in which two topics must differ."""
    # Metrics of Kafka's write `.` as `_`.
    return name.replace(".", "_")


def split_folder_name(folder: str) -> tuple[str, int] | None:
    """Split the name of a partition's folder into topic and partition; `None` for other names."""
    match = _FOLDER_NAME.fullmatch(folder)
    return (match[1], int(match[2])) if match else None


def first_missing(partitions: Collection[int]) -> int | None:
    """Return the first missing partition below the largest one; `None` if none is missing."""
    # The largest may be any number: this must not cost as much as it says.
    if len(partitions) == max(partitions, default=-1) + 1:
        return None
    return next(number for number in range(len(partitions) + 1) if number not in partitions)


def _list(document: Mapping[str, object], name: str) -> list[Any]:
    found = document.get(name, [])
    if not isinstance(found, list):
        raise TypeError(f"{name} is no list")
    return found


def _texts(configs: object) -> dict[str, str]:
    if not isinstance(configs, dict):
        raise TypeError("configs are no table")
    return {str(key): str(value) for key, value in configs.items()}


def _read_entry(entry: Mapping[str, object]) -> TopicEntry:
    name, count, configs = entry["name"], entry["partition_count"], entry["configs"]
    if not isinstance(name, str) or not isinstance(count, int) or count < 1:
        raise ValueError(f"topic {name!r} is incomplete")
    check_topic_name(name)
    return TopicEntry(
        name=name,
        topic_id=parse_topic_id(str(entry["topic_id"])),
        partition_count=count,
        configs=_texts(configs),
    )


def _read_acl(row: Any) -> AclRow:
    resource, pattern, name, principal, host, operation, permission = row
    numbers, texts = (resource, pattern, operation, permission), (name, principal, host)
    if not all(type(each) is int for each in numbers) or not all(type(each) is str for each in texts):
        raise ValueError(f"an entry of the access control lists is {row!r}")
    # Many entries have the same principal and host.
    return resource, pattern, name, sys.intern(principal), sys.intern(host), operation, permission


def _read_revocation(row: Any) -> tuple[RevokedName, RevokedTimes]:
    kind, name, revoked_ms, until_ms = row
    if not all(type(each) is int for each in (kind, revoked_ms, until_ms)) or type(name) is not str:
        raise ValueError(f"a revoked token is {row!r}")
    return (kind, name), (revoked_ms, until_ms)


def _write_entry(entry: TopicEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "topic_id": format_topic_id(entry.topic_id),
        "partition_count": entry.partition_count,
        "configs": dict(entry.configs),
    }


def _read_user(user: Mapping[str, object]) -> ScramUser:
    name, mechanism, iterations = user["name"], user["mechanism"], user["iterations"]
    if not isinstance(name, str) or not isinstance(mechanism, str) or not isinstance(iterations, int):
        raise ValueError("a SCRAM user is incomplete")
    salt, stored_key, server_key = (
        b64decode(str(user[each]), validate=True) for each in ("salt", "stored_key", "server_key")
    )
    return ScramUser(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
    )


def _write_user(user: ScramUser) -> dict[str, object]:
    return {
        "name": user.name,
        "mechanism": user.mechanism,
        "iterations": user.iterations,
        "salt": b64encode(user.salt).decode(),
        "stored_key": b64encode(user.stored_key).decode(),
        "server_key": b64encode(user.server_key).decode(),
    }


@value
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
    """The catalog in force, and the file that keeps it; used by one thread at a time.

    Laws: a change is in force when its record is durable, and costs what changed, however many topics there are. A
    record stands twice, one copy behind the other, so that one damaged copy loses nothing; what a crash tore at the end
    is cut, a change that is missing in the middle is an error. A rewritten file takes the place of the old one in one
    step.
    Source: Apache Kafka's metadata log and its snapshots (KIP-631, KIP-630). The format,
    docs/explanation/data-directory.md: `@`, eight digits of length, a space, eight of CRC-32C, a space, JSON `[number,
    change]`, a line feed.
    """

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
            remove_file(fs, directory, FORMER_CATALOG_NAME)
        else:
            self._rewrite(self.catalog)

    def write(self, change: CatalogChange) -> None:
        """Put a change in force, durably.

        After a `StorageError` nothing has changed, after a `DiskFailedError` that is unknown.
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
        remove_file(self._fs, self._directory, FORMER_CATALOG_NAME)


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
                    version = int(str(document["kohort.catalog"]))
                    if version > CATALOG_FORMAT:
                        raise _newer(path, version, known=CATALOG_FORMAT)
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
