"""Columns of whole fetch responses, with every implementation of the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from struct import pack_into
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptRecordError
from kohort.records.batch import Record, build_batch, iterate_records
from kohort.records.choice import KernelSet, is_compiled, kernels_named
from support.builders.record_columns import decode_columns

from .strategies import CODECS, RECORDS, RUNS, with_body, with_right_crc

NAMES = ("c", "numpy", "python") if is_compiled() else ("numpy", "python")
PLAIN = [
    (b"key", b"value", 1_000, [("name", b"content"), ("nothing", None)]),
    (None, None, 900, []),
    (b"", b"", -1, []),
]
ONE = b"\x0c\0\0\0\1\1\0"


@pytest.fixture(params=NAMES)
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    return kernels_named(request.param)


def batches_of(groups: list[tuple[str, list[Any]]]) -> tuple[bytes, list[Record]]:
    """Batches at consecutive offsets from 100 on, and their records."""
    buffers, records, offset = [], [], 100
    for codec, inputs in groups:
        buffers.append(build_batch(inputs, base_offset=offset, compression=codec))
        records += [Record(offset + i, r[2], r[0], r[1], tuple(r[3])) for i, r in enumerate(inputs)]
        offset += len(inputs)
    return b"".join(buffers), records


GROUPS = st.lists(st.tuples(st.sampled_from(CODECS), st.one_of(RECORDS, RUNS)), min_size=1, max_size=5)


@pytest.mark.large
@pytest.mark.parametrize("name", NAMES)
@given(groups=GROUPS, data=st.data())
@settings(max_examples=60)
def test_columns_hold_the_records_of_all_batches(
    name: str, groups: list[tuple[str, list[Any]]], data: st.DataObject
) -> None:
    buffer, records = batches_of(groups)
    start = data.draw(st.integers(90, records[-1].offset + 5))
    columns = decode_columns(buffer + buffer[:70], start_offset=start, kernels=kernels_named(name))
    wanted = [record for record in records if record.offset >= start]
    assert columns.records() == wanted
    assert columns.next_offset == max(start, records[-1].offset + 1)
    assert columns.consumed_bytes == len(buffer)
    first = data.draw(st.integers(0, len(wanted)))
    last = data.draw(st.integers(first, len(wanted)))
    assert columns.records(first, last) == wanted[first:last]


def test_what_is_behind_the_whole_batches_is_left_for_the_next_fetch(kernels: KernelSet) -> None:
    batch = build_batch(PLAIN, base_offset=7)
    for cut in range(len(batch)):
        columns = decode_columns(batch + batch[:cut], kernels=kernels)
        assert (len(columns), columns.consumed_bytes, columns.next_offset) == (3, len(batch), 10)
    for cut in range(len(batch)):
        columns = decode_columns(batch[:cut], start_offset=5, kernels=kernels)
        assert (len(columns), columns.consumed_bytes, columns.next_offset) == (0, 0, 5)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_and_not_kept(kernels: KernelSet, kind: type) -> None:
    buffer = bytearray(build_batch(PLAIN))
    columns = decode_columns(kind(buffer), kernels=kernels)
    buffer[:] = bytes(len(buffer))
    assert [record.value for record in columns.records()] == [b"value", None, b""]


def test_control_batches_have_no_rows_but_move_the_offset(kernels: KernelSet) -> None:
    marker = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0", 5, [])], base_offset=3, is_control=True)
    columns = decode_columns(build_batch(PLAIN) + marker, kernels=kernels)
    assert list(columns.offsets) == [0, 1, 2]
    assert columns.next_offset == 4
    behind = decode_columns(marker + build_batch(PLAIN, base_offset=4), start_offset=3, kernels=kernels)
    assert list(behind.offsets) == [4, 5, 6]


def test_compacted_tail_moves_the_offset(kernels: KernelSet) -> None:
    """Compaction keeps a batch's last offset when it removes the last records, or all of them."""
    batch = bytearray(build_batch(PLAIN, base_offset=20))
    pack_into(">i", batch, 23, 9)
    assert decode_columns(with_right_crc(batch), kernels=kernels).next_offset == 30
    empty = with_body(bytes(batch), b"", count=0)
    columns = decode_columns(empty + build_batch(PLAIN, base_offset=40), start_offset=20, kernels=kernels)
    assert list(columns.offsets) == [40, 41, 42]
    assert decode_columns(empty, start_offset=20, kernels=kernels).next_offset == 21


