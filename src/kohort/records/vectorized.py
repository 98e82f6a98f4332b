# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""The kernels in numpy, used where Arrow is in use and nothing was compiled.

Laws: same results as `kernels.py`. Only well-formed bytes are read here; bytes that look impossible are passed to the
plain loop, which alone decides whether they are. The one loop left steps from record to record, because the start of a
record is known only from the record before it; runs of records of one length are read at once.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kohort.records import kernels, layout
from kohort.records.header import HEADER_SIZE, Buffer
from kohort.records.kernel_form import plain_form
from kohort.records.layout import HEADER_WIDTH, SPAN_WIDTH, TABLE_WIDTH

Int64s: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

#: Fewer records than this are faster one by one.
_FEW_RECORDS: Final = 48
#: Fewer records of one length in a row than this are not worth a look ahead.
_SHORTEST_RUN: Final = 8
#: Bytes of the longest length that a record can have in front.
_LONGEST_LENGTH: Final = 5
#: Headers of one record are taken one round each; more rounds than this are not worth it.
_MOST_ROUNDS: Final = 64
#: No time is further from another than this; what is goes to the plain loop, which tells an overflow.
_TIME_LIMIT: Final = 1 << 61
#: The same for offsets.
_OFFSET_LIMIT: Final = 1 << 62

#: The kernels that are taken one by one, in the form that needs no compiler.
_PLAIN: Final = plain_form(kernels)

count_batches = _PLAIN.count_batches

#: The header of a batch as it lies in the log.
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer", "V14"),
        ("records", ">i4"),
    ]
)


class _Unusual(Exception):
    """Bytes that this module leaves to the plain loop."""


def index_batches(buffer: Buffer, table: memoryview, count: int) -> int:
    """See `kernels.index_batches`."""
    positions = [0]
    for _ in range(count):
        position = positions[-1]
        positions.append(position + 12 + int.from_bytes(buffer[position + 8 : position + 12], "big"))
    if count == 0:
        return 0
    begins, ends = np.array(positions[:-1]), np.array(positions[1:])
    data = np.frombuffer(buffer, np.uint8)
    headers = np.lib.stride_tricks.sliding_window_view(data, HEADER_SIZE)[begins].view(_HEADER)[:, 0]
    base_offset, last_delta = headers["base_offset"].astype(np.int64), headers["last_delta"].astype(np.int64)
    records, codec = headers["records"].astype(np.int64), headers["attributes"] & 7
    law = (base_offset >= 0) & (base_offset < _OFFSET_LIMIT) & (last_delta >= 0) & (records >= 0)
    law &= (records <= last_delta + 1) & (codec <= 4) & ((codec != 0) | (records * 7 <= ends - begins - HEADER_SIZE))
    law[1:] &= base_offset[1:] > (base_offset + last_delta)[:-1]
    if not law.all():
        position = _PLAIN.index_batches(buffer, table, count)
        return int(position)
    rows = np.frombuffer(table, np.int64).reshape(-1, TABLE_WIDTH)
    rows[:, layout.POSITION], rows[:, layout.END] = begins, ends
    rows[:, layout.BODY], rows[:, layout.BODY_END] = begins + HEADER_SIZE, ends
    rows[:, layout.BASE_OFFSET], rows[:, layout.LAST_OFFSET] = base_offset, base_offset + last_delta
    rows[:, layout.RECORD_COUNT], rows[:, layout.ATTRIBUTES] = records, headers["attributes"]
    rows[:, layout.BASE_TIMESTAMP], rows[:, layout.MAX_TIMESTAMP] = headers["base_timestamp"], headers["max_timestamp"]
    rows[:, layout.LEADER_EPOCH], rows[:, layout.CRC], rows[:, layout.ROW_STOP] = (
        headers["leader_epoch"],
        headers["crc"],
        0,
    )
    return positions[-1]


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
    """See `kernels.scan_records`."""
    batches = np.frombuffer(table, np.int64).reshape(-1, TABLE_WIDTH)[first_batch:stop_batch]
    if batches[:, layout.RECORD_COUNT].sum() >= _FEW_RECORDS:
        try:
            return _scan(region, batches, start_offset, row, offsets, timestamps, spans)
        except (_Unusual, IndexError):
            pass
    plain = _PLAIN.scan_records
    source = region if isinstance(region, bytes) else bytes(region)
    stop: int = plain(source, table, first_batch, stop_batch, start_offset, row, offsets, timestamps, spans)
    return stop


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
    """See `kernels.check_records`."""
    numbers = np.arange(first, stop)
    if len(numbers) >= _FEW_RECORDS and abs(base_timestamp) < _TIME_LIMIT:
        try:
            data = np.frombuffer(region, np.uint8)[:end]
            keyless, times, behind = _check(memoryview(region), data, position, numbers)
        except (_Unusual, IndexError):
            pass
        else:
            times += base_timestamp
            missing = keyless if is_keyed else np.zeros_like(keyless)
            wrong = np.flatnonzero(missing | (times != -1) & ((times < earliest_ms) | (times > latest_ms)))
            named = wrong[: len(bad) >> 1]
            rows = np.frombuffer(bad, np.int64).reshape(-1, 2)[: len(named)]
            rows[:, 0] = np.where(missing[named], -1 - numbers[named], numbers[named])
            rows[:, 1] = times[named]
            return behind, max(int(times.max()), -1), len(wrong)
    plain = _PLAIN.check_records
    found: tuple[int, int, int] = plain(
        region, position, end, first, stop, base_timestamp, earliest_ms, latest_ms, is_keyed, bad
    )
    return found


