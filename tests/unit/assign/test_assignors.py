"""What every assignor promises, and what each of those that go by lists does."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.assign.assignors import BUILT_IN, built_in
from kohort.assign.interface import UNLIMITED, Assignable, Assignor
from kohort.assign.kernels import count_moves
from kohort.assign.moves import kept_owners, spread_of
from support.builders.assignables import group_of, loads_of, owned


def assignor(name: str) -> Assignor:
    found = built_in(name)
    assert found is not None
    return found


@st.composite
def groups(draw: st.DrawFn) -> Assignable:
    """Any group of up to 7 members and 5 topics, with any owners of before, also such that want their topic no more."""
    topics = {f"t{i}": draw(st.integers(0, 8)) for i in range(draw(st.integers(1, 5)))}
    members = [f"m{i}" for i in range(draw(st.integers(1, 7)))]
    # One strategy for all draws: to make one costs as much as to draw from it.
    some_topics, any_owner = st.sets(st.sampled_from(sorted(topics))), st.integers(-1, len(members) - 1)
    subscriptions = {member: sorted(draw(some_topics)) for member in members}
    static = {member: f"name-{member}" for member in draw(st.sets(st.sampled_from(members)))}
    empty = group_of(topics, subscriptions)
    owner = [draw(any_owner) for _ in range(len(empty.space))]
    return group_of(
        topics,
        subscriptions,
        owner=owner,
        static=static,
        max_moves=draw(st.integers(UNLIMITED, 5)),
        imbalance=draw(st.integers(0, 3)),
    )


@pytest.mark.large
@pytest.mark.parametrize("name", BUILT_IN)
@given(data=st.data())
def test_every_partition_goes_to_a_subscriber_and_the_input_is_left_alone(name: str, data: st.DataObject) -> None:
    group = data.draw(groups())
    before = group.owner[:]
    after = assignor(name).assign(group)
    assert group.owner == before
    assert after == assignor(name).assign(group)
    assert len(after) == len(before)
    for topic, start in enumerate(group.space.starts):
        assert set(after[start : start + group.space.counts[topic]]) <= set(group.subscribers[topic])


@pytest.mark.large
@pytest.mark.parametrize("name", BUILT_IN)
@given(data=st.data())
def test_no_more_moves_than_allowed_and_the_next_computations_do_the_rest(name: str, data: st.DataObject) -> None:
    """Requirement H2: a limit delays moves; it neither loses them nor keeps a partition from getting an owner."""
    group = data.draw(groups())
    owner = group.owner
    for _ in range(100):
        now = with_owner(group, owner, max_moves=2)
        after = assignor(name).assign(now)
        assert count_moves(kept_owners(now), after) <= 2
        if after == owner:
            break
        owner = after
    assert assignor(name).assign(with_owner(group, owner, max_moves=UNLIMITED)) == owner


def with_owner(group: Assignable, owner: array[int], *, max_moves: int) -> Assignable:
    return Assignable(
        space=group.space,
        topic_names=group.topic_names,
        members=group.members,
        subscribers=group.subscribers,
        owner=owner,
        max_moves=max_moves,
        imbalance=group.imbalance,
    )


@pytest.mark.parametrize("name", BUILT_IN)
def test_nothing_to_assign(name: str) -> None:
    assert list(assignor(name).assign(group_of({}, {"a": []}))) == []
    assert list(assignor(name).assign(group_of({"t": 0}, {"a": ["t"], "b": []}))) == []
    assert list(assignor(name).assign(group_of({}, {}))) == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_one_member_gets_all_of_thousands_of_topics(name: str) -> None:
    topics = {f"t{i:04}": 1 for i in range(3000)}
    group = group_of(topics, {"a": list(topics)})
    assert set(assignor(name).assign(group)) == {0}


def test_who_is_not_built_in_has_no_name_here() -> None:
    assert built_in("mine") is None
    assert all(isinstance(built_in(name), Assignor) for name in BUILT_IN)
    assert [assignor(name).name for name in BUILT_IN] == list(BUILT_IN)


def test_ranges_of_equal_topics_are_equal() -> None:
    """Kafka's range assignor: so that records of one key meet in one member."""
    group = group_of({"orders": 7, "payments": 7}, {m: ["orders", "payments"] for m in "abc"})
    expected = {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}
    assert owned(group, assignor("range").assign(group)) == {
        member: {"orders": ranges, "payments": ranges} for member, ranges in expected.items()
    }


