"""Record batches as no producer of ours builds them: each number and each byte as a test says."""

from __future__ import annotations

import time
from struct import pack_into

from kohort.records.batch import build_batch
from kohort.records.compression import compress
from kohort.records.header import CODEC_NAMES, HEADER_SIZE, LENGTH_OVERHEAD, seal

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000
#: Where numbers stand in the header of a batch.
BASE_OFFSET, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP, COUNT = 0, 21, 23, 35, 57


def varint(number: int) -> bytes:
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(
    delta: int = 0, *, time_delta: int = 0, key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\x00"
) -> bytes:
    """One record; key, value and headers with their lengths in front."""
    body = b"\x00" + varint(time_delta) + varint(delta) + key + value + headers
    return varint(len(body)) + body


def batch(*records: bytes, codec: str = "none", raw: bytes | None = None, **numbers: int) -> bytes:
    """A batch of these records, or with `raw` of these bytes behind the header, whose numbers may be others."""
    body = b"".join(records) if raw is None else raw
    packed = compress(codec, body) if codec != "none" and raw is None else body
    out = bytearray(build_batch([(b"k", b"v", NOW_MS, ())]))[:HEADER_SIZE] + packed
    pack_into(">i", out, 8, len(out) - LENGTH_OVERHEAD)
    count = numbers.get("count", len(records))
    pack_into(">i", out, COUNT, count)
    pack_into(">i", out, LAST_DELTA, numbers.get("last_delta", count - 1))
    pack_into(">h", out, ATTRIBUTES, numbers.get("attributes", 0) | CODEC_NAMES.index(codec))
    pack_into(">q", out, MAX_TIMESTAMP, numbers.get("max_timestamp", NOW_MS))
    pack_into(">q", out, BASE_OFFSET, numbers.get("base_offset", 0))
    seal(out)
    return bytes(out)


def three(codec: str = "none", **numbers: int) -> bytes:
    return batch(record(0), record(1), record(2), codec=codec, **numbers)


def per_codec(codec: str) -> dict[str, bytes]:
    """What is tried in each codec."""
    cases = {
        "whole": three(codec),
        "claims 3 records, has 1": batch(record(), codec=codec, count=3),
        "claims 1 record, has 3": batch(record(0), record(1), record(2), codec=codec, count=1),
        "claims as many as there are numbers": batch(record(), codec=codec, count=(1 << 31) - 1),
        "claims no record": batch(codec=codec, count=0, last_delta=0),
        "claims fewer than none": batch(record(), codec=codec, count=-1, last_delta=0),
        "more offsets than records": three(codec, last_delta=5),
        "fewer offsets than records": three(codec, last_delta=1),
        "offsets that repeat": batch(record(0), record(1), record(1), codec=codec),
        "offsets with a gap": batch(record(0), record(2), record(3), codec=codec, count=3, last_delta=3),
        "offsets beyond the last": batch(record(0), record(1), record(7), codec=codec),
        "offsets that descend": batch(record(2), record(1), record(0), codec=codec),
        "offset below zero": batch(record(-1), record(0), record(1), codec=codec),
        "header count below zero": batch(record(headers=varint(-5)), codec=codec),
        "header count beyond the record": batch(record(headers=varint(50)), codec=codec),
        "header key null": batch(record(headers=b"\x02\x01\x02v"), codec=codec),
        "header value null": batch(record(headers=b"\x02\x02k\x01"), codec=codec),
        "header value shorter than null": batch(record(headers=b"\x02\x02k" + varint(-3)), codec=codec),
        "key null": batch(record(key=b"\x01"), codec=codec),
        "key shorter than null": batch(record(key=varint(-3)), codec=codec),
        "key beyond the record": batch(record(key=varint(60) + b"k"), codec=codec),
        "value null": batch(record(value=b"\x01"), codec=codec),
        "value shorter than null": batch(record(value=varint(-7)), codec=codec),
        "bytes behind the headers": batch(record(headers=b"\x00\x00"), codec=codec),
        "length of a record below zero": batch(varint(-4) + record()[1:], codec=codec, count=1),
        "length of a record beyond the batch": batch(varint(90) + record()[1:], codec=codec, count=1),
        "length of a record without an end": batch(b"\xff" * 11 + record(), codec=codec, count=1),
        "bytes behind the last record": batch(record() + b"\x00", codec=codec, count=1),
        "no byte": batch(b"", codec=codec, count=1),
        "a record two hours ahead": batch(record(), record(1, time_delta=2 * HOUR_MS), codec=codec),
        "a record 300 years ahead": batch(record(), record(1, time_delta=300 * 365 * 24 * HOUR_MS), codec=codec),
        "two records two hours ahead": batch(
            *(record(at, time_delta=at % 2 * 2 * HOUR_MS) for at in range(4)), codec=codec
        ),
        "a time beyond all numbers": batch(record(time_delta=(1 << 63) - 1), codec=codec),
        "a header two hours ahead": three(codec, max_timestamp=NOW_MS + 2 * HOUR_MS),
        "a header 300 years ahead": three(codec, max_timestamp=NOW_MS + 300 * 365 * 24 * HOUR_MS),
        "a header behind its records": three(codec, max_timestamp=5),
        "dated by the broker, it says": three(codec, attributes=8),
        "dated by the broker, it says, and ahead": three(codec, attributes=8, max_timestamp=NOW_MS + 2 * HOUR_MS),
        "control records": three(codec, attributes=0x20),
        "delete horizon": three(codec, attributes=0x40),
        "attributes without a meaning": three(codec, attributes=0x80),
        "base offset 5": three(codec, base_offset=5),
    }
    return {f"{codec}: {name}": data for name, data in cases.items()}


