"""The import of Apache Kafka's log directories: topics are copied into a new directory of kohort's.

Laws: the source is only read. The copy is no data directory until all of it is durable: its catalog is written last. A
topic is taken whole or refused; what belongs to Kafka alone (its metadata, its transactions) is left and named. Records
of transactions that were aborted, or are open, are not copied: here nothing tells them from records that count.
Source: Apache Kafka 4.3's log directories: meta.properties version 1, partition.metadata, segments of batches.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from kohort.errors import CorruptRecordError, StorageError
from kohort.ids import OFFSETS_TOPIC, TopicId
from kohort.records.batch import build_marker, is_commit_marker, iterate_records
from kohort.records.header import BatchHeader, rebase
from kohort.storage import catalog, data_directory
from kohort.storage.catalog import CatalogChange, CatalogFile, TopicEntry
from kohort.storage.data_directory import META_NAME
from kohort.storage.files.fs import FileSystem
from kohort.storage.recovery import keep_log_start, mark_sparse
from kohort.storage.segments.segment import segment_base, segment_name
from kohort.storage.tools.inspection import Damage, FoundBatch, batches_in, walk_segment
from kohort.storage.topicconfig import LogConfig

#: The topic in which the transaction coordinator keeps its decisions.
DECISIONS_TOPIC: Final = "__transaction_state"
_KEY_VERSION: Final = Struct(">h")
#: Version of the value, producer's id, its epoch, timeout, state.
_DECISION: Final = Struct(">hqhib")
_PREPARE_COMMIT: Final = 2
#: Ends of open and of committed transactions: larger than any offset, and smaller.
_OPEN: Final = (1 << 63) - 1
_COMMITTED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer's transaction without a marker."""

    producer_id: int
    producer_epoch: int
    records: int
    #: Whether its coordinator had decided on a commit, and had not written the marker yet.
    is_committed: bool


