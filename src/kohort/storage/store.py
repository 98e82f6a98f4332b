"""All partitions of one broker: open a data directory (or memory), create and delete topics, close.

Laws: a topic exists when the catalog's file says so; its folders are made before and removed after. After any crash
`open` finishes what was begun or removes what was not. Folders that hold records and that the catalog does not know
are never removed. One owner thread.
Source: architecture, journey of a restart; Apache Kafka's folder names, `-delete` suffix included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import INTERNAL_TOPICS, TopicId
from kohort.storage.catalog import (
    Catalog,
    TopicEntry,
    check_topic_name,
    load_catalog,
    save_catalog,
    split_folder_name,
)
from kohort.storage.datadir import (
    PARTITION_METADATA_NAME,
    Identity,
    PartitionEnd,
    check_partition_metadata,
    is_new,
    load_identity,
    load_leader_epoch,
    load_marker,
    remove_marker,
    save_leader_epoch,
    save_marker,
    take_directory,
    write_partition_metadata,
)
from kohort.storage.fs import DiskFileSystem, FileLock, FileSystem
from kohort.storage.memoryfs import MemoryFileSystem
from kohort.storage.partition import PartitionLog
from kohort.storage.recovery import RecoveryReport, TailCut, open_partition
from kohort.storage.segment import segment_base, segment_name
from kohort.storage.topicconfig import LogConfig

_DELETE_SUFFIX: Final = "-delete"
#: How the name of a deleted partition's folder ends; others may end in the suffix alone.
_DELETED_FOLDER: Final = re.compile(rf"-\d+\.[0-9a-f]{{32}}{_DELETE_SUFFIX}$")
#: A file in memory doubles as it grows; short ones keep the pauses short.
_MEMORY_SEGMENT_BYTES: Final = 16 << 20
_FILE_NAME_LIMIT: Final = 255


@dataclass(slots=True, kw_only=True)
class Topic:
    """One topic with its logs; changed by the store only."""

    name: str
    topic_id: TopicId
    #: By partition number.
    partitions: list[PartitionLog]
    #: Its own configs, without the broker's defaults.
    configs: dict[str, str]

    @property
    def is_internal(self) -> bool:
        """Whether it belongs to the broker rather than to applications."""
        return self.name in INTERNAL_TOPICS


class Store:
    """The topics of one broker; made by `open` or `in_memory`."""

    def __init__(
        self, fs: FileSystem, directory: str, settings: Mapping[str, object], *, identity: Identity, lock: FileLock
    ) -> None:
        self._fs = fs
        self._lock = lock
        #: The broker's defaults of topic configs.
        self._settings = settings
        self._identity = identity
        self._catalog = Catalog()
        #: That of partitions that are created; it rises at each start after a stop that was not clean.
        self._leader_epoch = 0
        self.directory = directory
        #: By name.
        self.topics: dict[str, Topic] = {}
        #: What opening found and cut.
        self.recovery = RecoveryReport()

    @classmethod
    def open(
        cls,
        data_dir: str,
        *,
        settings: Mapping[str, object] | None = None,
        cluster_id: str | None = None,
        node_id: int = 1,
        fs: FileSystem | None = None,
    ) -> Store:
        """Take a data directory, finish what a crash left undone, and read every partition.

        Args:
            settings: the broker's defaults of topic configs, by Kafka's names of topic configs.
            cluster_id: for a new directory; `None` draws one.
            node_id: for a new directory.

        Raises:
            StorageError: one sentence that says what is wrong and what to do.
            ConfigError: a setting that does not exist or cannot have that value.
        """
        fs = fs or DiskFileSystem()
        settings = dict(settings or {})
        LogConfig.of({}, settings)
        directory = data_dir.rstrip("/") or "/"
        lock = take_directory(fs, directory)
        try:
            identity = load_identity(fs, directory, cluster_id=cluster_id, node_id=node_id)
            store = cls(fs, directory, settings, identity=identity, lock=lock)
            store._load()
        except BaseException:
            lock.release()
            raise
        return store

    @classmethod
    def in_memory(
        cls, settings: Mapping[str, object] | None = None, *, cluster_id: str | None = None, node_id: int = 1
    ) -> Store:
        """A store that is gone with the process; everything counts as durable at once."""
        fs = MemoryFileSystem(volatile=True, seed=DiskFileSystem().random_bytes(16))
        return cls.open("/memory", settings=settings, cluster_id=cluster_id, node_id=node_id, fs=fs)

    @property
    def fs(self) -> FileSystem:
        """Where the files are."""
        return self._fs

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id, kept in `meta.properties`."""
        return self._identity.cluster_id

    @property
    def node_id(self) -> int:
        """This broker's id."""
        return self._identity.node_id

    def create_topic(
        self, name: str, partition_count: int, *, topic_id: TopicId, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Make a topic; it exists when this returns.

        Raises:
            Refused: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS.
            ConfigError: a config that does not exist or cannot have that value.
            StorageError: the disk; the topic does not exist.
        """
        check_topic_name(name)
        if name in self.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if partition_count < 1:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {partition_count} partitions")
        assert len(topic_id) == 16
        own_configs = dict(configs or {})
        config = self._log_config(own_configs)
        entry = TopicEntry(name=name, topic_id=topic_id, partition_count=partition_count, configs=own_configs)
        self._make_folders(entry, 0)
        self._save(self._catalog.with_topic(entry))
        topic = Topic(name=name, topic_id=topic_id, partitions=[], configs=own_configs)
        topic.partitions += [self._open_new(entry, partition, config) for partition in range(partition_count)]
        self.topics[name] = topic
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records; views that readers hold stay valid.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._topic(name)
        self._save(self._catalog.without_topic(name))
        del self.topics[name]
        for log in topic.partitions:
            log.close()
        self._finish_deletions()

    def add_partitions(self, name: str, new_count: int) -> Topic:
        """Bring a topic to `new_count` partitions; the new ones are empty.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS if there are as many already.
        """
        topic = self._topic(name)
        old_count = len(topic.partitions)
        if new_count <= old_count:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, f"topic {name} has {old_count} partitions, not fewer than {new_count}"
            )
        entry = replace(self._catalog.topics[name], partition_count=new_count)
        self._make_folders(entry, old_count)
        self._save(self._catalog.with_topic(entry))
        config = self._log_config(topic.configs, is_stored=True)
        topic.partitions += [self._open_new(entry, partition, config) for partition in range(old_count, new_count)]
        return topic

    def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Give a topic these configs instead of its present ones; in force at once.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
            ConfigError: a config that does not exist or cannot have that value.
        """
        topic = self._topic(name)
        own_configs = dict(configs)
        config = self._log_config(own_configs)
        self._save(self._catalog.with_topic(replace(self._catalog.topics[name], configs=own_configs)))
        topic.configs = own_configs
        for log in topic.partitions:
            log.configure(config)

    def next_producer_id_block(self) -> range:
        """1,000 producer ids that nobody was given before, across restarts too."""
        catalog, block = self._catalog.with_producer_id_block()
        self._save(catalog)
        return block

    def close(self, *, clean: bool = True) -> None:
        """Let the directory go.

        Args:
            clean: make everything durable and leave a marker, so that the next start is quick; `False` just stops.

        Raises:
            DiskFailedError: the directory is let go without the marker.
        """
        logs = [log for topic in self.topics.values() for log in topic.partitions]
        try:
            if clean and not self._fs.volatile and self._fs.health.failure is None:
                self._leave_marker(logs)
        finally:
            for log in logs:
                log.close()
            self._lock.release()

    def _leave_marker(self, logs: list[PartitionLog]) -> None:
        """Make everything durable and say so; a disk that takes nothing leaves the next start to check it all."""
        try:
            for log in logs:
                if log.log_end_offset > log.durable_offset:
                    log.mark_durable(log.sync())
            save_marker(
                self._fs, self.directory, {log.name: PartitionEnd(log.log_end_offset, log.size_bytes) for log in logs}
            )
        except StorageError as why:
            if why.fatal:
                raise

    def _load(self) -> None:
        """Bring folders in line with the catalog, then read every partition."""
        if is_new(self._fs, self.directory):
            self._save(Catalog())
            return
        self._catalog = load_catalog(self._fs, self.directory)
        self._finish_deletions()
        self._remove_unfinished_folders()
        ends = load_marker(self._fs, self.directory)
        cuts: list[TailCut] = []
        for entry in self._catalog.topics.values():
            self.topics[entry.name] = self._open_topic(entry, ends, cuts)
        logs = [log for topic in self.topics.values() for log in topic.partitions]
        self.recovery = RecoveryReport(
            is_clean=ends is not None,
            partitions=len(logs),
            bytes_checked=0 if ends is not None else sum(log.size_bytes for log in logs),
            cuts=tuple(cuts),
        )
        self._begin_epoch(logs, is_new=ends is None)
        remove_marker(self._fs, self.directory)

    def _begin_epoch(self, logs: list[PartitionLog], *, is_new: bool) -> None:
        """What a stop that was not clean took from a log, those who read it find out by the epoch."""
        epoch = max([load_leader_epoch(self._fs, self.directory), *(log.epochs.latest for log in logs)])
        if is_new:
            epoch += 1
            save_leader_epoch(self._fs, self.directory, epoch)
        self._leader_epoch = epoch
        for log in logs:
            log.leader_epoch = epoch

    def _open_topic(self, entry: TopicEntry, ends: dict[str, PartitionEnd] | None, cuts: list[TailCut]) -> Topic:
        config = self._log_config(entry.configs, is_stored=True)
        topic = Topic(name=entry.name, topic_id=entry.topic_id, partitions=[], configs=dict(entry.configs))
        for partition, folder in enumerate(entry.folders()):
            path = f"{self.directory}/{folder}"
            if not self._fs.exists(path):
                raise StorageError(
                    f"the folder {path} is missing though the catalog has topic {entry.name}; restore it from a "
                    "backup, or make an empty folder of that name to go on without its records"
                )
            check_partition_metadata(self._fs, path, entry.topic_id)
            expected = ends.get(folder) if ends is not None else None
            log, cut = open_partition(
                self._fs, path, topic=entry.name, partition=partition, config=config, expected=expected
            )
            topic.partitions.append(log)
            if cut:
                cuts.append(cut)
        return topic

    def _open_new(self, entry: TopicEntry, partition: int, config: LogConfig) -> PartitionLog:
        path = f"{self.directory}/{entry.name}-{partition}"
        log, _ = open_partition(self._fs, path, topic=entry.name, partition=partition, config=config)
        log.leader_epoch = self._leader_epoch
        return log

    def _make_folders(self, entry: TopicEntry, first: int) -> None:
        """Folders, which count only once the catalog names the topic."""
        for folder in entry.folders()[first:]:
            path = f"{self.directory}/{folder}"
            # Left by an attempt that failed in this process (`open` leaves none behind), or somebody else's.
            if not (self._holds_only_ours(path) and self._holds_no_records(path)):
                raise StorageError(f"the folder {path} is in the way of topic {entry.name}; move it away")
            self._fs.remove(path)
            self._fs.make_directory(path)
            write_partition_metadata(self._fs, path, entry.topic_id)
            self._fs.open(f"{path}/{segment_name(0)}", create=True)
        self._fs.sync_directory(self.directory)

    def _finish_deletions(self) -> None:
        """Move the folders of deleted topics out of the way, then remove them; after a crash this goes on."""
        names = self._fs.list_directory(self.directory)
        for entry in self._catalog.deleting:
            for folder in names:
                parts = split_folder_name(folder)
                if parts and parts[0] == entry.name:
                    target = _deleted_folder_name(entry, parts[1])
                    self._fs.rename(f"{self.directory}/{folder}", f"{self.directory}/{target}")
        if self._catalog.deleting:
            self._fs.sync_directory(self.directory)
            # Written with the next change: until then going over it again does no harm.
            self._catalog = self._catalog.with_folders_freed()
        for name in self._fs.list_directory(self.directory):
            if _DELETED_FOLDER.search(name):
                self._fs.remove(f"{self.directory}/{name}")

    def _remove_unfinished_folders(self) -> None:
        """Remove folders of topics whose creation did not come to its end; they hold no records."""
        known = {folder for entry in self._catalog.topics.values() for folder in entry.folders()}
        for name in self._fs.list_directory(self.directory):
            if name in known or split_folder_name(name) is None:
                continue
            path = f"{self.directory}/{name}"
            if not self._holds_only_ours(path):
                continue
            if not self._holds_no_records(path):
                raise StorageError(f"the folder {path} holds records, but the catalog does not know it; move it away")
            self._fs.remove(path)

    def _holds_only_ours(self, path: str) -> bool:
        files = self._fs.list_directory(path)
        return all(file == PARTITION_METADATA_NAME or segment_base(file) is not None for file in files)

    def _holds_no_records(self, path: str) -> bool:
        segments = [file for file in self._fs.list_directory(path) if segment_base(file) is not None]
        return not any(self._fs.open(f"{path}/{file}").size() for file in segments)

    def _topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic

    def _log_config(self, configs: Mapping[str, str], *, is_stored: bool = False) -> LogConfig:
        config = (LogConfig.of_stored if is_stored else LogConfig.of)(configs, self._settings)
        if self._fs.volatile:
            config = replace(config, segment_bytes=min(config.segment_bytes, _MEMORY_SEGMENT_BYTES))
        return config

    def _save(self, catalog: Catalog) -> None:
        if not self._fs.volatile:
            # In memory nobody reads it again, and writing it is as much work as all topics.
            save_catalog(self._fs, self.directory, catalog)
        self._catalog = catalog


def _deleted_folder_name(entry: TopicEntry, partition: int) -> str:
    """As Kafka names it, so long as a file name may be that long: no other topic's or partition's folder has it."""
    suffix = f"-{partition}.{entry.topic_id.hex()}{_DELETE_SUFFIX}"
    return entry.name[: _FILE_NAME_LIMIT - len(suffix)] + suffix
