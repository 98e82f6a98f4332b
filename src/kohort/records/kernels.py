# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""The loops over record bytes: ordinary Python, with C types in `kernels.pxd` to compile it.

Laws: no byte is read outside of [BODY, BODY_END) of its batch, whatever the bytes say, because every position is
compared before it is used; a negative result is -1 - p, where p is the byte at which the first impossible thing
begins. Numbers are kept within 64 bits by comparisons, so that Python's integers and C's agree.
Source: Apache Kafka's record format, magic 2 (KIP-98); architecture rule 16.
"""

from __future__ import annotations

from kohort.records.header import Buffer
from kohort.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BODY,
    BODY_END,
    CRC,
    END,
    HEADER_COUNT,
    HEADER_KEY,
    HEADER_KEY_LENGTH,
    HEADER_VALUE,
    HEADER_VALUE_LENGTH,
    HEADER_WIDTH,
    HEADERS,
    INT32_LIMIT,
    INT64_MAX,
    KEY,
    KEY_LENGTH,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    POSITION,
    RECORD_COUNT,
    ROW_STOP,
    SPAN_WIDTH,
    TABLE_WIDTH,
    UINT32_LIMIT,
    VALUE,
    VALUE_LENGTH,
)


def count_batches(buffer: Buffer) -> int:
    """Count the whole batches of the buffer, up to the first impossible length or format."""
    size = len(buffer)
    position = 0
    count = 0
    while size - position >= 61:
        length = _int32(buffer, position + 8)
        if length < 49 or buffer[position + 16] != 2 or length + 12 > size - position:
            break
        position += length + 12
        count += 1
    return count


def walk_records(region: Buffer, position: int, end: int, count: int) -> int:
    """Hop over `count` records by their lengths; return `end`, or the fault as in the laws."""
    for _index in range(count):
        begin = position
        length, position = _varint(region, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1 - begin
        position += length
    return position if position == end else -1 - position


def check_records(
    region: Buffer,
    position: int,
    end: int,
    first: int,
    stop: int,
    base_timestamp: int,
    earliest_ms: int,
    latest_ms: int,
    is_keyed: bool,
    bad: memoryview,
) -> tuple[int, int, int]:
    """Check a producer's records, which must have the offsets `first` to `stop - 1` in order.

    Args:
        earliest_ms, latest_ms: the times that a record may have; -1, which means none, always may be.
        is_keyed: whether each record needs a key.
        bad: int64[2 * n]: number and time of the first n that break these two rules; -1 - number: it has no key.

    Returns:
        The byte behind the last one, negative if one is impossible; the latest time; how many break these rules.
    """
    latest = -1
    found = 0
    for index in range(first, stop):
        begin = position
        length, position = _varint(region, position, end)
        if position < 0 or length < 6 or length > end - position:
            return -1 - begin, latest, found
        record_end = position + length
        # One byte of attributes, which have no meaning yet.
        timestamp_delta, position = _varint(region, position + 1, record_end)
        if position < 0 or not _is_sum_int64(base_timestamp, timestamp_delta):
            return -1 - begin, latest, found
        offset_delta, position = _varint(region, position, record_end)
        if position < 0 or offset_delta != index:
            return -1 - begin, latest, found
        key_length, position = _varint(region, position, record_end)
        if position < 0 or key_length < -1 or key_length > record_end - position:
            return -1 - begin, latest, found
        value_length, position = _varint(region, position + (key_length if key_length > 0 else 0), record_end)
        if position < 0 or value_length < -1 or value_length > record_end - position:
            return -1 - begin, latest, found
        header_count, position = _varint(region, position + (value_length if value_length > 0 else 0), record_end)
        if position >= 0 and header_count != 0:
            position = _skip_headers(region, position, record_end, header_count)
        if position != record_end:
            return -1 - begin, latest, found
        time = base_timestamp + timestamp_delta
        latest = max(latest, time)
        is_missing = is_keyed and key_length < 0
        if is_missing or (time != -1 and (time < earliest_ms or time > latest_ms)):
            if 2 * found < len(bad):
                bad[2 * found] = -1 - index if is_missing else index
                bad[2 * found + 1] = time
            found += 1
    return position, latest, found


def index_batches(buffer: Buffer, table: memoryview, count: int) -> int:
    """Fill the table with the first `count` batches, as counted by `count_batches`.

    Returns:
        The byte behind the last one; negative if the counts of a header contradict each other, or if a batch
        begins at an offset that a batch in front of it covers.
    """
    size = len(buffer)
    position = 0
    next_offset = 0
    for batch in range(count):
        at = batch * TABLE_WIDTH
        if size - position < 61:
            return -1 - position
        end = position + _int32(buffer, position + 8) + 12
        # Counted before, but the buffer may be shared with a writer: no length is believed twice.
        if end - position < 61 or end > size:
            return -1 - position
        base_offset = _int64(buffer, position)
        last_delta = _int32(buffer, position + 23)
        records = _int32(buffer, position + 57)
        attributes = _int16(buffer, position + 21)
        if base_offset < next_offset or last_delta < 0 or base_offset >= INT64_MAX - last_delta:
            return -1 - position
        if records < 0 or records > last_delta + 1:
            return -1 - position
        if attributes & 7 > 4 or (attributes & 7 == 0 and records * 7 > end - position - 61):
            return -1 - position
        table[at + POSITION] = position
        table[at + END] = end
        table[at + BODY] = position + 61
        table[at + BODY_END] = end
        table[at + BASE_OFFSET] = base_offset
        table[at + LAST_OFFSET] = base_offset + last_delta
        table[at + RECORD_COUNT] = records
        table[at + ATTRIBUTES] = attributes
        table[at + BASE_TIMESTAMP] = _int64(buffer, position + 27)
        table[at + MAX_TIMESTAMP] = _int64(buffer, position + 35)
        table[at + LEADER_EPOCH] = _int32(buffer, position + 12)
        table[at + CRC] = _uint32(buffer, position + 17)
        table[at + ROW_STOP] = 0
        next_offset = base_offset + last_delta + 1
        position = end
    return position


def scan_records(
    region: Buffer,
    table: memoryview,
    first_batch: int,
    stop_batch: int,
    start_offset: int,
    row: int,
    offsets: memoryview,
    timestamps: memoryview,
    spans: memoryview,
) -> int:
    """Check the records of some batches of one region and write down where their parts lie.

    Args:
        region: holds the bodies of the batches.
        table: the batch table; `ROW_STOP` of each batch is written.
        first_batch, stop_batch: rows of the table.
        start_offset: records at smaller offsets are checked but not written.
        row: the first row to write.
        offsets, timestamps: int64[rows].
        spans: int32[rows * SPAN_WIDTH].

    Returns:
        The row behind the last one written; negative if a record is impossible.
    """
    for batch in range(first_batch, stop_batch):
        row = _scan_batch(region, table, batch * TABLE_WIDTH, start_offset, row, offsets, timestamps, spans)
        if row < 0:
            return row
        table[batch * TABLE_WIDTH + ROW_STOP] = row
    return row


def _scan_batch(
    region: Buffer,
    table: memoryview,
    at: int,
    start_offset: int,
    row: int,
    offsets: memoryview,
    timestamps: memoryview,
    spans: memoryview,
) -> int:
    position = table[at + BODY]
    end = table[at + BODY_END]
    base_offset = table[at + BASE_OFFSET]
    last_delta = table[at + LAST_OFFSET] - base_offset
    base_timestamp = table[at + BASE_TIMESTAMP]
    max_timestamp = table[at + MAX_TIMESTAMP]
    append_time = table[at + ATTRIBUTES] & 8
    previous_delta = -1
    for _index in range(table[at + RECORD_COUNT]):
        begin = position
        length, position = _varint(region, position, end)
        if position < 0 or length < 6 or length > end - position:
            return -1 - begin
        record_end = position + length
        # One byte of attributes, which have no meaning yet.
        timestamp_delta, position = _varint(region, position + 1, record_end)
        if position < 0 or not _is_sum_int64(base_timestamp, timestamp_delta):
            return -1 - begin
        offset_delta, position = _varint(region, position, record_end)
        if position < 0 or offset_delta <= previous_delta or offset_delta > last_delta:
            return -1 - begin
        key_length, key = _varint(region, position, record_end)
        if key < 0 or key_length < -1 or key_length > record_end - key:
            return -1 - begin
        value_length, value = _varint(region, key + (key_length if key_length > 0 else 0), record_end)
        if value < 0 or value_length < -1 or value_length > record_end - value:
            return -1 - begin
        header_count, headers = _varint(region, value + (value_length if value_length > 0 else 0), record_end)
        if headers < 0:
            return -1 - begin
        position = headers
        if header_count != 0:
            position = _skip_headers(region, headers, record_end, header_count)
        if position != record_end:
            return -1 - begin
        previous_delta = offset_delta
        if base_offset + offset_delta >= start_offset:
            offsets[row] = base_offset + offset_delta
            timestamps[row] = max_timestamp if append_time else base_timestamp + timestamp_delta
            span = row * SPAN_WIDTH
            spans[span + KEY] = key
            spans[span + KEY_LENGTH] = key_length
            spans[span + VALUE] = value
            spans[span + VALUE_LENGTH] = value_length
            spans[span + HEADERS] = headers
            spans[span + HEADER_COUNT] = header_count
            row += 1
    if position != end:
        return -1 - position
    return row


def _skip_headers(region: Buffer, position: int, end: int, count: int) -> int:
    """Return the end of `count` headers, -1 if they cannot lie within `end`."""
    # A header is two lengths at the least, so an impossible count is refused before it is looped over.
    if count < 0 or count > (end - position) >> 1:
        return -1
    for _index in range(count):
        length, position = _varint(region, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        length, position = _varint(region, position + length, end)
        if position < 0 or length < -1 or length > end - position:
            return -1
        if length > 0:
            position += length
    return position


def scan_headers(
    region: Buffer, spans: memoryview, first_row: int, stop_row: int, header_offsets: memoryview, out: memoryview
) -> int:
    """Write the positions of headers' parts, for rows with headers that `scan_records` has checked.

    Args:
        region: the region of these rows.
        spans: int32[rows * SPAN_WIDTH].
        first_row, stop_row: the rows to look at.
        header_offsets: int32[rows + 1]; the entry of `first_row` is given, those behind it are written.
        out: int32[headers * HEADER_WIDTH].

    Returns:
        The header behind the last one written; negative if the region has changed since it was checked.
    """
    header = header_offsets[first_row]
    end = len(region)
    for row in range(first_row, stop_row):
        position = spans[row * SPAN_WIDTH + HEADERS]
        for _index in range(spans[row * SPAN_WIDTH + HEADER_COUNT]):
            key_length, key = _varint(region, position, end)
            if key < 0 or key_length < 0 or key_length > end - key:
                return -1 - position
            value_length, value = _varint(region, key + key_length, end)
            if value < 0 or value_length < -1 or value_length > end - value:
                return -1 - position
            out[header * HEADER_WIDTH + HEADER_KEY] = key
            out[header * HEADER_WIDTH + HEADER_KEY_LENGTH] = key_length
            out[header * HEADER_WIDTH + HEADER_VALUE] = value
            out[header * HEADER_WIDTH + HEADER_VALUE_LENGTH] = value_length
            header += 1
            position = value + (value_length if value_length > 0 else 0)
        header_offsets[row + 1] = header
    return header


def sum_lengths(spans: memoryview, width: int, field: int, count: int) -> int:
    """Sum the bytes of one field over all rows; null counts as none."""
    total = 0
    for row in range(count):
        length = spans[row * width + field]
        if length > 0:
            total += length
    return total


def count_nulls(spans: memoryview, width: int, field: int, count: int) -> int:
    """Count the rows that have no such field."""
    nulls = 0
    for row in range(count):
        if spans[row * width + field] < 0:
            nulls += 1
    return nulls


def fill_validity(spans: memoryview, width: int, field: int, count: int, bitmap: memoryview) -> int:
    """Set the bit of each row with the field, lowest first, in a zeroed bitmap; return their number."""
    for row in range(count):
        if spans[row * width + field] >= 0:
            bitmap[row >> 3] |= 1 << (row & 7)
    return count


def gather(
    region: Buffer,
    spans: memoryview,
    width: int,
    field: int,
    first_row: int,
    stop_row: int,
    out: memoryview,
    out_offsets: memoryview,
) -> int:
    """Copy one field of some rows of one region behind each other.

    Args:
        spans: int32[rows * width]; `field` is where the position of the field stands, its length follows.
        out: as many bytes as `sum_lengths` says.
        out_offsets: int32[rows + 1]; the entry of `first_row` is given, those behind it are written.

    Returns:
        The byte of `out` behind the last one written.
    """
    written = out_offsets[first_row]
    for row in range(first_row, stop_row):
        start = spans[row * width + field]
        length = spans[row * width + field + 1]
        if length > 0:
            # A loop and not a slice: a C compiler turns it into wide moves without a call.
            for index in range(length):
                out[written + index] = region[start + index]
            written += length
        out_offsets[row + 1] = written
    return written


def _varint(region: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zigzag number of at most 64 bits and its end; the end is -1 if the number does not fit."""
    value = 0
    shift = 0
    while position < end:
        byte = region[position]
        position += 1
        if byte < 128:
            if shift == 63 and byte > 1:
                break
            value |= byte << shift
            return (value >> 1) ^ -(value & 1), position
        if shift == 63:
            break
        value |= (byte & 127) << shift
        shift += 7
    return 0, -1


def _is_sum_int64(base: int, delta: int) -> bool:
    """Whether base + delta is a 64-bit number, told without adding them."""
    if delta >= 0:
        return base <= INT64_MAX - delta
    return base >= -INT64_MAX - 1 - delta


def _int16(buffer: Buffer, position: int) -> int:
    value = buffer[position] << 8 | buffer[position + 1]
    return value - 65536 if value >= 32768 else value


def _int32(buffer: Buffer, position: int) -> int:
    value = _uint32(buffer, position)
    return value - UINT32_LIMIT if value >= INT32_LIMIT else value


def _uint32(buffer: Buffer, position: int) -> int:
    high = buffer[position] << 8 | buffer[position + 1]
    low = buffer[position + 2] << 8 | buffer[position + 3]
    return high * 65536 + low


def _int64(buffer: Buffer, position: int) -> int:
    # The high half carries the sign, so no step leaves 64 bits.
    return _int32(buffer, position) * UINT32_LIMIT + _uint32(buffer, position + 4)
