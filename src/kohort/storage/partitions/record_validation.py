"""The validation of a client's batch: decompressed, checked, and stored by its topic's codec.

Laws: records and their order stay what they were. What is unfolded is bounded.
Source: Apache Kafka's LogValidator; KIP-390 (levels).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.errors import CorruptRecordError, ErrorCode, Refused
from kohort.records.arrays import Allocate, blank
from kohort.records.compression import codec_number, compress, decompress
from kohort.records.header import (
    CODEC_NAMES,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    pack_header,
    seal,
)
from kohort.storage.files.fs import Buffer
from kohort.storage.partitions.validation import check_header, check_records, only_batch, stamp, too_large
from kohort.storage.segments.segment import BatchPlace
from kohort.storage.topicconfig import LogConfig

#: Most bytes that one batch may decompress to.
LIMIT_BYTES: Final = 64 << 20
_INT32_MAX: Final = (1 << 31) - 1


class CheckedBatch(NamedTuple):
    """One batch that may be stored."""

    batch: Buffer
    header: BatchHeader


def prepare(batch: Buffer, config: LogConfig, *, name: str, now_ms: int, allocate: Allocate = blank) -> CheckedBatch:
    """Check a batch, and return it as the topic stores it.

    Args:
        batch: changed in place where its header has to be and it can be.
        name: topic and partition, for messages.
        allocate: makes the array that a compressed batch is unfolded to.

    Raises:
        Refused: it is not to be stored, see `validation`.
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
