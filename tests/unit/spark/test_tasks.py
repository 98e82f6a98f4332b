"""Which tasks read the spans of a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import EARLIEST, LATEST, SourceOptions, parse_options
from kohort.spark.planning import join_pieces, plan_tasks, split_spans
from kohort.spark.reading import SpanToRead

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))

spans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.builds(lambda start, size: Span(start, start + size), st.integers(0, 10_000), st.integers(0, 10_000)),
    max_size=8,
)


def options(**given: object) -> SourceOptions:
    named = {name: str(value) for name, value in given.items()}
    return parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **named})


def planned(spans: dict[TopicPartition, Span], given: SourceOptions) -> list[list[SpanToRead]]:
    return [task.spans for task in plan_tasks(spans, given)]


@pytest.mark.large
@given(spans, st.none() | st.integers(1, 5_000), st.none() | st.integers(1, 40), st.none() | st.integers(1, 30_000))
def test_tasks_cover_the_spans(
    spans: dict[TopicPartition, Span], most: int | None, least: int | None, target: int | None
) -> None:
    """Without a gap and without an overlap, none too long, in order; about as many as are asked for."""
    given_ = {"maxRecordsPerPartition": most, "minPartitions": least, "kohort.targetTaskRecords": target}
    tasks = planned(spans, options(**{name: value for name, value in given_.items() if value is not None}))
    assert all(
        task and len({each[:2] for each in task}) == len(task) and task == sorted(task, key=lambda each: each[:2])
        for task in tasks
    )
    covered = {partition: span.start for partition, span in spans.items()}
    for each in sorted(each for task in tasks for each in task):
        partition = TopicPartition(each.topic, each.partition)
        assert each.start == covered[partition] < each.end
        covered[partition] = each.end
    assert covered == {partition: span.end for partition, span in spans.items()}
    records = [sum(each.end - each.start for each in task) for task in tasks]
    assert most is None or max(records, default=0) <= most
    if least is not None and sum(records) >= 100 * least:
        assert len(tasks) >= least / 2


@given(st.lists(st.integers(0, 3_000_000), max_size=40), st.integers(1, 64))
def test_short_spans_share_a_task(sizes: list[int], cores: int) -> None:
    """By default: no task is longer for that than the others, and no two are so short that one would do."""
    pieces = [(SpanToRead("t", number, 0, size), size) for number, size in enumerate(sizes)]
    tasks = join_pieces(pieces, options(), cores=cores)
    assert sorted(each for task in tasks for each in task) == [piece for piece, _ in pieces]
    records = [sum(each.end for each in task) for task in tasks]
    share = max(50_000, min(500_000, sum(sizes) // cores + 100 * len(sizes)))
    assert all(found <= 2 * share for task, found in zip(tasks, records, strict=True) if len(task) > 1)
    assert sum(found < 25_000 - 100 * len(sizes) for found in records) <= 1


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([5] * 60, 2, [60]),
        ([5] * 1_000, 2, [500, 500]),
        ([250_000] * 4, 2, [2, 2]),
        ([250_000] * 4, 4, [1, 1, 1, 1]),
        ([23_000] * 3, 2, [3]),
        ([20_000] * 10, 2, [5, 5]),
        ([20_000] * 100, 2, [25] * 4),
        ([9_900] * 50 + [1_000_000] + [100] * 49, 2, [50 + 49, 1]),
    ],
)
def test_how_many_spans_a_task_has(sizes: list[int], cores: int, tasks: list[int]) -> None:
    """The tasks are of about equal work; a long partition between short ones does not part them."""
    pieces = [(SpanToRead("t", number, 0, size), size) for number, size in enumerate(sizes)]
    found = [len(task) for task in join_pieces(pieces, options(), cores=cores)]
    assert sorted(found) == sorted(tasks)


@pytest.mark.parametrize(
    ("size", "count", "given_"),
    [
        (6, 3, {"minPartitions": 11, "kohort.targetTaskRecords": 2}),
        (38, 10, {"minPartitions": 35, "kohort.targetTaskRecords": 10}),
    ],
)
def test_short_pieces_are_not_joined_over_a_long_one(size: int, count: int, given_: dict[str, int]) -> None:
    """The pieces of a partition differ by a record: here the one in the middle has the target's size, two have not."""
    tasks = planned({TopicPartition("t", number): Span(0, size) for number in range(count)}, options(**given_))
    assert all(len({each[:2] for each in task}) == len(task) for task in tasks)
    read = sorted((each.partition, offset) for task in tasks for each in task for offset in range(each.start, each.end))
    assert read == [(number, offset) for number in range(count) for offset in range(size)]


def test_a_task_for_each_partition_can_be_asked_for() -> None:
    """As it was, and as it is with Spark's own source."""
    many = {TopicPartition("t", number): Span(0, 5) for number in range(60)}
    assert len(plan_tasks(many, options(**{"kohort.targetTaskRecords": 1}))) == 60
    assert [len(task) for task in planned(many, options(**{"kohort.targetTaskRecords": 50}))] == [10] * 6
    assert len(plan_tasks(many, options(minPartitions=7))) == 7
    assert len(plan_tasks(many, options(maxRecordsPerPartition=10))) == 30


def test_long_spans_are_several_tasks() -> None:
    """So that one large partition keeps every core busy."""
    tasks = planned({ZERO: Span(10, 6_000_010), ONE: Span(5, 5)}, options())
    assert [(each.partition, each.end - each.start) for task in tasks for each in task] == [(0, 2_000_000)] * 3
    assert len(tasks) == 3


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
    found = planned(
        {TopicPartition("t", number): Span(0, size) for number, size in enumerate(sizes)}, options(minPartitions=least)
    )
    counts = [sum(each.partition == number for task in found for each in task) for number in range(len(sizes))]
    assert [count for count in counts if count] == tasks


def test_open_bounds_are_those_of_the_first_and_the_last_task() -> None:
    """An empty partition may have records by then; one that ends at a number and is empty has no task."""
    tasks = plan_tasks(
        {ZERO: Span(4, 10), ONE: Span(7, 7), TWO: Span(8, 8)},
        options(maxRecordsPerPartition=3),
        open_starts=frozenset([ZERO]),
        open_ends=frozenset([ZERO, ONE]),
    )
    assert [(each.partition, each.start, each.end) for task in tasks for each in task.spans] == [
        (0, EARLIEST, 7),
        (0, 7, LATEST),
        (1, 7, LATEST),
    ]