def _check(
    source: memoryview, data: Bytes, position: int, numbers: Int64s
) -> tuple[npt.NDArray[np.bool_], Int64s, int]:
    """Return the records without key, their times' distance from the base, and their end."""
    pieces, behind = _begins_of(source, data, position, len(data), len(numbers))
    begins = np.concatenate(pieces)
    lengths, starts = _varints(data, begins)
    ends = starts + lengths
    _demand((lengths >= 6) & (ends == np.append(begins[1:], behind)))
    time_deltas, place = _varints(data, starts + 1)
    _demand((time_deltas < _TIME_LIMIT) & (time_deltas > -_TIME_LIMIT))
    offset_deltas, place = _varints(data, place)
    _demand(offset_deltas == numbers)
    keyless = np.zeros(0, np.bool_)
    for field in range(2):
        length, place = _varints(data, place)
        _demand((length >= -1) & (place <= ends) & (length <= ends - place))
        place = place + np.maximum(length, 0)
        keyless = length < 0 if field == 0 else keyless
    header_counts, place = _varints(data, place)
    if header_counts.any():
        _, place = _walk_headers(data, place, ends, header_counts)
    _demand(place == ends)
    return keyless, time_deltas, behind


def _scan(
    region: Buffer,
    batches: Int64s,
    start_offset: int,
    row: int,
    offsets: memoryview,
    timestamps: memoryview,
    spans: memoryview,
) -> int:
    data = np.frombuffer(region, np.uint8)
    begins = _record_begins(region, data, batches)
    counts = batches[:, layout.RECORD_COUNT]
    stops = np.cumsum(counts)
    filled = counts > 0
    lengths, starts = _varints(data, begins)
    ends = starts + lengths
    # A record ends where the next one begins, the last of a batch where the batch ends.
    expected = np.empty_like(begins)
    expected[:-1] = begins[1:]
    expected[stops[filled] - 1] = batches[filled, layout.BODY_END]
    _demand((lengths >= 6) & (ends == expected))
    time_deltas, position = _varints(data, starts + 1)
    offset_deltas, position = _varints(data, position)
    _check_deltas(batches, counts, stops, offset_deltas, time_deltas)
    parts = np.empty((len(begins), SPAN_WIDTH), np.int64)
    for field in (0, 2):
        length, position = _varints(data, position)
        _demand((length >= -1) & (position <= ends) & (length <= ends - position))
        parts[:, field] = position
        parts[:, field + 1] = length
        position = position + np.maximum(length, 0)
    header_counts, position = _varints(data, position)
    parts[:, layout.HEADERS] = position
    parts[:, layout.HEADER_COUNT] = header_counts
    if header_counts.any():
        _, position = _walk_headers(data, position, ends, header_counts)
    _demand(position == ends)
    found_offsets = np.repeat(batches[:, layout.BASE_OFFSET], counts) + offset_deltas
    found_times = np.repeat(batches[:, layout.BASE_TIMESTAMP], counts) + time_deltas
    append_time = (batches[:, layout.ATTRIBUTES] & 8) != 0
    if append_time.any():
        fixed = np.repeat(append_time, counts)
        found_times[fixed] = np.repeat(batches[:, layout.MAX_TIMESTAMP], counts)[fixed]
    kept = found_offsets >= start_offset
    if not kept.all():
        found_offsets, found_times, parts = found_offsets[kept], found_times[kept], parts[kept]
    rows = len(found_offsets)
    np.frombuffer(offsets, np.int64)[row : row + rows] = found_offsets
    np.frombuffer(timestamps, np.int64)[row : row + rows] = found_times
    np.frombuffer(spans, np.int32).reshape(-1, SPAN_WIDTH)[row : row + rows] = parts
    kept_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))
    batches[:, layout.ROW_STOP] = row + kept_before[stops]
    return row + rows


