"""Arrow columns -> the payload of each row for a producer, in the columns of Spark's Kafka sink.

Laws: a column of another name or type is refused with the ones that are expected; no object is made of a row.
Source: Spark's Structured Streaming + Kafka guide, writing; the Arrow columnar format.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kohort.errors import ConfigError
from kohort.records.batch import encode_headers
from kohort.records.build_parts import VARINTS
from kohort.records.span_kernels import SpanColumn, write_tails

_COLUMNS: Final = ("key", "value", "topic", "partition", "timestamp", "headers")
_NO_BYTES: Final = memoryview(b"")
#: What a header takes at most beside name and content, and the headers of a row beside these.
_HEADER_ROOM_BYTES: Final = 10


class Payloads(NamedTuple):
    """The payloads of one topic's rows."""

    topic: str
    row_count: int
    keys: SpanColumn | None
    values: SpanColumn
    #: int64[row_count], those that rows name, -1 where one does not; `None` if there is no such column.
    partitions: memoryview | None
    #: int64[row_count], milliseconds since 1970; `None` where it is the time of sending for all.
    times: memoryview | None
    #: Encoded headers; `None` if there is no such column.
    tails: SpanColumn | None


def payloads_of(
    data: object, topic: str | None, *, time_ms: int, headers: Iterable[tuple[str, bytes | None]] = ()
) -> list[Payloads]:
    """Build the payloads of a table or record batch, topic by topic, each in the order of its rows.

    Args:
        time_ms: of rows without a timestamp, where others have one.
        headers: of every row that has a column for them, behind its own.

    Raises:
        TypeError: the data is nothing that Arrow takes, or a column has a type that cannot be sent.
        ConfigError: a column is missing or unknown, or a value is one that cannot be sent.
    """
    table = _table(data)
    unknown = [name for name in table.column_names if name not in _COLUMNS]
    if unknown or len(set(table.column_names)) < len(table.column_names):
        given = unknown[0] if unknown else "of one name twice"
        raise ConfigError(f"there cannot be a column {given}: some of {', '.join(_COLUMNS)} are expected, once each")
    if "value" not in table.column_names:
        raise ConfigError("there is no column value: it is what is sent")
    if topic is not None:
        if "topic" in table.column_names:
            raise ConfigError("topic is given, and there is a column topic, too: leave one of the two out")
        return [_payloads(topic, table, time_ms, tuple(headers))]
    if "topic" not in table.column_names:
        raise ConfigError("there is neither a topic nor a column topic: send_arrow(table, 'orders')")
    names = _cast(table.column("topic"), pa.large_string(), "topic", "text")
    if names.null_count:
        raise ConfigError("a row has no topic")
    return [_payloads(name, part, time_ms, tuple(headers)) for name, part in _by_topic(table, names)]


def _by_topic(table: pa.Table, names: pa.Array) -> list[tuple[str, pa.Table]]:
    """Group rows by topic, in their order; topics in the order of their first rows."""
    found = names.dictionary_encode()
    topics = found.dictionary.to_pylist()
    if len(topics) > 1:
        # A stable sort: rows of one topic stay in their order.
        table = table.take(pc.sort_indices(found.indices))
    parts, start = [], 0
    for name, count in zip(topics, pc.value_counts(found.indices).field("counts").to_pylist(), strict=True):
        parts.append((name, table.slice(start, count)))
        start += count
    return parts


def _table(data: object) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    raise TypeError(f"a {type(data).__name__} is no table: a pyarrow.Table, a RecordBatch or a data frame is expected")


def _payloads(topic: str, table: pa.Table, time_ms: int, headers: tuple[tuple[str, bytes | None], ...]) -> Payloads:
    has = table.column_names.__contains__
    return Payloads(
        topic,
        table.num_rows,
        spans_of(_binary(table.column("key"), "key")) if has("key") else None,
        spans_of(_binary(table.column("value"), "value")),
        _numbers(table.column("partition"), "partition", 2**31 - 1, -1) if has("partition") else None,
        _numbers(_times(table.column("timestamp")), "timestamp", 2**63 - 1, time_ms) if has("timestamp") else None,
        _tails(table.column("headers"), headers) if has("headers") else None,
    )


