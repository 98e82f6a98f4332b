"""Spans of offsets: their JSON, the limit of a micro-batch, tasks of bounded length."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.offsets import CheckpointError, QueryOffset, Span, from_json, share_limit, to_json

spans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["orders", "a.b", "z"]), st.integers(0, 20)),
    st.builds(lambda start, size: Span(start, start + size), st.integers(0, 1 << 60), st.integers(0, 10_000)),
    max_size=12,
)


@pytest.mark.large
@given(spans, st.one_of(st.none(), st.text(max_size=20)), st.dictionaries(st.text(), st.text(), max_size=3))
def test_json_says_everything(spans: dict[TopicPartition, Span], name: str | None, ids: dict[str, str]) -> None:
    """What comes back out of a checkpoint is what went in."""
    since = {partition: span.start for partition, span in spans.items() if span.start % 2}
    read = from_json(json.loads(json.dumps(to_json(spans, name=name, since=since, topic_ids=ids))))
    assert read == QueryOffset(spans=spans, name=name, since=since, topic_ids=ids)


def test_the_form_without_a_version_is_read() -> None:
    """Checkpoints of the first kohort, a topic of the name kohort included."""
    first = {"kohort": {"0": {"from": 3, "to": 7}}, "orders": {"12": {"from": 0, "to": 0}}}
    spans = {TopicPartition("kohort", 0): Span(3, 7), TopicPartition("orders", 12): Span(0, 0)}
    assert from_json(first) == QueryOffset(spans=spans)


def test_the_offsets_of_sparks_own_source_are_read() -> None:
    """They say where to go on, and with the offset before them what a batch is; a new partition begins there."""
    start, end = from_json({"orders": {"0": 23}}), from_json({"orders": {"0": 40, "1": 5}})
    assert start.spans == {TopicPartition("orders", 0): Span(23, 23)}
    assert end.following(start) == {TopicPartition("orders", 0): Span(23, 40), TopicPartition("orders", 1): Span(5, 5)}
    ours = from_json(to_json({TopicPartition("orders", 0): Span(7, 9)}))
    assert ours.following(start) == ours.spans


def test_offsets_of_a_newer_kohort_are_refused() -> None:
    """With both versions and the way out."""
    with pytest.raises(CheckpointError, match=r"a newer kohort \(offsets of version 3, this one reads up to 2\)"):
        from_json({"kohort": 3, "topics": {}})


@pytest.mark.large
@given(spans, st.randoms(use_true_random=False))
def test_the_same_spans_are_the_same_text(spans: dict[TopicPartition, Span], random: object) -> None:
    """In whatever order they were found: Spark compares text."""
    shuffled = list(spans.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(shuffled))) == json.dumps(to_json(spans))


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_query_that_has_not_read_has_no_spans(nothing: dict[str, dict[str, dict[str, int]]] | None) -> None:
    """The first offset of all."""
    assert from_json(nothing) == QueryOffset(spans={})


@pytest.mark.parametrize(
    "offset",
    [
        {"orders": {"0": -23}},
        {"orders": {"0": True}},
        {"orders": {"0": 23, "1": {"from": 1, "to": 2}}},
        {"orders": 3},
        {"kohort": 2},
        {"kohort": 2, "topics": {}, "name": 7},
        {"kohort": 2, "topics": {}, "ids": {"orders": 7}},
        {"kohort": 2, "topics": {"orders": {"0": {"from": 1, "to": 2, "since": "x"}}}},
        {"seq": 3},
        {"orders": {"x": {"from": 1, "to": 2}}},
        {"orders": {"0": {"from": 1}}},
        [1],
    ],
)
def test_offsets_of_another_source_are_refused(offset: object) -> None:
    """They were written by somebody who meant something else."""
    with pytest.raises(CheckpointError, match="not written by format"):
        from_json(offset)  # type: ignore[arg-type]


@given(spans, st.one_of(st.none(), st.integers(1, 50_000)))
def test_a_limit_is_shared(spans: dict[TopicPartition, Span], limit: int | None) -> None:
    """Every partition with a backlog goes on; the limit is passed by at most one record for each of them."""
    shared = share_limit(spans, limit)
    assert shared.keys() == spans.keys()
    for partition, span in spans.items():
        assert shared[partition].start == span.start
        assert span.start <= shared[partition].end <= span.end
        assert (shared[partition].size > 0) == (span.size > 0)
    total = sum(span.size for span in spans.values())
    taken = sum(span.size for span in shared.values())
    if limit is None or total <= limit:
        assert shared == spans
    else:
        assert taken <= limit + sum(span.size > 0 for span in spans.values())


def test_a_limit_follows_the_backlog() -> None:
    """Nine tenths of the batch for the partition with nine tenths of the records."""
    spans = {TopicPartition("t", 0): Span(0, 900), TopicPartition("t", 1): Span(50, 150)}
    assert share_limit(spans, 100) == {TopicPartition("t", 0): Span(0, 90), TopicPartition("t", 1): Span(50, 60)}
