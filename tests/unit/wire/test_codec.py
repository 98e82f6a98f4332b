"""What the compiled codec writes and reads, feature by feature."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire import codec
from kohort.wire.codec import decode, encode, encode_into, encode_parts
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schema import INT32, Message, field, message, schema_of
from support.builders.wire_reference import reference_encode
from support.builders.wire_samples import SAMPLES, Empties, Empty, Leaf, Payload, Scalars, Tagged, Tags, Tree
from support.builders.wire_strategies import message_strategy

VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for cls in SAMPLES
    for version in range(schema_of(cls).first_version, schema_of(cls).last_version + 1)
]


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
@settings(max_examples=40)
@given(data=st.data())
def test_every_form_of_input_gives_the_message_back(cls: Any, version: int, data: st.DataObject) -> None:
    """Bytes, a view of all of them, a mutable buffer and a piece of a larger one read the same."""
    sent = data.draw(message_strategy(cls, version, unknown_tags=True))
    raw = encode(sent, version)
    assert raw == reference_encode(sent, version)
    assert b"".join(encode_parts(sent, version)) == raw
    for buffer in (raw, memoryview(raw), bytearray(raw), memoryview(bytearray(raw))):
        assert decode(cls, version, buffer) == (sent, len(raw))
    around = b"xyz" + raw + b"!"
    large = around + bytes(5000)
    # A frame within the bytes of one read: the view starts and ends elsewhere than its object.
    assert decode(cls, version, memoryview(around)[3:-1]) == (sent, len(raw))
    for buffer in (around, memoryview(around), bytearray(around), large, memoryview(large), bytearray(large)):
        assert decode(cls, version, buffer, 3) == (sent, 3 + len(raw))


@settings(max_examples=20)
@given(size=st.integers(0, 300), version=st.sampled_from([0, 2]))
def test_arrays_and_strings_of_every_size_come_back(size: int, version: int) -> None:
    """Lengths around 126 change the prefix, counts around 32 the way numbers are packed."""
    sent = Tree(
        plain=Leaf(),
        branches=None,
        names=["é" * size] * size,
        bools=[True, False] * (size // 2),
        int16s=list(range(-size, size)),
        int64s=[1 << 62] * size,
        uint32s=[0xFFFFFFFF] * size,
        floats=[0.5] * size,
        blobs=[b"b" * size],
    )
    raw = encode(sent, version)
    assert raw == reference_encode(sent, version)
    assert decode(Tree, version, raw)[0] == sent
    assert decode(Tree, version, bytearray(raw) + bytearray(5000))[0] == sent


def test_ordinary_form_is_as_the_protocol_guide_says() -> None:
    sent = Payload(topic="ab", records=b"\x01\x02", after=-2)
    assert encode(sent, 0) == b"\x00\x02ab" + b"\x00\x00\x00\x02\x01\x02" + b"\xff\xff\xff\xfe"
    assert encode(Payload(topic="", records=None), 0) == b"\x00\x00" + b"\xff\xff\xff\xff" + bytes(4)


def test_compact_form_is_as_kip_482_says() -> None:
    sent = Payload(topic="ab", records=b"\x01\x02", after=-2)
    assert encode(sent, 1) == b"\x03ab" + b"\x03\x01\x02" + b"\xff\xff\xff\xfe" + b"\x00"
    assert encode(Payload(topic="t" * 300, records=None), 1) == b"\xad\x02" + b"t" * 300 + b"\x00" + bytes(4) + b"\x00"


def test_nullable_struct_has_a_marker_in_both_forms() -> None:
    """Kafka: one byte, -1 for null and 1 before a struct, also where the version is not flexible."""
    assert encode(Empties(), 0) == bytes(4) + b"\xff"
    assert encode(Empties(maybe=Empty()), 0) == bytes(4) + b"\x01"
    assert encode(Empties(maybe=Empty()), 1) == b"\x01" + b"\x01\x00" + b"\x00"


def test_tagged_fields_travel_only_when_they_differ_from_their_default() -> None:
    assert encode(Tags(), 4) == bytes(4) + b"\x01" + b"\x00"
    sent = Tags(number=1, part=Tagged(inner=2), became_tagged=None)
    assert encode(sent, 4) == (
        bytes(4) + b"\x01" + b"\x03" + b"\x00\x08" + bytes(7) + b"\x01" + b"\x03\x05" + bytes(3) + b"\x02\x00"
        b"\x05\x01\x00"
    )


def test_tagged_fields_are_written_in_ascending_order() -> None:
    sent = Tags(number=1, parts=[Tagged()])
    sent.unknown_tags = {1000: b"late", 7: b"early"}
    raw = encode(sent, 3)
    assert raw == reference_encode(sent, 3)
    assert [raw.index(mark) for mark in (b"\x00\x08", b"\x07\x05early", b"\xac\x02", b"\xe8\x07\x04late")] == sorted(
        [raw.index(mark) for mark in (b"\x00\x08", b"\x07\x05early", b"\xac\x02", b"\xe8\x07\x04late")]
    )


def test_tagged_fields_of_a_peer_may_come_in_any_order() -> None:
    raw = bytes(4) + b"\x01" + b"\x03" + b"\x2a\x01x" + b"\x05\x02\x02z" + b"\x00\x08" + bytes(8)
    received, end = decode(Tags, 4, raw)
    assert end == len(raw)
    assert (received.number, received.became_tagged, received.unknown_tags) == (0, "z", {42: b"x"})


def test_a_field_that_becomes_tagged_is_ordinary_before() -> None:
    assert encode(Tags(became_tagged="x"), 0) == bytes(4) + b"\x00\x01x" + bytes(4)
    assert encode(Tags(became_tagged="x"), 2) == bytes(4) + b"\x02x" + b"\x01" + b"\x00"
    assert encode(Tags(became_tagged="x"), 3) == bytes(4) + b"\x01" + b"\x01" + b"\x05\x02\x02x"


def test_a_field_that_the_version_lacks_is_dropped_and_reads_as_its_default() -> None:
    sent = Tree(plain=Leaf(number=1, since_two="two", until_one=9), names=["n"])
    assert decode(Tree, 0, encode(sent, 0))[0].plain == Leaf(number=1, until_one=9)
    assert decode(Tree, 3, encode(sent, 3))[0].plain == Leaf(number=1, since_two="two")


def test_unknown_tags_are_dropped_where_the_version_has_no_tagged_section() -> None:
    sent = Payload(topic="t")
    sent.unknown_tags = {1: b"x"}
    assert decode(Payload, 0, encode(sent, 0))[0].unknown_tags is None
    assert decode(Payload, 1, encode(sent, 1))[0].unknown_tags == {1: b"x"}


def test_lists_and_structs_of_defaults_are_fresh_each_time() -> None:
    first, second = Tree(), Tree()
    assert first.blobs is not second.blobs
    assert first.plain is not second.plain
    received = [decode(Tags, 0, encode(Tags(), 0))[0] for _ in range(2)]
    assert received[0].names is not received[1].names
    assert received[0].part is not received[1].part


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_records_are_views_of_the_input(form: Any) -> None:
    raw = form(encode(Payload(topic="t", records=b"r" * 10), 1))
    records = decode(Payload, 1, raw)[0].records
    assert isinstance(records, memoryview)
    assert records == b"r" * 10
    assert records.obj is (raw.obj if isinstance(raw, memoryview) else raw)


def test_large_records_are_parts_of_their_own() -> None:
    records = memoryview(b"r" * 5000)
    parts = encode_parts(Payload(topic="t", records=records, after=1), 1)
    assert parts[1] is records
    assert [len(part) for part in parts] == [4, 5000, 5]


def test_records_may_come_in_several_buffers() -> None:
    pieces = [b"a" * 700, memoryview(b"b" * 700), bytearray(b"c")]
    sent = Payload(topic="t", records=pieces)  # type: ignore[arg-type]
    raw = encode(sent, 1)
    assert decode(Payload, 1, raw)[0].records == b"a" * 700 + b"b" * 700 + b"c"
    parts = encode_parts(sent, 1)
    assert b"".join(parts) == raw
    assert parts[1:4] == pieces


def test_encoding_into_a_buffer_appends() -> None:
    out = bytearray(b"before")
    encode_into(Payload(topic="t"), 0, out)
    assert out == b"before" + encode(Payload(topic="t"), 0)


UNENCODABLE = [
    (Payload(topic=None), 1, "topic is null"),  # type: ignore[arg-type]
    (Payload(topic=b"x"), 0, "topic must be string"),  # type: ignore[arg-type]
    (Payload(topic="x" * 32768), 0, "topic must be string"),
    (Payload(topic="x" * 32768), 1, "topic must be string"),
    (Payload(topic="\ud800"), 1, "surrogates"),
    (Payload(after=1 << 31), 0, "after must be int32, not 2147483648"),
    (Payload(after=None), 0, "after is null"),  # type: ignore[arg-type]
    (Payload(records="text"), 0, "records must be records"),  # type: ignore[arg-type]
    (Scalars(a_uint16=-1), 0, "a_uint16 must be uint16, not -1"),
    (Scalars(a_bool=None), 1, "a_bool is null"),  # type: ignore[arg-type]
    (Scalars(a_uuid=b"short"), 1, "a_uuid must be uuid"),
    (Scalars(a_float64="1"), 1, "a_float64 must be float64"),  # type: ignore[arg-type]
    (Scalars(some_bytes="x"), 1, "some_bytes must be bytes"),  # type: ignore[arg-type]
    (Tree(names=None), 0, "names is null"),
    (Tree(int16s=[1, 70000]), 0, "int16s[1] must be int16, not 70000"),
    (Tree(int16s=[70000] * 50), 3, "int16s[0] must be int16"),
    (Tree(int64s=5), 3, "int64s is not a list but 5"),  # type: ignore[arg-type]
    (Tree(branches=[Empty()]), 3, "branches[0] is not a Branch but Empty()"),  # type: ignore[list-item]
    (Tree(plain=Leaf(number="1")), 3, "plain.number must be int32"),  # type: ignore[arg-type]
    (Tree(plain=None), 3, "plain is null"),  # type: ignore[arg-type]
    (Tags(part=None), 3, "part is null"),  # type: ignore[arg-type]
    (Tags(names=None), 3, "names is null"),  # type: ignore[arg-type]
    (Tags(parts=[Tagged(inner=1 << 40)]), 3, "parts[0].inner must be int32"),
]


@pytest.mark.parametrize(("sent", "version", "reason"), UNENCODABLE, ids=[case[2] for case in UNENCODABLE])
def test_what_cannot_be_encoded_is_named(sent: Message, version: int, reason: str) -> None:
    """Our own fault: which message, version and field, and the output is left as it was."""
    out = bytearray(b"before")
    for attempt in (lambda: encode_into(sent, version, out), lambda: encode_parts(sent, version)):
        with pytest.raises(LocalProtocolError) as caught:
            attempt()
        assert str(caught.value).startswith(f"{type(sent).__name__} version {version} cannot be encoded: ")
        assert reason in str(caught.value)
    assert out == b"before"


def test_an_unknown_tag_must_not_stand_for_a_declared_one() -> None:
    sent = Tags(number=1)
    sent.unknown_tags = {0: b"x"}
    with pytest.raises(LocalProtocolError, match="tagged field 0"):
        encode(sent, 4)


@pytest.mark.parametrize("use", [codec.decoder, codec.encoder, codec.parts_encoder])
def test_a_version_that_is_not_declared_is_our_own_fault(use: Any) -> None:
    with pytest.raises(LocalProtocolError, match="Tags has the versions 0-4, not 5"):
        use(Tags, 5)


def test_messages_compare_show_and_copy_by_value() -> None:
    sent = Tags(first=1, part=Tagged(inner=2))
    assert sent == copy.deepcopy(sent) == pickle.loads(pickle.dumps(sent))
    assert sent != Tags(first=1)
    assert sent != Tagged()
    other = Tags(first=1, part=Tagged(inner=2))
    other.unknown_tags = {}
    assert sent == other
    other.unknown_tags = {9: b"x"}
    assert sent != other
    assert "first=1" in repr(other)
    assert "unknown_tags={9: b'x'}" in repr(other)


def test_a_misspelt_field_is_refused_by_the_constructor() -> None:
    with pytest.raises(TypeError, match="frist"):
        Tags(frist=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Tags().frist = 1  # type: ignore[attr-defined]


def test_rows_of_all_arrays_of_a_message_are_bounded_together() -> None:
    """Also where each array alone is short."""
    topics = [OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition()] * 2) for name in "ab"]
    sent = encode(OffsetCommitRequest(group_id="g", topics=topics), 9)
    for buffer in (sent, memoryview(bytearray(sent))):
        assert codec.bounded_decoder(OffsetCommitRequest, 9, 6)(buffer, 0)[0].topics == topics
        with pytest.raises(RemoteProtocolError, match="more than 5 rows"):
            codec.bounded_decoder(OffsetCommitRequest, 9, 5)(buffer, 0)


def test_names_and_tagged_fields_of_a_message_are_bounded_together() -> None:
    """2 MB of tagged fields behind a heartbeat took the broker 0.35 s, and a frame may have 16 MB."""
    named = encode(DescribeGroupsRequest(groups=["g"] * 17), 5)
    with_tags = DescribeGroupsRequest(groups=[])
    with_tags.unknown_tags = dict.fromkeys(range(100, 117), b"")
    tagged = encode(with_tags, 5)
    for sent in (named, tagged, memoryview(bytearray(tagged))):
        assert codec.bounded_decoder(DescribeGroupsRequest, 5, 3)(sent, 0)[1] == len(sent)
        with pytest.raises(RemoteProtocolError, match="more than 16 values"):
            codec.bounded_decoder(DescribeGroupsRequest, 5, 2)(sent, 0)


def test_nothing_is_compiled_before_it_is_used() -> None:
    @message(versions="0", flexible="none")
    class Unused(Message):
        number: int = field(INT32)

    assert (Unused, 0) not in codec._DECODERS
    assert decode(Unused, 0, encode(Unused(number=3), 0))[0].number == 3
    assert (Unused, 0) in codec._DECODERS
