"""Records as tuples straight from the bytes, with every implementation of the kernels."""

from __future__ import annotations

import copy
import gc
import pickle
from itertools import chain
from struct import pack_into
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.ids import TopicPartition
from kohort.records import row_kernels
from kohort.records.batch import Record, build_batch
from kohort.records.choice import KernelSet, is_compiled, kernels_named
from kohort.records.columns import gather_columns
from kohort.records.kernel_form import is_compiled_form
from kohort.records.scan import build_rows, scan_batches

from .strategies import CODECS, RECORDS, RUNS, with_right_crc

NAMES = ("c", "numpy", "python") if is_compiled() else ("numpy", "python")
ORDERS = TopicPartition("orders", 3)


class Row(NamedTuple):
    """What an application gets."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


@pytest.fixture(params=NAMES)
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    return kernels_named(request.param)


def rows_of(buffer: bytes | bytearray, kernels: KernelSet, **asked: int) -> list[Row]:
    scanned = scan_batches(buffer, kernels=kernels, **asked)  # type: ignore[arg-type]
    return build_rows(Row, ORDERS, scanned, 0, len(scanned))


def batches_of(groups: list[tuple[str, list[Any]]]) -> tuple[bytes, list[Row]]:
    """Batches at consecutive offsets from 100 on, each under its own leader, and their rows."""
    buffers, rows, offset = [], [], 100
    for epoch, (codec, inputs) in enumerate(groups):
        buffers.append(build_batch(inputs, base_offset=offset, compression=codec, partition_leader_epoch=epoch))
        rows += [Row(*ORDERS, offset + i, r[2], 0, r[0], r[1], tuple(r[3]), epoch) for i, r in enumerate(inputs)]
        offset += len(inputs)
    return b"".join(buffers), rows


GROUPS = st.lists(st.tuples(st.sampled_from(CODECS), st.one_of(RECORDS, RUNS)), min_size=1, max_size=5)


@pytest.mark.large
@pytest.mark.parametrize("name", NAMES)
@given(groups=GROUPS, data=st.data())
@settings(max_examples=60)
def test_rows_are_the_records_of_all_batches(
    name: str, groups: list[tuple[str, list[Any]]], data: st.DataObject
) -> None:
    """From any offset, and any stretch of them."""
    buffer, rows = batches_of(groups)
    start = data.draw(st.integers(90, rows[-1].offset + 5))
    scanned = scan_batches(buffer, start_offset=start, kernels=kernels_named(name))
    wanted = [row for row in rows if row.offset >= start]
    first = data.draw(st.integers(0, len(wanted)))
    last = data.draw(st.integers(first, len(wanted)))

    found = build_rows(Row, ORDERS, scanned, first, last)

    assert found == wanted[first:last]
    assert all(type(row) is Row for row in found)


@pytest.mark.large
@pytest.mark.parametrize("name", NAMES)
@given(runs=st.lists(GROUPS, min_size=1, max_size=4), data=st.data())
@settings(max_examples=40)
def test_columns_of_parts_of_several_scans_stand_behind_each_other(
    name: str, runs: list[list[tuple[str, list[Any]]]], data: st.DataObject
) -> None:
    """What becomes one Arrow batch."""
    slices, wanted = [], []
    for groups in runs:
        buffer, rows = batches_of(groups)
        scanned = scan_batches(buffer, kernels=kernels_named(name))
        start = data.draw(st.integers(0, len(rows)))
        stop = data.draw(st.integers(start, len(rows)))
        slices.append((scanned, start, stop))
        wanted += rows[start:stop]

    columns = gather_columns(slices)

    assert columns.records() == [Record(row.offset, row.timestamp, row.key, row.value, row.headers) for row in wanted]
    starts = [0, *(stop for stop, _, _ in columns.batches)]
    epochs = [[epoch] * (stop - start) for start, (stop, epoch, _) in zip(starts, columns.batches, strict=False)]
    assert list(chain.from_iterable(epochs)) == [row.leader_epoch for row in wanted]
    assert columns.timestamp_types() == [0] * len(wanted)
    last, _, stop = slices[-1]
    if stop:
        assert columns.next_offset == last.offsets[stop - 1] + 1


def test_a_row_owns_what_it_holds(kernels: KernelSet) -> None:
    buffer = bytearray(build_batch([(b"key", b"value", 7, [("name", b"content")])]))
    rows = rows_of(buffer, kernels)
    buffer[:] = bytes(len(buffer))

    assert rows == [Row("orders", 3, 0, 7, 0, b"key", b"value", (("name", b"content"),), -1)]
    assert pickle.loads(pickle.dumps(rows)) == copy.deepcopy(rows) == rows


def test_time_of_the_broker_is_that_of_its_batch(kernels: KernelSet) -> None:
    """LogAppendTime: bit 3 of the attributes; every record has the batch's time."""
    inputs = [(None, b"v", time, ()) for time in (5, 9, 7)]
    appended = bytearray(build_batch(inputs, base_offset=3))
    appended[22] |= 0x08
    rows = rows_of(build_batch(inputs) + with_right_crc(appended), kernels)

    assert [(row.timestamp, row.timestamp_type) for row in rows] == [(5, 0), (9, 0), (7, 0), (9, 1), (9, 1), (9, 1)]


def test_header_name_that_is_not_utf8_is_repaired(kernels: KernelSet) -> None:
    """As Java does it: it must not stop a consumer."""
    buffer = bytearray(build_batch([(None, b"v", 0, [("name", None)])]))
    buffer[buffer.index(b"name")] = 0xFF

    assert rows_of(with_right_crc(buffer), kernels)[0].headers == (("\ufffdame", None),)


def test_numbers_at_the_ends_of_their_range_survive(kernels: KernelSet) -> None:
    """64 bits."""
    batch = bytearray(build_batch([(b"", None, 0, ())], partition_leader_epoch=(1 << 31) - 1))
    pack_into(">q", batch, 0, (1 << 63) - 3)
    for base in (-(1 << 63), (1 << 63) - 1):
        pack_into(">q", batch, 27, base)
        (row,) = rows_of(with_right_crc(batch), kernels)
        assert (row.offset, row.timestamp, row.leader_epoch) == ((1 << 63) - 3, base, (1 << 31) - 1)
        assert (row.key, row.value) == (b"", None)


@pytest.mark.skipif(not is_compiled_form(row_kernels), reason="the kernel of rows is not compiled")
def test_the_collector_need_not_walk_over_rows() -> None:
    """A list of ten thousand records would be walked over again and again while the next one is made."""
    rows = rows_of(build_batch([(b"k", b"v", 1, [("h", b"1")])] * 50), kernels_named("c"))

    assert not any(map(gc.is_tracked, rows))
    assert len(set(chain.from_iterable(rows[:2]))) > 1, "they are whole all the same"
    del rows
    gc.collect()
