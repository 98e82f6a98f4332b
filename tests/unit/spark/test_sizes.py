"""How many bytes the records of a micro-batch have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kohort
from kohort import TopicPartition
from kohort.spark.offsets import Span, share_limit
from kohort.spark.options import parse_options
from kohort.spark.planning import BytesCap, weigh

spans = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 9)),
    st.builds(lambda start, size: Span(start, start + size), st.integers(0, 1_000), st.integers(0, 1_000)),
)


@given(spans, st.lists(st.floats(0, 10_000), min_size=10, max_size=10), st.integers(1, 1_000_000))
def test_a_cap_is_shared(available: dict[TopicPartition, Span], bytes_each: list[float], cap: int) -> None:
    """By the bytes that wait, at least one record each, so that nothing stands still."""
    sizes = {partition: bytes_each[partition.partition] for partition in available}
    shared = share_limit(available, cap, sizes)
    assert shared.keys() == available.keys()
    for partition, span in available.items():
        assert shared[partition].start == span.start
        assert shared[partition].end <= span.end
        assert (shared[partition].size > 0) == (span.size > 0)
    if weigh(available, sizes) <= cap:
        assert shared == available
    else:
        assert weigh(shared, sizes) <= cap * 1.001 + sum(sizes.values())


def test_sizes_are_those_where_the_batch_begins(address: str, topic: Any) -> None:
    """Of keys, values and headers; each partition has its own, and a small backlog is not looked at again."""
    name = topic(3)
    small, large, empty = (TopicPartition(name, number) for number in range(3))
    with kohort.Producer(bootstrap_servers=address) as producer:
        for _ in range(100):
            producer.send(name, b"v" * 96, b"k" * 4, partition=0)
            producer.send(name, b"v" * 9_000, partition=1)
    cap = BytesCap(parse_options({"kafka.bootstrap.servers": address, "subscribe": name}), max_bytes=455_000)
    shared = cap.cap({small: Span(0, 100), large: Span(0, 100), empty: Span(0, 0)})
    assert shared[small].end == pytest.approx(50, abs=3)
    assert shared[large].end == pytest.approx(50, abs=3)
    assert shared[empty] == Span(0, 0)
    assert cap.cap({small: Span(50, 100)}) == {small: Span(50, 100)}
    cap.close()
    assert cap.cap({small: Span(60, 100)}) == {small: Span(60, 100)}, "nothing was asked"


def test_one_record_is_read_however_large(address: str, topic: Any) -> None:
    """A cap below it must not stop the query."""
    name = topic(1)
    with kohort.Producer(bootstrap_servers=address, max_request_size=2_000_000) as producer:
        producer.send(name, b"v" * 900_000, partition=0).result(20)
        producer.send(name, b"v", partition=0).result(20)
    cap = BytesCap(parse_options({"kafka.bootstrap.servers": address, "subscribe": name}), max_bytes=10)
    assert cap.cap({TopicPartition(name, 0): Span(0, 2)}) == {TopicPartition(name, 0): Span(0, 1)}
    cap.close()
