"""Record columns -> one `pyarrow.RecordBatch` in the schema of Spark's Kafka source.

Laws: types are exactly those that Spark compares with (binary, string, int32, int64, timestamp[us, UTC]), every
field nullable; key, value and offsets share the memory of the columns. Arrays are made of buffers and of other arrays:
what Arrow makes of Python's values loads pandas where it is installed, a third of a second and 55 MB of memory.
Source: Spark's Structured Streaming + Kafka guide, table of columns; the Arrow columnar format.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa

from kohort.errors import ConfigError, CorruptRecordError
from kohort.records.arrays import blank
from kohort.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from kohort.records.row_kernels import to_microseconds

#: Topic, partition, and how many rows of them stand behind each other.
Run: TypeAlias = tuple[str, int, int]
#: Small arrays are not worth the megabytes that Arrow's own pool begins with.
_SMALL_POOL: Final = pa.system_memory_pool()
_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

#: Every column that there is, in Spark's order.
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.field("element", _HEADER_TYPE))),
    ]
)
#: Spark's columns unless headers are asked for.
DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def schema_of(include: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """Return the schema of these columns, in the order in which they are named.

    Raises:
        ConfigError: a name that is no column, or is named twice.
    """
    return _schema_of(tuple(include))


@lru_cache(maxsize=32)
def _schema_of(include: tuple[str, ...]) -> pa.Schema:
    for name in include:
        if name not in SCHEMA.names:
            raise ConfigError(f"unknown column {name!r}; choose from {', '.join(SCHEMA.names)}")
    if len(set(include)) != len(include):
        raise ConfigError(f"a column is named twice: {', '.join(include)}")
    return pa.schema([SCHEMA.field(name) for name in include])


def to_record_batch(
    columns: RecordColumns, *, runs: Sequence[Run], include: Sequence[str] = DEFAULT_COLUMNS
) -> pa.RecordBatch:
    """Convert the columns to one Arrow batch of n rows.

    Args:
        columns: n records; must have been decoded with the columns that `include` names.
        runs: (topic, partition, rows) of records that stand behind each other, n rows in all.
        include: names of columns, in order; `headers` is the eighth. A record without headers has null there.

    Raises:
        ConfigError: a name that is no column.
        CorruptRecordError: a time that no timestamp in microseconds can hold, and `timestamp` is asked for.
    """
    schema = _schema_of(tuple(include))
    arrays = [_array(name, columns, runs) for name in include]
    if not arrays:
        # Spark counts rows without asking for a column.
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), len(columns), [None]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(name: str, columns: RecordColumns, runs: Sequence[Run]) -> pa.Array:
    rows = len(columns)
    match name:
        case "key":
            return _binary(_decoded(columns.keys, name), pa.binary())
        case "value":
            return _binary(_decoded(columns.values, name), pa.binary())
        case "topic":
            return _repeated(pa.string(), [(topic, count) for topic, _, count in runs])
        case "partition":
            return _repeated(pa.int32(), [(partition, count) for _, partition, count in runs])
        case "offset":
            return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)])
        case "timestamp":
            return _timestamps(columns)
        case "timestampType":
            return _timestamp_types(columns)
        case _:
            return _headers(columns.headers, rows)


def _repeated(kind: pa.DataType, runs: Sequence[tuple[str | int, int]]) -> pa.Array:
    parts = [_constant(kind, value, (count - 1).bit_length()).slice(0, count) for value, count in runs if count]
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts, memory_pool=_SMALL_POOL) if parts else pa.nulls(0, kind)


@lru_cache(maxsize=32)
def _constant(kind: pa.DataType, value: str | int, bits: int) -> pa.Array:
    """Return an array of the same value, 2 ** bits times."""
    if isinstance(value, str):
        data = value.encode()
        buffers = [None, pa.py_buffer(array("i", (0, len(data)))), pa.py_buffer(data)]
    else:
        buffers = [None, pa.py_buffer(array("i", (value,)))]
    # Batches share the array, which is quicker than to ask Arrow for each.
    return pa.repeat(pa.Array.from_buffers(kind, 1, buffers)[0], 1 << bits, memory_pool=_SMALL_POOL)


def _decoded(column: BinaryColumn | None, name: str) -> BinaryColumn:
    assert column is not None, f"the records were decoded without their {name}"
    return column


def _binary(column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column), buffers, column.null_count)


def _timestamps(columns: RecordColumns) -> pa.Array:
    """Convert Kafka's milliseconds to Spark's microseconds."""
    times = columns.timestamps
    microseconds = blank("q", len(times))
    row = to_microseconds(times, microseconds)
    if row < len(times):
        raise CorruptRecordError(
            f"the record at offset {columns.offsets[row]} has the time {times[row]} ms, "
            "which no timestamp in microseconds can hold; read without the column timestamp"
        )
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(times), [None, pa.py_buffer(microseconds)])


def _timestamp_types(columns: RecordColumns) -> pa.Array:
    kinds = {kind for _, _, kind in columns.batches}
    if len(kinds) <= 1:
        return _repeated(pa.int32(), [(kinds.pop() if kinds else 0, len(columns))])
    # Only a topic whose message.timestamp.type was changed has both.
    types = array("i", columns.timestamp_types())
    return pa.Array.from_buffers(pa.int32(), len(types), [None, pa.py_buffer(types)])


def _headers(headers: HeaderColumn | None, rows: int) -> pa.Array:
    kind = SCHEMA.field("headers").type
    if headers is None:
        return pa.nulls(rows, kind)
    names = _binary(headers.keys, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        # A name that is not UTF-8 is repaired, as Java does it: it must not stop a query.
        texts = [(name or b"").decode("utf-8", "replace") for name in headers.keys.to_list()]
        names = pa.array(texts, pa.string())
    pairs = pa.StructArray.from_arrays([names, _binary(headers.values, pa.binary())], fields=list(_HEADER_TYPE))
    bounds = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(headers.row_offsets)])
    # Takes longer to load than all else here, and is needed where there are headers only.
    import pyarrow.compute as pc

    has_none = pc.equal(bounds.slice(0, rows), bounds.slice(1))
    return pa.ListArray.from_arrays(bounds, pairs, type=kind, mask=has_none)
