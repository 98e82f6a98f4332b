"""Transactions in a partition's log, held against a list of what was written, whatever a stop or a disk leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.errors import ErrorCode, Refused, StorageError
from kohort.records.batch import build_batch, build_marker, is_commit_marker, iterate_records
from kohort.records.header import split_batches
from kohort.storage.compaction import compact, finish_replacement, plan_compaction
from kohort.storage.files.descriptors import WorkNeededError
from kohort.storage.log_state import STATE_NAME, capture, settle
from kohort.storage.log_state import write as save
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.quarantine import settle as settle_hole
from kohort.storage.recovery import delete_before, keep_log_start
from kohort.storage.segments import transaction_index
from kohort.storage.segments.indexes import TRANSACTION_SUFFIX, index_path
from kohort.storage.segments.segment import next_offset_of
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory, inspect_partition
from kohort.storage.tools.repair import Remedy, plan_repair, repair
from kohort.testing.disks import MemoryFileSystem
from support.builders.left_directory import scrub_all
from support.builders.storage_logs import MODEL_CASES, TOPIC_ID, empty_log, open_log
from support.depth import IS_SOAK

DIRECTORY = "/data/orders-0"
DAY_MS = 86_400_000
EPOCH = 0


def data(producer_id: int, *values: bytes, key: bytes | None = None, sequence: int = -1) -> bytearray:
    rows = [(key, value, 1_000, ()) for value in values]
    return bytearray(
        build_batch(
            rows,
            producer_id=producer_id,
            producer_epoch=EPOCH,
            base_sequence=sequence,
            is_transactional=producer_id >= 0,
        )
        if producer_id >= 0
        else build_batch(rows)
    )


def marker(producer_id: int, *, is_commit: bool) -> bytearray:
    found = build_marker(producer_id=producer_id, producer_epoch=EPOCH, is_commit=is_commit, timestamp_ms=1_000)
    return bytearray(found)


@dataclass
class Transaction:
    producer_id: int
    first: int
    #: The offset of its marker; -1: it is open.
    last: int = -1
    is_commit: bool = False
    values: dict[int, bytes] = field(default_factory=dict)


class Model:
    """What was written: plain records, and transactions with their records."""

    def __init__(self) -> None:
        self.plain: dict[int, bytes] = {}
        self.transactions: list[Transaction] = []
        self.start = 0

    @property
    def open(self) -> dict[int, Transaction]:
        return {each.producer_id: each for each in self.transactions if each.last < 0}

    def committed(self, end: int) -> dict[int, bytes]:
        found = dict(self.plain)
        for each in self.transactions:
            if each.is_commit:
                found |= each.values
        return {offset: value for offset, value in found.items() if self.start <= offset < end}

    def stable(self, high_watermark: int) -> int:
        undecided = [each.first for each in self.transactions if each.last < 0 or each.last >= high_watermark]
        return min([high_watermark, *undecided])

    def aborted(self, offset: int, up_to: int) -> set[tuple[int, int, int]]:
        return {
            (each.producer_id, each.first, each.last)
            for each in self.transactions
            if each.last >= max(offset, 0) and not each.is_commit and each.first < up_to
        }


def read_committed(log: PartitionLog, max_bytes: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
    """What Apache Kafka's client gives out: aborted producers by the answer's list, until their abort markers."""
    offset = log.log_start_offset
    while offset < (end := log.last_stable_offset):
        views = log.read(offset, max_bytes, up_to=log.end_before_hole(offset, end))
        up_to = next_offset_of(views[-1])
        listed = sorted(log.aborted_transactions(offset, up_to)[0], key=lambda each: each.first_offset)
        aborted: set[int] = set()
        for view in views:
            for position, header in split_batches(view):
                while listed and listed[0].first_offset <= header.last_offset:
                    aborted.add(listed.pop(0).producer_id)
                batch = view[position : position + header.size_bytes]
                found = list(iterate_records(batch, include_control=True))
                if header.is_control:
                    if found and is_commit_marker(found[0].key) is False:
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    yield from ((each.offset, each.value or b"") for each in found if each.offset >= offset)
        assert up_to > offset, "a reader stands still"
        offset = up_to


class History:
    """A log and its model."""

    def __init__(self, *, segment_bytes: int = 600, flush_messages: int = 1) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory("/data")
        self.config: dict[str, int | bool] = {"segment_bytes": segment_bytes, "flush_messages": flush_messages}
        self.log = empty_log(self.fs, DIRECTORY, **self.config)
        self.model = Model()
        self.written = 0

    def send(self, producer_id: int, count: int = 1) -> None:
        """Records of a producer's transaction; -1: of none."""
        values = [b"value %d" % (self.written + at) for at in range(count)]
        self.written += count
        base = self.log.append(data(producer_id, *values), now_ms=1, validate=False).base_offset
        records = dict(enumerate(values, base))
        if producer_id < 0:
            self.model.plain |= records
            return
        if producer_id not in self.model.open:
            self.model.transactions.append(Transaction(producer_id, base))
        self.model.open[producer_id].values |= records

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        base = self.log.append(marker(producer_id, is_commit=is_commit), now_ms=1, validate=False).base_offset
        open_one = self.model.open.get(producer_id)
        if open_one is not None:
            open_one.last, open_one.is_commit = base, is_commit

    def sync(self) -> None:
        self.log.mark_durable(self.log.sync())

    def save(self) -> None:
        captured = capture(self.log)
        settle(captured, save(self.fs, captured))

    def files(self, *suffixes: str) -> list[str]:
        return [f"{DIRECTORY}/{name}" for name in self.fs.list_directory(DIRECTORY) if name.endswith(suffixes)]

    def reopen(self, harm: str = "", at: int = 0) -> None:
        """Kill and start again; `harm`: to a file that is made of the records."""
        kind, _, suffix = harm.partition(" ")
        found = self.files(suffix) if suffix else []
        if found:
            path = found[at % len(found)]
            if kind == "lose":
                self.fs.remove(path)
            else:
                flip(self.fs, path, at)
        self.log = open_log(self.fs, DIRECTORY, **self.config)

    def delete(self, offset: int) -> None:
        for path in delete_before(self.log, offset):
            self.fs.remove(path)
        keep_log_start(self.fs, DIRECTORY, self.log.log_start_offset)
        self.model.start = self.log.log_start_offset

    def check(self) -> None:
        log, model = self.log, self.model
        stable = log.last_stable_offset
        assert max(model.stable(log.high_watermark), min(model.start, log.high_watermark)) == stable
        assert dict(read_committed(log, 200)) == dict(read_committed(log)) == model.committed(stable)
        for offset in range(model.start, log.log_end_offset, 3):
            for up_to in {offset + 1, offset + 7, log.log_end_offset}:
                found = {each[:3] for each in log.aborted_transactions(offset, up_to)[0]}
                assert found == model.aborted(offset, up_to), (offset, up_to)


