"""Partitions as flat numbers, and targets as arrays of owners."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.assign.ownership import PartitionSpace, changed_members, gather_owners, spread_owners
from kohort.ids import TopicId
from support.builders.assignables import loads_of

A, B, C = (TopicId(name * 16) for name in (b"a", b"b", b"c"))


@given(counts=st.lists(st.integers(0, 5), max_size=6))
def test_flat_and_name_are_inverse(counts: list[int]) -> None:
    space = PartitionSpace((TopicId(bytes([i]) * 16), count) for i, count in enumerate(counts))
    names = [(TopicId(bytes([i]) * 16), partition) for i, count in enumerate(counts) for partition in range(count)]
    assert [space.name(flat) for flat in range(len(space))] == names
    assert [space.flat(*name) for name in names] == list(range(sum(counts)))


def test_what_is_not_in_the_space_has_no_number() -> None:
    space = PartitionSpace([(A, 2)])
    assert space.flat(A, 2) == space.flat(A, -1) == space.flat(B, 0) == -1


def test_a_target_becomes_owners_and_back() -> None:
    space = PartitionSpace([(A, 3), (B, 0), (C, 2)])
    targets: list[dict[TopicId, tuple[int, ...]]] = [{A: (0, 2)}, {}, {A: (1,), C: (1,)}]
    owner = gather_owners(space, targets)
    assert list(owner) == [0, 2, 0, -1, 2]
    assert spread_owners(space, owner, range(3)) == dict(enumerate(targets))
    assert spread_owners(space, owner, [2]) == {2: targets[2]}
    assert spread_owners(space, owner, []) == {}


def test_partitions_that_are_no_more_lose_their_owner() -> None:
    space = PartitionSpace([(A, 1)])
    assert list(gather_owners(space, [{A: (0, 1), B: (0,)}])) == [0]


def test_only_those_who_lose_or_gain_are_changed() -> None:
    before = array("i", [0, 1, 2, -1])
    after = array("i", [0, 3, 2, 4])
    assert changed_members(before, after, 6) == [1, 3, 4]


def test_impossible_partitions_and_owners_are_passed_over() -> None:
    """Compiled loops trust their arrays: what comes from a log or from elsewhere must not lead them astray."""
    space = PartitionSpace([(A, 2)])
    assert list(gather_owners(space, [{A: (-1, 0, 2**31)}])) == [0, -1]
    assert changed_members(array("i", [0, 7]), array("i", [-9, 1]), 2) == [0, 1]


def test_an_owner_that_is_no_member_is_a_bug_of_the_caller() -> None:
    with pytest.raises(IndexError, match="partition 1 is owned by member 7 of 2"):
        loads_of(array("i", [0, 7]), 2)
