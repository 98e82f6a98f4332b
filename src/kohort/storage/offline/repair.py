"""Repairs a data directory that no broker works on: what a start would do about damage, and what it leaves to people.

Laws: a torn tail, which was promised to nobody, is cut; damage in the middle is kept in a file of its own. Whether
readers may pass a hole is for people to say. What only a backup can bring back is named, and stays as it is.
Source: `recovery` and `quarantine`, which do the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kohort.storage.directory.datadir import PartitionEnd, load_marker, save_marker
from kohort.storage.files.fs import FileSystem
from kohort.storage.offline.inspection import Damage, PartitionContent
from kohort.storage.partitions.quarantine import QUARANTINE_SUFFIX, settle
from kohort.storage.segments.segment import SUFFIX
from kohort.storage.store import Store

#: No log has this size, so that a start reads all of it anew.
_NO_SIZE: Final = -1


class Remedy(Enum):
    """What can be done about a damage, as it is said."""

    CUT = "cut the torn end"
    KEEP = "keep the damaged bytes aside; readers stop at the hole"
    DROP = "keep the damaged bytes aside; readers go on behind the hole"
    STAY = "nothing: readers stop at the hole until --drop"
    RESTORE = "restore it from a backup, or move it away"
    GONE = "nothing: only a backup has it; the log begins behind it"
    REBUILD = "make it anew from the records"
    UNREADABLE = "nothing: the disk cannot read it; see the system's log, copy what is left to another disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One damage and its remedy."""

    topic: str
    partition: int
    damage: Damage
    remedy: Remedy


def plan_repair(contents: Iterable[PartitionContent], *, drop: bool) -> Iterator[Step]:
    """What there is to do, by partition.

    Args:
        drop: readers may pass holes.
    """
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
    """Do what was planned, then leave the directory as a clean stop does.

    Raises:
        StorageError: something needs a backup, or the disk refuses; what was done until then is no loss.
    """
    if load_marker(fs, directory) is None:
        # What any start does after a kill; what it takes for granted is read below.
        Store.open(directory, fs=fs).close()
    ends = load_marker(fs, directory) or {}
    damaged = {f"{content.topic}-{content.partition}" for content in contents if content.damages}
    # A clean stop is believed; here is damage all the same, so these are read byte by byte.
    mistrusted = {folder: PartitionEnd(end.end_offset, _NO_SIZE) for folder, end in ends.items() if folder in damaged}
    save_marker(fs, directory, {**ends, **mistrusted})
    store = Store.open(directory, fs=fs)
    logs = [log for topic in store.topics.values() for log in topic.partitions]
    store.close()
    if drop:
        for log in logs:
            for hole in log.holes:
                if not hole.is_settled:
                    settle(fs, log.directory, hole)
