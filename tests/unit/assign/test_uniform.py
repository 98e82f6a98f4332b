"""The uniform assignor: even, and as sticky as evenness allows."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assign.ownership import PartitionSpace
from kohort.assign.uniform import assign_heterogeneous, assign_homogeneous
from kohort.ids import TopicId
from support.work import steps_of, use_plain_kernels


def loads_of(owner: array[int], member_count: int) -> list[int]:
    counts = Counter(owner)
    return [counts[member] for member in range(member_count)]


@given(data=st.data(), member_count=st.integers(1, 12), partition_count=st.integers(0, 60))
def test_homogeneous_is_even_and_moves_as_little_as_possible(
    data: st.DataObject, member_count: int, partition_count: int
) -> None:
    owners = st.lists(st.integers(-1, member_count - 1), min_size=partition_count, max_size=partition_count)
    owner = array("i", data.draw(owners))
    before = owner[:]

    assign_homogeneous(owner, member_count)

    assert all(0 <= member < member_count for member in owner)
    loads = loads_of(owner, member_count)
    assert max(loads) - min(loads) <= 1
    quota, extra = divmod(partition_count, member_count)
    held = loads_of(before, member_count)
    could_stay = sum(min(load, quota) for load in held) + min(extra, sum(load > quota for load in held))
    assert sum(old == new for old, new in zip(before, owner, strict=True)) == could_stay


def test_first_assignment_spreads_each_topic_over_the_members() -> None:
    """Dealt out one each: a busy topic does not land on one member."""
    owner = array("i", [-1] * 6)
    assign_homogeneous(owner, 3)
    assert list(owner) == [0, 1, 2, 0, 1, 2]


def test_a_joining_member_gets_its_share_from_those_who_have_more() -> None:
    owner = array("i", [0, 0, 0, 1, 1, 1])
    assign_homogeneous(owner, 3)
    assert list(owner) == [0, 0, 2, 1, 1, 2]


def test_what_was_even_stays() -> None:
    owner = array("i", [2, 0, 1, 1, 0])
    assign_homogeneous(owner, 3)
    assert list(owner) == [2, 0, 1, 1, 0]


@pytest.mark.large
@given(data=st.data())
@settings(max_examples=200)
def test_heterogeneous_leaves_no_move_that_would_help(data: st.DataObject) -> None:
    topic_count = data.draw(st.integers(1, 5))
    member_count = data.draw(st.integers(1, 7))
    counts, members, owners = st.integers(0, 8), st.integers(0, member_count - 1), st.integers(-1, member_count - 1)
    space = PartitionSpace((TopicId(bytes([i]) * 16), data.draw(counts)) for i in range(topic_count))
    some_members = st.sets(members)
    subscribers = [sorted(data.draw(some_members)) for _ in range(topic_count)]
    owner = array("i", [data.draw(owners) for _ in range(len(space))])

    assign_heterogeneous(space, owner, subscribers)

    loads = loads_of(owner, member_count)
    for topic, start in enumerate(space.starts):
        allowed = subscribers[topic]
        for member in owner[start : start + space.counts[topic]]:
            if not allowed:
                assert member == -1
                continue
            assert member in allowed
            assert loads[member] - min(loads[other] for other in allowed) <= 1


@given(data=st.data())
def test_heterogeneous_keeps_a_balanced_assignment(data: st.DataObject) -> None:
    space = PartitionSpace((TopicId(bytes([i]) * 16), data.draw(st.integers(1, 6))) for i in range(3))
    subscribers = [sorted(data.draw(st.sets(st.integers(0, 4), min_size=1))) for _ in range(3)]
    owner = array("i", [-1]) * len(space)
    assign_heterogeneous(space, owner, subscribers)
    again = owner[:]
    assign_heterogeneous(space, again, subscribers)
    assert again == owner


def test_who_has_little_choice_is_served_from_it() -> None:
    """Member 1 only wants the second topic, so member 0 takes the first one alone."""
    space = PartitionSpace([(TopicId(b"a" * 16), 2), (TopicId(b"b" * 16), 2)])
    owner = array("i", [-1] * 4)
    assign_heterogeneous(space, owner, [[0], [0, 1]])
    assert list(owner) == [0, 0, 1, 1]


def test_work_grows_as_the_group_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few passes over members and partitions, for the first target as for a join."""
    use_plain_kernels(monkeypatch)
    few, many = _steps_of_first_target_and_join(100), _steps_of_first_target_and_join(1_000)
    for few_steps, many_steps in zip(few, many, strict=True):
        assert many_steps < 11 * few_steps


def _steps_of_first_target_and_join(members: int) -> tuple[int, int]:
    """For ten partitions per member."""
    owner = array("i", [-1] * (10 * members))
    first = steps_of(lambda: assign_homogeneous(owner, members))
    assert set(Counter(owner).values()) == {10}
    joined = steps_of(lambda: assign_homogeneous(owner, members + 1))
    assert max(Counter(owner).values()) == 10
    return first, joined
