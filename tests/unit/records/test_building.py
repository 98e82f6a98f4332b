"""Batches as a producer builds them: the same bytes as `build_batch`, by the compiled kernels and by the plain ones."""

from __future__ import annotations

import gc
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kohort.client.producer.record_future import RecordFuture
from kohort.errors import KohortTimeoutError
from kohort.records import build_kernels
from kohort.records.batch import build_batch, encode_headers, iterate_records
from kohort.records.building import RECORD_ROOM_BYTES, build, writer_of
from kohort.records.kernel_form import plain_form

FORMS = pytest.mark.parametrize("kernels", [build_kernels, plain_form(build_kernels)], ids=["as built", "plain"])
PAYLOADS = st.one_of(st.none(), st.binary(max_size=40), st.integers(60, 20_000).map(bytes))
ROWS = st.lists(
    st.tuples(
        PAYLOADS,
        PAYLOADS,
        st.integers(0, 2**62),
        st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=9))), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def records_of(rows: list[tuple[Any, ...]]) -> list[RecordFuture]:
    records = []
    for key, value, time, headers in rows:
        record = RecordFuture("orders", key, value, time, 0)
        if headers:
            record.headers = encode_headers(headers)
        records.append(record)
    return records


def room_of(rows: list[tuple[Any, ...]]) -> int:
    carried = sum(len(key or b"") + len(value or b"") for key, value, _, _ in rows)
    headers = sum(len(name.encode()) + len(content or b"") + 10 for row in rows for name, content in row[3])
    return carried + headers + RECORD_ROOM_BYTES * len(rows)


@pytest.mark.large
@given(rows=ROWS, codec=st.sampled_from(["none", "gzip", "zstd"]))
def test_batch_is_the_one_that_the_simple_way_builds(rows: list[tuple[Any, ...]], codec: str) -> None:
    """And the records have given away what they carried."""
    records = records_of(rows)
    half = len(records) // 2
    batch = build(
        [writer_of(records[:half]), writer_of(records[half:], half)],
        count=len(records),
        base_timestamp=records[0].timestamp_ms,
        room_bytes=room_of(rows),
        compression=codec,
        level=None,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
    )
    assert batch == build_batch(rows, compression=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    assert [(each.key, each.value) for each in iterate_records(batch)] == [row[:2] for row in rows]
    assert {(record.key, record.value) for record in records} == {(None, None)}


@pytest.mark.large
@FORMS
@given(rows=ROWS, index=st.sampled_from([0, 63, 64, 8_191, 8_192, 3_000_000]))
def test_every_form_writes_the_same(kernels: ModuleType, rows: list[tuple[Any, ...]], index: int) -> None:
    """Numbers of every length."""
    outs = []
    for form in (kernels, build_kernels):
        out = bytearray(room_of(rows) + 3)
        end, latest = form.write_records(records_of(rows), index, rows[0][2], out, 3, bytes)
        assert end <= len(out)
        outs.append((bytes(out[:end]), latest))
    assert outs[0] == outs[1]
    assert outs[0][1] == max(row[2] for row in rows)


@FORMS
@given(key=st.binary(max_size=40))
def test_hash_is_that_of_another_client(kernels: ModuleType, key: bytes) -> None:
    """kafka-python carries a port of the Java hash of its own."""
    assert kernels.murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@pytest.mark.skipif(plain_form(build_kernels) is build_kernels, reason="the kernels are not compiled here")
def test_record_is_hidden_from_the_collector_until_it_may_be_in_a_cycle() -> None:
    """Looked at, failed, or with a callback."""
    looked, failed, told, kept = (RecordFuture.hidden("orders", None, b"v", 5, 25) for _ in range(4))
    assert not any(gc.is_tracked(record) for record in (looked, failed, told, kept))
    looked.add_done_callback(lambda _: None)
    failed.fail(KohortTimeoutError("late"))
    told.tell(lambda *_: None)
    told.tell(lambda *_: None)
    assert [gc.is_tracked(record) for record in (looked, failed, told, kept)] == [True, True, True, False]


def test_cycle_through_a_record_that_is_watched_is_collected() -> None:
    """A callback that refers to the record, whose end never comes."""

    class Witness:
        """Tells that it is gone."""

        gone = 0

        def __del__(self) -> None:
            Witness.gone += 1

    record = RecordFuture.hidden("orders", None, b"v", 5, 25)
    witness = Witness()
    record.add_done_callback(partial(print, record, witness))
    del record, witness
    gc.collect()
    assert Witness.gone == 1
