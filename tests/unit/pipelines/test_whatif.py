"""The same group with another assignor."""

from __future__ import annotations

import pytest

from kohort.errors import ConfigError
from kohort.pipelines.tables import what_if
from support.dialogues.journal_rows import replay


def test_what_an_assignor_moves_is_what_it_takes_from_living_members() -> None:
    tell, told = replay(["sticky"], orders=4)
    tell.joins("ada")
    tell.joins("bob")
    tell.goes("ada", "member left")
    assert [(each.epoch, each.members, each.moved, each.fewest, each.most) for each in told.take()] == [
        (2, 1, 0, 4, 4),
        (3, 2, 2, 2, 2),
        (4, 1, 0, 4, 4),
    ]


def test_assignors_go_on_from_their_own_answers() -> None:
    """range goes by the order of ids: who comes first in it moves what is behind it."""
    tell, told = replay(["sticky", "range"], orders=12)
    for member in ("m3", "m2", "m1"):
        tell.joins(member)
    moved: dict[str, int] = {}
    for each in told.take():
        moved[each.assignor] = moved.get(each.assignor, 0) + each.moved
    assert moved["sticky"] == 10
    assert moved["range"] > moved["sticky"]


def test_members_that_come_together_are_one_assignment() -> None:
    """The coordinator waits for others before it computes one; an assignor is asked as often as it did."""
    tell, told = replay(["uniform"], orders=4)
    tell.joins("ada", alone=False)
    tell.joins("bob")
    assert [(each.epoch, each.members, each.moved) for each in told.take()] == [(3, 2, 0)]


def test_partitions_are_learnt_from_rows_where_nobody_says_them() -> None:
    tell, told = replay(["uniform"])
    tell.joins("ada")
    tell.settles("ada", gained="orders-0 orders-5")
    tell.joins("bob")
    assert [each.partitions for each in told.take()] == [0, 6]


def test_what_was_given_stays_given_when_a_topic_grows() -> None:
    tell, told = replay(["sticky"], orders=2)
    tell.joins("ada")
    tell.settles("ada", gained="orders-0 orders-5")
    tell.joins("bob")
    tell.goes("bob", "member left")
    assert [(each.partitions, each.moved, each.fewest) for each in told.take()] == [(2, 0, 2), (6, 0, 3), (6, 0, 6)]


def test_a_static_member_s_next_process_has_what_it_had() -> None:
    tell, told = replay(["sticky"], orders=4)
    tell.joins("m1", instance="one")
    tell.joins("ada")
    tell.goes("m1", "static member returned", instance="one")
    tell.row("member_joined", "m9", instance="one", client="app", topics="orders")
    tell.bumped("topics changed")
    assert [each.moved for each in told.take()] == [0, 2, 0]


def test_patterns_are_matched_with_the_topics_that_are_known() -> None:
    tell, told = replay(["uniform"], orders=4, returns=2, other=8)
    tell.row("member_joined", "m1", pattern="orders|ret.*")
    tell.bumped("member joined")
    assert [each.partitions for each in told.take()] == [6]


def test_a_pattern_that_is_none_matches_nothing() -> None:
    tell, told = replay(["uniform"], orders=4)
    tell.row("member_joined", "m1", pattern="(")
    tell.bumped("member joined")
    assert [each.partitions for each in told.take()] == [0]


def test_an_assignor_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no assignor 'even': one of uniform, range, roundrobin, sticky"):
        what_if(None, ["even"])  # type: ignore[arg-type]
