"""Options of streaming queries, as Spark drives them, in this process, against a real broker."""

from __future__ import annotations

from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.errors import ConfigError
from support.dialogues.spark_query import Start, places
from support.waiting import until


def test_a_timestamp_starts_a_query(start: Start, topic: Any, fill: Any, address: str) -> None:
    """For all partitions or for each; where no record is that young a strategy decides."""
    name = topic(2)
    with kohort.Producer(bootstrap_servers=address) as producer:
        for number in range(4):
            producer.send(name, b"v", partition=0, timestamp_ms=1_000 * number).result(10)
    with pytest.raises(ConfigError, match=f"startingTimestamp: {name}-1 has no record that is as young as 1500"):
        start(subscribe=name, startingTimestamp="1500").trigger()
    query = start(subscribe=name, startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest")
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(2, 4)})
    by_partition = f'{{"{name}": {{"0": 3000, "1": 5}}}}'
    each = start(subscribe=name, startingOffsetsByTimestamp=by_partition, startingOffsetsByTimestampStrategy="latest")
    each.run()
    fill(name, {1: 1})
    each.run()
    assert each.checkpoint.places() == places(name, {0: range(3, 4), 1: range(1)})
    with pytest.raises(ConfigError, match=f"startingOffsetsByTimestamp names partitions that are not read: {name}-7"):
        start(subscribe=name, startingOffsetsByTimestamp=f'{{"{name}": {{"7": 5}}}}').trigger()


def test_few_records_wait_for_more(start: Start, topic: Any, fill: Any) -> None:
    """`minOffsetsPerTrigger`: what waits is read with what comes; the first batch of a run does not wait."""
    name = topic(1)
    fill(name, {0: 2})
    query = start(subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6)
    assert len(query.trigger()) == 2
    fill(name, {0: 4})
    assert query.plan() is False
    fill(name, {0: 3})
    assert query.trigger() == places(name, {0: range(2, 8)})
    assert query.plan() is False


def test_a_wait_for_more_records_ends(start: Start, topic: Any, fill: Any) -> None:
    """`maxTriggerDelay`."""
    name = topic(1)
    query = start(subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="300ms")
    query.run()
    fill(name, {0: 1})
    until(query.trigger, what="the record is read although it is alone")
    assert query.checkpoint.places() == places(name, {0: range(1)})


def test_available_now_does_not_wait_for_more(start: Start, topic: Any, fill: Any) -> None:
    """Its run has an end, and nothing that was there is left for the next one."""
    name = topic(1)
    fill(name, {0: 7})
    query = start(
        subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger=4, maxOffsetsPerTrigger=5, available_now=True
    )
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(7)})


def test_partitions_are_cut_into_tasks(start: Start, topic: Any, fill: Any) -> None:
    """`minPartitions` and `maxRecordsPerPartition`."""
    name = topic(1)
    fill(name, {0: 10})
    for option, count in ({"minPartitions": 3}, 3), ({"maxRecordsPerPartition": 3}, 4):
        query = start(subscribe=name, startingOffsets="earliest", **option)
        assert query.plan()
        end = query._json(query.checkpoint.offsets[-1])
        assert len(query.reader.partitions({}, end)) == count
        assert query.execute() == places(name, {0: range(10)})


def test_topics_of_a_pattern_come_as_they_are_made(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """Also by a query that started at the latest offset: their records came after its start."""
    name = topic(1)
    query = start(subscribePattern=f"{name}(-later)?")
    assert query.trigger() == []
    admin.create_topic(f"{name}-later", 1)
    fill(f"{name}-later", {0: 2})
    fill(name, {0: 1})
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(1)}) + places(f"{name}-later", {0: range(2)})


def test_a_member_may_subscribe_to_a_pattern(start: Start, topic: Any, fill: Any) -> None:
    """Of a group: the pattern is the member's."""
    pytest.importorskip("re2", reason="google-re2 is not installed")
    name = topic(2)
    fill(name, {0: 2, 1: 1})
    query = start(subscribePattern=f"{name}|none", kafka__group__id=name, startingOffsets="committed")
    query.read(3)
    assert query.checkpoint.places() == places(name, {0: range(2), 1: range(1)})


def test_a_member_of_the_classic_protocol_reads(start: Start, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """`kafka.group.protocol`, by an assignor under Java's name."""
    name = topic(2)
    fill(name, {0: 2, 1: 1})
    assignor = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    query = start(
        subscribe=name,
        startingOffsets="earliest",
        **{"kafka.group.id": name, "kafka.group.protocol": "classic", "kafka.partition.assignment.strategy": assignor},
    )
    query.read(3)
    assert query.checkpoint.places() == places(name, {0: range(2), 1: range(1)})
    assert admin.describe_group(name).group_type == "classic"


def test_a_query_begins_where_its_group_stands(start: Start, topic: Any, fill: Any, address: str) -> None:
    """`startingOffsets=committed`, without a checkpoint; from the beginning where the group stands nowhere."""
    name = topic(2)
    fill(name, {0: 4, 1: 3})
    with kohort.Consumer(bootstrap_servers=address, group_id=name) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        consumer.commit({TopicPartition(name, 0): 3})
    query = start(subscribe=name, kafka__group__id=name, startingOffsets="committed")
    query.read(4)
    assert query.checkpoint.places() == places(name, {0: range(3, 4), 1: range(3)})


def test_bytes_bound_a_batch(start: Start, topic: Any, address: str) -> None:
    """`maxBytesPerTrigger`, beside a limit of records; in AvailableNow too, until everything is read."""
    name = topic(2)
    with kohort.Producer(bootstrap_servers=address) as producer:
        for number in range(200):
            producer.send(name, b"v" * 1_000, partition=number % 2)
    query = start(subscribe=name, startingOffsets="earliest", maxBytesPerTrigger=50_000, available_now=True)
    assert len(query.trigger()) == pytest.approx(50, abs=4)
    query.run()
    assert query.checkpoint.places() == places(name, {0: range(100), 1: range(100)})
    both = start(subscribe=name, startingOffsets="earliest", maxBytesPerTrigger=50_000, maxOffsetsPerTrigger=10)
    assert len(both.trigger()) == 10


def test_what_changes_nothing_is_said_once(start: Start, topic: Any, caplog: pytest.LogCaptureFixture) -> None:
    """By the process that plans."""
    name = topic(1)
    query = start(subscribe=name, groupIdPrefix="etl")
    query.run()
    query.run()
    assert caplog.text.count("option groupIdPrefix changes nothing") == 1
