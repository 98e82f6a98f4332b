"""The assignor of groups that a scheduler moves: what is owned stays, what is free is spread."""

from __future__ import annotations

from array import array
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assign.assignors import External
from kohort.assign.interface import Assignable
from kohort.assign.moves import kept_owners, spread_of
from support.builders.assignables import group_of, loads_of, owned, partitions_of


@st.composite
def groups(draw: st.DrawFn) -> Assignable:
    """Up to 4 members and 4 topics, any owners of before, and at most 6 partitions that nobody has."""
    topics = {f"t{i}": draw(st.integers(0, 5)) for i in range(draw(st.integers(1, 4)))}
    members = [f"m{i}" for i in range(draw(st.integers(1, 4)))]
    all_topics = sorted(topics)
    some_topics = st.sets(st.sampled_from(all_topics))
    subscriptions = {member: sorted(draw(some_topics)) for member in members}
    if draw(st.booleans()):
        subscriptions = dict.fromkeys(members, all_topics)
    who = partitions_of(group_of(topics, subscriptions))
    free = draw(st.sets(st.integers(0, max(len(who) - 1, 0)), max_size=6))
    owner = [-1 if p in free else draw(st.sampled_from(list(each))) for p, each in enumerate(who)]
    return group_of(
        topics, subscriptions, owner=owner, max_moves=draw(st.integers(-1, 2)), imbalance=draw(st.integers(0, 2))
    )


def squares(group: Assignable, owner: array[int]) -> int:
    return sum(load * load for load in loads_of(owner, len(group.members)))


@pytest.mark.large
@given(group=groups())
@settings(max_examples=200)
def test_owners_keep_what_they_have_and_the_rest_makes_loads_as_even_as_it_can(group: Assignable) -> None:
    after = External().assign(group)
    kept = kept_owners(group)
    assert all(new == old for old, new in zip(kept, after, strict=True) if old >= 0)
    choices = [who if old < 0 else [old] for old, who in zip(kept, partitions_of(group), strict=True)]
    assert squares(group, after) == min(squares(group, array("i", owner)) for owner in product(*choices))


def test_who_joins_a_group_in_which_all_is_owned_gets_nothing() -> None:
    group = group_of({"t": 4}, {"a": ["t"], "b": ["t"]}, owner=[0, 0, 0, 0])
    assert owned(group, External().assign(group)) == {"a": {"t": [0, 1, 2, 3]}, "b": {}}


def test_what_a_member_leaves_goes_to_who_has_least_of_its_subscribers() -> None:
    """c has as little as b, but wants another topic."""
    subscriptions = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}
    group = group_of({"t": 6, "u": 1}, subscriptions, owner=[0, 0, 0, 1, -1, -1, 2])
    assert owned(group, External().assign(group)) == {"a": {"t": [0, 1, 2]}, "b": {"t": [3, 4, 5]}, "c": {"u": [0]}}


def test_what_its_owner_subscribes_to_no_more_is_given_to_somebody_else() -> None:
    group = group_of({"t": 2, "u": 2}, {"a": ["u"], "b": ["t", "u"]}, owner=[0, 0, 0, 0])
    assert owned(group, External().assign(group)) == {"a": {"u": [0, 1]}, "b": {"t": [0, 1]}}


def test_what_is_free_goes_where_it_is_needed_though_others_could_have_it() -> None:
    """c is loaded already: b takes what is free of u, and leaves t to a."""
    subscriptions = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}
    group = group_of({"t": 5, "u": 8}, subscriptions, owner=[-1] * 5 + [2] * 6 + [-1] * 2)
    assert list(loads_of(External().assign(group), 3)) == [3, 4, 6]


def test_it_deals_a_group_that_is_new_as_evenly_as_uniform_does() -> None:
    topics = {f"t{i:04}": 3 for i in range(1000)}
    names = list(topics)
    group = group_of(topics, {f"m{i:02}": names[(i % 4) * 250 : (i % 4 + 1) * 250] for i in range(40)})
    assert spread_of(loads_of(External().assign(group), 40)) == 0