def flip(fs: MemoryFileSystem, path: str, at: int) -> None:
    file = fs.open(path)
    if size := file.size():
        byte = file.read(at % size, 1)[0]
        file.write(at % size, bytes([byte ^ 1 << at % 8]))


IDS = st.integers(0, 3)
#: Harm to a file that is made of the records.
HARMS = ["", "", "lose .txnindex", "flip .txnindex", f"flip {STATE_NAME}", f"lose {STATE_NAME}", "flip .snapshot"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(-1, 3), st.integers(1, 3)),
        st.tuples(st.just("end"), IDS, st.booleans()),
        st.tuples(st.just("end"), IDS, st.just(False)),
        st.tuples(st.just("sync")),
        st.tuples(st.just("save")),
        st.tuples(st.just("reopen"), st.sampled_from(HARMS), st.integers(0, 2_000)),
    ),
    max_size=40,
)


@pytest.mark.large
@settings(max_examples=MODEL_CASES)
@given(steps=STEPS, segment_bytes=st.sampled_from([300, 700, 1 << 20]), flush=st.sampled_from([1, 1 << 62]))
@example(
    steps=[("send", 1, 1), ("end", 1, False), ("send", -1, 1), ("save",), ("reopen", "lose .txnindex", 0)],
    segment_bytes=300,
    flush=1,
)
@example(
    steps=[("send", 1, 1), ("send", 2, 1), ("end", 2, False), ("end", 1, False), ("send", 3, 1), ("sync",)],
    segment_bytes=1 << 20,
    flush=1,
)
def test_random_transactions_are_read_as_they_were_decided(
    steps: list[tuple[object, ...]], segment_bytes: int, flush: int
) -> None:
    """Last stable offset, aborted transactions of every range, and what a client gives out: always those of a list."""
    history = History(segment_bytes=segment_bytes, flush_messages=flush)
    for name, *given_ in steps:
        if name == "end":
            history.end(given_[0], is_commit=given_[1])  # type: ignore[arg-type]
        else:
            getattr(history, str(name))(*given_)
        history.check()
    history.reopen()
    history.check()


