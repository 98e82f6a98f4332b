"""A data directory as a whole: its identity, its lock, its last state, and Kafka's checkpoint files.

Laws: nothing is written into a directory that is neither empty nor ours. One broker at a time, held by a lock on a
file. `meta.properties` is what Apache Kafka writes there, plus the version of our own format. The clean-shutdown
marker is written when everything is durable, and removed before anything is appended.
Source: Apache Kafka's log directories (meta.properties version 1, KIP-858 directory ids; partition.metadata, KIP-516).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from kohort.base.jsontext import parse_json
from kohort.base.values import value
from kohort.errors import StorageError
from kohort.ids import TopicId, format_topic_id, parse_topic_id
from kohort.records.checksum import crc32c
from kohort.storage.catalog import CATALOG_NAME, has_catalog, remedy_of_missing
from kohort.storage.files.fs import FileLock, FileSystem, place_file, read_bounded, replace_file

#: The version of the directory's layout that this code writes; older ones are read.
FORMAT_VERSION: Final = 1
META_NAME: Final = "meta.properties"
LOCK_NAME: Final = ".lock"
MARKER_NAME: Final = ".kohort_cleanshutdown"
EPOCH_NAME: Final = ".kohort_leaderepoch"
PARTITION_METADATA_NAME: Final = "partition.metadata"
#: The key that distinguishes kohort's `meta.properties` from Apache Kafka's.
FORMAT_KEY: Final = "kohort.format.version"
#: Names in a directory that a first start left unfinished, or that a mount makes.
_HARMLESS: Final = frozenset({LOCK_NAME, f"{META_NAME}.tmp", "lost+found"})
_SMALL_FILE_BYTES: Final = 64 << 10
#: In place of the checksum of `.kohort_laststop`: its rows are not believed, and the files are read.
NO_SUM: Final = -1
_MARKER_LIMIT_BYTES: Final = 256 << 20
#: Epochs are an int32 on the wire; a damaged number must not use them up.
_EPOCH_LIMIT: Final = 1 << 30


@value
class Identity:
    """The content of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: str


class PartitionEnd(NamedTuple):
    """The end of a partition when the broker stopped cleanly."""

    end_offset: int
    size_bytes: int


def take_directory(fs: FileSystem, directory: str) -> FileLock:
    """Make the directory if it is missing, and lock it against other brokers.

    Raises:
        StorageError: it cannot be written to, holds something else, or is held by another broker.
    """
    _check_ours(fs, directory)
    if fs.exists(f"{directory}/{META_NAME}"):
        # A directory of Apache Kafka's is refused before even a lock is left in it.
        _read_identity(f"{directory}/{META_NAME}", read_properties(fs, f"{directory}/{META_NAME}"))
    _make_durable_directory(fs, directory)
    path = f"{directory}/{LOCK_NAME}"
    lock = fs.lock(path, "kohort")
    if lock is None:
        raise StorageError(
            f"data directory {directory} is held by another broker{_holder_in(fs, path)}; stop that one or choose "
            "another directory"
        )
    return lock


def broker_on(fs: FileSystem, directory: str) -> str | None:
    """Describe the broker that holds a directory, as " (process 4711)" or ""; `None` if none does."""
    path = f"{directory}/{LOCK_NAME}"
    if not fs.exists(path):
        return None
    lock = fs.lock(path, "kohort")
    if lock is None:
        return _holder_in(fs, path)
    lock.release()
    return None


def _holder_in(fs: FileSystem, path: str) -> str:
    if not fs.exists(path):
        return ""
    holder = fs.open(path).read(0, 64).decode("ascii", "replace").split()
    return f" (process {holder[1]})" if len(holder) > 1 else ""


def _check_ours(fs: FileSystem, directory: str) -> None:
    names = set(fs.list_directory(directory))
    if names and META_NAME not in names and not names <= _HARMLESS:
        found = min(names - _HARMLESS)
        raise StorageError(
            f"data directory {directory} is not ours: it has no {META_NAME} but holds {found}; "
            "choose an empty directory or one that kohort made"
        )


def _make_durable_directory(fs: FileSystem, directory: str) -> None:
    """Make a directory durably, with its missing parents."""
    if fs.exists(f"{directory}/{META_NAME}"):
        return
    missing: list[str] = []
    path = directory
    while path not in ("/", ".") and not fs.exists(path):
        missing.append(path)
        path = _parent(path)
    try:
        # An attempt before this one may have made it, and not have come to sync it.
        fs.sync_directory(_parent(path))
    except StorageError as why:
        # A user that may not open the parent has made nothing in it.
        if why.fatal or why.retriable:
            raise
    for path in reversed(missing):
        fs.make_directory(path)
        fs.sync_directory(_parent(path))


def _parent(path: str) -> str:
    parent, slash, _ = path.rpartition("/")
    return parent or ("/" if slash else ".")


