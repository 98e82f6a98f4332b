"""The requirements on a client's record batch before it is stored.

Laws: one batch a partition and request; one bad record refuses it all. Every record is looked at, so that what is
stored can be read: it is whole, and has the offset that its place says. The largest time in a header is that of the
records. Long batches are looked at in slices. Every refusal is `Refused` with the code that Apache Kafka answers, or
one that tells the client more without making it retry.
Source: Apache Kafka's LogValidator and ProduceRequest; KIP-467 (which records), KIP-937 (times). Where the answers
differ is listed in `tests/interop/test_topic_config_parity.py`.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kohort.errors import CorruptRecordError, ErrorCode, Refused
from kohort.records.arrays import Allocate, blank
from kohort.records.checksum import crc32c
from kohort.records.choice import KernelSet, active_kernels
from kohort.records.compression import codec_number, compress, decompress
from kohort.records.header import (
    CODEC_NAMES,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    damaged_batch,
    pack_header,
    parse_header,
    seal,
)
from kohort.storage.files.fs import Buffer
from kohort.storage.segments.segment import BatchPlace
from kohort.storage.topicconfig import LogConfig

#: Most bad records that an answer names.
MOST_NAMED: Final = 100
#: Records of a slice: a kernel runs for well below a millisecond.
RECORDS_AT_ONCE: Final = 4096
_MAGIC_POSITION: Final = 16
#: The lower byte of the attributes.
_CODEC_POSITION: Final = CRC_START + 1
_ZSTD: Final = CODEC_NAMES.index("zstd")
_ATTRIBUTES_FIELD: Final = Struct(">h")
_MAX_TIMESTAMP_FIELD: Final = Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35
#: Attribute bits that no producer may set.
_REFUSED_BITS: Final = CONTROL_BIT | TRANSACTIONAL_BIT
_INT64_MAX: Final = (1 << 63) - 1
#: The timestamp of a record without one, which may have any age.
_NO_TIME: Final = -1
_NO_ROOM: Final = memoryview(array("q"))
Writable: TypeAlias = bytearray | memoryview


class RecordsRefused(Refused):
    """A refusal of a batch for some of its records; `rows` has their indexes and errors."""

    def __init__(self, code: ErrorCode, message: str, rows: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.rows = rows


def find_batches(buffer: Buffer) -> list[BatchPlace]:
    """Find the batches of a set that the broker itself made, by their lengths only."""
    places: list[BatchPlace] = []
    position, end = 0, len(buffer)
    while position < end:
        header = parse_header(buffer, position)
        places.append(BatchPlace(position, header))
        position += header.batch_length + LENGTH_OVERHEAD
    assert places and position == end, "the set is made of whole batches"
    return places


def only_batch(buffer: Buffer) -> BatchHeader:
    """Parse the header of the one batch that a client may append at a time."""
    size = len(buffer)
    if not size:
        raise Refused(ErrorCode.INVALID_RECORD, "there is no record batch to append")
    try:
        header = parse_header(buffer)
    except CorruptRecordError as why:
        is_old = size > _MAGIC_POSITION and buffer[_MAGIC_POSITION] < MAGIC
        raise Refused(ErrorCode.INVALID_RECORD if is_old else ErrorCode.CORRUPT_MESSAGE, str(why)) from why
    beyond = header.batch_length + LENGTH_OVERHEAD - size
    if beyond > 0:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the record batch claims {beyond} bytes more than were sent")
    if beyond:
        raise Refused(ErrorCode.INVALID_RECORD, "a request may have one record batch for each partition")
    return header


def is_zstd(buffer: Buffer) -> bool:
    """Whether a batch claims zstd compression."""
    return len(buffer) > _CODEC_POSITION and buffer[_CODEC_POSITION] & COMPRESSION_MASK == _ZSTD


def check_header(buffer: Buffer, header: BatchHeader, *, max_message_bytes: int) -> None:
    """Refuse a batch that a client may not append, for its header alone."""
    if header.batch_length + LENGTH_OVERHEAD > max_message_bytes:
        raise too_large(header.batch_length + LENGTH_OVERHEAD, max_message_bytes)
    if crc32c(memoryview(buffer)[CRC_START:]) != header.crc:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(damaged_batch(header)))
    # Producers number records from 0; the broker assigns the offsets.
    if header.base_offset:
        raise Refused(ErrorCode.INVALID_RECORD, f"the record batch has the base offset {header.base_offset}, not 0")
    attributes = header.attributes
    if attributes & COMPRESSION_MASK >= len(CODEC_NAMES):
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {attributes & COMPRESSION_MASK} of the batch is unknown"
        )
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"the batch claims {header.record_count} records in {header.last_offset_delta + 1} offsets",
        )
    # Control and transactional batches are refused; idempotent ones need an epoch and a sequence.
    if attributes & _REFUSED_BITS or header.producer_id >= 0:
        _check_rights(header)


def too_large(size: int, max_message_bytes: int) -> Refused:
    """Return the refusal of a batch that is larger than its topic allows."""
    return Refused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the record batch has {size} bytes, max.message.bytes of the topic is {max_message_bytes}",
    )


def _check_rights(header: BatchHeader) -> None:
    """Refuse control and transactional batches, and idempotent ones without epoch or sequence."""
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "clients cannot write control records")
    if header.is_transactional and header.producer_id < 0:
        raise Refused(ErrorCode.INVALID_RECORD, "a batch of a transaction has no producer id")
    if header.base_sequence < 0 or header.producer_epoch < 0:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}",
        )


@lru_cache(maxsize=1)
def _kernels() -> KernelSet:
    return active_kernels()


def check_records(
    body: Buffer,
    position: int,
    header: BatchHeader,
    config: LogConfig,
    *,
    name: str,
    now_ms: int,
    kernels: KernelSet | None = None,
) -> int:
    """Check every record of a batch; return the latest time of one, milliseconds, -1 if none has a time.

    Args:
        body: holds the records, unfolded, from `position` to its end.
        name: topic and partition, for messages.

    Raises:
        Refused: a record is damaged, or breaks what the topic asks for, see `RecordsRefused`.
    """
    earliest_ms, latest_ms = _span(config, now_ms)
    check = (kernels or _kernels()).check_records
    base, is_keyed, end, start = header.base_timestamp, config.is_compacted, len(body), position
    count = stop = header.record_count
    # Long batches are checked in slices, so that no call of a kernel takes long.
    if count > RECORDS_AT_ONCE:
        stop = RECORDS_AT_ONCE
    position, latest, bad = check(body, position, end, 0, stop, base, earliest_ms, latest_ms, is_keyed, _NO_ROOM)
    while stop < count and position >= 0:
        first, stop = stop, min(stop + RECORDS_AT_ONCE, count)
        position, time, wrong = check(
            body, position, end, first, stop, base, earliest_ms, latest_ms, is_keyed, _NO_ROOM
        )
        latest, bad = max(latest, time), bad + wrong
    if position < 0:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"a record of the batch is damaged, or has not the offset of its place, at byte {-1 - position}",
        )
    if position != end:
        raise Refused(ErrorCode.INVALID_RECORD, f"the batch has {end - position} bytes behind its last record")
    if bad:
        raise _refusal(body, start, header, config, name=name, now_ms=now_ms, kernels=kernels or _kernels())
    if header.attributes & LOG_APPEND_TIME_BIT:
        _check_append_time(header, config, now_ms)
    return latest


def _span(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the earliest and the latest timestamp that a record may have."""
    if config.is_log_append_time:
        return -_INT64_MAX - 1, _INT64_MAX
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    return now_ms - config.message_timestamp_before_max_ms, latest_ms if latest_ms < _INT64_MAX else _INT64_MAX


