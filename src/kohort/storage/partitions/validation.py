"""What a client's record batches must look like before they are stored.

Laws: nothing is written here but the timestamps of LogAppendTime; one bad batch refuses the whole set. Every refusal
is `Refused` with the code that Apache Kafka answers, or one that tells the client more without making it retry.
Records inside of a compressed batch are the reader's to check: the broker does not unpack what it stores.
Source: Apache Kafka's LogValidator; issue text on bad input (wrong CRC and impossible lengths are CORRUPT_MESSAGE).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from kohort.errors import CorruptRecordError, ErrorCode, Refused
from kohort.records.checksum import crc32c
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
    check_batch,
    parse_header,
)
from kohort.records.kernels import walk_records
from kohort.storage.files.fs import Buffer
from kohort.storage.segments.segment import BatchPlace

_MAGIC_POSITION: Final = 16
_CRC_FIELD: Final = Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES_FIELD: Final = Struct(">h")
_MAX_TIMESTAMP_FIELD: Final = Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35
#: Attribute bits that no producer may set.
_REFUSED_BITS: Final = CONTROL_BIT | TRANSACTIONAL_BIT | LOG_APPEND_TIME_BIT
#: Later than any time.
NO_LATEST_MS: Final = 1 << 63
Writable: TypeAlias = bytearray | memoryview


def find_batches(buffer: Buffer) -> list[BatchPlace]:
    """Place of each batch of a set, looking at lengths only; the set is made of whole batches."""
    places: list[BatchPlace] = []
    position, end = 0, len(buffer)
    while position < end:
        try:
            header = parse_header(buffer, position)
        except CorruptRecordError as why:
            if end - position > _MAGIC_POSITION and buffer[position + _MAGIC_POSITION] != MAGIC:
                raise Refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(why)) from why
            raise Refused(ErrorCode.CORRUPT_MESSAGE, str(why)) from why
        places.append(BatchPlace(position, header))
        position += header.batch_length + LENGTH_OVERHEAD
    if position != end:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the last batch claims {position - end} bytes more than were sent")
    if not places:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "there is no record batch to append")
    return places


def check_place(buffer: Buffer, place: BatchPlace, *, max_message_bytes: int, latest_ms: int = NO_LATEST_MS) -> None:
    """Refuse a batch that a client may not append; `latest_ms` is the latest time that a record may have."""
    position, header = place
    size = header.batch_length + LENGTH_OVERHEAD
    if size > max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {size} bytes, max.message.bytes of the topic is {max_message_bytes}",
        )
    if header.max_timestamp > latest_ms:
        raise Refused(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record is of {header.max_timestamp}; message.timestamp.after.max.ms of the topic lets none be later "
            f"than {latest_ms}",
        )
    if header.attributes & COMPRESSION_MASK >= len(CODEC_NAMES):
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"codec {header.attributes & COMPRESSION_MASK} of the record batch is unknown",
        )
    try:
        check_batch(buffer, position, header)
    except CorruptRecordError as why:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(why)) from why
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise Refused(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch claims {header.record_count} records in {header.last_offset_delta + 1} offsets",
        )
    if not header.attributes & COMPRESSION_MASK:
        end = position + size
        stop = walk_records(buffer, position + HEADER_SIZE, end, header.record_count)
        if stop != end:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"a record's length leads out of its batch, at byte {-1 - stop}")
    if header.attributes & _REFUSED_BITS or header.producer_id >= 0:
        _check_rights(header)


def _check_rights(header: BatchHeader) -> None:
    """What a producer may not say, and what an idempotent one must."""
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "clients cannot write control records")
    if header.is_transactional:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE, "transactions are not served by this broker; use an idempotent producer"
        )
    if header.has_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "clients cannot set the append time")
    if header.base_sequence < 0 or header.producer_epoch < 0:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}",
        )


def stamp(buffer: Writable, place: BatchPlace, now_ms: int) -> BatchPlace:
    """Date a batch with the broker's clock, in place; returns it as it is now."""
    position, header = place
    end = position + header.size_bytes
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES_FIELD.pack_into(buffer, position + CRC_START, attributes)
    _MAX_TIMESTAMP_FIELD.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, now_ms)
    with memoryview(buffer) as view:
        crc = crc32c(view[position + CRC_START : end])
    _CRC_FIELD.pack_into(buffer, position + _CRC_POSITION, crc)
    return BatchPlace(position, header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc))
