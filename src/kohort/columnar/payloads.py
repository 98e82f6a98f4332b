"""Arrow columns -> what a producer sends of each row, in the columns of Spark's Kafka sink.

Laws: a column of another name or type is refused with the ones that are expected; missing rows are `None`.
Source: Spark's Structured Streaming + Kafka guide, writing; the Arrow columnar format.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kohort.errors import ConfigError
from kohort.records.batch import encode_headers
from kohort.records.build_kernels import slice_column

_COLUMNS: Final = ("key", "value", "topic", "partition", "timestamp", "headers")
_NOTHING: Final = b""


class Payloads(NamedTuple):
    """Rows of one topic."""

    topic: str
    keys: list[bytes | None] | None
    values: list[bytes | None]
    #: Those that rows name; `None` if there is no such column.
    partitions: list[int | None] | None
    #: Milliseconds since 1970; `None` where it is the time of sending.
    times: list[int | None] | None
    #: Encoded headers.
    tails: list[bytes] | None


def payloads_of(data: object, topic: str | None) -> list[Payloads]:
    """The rows of a table, a record batch, or what can be made one, topic by topic, each in its order.

    Raises:
        TypeError: it is nothing that Arrow takes, or a column has a type that cannot be sent.
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
        return [_payloads(topic, table)]
    if "topic" not in table.column_names:
        raise ConfigError("there is neither a topic nor a column topic: send_arrow(table, 'orders')")
    names = _cast(table.column("topic"), pa.large_string(), "topic", "text")
    if names.null_count:
        raise ConfigError("a row has no topic")
    # Compared with scalars of Arrow's own: what it makes of Python's values loads pandas, if it is there.
    return [_payloads(name.as_py(), table.filter(pc.equal(names, name))) for name in pc.unique(names)]


def _table(data: object) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    raise TypeError(f"a {type(data).__name__} is no table: a pyarrow.Table, a RecordBatch or a data frame is expected")


def _payloads(topic: str, table: pa.Table) -> Payloads:
    has = table.column_names.__contains__
    return Payloads(
        topic,
        _binary(table.column("key"), "key") if has("key") else None,
        _binary(table.column("value"), "value"),
        _numbers(table.column("partition"), "partition", 2**31 - 1) if has("partition") else None,
        _numbers(_times(table.column("timestamp")), "timestamp", 2**63 - 1) if has("timestamp") else None,
        _tails(table.column("headers")) if has("headers") else None,
    )


def _cast(column: Any, kind: pa.DataType, name: str, expected: str) -> Any:
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:
        raise TypeError(f"column {name} is {column.type}: {expected} is expected ({why})") from None


def _binary(column: pa.ChunkedArray, name: str) -> list[bytes | None]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    known = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    if not any(check(kind) for check in (*known, pa.types.is_fixed_size_binary, pa.types.is_null)):
        raise TypeError(f"column {name} is {column.type}: binary or string is expected; serialise it first")
    rows: list[bytes | None] = []
    for chunk in _cast(column, pa.large_binary(), name, "binary or string").chunks:
        if len(chunk):
            validity, offsets, data = chunk.buffers()
            rows += slice_column(
                memoryview(_NOTHING if data is None else data).cast("B"),
                memoryview(offsets).cast("B").cast("q"),
                memoryview(_NOTHING if validity is None else validity).cast("B"),
                chunk.offset,
                chunk.offset + len(chunk),
            )
    return rows


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("ms", tz=column.type.tz), safe=False)
    return column


def _numbers(column: pa.ChunkedArray, name: str, maximum: int) -> list[int | None]:
    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)):
        raise TypeError(f"column {name} is {column.type}: whole numbers are expected")
    numbers = _cast(column, pa.int64(), name, "whole numbers")
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= maximum:
        raise ConfigError(
            f"column {name} has values from {bounds['min']} to {bounds['max']}: 0 to {maximum} are expected"
        )
    if numbers.null_count:
        found: list[int | None] = numbers.to_pylist()
        return found
    rows: list[int | None] = []
    for chunk in numbers.chunks:
        if len(chunk):
            field = memoryview(chunk.buffers()[1]).cast("B").cast("q")
            rows += field[chunk.offset : chunk.offset + len(chunk)].tolist()
    return rows


def _tails(column: pa.ChunkedArray) -> list[bytes]:
    kind = column.type
    is_map = pa.types.is_map(kind)
    if not is_map and not (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and {"key", "value"} <= {field.name for field in kind.value_type}
    ):
        raise TypeError(f"column headers is {kind}: a list of structs of key and value is expected")
    return [encode_headers(_pair(each, is_map=is_map) for each in row or ()) for row in column.to_pylist()]


def _pair(header: Any, *, is_map: bool) -> tuple[str, bytes | None]:
    name, content = header if is_map else (header["key"], header["value"])
    if isinstance(content, str):
        content = content.encode()
    if not isinstance(name, str) or not isinstance(content, bytes | None):
        raise TypeError(f"a header cannot be {header!r}: text and binary are expected")
    return name, content
