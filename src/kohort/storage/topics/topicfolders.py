"""The folders of partitions: made before the catalog names their topic, removed after it does not.

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

#: Files beside the segments in a partition's folder: by their names, and by the suffixes of names with an offset.
NAMES_BESIDE: Final = (PARTITION_METADATA_NAME, EPOCHS_NAME, STATE_NAME)
SUFFIXES_BESIDE: Final = (*SUFFIXES, SYNCED_SUFFIX, SNAPSHOT_SUFFIX, QUARANTINE_SUFFIX)

#: Kafka's suffix of a deleted partition's folder.
_DELETE_SUFFIX: Final = "-delete"
#: The end of the name of a deleted partition's folder; other folders may end in the suffix alone.
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
        """Return the path of a partition's folder."""
        return f"{self._directory}/{topic}-{partition}"

    def make(self, entry: TopicEntry, first: int) -> None:
        """Make the folders of partitions from `first` on, all or none; they are not durable yet.

        Raises:
            StorageError: no folder was made.
        """
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
        """Remove the folders that `make` made, before the catalog names them."""
        self._remove_all([f"{self._directory}/{folder}" for folder in entry.folders()[first:]])

    def sync(self) -> None:
        """Make new folders durable."""
        self._fs.sync_directory(self._directory)

    def free(self, gone: Iterable[TopicEntry]) -> None:
        """Rename the folders of deleted topics, so that their names are free; a crash does not stop this."""
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
        """Remove up to `most` of the deleted folders; one that the disk refuses stays until the next start."""
        for _ in range(min(most, len(self._doomed))):
            self._fs.remove(self._doomed.popleft())

    def remove_deleted(self) -> None:
        """Remove every folder of a deleted topic, those of earlier runs included."""
        names = self._fs.list_directory(self._directory)
        self._doomed = deque(f"{self._directory}/{name}" for name in names if _DELETED_FOLDER.search(name))
        self.remove_doomed(len(self._doomed))

    def remove_unfinished(self, topics: Mapping[str, TopicEntry]) -> None:
        """Remove the folders, without records, of topics that were never created to the end."""
        known = {folder for entry in topics.values() for folder in entry.folders()}
        for name in self._fs.list_directory(self._directory):
            if name in known or split_folder_name(name) is None:
                continue
            path = f"{self._directory}/{name}"
            if not holds_only_ours(self._fs, path):
                continue
            if not self._holds_no_records(path):
                # Records that the catalog does not know are never removed: a user has to decide.
                raise StorageError(f"the folder {path} holds records, but the catalog does not know it; move it away")
            self._fs.remove(path)

    def _clear_way(self, path: str, topic: str) -> None:
        # The folder is of a failed attempt of this process (`Store.open` leaves none behind), or of other software.
        if not (holds_only_ours(self._fs, path) and self._holds_no_records(path)):
            raise StorageError(f"the folder {path} is in the way of topic {topic}; move it away")
        self._fs.remove(path)

    def _remove_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            # A folder that stays is empty and harmless, and the next start removes it.
            with suppress(StorageError):
                self._fs.remove(path)

    def _holds_no_records(self, path: str) -> bool:
        segments = [file for file in self._fs.list_directory(path) if segment_base(file) is not None]
        return not any(self._fs.open(f"{path}/{file}").size() for file in segments)


def holds_only_ours(fs: FileSystem, path: str) -> bool:
    """Whether a folder has only files that belong into a partition's folder."""
    files = fs.list_directory(path)
    return all(segment_base(file) is not None or file.endswith(NAMES_BESIDE + SUFFIXES_BESIDE) for file in files)


def _deleted_folder_name(entry: TopicEntry, partition: int) -> str:
    """Return Kafka's name of a deleted partition's folder, shortened to the limit of file names."""
    # With the topic's id in it, no other topic's or partition's folder has this name.
    suffix = f"-{partition}.{entry.topic_id.hex()}{_DELETE_SUFFIX}"
    return entry.name[: _FILE_NAME_LIMIT - len(suffix)] + suffix
