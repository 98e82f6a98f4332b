"""The 61-byte header of a version 2 record batch: parse, split, check, rebase.

Laws: nothing here looks at the records themselves; a length read from the bytes is checked against the bytes that
are there before it is used; `rebase` writes only to fields that the CRC does not cover, `readdress` renews it.
Source: Apache Kafka's record batch format, magic 2 (KIP-98); attributes as of KIP-534 (delete horizon).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kohort.errors import CorruptRecordError
from kohort.records.checksum import crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Bytes of a header, and so of the smallest batch.
HEADER_SIZE: Final = 61
#: Bytes in front of what `batch_length` counts: the base offset and the length itself.
LENGTH_OVERHEAD: Final = 12
#: Where the CRC begins to count: at the attributes.
CRC_START: Final = 21
MAGIC: Final = 2
#: Bytes of the smallest record: six one-byte numbers behind a one-byte length.
MIN_RECORD_SIZE: Final = 7

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
#: The base timestamp is the time at which the batch's tombstones may go (KIP-534).
DELETE_HORIZON_BIT: Final = 0x40

#: Codec names by their number in the attributes.
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

#: The header of a batch, byte for byte.
HEADER: Final = Struct(">qiibIhiqqqhii")
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_PRODUCER: Final = Struct(">qhi")
_MAGIC_POSITION: Final = 16
_CRC_POSITION: Final = 17
_PRODUCER_POSITION: Final = 43
_OFFSET_LIMIT: Final = 1 << 63


class BatchHeader(NamedTuple):
    """The header of one batch; offsets and sequences of records count from its bases."""

    base_offset: int = 0
    #: Bytes of the batch behind this field.
    batch_length: int = 0
    partition_leader_epoch: int = -1
    magic: int = MAGIC
    #: CRC-32C from the attributes to the end.
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    #: Milliseconds since 1970; -1 if the records have no time.
    base_timestamp: int = -1
    max_timestamp: int = -1
    #: -1 if the producer is not idempotent, as are the next two.
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers, even if compaction has removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """The codec's name; `CorruptRecordError` for a number that no codec has."""
        number = self.attributes & COMPRESSION_MASK
        if number >= len(CODEC_NAMES):
            raise _unknown_codec(self.base_offset, number)
        return CODEC_NAMES[number]

    @property
    def is_control(self) -> bool:
        """Whether the batch's records are transaction markers, which applications do not see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def has_log_append_time(self) -> bool:
        """Whether every record's time is `max_timestamp`, set by the broker."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)


def parse_header(buffer: Buffer, position: int = 0, *, origin: int = 0) -> BatchHeader:
    """Parse the header at `position`; its batch may end beyond the buffer.

    Args:
        origin: the buffer's position in the file or response, which errors count from.

    Raises:
        CorruptRecordError: fewer than 61 bytes, a format other than version 2, or an impossible length.
    """
    remaining = len(buffer) - position
    if remaining > _MAGIC_POSITION and buffer[position + _MAGIC_POSITION] != MAGIC:
        raise _foreign_magic(buffer[position + _MAGIC_POSITION], origin + position)
    if position < 0 or remaining < HEADER_SIZE:
        at = origin + position
        raise CorruptRecordError(f"a batch header needs {HEADER_SIZE} bytes, {remaining} are left at {at}")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise CorruptRecordError(f"the batch at byte {origin + position} claims a length of {header.batch_length}")
    return header


def pack_header(header: BatchHeader) -> bytes:
    """Pack a header; the inverse of `parse_header`."""
    return HEADER.pack(*header)


def split_batches(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch, without a partial last one.

    Raises:
        CorruptRecordError: a format other than version 2, or an impossible length.
    """
    batches: list[tuple[int, BatchHeader]] = []
    position, end = 0, len(buffer)
    while end - position > _MAGIC_POSITION:
        if end - position < HEADER_SIZE:
            # Too short for a batch of magic 2, but long enough to tell an old format from a cut one.
            if buffer[position + _MAGIC_POSITION] != MAGIC:
                raise _foreign_magic(buffer[position + _MAGIC_POSITION], position)
            break
        header = parse_header(buffer, position)
        next_position = position + header.batch_length + LENGTH_OVERHEAD
        if next_position > end:
            break
        batches.append((position, header))
        position = next_position
    return batches


def check_batch(buffer: Buffer, position: int, header: BatchHeader, *, with_crc: bool = True) -> None:
    """Raise an error for a batch that is cut, or has a wrong CRC or impossible counts.

    Args:
        with_crc: whether the CRC is verified, too; that costs a pass over the batch.

    Raises:
        CorruptRecordError: the batch is not whole, its CRC differs, or its counts contradict each other.
    """
    check_counts(header)
    end = position + header.size_bytes
    if end > len(buffer):
        raise torn_batch(header, len(buffer) - position)
    if with_crc and crc32c(memoryview(buffer)[position + CRC_START : end]) != header.crc:
        raise damaged_batch(header)


def torn_batch(header: BatchHeader, there: int) -> CorruptRecordError:
    """Build the error for a batch of which only so many bytes exist."""
    return CorruptRecordError(
        f"the batch at offset {header.base_offset} has {header.size_bytes} bytes, only {there} are there"
    )


def damaged_batch(header: BatchHeader) -> CorruptRecordError:
    """Build the error for a batch with bytes that do not match its CRC."""
    return CorruptRecordError(f"the batch at offset {header.base_offset} is damaged: its CRC-32C does not match")


def check_counts(header: BatchHeader) -> None:
    """Raise an error for a header with numbers that contradict each other."""
    first, last_delta, count = header.base_offset, header.last_offset_delta, header.record_count
    if first < 0 or last_delta < 0 or first + last_delta >= _OFFSET_LIMIT - 1:
        raise CorruptRecordError(f"a batch claims the offsets {first} to {first + last_delta}")
    # Compaction may leave fewer records than offsets.
    if count < 0 or count > last_delta + 1:
        raise CorruptRecordError(f"the batch at offset {first} claims {count} records in {last_delta + 1} offsets")
    codec = header.attributes & COMPRESSION_MASK
    if codec >= len(CODEC_NAMES):
        raise _unknown_codec(first, codec)
    if not codec and count * MIN_RECORD_SIZE > header.batch_length + LENGTH_OVERHEAD - HEADER_SIZE:
        raise CorruptRecordError(f"the batch at offset {first} claims {count} records, more than its bytes can hold")


def rebase(buffer: bytearray | memoryview, position: int, base_offset: int, partition_leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at `position`, in place."""
    # The CRC does not cover these two fields.
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LENGTH_OVERHEAD, partition_leader_epoch)


def readdress(buffer: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set producer id, producer epoch and base sequence of one whole batch, in place."""
    _PRODUCER.pack_into(buffer, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    seal(buffer)


def seal(buffer: bytearray | memoryview) -> int:
    """Write the checksum of one whole batch into the batch, and return it."""
    with memoryview(buffer) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    _UINT32.pack_into(buffer, _CRC_POSITION, crc)
    return crc


def _unknown_codec(base_offset: int, number: int) -> CorruptRecordError:
    return CorruptRecordError(f"the batch at offset {base_offset} has unknown compression {number}")


def _foreign_magic(magic: int, position: int) -> CorruptRecordError:
    if magic < MAGIC:
        return CorruptRecordError(
            f"the batch at byte {position} has message format version {magic}; "
            "only version 2 is read: the topic was written by a producer or broker older than Kafka 0.11"
        )
    return CorruptRecordError(f"the batch at byte {position} has unknown message format version {magic}")
