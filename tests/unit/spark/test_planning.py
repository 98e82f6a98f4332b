"""Which partitions there are, and offsets of batches held against them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

import kohort
from kohort import TopicPartition
from kohort.errors import ConfigError, UnknownTopicError
from kohort.spark.batch import KohortBatchReader
from kohort.spark.offsets import RecordsLostError
from kohort.spark.options import EARLIEST, LATEST, for_batch, parse_options
from kohort.spark.planning import find_partitions, find_topics, resolve_offsets
from kohort.spark.reading import SpansToRead
from support.dialogues.spark_query import Start


@pytest.fixture
def consumer(address: str) -> Iterator[kohort.Consumer]:
    with kohort.Consumer(bootstrap_servers=address) as client:
        yield client


def batch(address: str, **options: str) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each span, by task."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    reader = KohortBatchReader(for_batch(parse_options({"kafka.bootstrap.servers": address, **named})))
    tasks = reader.partitions()
    assert all(isinstance(task, SpansToRead) for task in tasks)
    return [each[1:] for task in tasks if isinstance(task, SpansToRead) for each in task.spans]


def test_every_partition_of_every_topic(address: str, topic: Any, consumer: kohort.Consumer) -> None:
    """In order of topic and partition."""
    names = sorted([topic(2), topic(1)])
    options = parse_options({"kafka.bootstrap.servers": address, "subscribe": ",".join(reversed(names))})
    found = find_partitions(consumer, options)
    assert found == sorted(found)
    assert {partition.topic for partition in found} == set(names)
    assert len(found) == 3


@pytest.mark.large
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
    """Whatever these are when its tasks run: a partition that is empty now may have records by then."""
    name = topic(3)
    fill(name, {0: 5, 2: 3})
    assert batch(address, subscribe=name) == [(0, EARLIEST, LATEST), (1, EARLIEST, LATEST), (2, EARLIEST, LATEST)]


def test_a_batch_is_bounded_by_offsets(address: str, topic: Any, fill: Any) -> None:
    """By both options, per partition; between two numbers without records there is no task."""
    name = topic(3)
    fill(name, {0: 5, 1: 5, 2: 5})
    bounds = {
        "startingOffsets": f'{{"{name}": {{"0": 1, "1": 5, "2": 4}}}}',
        "endingOffsets": f'{{"{name}": {{"0": 3, "1": -1, "2": 4}}}}',
    }
    assert batch(address, subscribe=name, **bounds) == [(0, 1, 3), (1, 5, LATEST)]


def test_a_batch_without_tasks_reads_nothing(address: str, topic: Any) -> None:
    """PySpark makes a task of its own where there is none, and asks for its records."""
    name = topic(1)
    bounds = {"startingOffsets": f'{{"{name}": {{"0": 0}}}}', "endingOffsets": f'{{"{name}": {{"0": 0}}}}'}
    options = parse_options({"kafka.bootstrap.servers": address, "subscribe": name, **bounds})
    reader = KohortBatchReader(for_batch(options))
    assert list(reader.partitions()) == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_is_bounded_by_timestamps(address: str, topic: Any) -> None:
    """The first record that is not older; the end where none is that young, which a start may say by its strategy."""
    name = topic(2)
    with kohort.Producer(bootstrap_servers=address) as producer:
        for timestamp_ms in (1_000, 2_000, 3_000):
            producer.send(name, b"v", partition=0, timestamp_ms=timestamp_ms).result(10)
        producer.send(name, b"v", partition=1, timestamp_ms=1_500).result(10)
    assert batch(address, subscribe=name, startingTimestamp="1001", endingTimestamp="3000") == [(0, 1, 2), (1, 0, 1)]
    by_partition = f'{{"{name}": {{"0": 2000, "1": 9000}}}}'
    assert batch(address, subscribe=name, endingOffsetsByTimestamp=by_partition) == [(0, EARLIEST, 1), (1, EARLIEST, 1)]
    with pytest.raises(ConfigError, match=f"startingOffsetsByTimestamp: {name}-1 has no record that is as young as 90"):
        batch(address, subscribe=name, startingOffsetsByTimestamp=by_partition)
    assert batch(
        address,
        subscribe=name,
        startingOffsetsByTimestamp=by_partition,
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp="9999",
    ) == [(0, 1, 3)]
    with pytest.raises(ConfigError, match=f"endingOffsetsByTimestamp gives offsets for some .*missing: {name}-1"):
        batch(address, subscribe=name, endingOffsetsByTimestamp=f'{{"{name}": {{"0": 2000}}}}')


def test_a_batch_begins_where_a_group_stands(address: str, topic: Any, fill: Any) -> None:
    """From the beginning where it stands nowhere; the group notices nothing."""
    name = topic(2)
    fill(name, {0: 5, 1: 5})
    with kohort.Consumer(bootstrap_servers=address, group_id=f"{name}-g") as consumer:
        consumer.assign([TopicPartition(name, 0)])
        consumer.commit({TopicPartition(name, 0): 3})
    options = {"startingOffsets": "committed", "kafka.group.id": f"{name}-g", "endingTimestamp": "9999999999999"}
    assert batch(address, subscribe=name, **options) == [(0, 3, 5), (1, 0, 5)]


def test_a_group_that_stands_behind_the_end_of_a_log(address: str, topic: Any, fill: Any) -> None:
    """What it has read is gone, with its topic: a loss, as in a stream."""
    name = topic(1)
    fill(name, {0: 5})
    with kohort.Consumer(bootstrap_servers=address, group_id=f"{name}-g") as consumer:
        consumer.assign([TopicPartition(name, 0)])
        consumer.commit({TopicPartition(name, 0): 9})
    options = {"startingOffsets": "committed", "kafka.group.id": f"{name}-g"}
    with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset 9: it ends at 5"):
        batch(address, subscribe=name, **options)
    assert batch(address, subscribe=name, **options, failOnDataLoss="false") == [(0, 5, LATEST)]


def test_a_pattern_is_matched_by_whole_names(address: str, topic: Any, consumer: kohort.Consumer) -> None:
    """Whatever topics there are at that moment; it may be none, and never one of the brokers' own."""
    name = topic(2)
    settings = {"kafka.bootstrap.servers": address}
    options = parse_options({**settings, "subscribePattern": f"{name}-pattern-[ab]"})
    assert find_partitions(consumer, options) == []
    assert batch(address, subscribePattern=f"{name}-pattern-[ab]") == []
    with kohort.Admin(bootstrap_servers=address) as admin:
        for suffix in ("pattern-a", "pattern-b", "pattern-c", "pattern-ab"):
            admin.create_topic(f"{name}-{suffix}", 1)
    assert [each.topic for each in find_partitions(consumer, options)] == [f"{name}-pattern-a", f"{name}-pattern-b"]
    everything = parse_options({**settings, "subscribePattern": ".*"})
    assert not [each for each in find_partitions(consumer, everything) if each.topic.startswith("__")]


