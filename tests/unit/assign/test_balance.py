"""Different subscriptions: the best balance, the fewest moves for it, and work that stays bounded."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable
from kohort.assign.kernels import count_moves
from kohort.assign.moves import kept_owners, spread_of
from kohort.assign.ownership import PartitionSpace
from kohort.assign.uniform import assign_heterogeneous
from kohort.ids import TopicId
from support.builders.assignables import group_of, loads_of, partitions_of
from support.work import steps_of, use_plain_kernels


@st.composite
def small_groups(draw: st.DrawFn) -> Assignable:
    """Up to 4 members, 4 topics and 7 partitions, with any owners of before."""
    topics = {f"t{i}": draw(st.integers(0, 3)) for i in range(draw(st.integers(1, 4)))}
    members = [f"m{i}" for i in range(draw(st.integers(1, 4)))]
    some_topics = st.sets(st.sampled_from(sorted(topics)))
    subscriptions = {member: sorted(draw(some_topics)) for member in members}
    size = len(group_of(topics, subscriptions).space)
    owner = draw(st.lists(st.integers(-1, len(members) - 1), min_size=size, max_size=size))
    return group_of(topics, subscriptions, owner=owner)


def value(group: Assignable, owner: Sequence[int]) -> tuple[int, int]:
    """(sum of the squared loads, moves)."""
    loads = [0] * len(group.members)
    for member in owner:
        loads[member] += 1
    kept = kept_owners(group)
    moves = sum(1 for old, new in zip(kept, owner, strict=True) if old not in (-1, new))
    return sum(load * load for load in loads), moves


def all_assignments(group: Assignable) -> Iterator[tuple[int, int]]:
    return (value(group, owner) for owner in product(*partitions_of(group)))


def assign(name: str, group: Assignable) -> array[int]:
    assignor = built_in(name)
    assert assignor is not None
    return assignor.assign(group)


@pytest.mark.large
@given(group=small_groups())
@settings(max_examples=150)
def test_uniform_is_the_evenest_with_the_fewest_moves_of_all_assignments(group: Assignable) -> None:
    if 0 < len(group.space) <= 7:
        assert value(group, assign("uniform", group)) == min(all_assignments(group))


@pytest.mark.large
@given(group=small_groups())
@settings(max_examples=150)
def test_each_move_of_sticky_pays(group: Assignable) -> None:
    """A move has to even out a difference of 2, which is worth 2 in squares; what pays just so is done."""
    if 0 < len(group.space) <= 7:
        squares, moves = value(group, assign("sticky", group))
        assert (squares + 2 * moves, squares) == min((s + 2 * m, s) for s, m in all_assignments(group))


def test_uniform_makes_a_chain_where_sticky_leaves_two_members_alone() -> None:
    """a has one more than it needs, but only b can take it, and only c can take something from b."""
    subscriptions = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}
    group = group_of({"t": 3, "u": 2}, subscriptions, owner=[0, 0, 0, 1, 1])
    assert list(loads_of(assign("uniform", group), 3)) == [2, 2, 1]
    group = group_of({"t": 3, "u": 3}, subscriptions, owner=[0, 0, 0, 1, 1, 2])
    assert list(loads_of(assign("uniform", group), 3)) == [2, 2, 2]
    assert value(group, assign("uniform", group))[1] == 2
    assert assign("sticky", group) == group.owner


@pytest.mark.parametrize("name", ["uniform", "sticky"])
@given(group=small_groups(), imbalance=st.integers(0, 3))
def test_no_single_move_that_the_tolerance_asks_for_is_left(name: str, group: Assignable, imbalance: int) -> None:
    tolerant = group_of(
        dict(zip(group.topic_names, group.space.counts, strict=True)),
        {
            member.member_id: [
                topic for topic, who in zip(group.topic_names, group.subscribers, strict=True) if number in who
            ]
            for number, member in enumerate(group.members)
        },
        owner=group.owner,
        imbalance=imbalance,
    )
    after = assign(name, tolerant)
    loads = loads_of(after, len(tolerant.members))
    for member, who in zip(after, partitions_of(tolerant), strict=True):
        assert loads[member] - min(loads[other] for other in who) <= 1 + imbalance


@pytest.mark.parametrize("name", ["uniform", "sticky"])
@given(group=small_groups(), limit=st.integers(0, 4))
def test_fewer_moves_than_allowed_are_as_without_a_limit(name: str, group: Assignable, limit: int) -> None:
    limited = Assignable(
        space=group.space,
        topic_names=group.topic_names,
        members=group.members,
        subscribers=group.subscribers,
        owner=group.owner,
        max_moves=limit,
    )
    free, after = assign(name, group), assign(name, limited)
    moves = count_moves(kept_owners(group), free)
    assert count_moves(kept_owners(group), after) == min(moves, limit)
    if moves <= limit:
        assert after == free


def everybody_different(count: int) -> Assignable:
    """Each pair of topics is wanted by one member."""
    wide = next(n for n in range(2, count) if n * (n - 1) // 2 >= count)
    topics = {f"t{i:03}": 1 + i % 7 * 30 for i in range(wide)}
    pairs = list(combinations(sorted(topics), 2))[:count]
    return group_of(topics, {f"m{i:05}": pair for i, pair in enumerate(pairs)})


def ladder(count: int) -> Assignable:
    """Member i wants topics i and i + 1; what the first two have too much can only go from neighbour to neighbour."""
    topics = {f"t{i:05}": 20 for i in range(count + 1)} | {"t00001": 5 * count}
    return group_of(topics, {f"m{i:05}": [f"t{i:05}", f"t{i + 1:05}"] for i in range(count)})


def occupied_ladder(count: int) -> Assignable:
    """The same where every partition has an owner already, so that evenness means to interrupt everybody."""
    group = ladder(count)
    owner = array("i", [who[0] for who in partitions_of(group)])
    return Assignable(
        space=group.space,
        topic_names=group.topic_names,
        members=group.members,
        subscribers=group.subscribers,
        owner=owner,
    )


@pytest.mark.large
@pytest.mark.parametrize("name", ["uniform", "sticky", "range", "roundrobin", "external"])
@pytest.mark.parametrize("build", [everybody_different, ladder, occupied_ladder])
def test_groups_made_to_be_hard_are_assigned_in_work_that_grows_as_they_do(
    name: str, build: Callable[[int], Assignable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that all want something else: twice as many cost less than three times the steps, not four."""
    group = build(1000)
    after = assign(name, group)
    assert all(member in who for member, who in zip(after, partitions_of(group), strict=True))

    use_plain_kernels(monkeypatch)
    few, many = build(200), build(400)
    assert steps_of(lambda: assign(name, many)) < 3 * steps_of(lambda: assign(name, few))


def test_a_topic_without_subscribers_is_nobodys() -> None:
    space = PartitionSpace((TopicId(name * 16), 2) for name in (b"a", b"b"))
    owner = array("i", [0, 1, 1, -1])
    assign_heterogeneous(space, owner, [[], [0, 1]])
    assert list(owner) == [-1, -1, 1, 0]
    assign_heterogeneous(space, owner, [[], []])
    assert list(owner) == [-1] * 4


@pytest.mark.large
def test_thousands_of_topics_with_one_partition_and_teams() -> None:
    topics = {f"t{i:05}": 1 for i in range(4000)}
    names = list(topics)
    group = group_of(topics, {f"m{i:03}": names[(i % 4) * 1000 : (i % 4 + 1) * 1000] for i in range(40)})
    assert spread_of(loads_of(assign("uniform", group), 40)) == 0