@dataclass(slots=True)
class Transactions:
    """The transactions of one partition; `note` is called for each batch, in log order.

    Laws: a transaction begins with its producer's first transactional batch and ends with the producer's next marker.
    Records of one that was aborted never count; those of one that is open count only where its coordinator had decided
    on a commit. What is known of a transaction takes 32 bytes here, fewer than its smallest batch takes in the log.
    Source: KIP-98; Apache Kafka's ProducerAppendInfo, TransactionLogValue and TransactionState.
    """

    #: Producers whose open transactions were decided to be committed.
    committed: frozenset[int] = frozenset()
    #: Whether the coordinator of groups reads it, which knows aborted transactions from others by their markers.
    is_of_groups: bool = False
    aborted: int = 0
    aborted_records: int = 0
    #: By transaction in the order in which they began: first offset, producer, the offset at which it was aborted or
    #: one of the two ends above, records.
    _first: array[int] = field(default_factory=lambda: array("q"))
    _producer: array[int] = field(default_factory=lambda: array("q"))
    _end: array[int] = field(default_factory=lambda: array("q"))
    _records: array[int] = field(default_factory=lambda: array("q"))
    #: Producer -> its open transaction, and the largest epoch in it.
    _open: dict[int, tuple[int, int]] = field(default_factory=dict)
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
            slot, epoch = self._open.get(header.producer_id, (len(self._first), -1))
            if slot == len(self._first):
                for column, value in zip(
                    self._columns(), (header.base_offset, header.producer_id, _OPEN, 0), strict=True
                ):
                    column.append(value)
            self._open[header.producer_id] = slot, max(epoch, header.producer_epoch)
            self._records[slot] += header.record_count

    def _columns(self) -> Iterable[array[int]]:
        return self._first, self._producer, self._end, self._records

    def _note_marker(self, batch: FoundBatch) -> None:
        try:
            control = next(iterate_records(batch.read(), include_control=True), None)
        except CorruptRecordError:
            control = None
        is_commit = None if control is None else is_commit_marker(control.key)
        if is_commit is None or batch.header.producer_id not in self._open:
            return
        slot, _ = self._open.pop(batch.header.producer_id)
        # Records before the abort marker do not count; those of committed transactions do.
        self._end[slot] = _COMMITTED if is_commit else batch.header.base_offset
        if not is_commit:
            self.aborted += 1
            self.aborted_records += self._records[slot]

    @property
    def open(self) -> list[OpenTransaction]:
        """The transactions without a marker, in the order in which they began."""
        return [
            OpenTransaction(
                producer_id=producer_id,
                producer_epoch=epoch,
                records=self._records[slot],
                is_committed=producer_id in self.committed,
            )
            for producer_id, (slot, epoch) in self._open.items()
        ]

    @property
    def records_left_out(self) -> int:
        """The number of records that a copy leaves out."""
        if self.is_of_groups:
            return 0
        return self.aborted_records + sum(each.records for each in self.open if not each.is_committed)

    @property
    def is_in_the_way(self) -> bool:
        """Whether an exact copy would show records that do not count, or wait for a missing marker."""
        return bool(self._open) or bool(self.aborted and not self.is_of_groups)

    def is_open(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an open transaction."""
        slot, _ = self._open.get(header.producer_id, (-1, 0))
        return slot >= 0 and _is_data(header) and header.base_offset >= self._first[slot]

    def sieve(self) -> BatchFilter:
        """Return a filter of the batches that a copy leaves out."""
        ends = self._end
        if self.is_of_groups:
            ends = array("q", [_COMMITTED]) * len(ends)
        elif self.committed:
            ends = array("q", ends)
            for producer_id in self.committed & self._open.keys():
                ends[self._open[producer_id][0]] = _COMMITTED
        return BatchFilter(self._first, self._producer, ends)

    def markers(self, offset: int) -> list[bytearray]:
        """Build the marker batches that end the open transactions, from `offset` on."""
        latest, found = self._latest, []
        for number, each in enumerate(self.open):
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


class BatchFilter:
    """A filter of the batches that are left out; asked in log order."""

    def __init__(self, first: array[int], producer: array[int], end: array[int]) -> None:
        self._first, self._producer, self._end = first, producer, end
        self._next = 0
        #: Producer -> the offset at which its latest transaction was aborted.
        self._ends: dict[int, int] = {}

    def leaves_out(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to a transaction that does not count."""
        while self._next < len(self._first) and self._first[self._next] <= header.base_offset:
            self._ends[self._producer[self._next]] = self._end[self._next]
            self._next += 1
        return _is_data(header) and header.base_offset < self._ends.get(header.producer_id, _COMMITTED)


def _is_data(header: BatchHeader) -> bool:
    return header.is_transactional and not header.is_control


def read_decisions(fs: FileSystem, folders: Iterable[str]) -> frozenset[int]:
    """Read from folders of `DECISIONS_TOPIC` the producers with transactions to be committed."""
    states = last_states(fs, folders).values()
    # The coordinator has decided: only the markers are missing.
    return frozenset(producer_id for producer_id, state in states if state == _PREPARE_COMMIT)


def last_states(fs: FileSystem, folders: Iterable[str]) -> dict[bytes, tuple[int, int]]:
    """Read the latest (producer id, state) of each transactional id, by its key."""
    states: dict[bytes, tuple[int, int]] = {}
    for folder in folders:
        for batch in batches_in(fs, folder):
            if not batch.header.is_control:
                _note_decisions(states, batch)
    return states


def _note_decisions(states: dict[bytes, tuple[int, int]], batch: FoundBatch) -> None:
    try:
        for record in iterate_records(batch.read(), check_crcs=False):
            key, value = record.key or b"", record.value
            if len(key) < _KEY_VERSION.size or _KEY_VERSION.unpack_from(key)[0] != 0:
                continue
            if value is None or len(value) < _DECISION.size:
                states.pop(key, None)
            else:
                _, producer_id, _, _, state = _DECISION.unpack_from(value)
                states[key] = producer_id, state
    except CorruptRecordError:
        # A transaction of which nothing is known is not committed.
        return


#: Topics for which only Apache Kafka has a use.
FOREIGN_TOPICS: Final = frozenset({"__cluster_metadata", DECISIONS_TOPIC, "__share_group_state"})
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


@dataclass(slots=True, kw_only=True)
class Survey:
    """The topics of some log directories of one broker."""

    cluster_id: str
    topics: dict[str, FoundTopic] = field(default_factory=dict)
    #: Topics that are left where they are.
    left: list[str] = field(default_factory=list)
    #: Folders with the decisions of the transaction coordinator.
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
            if name == DECISIONS_TOPIC:
                survey.decisions.append(f"{source}/{folder}")
            continue
        catalog.check_topic_name(name)
        topic_id = data_directory.read_partition_metadata(fs, f"{source}/{folder}")
        if topic_id is None:
            raise StorageError(f"{source}/{folder} does not say which topic it belongs to: its partition.metadata")
        topic = survey.topics.setdefault(name, FoundTopic(name=name, topic_id=topic_id))
        if topic.topic_id != topic_id:
            raise StorageError(f"{source}/{folder} belongs to another topic of the name {name} than its neighbours")
        topic.folders[partition] = f"{source}/{folder}"
        topic.starts[partition] = starts.get((name, partition), 0)


def read_topic(fs: FileSystem, topic: FoundTopic, committed: frozenset[int] = frozenset()) -> None:
    """Read every batch of a topic: numbers, damage, transactions; `committed`: see `read_decisions`."""
    for partition, folder in topic.folders.items():
        next_offset = 0
        transactions = Transactions(committed, is_of_groups=topic.name == OFFSETS_TOPIC)
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
                else:
                    header = each.header
                    next_offset = header.next_offset
                    # Records that were deleted by request no longer belong to any transaction.
                    if next_offset > topic.starts.get(partition, 0):
                        transactions.note(each)
                    topic.bytes += header.size_bytes
                    topic.records += header.record_count
                    topic.producer_id = max(topic.producer_id, header.producer_id)
        topic.ends[partition] = next_offset
        topic.records -= transactions.records_left_out


def take_over(
    fs: FileSystem,
    survey: Survey,
    directory: str,
    *,
    source_fs: FileSystem,
    configs: Mapping[str, Mapping[str, str]],
    on_copied: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy topics that were read into a new or empty directory; end open transactions in the copy.

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
            defaults = {"cleanup.policy": "compact"} if topic.name == OFFSETS_TOPIC else {}
            own = {**defaults, **configs.get(topic.name, {})}
            count = len(topic.folders)
            entries.append(TopicEntry(name=topic.name, topic_id=topic.topic_id, partition_count=count, configs=own))
        fs.sync_directory(directory)
        largest = max((topic.producer_id for topic in survey.topics.values()), default=-1)
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
    sieve: BatchFilter | None = None
    markers: list[bytearray] = []
    # Without transactions in the way the files are copied byte by byte.
    if transactions is not None and transactions.is_in_the_way:
        sieve, markers = transactions.sieve(), transactions.markers(end)
    for name in names or [segment_name(0)]:
        file = fs.open(f"{target}/{name}", create=True)
        at = 0
        for position, size in _spans(source_fs, f"{source}/{name}", sieve) if names else ():
            original = source_fs.open(f"{source}/{name}")
            for done in range(0, size, _COPY_BYTES):
                data = original.read(position + done, min(_COPY_BYTES, size - done))
                file.write(at, data)
                at += len(data)
                on_copied(len(data))
        for marker in markers if name == names[-1] else ():
            file.write(at, marker)
            at += len(marker)
        file.sync()
    # Kafka's compaction may have left gaps, which are no damage.
    mark_sparse(fs, target, end + len(markers))
    if start := topic.starts.get(partition):
        keep_log_start(fs, target, start)
    fs.sync_directory(target)


def _spans(fs: FileSystem, path: str, sieve: BatchFilter | None) -> Iterator[tuple[int, int]]:
    """Yield position and size of each part of a file that is copied."""
    if sieve is None:
        yield 0, fs.open(path).size()
        return
    start = end = 0
    for each in walk_segment(fs, path, segment_base(path.rpartition("/")[2]) or 0):
        if isinstance(each, Damage):
            # Markers come behind a torn end, which a start would cut.
            is_kept, size = each.next_offset is not None, each.bytes
        else:
            is_kept, size = not sieve.leaves_out(each.header), each.header.size_bytes
        if not is_kept:
            if end > start:
                yield start, end - start
            start = each.position + size
        end = each.position + size
    if end > start:
        yield start, end - start
