"""A consumer that blocks on nothing but Fetch (H10): what it is told there, and what is left to heartbeats.

Source: requirement H10; users@kafka, "New Consumer Design", July 2014 (a coordinator tells consumers of a rebalance).
"""

from __future__ import annotations

from random import Random

import pytest

from kohort.coordinator.commands import ConsumerGroupHeartbeatReply
from support.dialogues.hold_dialogue import HoldDialogue

SESSION_MS = 45_000


@pytest.fixture
def group() -> HoldDialogue:
    """A group "g" without members, and a topic "t" of four partitions."""
    return HoldDialogue({"t": 4})


@pytest.mark.parametrize("seed", range(20))
def test_a_member_told_by_a_fetch_is_told_what_a_heartbeat_would_be(group: HoldDialogue, seed: int) -> None:
    """H10: gains and losses ride on Fetch answers; of two groups that go the same way one is told by heartbeats."""
    other = HoldDialogue({"t": 4})
    random = Random(seed)
    for each in (group, other):
        each.at_rest(a=[0, 1], b=[2, 3])
    for _ in range(6):
        member_id = random.choice("ab")
        change = random.choice(["join", "leave", "report"])
        for each in (group, other):
            if change == "join" and "c" not in each.group.members:
                each.beat("c", epoch=0, hold_ms=-1)
            elif change == "leave" and "c" in each.group.members:
                each.leave("c")
            else:
                each.report(each.member("b" if member_id == "a" else "a"))
        epoch = group.member(member_id).member_epoch
        told = group.watch(member_id, epoch=epoch, knows=[9])
        asked = other.beat(member_id, epoch=epoch, hold_ms=-1, tells_all=True)
        one, two = told.body_as(ConsumerGroupHeartbeatReply), asked.body_as(ConsumerGroupHeartbeatReply)
        assert (one.member_epoch, one.assignment) == (two.member_epoch, two.assignment)
        assert group.shard.state_digest() == other.shard.state_digest()


def test_news_are_told_again_until_a_later_request_shows_that_they_arrived(group: HoldDialogue) -> None:
    """H10."""
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("b", epoch=0, hold_ms=-1)
    group.watch("a", epoch=1, knows=[0, 1, 2, 3]).replies(epoch=1, assigned=[0, 1])
    group.watch("a", epoch=1, knows=[0, 1, 2, 3]).replies(epoch=1, assigned=[0, 1])
    assert group.watch("a", epoch=1, knows=[0, 1]).is_parked


def test_heartbeats_remain_for_liveness(group: HoldDialogue) -> None:
    """H10: who fetches and does not heartbeat is fenced when its session ends."""
    group.at_rest(a=[0, 1, 2, 3])
    for _ in range(3):
        group.watch("a", epoch=1, knows=[0, 1, 2, 3])
        group.advance(SESSION_MS // 3)
    assert "a" not in group.group.members
