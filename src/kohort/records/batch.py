"""Records one by one: build a batch of records, and iterate over the records of whole batches.

This is the path for small amounts (group records, single sends, tests); big reads go through `columns`.
Laws: a batch built here reads back as the same records; iterating trusts no length of the input.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kohort.errors import CorruptRecordError, LocalProtocolError
from kohort.records.build_parts import VARINTS
from kohort.records.compression import DEFAULT_LIMIT_BYTES, codec_number, compress, decompress
from kohort.records.header import (
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MIN_RECORD_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_batch,
    pack_header,
    seal,
    split_batches,
)

#: (key, value, timestamp in ms, headers) of one record to be written.
RecordInput: TypeAlias = tuple[Buffer | None, Buffer | None, int, Iterable[tuple[str, Buffer | None]]]

_INT32_MAX: Final = (1 << 31) - 1
_INT64_LIMIT: Final = 1 << 63
_UINT64_LIMIT: Final = 1 << 64
#: Version and type of the control record.
_MARKER_KEY: Final = Struct(">hh")
#: Version and epoch of the transaction coordinator that decided.
_MARKER_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


class Record(NamedTuple):
    """One record as it was produced, with its offset in the partition."""

    offset: int
    #: Milliseconds since 1970; -1 if it has none.
    timestamp: int
    key: bytes | None
    #: `None` is a tombstone: compaction will remove the key.
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def build_batch(
    records: Sequence[RecordInput],
    *,
    base_offset: int = 0,
    compression: str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Build one batch of these records, in their order, at consecutive offsets.

    Args:
        records: at least one (key, value, timestamp_ms, headers).
        level: the codec's compression level; `None` means its usual one.

    Raises:
        LocalProtocolError: no records, or more bytes than a batch can hold.
    """
    if not records:
        raise LocalProtocolError("a batch needs at least one record")
    base_timestamp = records[0][2]
    body = _encode_records(records, base_timestamp, range(len(records)))
    payload, attributes = body, 0
    if compression != "none":
        payload, attributes = compress(compression, body, level=level), codec_number(compression)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    if length > _INT32_MAX:
        raise LocalProtocolError(f"a batch of {length} bytes is more than the protocol can carry; send fewer records")
    attributes |= (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=length,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record[2] for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal_batch(header, payload)


def seal_batch(header: BatchHeader, payload: Buffer) -> bytes:
    """Join header and records, and write the checksum."""
    batch = bytearray(pack_header(header))
    batch += payload
    seal(batch)
    return bytes(batch)


def iterate_records(
    buffer: Buffer,
    *,
    include_control: bool = False,
    check_crcs: bool = True,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[Record]:
    """Yield every record of every whole batch, in the order of offsets, without a partial last batch.

    Args:
        buffer: batches one after the other.
        include_control: whether transaction markers are yielded, too.
        check_crcs: whether each batch's CRC-32C is verified.
        limit_bytes: the most bytes that one batch may decompress to.

    Raises:
        CorruptRecordError: a batch is damaged; the records before it have been yielded.
    """
    view = memoryview(buffer)
    for position, header in split_batches(view):
        check_batch(view, position, header, with_crc=check_crcs)
        if header.record_count == 0 or (header.is_control and not include_control):
            continue
        yield from _batch_records(view[position + HEADER_SIZE : position + header.size_bytes], header, limit_bytes)


def _batch_records(payload: memoryview, header: BatchHeader, limit_bytes: int) -> Iterator[Record]:
    """Yield the records of one batch; refuse an early end, a late end and overlapping fields."""
    body = bytes(decompress(header.compression, payload, limit_bytes=limit_bytes))
    if header.record_count * MIN_RECORD_SIZE > len(body):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} has fewer records than it claims")
    position, previous = 0, header.base_offset - 1
    try:
        for _ in range(header.record_count):
            record, position = _read_record(body, position, header)
            if record.offset <= previous:
                raise CorruptRecordError(f"the offsets of the batch at offset {header.base_offset} do not ascend")
            previous = record.offset
            yield record
    except IndexError as error:
        raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} is damaged") from error
    if position != len(body):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} has bytes behind its last record")