def test_ranges_are_cut_for_the_subscribers_of_each_topic() -> None:
    group = group_of({"t": 4, "u": 3}, {"a": ["t", "u"], "b": ["t"], "c": ["u"]})
    assert owned(group, assignor("range").assign(group)) == {
        "a": {"t": [0, 1], "u": [0, 1]},
        "b": {"t": [2, 3]},
        "c": {"u": [2]},
    }


def test_static_members_come_first_and_keep_their_ranges() -> None:
    """Kafka's range assignor orders static members by their names, whatever their member ids."""
    for static in ({"b": "first", "c": "second"}, {"x": "first", "b": "second"}):
        group = group_of({"t": 3}, {member: ["t"] for member in {"a", *static}}, static=static)
        found = owned(group, assignor("range").assign(group))
        names = {name: member for member, name in static.items()}
        assert (found[names["first"]], found[names["second"]], found["a"]) == ({"t": [0]}, {"t": [1]}, {"t": [2]})


def test_equal_partitions_of_equal_topics_move_together() -> None:
    """With a limit of two moves, both topics' partition 2 go, not two partitions of one topic."""
    group = group_of({"t": 6, "u": 6}, {m: ["t", "u"] for m in "abc"}, owner=[0, 0, 0, 1, 1, 1] * 2, max_moves=2)
    after = assignor("range").assign(group)
    assert list(after) == [0, 0, 1, 1, 1, 1] * 2


def test_round_robin_goes_on_where_the_last_topic_ended() -> None:
    group = group_of({"t": 4, "u": 2}, {m: ["t", "u"] for m in "abc"})
    assert list(assignor("roundrobin").assign(group)) == [0, 1, 2, 0, 1, 2]


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    """The example in the documentation of Kafka's assignor: C0 to t0, C1 to t0 and t1, C2 to all three."""
    group = group_of({"t0": 1, "t1": 2, "t2": 3}, {"c0": ["t0"], "c1": ["t0", "t1"], "c2": ["t0", "t1", "t2"]})
    assert owned(group, assignor("roundrobin").assign(group)) == {
        "c0": {"t0": [0]},
        "c1": {"t1": [0]},
        "c2": {"t1": [1], "t2": [0, 1, 2]},
    }


@pytest.mark.parametrize("name", ["uniform", "sticky"])
def test_the_largest_loads_give_first_where_moves_are_limited(name: str) -> None:
    group = group_of({"t": 9}, {m: ["t"] for m in "abcd"}, owner=[0] * 6 + [1] * 3, max_moves=2)
    assert list(loads_of(assignor(name).assign(group), 4)) == [4, 3, 1, 1]


@pytest.mark.parametrize("name", ["uniform", "sticky"])
def test_a_limit_of_no_moves_still_gives_free_partitions_to_who_has_least(name: str) -> None:
    group = group_of({"t": 8}, {m: ["t"] for m in "abc"}, owner=[0] * 5 + [1, -1, -1], max_moves=0)
    assert list(assignor(name).assign(group)) == [0, 0, 0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("name", ["uniform", "sticky"])
@given(held=st.lists(st.integers(0, 12), min_size=1, max_size=6), free=st.integers(0, 9), imbalance=st.integers(0, 4))
def test_tolerated_imbalance_saves_moves(name: str, held: list[int], free: int, imbalance: int) -> None:
    """As few moves as lead within the tolerance, which no other choice of the lowest load does with less."""
    owner = [member for member, load in enumerate(held) for _ in range(load)] + [-1] * free
    members = [f"m{i}" for i in range(len(held))]
    group = group_of({"t": len(owner)}, {m: ["t"] for m in members}, owner=owner, imbalance=imbalance)
    after = assignor(name).assign(group)
    assert spread_of(loads_of(after, len(held))) <= 1 + imbalance
    least = min(
        max(sum(max(load - low - 1 - imbalance, 0) for load in held), sum(max(low - load, 0) for load in held) - free)
        for low in range(max(len(owner) // len(held) - imbalance, 0), len(owner) // len(held) + 1)
    )
    assert count_moves(group.owner, after) == least
