"""Which tasks read the spans of a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import EARLIEST, LATEST, SourceOptions, parse_options
from kohort.spark.planning import plan_tasks, split_spans

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))

spans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.builds(lambda start, size: Span(start, start + size), st.integers(0, 10_000), st.integers(0, 10_000)),
    max_size=8,
)


def options(**given: object) -> SourceOptions:
    named = {name: str(value) for name, value in given.items()}
    return parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **named})


@pytest.mark.large
@given(spans, st.none() | st.integers(1, 5_000), st.none() | st.integers(1, 40))
def test_tasks_cover_the_spans(spans: dict[TopicPartition, Span], most: int | None, least: int | None) -> None:
    """Without a gap and without an overlap, none too long, in order; about as many as are asked for."""
    given_ = {"maxRecordsPerPartition": most, "minPartitions": least}
    tasks = plan_tasks(spans, options(**{name: value for name, value in given_.items() if value is not None}))
    assert [(task.topic, task.partition, task.start) for task in tasks] == sorted(
        (task.topic, task.partition, task.start) for task in tasks
    )
    assert all(0 < task.end - task.start <= (most or 10_000) for task in tasks)
    covered = {partition: span.start for partition, span in spans.items()}
    for task in tasks:
        partition = TopicPartition(task.topic, task.partition)
        assert task.start == covered[partition]
        covered[partition] = task.end
    assert covered == {partition: span.end for partition, span in spans.items()}
    if least is not None and sum(span.size for span in spans.values()) >= 100 * least:
        assert len(tasks) >= least / 2


def test_long_spans_are_several_tasks() -> None:
    """So that one large partition keeps every core busy."""
    tasks = plan_tasks({ZERO: Span(10, 6_000_010), ONE: Span(5, 5)}, options())
    assert [(task.partition, task.end - task.start) for task in tasks] == [(0, 2_000_000)] * 3


def test_tasks_of_one_partition_are_of_equal_length() -> None:
    """A short rest would leave a core idle."""
    (pieces,) = split_spans({ZERO: Span(5, 15)}, options(maxRecordsPerPartition=4)).values()
    assert [piece.size for piece in pieces] == [3, 3, 4]


@pytest.mark.parametrize(
    ("sizes", "least", "tasks"),
    [
        ((100, 100), 4, [2, 2]),
        ((100, 100, 100), 3, [1, 1, 1]),
        ((100, 100), 1, [1, 1]),
        ((100, 5, 5), 5, [3, 1, 1]),
        ((10_000, 100), 4, [3, 1]),
        ((3, 0), 7, [3]),
    ],
)
def test_min_partitions_cuts_what_is_large(sizes: tuple[int, ...], least: int, tasks: list[int]) -> None:
    """Spark's KafkaOffsetRangeCalculatorSuite: what is small stays whole and takes no part in the shares."""
    planned = plan_tasks(
        {TopicPartition("t", number): Span(0, size) for number, size in enumerate(sizes)}, options(minPartitions=least)
    )
    counts = [sum(task.partition == number for task in planned) for number in range(len(sizes))]
    assert [count for count in counts if count] == tasks


def test_open_bounds_are_those_of_the_first_and_the_last_task() -> None:
    """An empty partition may have records by then; one that ends at a number and is empty has no task."""
    tasks = plan_tasks(
        {ZERO: Span(4, 10), ONE: Span(7, 7), TWO: Span(8, 8)},
        options(maxRecordsPerPartition=3),
        open_starts=frozenset([ZERO]),
        open_ends=frozenset([ZERO, ONE]),
    )
    assert [(task.partition, task.start, task.end) for task in tasks] == [
        (0, EARLIEST, 7),
        (0, 7, LATEST),
        (1, 7, LATEST),
    ]
