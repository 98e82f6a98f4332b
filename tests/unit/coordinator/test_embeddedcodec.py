"""The blobs of the consumer protocol, as the coordinator reads them."""

from __future__ import annotations

import pytest

from kohort.coordinator.classic.subscriptions import read_subscription


@pytest.mark.parametrize(
    "blob",
    [b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", b"\0\x09\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xffmore"],
    ids=["oldest", "newer, which only appends fields"],
)
def test_topics_of_a_subscription(blob: bytes) -> None:
    found = read_subscription(blob)
    assert found is not None
    assert found.topics == ("t",)


@pytest.mark.parametrize("blob", [b"", b"\0", b"\0\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_bytes_that_are_no_subscription(blob: bytes) -> None:
    assert read_subscription(blob) is None
