"""Broken bytes: only `RemoteProtocolError`, and nothing large is made before it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import RemoteProtocolError
from kohort.wire.codec import decode, encode
from kohort.wire.registry import VERSIONS as KAFKA_VERSIONS
from kohort.wire.registry import ApiKey, request_class, response_class
from kohort.wire.schema import schema_of
from support.builders.wire_samples import SAMPLES, Empties, Payload, Scalars, Tags, Tree
from support.builders.wire_strategies import message_strategy

VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for cls in SAMPLES
    for version in range(schema_of(cls).first_version, schema_of(cls).last_version + 1)
]
KAFKA = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for key in ApiKey
    for cls in (request_class(key), response_class(key))
    for version in KAFKA_VERSIONS[key]
]


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_message_cut_anywhere_is_refused(cls: Any, version: int, data: st.DataObject) -> None:
    raw = encode(data.draw(message_strategy(cls, version, unknown_tags=True)), version)
    for end in range(len(raw)):
        for form in (bytes, bytearray):
            with pytest.raises(RemoteProtocolError):
                decode(cls, version, form(raw[:end]))


@pytest.mark.parametrize(("cls", "version"), VERSIONS + KAFKA)
@settings(max_examples=15)
@given(raw=st.binary(max_size=120), data=st.data())
def test_random_bytes_decode_or_are_refused(cls: Any, version: int, raw: bytes, data: st.DataObject) -> None:
    for form in (bytes, bytearray):
        try:
            message, end = decode(cls, version, form(raw))
        except RemoteProtocolError:
            continue
        assert end <= len(raw)
        # Compared as bytes, because a float may be NaN, which equals nothing.
        again = encode(message, version)
        assert encode(decode(cls, version, again)[0], version) == again


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_changed_byte_decodes_or_is_refused(cls: Any, version: int, data: st.DataObject) -> None:
    raw = bytearray(encode(data.draw(message_strategy(cls, version, unknown_tags=True)), version))
    if raw:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for form in (bytes, bytearray):
        try:
            _, end = decode(cls, version, form(raw))
        except RemoteProtocolError:
            continue
        assert end <= len(raw)


BROKEN = [
    (Payload, 0, b"\xff\xff" + bytes(8), "topic is null"),
    (Payload, 1, b"\x00" + bytes(8), "topic is null"),
    (Payload, 0, b"\x00\x02\xc3\x28" + bytes(8), "utf-8"),
    (Payload, 1, b"\x02\xff" + bytes(8), "utf-8"),
    (Payload, 1, b"\x82\x80\x80\x80\x80\x01" + bytes(8), "varint"),
    (Payload, 1, b"\xff\xff\xff\xff\x7f" + bytes(8), "varint"),
    (Payload, 1, b"\x80\x00" + bytes(8), "string"),
    (Payload, 1, b"\x82\x80\x02" + bytes(40000), "string of 32769 bytes"),
    (Payload, 1, b"\x01" + b"\xff\xff\xff\xff\x0f" + bytes(8), "is no length"),
    (Payload, 1, b"\x01\x00" + bytes(4) + b"\x02\x01\x00\x01\x00", "tagged field 1 occurs twice"),
    (Payload, 1, b"\x01\x00" + bytes(4) + b"\x01\x01\x09", "tagged field 1 of 9 bytes in 0"),
    (Payload, 1, b"\x01\x00" + bytes(4) + b"\xff\xff\xff\x07", "tagged fields in 0 bytes"),
    (Payload, 1, b"\x01\x00" + bytes(4) + b"\x65" + bytes(300), "101 tagged fields; 100 are allowed"),
    (Payload, 0, b"\x00\x00" + b"\x7f\xff\xff\xff" + bytes(9), "too early"),
    (Tags, 4, bytes(4) + b"\x01" + b"\x01\x00\x09" + bytes(9), "another size"),
    (Tags, 4, bytes(4) + b"\x01" + b"\x01\x00\x07" + bytes(9), "another size"),
    (Tags, 4, bytes(4) + b"\x01" + b"\x02\x00\x08" + bytes(8) + b"\x00\x08" + bytes(8), "occurs twice"),
    (Tags, 4, bytes(4) + b"\x01" + b"\x01\x02\x01\x00", "names is null"),
    (Tags, 4, bytes(4) + b"\x01" + b"\xff\xff\x03", "tagged fields in 0 bytes"),
    (Tags, 4, bytes(4) + b"\x01" + b"\x65" + bytes(300), "101 tagged fields; 100 are allowed"),
    (Tags, 4, bytes(4) + b"\xff\xff\xff\xff\x07" + bytes(50), "last has 2147483646 elements in 50 bytes"),
    (Tags, 0, bytes(4) + b"\x00\x00" + b"\x00\x00\x00\x0e" + bytes(55), "last has 14 elements in 55 bytes"),
    (Tree, 0, bytes(6) + b"\x00\x00\x00\x0b" + bytes(100), "branches has 11 elements in 100 bytes"),
    (Empties, 0, b"\x7f\xff\xff\xff" + bytes(50), "nothing has 2147483647 elements"),
    (Empties, 1, b"\x41" + bytes(50), "nothing has 64 elements in 50 bytes"),
    (Scalars, 0, b"", "too early"),
]


@pytest.mark.parametrize(("cls", "version", "raw", "reason"), BROKEN)
def test_the_refusal_says_what_is_wrong(cls: Any, version: int, raw: bytes, reason: str) -> None:
    for form in (bytes, bytearray):
        with pytest.raises(RemoteProtocolError) as caught:
            decode(cls, version, form(raw))
        assert f"{cls.__name__} version {version} does not decode" in str(caught.value)
        assert reason in str(caught.value)


@pytest.mark.parametrize("name", ["int64s", "bools", "blobs", "names"])
def test_an_impossible_count_allocates_nothing(name: str) -> None:
    """The count is compared with the bytes that remain before a list of its size could be made."""
    raw = encode(Tree(branches=None, names=[]), 0)
    offsets = {"names": 10, "bools": 14, "int64s": 22, "blobs": 34}
    broken = bytearray(raw)
    broken[offsets[name] : offsets[name] + 4] = b"\x7f\xff\xff\xff"
    for form in (bytes, bytearray):
        tracemalloc.start()
        with pytest.raises(RemoteProtocolError):
            decode(Tree, 0, form(broken))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000