def load_identity(fs: FileSystem, directory: str, *, cluster_id: str | None = None, node_id: int = 1) -> Identity:
    """Read `meta.properties`, or write it in a new directory, with a drawn `cluster_id` if that is `None`.

    Raises:
        StorageError: made by Apache Kafka or by a newer kohort, or damaged, or of another cluster.
    """
    _check_ours(fs, directory)
    path = f"{directory}/{META_NAME}"
    if fs.exists(path):
        found = _read_identity(path, read_properties(fs, path))
        if cluster_id not in (None, found.cluster_id):
            raise StorageError(
                f"data directory {directory} belongs to cluster.id {found.cluster_id}, not {cluster_id}; "
                "leave cluster.id out or choose another directory"
            )
        return found
    identity = Identity(
        # Kafka's tools draw cluster ids the same way: a random UUID in base64.
        cluster_id=cluster_id or format_topic_id(fs.random_bytes(16)),
        node_id=node_id,
        directory_id=format_topic_id(fs.random_bytes(16)),
    )
    lines = {
        "version": 1,
        "cluster.id": identity.cluster_id,
        "node.id": identity.node_id,
        "directory.id": identity.directory_id,
        FORMAT_KEY: FORMAT_VERSION,
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    replace_file(fs, directory, META_NAME, text.encode())
    return identity


def read_properties(fs: FileSystem, path: str) -> dict[str, str]:
    """Read a file of Java properties, as far as `meta.properties` needs."""
    properties = {}
    raw = read_bounded(fs, path, limit_bytes=_SMALL_FILE_BYTES)
    for line in raw.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "!")):
            properties[key.strip()] = value.strip()
    return properties


def _read_identity(path: str, properties: dict[str, str]) -> Identity:
    if FORMAT_KEY not in properties:
        raise StorageError(
            f"{path} was not made by kohort (it has no {FORMAT_KEY}); choose an empty directory or one that kohort made"
        )
    try:
        version = int(properties[FORMAT_KEY])
        identity = Identity(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=properties["directory.id"],
        )
    except (ValueError, KeyError) as why:
        raise StorageError(f"{path} is damaged ({why}); restore it from a backup") from why
    if version > FORMAT_VERSION:
        raise StorageError(
            f"{path}: the directory has format {version} of a newer kohort, "
            f"this one reads up to {FORMAT_VERSION}; upgrade kohort or choose another directory"
        )
    return identity


def is_new(fs: FileSystem, directory: str) -> bool:
    """Whether the directory has no catalog yet; `StorageError` if it has partitions all the same."""
    if has_catalog(fs, directory):
        return False
    known = {META_NAME, LOCK_NAME, f"{META_NAME}.tmp", f"{CATALOG_NAME}.tmp", "lost+found"}
    others = set(fs.list_directory(directory)) - known
    if others:
        raise StorageError(
            f"{directory}/{CATALOG_NAME} is missing but {min(others)} is there; {remedy_of_missing(directory)}"
        )
    return True


