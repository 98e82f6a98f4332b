"""Waiting that was told as rest: who has less than others, and why."""

from __future__ import annotations

import pytest

from kohort.errors import NotInHistoryError
from support.dialogues.explained import explained
from support.dialogues.mixed_dialogue import MixedDialogue
from support.scenarios.situations import settled


def static(**settings: object) -> MixedDialogue:
    """A static group of one member at rest."""
    group = MixedDialogue({"t": 4}, group_membership="static", **settings)
    join(group, "a")
    return group


def join(group: MixedDialogue, name: str) -> None:
    group.heartbeat(name, epoch=0, instance_id=name, client_id=name)
    group.settle()


def test_a_newcomer_of_a_static_group_waits_for_the_window() -> None:
    group = static(group_expansion_timeout_ms=20_000)
    join(group, "b")
    group.advance(5_000)
    found = explained(group)
    assert found.summary == (
        "the group is at rest with 2 members, but b has nothing: it waits with other new members of "
        "the static group for 15 s more (group.expansion.timeout.ms)"
    )
    assert (found.member("b").because, found.member("a").because) == ("window", "")
    for _ in range(4):
        group.advance(4_000)
        group.settle()
    assert [each.because for each in explained(group).members] == ["", ""]
    assert "waits" not in explained(group).summary


def test_the_window_goes_on_over_a_restart() -> None:
    """15 of 20 s were over, and 20.6 s more were waited."""
    group = static(group_expansion_timeout_ms=20_000)
    join(group, "b")
    for _ in range(5):
        group.advance(3_000)
        group.settle()
    group.restart()
    for _ in range(2):
        group.advance(3_100)
        group.settle()
    assert {len(numbers) for numbers in group.holders().values()} == {2}


@pytest.mark.parametrize(
    ("configs", "because"),
    [
        ({"group_assignor_max_moves": 0}, "group.assignor.max.moves"),
        ({"group_assignor_imbalance": 4}, "group.assignor.imbalance"),
    ],
)
def test_a_share_that_a_config_withholds_is_named(configs: dict[str, int], because: str) -> None:
    found = explained(settled("a", "b", **configs))
    standing = found.member("b")
    assert (standing.partitions, standing.because) == ((), because)
    told = f", but b has nothing of the 2 of an even share: {because} withholds the rest"
    assert found.summary == f"the group is at rest with 2 members{told}"
    assert found.last is not None and f"nothing moves{told}; it took" in found.last.sentence


def test_a_subscription_that_no_topic_matches_is_named_until_there_is_one() -> None:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b", topics=["orderz"])
    group.settle()
    found = explained(group)
    assert found.member("b").because == "no topic"
    assert found.summary.endswith(", but b has nothing: there is no topic that it subscribes to (orderz)")
    group.set_topics({"t": 4, "orderz": 1})
    group.advance(1_000)
    group.settle()
    assert explained(group).member("b").sentence == "b has orderz:0: its share"


def test_a_member_is_found_by_its_name_or_its_id() -> None:
    found = explained(settled("a", "b"))
    assert found.member("a") == found.member(found.member("a").member_id)
    assert found.member("a").sentence == "a has t:0-1: its share"
    with pytest.raises(NotInHistoryError, match="it has a, b"):
        found.member("nobody")


def test_the_first_member_s_topic_is_missing_too() -> None:
    group = MixedDialogue({"t": 4})
    group.heartbeat("a", epoch=0, client_id="a", topics=["orderz"])
    group.settle()
    assert explained(group).summary.endswith(", but a has nothing: there is no topic that it subscribes to (orderz)")


def test_a_classic_member_whose_topic_is_missing_is_named_until_there_is_one() -> None:
    group = MixedDialogue({"t": 4})
    x, y = group.classic_group(x=[0, 1, 2, 3], y=[]).values()
    assert [each.because for each in explained(group).members] == ["", ""], "the leader gave it nothing"
    group.set_topics({"u": 4})
    group.rebalance(x, y, shares={"x": [], "y": []})
    found = explained(group)
    assert [each.because for each in found.members] == ["no topic", "no topic"]
    assert found.summary.startswith("the group is at rest with 2 members, but ")
    assert "client-x has nothing: there is no topic that it subscribes to (t)" in found.summary
    group.set_topics({"t": 4})
    group.rebalance(x, y, shares={"x": [0, 1], "y": [2, 3]})
    assert [each.because for each in explained(group).members] == ["", ""]