def garbage() -> dict[str, bytes]:
    """What is behind the header unfolds to nothing, or to something else."""
    cases = {}
    for codec in CODEC_NAMES[1:]:
        packed = compress(codec, record(0) + record(1))
        cases[f"{codec}: garbage"] = batch(raw=b"\x00" * 40, codec=codec, count=2)
        cases[f"{codec}: noise"] = batch(raw=bytes(range(7, 70)), codec=codec, count=2)
        cases[f"{codec}: empty"] = batch(raw=b"", codec=codec, count=2)
        cases[f"{codec}: cut"] = batch(raw=packed[:-3], codec=codec, count=2)
        cases[f"{codec}: bytes behind it"] = batch(raw=packed + b"\x00\x00", codec=codec, count=2)
        cases[f"{codec}: twice"] = batch(raw=packed + packed, codec=codec, count=2)
    return cases


def of_producer(*, epoch: int, sequence: int) -> bytes:
    rows = [(b"k", b"v", NOW_MS, ())]
    return build_batch(rows, producer_id=5, producer_epoch=epoch, base_sequence=sequence)


def whole_sets() -> dict[str, bytes]:
    """What is tried of headers."""
    return {
        "nothing": b"",
        "two batches": three() + three(),
        "a batch and a half": three() + three()[:70],
        "half a batch": three()[:70],
        "half a header": three()[:30],
        "a magic of 1": three()[:16] + b"\x01" + three()[17:],
        "a magic of 0": three()[:16] + b"\x00" + three()[17:],
        "a magic of 3": three()[:16] + b"\x03" + three()[17:],
        "a checksum that is wrong": three()[:17] + b"abcd" + three()[21:],
        "a codec that is none": three(attributes=5),
        "a codec that is none, 7": three(attributes=7),
        "a length of 10": three()[:8] + b"\x00\x00\x00\x0a" + three()[12:],
        "a length of 40": three()[:8] + b"\x00\x00\x00\x28" + three()[12:],
        "a length below zero": three()[:8] + b"\xff\xff\xff\xfe" + three()[12:],
        "a producer without a sequence": build_batch(
            [(b"k", b"v", NOW_MS, ())], producer_id=5, producer_epoch=0, base_sequence=-1
        ),
        "a producer without an epoch": build_batch(
            [(b"k", b"v", NOW_MS, ())], producer_id=5, producer_epoch=-1, base_sequence=0
        ),
    }


def odd_batches() -> dict[str, bytes]:
    """All of them, by their names."""
    found = whole_sets() | garbage()
    for codec in CODEC_NAMES:
        found |= per_codec(codec)
    return found