def test_offsets_with_gaps_stay_as_they_are(kernels: KernelSet) -> None:
    body = b"\x0c\0\0\0\1\1\0" + b"\x0c\0\0\x0a\1\1\0"
    batch = bytearray(with_body(build_batch(PLAIN, base_offset=50), body, count=2))
    pack_into(">i", batch, 23, 7)
    columns = decode_columns(with_right_crc(batch), kernels=kernels)
    assert list(columns.offsets) == [50, 55]
    assert columns.next_offset == 58


def test_broker_time_and_leader_epoch_belong_to_their_batch(kernels: KernelSet) -> None:
    appended = bytearray(build_batch(PLAIN, base_offset=3, partition_leader_epoch=8))
    appended[22] |= 0x08
    buffer = build_batch(PLAIN, partition_leader_epoch=7) + with_right_crc(appended)
    columns = decode_columns(buffer, start_offset=1, kernels=kernels)
    assert list(columns.timestamps) == [900, -1, 1_000, 1_000, 1_000]
    assert columns.timestamp_types() == [0, 0, 1, 1, 1]
    assert columns.batches == ((2, 7, 0), (5, 8, 1))


def test_columns_that_nobody_asks_for_are_left_out(kernels: KernelSet) -> None:
    columns = decode_columns(
        build_batch(PLAIN), with_keys=False, with_values=False, with_headers=False, kernels=kernels
    )
    assert columns.keys is None
    assert columns.values is None
    assert columns.headers is None
    assert columns.records()[0] == Record(0, 1_000, None, None, ())


def test_nulls_are_told_from_empty_strings(kernels: KernelSet) -> None:
    inputs = [(None if i % 3 == 0 else b"", b"v" if i % 2 else None, 0, []) for i in range(100)]
    columns = decode_columns(build_batch(inputs), kernels=kernels)
    assert columns.keys is not None
    assert columns.keys.null_count == 34
    assert columns.keys.to_list() == [r[0] for r in inputs]
    assert columns.keys.to_list(7, 30) == [r[0] for r in inputs[7:30]]
    assert columns.values is not None
    assert columns.values.to_list(9, 23) == [r[1] for r in inputs[9:23]]


def test_decoding_stops_in_front_of_the_batch_that_is_too_much(kernels: KernelSet) -> None:
    inputs = [(None, bytes(1_000), 0, [])] * 10
    for codec in ("none", "lz4"):
        buffer = b"".join(build_batch(inputs, base_offset=10 * i, compression=codec) for i in range(5))
        seen, offset, position = 0, 0, 0
        while position < len(buffer):
            columns = decode_columns(buffer[position:], start_offset=offset, max_total_bytes=25_000, kernels=kernels)
            assert len(columns) <= 20
            seen, offset, position = seen + len(columns), columns.next_offset, position + columns.consumed_bytes
        assert (seen, offset) == (50, 50)
        assert len(decode_columns(buffer, max_total_bytes=1, kernels=kernels)) == 10


@pytest.mark.parametrize("codec", CODECS)
def test_records_in_front_of_a_damaged_batch_come_first(kernels: KernelSet, codec: str) -> None:
    good = build_batch(PLAIN, compression=codec)
    damaged = bytearray(build_batch(PLAIN, base_offset=3, compression=codec))
    damaged[-1] ^= 1
    columns = decode_columns(good + damaged, kernels=kernels)
    assert (len(columns), columns.next_offset, columns.consumed_bytes) == (3, 3, len(good))
    with pytest.raises(CorruptRecordError, match="the batch at offset 3 is damaged"):
        decode_columns(good + damaged, start_offset=3, kernels=kernels)
    if codec != "none":
        with pytest.raises(CorruptRecordError):
            decode_columns(damaged, start_offset=3, check_crcs=False, kernels=kernels)


