"""What a leader computes: complete, exclusive, and the same as Kafka's own assignors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from kohort.client.consumer.membership.client_assignor import GroupMember, assign
from kohort.wire.embedded import Subscription

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


def members_of(
    subscriptions: dict[str, list[str]], owned: dict[str, dict[str, list[int]]] | None = None, generation: int = 1
) -> list[GroupMember]:
    """Members with what they hold."""
    return [
        GroupMember(
            member_id=member,
            subscription=Subscription(
                topics=tuple(topics),
                owned_partitions={topic: tuple(numbers) for topic, numbers in (owned or {}).get(member, {}).items()},
                generation_id=generation,
            ),
        )
        for member, topics in subscriptions.items()
    ]


def pairs_of(result: dict[str, dict[str, list[int]]]) -> dict[str, set[tuple[str, int]]]:
    return {
        member: {(topic, number) for topic, numbers in held.items() for number in numbers}
        for member, held in result.items()
    }


@pytest.mark.large
@pytest.mark.parametrize("name", ["range", "roundrobin", "cooperative-sticky"])
@given(subscriptions=subscriptions, counts=partition_counts)
def test_each_partition_goes_to_one_member_that_wants_it(
    name: str, subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    """G11: no partition twice, none forgotten that anybody reads."""
    result = pairs_of(assign(name, members_of(subscriptions), counts))

    given_out = [partition for held in result.values() for partition in held]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    expected = {(topic, n) for topic, count in counts.items() if topic in wanted for n in range(count)}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == expected
    assert all(topic in subscriptions[member] for member, held in result.items() for topic, _ in held)


@pytest.mark.large
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

    ours = pairs_of(assign(name, members_of(subscriptions), counts))

    for member, assignment in theirs.assign(Cluster(partitions), members).items():
        assert {(each.topic, each.partition) for each in assignment.partitions()} == ours[member]


@given(
    before=st.sets(st.sampled_from("abcd"), min_size=1),
    after=st.sets(st.sampled_from("abcd"), min_size=1),
    counts=partition_counts,
)
def test_cooperative_members_come_to_rest_in_two_rounds(
    before: set[str], after: set[str], counts: dict[str, int]
) -> None:
    """KIP-429: first the losers give up, then the winners get it; nothing has two owners in between."""
    held = assign("cooperative-sticky", members_of(dict.fromkeys(before, TOPICS)), counts)
    had = pairs_of(held)

    first = assign("cooperative-sticky", members_of(dict.fromkeys(after, TOPICS), held), counts)
    for member, got in pairs_of(first).items():
        others = {each for other in (before & after) - {member} for each in had[other]}
        assert not got & others, "it is still held"
        assert got >= had.get(member, set()) or len(after) > len(before & after) or got <= had[member]
    second = assign("cooperative-sticky", members_of(dict.fromkeys(after, TOPICS), first), counts)

    assert all(got >= pairs_of(first)[member] for member, got in pairs_of(second).items())
    assert sum(map(len, pairs_of(second).values())) == sum(counts.values())
    loads = [len(got) for got in pairs_of(second).values()]
    assert max(loads) - min(loads) <= 1
    assert assign("cooperative-sticky", members_of(dict.fromkeys(after, TOPICS), second), counts) == second


def test_partition_that_two_claim_is_the_younger_generations() -> None:
    """KIP-792: a member that missed a rebalance must not get back what others hold by now."""
    late = members_of({"a": ["t1"]}, {"a": {"t1": [0, 1]}}, generation=3)
    new = members_of({"b": ["t1"]}, {"b": {"t1": [1]}}, generation=4)

    result = assign("cooperative-sticky", [*late, *new], {"t1": 2})

    # Both say that they hold partition 1: it goes to the younger one when the older has joined without it.
    assert result == {"a": {"t1": [0]}, "b": {}}
    joined = members_of({"a": ["t1"], "b": ["t1"]}, {"a": {"t1": [0]}}, generation=5)
    assert assign("cooperative-sticky", joined, {"t1": 2}) == {"a": {"t1": [0]}, "b": {"t1": [1]}}


def test_generation_of_older_clients_is_in_their_user_data() -> None:
    """Before KIP-792 Kafka's cooperative assignor wrote it there."""

    def member(name: str, generation: int) -> GroupMember:
        subscription = Subscription(
            topics=("t1",), owned_partitions={"t1": (0,)}, user_data=generation.to_bytes(4, "big", signed=True)
        )
        return GroupMember(member_id=name, subscription=subscription)

    first = assign("cooperative-sticky", [member("a", 3), member("b", 4)], {"t1": 1})

    assert first == {"a": {}, "b": {}}, "both hold it: the older has to join without it first"