def test_marker_that_is_not_durable_decides_nothing() -> None:
    history = History()
    history.send(1)
    history.sync()
    assert (history.log.high_watermark, history.log.last_stable_offset) == (1, 0)
    history.end(1, is_commit=True)
    assert history.log.last_stable_offset == 0
    history.sync()
    assert history.log.last_stable_offset == 2


def test_refused_abort_marker_leaves_no_entry_that_counts() -> None:
    """The disk was full; the transaction is committed in the end."""
    history = History(segment_bytes=1 << 20)
    history.send(1)
    # Room for the entry, and not for the marker.
    history.fs.space_left = 40
    with pytest.raises(StorageError):
        history.end(1, is_commit=False)
    history.fs.space_left = None
    history.end(1, is_commit=True)
    history.sync()
    history.check()
    history.reopen()
    history.check()


@pytest.mark.parametrize("is_rolled", [False, True])
def test_deleted_records_of_an_open_transaction_hold_nothing_back(is_rolled: bool) -> None:
    """The last stable offset moves with the log's start; what is left of the transaction stays undecided."""
    history = History(segment_bytes=200 if is_rolled else 1 << 20)
    history.send(1)
    history.send(2)
    history.send(-1, 3)
    history.send(2)
    history.send(-1)
    history.sync()
    assert history.log.last_stable_offset == 0
    history.delete(1)
    assert history.log.last_stable_offset == 1
    assert list(history.log.producers.open_transactions) == [2]
    history.delete(3)
    assert history.log.last_stable_offset == 3, "a record of producer 2 is behind it"
    for saved in (False, True):
        if saved:
            history.save()
        history.reopen()
        # What is left of the transaction begins with 5 if the file that begins it is gone.
        assert history.log.last_stable_offset in (3, 5)
        assert list(history.log.producers.open_transactions) == [2]
    history.delete(6)
    assert not history.log.producers.open_transactions
    assert history.log.last_stable_offset == history.log.high_watermark
    history.end(2, is_commit=False)
    history.sync()
    assert [offset for offset, _ in read_committed(history.log)] == [6]


# Compaction


def clean(history: History, *, now_ms: int) -> None:
    """As the log cleaner does it."""
    history.sync()
    history.save()
    log = history.log
    found = plan_compaction(log, 0, now_ms=now_ms, dedupe_buffer_bytes=1 << 30)
    if found is None:
        return
    made = compact(history.fs, found[0], now_ms=now_ms)
    for part in made.segments:
        replaced = log.replace(part.segment(history.fs, log.directory), part.cleaned_path)
        finish_replacement(history.fs, log.directory, replaced)


