"""Which partitions there are, and offsets of batches held against them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.errors import ConfigError, UnknownTopicError
from kohort.spark.batch import KohortBatchReader
from kohort.spark.offsets import Span
from kohort.spark.options import EARLIEST, LATEST, parse_options
from kohort.spark.planning import find_partitions, plan_tasks, resolve_offsets
from kohort.spark.reading import SpanToRead


@pytest.fixture
def consumer(address: str) -> Iterator[kohort.Consumer]:
    with kohort.Consumer(bootstrap_servers=address) as client:
        yield client


def batch(address: str, **options: str) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each task."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    reader = KohortBatchReader(parse_options({"kafka.bootstrap.servers": address, **named}))
    tasks = reader.partitions()
    assert all(isinstance(task, SpanToRead) for task in tasks)
    return [(task.partition, task.start, task.end) for task in tasks if isinstance(task, SpanToRead)]


def test_every_partition_of_every_topic(address: str, topic: Any, consumer: kohort.Consumer) -> None:
    """In order of topic and partition."""
    names = sorted([topic(2), topic(1)])
    options = parse_options({"kafka.bootstrap.servers": address, "subscribe": ",".join(reversed(names))})
    found = find_partitions(consumer, options)
    assert found == sorted(found)
    assert {partition.topic for partition in found} == set(names)
    assert len(found) == 3


def test_assigned_partitions_have_to_exist(address: str, topic: Any, consumer: kohort.Consumer) -> None:
    """Topic and number."""
    name = topic(2)
    settings = {"kafka.bootstrap.servers": address}
    some = parse_options({**settings, "assign": f'{{"{name}": [1]}}'})
    assert find_partitions(consumer, some) == [TopicPartition(name, 1)]
    with pytest.raises(ConfigError, match=f"assign names partitions that do not exist: {name}-2, {name}-7"):
        find_partitions(consumer, parse_options({**settings, "assign": f'{{"{name}": [0, 2, 7]}}'}))
    with pytest.raises(UnknownTopicError, match="nowhere"):
        find_partitions(consumer, parse_options({**settings, "assign": '{"nowhere": [0]}'}))


def test_words_and_numbers_for_offsets(topic: Any, fill: Any, consumer: kohort.Consumer) -> None:
    """-2 and -1 stand for the ends of the log, for one partition or for all."""
    name = topic(2)
    fill(name, {0: 5, 1: 3})
    both = [TopicPartition(name, 0), TopicPartition(name, 1)]
    assert resolve_offsets(consumer, both, EARLIEST, option="x") == dict.fromkeys(both, 0)
    assert resolve_offsets(consumer, both, LATEST, option="x") == {both[0]: 5, both[1]: 3}
    assert resolve_offsets(consumer, both, {both[0]: 4, both[1]: LATEST}, option="x") == {both[0]: 4, both[1]: 3}
    assert resolve_offsets(consumer, both, {both[0]: EARLIEST, both[1]: 3}, option="x") == {both[0]: 0, both[1]: 3}
    assert resolve_offsets(consumer, [], LATEST, option="x") == {}


def test_a_batch_reads_from_the_earliest_to_the_latest_offset(address: str, topic: Any, fill: Any) -> None:
    """A partition without records gives no task."""
    name = topic(3)
    fill(name, {0: 5, 2: 3})
    assert batch(address, subscribe=name) == [(0, 0, 5), (2, 0, 3)]


def test_a_batch_is_bounded_by_offsets(address: str, topic: Any, fill: Any) -> None:
    """By both options, per partition."""
    name = topic(2)
    fill(name, {0: 5, 1: 5})
    bounds = {
        "startingOffsets": f'{{"{name}": {{"0": 1, "1": 5}}}}',
        "endingOffsets": f'{{"{name}": {{"0": 3, "1": -1}}}}',
    }
    assert batch(address, subscribe=name, **bounds) == [(0, 1, 3)]


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"starting": {0: 1}}, "startingOffsets gives offsets for some partitions only; missing: NAME-1"),
        ({"ending": {0: 1, 1: 1, 5: 1}}, "endingOffsets names partitions that are not read: NAME-5"),
        ({"starting": {0: 1, 1: 6}}, "startingOffsets: NAME-1 has no offset 6, it ends at 5"),
        ({"ending": {0: 1, 1: 6}}, "endingOffsets: NAME-1 has no offset 6, it ends at 5"),
        ({"starting": {0: 1, 1: 4}, "ending": {0: 1, 1: 3}}, "NAME-1 starts at 4 and ends at 3"),
    ],
    ids=str,
)
def test_bounds_that_cannot_be(
    address: str, topic: Any, fill: Any, bounds: dict[str, dict[int, int]], sentence: str
) -> None:
    """Said before any task waits for records that may never come."""
    name = topic(2)
    fill(name, {0: 5, 1: 5})
    given = {f"{option}Offsets": json.dumps({name: offsets}) for option, offsets in bounds.items()}
    with pytest.raises(ConfigError) as raised:
        batch(address, subscribe=name, **given)
    assert sentence.replace("NAME", name) in str(raised.value)


def test_a_batch_that_starts_at_the_end_is_refused(address: str) -> None:
    """Somebody expects records."""
    with pytest.raises(ConfigError, match="startingOffsets cannot be latest in a batch"):
        batch(address, subscribe="any", startingOffsets="latest")


def test_a_group_does_not_matter_to_a_batch(address: str, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """No member, no commit: a batch may read beside a running query of that group."""
    name = topic(1)
    fill(name, {0: 5})
    assert batch(address, subscribe=name, kafka__group__id=f"{name}-g") == [(0, 0, 5)]
    assert not [group for group in admin.list_groups() if group.group_id == f"{name}-g"]


def test_long_spans_are_several_tasks() -> None:
    """So that one large partition keeps every core busy."""
    tasks = plan_tasks({TopicPartition("t", 0): Span(10, 6_000_010), TopicPartition("t", 1): Span(5, 5)})
    assert [(task.topic, task.partition, task.end - task.start) for task in tasks] == [("t", 0, 2_000_000)] * 3
