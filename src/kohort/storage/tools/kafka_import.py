"""The import of Apache Kafka's log directories: topics are copied into a new directory of kohort's.

Laws: the source is only read. The copy is no data directory until all of it is durable: its catalog is written last. A
topic is taken whole or refused; what belongs to Kafka alone (its metadata) is left and named. Records of transactions
are copied as they are, with their markers. The copied transaction coordinator ends what is open; where it is not taken
over, or knows nothing of a transaction, a marker at the end of the copy does.
Source: Apache Kafka 4.3's log directories: meta.properties version 1, partition.metadata, segments of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from kohort.base.values import value
from kohort.errors import CorruptRecordError, ProtocolError, StorageError
from kohort.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicId
from kohort.records.batch import build_marker, iterate_records
from kohort.records.header import BatchHeader, rebase
from kohort.storage import catalog, data_directory
from kohort.storage.catalog import CatalogChange, CatalogFile, TopicEntry
from kohort.storage.data_directory import META_NAME
from kohort.storage.files.fs import FileSystem
from kohort.storage.partitions.partition import read_marker
from kohort.storage.recovery import keep_log_start, mark_sparse
from kohort.storage.segments.segment import segment_base, segment_name
from kohort.storage.tools.inspection import Damage, FoundBatch, batches_in, walk_segment
from kohort.storage.topicconfig import LogConfig
from kohort.wire import codec
from kohort.wire.messages.transaction_records import TransactionLogValue
from kohort.wire.schema import schema_of

_INT16: Final = Struct(">h")
#: The states of a transaction that has not ended, and the one in which its end is a commit.
_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT = 1, 2, 3
_UNDECIDED: Final = frozenset({_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT})


@value
class CoordinatedTransaction:
    """The latest record of a transactional id in `__transaction_state`."""

    producer_id: int
    #: The producer id that takes its place when the transaction has ended; -1: none.
    next_producer_id: int
    state: int
    #: (topic, partition) of the open transaction.
    partitions: frozenset[tuple[str, int]]


@value
class Coordinator:
    """The transactions of a directory's transaction coordinator."""

    #: Producer -> its open transaction.
    open: Mapping[int, CoordinatedTransaction] = field(default_factory=dict)
    #: Largest producer id of all transactional ids; -1: there are none.
    producer_id: int = -1
    #: Whether its log is copied, so that the copy ends what is open.
    is_taken: bool = False

    def knows(self, producer_id: int, topic: str, partition: int) -> CoordinatedTransaction | None:
        """Return a producer's open transaction if a partition is in it."""
        known = self.open.get(producer_id)
        return known if known is not None and (topic, partition) in known.partitions else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer's transaction without a marker."""

    producer_id: int
    producer_epoch: int
    records: int
    #: Whether its coordinator had decided on a commit, and had not written the marker yet.
    is_committed: bool
    #: Whether the copied coordinator ends it, and no marker of the import does.
    is_coordinated: bool


@dataclass(slots=True)
class _Open:
    """An open transaction: its first offset, its producer's epoch and the number of its records."""

    first_offset: int
    epoch: int
    records: int = 0