class KeyedHistory(History):
    """A compacted log: the key of each record is its value's last digit."""

    def __init__(self, *, segment_bytes: int = 600) -> None:
        super().__init__(segment_bytes=segment_bytes)
        self.config = {"segment_bytes": segment_bytes, "is_compacted": True, "delete_retention_ms": DAY_MS}
        self.log = empty_log(self.fs, DIRECTORY, **self.config)
        self.now_ms = DAY_MS

    def send(self, producer_id: int, count: int = 1) -> None:
        values = [b"value %d" % (self.written + at) for at in range(count)]
        self.written += count
        rows = [(value[-1:], value, 1_000, ()) for value in values]
        kind = {"producer_id": producer_id, "producer_epoch": EPOCH, "base_sequence": -1, "is_transactional": True}
        batch = build_batch(rows, **(kind if producer_id >= 0 else {}))  # type: ignore[arg-type]
        base = self.log.append(batch, now_ms=1, validate=False).base_offset
        records = dict(enumerate(values, base))
        if producer_id < 0:
            self.model.plain |= records
            return
        if producer_id not in self.model.open:
            self.model.transactions.append(Transaction(producer_id, base))
        self.model.open[producer_id].values |= records

    def clean(self, days: int = 0) -> None:
        self.now_ms += days * DAY_MS
        clean(self, now_ms=self.now_ms)

    def check(self) -> None:
        stable = self.log.last_stable_offset
        assert self.model.stable(self.log.high_watermark) == stable
        written = self.model.committed(stable)
        found = dict(read_committed(self.log))
        assert found == dict(read_committed(self.log, 200))
        assert found.items() <= written.items(), "nothing but what was committed"
        assert newest_of(found) == newest_of(written), "the newest committed record of each key"


def newest_of(records: dict[int, bytes]) -> dict[bytes, tuple[int, bytes]]:
    return {value[-1:]: (offset, value) for offset, value in sorted(records.items())}


@pytest.mark.large
@settings(max_examples=MODEL_CASES)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(-1, 3), st.integers(1, 3)),
            st.tuples(st.just("end"), IDS, st.booleans()),
            st.tuples(st.just("clean"), st.sampled_from([0, 2])),
            st.tuples(st.just("reopen"), st.sampled_from(HARMS), st.integers(0, 2_000)),
        ),
        max_size=40,
    ),
    segment_bytes=st.sampled_from([200, 700]),
)
def test_compacted_log_reads_as_before(steps: list[tuple[object, ...]], segment_bytes: int) -> None:
    history = KeyedHistory(segment_bytes=segment_bytes)
    for name, *given_ in steps:
        if name == "end":
            history.end(given_[0], is_commit=given_[1])  # type: ignore[arg-type]
        else:
            getattr(history, str(name))(*given_)
        history.check()
    history.reopen(f"lose {STATE_NAME}")
    history.check()


def batches(log: PartitionLog) -> list[tuple[int, int, int, bool]]:
    """Offset, producer, number of records, and whether it is a marker, of the batches of producers."""
    found = [header for view in log.read(0, 1 << 20) for _, header in split_batches(view)]
    return [
        (each.base_offset, each.producer_id, each.record_count, each.is_control)
        for each in found
        if each.producer_id >= 0
    ]


def test_marker_goes_after_the_records_of_its_transaction_and_its_time() -> None:
    history = KeyedHistory(segment_bytes=200)
    for producer_id, is_commit in ((1, True), (2, False)):
        history.send(producer_id)
        history.end(producer_id, is_commit=is_commit)
    # Other records of the key that producer 1 wrote; the last batches of both are later ones.
    history.written = 10
    history.send(-1)
    for producer_id in (1, 2):
        history.send(producer_id)
        history.end(producer_id, is_commit=True)
    for _ in range(4):
        history.send(-1)
    history.clean()
    assert batches(history.log)[:2] == [(1, 1, 1, True), (3, 2, 1, True)], "the records are gone, the markers are not"
    assert not history.log.has_aborted and not history.files(".txnindex")
    history.send(-1, 9)
    history.clean(2)
    assert batches(history.log)[:2] == [(1, 1, 1, True), (3, 2, 1, True)], "their time begins"
    history.send(-1, 9)
    history.reopen()
    history.clean(2)
    assert [each[0] for each in batches(history.log)][:1] == [5]
    history.check()


