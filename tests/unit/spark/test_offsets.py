"""Spans of offsets: their JSON, the limit of a micro-batch, tasks of bounded length."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.offsets import CheckpointError, Span, from_json, share_limit, split_spans, to_json

spans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["orders", "a.b", "z"]), st.integers(0, 20)),
    st.builds(lambda start, size: Span(start, start + size), st.integers(0, 1 << 60), st.integers(0, 10_000)),
    max_size=12,
)


@given(spans)
def test_json_says_everything(spans: dict[TopicPartition, Span]) -> None:
    """What comes back out of a checkpoint is what went in."""
    assert from_json(json.loads(json.dumps(to_json(spans)))) == spans


@given(spans, st.randoms(use_true_random=False))
def test_the_same_spans_are_the_same_text(spans: dict[TopicPartition, Span], random: object) -> None:
    """In whatever order they were found: Spark compares text."""
    shuffled = list(spans.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(shuffled))) == json.dumps(to_json(spans))


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_query_that_has_not_read_has_no_spans(nothing: dict[str, dict[str, dict[str, int]]] | None) -> None:
    """The first offset of all."""
    assert from_json(nothing) == {}


@pytest.mark.parametrize(
    "offset",
    [
        {"orders": {"0": 23}},
        {"orders": 3},
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


@given(spans, st.integers(1, 5_000))
def test_tasks_cover_the_spans(spans: dict[TopicPartition, Span], records_per_task: int) -> None:
    """Without a gap and without an overlap, none too long, in order."""
    pieces = split_spans(spans, records_per_task=records_per_task)
    assert all(0 < piece.size <= records_per_task for _, piece in pieces)
    assert pieces == sorted(pieces)
    covered = {partition: span.start for partition, span in spans.items()}
    for partition, piece in pieces:
        assert piece.start == covered[partition]
        covered[partition] = piece.end
    assert covered == {partition: span.end for partition, span in spans.items()}


def test_tasks_of_one_partition_are_of_equal_length() -> None:
    """A short rest would leave a core idle."""
    sizes = [piece.size for _, piece in split_spans({TopicPartition("t", 0): Span(5, 15)}, records_per_task=4)]
    assert sizes == [3, 3, 4]
