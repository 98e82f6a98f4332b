"""Batches built here and by others read back as the records that went in."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given, settings
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from kohort.errors import ConfigError, CorruptRecordError, LocalProtocolError
from kohort.records.batch import Record, build_batch, iterate_records
from kohort.records.header import parse_header

from .strategies import CODECS, RECORDS, with_body

PLAIN = [
    (b"key", b"value", 1_000, [("name", b"content"), ("nothing", None)]),
    (None, None, 900, []),
    (b"", b"", -1, []),
]


def records_of(inputs: list[Any], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + i, timestamp, key, value, tuple(headers))
        for i, (key, value, timestamp, headers) in enumerate(inputs)
    ]


@pytest.mark.parametrize("codec", CODECS)
@given(inputs=RECORDS)
@settings(max_examples=40)
def test_what_is_built_reads_back(codec: str, inputs: list[Any]) -> None:
    batch = build_batch(inputs, base_offset=12, compression=codec)
    assert list(iterate_records(batch)) == records_of(inputs, 12)
    assert parse_header(batch).compression == codec


@pytest.mark.parametrize("codec", CODECS)
@given(inputs=RECORDS)
@settings(max_examples=15)
def test_aiokafka_reads_what_is_built(codec: str, inputs: list[Any]) -> None:
    batch = AiokafkaBatch(build_batch(inputs, base_offset=3, compression=codec))
    assert batch.validate_crc()
    seen = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert seen == records_of(inputs, 3)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@given(inputs=RECORDS)
@settings(max_examples=15)
def test_kafka_python_reads_what_is_built(codec: str, inputs: list[Any]) -> None:
    batch = KafkaPythonBatch(build_batch(inputs, base_offset=3, compression=codec))
    assert batch.validate_crc()
    seen = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert seen == records_of(inputs, 3)


@pytest.mark.parametrize("codec", [0, 1])
def test_what_kafka_python_builds_is_read(codec: int) -> None:
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for delta, (key, value, timestamp, headers) in enumerate(PLAIN * 30):
        builder.append(delta, timestamp, key, value, headers)
    batch = bytes(builder.build())
    assert list(iterate_records(batch)) == records_of(PLAIN * 30)
    header = parse_header(batch)
    assert (header.producer_id, header.base_sequence, header.is_transactional) == (7, 5, True)


def test_control_batches_are_given_out_only_when_asked_for() -> None:
    marker = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0", 5, [])], base_offset=3, is_control=True)
    batches = build_batch(PLAIN) + marker + build_batch(PLAIN, base_offset=4)
    assert [record.offset for record in iterate_records(batches)] == [0, 1, 2, 4, 5, 6]
    assert [record.offset for record in iterate_records(batches, include_control=True)] == [0, 1, 2, 3, 4, 5, 6]


def test_records_in_front_of_a_damaged_batch_are_given_out() -> None:
    damaged = bytearray(build_batch(PLAIN, base_offset=3))
    damaged[-1] ^= 1
    reading = iterate_records(build_batch(PLAIN) + damaged)
    assert [next(reading).offset for _ in PLAIN] == [0, 1, 2]
    with pytest.raises(CorruptRecordError, match="offset 3 is damaged"):
        next(reading)


def test_crc_can_be_left_to_the_caller() -> None:
    batch = bytearray(build_batch(PLAIN))
    batch[17] ^= 1
    with pytest.raises(CorruptRecordError):
        list(iterate_records(batch))
    assert list(iterate_records(batch, check_crcs=False)) == records_of(PLAIN)


def test_broker_time_replaces_the_producers() -> None:
    batch = bytearray(build_batch(PLAIN))
    batch[22] |= 0x08
    assert {record.timestamp for record in iterate_records(batch, check_crcs=False)} == {1_000}


def test_header_name_that_is_not_utf8_is_repaired() -> None:
    """Java's decoder puts U+FFFD for what it cannot read; so a record never stops a consumer."""
    batch = bytearray(build_batch([(None, b"v", 0, [("name", b"1")])]))
    batch[batch.index(b"name")] = 0xFF
    (record,) = iterate_records(batch, check_crcs=False)
    assert record.headers == (("\ufffdame", b"1"),)


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    batch = build_batch([(None, bytes(1 << 20), 0, [])] * 4, compression="zstd")
    with pytest.raises(CorruptRecordError, match="more than the 1048576 bytes"):
        list(iterate_records(batch, limit_bytes=1 << 20))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "more than its bytes can hold"),
        (b"\x0c\0\0\0\1\1\0extra", "bytes behind its last record"),
        (b"\x0a\0\0\0\1\1\0", "claims 5 bytes"),
        (b"\x0d\0\0\0\1\1\0", "claims -7 bytes"),
        (b"\x7e\0\0\0\1\1\0", "claims 63 bytes"),
        (b"\x0c\0\0\2\1\1\0", "lies outside"),
        (b"\x0c\0\0\1\1\1\0", "lies outside"),
        (b"\x0c\0\0\0\3\1\0", "field of a record claims -2"),
        (b"\x0c\0\0\0\x7e\1\0", "field of a record claims 63"),
        (b"\x0c\0\0\0\1\1\2", "claims 1 headers"),
        (b"\x0c\0\0\0\1\1\1", "claims -1 headers"),
        (b"\x10\0\0\0\1\1\2\1\1", "header without a name"),
        (b"\x0e\0\0\0\1\1\0\0", "ends elsewhere"),
        (b"\xff" * 11 + b"\0" * 8, "more than 64 bits"),
        (b"\xff" * 9, "is damaged"),
    ],
)
def test_impossible_records_are_refused(body: bytes, says: str) -> None:
    batch = with_body(build_batch([(None, None, 0, [])]), body)
    with pytest.raises(CorruptRecordError, match=says):
        list(iterate_records(batch))


def test_offsets_that_do_not_ascend_are_refused() -> None:
    one = b"\x0c\0\0\0\1\1\0"
    with pytest.raises(CorruptRecordError, match="do not ascend"):
        list(iterate_records(with_body(build_batch([(None, None, 0, [])]), one * 2, count=2)))


def test_empty_batch_is_not_built() -> None:
    with pytest.raises(LocalProtocolError, match="at least one record"):
        build_batch([])


def test_unknown_codec_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown compression 'lzo'; choose one of none, gzip"):
        build_batch(PLAIN, compression="lzo")