def test_topics_are_looked_up_with_every_plan(
    address: str, topic: Any, consumer: kohort.Consumer, admin: kohort.Admin
) -> None:
    """Not after `metadata.max.age.ms`: partitions that were added, a topic that was deleted, which nobody creates."""
    name = topic(1)
    options = parse_options({"kafka.bootstrap.servers": address, "subscribe": name})
    assert len(find_partitions(consumer, options)) == 1
    before = find_topics(consumer, options)[name].topic_id
    admin.create_partitions(name, 3)
    assert len(find_partitions(consumer, options)) == 3
    admin.delete_topics([name])
    with pytest.raises(UnknownTopicError, match=name):
        find_partitions(consumer, options)
    admin.create_topic(name, 2)
    assert find_topics(consumer, options)[name].topic_id != before


def test_partitions_that_are_added_are_given_to_members_of_a_classic_group(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Their leader divides them; what a plan sees it knows, and does not wait for `metadata.max.age.ms`."""
    name = topic(1)
    fill(name, {0: 2})
    query = start(
        subscribe=name, startingOffsets="earliest", kafka__group__id=f"{name}-g", kafka__group__protocol="classic"
    )
    query.read(2)
    admin.create_partitions(name, 3)
    fill(name, {2: 4})
    query.read(6)


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"starting": {0: 1}}, "startingOffsets gives offsets for some partitions only; missing: NAME-1"),
        ({"ending": {0: 1, 1: 1, 5: 1}}, "endingOffsets names partitions that are not read: NAME-5"),
        ({"starting": {0: 1, 1: 6}}, "startingOffsets: NAME-1 has no offset 6, it ends at 5; give one up to that"),
        ({"ending": {0: 1, 1: 6}}, "endingOffsets: NAME-1 has no offset 6, it ends at 5"),
        ({"starting": {0: 1, 1: 4}, "ending": {0: 1, 1: 3}}, "NAME-1 would end at 3 and begin at 4 (startingOffsets)"),
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


def test_a_group_does_not_matter_to_a_batch(address: str, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """No member, no commit: a batch may read beside a running query of that group."""
    name = topic(1)
    fill(name, {0: 5})
    assert batch(address, subscribe=name, kafka__group__id=f"{name}-g") == [(0, EARLIEST, LATEST)]
    assert not [group for group in admin.list_groups() if group.group_id == f"{name}-g"]