def test_last_batch_of_a_producer_stays_empty_with_its_marker() -> None:
    history = KeyedHistory(segment_bytes=200)
    history.send(1)
    history.end(1, is_commit=True)
    history.send(2)
    history.end(2, is_commit=False)
    history.written = 10
    history.send(-1, 9)
    for days in (0, 2, 2, 2):
        history.send(-1, 9)
        history.clean(days)
    assert batches(history.log) == [(0, 1, 0, False), (1, 1, 1, True), (2, 2, 0, False), (3, 2, 1, True)]
    history.reopen(f"lose {STATE_NAME}")
    assert not history.log.producers.has_undecided
    assert not history.log.has_aborted
    history.check()


def test_open_transaction_and_what_is_behind_it_is_not_compacted() -> None:
    history = KeyedHistory(segment_bytes=200)
    history.send(-1, 3)
    history.send(1)
    for _ in range(6):
        history.send(-1, 3)
    history.sync()
    history.save()
    end = history.log.last_stable_offset
    assert all(segment.next_offset <= end for segment in history.log.closed_segments)
    history.end(1, is_commit=True)
    history.sync()
    history.save()
    assert history.log.closed_segments == history.log.segments[:-1]


# Holes and flipped bits


def damaged(history: History, offset: int) -> None:
    """Kill the broker, damage the batch with that offset, lose what was known of the log, and start again."""
    for segment in history.log.segments:
        if segment.base_offset <= offset < segment.next_offset:
            flip(history.fs, segment.path, segment.position_of(offset) + 40)
    history.reopen(f"lose {STATE_NAME}")
    assert [hole.first_offset for hole in history.log.holes] == [offset]


def lost_marker(*, is_commit: bool, later: bool) -> History:
    """Transaction of producer 1 whose marker is lost; another of the same producer commits behind the hole."""
    history = History(segment_bytes=1 << 20)
    history.send(-1)
    history.send(1, 2)
    history.end(1, is_commit=is_commit)
    if later:
        history.send(1)
        history.end(1, is_commit=True)
    history.send(-1)
    history.sync()
    damaged(history, 3)
    return history


@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_transaction_whose_marker_is_lost_stays_undecided(is_commit: bool, later: bool) -> None:
    """A later marker of its producer may be of a later transaction; also once the state says so."""
    history = lost_marker(is_commit=is_commit, later=later)
    for kept in (False, True, True):
        log = history.log
        assert [each[2:] for each in log.producers.hanging] == [(1, 3)]
        assert not log.producers.open_transactions
        assert log.last_stable_offset == 1
        assert [offset for offset, _ in read_committed(log)] == [0]
        if kept:
            history.save()
        history.reopen()


@pytest.mark.parametrize("saved", [False, True])
def test_settled_hole_aborts_what_hangs_before_it_and_shows_what_follows(saved: bool) -> None:
    history = lost_marker(is_commit=False, later=True)
    if saved:
        history.save()
    settle_hole(history.fs, DIRECTORY, history.log.holes[0])
    for _ in range(3):
        history.reopen()
        assert not history.log.producers.has_undecided
        assert [offset for offset, _ in read_committed(history.log)] == [0, 4, 6]
        history.save()


def test_administrators_abort_ends_what_hangs() -> None:
    """As WriteTxnMarkers appends it; what the same producer wrote behind the hole stays committed."""
    history = lost_marker(is_commit=False, later=True)
    history.end(1, is_commit=True)
    assert history.log.producers.hanging, "a commit decides nothing"
    history.end(1, is_commit=False)
    history.sync()
    for harm in ("", "", "lose .txnindex", f"lose {STATE_NAME}"):
        assert not history.log.producers.has_undecided
        listed = history.log.aborted_transactions(0, 3)[0]
        assert [each[:2] for each in listed] == [(1, 1)]
        assert history.log.aborted_transactions(3, 20)[0] == []
        history.save()
        history.reopen(harm)


def test_full_disk_refuses_an_administrators_abort_whole() -> None:
    """The list comes before the marker: while it cannot be written, what hangs goes on hanging."""
    history = lost_marker(is_commit=False, later=True)
    stable = history.log.last_stable_offset
    history.fs.space_left = 0
    with pytest.raises(StorageError):
        history.log.append(marker(1, is_commit=False), now_ms=1_000, validate=False)
    history.fs.space_left = None
    assert (len(history.log.producers.hanging), history.log.last_stable_offset) == (1, stable)
    assert history.log.aborted_transactions(0, 20)[0] == []