def _read_record(body: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = read_varint(body, position)
    end = position + length
    if length < MIN_RECORD_SIZE - 1 or end > len(body):
        raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} claims {length} bytes")
    timestamp_delta, position = read_varint(body, position + 1)
    offset_delta, position = read_varint(body, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} lies outside of it")
    key, position = _read_bytes(body, position, end)
    value, position = _read_bytes(body, position, end)
    header_count, position = read_varint(body, position)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if header_count:
        headers, position = _read_headers(body, position, end, header_count)
    if position != end:
        raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} ends elsewhere than it claims")
    timestamp = header.base_timestamp + timestamp_delta
    if not -_INT64_LIMIT <= timestamp < _INT64_LIMIT:
        raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} has an impossible time")
    if header.has_log_append_time:
        timestamp = header.max_timestamp
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_headers(body: bytes, position: int, end: int, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    # A header is two lengths at the least.
    if not 0 <= count * 2 <= end - position:
        raise CorruptRecordError(f"a record claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position, end)
        if name is None:
            raise CorruptRecordError("a record has a header without a name")
        value, position = _read_bytes(body, position, end)
        # A name that is not UTF-8 is repaired, as Java does it: it must not stop a consumer.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and so many bytes, not beyond `end`; length -1 gives `None`."""
    length, position = read_varint(body, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptRecordError(f"a field of a record claims {length} bytes, {end - position} are left")
    return body[position : position + length], position + length


def read_varint(body: Buffer, position: int) -> tuple[int, int]:
    """Return a zigzag varint of at most ten bytes, and its end; `IndexError` if the body ends first."""
    byte = body[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _UINT64_LIMIT:
                break
            return (value >> 1) ^ -(value & 1), position
    raise CorruptRecordError("a number of a record has more than 64 bits")


def _encode_records(records: Sequence[RecordInput], base_timestamp: int, deltas: Iterable[int]) -> bytes:
    """Encode records one after the other."""
    varints = VARINTS
    pieces: list[Buffer] = []
    for delta, (key, value, timestamp, headers) in zip(deltas, records, strict=True):
        time, place = varints[timestamp - base_timestamp], varints[delta]
        key_length = b"\x01" if key is None else varints[len(key)]
        value_length = b"\x01" if value is None else varints[len(value)]
        key_bytes, value_bytes = key or b"", value or b""
        tail = encode_headers(headers) if headers else b"\x00"
        size = 1 + len(time) + len(place) + len(key_length) + len(key_bytes) + len(value_length)
        size += len(value_bytes) + len(tail)
        if size > _INT32_MAX:
            raise LocalProtocolError(f"a record of {size} bytes is more than the protocol can carry")
        pieces += (varints[size], b"\x00", time, place, key_length, key_bytes, value_length, value_bytes, tail)
    # To join the pieces once costs less than to grow a buffer.
    return b"".join(pieces)


def encode_headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    """Encode the headers of one record, preceded by their number."""
    varints = VARINTS
    pieces: list[Buffer] = [b""]
    count = 0
    for name, content in headers:
        encoded = name.encode("utf-8")
        pieces += (varints[len(encoded)], encoded)
        pieces += (b"\x01", b"") if content is None else (varints[len(content)], content)
        count += 1
    pieces[0] = varints[count]
    return b"".join(pieces)


def build_marker(
    *, producer_id: int, producer_epoch: int, is_commit: bool, timestamp_ms: int, coordinator_epoch: int = 0
) -> bytes:
    """Build the batch that ends a producer's transaction in one partition.

    Laws: a marker is a batch of one record, whose key says commit or abort; any other control record is no marker.
    Source: Apache Kafka's control records and `EndTxnMarker` (KIP-98).
    """
    key = _MARKER_KEY.pack(0, _COMMIT if is_commit else _ABORT)
    return build_batch(
        [(key, _MARKER_VALUE.pack(0, coordinator_epoch), timestamp_ms, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def coordinator_epoch_of(value: bytes | None) -> int:
    """Return the epoch of the coordinator that has sent a marker, from the marker's value; 0 if it is too short.

    >>> coordinator_epoch_of(bytes([0, 0, 0, 0, 0, 7])), coordinator_epoch_of(None)
    (7, 0)
    """
    if value is None or len(value) < _MARKER_VALUE.size:
        return 0
    epoch: int = _MARKER_VALUE.unpack_from(value)[1]
    return epoch


def is_commit_marker(key: bytes | None) -> bool | None:
    """Return whether a control record's key is a commit, not an abort; `None` if it is no marker.

    >>> is_commit_marker(bytes([0, 0, 0, 1])), is_commit_marker(bytes(4)), is_commit_marker(b"")
    (True, False, None)
    """
    if key is None or len(key) < _MARKER_KEY.size:
        return None
    _, kind = _MARKER_KEY.unpack_from(key)
    return {_ABORT: False, _COMMIT: True}.get(kind)