def _refusal(
    body: Buffer, position: int, header: BatchHeader, config: LogConfig, *, name: str, now_ms: int, kernels: KernelSet
) -> RecordsRefused:
    """Return the refusal of whole but unacceptable records; check them again to name the first bad ones."""
    earliest_ms, latest_ms = _span(config, now_ms)
    keyless = f"Compacted topic cannot accept message without key in topic partition {name}."
    rows: list[tuple[int, str]] = []
    is_untimely = False
    for first in range(0, header.record_count, RECORDS_AT_ONCE):
        stop = min(first + RECORDS_AT_ONCE, header.record_count)
        found = array("q", bytes(16 * (MOST_NAMED - len(rows))))
        position, _, bad = kernels.check_records(
            body, position, len(body), first, stop, header.base_timestamp, earliest_ms, latest_ms, config.is_compacted,
            memoryview(found),
        )  # fmt: skip
        for at in range(min(bad, len(found) // 2)):
            place, time = found[2 * at : 2 * at + 2]
            is_untimely |= place >= 0
            rows.append((-1 - place, keyless) if place < 0 else (place, _untimely(place, time, earliest_ms, latest_ms)))
    if is_untimely:
        return _times_refused(rows)
    return RecordsRefused(
        ErrorCode.INVALID_RECORD,
        "One or more records have been rejected: a compacted topic takes none without a key",
        rows,
    )


def _check_append_time(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Refuse a batch that claims LogAppendTime, in the rare cases in which Apache Kafka does."""
    earliest_ms, latest_ms = _span(config, now_ms)
    time = header.max_timestamp
    if not config.is_log_append_time and time != _NO_TIME:
        if earliest_ms <= time <= latest_ms:
            # The mark is taken off, and the records have their own times.
            return
        text = _untimely(0, time, earliest_ms, latest_ms)
    else:
        text = "Producer should not set timestamp type to LogAppendTime."
    raise _times_refused([(place, text) for place in range(min(header.record_count, MOST_NAMED))])


def _untimely(place: int, time: int, earliest_ms: int, latest_ms: int) -> str:
    allowed = f"The timestamp should be within [{earliest_ms}, {latest_ms}]."
    return f"Timestamp {time} of message with offset {place} is out of range. {allowed}"


def _times_refused(rows: list[tuple[int, str]]) -> RecordsRefused:
    message = (
        f"One or more records have been rejected due to invalid timestamp: {rows[0][1]} See message.timestamp.type, "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic."
    )
    return RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, rows)


def stamp(buffer: Writable, place: BatchPlace, attributes: int, max_timestamp: int) -> BatchPlace:
    """Set a batch's attributes and largest timestamp in place; return its changed place."""
    position, header = place
    with memoryview(buffer)[position : position + header.size_bytes] as batch:
        _ATTRIBUTES_FIELD.pack_into(batch, CRC_START, attributes)
        _MAX_TIMESTAMP_FIELD.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
        crc = seal(batch)
    return BatchPlace(position, header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc))


# The validation of a client's batch: decompressed, checked, and stored by its topic's codec.
#
# Laws: records and their order stay what they were. What is unfolded is bounded.
# Source: Apache Kafka's LogValidator; KIP-390 (levels).

#: Most bytes that one batch may decompress to.
LIMIT_BYTES: Final = 64 << 20
_INT32_MAX: Final = (1 << 31) - 1


class CheckedBatch(NamedTuple):
    """One batch that may be stored."""

    batch: Buffer
    header: BatchHeader


def prepare(batch: Buffer, config: LogConfig, *, name: str, now_ms: int, allocate: Allocate = blank) -> CheckedBatch:
    """Check a batch, and return it as the topic stores it, changed in place where it can be.

    Args:
        name: topic and partition, for messages.
        allocate: makes the array that a compressed batch is unfolded to.

    Raises:
        Refused: it is not to be stored.
    """
    header = only_batch(batch)
    check_header(batch, header, max_message_bytes=config.max_message_bytes)
    codec = header.attributes & COMPRESSION_MASK
    if codec:
        body, start = _unfolded(batch, codec, allocate), 0
    else:
        body, start = batch, HEADER_SIZE
    latest = check_records(body, start, header, config, name=name, now_ms=now_ms)
    is_otherwise = latest != header.max_timestamp or header.attributes & LOG_APPEND_TIME_BIT
    if is_otherwise and not config.is_log_append_time:
        # Retention and searches by time trust the header: it has to agree with the records.
        batch = bytearray(batch) if memoryview(batch).readonly else batch
        assert not isinstance(batch, bytes)
        header = stamp(batch, BatchPlace(0, header), header.attributes & ~LOG_APPEND_TIME_BIT, latest).header
    # Kafka's compression.type: a topic's own codec replaces the producer's.
    if config.compression_type != "producer" and config.compression_type != CODEC_NAMES[codec]:
        return _recoded(memoryview(body)[start:], header, config)
    return CheckedBatch(batch, header)


def _unfolded(batch: Buffer, codec: int, allocate: Allocate) -> Buffer:
    try:
        return decompress(codec, memoryview(batch)[HEADER_SIZE:], limit_bytes=LIMIT_BYTES, allocate=allocate)
    except CorruptRecordError as why:
        raise Refused(ErrorCode.INVALID_RECORD, str(why)) from why


def _recoded(body: memoryview, header: BatchHeader, config: LogConfig) -> CheckedBatch:
    """Compress a batch by the topic's codec."""
    codec = codec_number(config.compression_type)
    payload: Buffer = compress(config.compression_type, body, level=config.compression_level) if codec else body
    size = HEADER_SIZE + len(payload)
    # As far as a length in a header goes.
    if size > min(config.max_message_bytes, _INT32_MAX):
        raise too_large(size, config.max_message_bytes)
    changed = header._replace(
        batch_length=size - LENGTH_OVERHEAD, attributes=header.attributes & ~COMPRESSION_MASK | codec
    )
    batch = bytearray(pack_header(changed))
    batch += payload
    return CheckedBatch(batch, changed._replace(crc=seal(batch)))
