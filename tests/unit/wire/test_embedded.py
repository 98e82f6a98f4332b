"""Subscription and assignment blobs of the classic consumer protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.embedded import (
    BLOB_BYTES_AT_MOST,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

OWNED = {"a": (0, 2), "b": (1,)}


def test_newest_subscription_carries_everything() -> None:
    blob = encode_subscription(["a", "b"], user_data=b"u", owned_partitions=OWNED, generation_id=4, rack_id="r")
    assert blob[:2] == b"\x00\x03"
    assert decode_subscription(blob) == Subscription(
        topics=("a", "b"), user_data=b"u", owned_partitions=OWNED, generation_id=4, rack_id="r"
    )


@pytest.mark.parametrize(("version", "owned", "generation"), [(0, {}, -1), (1, OWNED, -1), (2, OWNED, 4)])
def test_older_subscriptions_leave_out_what_came_later(version: int, owned: dict[str, object], generation: int) -> None:
    blob = encode_subscription(["a"], owned_partitions=OWNED, generation_id=4, rack_id="r", version=version)
    read = decode_subscription(blob)
    assert (read.owned_partitions, read.generation_id, read.rack_id) == (owned, generation, None)


def test_subscription_of_version_0_byte_by_byte() -> None:
    assert encode_subscription(["t"], version=0) == b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff"


def test_assignment_byte_by_byte_and_back() -> None:
    blob = encode_assignment({"t": [1]}, user_data=b"", version=1)
    assert blob == b"\x00\x01" + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x01" + b"\x00\x00\x00\x00"
    assert decode_assignment(blob) == Assignment(partitions={"t": (1,)}, user_data=b"")


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_newer_versions_are_read_as_our_newest(form: type) -> None:
    """Later versions only append."""
    subscription = bytearray(encode_subscription(["a"], rack_id="r"))
    subscription[1] = 9
    assert decode_subscription(form(bytes(subscription) + b"appended")).rack_id == "r"
    assignment = bytearray(encode_assignment({"a": [1]}))
    assignment[1] = 9
    assert decode_assignment(form(bytes(assignment) + b"appended")).partitions == {"a": (1,)}


def test_an_empty_assignment_gives_nothing() -> None:
    """A member that got nothing receives no bytes at all from some leaders."""
    assert decode_assignment(b"") == Assignment(partitions={})


def test_a_topic_that_occurs_twice_keeps_all_its_partitions() -> None:
    once = b"\x00\x01t\x00\x00\x00\x01\x00\x00\x00"
    blob = b"\x00\x00" + b"\x00\x00\x00\x02" + once + b"\x05" + once + b"\x06" + b"\xff\xff\xff\xff"
    assert decode_assignment(blob).partitions == {"t": (5, 6)}


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\xff\xff" + bytes(8), bytes(BLOB_BYTES_AT_MOST + 1)])
def test_impossible_subscriptions_are_refused(blob: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_subscription(blob)


def test_cut_blobs_are_refused() -> None:
    blob = encode_subscription(["a", "b"], user_data=b"u", owned_partitions=OWNED, rack_id="r")
    for end in range(len(blob)):
        with pytest.raises(RemoteProtocolError):
            decode_subscription(blob[:end])


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(tail: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            read = decode(b"\x00\x03" + tail)
        except RemoteProtocolError:
            continue
        assert isinstance(read, Subscription | Assignment)


def test_a_version_that_does_not_exist_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="0-3, not 4"):
        encode_assignment({}, version=4)