def load_marker(fs: FileSystem, directory: str) -> dict[str, PartitionEnd] | None:
    """Read the partitions' ends of the last clean stop, by folder; `None` if it was not clean."""
    path = f"{directory}/{MARKER_NAME}"
    if not fs.exists(path):
        return None
    try:
        document = parse_json(read_bounded(fs, path, limit_bytes=_MARKER_LIMIT_BYTES))
        ends = document["partitions"]
        is_right = document["format_version"] == FORMAT_VERSION and document.get("checksum") in (None, _sum_of(ends))
        if not is_right:
            return None
        return {str(name): PartitionEnd(int(end), int(size)) for name, (end, size) in ends.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        # Without a readable marker everything is checked, which is always right.
        return None


def load_last_sum(fs: FileSystem, directory: str, ends: Mapping[str, PartitionEnd] | None) -> int | None:
    """Return the marker's checksum of `.kohort_laststop`; `None` if that file is of an earlier stop.

    `ends` is the result of `load_marker`.
    """
    if ends is None:
        return NO_SUM
    found = parse_json(read_bounded(fs, f"{directory}/{MARKER_NAME}", limit_bytes=_MARKER_LIMIT_BYTES)).get("laststop")
    return found if isinstance(found, int) else None


def save_marker(
    fs: FileSystem, directory: str, ends: Mapping[str, PartitionEnd], *, last_stop: int | None = None
) -> None:
    """Write the marker of a clean stop with the ends of the partitions.

    `last_stop` is the checksum of `.kohort_laststop`, or `NO_SUM`; `None` if that file is not of this stop.
    """
    document = {"format_version": FORMAT_VERSION, "partitions": ends, "checksum": _sum_of(ends)}
    if last_stop is not None:
        document["laststop"] = last_stop
    replace_file(fs, directory, MARKER_NAME, json.dumps(document).encode())


def _sum_of(ends: object) -> int:
    return crc32c(json.dumps(ends).encode())


def load_leader_epoch(fs: FileSystem, directory: str) -> int:
    """Read the leader epoch of the partitions, which the file has twice; 0 until a stop was not clean."""
    path = f"{directory}/{EPOCH_NAME}"
    if not fs.exists(path):
        return 0
    lines = read_bounded(fs, path, limit_bytes=_SMALL_FILE_BYTES).split(b"\n")
    # Too large an epoch does no harm, too small a one does.
    return max((int(line) for line in lines if line.isdigit() and int(line) <= _EPOCH_LIMIT), default=0)


def save_leader_epoch(fs: FileSystem, directory: str, epoch: int) -> None:
    """Write the leader epoch durably, before any client is told of it."""
    replace_file(fs, directory, EPOCH_NAME, b"%d\n%d\n" % (epoch, epoch))


def write_partition_metadata(fs: FileSystem, folder: str, topic_id: TopicId) -> None:
    """Write the file that ties a partition's folder to a topic id, as Kafka does."""
    file = fs.open(f"{folder}/{PARTITION_METADATA_NAME}", create=True)
    file.write(0, f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode())


def check_partition_metadata(fs: FileSystem, folder: str, topic_id: TopicId) -> None:
    """Compare a folder's topic id with the catalog's; rewrite its file if it is missing or nearly right.

    Raises:
        StorageError: the folder belongs to another topic of the same name.
    """
    named = read_partition_metadata(fs, folder)
    if named == topic_id:
        return
    if named is not None and not _is_nearly(named, topic_id):
        raise StorageError(
            f"{folder}/{PARTITION_METADATA_NAME} names topic id {format_topic_id(named)}, the catalog "
            f"{format_topic_id(topic_id)}; move the folder away or restore it"
        )
    fs.remove(f"{folder}/{PARTITION_METADATA_NAME}")
    write_partition_metadata(fs, folder, topic_id)


def _is_nearly(named: TopicId, topic_id: TopicId) -> bool:
    """Whether two ids differ in one character, so that one of them is a damaged copy."""
    # Ids are drawn at random: two topics' ids never are so alike.
    pairs = zip(format_topic_id(named), format_topic_id(topic_id), strict=True)
    return sum(one != other for one, other in pairs) == 1


def read_partition_metadata(fs: FileSystem, folder: str) -> TopicId | None:
    """Read the topic id of a partition's folder; `None` if its file is missing or not whole."""
    path = f"{folder}/{PARTITION_METADATA_NAME}"
    found = read_bounded(fs, path, limit_bytes=_SMALL_FILE_BYTES) if fs.exists(path) else b""
    for line in found.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return parse_topic_id(value.strip())
            except ValueError:
                return None
    return None


# Apache Kafka's small text files about its logs: offsets of every partition, epochs of one.
#
# Laws: a file is replaced whole; what is about the directory is durable when that returns. What is not exactly such a
# file counts as missing: each of them can be made again from the logs, at the price of a longer start.
# Source: Apache Kafka's OffsetCheckpointFile and LeaderEpochCheckpointFile (version 0, number of entries, one per
# line).

#: In the data directory: offsets before which logs need no check, are compacted, or have no records any more.
RECOVERY_POINT_NAME: Final = "recovery-point-offset-checkpoint"
CLEANED_NAME: Final = "cleaner-offset-checkpoint"
LOG_START_NAME: Final = "log-start-offset-checkpoint"
#: In a partition's folder: where each leader epoch began.
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
_LIMIT_BYTES: Final = 16 << 20
_VERSION: Final = "0"


def load_offsets(fs: FileSystem, directory: str, name: str) -> dict[tuple[str, int], int]:
    """Read offsets by (topic, partition); empty if the file is missing or damaged."""
    rows = _load(fs, f"{directory}/{name}", width=3)
    try:
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        return {}
    return offsets if len(offsets) == len(rows) and min(offsets.values(), default=0) >= 0 else {}


def save_offsets(fs: FileSystem, directory: str, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write offsets durably; blocking."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    replace_file(fs, directory, name, _content(lines))


def load_epochs(fs: FileSystem, folder: str) -> list[tuple[int, int]]:
    """Read (leader epoch, first offset) pairs, ascending; empty if the file is missing or damaged."""
    rows = _load(fs, f"{folder}/{EPOCHS_NAME}", width=2)
    try:
        starts = [(int(epoch), int(offset)) for epoch, offset in rows]
    except ValueError:
        return []
    is_ascending = all(one[0] < after[0] and one[1] <= after[1] for one, after in pairwise(starts))
    return starts if is_ascending and (not starts or min(starts[0]) >= 0) else []


def save_epochs(fs: FileSystem, folder: str, starts: Iterable[tuple[int, int]]) -> None:
    """Write (leader epoch, first offset) pairs, without a sync."""
    # A start reads epochs from `log.state` or the batches, and other tools do without them.
    place_file(fs, f"{folder}/{EPOCHS_NAME}", _content([f"{epoch} {offset}" for epoch, offset in starts]))


def _load(fs: FileSystem, path: str, *, width: int) -> list[list[str]]:
    if not fs.exists(path):
        return []
    try:
        version, count, *lines = read_bounded(fs, path, limit_bytes=_LIMIT_BYTES).decode("ascii").splitlines()
    except (ValueError, StorageError):
        return []
    rows = [line.split() for line in lines]
    # A file without its checksum is believed only if its shape is exactly right.
    is_whole = version == _VERSION and count == str(len(rows)) and all(len(row) == width for row in rows)
    return rows if is_whole else []


def _content(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
