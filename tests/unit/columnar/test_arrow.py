"""Arrow batches in Spark's Kafka schema."""

from __future__ import annotations

from datetime import UTC, datetime
from struct import pack_into

import pyarrow as pa
import pytest
from crc32c import crc32c

from kohort.columnar import DEFAULT_COLUMNS, SCHEMA, schema_of, to_record_batch
from kohort.errors import ConfigError, CorruptRecordError
from kohort.records.batch import build_batch
from kohort.records.choice import is_compiled, kernels_named
from kohort.records.columns import RecordColumns, gather_columns
from kohort.records.scan import scan_batches
from support.builders.record_columns import decode_columns

NAMES = ("c", "numpy", "python") if is_compiled() else ("numpy", "python")
EVERY = (*DEFAULT_COLUMNS, "headers")
INPUTS = [
    (b"key", b"value", 1_700_000_000_123, [("name", b"content"), ("nothing", None)]),
    (None, None, -1, []),
    (b"", b"", 0, [("ü", b"")]),
]


def of_one(columns: RecordColumns, **asked: object) -> pa.RecordBatch:
    return to_record_batch(columns, runs=[("orders", 3, len(columns))], **asked)  # type: ignore[arg-type]


def table_of(buffer: bytes, **asked: object) -> pa.RecordBatch:
    batch = of_one(decode_columns(buffer), **asked)
    batch.validate(full=True)
    return batch


def with_broker_time(batch: bytes) -> bytes:
    marked = bytearray(batch)
    marked[22] |= 0x08
    pack_into(">I", marked, 17, crc32c(bytes(marked[21:])))
    return bytes(marked)


def test_schema_is_what_spark_compares_with() -> None:
    batch = table_of(build_batch(INPUTS), include=EVERY)
    kinds = ["binary", "binary", "string", "int32", "int64", "timestamp[us, tz=UTC]", "int32"]
    assert [str(field.type) for field in batch.schema][:7] == kinds
    assert str(batch.schema.field("headers").type) == "list<element: struct<key: string, value: binary>>"
    assert batch.schema.names == list(EVERY)
    assert all(field.nullable for field in batch.schema)
    assert batch.schema == SCHEMA


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_are_the_records(name: str, codec: str) -> None:
    columns = decode_columns(build_batch(INPUTS, base_offset=7, compression=codec), kernels=kernels_named(name))
    rows = of_one(columns, include=EVERY).to_pylist()
    assert [row["key"] for row in rows] == [b"key", None, b""]
    assert [row["value"] for row in rows] == [b"value", None, b""]
    assert [row["offset"] for row in rows] == [7, 8, 9]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("orders", 3, 0)}
    assert rows[0]["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert rows[1]["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    # Spark gives null, not an empty list, for a record without headers.
    assert [row["headers"] for row in rows] == [
        [{"key": "name", "value": b"content"}, {"key": "nothing", "value": None}],
        None,
        [{"key": "ü", "value": b""}],
    ]


def test_columns_come_in_the_order_asked_for() -> None:
    batch = table_of(build_batch(INPUTS), include=("offset", "value"))
    assert batch.schema.names == ["offset", "value"]
    assert batch.schema == schema_of(("offset", "value"))


def test_rows_can_be_counted_without_a_column() -> None:
    assert table_of(build_batch(INPUTS), include=()).num_rows == 3


def test_columns_that_were_not_decoded_need_not_be() -> None:
    columns = decode_columns(build_batch(INPUTS), with_keys=False, with_values=False, with_headers=False)
    batch = of_one(columns, include=("offset", "timestamp"))
    assert batch.column("offset").to_pylist() == [0, 1, 2]


def test_no_records_are_an_empty_batch_of_the_same_schema() -> None:
    batch = table_of(b"", include=EVERY)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_records_without_headers_are_all_null() -> None:
    batch = table_of(build_batch([(None, b"v", 0, [])] * 5), include=("headers",))
    assert batch.column("headers").null_count == 5


def test_records_of_several_partitions_stand_in_one_batch() -> None:
    """Small pieces are not worth a batch each."""
    runs = [("orders", 0, 2), ("orders", 1, 3), ("prices", 0, 3)]
    scanned = [scan_batches(build_batch(INPUTS, base_offset=10 * number)) for number in range(3)]
    columns = gather_columns([(scanned[0], 1, 3), (scanned[1], 0, 3), (scanned[2], 0, 3)])
    batch = to_record_batch(columns, runs=runs, include=EVERY)

    batch.validate(full=True)
    assert batch.column("topic").to_pylist() == ["orders"] * 5 + ["prices"] * 3
    assert batch.column("partition").to_pylist() == [0, 0, 1, 1, 1, 0, 0, 0]
    assert batch.column("offset").to_pylist() == [1, 2, 10, 11, 12, 20, 21, 22]
    assert batch.column("key").to_pylist() == [None, b"", *[b"key", None, b""] * 2]
    assert [len(each or ()) for each in batch.column("headers").to_pylist()] == [0, 1, 2, 0, 1, 2, 0, 1]


def test_broker_time_shows_as_type_1() -> None:
    buffer = build_batch(INPUTS) + with_broker_time(build_batch(INPUTS, base_offset=3))
    assert table_of(buffer).column("timestampType").to_pylist() == [0, 0, 0, 1, 1, 1]
    alone = table_of(with_broker_time(build_batch(INPUTS)))
    assert alone.column("timestampType").to_pylist() == [1, 1, 1]


def test_values_share_the_memory_of_the_columns() -> None:
    columns = decode_columns(build_batch(INPUTS))
    assert columns.values is not None
    values = of_one(columns).column("value")
    assert values.buffers()[2].address == pa.py_buffer(columns.values.data).address


def test_time_beyond_microseconds_is_refused_by_its_offset() -> None:
    batch = build_batch([(None, b"v", 5, []), (None, b"v", 1 << 62, [])], base_offset=40)
    with pytest.raises(CorruptRecordError, match="offset 41 has the time 4611686018427387904 ms"):
        table_of(batch)
    assert table_of(batch, include=("offset", "value")).num_rows == 2


def test_header_name_that_is_not_utf8_is_repaired() -> None:
    buffer = bytearray(build_batch([(None, b"v", 0, [("name", b"1")])]))
    buffer[buffer.index(b"name")] = 0xFF
    columns = decode_columns(buffer, check_crcs=False)
    batch = of_one(columns, include=("headers",))
    batch.validate(full=True)
    assert batch.to_pylist() == [{"headers": [{"key": "\ufffdame", "value": b"1"}]}]


@pytest.mark.parametrize(
    ("include", "says"),
    [(("key", "price"), "unknown column 'price'; choose from key"), (("key", "key"), "named twice")],
)
def test_columns_that_do_not_exist_are_refused(include: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        schema_of(include)
