"""What clients may append, and which code refuses the rest."""

from __future__ import annotations

from struct import pack_into

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import ErrorCode, Refused
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import parse_header
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.validation import RecordsRefused
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, sequenced


@pytest.fixture
def log() -> PartitionLog:
    return empty_log(MemoryFileSystem(volatile=True), max_message_bytes=1000)


def sealed(data: bytearray) -> bytearray:
    """With a CRC that matches whatever was changed."""
    pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def changed(kind: str, position: int, value: int, *, data: bytearray | None = None) -> bytearray:
    data = data or batch(2)
    pack_into(kind, data, position, value)
    return sealed(data)


def refusal_of(log: PartitionLog, data: bytes | bytearray | memoryview) -> Refused:
    with pytest.raises(Refused) as refusal:
        log.append(data, now_ms=5)
    assert (log.log_end_offset, log.size_bytes) == (0, 0), "nothing is stored"
    return refusal.value


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_taken(log: PartitionLog, codec: str) -> None:
    log.append(batch(3, compression=codec), now_ms=5)
    assert log.log_end_offset == 3


@pytest.mark.parametrize("position", [21, 30, 60, 61, -1])
def test_a_flipped_bit_is_corrupt(log: PartitionLog, position: int) -> None:
    data = batch(2)
    data[position] ^= 0x40
    assert refusal_of(log, data).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("missing", [1, 20, 60])
def test_a_batch_that_is_not_whole_is_corrupt(log: PartitionLog, missing: int) -> None:
    assert refusal_of(log, batch(2)[:-missing]).code == ErrorCode.CORRUPT_MESSAGE
    assert refusal_of(log, batch() + batch(2)[:-missing]).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-1, 0, 48, 1 << 30])
def test_an_impossible_length_is_corrupt(log: PartitionLog, length: int) -> None:
    data = batch(2)
    pack_into(">i", data, 8, length)
    assert refusal_of(log, data).code == ErrorCode.CORRUPT_MESSAGE


def test_nothing_is_no_record(log: PartitionLog) -> None:
    assert refusal_of(log, b"").code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("count", "last_delta"), [(0, 0), (0, 1), (1, 1), (3, 1), (-1, 1), (2, -1), (2, 5), (1 << 30, (1 << 30) - 1)]
)
def test_counts_that_contradict_each_other_are_refused(log: PartitionLog, count: int, last_delta: int) -> None:
    data = batch(2)
    pack_into(">i", data, 57, count)
    assert refusal_of(log, changed(">i", 23, last_delta, data=data)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"),
    [(0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)],
)
def test_other_formats_are_not_supported(log: PartitionLog, magic: int, code: ErrorCode) -> None:
    """By the codes of Apache Kafka; the message names the format."""
    refusal = refusal_of(log, changed(">b", 16, magic))
    assert refusal.code == code
    assert "message format version" in str(refusal)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(log: PartitionLog, codec: int) -> None:
    refusal = refusal_of(log, changed(">h", 21, codec))
    assert refusal.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert str(codec) in str(refusal)


def test_a_batch_above_the_topics_limit_is_too_large(log: PartitionLog) -> None:
    refusal = refusal_of(log, batch(value=bytes(1000)))
    assert refusal.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes of the topic is 1000" in str(refusal)


def test_control_records_are_the_brokers(log: PartitionLog) -> None:
    data = bytearray(build_batch([(b"\0\0\0\1", b"", 0, ())], is_control=True))
    assert refusal_of(log, data).code == ErrorCode.INVALID_RECORD


def test_transactions_are_refused(log: PartitionLog) -> None:
    data = build_batch([(None, b"", 0, ())], is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    assert refusal_of(log, data).code == ErrorCode.INVALID_TXN_STATE


def test_the_append_time_is_the_brokers(log: PartitionLog) -> None:
    """Where the topic's records have the producer's time the mark is taken off, as by Apache Kafka."""
    log.append(changed(">h", 21, 8), now_ms=5)
    (view,) = log.read(0, 1000)
    assert not parse_header(view).has_log_append_time
    assert [record.timestamp for record in iterate_records(view)] == [1000, 1001]
    dated = empty_log(MemoryFileSystem(volatile=True), is_log_append_time=True)
    refusal = refusal_of(dated, changed(">h", 21, 8))
    assert isinstance(refusal, RecordsRefused)
    assert (refusal.code, [place for place, _ in refusal.rows]) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_an_idempotent_producer_numbers_its_batches(log: PartitionLog, epoch: int, sequence: int) -> None:
    assert refusal_of(log, sequenced(sequence, epoch=epoch)).code == ErrorCode.INVALID_RECORD


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    log = empty_log(MemoryFileSystem(volatile=True))
    refusal_of(log, noise)


@given(st.integers(0, 200), st.integers(1, 255), st.integers(1, 3))
def test_a_damaged_batch_is_refused_or_stored_as_it_is(position: int, flip: int, count: int) -> None:
    """The leader epoch is the broker's to write; all else is noticed."""
    log = empty_log(MemoryFileSystem(volatile=True))
    data = batch(count, value=b"0123456789")
    position %= len(data)
    data[position] ^= flip
    if 12 <= position < 16:
        log.append(data, now_ms=5)
        assert log.log_end_offset == count
    else:
        refusal_of(log, data)
