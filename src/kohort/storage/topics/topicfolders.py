"""The folders of partitions: made before a catalog names their topic, moved away and removed after it does no more.

Laws: folders count only once the catalog names their topic; what was made for a topic that then is not created is
removed again. Folders that hold records and that the catalog does not know are never removed, nor is anything of
somebody else's. Deleted folders are moved out of the way of their names first, which is quick, and removed afterwards.
Source: Apache Kafka's folder names, `-delete` suffix included.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from kohort.errors import StorageError
from kohort.storage.directory.catalog import TopicEntry, split_folder_name
from kohort.storage.directory.checkpoints import EPOCHS_NAME
from kohort.storage.directory.datadir import PARTITION_METADATA_NAME, write_partition_metadata
from kohort.storage.files.fs import FileSystem
from kohort.storage.partitions.quarantine import QUARANTINE_SUFFIX
from kohort.storage.recovery.logstate import SNAPSHOT_SUFFIX, STATE_NAME
from kohort.storage.segments.indexfiles import SUFFIXES, SYNCED_SUFFIX
from kohort.storage.segments.segment import segment_base, segment_name

#: What lies beside the segments in a partition's folder: files by their names, and those that are named by an offset.
NAMES_BESIDE: Final = (PARTITION_METADATA_NAME, EPOCHS_NAME, STATE_NAME)
SUFFIXES_BESIDE: Final = (*SUFFIXES, SYNCED_SUFFIX, SNAPSHOT_SUFFIX, QUARANTINE_SUFFIX)

_DELETE_SUFFIX: Final = "-delete"
#: How the name of a deleted partition's folder ends; others may end in the suffix alone.
_DELETED_FOLDER: Final = re.compile(rf"-\d+\.[0-9a-f]{{32}}{_DELETE_SUFFIX}$")
_FILE_NAME_LIMIT: Final = 255


class TopicFolders:
    """The folders of one data directory."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs: Final = fs
        self._directory: Final = directory
        #: Paths of deleted folders that are still to be removed.
        self._doomed: deque[str] = deque()

    @property
    def has_doomed(self) -> bool:
        """Whether deleted folders are left to be removed."""
        return bool(self._doomed)

    def path(self, topic: str, partition: int) -> str:
        """Where a partition's files are."""
        return f"{self._directory}/{topic}-{partition}"

    def make(self, entry: TopicEntry, first: int) -> None:
        """The folders of partitions from `first` on; all of them, or none and `StorageError`. Not durable yet."""
        made: list[str] = []
        try:
            for folder in entry.folders()[first:]:
                path = f"{self._directory}/{folder}"
                if self._fs.exists(path):
                    self._clear_way(path, entry.name)
                made.append(path)
                self._fs.make_directory(path)
                write_partition_metadata(self._fs, path, entry.topic_id)
                self._fs.open(f"{path}/{segment_name(0)}", create=True)
        except StorageError:
            self._remove_all(made)
            raise

    def unmake(self, entry: TopicEntry, first: int) -> None:
        """Remove what `make` made: the catalog will not name it."""
        self._remove_all([f"{self._directory}/{folder}" for folder in entry.folders()[first:]])

    def sync(self) -> None:
        """Make what was made durable."""
        self._fs.sync_directory(self._directory)

    def free(self, gone: Iterable[TopicEntry]) -> None:
        """Move the folders of deleted topics out of the way of their names; after a crash this goes on."""
        by_name = {entry.name: entry for entry in gone}
        for folder in self._fs.list_directory(self._directory) if by_name else ():
            parts = split_folder_name(folder)
            entry = by_name.get(parts[0]) if parts else None
            if parts and entry is not None:
                target = f"{self._directory}/{_deleted_folder_name(entry, parts[1])}"
                if self._fs.exists(target):
                    # Its own was moved before a kill: this one was begun for the next topic of the name.
                    continue
                self._fs.rename(f"{self._directory}/{folder}", target)
                self._doomed.append(target)
        if by_name:
            self._fs.sync_directory(self._directory)

    def remove_doomed(self, most: int) -> None:
        """Remove so many of the deleted folders; one that the disk does not let go stays until the next start."""
        for _ in range(min(most, len(self._doomed))):
            self._fs.remove(self._doomed.popleft())

    def remove_deleted(self) -> None:
        """Remove every folder of a deleted topic, those that an earlier run has left as well."""
        names = self._fs.list_directory(self._directory)
        self._doomed = deque(f"{self._directory}/{name}" for name in names if _DELETED_FOLDER.search(name))
        self.remove_doomed(len(self._doomed))

    def remove_unfinished(self, topics: Mapping[str, TopicEntry]) -> None:
        """Remove folders of topics whose creation did not come to its end; they hold no records."""
        known = {folder for entry in topics.values() for folder in entry.folders()}
        for name in self._fs.list_directory(self._directory):
            if name in known or split_folder_name(name) is None:
                continue
            path = f"{self._directory}/{name}"
            if not holds_only_ours(self._fs, path):
                continue
            if not self._holds_no_records(path):
                raise StorageError(f"the folder {path} holds records, but the catalog does not know it; move it away")
            self._fs.remove(path)

    def _clear_way(self, path: str, topic: str) -> None:
        # Left by an attempt that failed in this process (`Store.open` leaves none behind), or somebody else's.
        if not (holds_only_ours(self._fs, path) and self._holds_no_records(path)):
            raise StorageError(f"the folder {path} is in the way of topic {topic}; move it away")
        self._fs.remove(path)

    def _remove_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            # What stays is empty, in nobody's way, and removed by the next start.
            with suppress(StorageError):
                self._fs.remove(path)

    def _holds_no_records(self, path: str) -> bool:
        segments = [file for file in self._fs.list_directory(path) if segment_base(file) is not None]
        return not any(self._fs.open(f"{path}/{file}").size() for file in segments)


def holds_only_ours(fs: FileSystem, path: str) -> bool:
    """Whether a folder has nothing in it but what lies in a partition's."""
    files = fs.list_directory(path)
    return all(segment_base(file) is not None or file.endswith(NAMES_BESIDE + SUFFIXES_BESIDE) for file in files)


def _deleted_folder_name(entry: TopicEntry, partition: int) -> str:
    """As Kafka names it, so long as a file name may be that long: no other topic's or partition's folder has it."""
    suffix = f"-{partition}.{entry.topic_id.hex()}{_DELETE_SUFFIX}"
    return entry.name[: _FILE_NAME_LIMIT - len(suffix)] + suffix
