"""Equal values of members are kept once, and nobody can tell: they never change in place.

`GroupDialogue` looks for values that did after every step of every dialogue, and so does each run of the simulation at
its end; what is here is that sharing happens, is bounded, and that a change would be noticed.
"""

from __future__ import annotations

import pytest

from kohort.coordinator.interning import REMEMBERED, SMALL_COUNT, SMALL_TEXT, Interning, check_sharing
from kohort.coordinator.invariants import check_groups
from kohort.coordinator.model import NO_NAMES, NO_PATTERNS, NOBODY, ConsumerMember
from kohort.errors import InvariantViolation
from kohort.ids import TopicId
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

T, U = topic_id_of("t"), topic_id_of("u")


def settle_in(group: GroupDialogue, group_id: str) -> ConsumerMember:
    """A member that has partition 0 and 1 of "t"."""
    group.group_id = group_id
    group.stable(a=[0, 1])
    return group.member("a")


def test_members_in_the_same_place_of_two_groups_keep_one_value(group: GroupDialogue) -> None:
    one, other = settle_in(group, "one"), settle_in(group, "other")
    groups = group.shard.groups.consumer
    assert one.assigned == {T: {0: 1, 1: 1}}
    assert one.assigned is other.assigned
    assert groups["one"].targets["a"] is groups["other"].targets["a"]
    assert one.subscribed_topic_names is other.subscribed_topic_names
    assert one.client_host is other.client_host


def test_what_one_group_does_does_not_show_in_the_other(group: GroupDialogue) -> None:
    one, other = settle_in(group, "one"), settle_in(group, "other")
    group.group_id = "one"
    group.heartbeat("b", epoch=0)
    group.settle()
    assert sum(map(len, one.assigned.values())) == 1
    assert other.assigned == {T: {0: 1, 1: 1}}
    assert group.shard.groups.consumer["other"].targets == {"a": {T: (0, 1)}}


def test_names_patterns_and_votes_are_of_one_group(group: GroupDialogue) -> None:
    settle_in(group, "other")
    group.group_id = "one"
    group.heartbeat("a", epoch=0, instance_id="i", subscribed_topic_regex="t.*", server_assignor="range")
    one, other = (group.shard.groups.consumer[name] for name in ("one", "other"))
    assert (one.instance_ids, one.regex_subscribers, one.assignor_votes) == ({"i": "a"}, {"t.*": 1}, {"range": 1})
    assert one.regexes.keys() == {"t.*"}
    assert (other.instance_ids, other.regex_subscribers, other.assignor_votes, other.regexes) == ({}, {}, {}, {})
    assert not (NO_NAMES or NO_PATTERNS or NOBODY)


def test_a_value_that_is_changed_in_place_is_noticed(group: GroupDialogue) -> None:
    member = settle_in(group, "one")
    member.assigned[T][2] = 1
    with pytest.raises(InvariantViolation, match="SharedValuesStay: grants were changed"):
        check_sharing(group.shard.groups.sharing)
    del member.assigned[T][2]
    target = group.group.targets["a"]
    target[T] = (0,)
    with pytest.raises(InvariantViolation, match="SharedValuesStay: a target was changed"):
        check_sharing(group.shard.groups.sharing)


def test_an_empty_mapping_of_all_groups_that_is_changed_in_place_is_noticed(group: GroupDialogue) -> None:
    NOBODY["range"] = 1
    try:
        with pytest.raises(InvariantViolation, match="empty for all groups"):
            check_groups(group.shard.groups)
    finally:
        NOBODY.clear()


def test_order_is_kept() -> None:
    """What is written to the log, and told to clients, follows the order of the mapping."""
    sharing = Interning()
    first: dict[TopicId, tuple[int, ...]] = {T: (0,), U: (1,)}
    second: dict[TopicId, tuple[int, ...]] = {U: (1,), T: (0,)}
    assert first == second
    assert list(sharing.target(first)) == [T, U]
    assert list(sharing.target(second)) == [U, T]
    assert list(sharing.grants({T: {1: 5, 0: 5}})[T]) == [1, 0]
    assert list(sharing.grants({T: {0: 5, 1: 5}})[T]) == [0, 1]


def test_what_is_remembered_is_bounded() -> None:
    sharing = Interning()
    for number in range(3 * REMEMBERED):
        assert sharing.plain(f"client-{number}") == f"client-{number}"
        assert sharing.target({T: (number,)}) == {T: (number,)}
        assert sharing.grants({T: {number: 1}}) == {T: {number: 1}}
    assert max(len(sharing._plain), len(sharing._targets), len(sharing._grants)) <= REMEMBERED


def test_what_is_large_is_not_remembered() -> None:
    sharing = Interning()
    many = SMALL_COUNT + 1
    assert sharing.plain("c" * (SMALL_TEXT + 1))
    assert sharing.plain(("t" * (SMALL_TEXT + 1),))
    assert len(sharing.plain(tuple(map(str, range(many))))) == many
    assert len(sharing.target({T: tuple(range(many))})[T]) == many
    assert len(sharing.grants({T: dict.fromkeys(range(many), 1)})[T]) == many
    assert not (sharing._plain or sharing._targets or sharing._grants)
