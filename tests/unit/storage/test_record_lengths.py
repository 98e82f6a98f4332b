"""Records that no reader could read are refused although the checksum is right, by every form of the kernels alike."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import CorruptRecordError, ErrorCode, Refused
from kohort.records import kernels
from kohort.records.batch import build_batch, iterate_records
from kohort.records.checksum import crc32c
from kohort.records.choice import is_compiled, kernels_named, plain_kernels
from kohort.records.header import CRC_START, HEADER_SIZE, parse_header, seal
from kohort.records.kernel_form import NAMES
from kohort.storage.partitions.validation import MOST_NAMED, RECORDS_AT_ONCE, RecordsRefused, check_records
from kohort.storage.store import Store
from kohort.storage.topicconfig import LogConfig

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def batch_with(position: int, byte: int) -> bytes:
    """Two records, one byte of theirs changed, the checksum made right again."""
    batch = bytearray(build_batch([(None, b"first", 1, ()), (None, b"second", 1, ())]))
    batch[HEADER_SIZE + position] = byte
    struct.pack_into(">I", batch, CRC_START - 4, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


@pytest.mark.parametrize(
    "byte",
    [0x00, 0x01, 0x7E, 0xFF],
    ids=["too short: the second record begins in the first", "negative", "beyond the batch", "a number without an end"],
)
def test_impossible_record_length_stores_nothing(byte: int) -> None:
    """Bad input: INVALID_RECORD, as by Apache Kafka, and the log is as it was."""
    store = Store.in_memory()
    log = store.create_topic("orders", 1, topic_id=bytes(range(16)), configs={}).partitions[0]
    with pytest.raises(Refused) as refused:
        log.append(batch_with(0, byte), now_ms=1)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


@pytest.mark.parametrize("module", [kernels, plain_kernels()], ids=["imported", "plain"])
def test_walk_ends_where_the_batch_does(module: ModuleType) -> None:
    """One record more or less than there are is told, and where the fault begins."""
    batch = build_batch([(b"key", b"x" * 200, 1, (("h", b"v"),))] * 50)
    end = len(batch)
    assert module.walk_records(batch, HEADER_SIZE, end, 50) == end
    assert module.walk_records(batch, HEADER_SIZE, end, 51) == -1 - end
    assert module.walk_records(batch, HEADER_SIZE, end, 49) < 0
    assert module.walk_records(batch, HEADER_SIZE, end - 1, 50) < 0
    assert module.walk_records(b"", 0, 0, 1) == -1


KERNELS = [name for name in NAMES if name != "c" or is_compiled()]
NOW_MS = 1_700_000_000_000
_BYTES = st.none() | st.binary(max_size=9)
_ROWS = st.lists(
    st.tuples(
        _BYTES,
        _BYTES,
        st.just(-1) | st.integers(NOW_MS - 90, NOW_MS + 90),
        st.lists(st.tuples(st.text(max_size=3), _BYTES), max_size=2),
    ),
    min_size=1,
    max_size=120,
)


def checked(name: str, raw: bytes, config: LogConfig) -> tuple[int, list[tuple[int, str]], int]:
    """(code, bad records, latest time) as one implementation of the kernels tells them."""
    header = parse_header(raw)
    try:
        latest = check_records(raw, HEADER_SIZE, header, config, name="t-0", now_ms=NOW_MS, kernels=kernels_named(name))
    except RecordsRefused as refused:
        return refused.code, refused.rows, 0
    except Refused as refused:
        return refused.code, [], 0
    return 0, [], latest


@given(rows=_ROWS, is_compacted=st.booleans(), before=st.integers(0, 100), after=st.integers(0, 100))
def test_every_kernel_finds_the_same_bad_records(
    rows: list[Record], is_compacted: bool, before: int, after: int
) -> None:
    """KIP-467: which they are; and the latest time where all are good."""
    config = LogConfig(
        is_compacted=is_compacted, message_timestamp_before_max_ms=before, message_timestamp_after_max_ms=after
    )
    raw = build_batch(rows)
    bad = [
        place
        for place, (key, _, time, _) in enumerate(rows)
        if (is_compacted and key is None) or (time != -1 and not NOW_MS - before <= time <= NOW_MS + after)
    ]
    for name in KERNELS:
        code, named, latest = checked(name, raw, config)
        assert [place for place, _ in named] == bad[:MOST_NAMED]
        assert bool(code) == bool(bad)
        if not bad:
            assert latest == max(time for _, _, time, _ in rows)


@pytest.mark.large
@given(
    rows=_ROWS, count=st.integers(-1, 1), changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3)
)
def test_every_kernel_takes_what_can_be_read_and_nothing_else(
    rows: list[Record], count: int, changes: list[tuple[int, int]]
) -> None:
    """Bytes changed anywhere in the records, or a record more or less claimed than there is."""
    raw = bytearray(build_batch(rows))
    for place, byte in changes:
        raw[HEADER_SIZE + place % (len(raw) - HEADER_SIZE)] = byte
    claimed = len(rows) + count
    struct.pack_into(">i", raw, 57, claimed)
    struct.pack_into(">i", raw, 23, claimed - 1)
    seal(raw)
    try:
        found = [record.offset for record in iterate_records(bytes(raw))] if claimed else []
    except CorruptRecordError:
        found = []
    is_whole = found == list(range(claimed)) and claimed > 0
    config = LogConfig(message_timestamp_after_max_ms=1 << 62, is_log_append_time=True)
    for name in KERNELS:
        code, named, _ = checked(name, bytes(raw), config)
        if claimed:
            assert (code, named) == (0 if is_whole else ErrorCode.INVALID_RECORD, [])


@pytest.mark.parametrize("name", KERNELS)
def test_long_batch_is_looked_at_in_slices(name: str) -> None:
    """A record that is bad far behind is found, one that is missing as well."""
    rows = [(b"k", b"v" * (number % 70), NOW_MS, ()) for number in range(2 * RECORDS_AT_ONCE + 9)]
    config = LogConfig(is_compacted=True)
    assert checked(name, build_batch(rows), config) == (0, [], NOW_MS)
    rows[RECORDS_AT_ONCE + 5] = (None, b"v", NOW_MS, ())
    code, named, _ = checked(name, build_batch(rows), config)
    assert (code, [place for place, _ in named]) == (ErrorCode.INVALID_RECORD, [RECORDS_AT_ONCE + 5])