def _cast(column: Any, kind: pa.DataType, name: str, expected: str) -> pa.Array:
    """Cast a column and join its chunks."""
    try:
        cast = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:
        raise TypeError(f"column {name} is {column.type}: {expected} is expected ({why})") from None
    return cast.chunk(0) if cast.num_chunks == 1 else cast.combine_chunks()


def _binary(column: pa.ChunkedArray, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    known = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    if not any(check(kind) for check in (*known, pa.types.is_fixed_size_binary, pa.types.is_null)):
        raise TypeError(f"column {name} is {column.type}: binary or string is expected; serialise it first")
    return _cast(column, pa.large_binary(), name, "binary or string")


def spans_of(rows: pa.Array) -> SpanColumn:
    """Return the spans of a large binary column, without copying its bytes."""
    validity, offsets, data = rows.buffers() if len(rows) else (None, None, None)
    return SpanColumn(_bytes(data), _bytes(offsets).cast("q"), _bytes(validity), rows.offset)


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return _NO_BYTES if buffer is None else memoryview(buffer).cast("B")


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("ms", tz=column.type.tz), safe=False)
    return column


def _numbers(column: pa.ChunkedArray, name: str, maximum: int, missing: int) -> memoryview:
    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)):
        raise TypeError(f"column {name} is {column.type}: whole numbers are expected")
    numbers = _cast(column, pa.int64(), name, "whole numbers")
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= maximum:
        raise ConfigError(
            f"column {name} has values from {bounds['min']} to {bounds['max']}: 0 to {maximum} are expected"
        )
    return _integers(numbers, missing)


def _integers(numbers: pa.Array, missing: int) -> memoryview:
    """Return the numbers of an int64 column without a copy, or filled up if there are gaps."""
    if numbers.null_count:
        # A number of Python's would do, but Arrow loads pandas to look at it.
        one = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(array("q", [missing]))])
        numbers = numbers.fill_null(one[0])
    field = _bytes(numbers.buffers()[1]).cast("q")
    return field[numbers.offset : numbers.offset + len(numbers)]


def _tails(column: pa.ChunkedArray, more: tuple[tuple[str, bytes | None], ...]) -> SpanColumn:
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not pa.types.is_map(kind) and not (
        is_list
        and pa.types.is_struct(kind.value_type)
        and {"key", "value"} <= {field.name for field in kind.value_type}
    ):
        raise TypeError(f"column headers is {kind}: a list of structs of key and value is expected")
    if not is_list:
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    counts = _integers(_cast(pc.list_value_length(column), pa.int64(), "headers", "a list"), 0)
    pairs = pc.list_flatten(column)
    names, contents = pc.struct_field(pairs, "key"), pc.struct_field(pairs, "value")
    if names.null_count or not any(check(names.type) for check in (pa.types.is_string, pa.types.is_large_string)):
        raise TypeError(f"column headers is {kind}: text that is never missing is expected as key")
    fields = [_binary(names, "headers"), _binary(contents, "headers")]
    suffix = encode_headers(more)[len(VARINTS[len(more)]) :]
    room = (len(counts) + len(pairs)) * _HEADER_ROOM_BYTES + len(counts) * len(suffix)
    out = bytearray(room + sum(pc.sum(pc.binary_length(field)).as_py() or 0 for field in fields))
    ends = memoryview(bytearray(8 * (len(counts) + 1))).cast("q")
    write_tails(counts, spans_of(fields[0]), spans_of(fields[1]), suffix, len(more), out, ends)
    return SpanColumn(memoryview(out), ends, _NO_BYTES, 0)