def test_damage_of_the_record_bytes_is_found_behind_good_batches(kernels: KernelSet) -> None:
    bad = with_body(build_batch([(None, None, 0, [])], base_offset=3), ONE[:-1] + b"\2")
    columns = decode_columns(build_batch(PLAIN) + bad, kernels=kernels)
    assert columns.next_offset == 3
    with pytest.raises(CorruptRecordError, match="the batch at offset 3 has an impossible record at byte"):
        decode_columns(build_batch(PLAIN) + bad, start_offset=3, kernels=kernels)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(kernels: KernelSet, magic: int) -> None:
    old = bytearray(40)
    pack_into(">qi", old, 0, 3, 28)
    old[16] = magic
    with pytest.raises(CorruptRecordError, match=f"message format version {magic}; only version 2"):
        decode_columns(old, kernels=kernels)
    assert decode_columns(build_batch(PLAIN) + old, kernels=kernels).next_offset == 3
    with pytest.raises(CorruptRecordError, match="only version 2"):
        decode_columns(build_batch(PLAIN) + old, start_offset=3, kernels=kernels)


@pytest.mark.parametrize(
    ("position", "form", "value", "says"),
    [
        (8, ">i", 5, "claims a length of 5"),
        (0, ">q", -3, "claims the offsets"),
        (0, ">q", (1 << 63) - 2, "claims the offsets"),
        (57, ">i", -1, "claims -1 records"),
        (57, ">i", 4, "claims 4 records in 3 offsets"),
        (23, ">i", -1, "claims the offsets"),
        (21, ">h", 6, "unknown compression 6"),
        (27, ">q", (1 << 63) - 1, "impossible record"),
    ],
)
def test_impossible_headers_are_refused(kernels: KernelSet, position: int, form: str, value: int, says: str) -> None:
    batch = bytearray(build_batch([(None, None, 0, []), (None, None, 1, []), (None, None, 2, [])]))
    pack_into(form, batch, position, value)
    with pytest.raises(CorruptRecordError, match=says):
        decode_columns(with_right_crc(batch), kernels=kernels)


def test_batches_that_overlap_are_refused(kernels: KernelSet) -> None:
    batch = build_batch(PLAIN, base_offset=4)
    assert decode_columns(batch + batch, kernels=kernels).next_offset == 7
    with pytest.raises(CorruptRecordError, match="the batch at offset 4 lies in front of the end"):
        decode_columns(batch + batch, start_offset=7, kernels=kernels)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_is_refused(kernels: KernelSet, codec: str) -> None:
    batch = build_batch([(None, bytes(1 << 20), 0, [])] * 4, compression=codec)
    with pytest.raises(CorruptRecordError, match="cannot be read"):
        decode_columns(batch, max_batch_bytes=1 << 20, kernels=kernels)


def test_a_count_that_the_unfolded_bytes_cannot_hold_is_refused(kernels: KernelSet) -> None:
    batch = bytearray(build_batch(PLAIN, compression="lz4"))
    pack_into(">i", batch, 23, (1 << 31) - 2)
    pack_into(">i", batch, 57, (1 << 31) - 1)
    with pytest.raises(CorruptRecordError, match="fewer records than it claims"):
        decode_columns(with_right_crc(batch), kernels=kernels)


def outcome(buffer: bytes, kernels: KernelSet) -> object:
    """What one implementation makes of the bytes, comparable with another's."""
    try:
        columns = decode_columns(buffer, kernels=kernels)
    except CorruptRecordError as error:
        return str(error)
    return columns.records(), columns.next_offset, columns.consumed_bytes


def reference_outcome(buffer: bytes) -> list[Record] | None:
    try:
        return list(iterate_records(buffer))
    except CorruptRecordError:
        return None


def assert_all_agree(buffer: bytes) -> None:
    """Every kernel tells the same, word for word; the one-by-one reader gives or refuses the same records."""
    outcomes = [outcome(buffer, kernels_named(name)) for name in NAMES]
    assert all(found == outcomes[0] for found in outcomes)
    expected = reference_outcome(buffer)
    if expected is None:
        assert isinstance(outcomes[0], str)
    else:
        assert isinstance(outcomes[0], tuple)
        assert outcomes[0][0] == expected


