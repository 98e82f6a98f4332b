"""Columns of memory as records: the same bytes as of lists, by the compiled kernels and by the plain ones."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.records import build_kernels, span_kernels
from kohort.records.batch import encode_headers
from kohort.records.building import RECORD_ROOM_BYTES
from kohort.records.kernel_form import plain_form

FORMS = pytest.mark.parametrize("kernels", [span_kernels, plain_form(span_kernels)], ids=["as built", "plain"])
PAYLOADS = st.one_of(st.none(), st.binary(max_size=20), st.integers(60, 9_000).map(bytes))
ROWS = st.lists(st.tuples(PAYLOADS, PAYLOADS, st.integers(0, 2**62), st.binary(min_size=1, max_size=9)), min_size=1)
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=200))), max_size=70)


def spans(kernels: ModuleType, rows: list[bytes | None], *, first: int = 0) -> Any:
    """A column, behind so many rows that are not its own."""
    array = pa.array([b"not mine"] * first + rows, pa.large_binary())
    validity, offsets, data = array.buffers()
    views = [memoryview(b"" if each is None else each).cast("B") for each in (data, offsets, validity)]
    return kernels.SpanColumn(views[0], views[1].cast("q"), views[2], first)


def numbers(values: list[int]) -> memoryview:
    return memoryview(b"".join(value.to_bytes(8, "little", signed=True) for value in values)).cast("q")


@FORMS
@given(rows=ROWS, first=st.integers(0, 9))
def test_rows_are_cut_out(kernels: ModuleType, rows: list[tuple[Any, ...]], first: int) -> None:
    """Each with its length, wherever the column begins."""
    values = [row[0] for row in rows]
    column = spans(kernels, values, first=first)
    assert [column.cut(row) for row in range(len(rows))] == values
    assert [column.length(row) for row in range(len(rows))] == [-1 if each is None else len(each) for each in values]
    behind = column.part(len(rows) // 2)
    assert behind.cut(0) == values[len(rows) // 2]
    longest = max(len(each or b"") for each in values)
    assert kernels.first_longer(column, len(rows), longest) == -1
    if longest:
        found = kernels.first_longer(column, len(rows), longest - 1)
        assert found == next(row for row, each in enumerate(values) if len(each or b"") == longest)


@FORMS
@given(rows=ROWS, first=st.integers(0, 9), chosen=st.data())
def test_records_are_those_of_lists(kernels: ModuleType, rows: list[tuple[Any, ...]], first: int, chosen: Any) -> None:
    """All rows or some of them, with keys and without, with times, and with headers of their own or of all."""
    keys, values, times, tails = (list(column) for column in zip(*rows, strict=True))
    with_keys, with_times, with_tails = (chosen.draw(st.booleans()) for _ in range(3))
    some = chosen.draw(st.none() | st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
    stop = len(rows) if some is None else len(some)
    columns = [keys if with_keys else None, values, tails if with_tails else None]
    expected = bytearray(sum(len(each or b"") for row in rows for each in row[:2]) * 10 + 60 * len(rows) * 10)
    out = bytearray(len(expected))

    there = build_kernels.write_rows(
        columns[0], values, times if with_times else None, columns[2], b"\x00", some, 0, stop, times[0], expected, 3
    )
    here = kernels.write_spans(
        *(None if each is None else spans(kernels, each, first=first) for each in columns[:2]),
        numbers(times) if with_times else None,
        None if columns[2] is None else spans(kernels, columns[2], first=first),
        b"\x00",
        None if some is None else numbers(some),
        *(0, stop, times[0], out, 3),
    )

    assert (here, out) == (there, expected)


@FORMS
@given(rows=ROWS, limit_bytes=st.integers(1, 20_000), some=st.none() | st.just([0, 0, 0]))
def test_rows_are_measured_as_lists_are(
    kernels: ModuleType, rows: list[tuple[Any, ...]], limit_bytes: int, some: list[int] | None
) -> None:
    """At least one fits."""
    keys, values, _, tails = (list(column) for column in zip(*rows, strict=True))
    stop = len(rows) if some is None else len(some)
    there = build_kernels.measure_rows(keys, values, tails, some, 0, stop, 24, limit_bytes)
    columns = (spans(kernels, column) for column in (keys, values, tails))
    chosen = None if some is None else numbers(some)
    assert kernels.measure_spans(*columns, chosen, 0, stop, 24, limit_bytes) == there


@FORMS
@given(
    rows=st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.integers(0, 4)), min_size=1),
    count=st.integers(1, 5),
    turn=st.integers(0, 0),
    with_keys=st.booleans(),
    with_partitions=st.booleans(),
)
def test_rows_are_spread_as_lists_are(
    kernels: ModuleType, rows: list[tuple[Any, Any]], count: int, turn: int, **given: bool
) -> None:
    """By their own partition, their key, or the turn; a partition that is not there is told."""
    keys = [row[0] for row in rows] if given["with_keys"] else None
    partitions = [row[1] for row in rows] if given["with_partitions"] else None
    there = build_kernels.spread_rows(keys, partitions, len(rows), count, turn)
    homes, bounds, order = (
        memoryview(bytearray(size)).cast(code)
        for size, code in ((4 * len(rows), "i"), (8 * (count + 2), "q"), (8 * len(rows), "q"))
    )

    is_there = kernels.spread_spans(
        None if keys is None else spans(kernels, keys),
        None if partitions is None else numbers([-1 if each is None else each for each in partitions]),
        *(count, turn, homes, bounds, order),
    )

    assert bool(is_there) is bool(there)
    if is_there:
        assert [list(order[bounds[number] : bounds[number + 1]]) for number in range(count)] == there


@FORMS
@given(rows=st.lists(HEADERS, min_size=1, max_size=6), more=HEADERS)
def test_headers_are_encoded_as_of_one_record(
    kernels: ModuleType, rows: list[list[tuple[str, Any]]], more: list[tuple[str, Any]]
) -> None:
    """Those of the row, and those of all behind them."""
    pairs = [pair for row in rows for pair in row]
    names, contents = [name.encode() for name, _ in pairs], [content for _, content in pairs]
    prefix = len(encode_headers(more)) - sum(len(encode_headers([pair])) - 1 for pair in more)
    out = bytearray(sum(len(each or b"") + 10 for each in (*names, *contents)) + len(rows) * (10 + 10_000))
    ends = memoryview(bytearray(8 * (len(rows) + 1))).cast("q")

    end = kernels.write_tails(
        numbers([len(row) for row in rows]),
        *(spans(kernels, names), spans(kernels, contents), encode_headers(more)[prefix:], len(more), out, ends),
    )

    assert end == ends[len(rows)]
    for place, row in enumerate(rows):
        assert bytes(out[ends[place] : ends[place + 1]]) == encode_headers([*row, *more])


def test_room_of_a_record_is_enough() -> None:
    """The longest numbers that a record can have: what `RECORD_ROOM_BYTES` is for."""
    out = bytearray(RECORD_ROOM_BYTES)
    column = spans(span_kernels, [b"", b""])
    at, _ = span_kernels.write_spans(column, column, numbers([0, 2**62]), None, b"\x00", None, 1, 2, 0, out, 0)
    assert at <= len(out)