def test_transaction_that_begins_in_a_hole_is_decided_by_its_marker() -> None:
    history = History(segment_bytes=1 << 20)
    history.send(-1)
    history.send(1)
    history.send(1)
    history.end(1, is_commit=False)
    history.send(-1)
    history.sync()
    damaged(history, 1)
    assert not history.log.producers.has_undecided
    assert [each[:3] for each in history.log.aborted_transactions(2, 5)[0]] == [(1, 2, 3)]


def test_lists_of_a_segment_that_a_hole_cuts_in_two_stay_with_their_parts() -> None:
    """The state is believed, and the damage is behind an offset that it covers."""
    history = History(segment_bytes=1 << 20)
    for _ in range(3):
        history.send(1)
        history.end(1, is_commit=False)
    history.sync()
    history.save()
    for suffix in (".facts", ".index"):
        for path in history.files(suffix):
            history.fs.remove(path)
    flip(history.fs, history.log.segments[0].path, history.log.segments[0].position_of(2) + 40)
    history.reopen()
    (hole,) = history.log.holes
    assert (hole.first_offset, hole.next_offset) == (2, 3)
    assert [each[:3] for each in history.log.aborted_transactions(0, 2)[0]] == [(1, 0, 1)]
    assert {each[:3] for each in history.log.aborted_transactions(3, 6)[0]} >= {(1, 4, 5)}


