"""What a leader computes: complete, exclusive, and the same as Kafka's own assignors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from kohort.client.membership.client_assignor import assign
from kohort.ids import TopicPartition

TOPICS = ["t1", "t2", "t3"]


class Cluster:
    """What kafka-python's assignors ask of its metadata."""

    def __init__(self, partitions: dict[str, list[int]]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._partitions[topic]) if topic in self._partitions else None


subscriptions = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]), st.lists(st.sampled_from(TOPICS), unique=True, min_size=1), min_size=1
)
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(subscriptions=subscriptions, counts=partition_counts)
def test_each_partition_goes_to_one_member_that_wants_it(
    name: str, subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    """G11: no partition twice, none forgotten that anybody reads."""
    partitions = {topic: list(range(count)) for topic, count in counts.items()}

    result = assign(name, dict(sorted(subscriptions.items())), partitions)

    given_out = [partition for member in result.values() for partition in member]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    expected = {TopicPartition(topic, n) for topic, numbers in partitions.items() if topic in wanted for n in numbers}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == expected
    assert all(partition.topic in subscriptions[member] for member, held in result.items() for partition in held)


@given(subscriptions=subscriptions, counts=partition_counts)
def test_range_agrees_with_kafka_python(subscriptions: dict[str, list[str]], counts: dict[str, int]) -> None:
    """Members of different makes lead in turn; the name must mean the same."""
    agrees("range", RangePartitionAssignor, subscriptions, counts)


@given(members=st.sets(st.sampled_from("abcd"), min_size=1), counts=partition_counts)
def test_roundrobin_agrees_with_kafka_python(members: set[str], counts: dict[str, int]) -> None:
    """The circle starts with the first member; kafka-python's fails on members that subscribe to different topics."""
    agrees("roundrobin", RoundRobinPartitionAssignor, dict.fromkeys(members, TOPICS), counts)


def agrees(name: str, theirs: Any, subscriptions: dict[str, list[str]], counts: dict[str, int]) -> None:
    partitions = {topic: list(range(count)) for topic, count in counts.items()}
    members = [
        SimpleNamespace(member_id=member, group_instance_id=None, metadata=theirs.metadata(topics))
        for member, topics in subscriptions.items()
    ]

    ours = assign(name, dict(sorted(subscriptions.items())), partitions)

    for member, assignment in theirs.assign(Cluster(partitions), members).items():
        assert {(each.topic, each.partition) for each in assignment.partitions()} == set(ours[member])
