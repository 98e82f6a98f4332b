"""The repair of an offline data directory: the repairs of a start, and those that users choose.

Laws: a torn tail, which was never acknowledged, is cut; damage in the middle is kept in a file of its own. Whether
readers may pass a hole is for people to say. What only a backup can bring back is named, and stays as it is. A catalog
that is made from folders lets no record go: configs of topics are in no folder, so all is kept until they are set.
Source: `recovery` and `quarantine`, which do the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from kohort.base.values import value
from kohort.errors import Refused, StorageError
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC, TopicId
from kohort.storage import data_directory
from kohort.storage.catalog import (
    PRODUCER_ID_BLOCK,
    Catalog,
    CatalogFile,
    TopicEntry,
    check_topic_name,
    first_missing,
    split_folder_name,
)
from kohort.storage.files.fs import FileSystem, UnreadableError
from kohort.storage.partitions.quarantine import QUARANTINE_SUFFIX, settle
from kohort.storage.segments.segment import SUFFIX
from kohort.storage.store import Store
from kohort.storage.tools.inspection import Damage, PartitionContent, batches_in
from kohort.storage.topicconfig import LONG_MAX
from kohort.storage.topics import holds_only_ours

#: No log has this size, so that a start reads all of it anew.
_NO_SIZE: Final = -1
#: Producer ids that are skipped above the largest one in a log: some ids were given out and never wrote.
_SPARE_PRODUCER_IDS: Final = 1_000_000
#: The configs of a topic with unknown configs: nothing of it expires.
_KEEPS_ALL: Final[Mapping[str, str]] = {"retention.ms": "-1", "retention.bytes": "-1"}
_COMPACTED: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}


class Remedy(Enum):
    """The remedies for damage, with their texts."""

    CUT = "cut the torn end"
    KEEP = "keep the damaged bytes aside; readers stop at the hole"
    DROP = "keep the damaged bytes aside; readers go on behind the hole"
    STAY = "nothing: readers stop at the hole until --drop"
    RESTORE = "restore it from a backup, or move it away"
    GONE = "nothing: only a backup has it; the log begins behind it"
    REBUILD = "make it anew from the records"
    UNREADABLE = "nothing: the disk cannot read it; see the system's log, copy what is left to another disk"


@value
class Step:
    """One damage and its remedy."""

    topic: str
    partition: int
    damage: Damage
    remedy: Remedy


def plan_repair(contents: Iterable[PartitionContent], *, drop: bool) -> Iterator[Step]:
    """Yield the steps of a repair, by partition; with `drop` readers may pass holes."""
    for content in contents:
        for damage in content.damages:
            remedy = _remedy(damage, drop=drop)
            yield Step(topic=content.topic, partition=content.partition, damage=damage, remedy=remedy)


def _remedy(damage: Damage, *, drop: bool) -> Remedy:
    if damage.is_unreadable:
        return Remedy.UNREADABLE
    if damage.is_rebuilt:
        return Remedy.REBUILD
    if damage.is_beginning:
        return Remedy.GONE
    if damage.path.endswith(QUARANTINE_SUFFIX):
        return Remedy.DROP if drop else Remedy.STAY
    if not damage.path.endswith(SUFFIX):
        return Remedy.RESTORE
    if damage.next_offset is None:
        return Remedy.CUT
    return Remedy.DROP if drop else Remedy.KEEP


def repair(fs: FileSystem, directory: str, contents: Iterable[PartitionContent], *, drop: bool) -> None:
    """Carry out a repair, then leave the directory as a clean stop does.

    Raises:
        StorageError: something needs a backup, or the disk refuses; what was done until then is no loss.
    """
    if data_directory.load_marker(fs, directory) is None:
        # Recover as any start does after a kill; records that this does not read are read below.
        Store.open(directory, fs=fs).close()
    ends = data_directory.load_marker(fs, directory) or {}
    damaged = {f"{content.topic}-{content.partition}" for content in contents if content.damages}
    # A clean stop is believed; here is damage all the same, so these are read byte by byte.
    mistrusted = {
        folder: data_directory.PartitionEnd(end.end_offset, _NO_SIZE)
        for folder, end in ends.items()
        if folder in damaged
    }
    # With a wrong size in the marker, the next open reads the damaged logs whole.
    data_directory.save_marker(fs, directory, {**ends, **mistrusted}, last_stop=data_directory.NO_SUM)
    store = Store.open(directory, fs=fs)
    logs = [log for topic in store.topics.values() for log in topic.partitions]
    store.close()
    if drop:
        for log in logs:
            for hole in log.holes:
                if not hole.is_settled:
                    settle(fs, log.directory, hole)


def plan_catalog(fs: FileSystem, directory: str) -> Catalog:
    """Build a catalog from the folders of a data directory; `StorageError` if some are missing."""
    folders: dict[str, dict[int, str]] = {}
    for folder in fs.list_directory(directory):
        parts = split_folder_name(folder)
        if parts is not None and _is_partition(fs, f"{directory}/{folder}", parts[0]):
            folders.setdefault(parts[0], {})[parts[1]] = f"{directory}/{folder}"
    compacted = {name for name, _ in data_directory.load_offsets(fs, directory, data_directory.CLEANED_NAME)}
    topics, largest = {}, -1
    for name, partitions in folders.items():
        missing = first_missing(partitions)
        if missing is not None:
            raise StorageError(
                f"the folder {directory}/{name}-{missing} is missing though there is {name}-{max(partitions)}; restore "
                "it from a backup, or make an empty folder of that name to go on without its records"
            )
        topics[name] = TopicEntry(
            name=name,
            topic_id=_topic_id(fs, name, partitions.values()),
            partition_count=len(partitions),
            configs=_configs(name, is_compacted=name in compacted),
        )
        largest = max([largest, *(_largest_producer_id(fs, path) for path in partitions.values())])
    # An id that is given out twice would make a producer's records look like repetitions.
    blocks = (largest + _SPARE_PRODUCER_IDS) // PRODUCER_ID_BLOCK + 1
    return Catalog(topics=topics, next_producer_id=blocks * PRODUCER_ID_BLOCK)


def make_catalog(fs: FileSystem, directory: str, catalog: Catalog) -> None:
    """Write a planned catalog in place of the missing one."""
    CatalogFile(fs, directory, first=catalog)


def _is_partition(fs: FileSystem, path: str, topic: str) -> bool:
    """Whether a path is a partition folder of kohort's; a file in its place counts as one."""
    try:
        check_topic_name(topic)
        return holds_only_ours(fs, path)
    except UnreadableError:
        return True
    except Refused:
        return False


def _topic_id(fs: FileSystem, name: str, folders: Iterable[str]) -> TopicId:
    """Return the topic id of the folders, or a new one if none has an id."""
    found: dict[TopicId, str] = {}
    for path in folders:
        try:
            topic_id = data_directory.read_partition_metadata(fs, path)
        except UnreadableError:
            continue
        if topic_id is not None:
            found.setdefault(topic_id, path)
    if len(found) > 1:
        one, other = list(found.values())[:2]
        raise StorageError(f"{one} and {other} belong to different topics of the name {name}; move one of them away")
    return next(iter(found), None) or TopicId(fs.random_bytes(16))


def _configs(name: str, *, is_compacted: bool) -> Mapping[str, str]:
    if name == JOURNAL_TOPIC:
        return {"flush.messages": str(LONG_MAX)}
    return _COMPACTED if is_compacted or name == OFFSETS_TOPIC else _KEEPS_ALL


def _largest_producer_id(fs: FileSystem, folder: str) -> int:
    largest = -1
    try:
        for batch in batches_in(fs, folder):
            largest = max(largest, batch.header.producer_id)
    except UnreadableError:
        # Its producer ids stay unknown; the skipped ids cover them, too.
        return largest
    return largest