def test_list_behind_a_long_transaction_is_looked_through_once_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that ended while it was open is in the list of each fetch in front of its end."""
    monkeypatch.setattr(transaction_index, "_CHUNK", 4)
    monkeypatch.setattr(transaction_index, "BLOCKS_AT_ONCE", 2)
    history = History(segment_bytes=1 << 20)
    history.send(1)
    for number in range(40):
        history.send(2 + number % 2)
        history.end(2 + number % 2, is_commit=number % 5 == 0)
    history.end(1, is_commit=False)
    history.sync()
    with pytest.raises(WorkNeededError) as needed:
        history.log.aborted_transactions(0, 3, wait=False)
    needed.value.work()
    read: list[int] = []
    path = index_path(DIRECTORY, 0, TRANSACTION_SUFFIX)
    file, read_from = history.fs.open(path), type(history.fs.open(path)).read
    monkeypatch.setattr(type(file), "read", lambda self, at, size: read.append(size) or read_from(self, at, size))
    for offset in range(history.log.log_end_offset):
        read.clear()
        found = history.log.aborted_transactions(offset, offset + 3, wait=False)[0]
        assert {each[:3] for each in found} == history.model.aborted(offset, offset + 3)
        # The block of its records, the next one, that of the long transaction, and a few entries to find the first.
        assert sum(size > transaction_index.ENTRY_SIZE for size in read) <= 4
    history.check()
    # Of too many the first are told, and where the next begins.
    found, end = history.log.aborted_transactions(5, history.log.log_end_offset, most=4, wait=False)
    assert len(found) <= 4 and 5 < end < history.log.log_end_offset
    assert {each[:3] for each in found} == history.model.aborted(5, end)
    # What was appended since is looked through as well.
    for _ in range(20):
        history.send(2)
        history.end(2, is_commit=False)
    history.sync()
    history.check()


@pytest.mark.parametrize("is_saved", [True, False])
def test_flipped_bit_shows_nothing_as_committed_that_is_not(is_saved: bool) -> None:
    """In any byte of the log and of each file beside it; nothing committed is lost but for the batch that it hit."""
    origin = History(segment_bytes=500)
    for at in range(4):
        origin.send(1)
        origin.send(2)
        origin.send(-1)
        origin.end(1, is_commit=at % 2 == 0)
        origin.end(2, is_commit=at % 2 == 1)
        if at == 2 and is_saved:
            origin.sync()
            origin.save()
    origin.send(3)
    origin.sync()
    committed = origin.model.committed(origin.log.last_stable_offset)
    assert dict(read_committed(origin.log)) == committed
    tried = 0
    stride = 1 if IS_SOAK else 11
    for path in origin.files(""):
        for at in range(tried % stride, origin.fs.open(path).size(), stride):
            fs = origin.fs.copy()
            flip(fs, path, at)
            log = open_log(fs, DIRECTORY, **origin.config)
            scrub_all(fs, log)
            found = dict(shown(log))
            assert found.items() <= committed.items(), f"{path} byte {at}: wrong as committed"
            if not log.holes:
                assert found == committed, f"{path} byte {at}: committed records are missing"
            tried += 1
    assert tried > 100


def shown(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """What a reader of committed records gets that goes on behind each hole."""
    while True:
        try:
            yield from read_committed(log)
        except Refused as refused:
            assert refused.code is ErrorCode.CORRUPT_MESSAGE
            start = next(hole.next_offset for hole in log.holes if hole.next_offset > log.start_offset)
            log.start_offset = start
            continue
        return


# Tools


def left_store(fs: MemoryFileSystem, *, is_clean: bool = True) -> PartitionLog:
    """A data directory with a log that has an aborted, a committed and an open transaction."""
    store = Store.open("/data", fs=fs)
    (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"segment.bytes": "300"}).partitions
    for at in range(4):
        log.append(data(1, b"value"), now_ms=1, validate=False)
        log.append(marker(1, is_commit=at == 2), now_ms=1, validate=False)
    log.append(data(2, b"open"), now_ms=1, validate=False)
    log.mark_durable(log.sync())
    store.close(clean=is_clean)
    return log


@pytest.mark.parametrize("harm", ["lose", "flip"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_wrong_list_is_named_and_made_again(harm: str, is_clean: bool) -> None:
    fs = MemoryFileSystem()
    left_store(fs, is_clean=is_clean)
    (whole,) = inspect_directory(fs, "/data")
    assert not whole.damages
    paths = [f"{DIRECTORY}/{name}" for name in fs.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    assert len(paths) > 1
    before = {path: fs.open(path).read(0, 1_000) for path in paths}
    if harm == "lose":
        fs.remove(paths[1])
    else:
        flip(fs, paths[1], 5)
    contents = list(inspect_directory(fs, "/data"))
    assert [(each.path, each.is_rebuilt) for each in contents[0].damages] == [(paths[1], True)]
    (step,) = plan_repair(contents, drop=False)
    assert step.remedy is Remedy.REBUILD
    repair(fs, "/data", contents, drop=False)
    assert {path: fs.open(path).read(0, 1_000) for path in paths} == before
    (whole,) = inspect_directory(fs, "/data")
    assert not whole.damages


def test_check_names_what_hangs_until_the_hole_is_settled() -> None:
    history = lost_marker(is_commit=False, later=True)
    names: list[str] = []
    for saved in (False, True):
        content = inspect_partition(history.fs, DIRECTORY, "orders", 0)
        names += map(str, content.hanging)
        if saved:
            settle_hole(history.fs, DIRECTORY, history.log.holes[0])
        history.save()
    assert names == ["offsets 1 to 2 have records of a transaction of producer 1, whose end is missing"] * 2
    assert not inspect_partition(history.fs, DIRECTORY, "orders", 0).hanging


def test_start_reports_what_hangs() -> None:
    fs = MemoryFileSystem()
    log = left_store(fs, is_clean=False)
    for path in [each for each in fs.list_directory(DIRECTORY) if each.endswith((".facts", ".index"))]:
        fs.remove(f"{DIRECTORY}/{path}")
    flip(fs, log.segments[0].path, log.segments[0].position_of(1) + 40)
    fs.remove(f"{DIRECTORY}/{STATE_NAME}")
    store = Store.open("/data", fs=fs)
    ((folder, hanging),) = store.recovery.hanging
    assert (folder, hanging.producer_id, hanging.first_offset, hanging.lost_offset) == ("orders-0", 1, 0, 1)