@pytest.mark.large
@given(inputs=st.one_of(RECORDS, RUNS), data=st.data())
@settings(max_examples=300)
def test_all_kernels_agree_on_damaged_records(inputs: list[Any], data: st.DataObject) -> None:
    """Bytes are overwritten, cut out and put in behind the header; the CRC is made to match."""
    batch = build_batch(inputs)
    body = bytearray(batch[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        cut = data.draw(st.integers(0, 2))
        body[at : at + cut] = data.draw(
            st.one_of(
                st.binary(max_size=3), st.sampled_from([b"\xff" * 10, b"\x80" * 9 + b"\1", b"\xfe\xff\xff\xff\x0f"])
            )
        )
    assert_all_agree(with_body(batch, bytes(body)))


@pytest.mark.large
@given(inputs=RECORDS, data=st.data())
@settings(max_examples=150)
def test_all_kernels_agree_on_damaged_headers(inputs: list[Any], data: st.DataObject) -> None:
    batch = bytearray(build_batch(inputs))
    position = data.draw(st.sampled_from([*range(8), *range(21, 61)]))
    batch[position] = data.draw(st.integers(0, 255))
    assert_all_agree(with_right_crc(batch))


@given(
    noise=st.lists(
        st.sampled_from([ONE, b"\0", b"\xff", b"\1", b"\x0c", b"\x80", b"\x10\0\0\2\1\1\2\0\1"]), max_size=40
    )
)
@settings(max_examples=150)
def test_all_kernels_agree_on_noise(noise: list[bytes]) -> None:
    body = b"".join(noise)
    batch = with_body(build_batch([(None, None, 0, [])]), body, count=max(len(body) // 7, 1))
    assert_all_agree(batch)


def varint(value: int) -> bytes:
    """The zigzag form of a 64-bit number."""
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def record_bytes(place: int, /, **parts: bytes) -> bytes:
    """A record of a key, a value and one header, of which some parts are replaced."""
    whole = {
        "attributes": b"\0",
        "time": varint(place),
        "delta": varint(place),
        "key_length": varint(3),
        "key": b"key",
        "value_length": varint(5),
        "value": b"value",
        "header_count": varint(1),
        "name_length": varint(4),
        "name": b"name",
        "content_length": varint(7),
        "content": b"content",
    } | parts
    body = b"".join(part for name, part in whole.items() if name != "length")
    return whole.get("length", varint(len(body))) + body


def damaged_among(count: int, at: int, /, **parts: bytes) -> bytes:
    """A batch of `count` records, that at `at` damaged; enough of them take the vectorised way."""
    body = b"".join(record_bytes(place, **(parts if place == at else {})) for place in range(count))
    return with_body(build_batch([(None, None, 0, [])]), body, count=count)


LENGTHS = ("length", "key_length", "value_length", "header_count", "name_length", "content_length")
EXTREMES = (-1, -2, 0, 1, 63, 64, 1 << 31, -(1 << 31), 1 << 62, (1 << 63) - 1, (1 << 63) - 100, -(1 << 63))


@pytest.mark.parametrize("field", LENGTHS)
@pytest.mark.parametrize("length", EXTREMES)
@pytest.mark.parametrize(("count", "at"), [(1, 0), (100, 50), (100, 99)])
def test_all_kernels_agree_on_impossible_lengths(field: str, length: int, count: int, at: int) -> None:
    assert_all_agree(damaged_among(count, at, **{field: varint(length)}))


@pytest.mark.parametrize(
    "parts",
    [
        {"delta": varint(49)},
        {"delta": varint(51)},
        {"delta": varint(-1)},
        {"delta": varint(100)},
        {"delta": varint(1 << 62)},
        {"time": b"\x80" * 9 + b"\1"},
        {"time": b"\x80" * 9 + b"\2"},
        {"time": b"\x80" * 10},
        {"time": b"\xff" * 9 + b"\1"},
        {"value_length": varint(-2), "value": b""},
        {"key_length": varint(-2), "key": b""},
        {"name_length": varint(-1), "name": b""},
        {"content_length": varint(-2), "content": b""},
        {"header_count": varint(-1), "name_length": b"", "name": b"", "content_length": b"", "content": b""},
        {"content": b"conten"},
        {"content": b"content and more"},
    ],
)
def test_all_kernels_agree_on_records_that_fit_but_lie(parts: dict[str, bytes]) -> None:
    """The record is as long as it says; what it says about its parts cannot be, or only just."""
    assert_all_agree(damaged_among(100, 50, **parts))
    assert_all_agree(damaged_among(1, 0, **parts))


@pytest.mark.parametrize(
    "parts",
    [
        {"delta": varint(49)},
        {"time": b"\x80" * 9 + b"\2"},
        {"value_length": varint(-2), "value": b""},
        {"name_length": varint(-1), "name": b""},
        {"content": b"content and more"},
        *({field: varint((1 << 63) - 1)} for field in LENGTHS),
    ],
)
def test_a_lie_among_true_records_is_refused(kernels: KernelSet, parts: dict[str, bytes]) -> None:
    with pytest.raises(CorruptRecordError, match="impossible record"):
        decode_columns(damaged_among(100, 50, **parts), kernels=kernels)
    assert len(decode_columns(damaged_among(100, 50), kernels=kernels)) == 100


def test_time_sum_beyond_64_bits_is_refused(kernels: KernelSet) -> None:
    for delta, base in ((1, (1 << 63) - 1), (-1, -(1 << 63)), ((1 << 63) - 1, 1)):
        for count in (1, 100):
            batch = bytearray(damaged_among(count, 0, time=varint(delta)))
            pack_into(">q", batch, 27, base)
            with pytest.raises(CorruptRecordError, match="impossible record"):
                decode_columns(with_right_crc(batch), kernels=kernels)


def test_many_headers_of_one_record_are_read(kernels: KernelSet) -> None:
    headers = [(f"name {i}", b"x" * (i % 5) if i % 3 else None) for i in range(500)]
    inputs = [(b"k", b"v", 0, headers if i == 50 else headers[: i % 4]) for i in range(100)]
    columns = decode_columns(build_batch(inputs), start_offset=1, kernels=kernels)
    assert [list(record.headers) for record in columns.records()] == [r[3] for r in inputs[1:]]


def test_strings_of_every_length_are_gathered(kernels: KernelSet) -> None:
    inputs = [(bytes([i % 256]) * (i % 70), bytes([i % 251]) * (i * 7 % 1030), 0, []) for i in range(600)]
    columns = decode_columns(build_batch(inputs), kernels=kernels)
    assert [(record.key, record.value) for record in columns.records()] == [r[:2] for r in inputs]


GUARDED = """
import ctypes, mmap, random
from kohort.records.batch import build_batch
from kohort.records.choice import kernels_named
from support.builders.record_columns import decode_columns
from kohort.errors import CorruptRecordError

PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * PAGE)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
for page in (0, 2):
    assert libc.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0) == 0
view = memoryview(memory)
draw = random.Random(5)
kernels = kernels_named("c")
record = (b"key", b"value" * 3, 0, [("h", b"1")])
whole = build_batch([record] * 20)
refused = 0
for _ in range(20000):
    batch = bytearray(whole)
    for _ in range(draw.randrange(1, 4)):
        batch[draw.randrange(8, len(batch))] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, draw.randrange(256)))
    cut = draw.choice((len(batch), draw.randrange(len(batch))))
    # The last byte lies in front of a page that must not be read, or the first one behind such a page.
    at = draw.choice((2 * PAGE - cut, PAGE))
    view[at : at + cut] = batch[:cut]
    try:
        decode_columns(view[at : at + cut], check_crcs=False, kernels=kernels)
    except CorruptRecordError:
        refused += 1
print(refused)
"""


@pytest.mark.process
@pytest.mark.skipif(not is_compiled(), reason="the kernels are not compiled")
def test_compiled_kernels_read_no_byte_beyond_the_buffer() -> None:
    """Hostile batches lie against pages that may not be read: one byte too far ends the process."""
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", GUARDED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1_000


@pytest.mark.large
def test_damaged_batches_of_all_codecs_are_refused_or_read() -> None:
    """Without the CRC, nothing but a `CorruptRecordError` may come out of any byte changed."""
    seen = 0
    for codec in CODECS[1:]:
        batch = build_batch(PLAIN, compression=codec)
        for position, mask in chain.from_iterable(((p, 1), (p, 0x80), (p, 0xFF)) for p in range(8, len(batch))):
            damaged = bytearray(batch)
            damaged[position] ^= mask
            for name in NAMES:
                try:
                    decode_columns(damaged, check_crcs=False, max_batch_bytes=1 << 20, kernels=kernels_named(name))
                except CorruptRecordError:
                    seen += 1
    assert seen > 100
