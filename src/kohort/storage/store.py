"""The store of one broker: opens a data directory (or memory), changes topics, closes.

Laws: after any crash `open` finishes what was begun or removes what was not. Folders that hold records and that the
catalog does not know are never removed. One owner thread, and one that may write changes of topics (`TopicChanges`).
Source: architecture, journey of a restart; Apache Kafka's folder names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kohort.errors import StorageError
from kohort.ids import TopicId
from kohort.storage import data_directory, log_state
from kohort.storage.catalog import TopicEntry
from kohort.storage.data_directory import Identity, PartitionEnd
from kohort.storage.files.fs import (
    DiskFailedError,
    DiskFileSystem,
    FileLock,
    FilesOverlapError,
    FileSystem,
    UnreadableError,
    remove_file,
)
from kohort.storage.files.volatilefs import VolatileFileSystem
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import RecoveryReport, TailCut, open_partition, unreadable_partition
from kohort.storage.topicconfig import LogConfig
from kohort.storage.topics import Topic, TopicChanges, TopicPlan

#: Logs that a stop makes durable at once, and from how many on that is worth threads.
_SYNCS_AT_ONCE: Final = 32
_MANY_SYNCS: Final = 64
#: Up to so many changed logs have their state written to their folders at a stop; more have it only in their rows.
_MOST_WRITTEN: Final = 200


class Store:
    """The topics of one broker; made by `open` or `in_memory`."""

    def __init__(
        self, fs: FileSystem, directory: str, settings: Mapping[str, object], *, identity: Identity, lock: FileLock
    ) -> None:
        self.fs = fs
        self._lock = lock
        #: The broker's defaults of topic configs.
        self._settings = settings
        #: Kafka's cluster id and this broker's id, kept in `meta.properties`.
        self.cluster_id, self.node_id = identity.cluster_id, identity.node_id
        self.directory = directory
        #: The changes of topics; set, as the topics are, by `open`.
        self.changes: TopicChanges
        #: By name.
        self.topics: dict[str, Topic] = {}
        #: The highest leader epoch that this directory has had; `None` if it is unknown.
        self._known_epoch: int | None = None
        #: The findings of opening the store.
        self.recovery = RecoveryReport()
        #: Folder -> end of an unreadable log at a clean stop, against which it is checked once it is readable.
        self._unread: dict[str, PartitionEnd] = {}
        #: The rows of the last clean stop; `None` once all logs are open.
        self._last_stop: log_state.LastStop | None = None

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
        """Lock a data directory, finish a crashed run's work, and open every partition.

        `settings`: the broker's defaults of topic configs. `cluster_id`, drawn if it is `None`, and `node_id` are those
        of a new directory.

        Raises:
            StorageError: one sentence that says what is wrong and what to do.
            ConfigError: a setting that does not exist or cannot have that value.
        """
        fs = fs or DiskFileSystem()
        settings = dict(settings or {})
        # Wrong defaults are refused before anything is written.
        LogConfig.of({}, settings)
        directory = data_dir.rstrip("/") or "/"
        lock = data_directory.take_directory(fs, directory)
        try:
            identity = data_directory.load_identity(fs, directory, cluster_id=cluster_id, node_id=node_id)
            store = cls(fs, directory, settings, identity=identity, lock=lock)
            store._load()
        except BaseException:
            lock.release()
            raise
        return store

    @classmethod
    def in_memory(
        cls,
        settings: Mapping[str, object] | None = None,
        *,
        cluster_id: str | None = None,
        node_id: int = 1,
        limit_bytes: int | None = None,
    ) -> Store:
        """Open a store in memory: it is gone with the process, and all records count as durable at once.

        `limit_bytes` bounds all its files; beyond it the store is full like a disk. `None` stands for no limit.
        """
        fs = VolatileFileSystem(limit_bytes=limit_bytes, seed=DiskFileSystem().random_bytes(16))
        return cls.open("/memory", settings=settings, cluster_id=cluster_id, node_id=node_id, fs=fs)

    def carry_out(self, plan: TopicPlan) -> None:
        """Write a plan and put it in force, for callers that may wait for the disk; raise as `settle` does."""
        self.changes.write((plan,))
        self.changes.settle(plan)

    def create_topic(
        self, name: str, partition_count: int, *, topic_id: TopicId, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic; it exists when this returns. Raises as `TopicChanges.plan_topic` and `settle` do."""
        self.carry_out(self.changes.plan_topic(name, partition_count, topic_id=topic_id, configs=configs))
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises as `plan_deletion` and `settle` do."""
        self.carry_out(self.changes.plan_deletion(name))
        while self.changes.has_leftovers:
            self.changes.write(())

    def close(self, *, clean: bool = True) -> None:
        """Close all logs, and unlock the directory; if `clean`, make the next start quick.

        Raises:
            DiskFailedError: the directory is let go without the marker.
        """
        logs = [log for topic in self.topics.values() for log in topic.partitions]
        try:
            if clean and not self.fs.volatile and self.fs.health.failure is None:
                self.check_place()
                self._leave_marker(logs)
        finally:
            for log in logs:
                log.close()
            self._lock.release()

    def check_place(self) -> None:
        """Check that the directory is the opened one, and still locked; blocking, for any thread.

        Raises:
            DiskFailedError: what is written has no name any more, or another broker may write beside this one.
        """
        loss = self._lock.find_loss()
        if loss:
            words = f"{loss}: what the broker has written since then may be lost; find the cause, then start again"
            raise self.fs.health.fail(DiskFailedError(words))

    def has(self, log: PartitionLog) -> bool:
        """Whether a log still belongs to the store; a later one may have its name."""
        topic = self.topics.get(log.topic)
        return topic is not None and log.partition < len(topic.partitions) and topic.partitions[log.partition] is log

    def recovery_points(self) -> dict[tuple[str, int], int]:
        """Return the offset behind which a start has to look, by (topic, partition)."""
        logs = [log for topic in self.topics.values() for log in topic.partitions]
        return {(log.topic, log.partition): log.state_offset for log in logs if not log.offline}

    def _leave_marker(self, logs: list[PartitionLog]) -> None:
        """Make everything durable and write the marker; a full disk leaves the next start to check it all."""
        try:
            _sync(log for log in logs if log.log_end_offset > log.durable_offset)
            rows = self._rows_of(logs)
            last_stop = log_state.save_last_stop(self.fs, self.directory, rows)
            data_directory.save_offsets(
                self.fs, self.directory, data_directory.RECOVERY_POINT_NAME, self.recovery_points()
            )
            ends = {log.name: PartitionEnd(log.log_end_offset, log.size_bytes) for log in logs if not log.offline}
            unread = {log.name: self._unread[log.name] for log in logs if log.offline and log.name in self._unread}
            data_directory.save_marker(self.fs, self.directory, ends | unread, last_stop=last_stop)
        except StorageError as why:
            if why.fatal:
                raise

    def _rows_of(self, logs: list[PartitionLog]) -> dict[str, log_state.Row]:
        """Build the row of each log; write the state of logs without a row, and of few changed ones, as well."""
        rows = {}
        outdated = sum(map(log_state.is_outdated, logs))
        for log in logs:
            row = log_state.row_of(self.fs, log, self.topics[log.topic].topic_id)
            if log_state.is_outdated(log) and (row is None or outdated <= _MOST_WRITTEN):
                captured = log_state.capture(log)
                log_state.settle(captured, log_state.write(self.fs, captured))
                row = log_state.row_of(self.fs, log, self.topics[log.topic].topic_id)
            if row is not None:
                rows[log.name] = row
        return rows

    def _load(self) -> None:
        """Bring the folders in line with the catalog, then open every partition."""
        is_first = data_directory.is_new(self.fs, self.directory)
        self.changes = TopicChanges(self.fs, self.directory, self._settings)
        self.topics = self.changes.topics
        if is_first:
            return
        catalog = self.changes.catalog
        self.changes.finish_deletions()
        self.changes.folders.remove_unfinished(catalog.topics)
        ends = data_directory.load_marker(self.fs, self.directory)
        self._last_stop = log_state.load_last_stop(
            self.fs, self.directory, data_directory.load_last_sum(self.fs, self.directory, ends)
        )
        had_rows = log_state.has_last_stop(self.fs, self.directory)
        self._known_epoch = data_directory.load_leader_epoch(self.fs, self.directory) or None
        cuts: list[TailCut] = []
        for entry in catalog.topics.values():
            self.changes.keep(self._open_topic(entry, ends, cuts))
        logs = [log for topic in self.topics.values() for log in topic.partitions]
        if had_rows and not log_state.has_last_stop(self.fs, self.directory):
            # A log was repaired, so the rows are gone: the state of all logs has to be written again.
            for log in logs:
                log.state_offset = 0
        self.recovery = RecoveryReport(
            is_clean=ends is not None,
            partitions=len(logs),
            bytes_checked=sum(log.bytes_checked for log in logs),
            cuts=tuple(cuts),
            catalog_cut=self.changes.file.cut,
            holes=tuple((log.name, hole) for log in logs for hole in log.holes),
            hanging=tuple((log.name, each) for log in logs for each in log.producers.hanging),
            mended_epochs=tuple((log.name, run) for log in logs for run in log.mended_epochs),
            shortened=tuple((log.name, log.bytes_gone, log.log_start_offset) for log in logs if log.bytes_gone),
            offline=tuple((log.name, log.offline) for log in logs if log.offline),
        )
        self._begin_epoch(logs, was_clean=ends is not None)
        # From the first append on only a check tells which records are there.
        remove_file(self.fs, self.directory, data_directory.MARKER_NAME)
        self._last_stop = None

    def _begin_epoch(self, logs: list[PartitionLog], *, was_clean: bool) -> None:
        """Begin a new leader epoch after a stop that was not clean."""
        # By the epoch, readers find out that a crash took records that they have read.
        epoch = max([self._known_epoch or 0, *(log.epochs.latest for log in logs)])
        if not was_clean:
            epoch += 1
        if not was_clean or self._known_epoch not in (None, epoch):
            # The epoch is durable before any client learns it.
            data_directory.save_leader_epoch(self.fs, self.directory, epoch)
        self.changes.leader_epoch = epoch
        for log in logs:
            log.leader_epoch = epoch

    def _open_topic(self, entry: TopicEntry, ends: dict[str, PartitionEnd] | None, cuts: list[TailCut]) -> Topic:
        config = self.changes.log_config(entry.configs, is_stored=True)
        topic = Topic(name=entry.name, topic_id=entry.topic_id, partitions=[], configs=dict(entry.configs))
        for partition, folder in enumerate(entry.folders()):
            assert self._last_stop is not None, "it was read before"
            log = self._last_stop.open(
                self.fs,
                f"{self.directory}/{folder}",
                topic=entry.name,
                topic_id=entry.topic_id,
                partition=partition,
                config=config,
            )
            if log is None:
                log, cut = self._read_partition(entry, partition, config, ends)
                if cut:
                    cuts.append(cut)
            topic.partitions.append(log)
        return topic

    def _read_partition(
        self, entry: TopicEntry, partition: int, config: LogConfig, ends: dict[str, PartitionEnd] | None
    ) -> tuple[PartitionLog, TailCut | None]:
        folder = f"{entry.name}-{partition}"
        path = f"{self.directory}/{folder}"
        if not self.fs.exists(path):
            raise StorageError(
                f"the folder {path} is missing though the catalog has topic {entry.name}; restore it from a "
                "backup, or make an empty folder of that name to go on without its records"
            )
        assert self._last_stop is not None, "it was read before"
        expected = ends.get(folder) if ends is not None else None
        try:
            data_directory.check_partition_metadata(self.fs, path, entry.topic_id)
            return open_partition(
                self.fs,
                path,
                topic=entry.name,
                partition=partition,
                config=config,
                expected=expected,
                highest_epoch=self._known_epoch,
                earlier=self._last_stop.state_of(folder, entry.topic_id),
            )
        except (FilesOverlapError, UnreadableError) as why:
            # The other partitions are served; the next start reads this one again.
            if expected is not None:
                self._unread[folder] = expected
            log = unreadable_partition(
                self.fs, path, topic=entry.name, partition=partition, config=config, reason=str(why)
            )
            return log, None


def _sync(logs: Iterable[PartitionLog]) -> None:
    """Sync logs, many of them at once: a disk carries out the syncs of several files together."""
    left = list(logs)
    if len(left) < _MANY_SYNCS:
        synced = [log.sync() for log in left]
    else:
        with ThreadPoolExecutor(_SYNCS_AT_ONCE, "kohort-sync") as threads:
            synced = list(threads.map(PartitionLog.sync, left))
    for log, offset in zip(left, synced, strict=True):
        log.mark_durable(offset)
