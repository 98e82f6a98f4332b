"""Topics created, changed and deleted, in the catalog and on disk, in three steps: only the second waits for the disk.

A change is planned, which decides whether it can be; written, by a thread beside the owner's and many changes at once;
and settled, which puts it in force.

Laws: a topic exists when the catalog's file says so. Its folders are made before and removed after, so that after a
crash at any point it is there as a whole or not at all. A plan is written before another one about the same topic is
made; one thread writes at a time.
Source: Apache Kafka's ReplicationControlManager, which decides alone and answers when its log has the change.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Final

from kohort.base.values import value
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.ids import INTERNAL_TOPICS, OFFSETS_TOPIC, TopicId
from kohort.storage import catalog
from kohort.storage.catalog import AclRow, Catalog, CatalogChange, RevokedName, RevokedTimes, ScramUser, TopicEntry
from kohort.storage.client_quotas import QuotaChange, differences
from kohort.storage.data_directory import EPOCHS_NAME, PARTITION_METADATA_NAME, write_partition_metadata
from kohort.storage.files.fs import DiskFailedError, FileSystem
from kohort.storage.log_state import SNAPSHOT_SUFFIX, STATE_NAME
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.quarantine import QUARANTINE_SUFFIX
from kohort.storage.recovery import open_partition
from kohort.storage.segments.indexes import SUFFIXES, SYNCED_SUFFIX, TRANSACTION_SUFFIX
from kohort.storage.segments.segment import segment_base, segment_name
from kohort.storage.topicconfig import LogConfig

#: A file in memory doubles as it grows; short ones keep the pauses short.
_MEMORY_SEGMENT_BYTES: Final = 16 << 20
#: Partitions between two calls of `after_many`.
_MANY: Final = 100
#: Folders of deleted topics that are removed between two changes.
_REMOVED_AT_ONCE: Final = 100
#: Files beside the segments in a partition's folder: by their names, and by the suffixes of names with an offset.
NAMES_BESIDE: Final = (PARTITION_METADATA_NAME, EPOCHS_NAME, STATE_NAME)
SUFFIXES_BESIDE: Final = (*SUFFIXES, SYNCED_SUFFIX, TRANSACTION_SUFFIX, SNAPSHOT_SUFFIX, QUARANTINE_SUFFIX)

#: Kafka's suffix of a deleted partition's folder.
_DELETE_SUFFIX: Final = "-delete"
#: The end of the name of a deleted partition's folder; other folders may end in the suffix alone.
_DELETED_FOLDER: Final = re.compile(rf"-\d+\.[0-9a-f]{{32}}{_DELETE_SUFFIX}$")
_FILE_NAME_LIMIT: Final = 255
_SECRET_BYTES: Final = 32


@value(frozen=False)
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
        """Whether the topic belongs to the broker rather than to applications."""
        return self.name in INTERNAL_TOPICS


@value(frozen=False, eq=False)
class TopicPlan:
    """A planned change."""

    change: CatalogChange
    #: Puts it in force in memory.
    settle: Callable[[TopicPlan], None]
    #: The topic that gets folders, from partition `first` on; `None` where no folders are made.
    entry: TopicEntry | None = None
    first: int = 0
    config: LogConfig | None = None
    #: The partitions that were made.
    logs: list[PartitionLog] = field(default_factory=list)
    #: Why it is not in force and never will be.
    failure: StorageError | None = None


class TopicChanges:
    """The topics of a store, and the changes to them."""

    def __init__(self, fs: FileSystem, directory: str, settings: Mapping[str, object]) -> None:
        """Open the catalog; `settings` are the broker's defaults of topic configs."""
        self._fs: Final = fs
        #: Each is called with the names and mechanisms of SCRAM users once they are removed.
        self.on_users_gone: Final[list[Callable[[Sequence[tuple[str, str]]], None]]] = []
        self._settings = settings
        self.file: Final = catalog.CatalogFile(fs, directory)
        self.folders: Final = TopicFolders(fs, directory)
        #: Logs of deleted topics, until their folders are renamed.
        self._leaving: list[PartitionLog] = []
        #: Whether folders of deleted topics were moved away since the last change, which does not say so yet.
        self._has_freed = False
        #: Why folders of deleted topics cannot be removed; `None` where they can.
        self.stuck_on: StorageError | None = None
        #: Called at times while partitions are made, on the thread that makes them.
        self.after_many: Callable[[], None] = lambda: None
        self._made = 0
        #: The leader epoch of new partitions; it rises at each start after a stop that was not clean.
        self.leader_epoch = 0
        #: By name.
        self.topics: Final[dict[str, Topic]] = {}
        #: Collision key -> the topics that have it.
        self._collisions: Final[dict[str, set[str]]] = {}

    @property
    def catalog(self) -> Catalog:
        """The catalog in force."""
        return self.file.catalog

    def keep(self, topic: Topic) -> None:
        """Add a topic that exists."""
        self.topics[topic.name] = topic
        self._collisions.setdefault(catalog.collision_key(topic.name), set()).add(topic.name)

    def set_defaults(self, settings: Mapping[str, object]) -> None:
        """Set new defaults of topic configs, in force at once."""
        self._settings = settings
        for topic in self.topics.values():
            config = self.log_config(topic.configs, is_stored=True)
            for log in topic.partitions:
                log.configure(config)

    def finish_deletions(self) -> None:
        """Finish the deletions that an earlier run began."""
        self._free_folders()
        self.folders.remove_deleted()

    def check_new_name(self, name: str) -> None:
        """Refuse a name that no new topic can have."""
        catalog.check_topic_name(name)
        if name in self.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        # Kafka's metrics write `.` as `_`: two such names would share theirs.
        if others := self._collisions.get(catalog.collision_key(name)):
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {min(others)}"
            )

    def plan_topic(
        self, name: str, partition_count: int, *, topic_id: TopicId, configs: Mapping[str, str] | None = None
    ) -> TopicPlan:
        """Plan a new topic.

        Raises:
            Refused: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS.
            ConfigError: a config that does not exist or cannot have that value.
        """
        self.check_new_name(name)
        if partition_count < 1:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {partition_count} partitions")
        assert len(topic_id) == 16
        own_configs = dict(configs or {})
        entry = TopicEntry(name=name, topic_id=topic_id, partition_count=partition_count, configs=own_configs)

        def settle(plan: TopicPlan) -> None:
            self.keep(Topic(name=name, topic_id=topic_id, partitions=plan.logs, configs=own_configs))

        config = self.log_config(own_configs)
        return TopicPlan(change=CatalogChange(topics=(entry,)), settle=settle, entry=entry, config=config)

    def plan_partitions(self, name: str, new_count: int) -> TopicPlan:
        """Plan more partitions for a topic; the new ones are empty.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS if there are as many already.
        """
        topic = self._topic(name)
        old_count = len(topic.partitions)
        if new_count <= old_count:
            raise Refused(ErrorCode.INVALID_PARTITIONS, already_has(old_count, new_count))
        entry = replace(self.catalog.topics[name], partition_count=new_count)

        def settle(plan: TopicPlan) -> None:
            topic.partitions += plan.logs

        return TopicPlan(
            change=CatalogChange(topics=(entry,)),
            settle=settle,
            entry=entry,
            first=old_count,
            config=self.log_config(topic.configs, is_stored=True),
        )

    def plan_deletion(self, name: str) -> TopicPlan:
        """Plan the deletion of a topic and its records; views that readers hold stay valid.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._topic(name)

        def settle(_: TopicPlan) -> None:
            del self.topics[name]
            alike = self._collisions[catalog.collision_key(name)]
            alike.discard(name)
            if not alike:
                del self._collisions[catalog.collision_key(name)]
            for log in topic.partitions:
                log.close()
            self._leaving += topic.partitions

        return TopicPlan(change=CatalogChange(gone=(name,)), settle=settle)

    def plan_configs(self, name: str, configs: Mapping[str, str]) -> TopicPlan:
        """Plan the replacement of a topic's configs.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
            ConfigError: a config that does not exist or cannot have that value.
        """
        topic = self._topic(name)
        own_configs = dict(configs)
        config = self.log_config(own_configs)
        # Deleting by age would take committed offsets of groups that are still there.
        if name == OFFSETS_TOPIC and not config.is_compacted:
            raise ConfigError(
                f"cleanup.policy of {name} has to have compact, which alone makes the log of groups shorter"
            )

        def settle(_: TopicPlan) -> None:
            topic.configs = own_configs
            for log in topic.partitions:
                log.configure(config)

        entry = replace(self.catalog.topics[name], configs=own_configs)
        return TopicPlan(change=CatalogChange(topics=(entry,)), settle=settle)

    def plan_producer_ids(self, then: Callable[[range], None]) -> TopicPlan:
        """Plan a block of 1,000 producer ids that were never given out, across restarts too."""
        first = self.catalog.next_producer_id
        block = range(first, first + catalog.PRODUCER_ID_BLOCK)
        return TopicPlan(change=CatalogChange(next_producer_id=block.stop), settle=lambda _: then(block))

    def plan_broker_configs(self, configs: Mapping[str, str]) -> TopicPlan:
        """Plan the replacement of the broker's dynamic configs."""
        return TopicPlan(change=CatalogChange(broker_configs=dict(configs)), settle=lambda _: None)

    def plan_acls(self, *, added: Sequence[AclRow] = (), removed: Sequence[AclRow] = ()) -> TopicPlan:
        """Plan entries of the access control lists that are added, and others that are removed."""
        return TopicPlan(change=CatalogChange(acls=(*added,), acls_gone=(*removed,)), settle=lambda _: None)

    def plan_scram_users(self, changed: Sequence[ScramUser], gone: Sequence[tuple[str, str]] = ()) -> TopicPlan:
        """Plan new keys of SCRAM users, and the removal of others, by name and mechanism."""

        def settle(_: TopicPlan) -> None:
            for told in list(self.on_users_gone):
                told(gone)

        return TopicPlan(change=CatalogChange(scram_users=tuple(changed), scram_gone=tuple(gone)), settle=settle)

    def plan_login_secret(self) -> TopicPlan:
        """Plan the secret that answers to unknown users are made of."""
        secret = self._fs.random_bytes(_SECRET_BYTES)
        return TopicPlan(change=CatalogChange(login_secret=secret), settle=lambda _: None)

    def plan_client_quotas(self, changes: Iterable[QuotaChange], then: Callable[[], None]) -> TopicPlan:
        """Plan changes of clients' limits; `then` runs when they are in force."""
        made = differences(self.catalog.client_quotas, changes)
        return TopicPlan(change=CatalogChange(client_quotas=made), settle=lambda _: then())

    def plan_revocations(
        self, added: Mapping[RevokedName, RevokedTimes], gone: Iterable[RevokedName], then: Callable[[], None]
    ) -> TopicPlan:
        """Plan revoked tokens, and others to forget; `then` runs when the change is in force."""
        change = CatalogChange(revocations=(*added.items(),), revocations_gone=(*gone,))
        return TopicPlan(change=change, settle=lambda _: then())

    def write(self, plans: Sequence[TopicPlan]) -> None:
        """Write plans to the disk with one sync of folders and one of the catalog; one thread at a time.

        A plan that the disk refuses gets its `failure`, and its begun work is undone; the other plans go on.
        With no plans, folders of deleted topics are removed, some at a time.

        Raises:
            DiskFailedError: what the disk holds is unknown.
        """
        self.stuck_on = None
        try:
            is_freed = self._free_folders()
            for plan in plans:
                self._make(plan)
            if any(plan.logs for plan in plans):
                # Folders are durable before the catalog names their topic.
                self.folders.sync()
            if plans:
                changes = [plan.change for plan in plans if plan.failure is None]
                self.file.write(catalog.join([CatalogChange(is_freed=is_freed), *changes]))
                self._has_freed = False
            else:
                self.folders.remove_doomed(_REMOVED_AT_ONCE)
        except DiskFailedError:
            raise
        except StorageError as why:
            self.stuck_on = why
            for plan in plans:
                if plan.failure is None:
                    self._take_back(plan, why)

    def settle(self, plan: TopicPlan) -> None:
        """Put a written plan in force; raise the `StorageError` of a plan that the disk refused."""
        if plan.failure is not None:
            raise plan.failure
        plan.settle(plan)

    @property
    def has_leftovers(self) -> bool:
        """Whether folders of deleted topics wait for a `write` without plans."""
        has_some = (self.catalog.deleting and not self._has_freed) or self.folders.doomed
        return bool(has_some) and self.stuck_on is None

    def _free_folders(self) -> bool:
        """Rename folders of deleted topics, once; return whether the next change has to note that."""
        deleting = self.catalog.deleting
        if deleting and not self._has_freed:
            for log in self._leaving:
                log.filing.give_up()
            self._leaving.clear()
            self.folders.free(deleting)
            self._has_freed = True
        return self._has_freed

    def _make(self, plan: TopicPlan) -> None:
        if plan.entry is None or plan.config is None:
            return
        try:
            self.folders.make(plan.entry, plan.first)
        except DiskFailedError:
            raise
        except StorageError as why:
            plan.failure = why
            return
        try:
            name = plan.entry.name
            for number in range(plan.first, plan.entry.partition_count):
                path = self.folders.path(name, number)
                log, _ = open_partition(self._fs, path, topic=name, partition=number, config=plan.config)
                log.leader_epoch = self.leader_epoch
                plan.logs.append(log)
                self._made += 1
                if self._made % _MANY == 0:
                    self.after_many()
        except DiskFailedError:
            raise
        except StorageError as why:
            self._take_back(plan, why)

    def _take_back(self, plan: TopicPlan, why: StorageError) -> None:
        plan.failure = why
        if plan.entry is not None:
            plan.logs.clear()
            self.folders.unmake(plan.entry, plan.first)

    def log_config(self, configs: Mapping[str, str], *, is_stored: bool = False) -> LogConfig:
        """Build the log config of a topic; stored configs may be of another version."""
        config = (LogConfig.of_stored if is_stored else LogConfig.of)(configs, self._settings)
        if self._fs.volatile:
            # A file in memory is copied as it grows: short ones keep the pauses short.
            config = replace(config, segment_bytes=min(config.segment_bytes, _MEMORY_SEGMENT_BYTES))
        return config

    def _topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic


def already_has(count: int, wanted: int) -> str:
    """Return Kafka's error text for a topic that would not grow."""
    if wanted == count:
        return f"Topic already has {count} partition(s)."
    return f"The topic currently has {count} partition(s); {wanted} would not be an increase."


class TopicFolders:
    """The folders of one data directory.

    Laws: folders count only once the catalog names their topic; what was made for a topic that then is not created is
    removed again. Folders that hold records and that the catalog does not know are never removed, nor is anything of
    somebody else's. Deleted folders are moved out of the way of their names first, which is quick, and removed
    afterwards.
    Source: Apache Kafka's folder names, `-delete` suffix included.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs: Final = fs
        self._directory: Final = directory
        #: Paths of deleted folders that are still to be removed.
        self.doomed: deque[str] = deque()

    def path(self, topic: str, partition: int) -> str:
        """Return the path of a partition's folder."""
        return f"{self._directory}/{topic}-{partition}"

    def make(self, entry: TopicEntry, first: int) -> None:
        """Make the folders of partitions from `first` on, not durable yet; none after a `StorageError`."""
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
            parts = catalog.split_folder_name(folder)
            entry = by_name.get(parts[0]) if parts else None
            if parts and entry is not None:
                target = f"{self._directory}/{_deleted_folder_name(entry, parts[1])}"
                if self._fs.exists(target):
                    # Its own was moved before a kill: this one was begun for the next topic of the name.
                    continue
                self._fs.rename(f"{self._directory}/{folder}", target)
                self.doomed.append(target)
        if by_name:
            self._fs.sync_directory(self._directory)

    def remove_doomed(self, most: int) -> None:
        """Remove up to `most` of the deleted folders; the next start removes those that the disk refuses."""
        for _ in range(min(most, len(self.doomed))):
            self._fs.remove(self.doomed.popleft())

    def remove_deleted(self) -> None:
        """Remove every folder of a deleted topic, those of earlier runs included."""
        names = self._fs.list_directory(self._directory)
        self.doomed = deque(f"{self._directory}/{name}" for name in names if _DELETED_FOLDER.search(name))
        self.remove_doomed(len(self.doomed))

    def remove_unfinished(self, topics: Mapping[str, TopicEntry]) -> None:
        """Remove the folders, without records, of topics that were never created to the end."""
        known = {folder for entry in topics.values() for folder in entry.folders()}
        for name in self._fs.list_directory(self._directory):
            if name in known or catalog.split_folder_name(name) is None:
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