@dataclass(slots=True)
class Transactions:
    """The open transactions of one partition; `note` is called for each batch, in log order.

    Laws: a transaction begins with its producer's first transactional batch and ends with the producer's next marker.
    Source: KIP-98; Apache Kafka's ProducerAppendInfo, TransactionLogValue and TransactionState.
    """

    topic: str = ""
    partition: int = 0
    coordinator: Coordinator = field(default_factory=Coordinator)
    #: Producer -> its open transaction.
    _open: dict[int, _Open] = field(default_factory=dict)
    _latest: BatchHeader | None = None

    def note(self, batch: FoundBatch) -> None:
        """Note the next batch of the log."""
        header = batch.header
        self._latest = header
        if not header.is_transactional or header.producer_id < 0:
            return
        if header.is_control:
            self._note_marker(batch)
        elif header.record_count:
            # Compaction leaves empty batches of producers behind, and takes their markers.
            known = self._open.setdefault(header.producer_id, _Open(header.base_offset, header.producer_epoch))
            known.epoch = max(known.epoch, header.producer_epoch)
            known.records += header.record_count

    def _note_marker(self, batch: FoundBatch) -> None:
        try:
            marker = read_marker(batch.header, batch.read())
        except CorruptRecordError:
            marker = None
        if marker is not None:
            self._open.pop(batch.header.producer_id, None)

    @property
    def is_of_groups(self) -> bool:
        """Whether its records are of groups, whose coordinator settles them with the markers."""
        return self.topic == OFFSETS_TOPIC

    @property
    def open(self) -> list[OpenTransaction]:
        """The transactions without a marker, in the order in which they began."""
        found = []
        for producer_id, each in self._open.items():
            known = self.coordinator.knows(producer_id, self.topic, self.partition)
            is_committed = known is not None and known.state == _PREPARE_COMMIT
            found.append(
                OpenTransaction(
                    producer_id=producer_id,
                    producer_epoch=each.epoch,
                    records=each.records,
                    is_committed=is_committed,
                    is_coordinated=known is not None and self.coordinator.is_taken,
                )
            )
        return found

    def is_open(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an open transaction."""
        known = self._open.get(header.producer_id)
        is_data = header.is_transactional and not header.is_control
        return known is not None and is_data and header.base_offset >= known.first_offset

    def markers(self, offset: int) -> list[bytearray]:
        """Build the marker batches, from `offset` on, of the open transactions that nothing else ends."""
        latest, found = self._latest, []
        for number, each in enumerate(each for each in self.open if not each.is_coordinated):
            assert latest is not None, "it has batches"
            marker = bytearray(
                build_marker(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    is_commit=each.is_committed,
                    timestamp_ms=latest.max_timestamp,
                )
            )
            rebase(marker, 0, offset + number, latest.partition_leader_epoch)
            found.append(marker)
        return found


def read_coordinator(fs: FileSystem, survey: Survey) -> Coordinator:
    """Read the transactions of `__transaction_state`; an unreadable transaction counts as not committed."""
    latest = last_states(fs, survey.decisions).values()
    return Coordinator(
        open={each.producer_id: each for each in latest if each.state in _UNDECIDED},
        producer_id=max((max(each.producer_id, each.next_producer_id) for each in latest), default=-1),
        is_taken=TRANSACTIONS_TOPIC in survey.topics,
    )


def last_states(fs: FileSystem, folders: Iterable[str]) -> dict[bytes, CoordinatedTransaction]:
    """Read the latest record of each transactional id, by its key."""
    states: dict[bytes, CoordinatedTransaction] = {}
    for folder in folders:
        for batch in batches_in(fs, folder):
            if not batch.header.is_control:
                _note_states(states, batch)
    return states


def _note_states(states: dict[bytes, CoordinatedTransaction], batch: FoundBatch) -> None:
    try:
        for record in iterate_records(batch.read(), check_crcs=False):
            key, content = record.key or b"", record.value
            if len(key) < _INT16.size or _INT16.unpack_from(key)[0] != 0:
                continue
            known = None if content is None else _state_of(content)
            if known is None:
                states.pop(key, None)
            else:
                states[key] = known
    except CorruptRecordError:
        return


def _state_of(content: bytes) -> CoordinatedTransaction | None:
    try:
        version = _INT16.unpack_from(content)[0] if len(content) >= _INT16.size else -1
        if not 0 <= version <= schema_of(TransactionLogValue).last_version:
            return None
        found = codec.decode(TransactionLogValue, version, content, _INT16.size)[0]
    except (ProtocolError, ValueError):
        return None
    rows = found.transaction_partitions or ()
    return CoordinatedTransaction(
        producer_id=found.producer_id,
        next_producer_id=found.next_producer_id,
        state=found.transaction_status,
        partitions=frozenset((row.topic, each) for row in rows for each in row.partition_ids),
    )


#: Topics for which only Apache Kafka has a use.
FOREIGN_TOPICS: Final = frozenset({"__cluster_metadata", "__share_group_state"})
_COPY_BYTES: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class FoundTopic:
    """A topic of a log directory."""

    name: str
    topic_id: TopicId
    #: Partition -> its folder.
    folders: dict[int, str] = field(default_factory=dict)
    bytes: int = 0
    records: int = 0
    #: Largest producer id of its batches; -1: none has one.
    producer_id: int = -1
    #: Partition -> the offset before which its records were deleted by request.
    starts: dict[int, int] = field(default_factory=dict)
    #: Partition -> the offset behind its last batch.
    ends: dict[int, int] = field(default_factory=dict)
    #: Partition -> its transactions.
    transactions: dict[int, Transactions] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    #: Path of a file with a torn end -> where that begins.
    torn: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Survey:
    """The topics of some log directories of one broker."""

    cluster_id: str
    topics: dict[str, FoundTopic] = field(default_factory=dict)
    #: Topics that are left where they are.
    left: list[str] = field(default_factory=list)
    #: Folders of the transaction coordinator's log.
    decisions: list[str] = field(default_factory=list)


def survey_directories(fs: FileSystem, sources: Sequence[str]) -> Survey:
    """Find the topics of Apache Kafka's log directories, each of them whole, without reading their files."""
    survey: Survey | None = None
    for source in sources:
        properties = (
            data_directory.read_properties(fs, f"{source}/{META_NAME}") if fs.exists(f"{source}/{META_NAME}") else {}
        )
        if data_directory.FORMAT_KEY in properties:
            raise StorageError(f"{source} is a data directory of kohort already: start on it, or copy it as it is")
        if "cluster.id" not in properties:
            raise StorageError(f"{source} is no log directory of Apache Kafka: it has no {META_NAME} with a cluster.id")
        if survey is None:
            survey = Survey(cluster_id=properties["cluster.id"])
        elif survey.cluster_id != properties["cluster.id"]:
            raise StorageError(f"{source} belongs to another cluster than {sources[0]}")
        _add_folders(fs, source, survey)
    assert survey is not None, "there is a source"
    for topic in survey.topics.values():
        missing = catalog.first_missing(topic.folders)
        if missing is not None:
            raise StorageError(
                f"partition {missing} of topic {topic.name} is in none of the directories given: name all "
                "log.dirs of the broker; a topic that is spread over brokers cannot be taken over"
            )
    return survey


def leave_coordinator(survey: Survey) -> None:
    """Leave the transaction coordinator's log where it is; `take_over` ends the open transactions then."""
    if survey.topics.pop(TRANSACTIONS_TOPIC, None) is not None:
        survey.left.append(TRANSACTIONS_TOPIC)


def _add_folders(fs: FileSystem, source: str, survey: Survey) -> None:
    starts = data_directory.load_offsets(fs, source, data_directory.LOG_START_NAME)
    for folder in fs.list_directory(source):
        parts = catalog.split_folder_name(folder)
        if parts is None:
            continue
        name, partition = parts
        if name in FOREIGN_TOPICS:
            if name not in survey.left:
                survey.left.append(name)
            continue
        if name == TRANSACTIONS_TOPIC:
            survey.decisions.append(f"{source}/{folder}")
        catalog.check_topic_name(name)
        topic_id = data_directory.read_partition_metadata(fs, f"{source}/{folder}")
        if topic_id is None:
            raise StorageError(f"{source}/{folder} does not say which topic it belongs to: its partition.metadata")
        topic = survey.topics.setdefault(name, FoundTopic(name=name, topic_id=topic_id))
        if topic.topic_id != topic_id:
            raise StorageError(f"{source}/{folder} belongs to another topic of the name {name} than its neighbours")
        topic.folders[partition] = f"{source}/{folder}"
        topic.starts[partition] = starts.get((name, partition), 0)


def read_topic(fs: FileSystem, topic: FoundTopic, coordinator: Coordinator) -> None:
    """Read every batch of a topic: numbers, damage, open transactions."""
    for partition, folder in topic.folders.items():
        next_offset = 0
        transactions = Transactions(topic.name, partition, coordinator)
        topic.transactions[partition] = transactions
        for name in fs.list_directory(folder):
            base = segment_base(name)
            if base is None:
                continue
            next_offset = max(next_offset, base)
            # Kafka's compaction leaves gaps, in topics that were compacted once, too.
            for each in walk_segment(fs, f"{folder}/{name}", base):
                if isinstance(each, Damage):
                    topic.damages.append(each)
                    topic.bytes += each.bytes
                    if each.next_offset is None:
                        topic.torn[each.path] = each.position
                else:
                    header = each.header
                    next_offset = header.next_offset
                    transactions.note(each)
                    topic.bytes += header.size_bytes
                    topic.records += header.record_count
                    topic.producer_id = max(topic.producer_id, header.producer_id)
        topic.ends[partition] = next_offset


def take_over(
    fs: FileSystem,
    survey: Survey,
    directory: str,
    *,
    source_fs: FileSystem,
    coordinator: Coordinator,
    configs: Mapping[str, Mapping[str, str]],
    on_copied: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy topics that were read into a new or empty directory; end open transactions that nothing else ends.

    Args:
        source_fs: the file system of the topics.
        configs: topic -> its configs, which a log directory does not have.

    Raises:
        StorageError: the directory is in use, or the disk is full.
        ConfigError: a config that does not exist or cannot have that value.
    """
    for given in configs.values():
        LogConfig.of(given, {})
    if fs.exists(f"{directory}/{META_NAME}"):
        raise StorageError(f"{directory} is a data directory already; choose a new one")
    lock = data_directory.take_directory(fs, directory)
    try:
        data_directory.load_identity(fs, directory, cluster_id=survey.cluster_id)
        entries = []
        for topic in survey.topics.values():
            for partition in topic.folders:
                target = f"{directory}/{topic.name}-{partition}"
                _copy_partition(fs, topic, partition, target, source_fs=source_fs, on_copied=on_copied)
            is_compacted = topic.name in {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}
            defaults = {"cleanup.policy": "compact"} if is_compacted else {}
            own = {**defaults, **configs.get(topic.name, {})}
            count = len(topic.folders)
            entries.append(TopicEntry(name=topic.name, topic_id=topic.topic_id, partition_count=count, configs=own))
        fs.sync_directory(directory)
        largest = max([coordinator.producer_id, *(topic.producer_id for topic in survey.topics.values())])
        # Whole blocks are given out, so that no producer gets an id whose sequences a log remembers.
        next_producer_id = (largest // catalog.PRODUCER_ID_BLOCK + 1) * catalog.PRODUCER_ID_BLOCK
        CatalogFile(fs, directory).write(CatalogChange(topics=tuple(entries), next_producer_id=next_producer_id))
    finally:
        lock.release()


def _copy_partition(
    fs: FileSystem,
    topic: FoundTopic,
    partition: int,
    target: str,
    *,
    source_fs: FileSystem,
    on_copied: Callable[[int], None],
) -> None:
    source = topic.folders[partition]
    fs.make_directory(target)
    data_directory.write_partition_metadata(fs, target, topic.topic_id)
    names = [name for name in source_fs.list_directory(source) if segment_base(name) is not None]
    end, transactions = topic.ends.get(partition, 0), topic.transactions.get(partition)
    markers = transactions.markers(end) if transactions is not None else []
    for name in names or [segment_name(0)]:
        file = fs.open(f"{target}/{name}", create=True)
        at = 0
        if names:
            original = source_fs.open(f"{source}/{name}")
            size = original.size()
            if markers and name == names[-1]:
                # Markers come behind a torn end, which a start would cut.
                size = topic.torn.get(f"{source}/{name}", size)
            while at < size:
                data = original.read(at, min(_COPY_BYTES, size - at))
                file.write(at, data)
                at += len(data)
                on_copied(len(data))
        for marker in markers if names and name == names[-1] else ():
            file.write(at, marker)
            at += len(marker)
        file.sync()
    # Kafka's compaction may have left gaps, which are no damage.
    mark_sparse(fs, target, end + len(markers))
    if start := topic.starts.get(partition):
        keep_log_start(fs, target, start)
    fs.sync_directory(target)