def _check_deltas(batches: Int64s, counts: Int64s, stops: Int64s, offset_deltas: Int64s, time_deltas: Int64s) -> None:
    """Check that offsets ascend within their batch and stay in it, and that times do not overflow."""
    last_deltas = batches[:, layout.LAST_OFFSET] - batches[:, layout.BASE_OFFSET]
    _demand((offset_deltas >= 0) & (offset_deltas <= np.repeat(last_deltas, counts)))
    ascending = offset_deltas[1:] > offset_deltas[:-1]
    inner = stops[:-1]
    ascending[inner[(inner > 0) & (inner < len(offset_deltas))] - 1] = True
    _demand(ascending)
    # Not by their absolute value: the smallest number of 64 bits has none.
    for times in (time_deltas, batches[:, layout.BASE_TIMESTAMP]):
        _demand((times < _TIME_LIMIT) & (times > -_TIME_LIMIT))


def _record_begins(region: Buffer, data: Bytes, batches: Int64s) -> Int64s:
    """Return the first byte of every record, if their lengths are true."""
    source = region if isinstance(region, bytes) else bytes(region)
    pieces: list[Int64s] = []
    for begin, end, count in batches[:, (layout.BODY, layout.BODY_END, layout.RECORD_COUNT)].tolist():
        if begin > end or end > len(data):
            raise _Unusual
        found, position = _begins_of(source, data, begin, end, count)
        if position != end:
            raise _Unusual
        pieces += found
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def _begins_of(source: Buffer, data: Bytes, position: int, end: int, count: int) -> tuple[list[Int64s], int]:
    """Return the first bytes of so many records, in pieces, and the end of the last one."""
    pieces: list[Int64s] = []
    #: Begins that were found one by one since the last piece.
    loose: list[int] = []
    left, previous = count, -1
    while left:
        size, width = _record_size(source, position)
        run = 1
        if size == previous and left > _SHORTEST_RUN:
            run = _run_length(data, position, min(left, (end - position) // size), size, width)
        if run > _SHORTEST_RUN:
            pieces += (np.array(loose, np.int64), position + size * np.arange(run, dtype=np.int64))
            loose = []
            position += run * size
            left -= run
            continue
        loose.append(position)
        position += size
        left -= 1
        previous = size
    pieces.append(np.array(loose, np.int64))
    return pieces, position


def _record_size(source: Buffer, position: int) -> tuple[int, int]:
    """Return the size of the record that begins here, and that of its length field."""
    byte = source[position]
    if byte < 128:
        return 1 + (byte >> 1), 1
    second = source[position + 1]
    if second < 128:
        return 2 + ((byte & 127 | second << 7) >> 1), 2
    value, shift, width = byte & 127 | (second & 127) << 7, 14, 2
    while second > 127 and width < _LONGEST_LENGTH:
        second = source[position + width]
        value |= (second & 127) << shift
        shift += 7
        width += 1
    return width + (value >> 1), width


def _run_length(data: Bytes, position: int, most: int, size: int, width: int) -> int:
    """Count the records from here on with the same length."""
    run, step = 1, _SHORTEST_RUN
    while run < most:
        step = min(2 * step, most - run)
        begin = position + run * size
        # The length of each record says where the next one begins.
        lengths = data[begin : begin + step * size].reshape(step, size)[:, :width]
        same = (lengths == data[position : position + width]).all(axis=1)
        if not same.all():
            return run + int(same.argmin())
        run += step
    return run


def _varints(data: Bytes, position: Int64s) -> tuple[Int64s, Int64s]:
    """Return the zigzag numbers at these positions, and their ends; `IndexError` beyond the region."""
    byte = data[position]
    value = byte.astype(np.int64)
    following = position + 1
    more = np.flatnonzero(byte > 127)
    value[more] &= 127
    # Nine bytes are 63 bits, which stay positive; longer numbers are rare enough for the plain loop.
    for shift in range(7, 63, 7):
        if not len(more):
            break
        byte = data[following[more]]
        value[more] |= (byte & 127).astype(np.int64) << shift
        following[more] += 1
        more = more[byte > 127]
    if len(more):
        raise _Unusual
    return (value >> 1) ^ -(value & 1), following


def _walk_headers(data: Bytes, position: Int64s, ends: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return the spans of all headers, row after row, and the end of each row's headers."""
    if counts.min() < 0 or counts.max() > _MOST_ROUNDS:
        raise _Unusual
    firsts = np.cumsum(counts) - counts
    out = np.empty((int(counts.sum()), HEADER_WIDTH), np.int64)
    position = position.copy()
    for ordinal in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > ordinal)
        limit = ends[rows]
        key_length, key = _varints(data, position[rows])
        _demand((key_length >= 0) & (key <= limit) & (key_length <= limit - key))
        value_length, value = _varints(data, key + key_length)
        _demand((value_length >= -1) & (value <= limit) & (value_length <= limit - value))
        headers = firsts[rows] + ordinal
        out[headers, 0] = key
        out[headers, 1] = key_length
        out[headers, 2] = value
        out[headers, 3] = value_length
        position[rows] = value + np.maximum(value_length, 0)
    return out, position


def _demand(law: npt.NDArray[np.bool_]) -> None:
    if not law.all():
        raise _Unusual


def scan_headers(
    region: Buffer, spans: memoryview, first_row: int, stop_row: int, header_offsets: memoryview, out: memoryview
) -> int:
    """See `kernels.scan_headers`."""
    rows = np.frombuffer(spans, np.int32).reshape(-1, SPAN_WIDTH)[first_row:stop_row]
    counts = rows[:, layout.HEADER_COUNT].astype(np.int64)
    data = np.frombuffer(region, np.uint8)
    try:
        found, _ = _walk_headers(data, rows[:, layout.HEADERS].astype(np.int64), np.full(len(rows), len(data)), counts)
    except (_Unusual, IndexError, ValueError):
        plain: int = _PLAIN.scan_headers(region, spans, first_row, stop_row, header_offsets, out)
        return plain
    header = int(header_offsets[first_row])
    np.frombuffer(out, np.int32).reshape(-1, HEADER_WIDTH)[header : header + len(found)] = found
    np.frombuffer(header_offsets, np.int32)[first_row + 1 : stop_row + 1] = header + np.cumsum(counts)
    return header + len(found)


def sum_lengths(spans: memoryview, width: int, field: int, count: int) -> int:
    """See `kernels.sum_lengths`."""
    return int(np.maximum(_column(spans, width, field, count), 0).sum(dtype=np.int64))


def count_nulls(spans: memoryview, width: int, field: int, count: int) -> int:
    """See `kernels.count_nulls`."""
    return int(np.count_nonzero(_column(spans, width, field, count) < 0))


def fill_validity(spans: memoryview, width: int, field: int, count: int, bitmap: memoryview) -> int:
    """See `kernels.fill_validity`."""
    packed = np.packbits(_column(spans, width, field, count) >= 0, bitorder="little")
    np.frombuffer(bitmap, np.uint8)[: len(packed)] = packed
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
    """See `kernels.gather`."""
    rows = np.frombuffer(spans, np.int32).reshape(-1, width)[first_row:stop_row]
    sizes = np.maximum(rows[:, field + 1], 0)
    written = int(out_offsets[first_row])
    stops = written + np.cumsum(sizes, dtype=np.int64)
    np.frombuffer(out_offsets, np.int32)[first_row + 1 : stop_row + 1] = stops
    if not len(stops) or stops[-1] == written:
        return written
    _copy_all(np.frombuffer(region, np.uint8), rows[:, field], np.frombuffer(out, np.uint8), stops - sizes, sizes)
    return int(stops[-1])


def _copy_all(source: Bytes, begins: Int32s, target: Bytes, places: Int64s, sizes: Int32s) -> None:
    """Copy strings of different sizes with a few calls of numpy."""
    # A string of n bytes is the first 2^k and the last 2^k of them, which overlap, where 2^k <= n < 2^(k+1): so all
    # strings with one k are two gathers of rows of 2^k bytes.
    magnitudes = np.frexp(sizes)[1]
    for magnitude in np.unique(magnitudes[sizes > 0]).tolist():
        chunk = 1 << magnitude - 1
        chosen = np.flatnonzero(magnitudes == magnitude)
        begin, place, rest = begins[chosen], places[chosen], sizes[chosen] - chunk
        reading = np.lib.stride_tricks.sliding_window_view(source, chunk)
        writing = np.lib.stride_tricks.sliding_window_view(target, chunk, writeable=True)
        writing[place] = reading[begin]
        if rest.any():
            writing[place + rest] = reading[begin + rest]


def _column(spans: memoryview, width: int, field: int, count: int) -> Int32s:
    return np.frombuffer(spans, np.int32).reshape(-1, width)[:count, field]
