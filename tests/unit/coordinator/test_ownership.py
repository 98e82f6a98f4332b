"""What leaders are told of owners (H5): each way in which a partition changes hands, and nothing of what stays.

`GroupDialogue` compares what was told with the state after every step of every test of the coordinator.
"""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.decision import Decision, FencePartitions, OpenPartitions
from kohort.coordinator.ownership import fences
from kohort.coordinator.ownership.fences import FOLLOWED, GrantState, follow_ownership, grant_state_of, loaded_ownership
from kohort.coordinator.records.types import OffsetCommitted
from kohort.errors import ErrorCode, InvariantViolation
from support.dialogues.coordinator_dialogue import topic_id_of
from support.dialogues.mixed_dialogue import MixedDialogue


def of_four(**limits: Any) -> MixedDialogue:
    return MixedDialogue({"t": 4}, **limits)


def pair(**limits: Any) -> MixedDialogue:
    """Members a and b of the consumer protocol with two partitions each."""
    group = of_four(**limits)
    group.stable(a=[0, 1], b=[2, 3])
    group.new_ownership()
    return group


def state_of(group: MixedDialogue, partition: int) -> GrantState:
    return grant_state_of(group.shard.groups, "g", (group.topic_id("t"), partition))


def draining() -> MixedDialogue:
    """Member a has four partitions, and is asked for 2 and 3 by the join of b."""
    group = of_four()
    group.stable(a=[0, 1, 2, 3])
    group.new_ownership()
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1, owned=[0, 1, 2, 3]).replies(epoch=1, assigned=[0, 1])
    return group


def test_partition_is_opened_for_its_first_owner() -> None:
    group = of_four()
    assert state_of(group, 0) is GrantState.RELEASED
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1, 2, 3])
    assert group.new_ownership() == [("open", "a", [0, 1, 2, 3])]
    assert state_of(group, 0) is GrantState.OPEN


def test_revocation_fences_once_and_the_next_owner_is_opened_once() -> None:
    group = draining()
    assert group.new_ownership() == [("fence", "a", [2, 3])]
    assert [state_of(group, each) for each in range(4)] == [GrantState.OPEN] * 2 + [GrantState.DRAINING] * 2
    # Still on its way: nothing more is told.
    group.heartbeat("a", epoch=1, owned=[0, 1, 2, 3])
    assert group.new_ownership() == []
    group.heartbeat("a", epoch=1, owned=[0, 1])
    assert group.new_ownership() == []
    assert state_of(group, 2) is GrantState.RELEASED
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[2, 3])
    assert group.new_ownership() == [("open", "b", [2, 3])]
    assert state_of(group, 2) is GrantState.OPEN


def test_commit_of_the_loser_is_accepted_until_it_acknowledges_and_no_longer() -> None:
    group = draining()
    assert group.commit({2: 7, 3: 7}, member_id="a", epoch=1).errors() == (ErrorCode.NONE, ErrorCode.NONE)
    group.heartbeat("a", epoch=1, owned=[0, 1, 3])
    assert group.commit({3: 8}, member_id="a", epoch=1).errors() == (ErrorCode.NONE,)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[2])
    refused = group.commit({2: 9}, member_id="a", epoch=1)
    assert refused.errors() == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert group.new_ownership() == [("fence", "a", [2, 3]), ("open", "b", [2])]


def test_fence_names_the_epoch_the_lease_and_the_client_of_the_loser() -> None:
    group = draining()
    (fence,) = group.take_effects()
    assert fence == FencePartitions(
        group_id="g",
        member_id="a",
        epoch=1,
        places=((group.topic_id("t"), 2), (group.topic_id("t"), 3)),
        lease_ms=22_500,
        stock_lease_ms=60_000,
        client=("client-a", "/127.0.0.1"),
    )


def test_heartbeats_and_commits_without_moves_tell_nothing() -> None:
    group = pair()
    for _ in range(3):
        group.heartbeat("a", epoch=2, owned=[0, 1])
        group.commit({0: 1}, member_id="a", epoch=2)
    assert group.new_ownership() == []
    commit = Decision(
        (
            OffsetCommitted(
                group_id="g", topic="t", partition=0, offset=1, leader_epoch=-1, metadata="", commit_timestamp_ms=1
            ),
        )
    )
    # The very same object: no copy is made.
    followed = follow_ownership(
        group.shard.groups, commit, group.shard.settings_for, base=group.settings, now_ms=group.now_ms
    )
    assert followed is commit
    assert OffsetCommitted not in FOLLOWED


@pytest.mark.parametrize("way", ["leave", "session", "admin"])
def test_member_that_is_gone_is_fenced_for_all_it_had(way: str) -> None:
    group = pair()
    match way:
        case "leave":
            group.leave("a")
        case "session":
            group.heartbeat("b", epoch=2)
            group.advance(30_000)
            group.heartbeat("b", epoch=2)
            group.advance(16_000)
        case "admin":
            assert group.leave_group("a") == [ErrorCode.NONE]
    assert group.new_ownership() == [("fence", "a", [0, 1])]
    group.settle()
    assert group.new_ownership() == [("open", "b", [0, 1])]


def test_slow_member_is_fenced_when_it_is_asked_and_not_again_when_it_is_removed() -> None:
    group = draining()
    assert group.new_ownership() == [("fence", "a", [2, 3])]
    for _ in range(7):
        # It lives, and acknowledges nothing.
        group.advance(9_000)
        if "a" in group.group.members:
            group.heartbeat("a", epoch=1)
        group.heartbeat("b", epoch=2)
    assert "a" not in group.group.members
    told = group.new_ownership()
    assert told[0] == ("fence", "a", [0, 1])
    assert [kind for kind, _, _ in told[1:]] == ["open"] * len(told[1:])


def test_static_member_that_is_away_is_fenced_and_opened_when_it_is_back() -> None:
    group = of_four()
    group.heartbeat("a", epoch=0, instance_id="one")
    group.settle()
    group.new_ownership()
    group.heartbeat("a", epoch=-2, instance_id="one")
    assert group.new_ownership() == [("fence", "a", [0, 1, 2, 3])]
    assert state_of(group, 0) is GrantState.DRAINING
    group.heartbeat("a", epoch=0, instance_id="one").replies(epoch=1, assigned=[0, 1, 2, 3])
    assert group.new_ownership() == [("open", "a", [0, 1, 2, 3])]


def test_static_successor_has_what_the_older_holder_may_not_read_any_more() -> None:
    group = of_four(group_membership="static")
    group.heartbeat("a", epoch=0, instance_id="one")
    group.settle()
    group.new_ownership()
    # In a static group the newest process counts, though the older one has not left.
    group.heartbeat("z", epoch=0, instance_id="one")
    assert group.new_ownership() == [("fence", "a", [0, 1, 2, 3]), ("open", "z", [0, 1, 2, 3])]


def test_silent_static_member_is_fenced_though_it_keeps_its_partitions() -> None:
    """users@kafka 2014-07-16: the coordinator would inform the brokers and they would fail fetchRequests."""
    group = of_four(group_membership="static")
    group.heartbeat("a", epoch=0, instance_id="one")
    group.settle()
    group.new_ownership()
    group.advance(46_000)
    assert group.new_ownership() == [("fence", "a", [0, 1, 2, 3])]
    group.report(group.member("a"))
    group.heartbeat("a", epoch=0, instance_id="one")
    assert group.new_ownership() == [("open", "a", [0, 1, 2, 3])]


def test_share_of_a_classic_leader_is_compared_with_the_share_before() -> None:
    group = of_four()
    clients = group.classic_group(x=[0, 1], y=[2, 3])
    assert group.new_ownership() == [("open", "x", [0, 1]), ("open", "y", [2, 3])]
    group.rebalance(*clients.values(), shares={"x": [0, 3], "y": [2, 1]})
    assert group.new_ownership() == [
        ("fence", "x", [1]),
        ("fence", "y", [3]),
        ("open", "x", [3]),
        ("open", "y", [1]),
    ]
    group.rebalance(*clients.values(), shares={"x": [0, 3], "y": [2, 1]})
    assert group.new_ownership() == []
    assert state_of(group, 1) is GrantState.OPEN


def test_classic_member_that_is_thrown_out_is_fenced_for_all_it_had() -> None:
    group = of_four()
    group.classic_group(x=[0, 1], y=[2, 3])
    group.new_ownership()
    assert group.leave_group("y") == [ErrorCode.NONE]
    assert group.new_ownership() == [("fence", "y", [2, 3])]
    assert state_of(group, 2) is GrantState.RELEASED
    group.advance(10_001)
    assert group.new_ownership() == [("fence", "x", [0, 1])]


def test_static_classic_member_that_is_replaced() -> None:
    group = of_four()
    first = group.client("x", instance_id="one")
    group.rebalance(first, shares={"x": [0, 1, 2, 3]})
    group.new_ownership()
    second = group.client("y", instance_id="one")
    second.send_join()
    told = group.new_ownership()
    assert told == [("fence", "x", [0, 1, 2, 3]), ("open", "y", [0, 1, 2, 3])]


def test_group_that_changes_its_protocol_tells_of_what_moves_only() -> None:
    group = of_four()
    clients = group.classic_group(x=[0, 1], y=[2, 3])
    group.new_ownership()
    group.heartbeat("a", epoch=0)
    assert group.new_ownership() == [], "the classic members keep what they have"
    group.settle_all(*clients.values())
    told = group.new_ownership()
    fenced = [place for kind, _, places in told if kind == "fence" for place in places]
    opened = [place for kind, member, places in told if kind == "open" and member == "a" for place in places]
    assert len(fenced) == 1 and opened == fenced
    # Down again: the others keep theirs, and the classic leader shares out what the last member had.
    group.leave("a")
    assert group.new_ownership() == [("fence", "a", opened)]
    assert group.list_groups()[0][3] == "classic"


def test_partitions_of_a_deleted_topic_are_not_told() -> None:
    group = MixedDialogue({"t": 2, "u": 2})
    group.stable(a={"t": [0, 1], "u": [0, 1]})
    group.new_ownership()
    group.set_topics({"t": 2})
    group.settle()
    assert group.new_ownership() == []
    # It is made anew, with another id: what is told is of that.
    group.set_topics({"t": 2, "u": 2})
    group.settle()
    (opened,) = group.take_effects()
    assert isinstance(opened, OpenPartitions)
    assert {topic_id for topic_id, _ in opened.places} == {topic_id_of("u", generation=1)}


def test_group_that_is_deleted_was_fenced_with_its_last_member() -> None:
    group = pair()
    group.leave("a")
    group.leave("b")
    told = group.new_ownership()
    assert told == [("fence", "a", [0, 1]), ("fence", "b", [2, 3])]
    group.delete_group().is_done()
    assert group.new_ownership() == []


def test_nothing_is_told_of_a_group_without_enforcement_until_that_changes() -> None:
    group = of_four(group_ownership_enforce="off")
    group.stable(a=[0, 1], b=[2, 3])
    assert group.new_ownership() == []
    group.alter_configs({"group.ownership.enforce": "ours"}).is_done()
    told = group.take_effects()
    assert [(type(each), each.member_id, getattr(each, "keep", False)) for each in told] == [
        (OpenPartitions, "a", True),
        (OpenPartitions, "b", True),
    ]
    # From now on moves are told.
    group.leave("a")
    assert group.new_ownership() == [("fence", "a", [0, 1])]
    # Without it leaders forget all that they know of the group's topics.
    group.alter_configs({"group.ownership.enforce": "off"}).is_done()
    assert group.new_ownership() == [("open", "", [0, 1, 2, 3])]
    group.settle()
    assert group.new_ownership() == []


def test_shorter_lease_counts_once_no_longer_one_is_alive() -> None:
    group = pair()
    group.alter_configs({"group.ownership.lease.ms": "1000"}).is_done()
    group.leave("a")
    assert [each.lease_ms for each in group.take_effects()] == [22_500]
    group.advance(22_500)
    group.settle()
    group.take_effects()
    group.leave("b")
    assert [each.lease_ms for each in group.take_effects()] == [1_000]


def test_ten_thousand_partitions_are_one_fence_and_one_opening() -> None:
    group = MixedDialogue({"t": 10_000}, check_every=50)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.new_ownership()
    group.leave("a")
    (fence,) = group.take_effects()
    assert len(fence.places) == 10_000
    group.heartbeat("b", epoch=0)
    (opened,) = group.take_effects()
    assert isinstance(opened, OpenPartitions)
    assert len(opened.places) == 10_000


def test_after_a_restart_leaders_are_told_the_present_owners_by_the_epochs_of_their_grants() -> None:
    group = draining()
    group.restart()
    told = list(loaded_ownership(group.shard.groups, group.shard.settings_for))
    assert [(type(each), each.member_id, each.epoch, [number for _, number in each.places]) for each in told] == [
        (FencePartitions, "a", 1, [2, 3]),
        (OpenPartitions, "a", 1, [0, 1]),
    ]
    assert all(each.keep for each in told if isinstance(each, OpenPartitions))


def test_after_a_restart_nothing_is_told_of_groups_without_enforcement() -> None:
    group = of_four(group_ownership_enforce="off")
    group.stable(a=[0, 1, 2, 3])
    group.restart()
    assert not list(loaded_ownership(group.shard.groups, group.shard.settings_for))


@pytest.mark.parametrize("kind", ["fences", "opens"])
def test_forgotten_message_breaks_the_law_that_leaders_know(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: every dialogue would find it."""
    group = pair()
    monkeypatch.setattr(fences._Following, kind, lambda *_: iter(()))
    with pytest.raises(InvariantViolation, match="LeadersKnow"):
        group.leave("a")
        group.settle()


def test_message_about_what_stays_breaks_the_law_that_leaders_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: the untouched partition would wait."""
    group = pair()
    monkeypatch.setattr(fences, "_without", lambda those, _: [*fences._places(those)])
    with pytest.raises(InvariantViolation, match="LeadersKnow"):
        group.heartbeat("c", epoch=0)
        group.settle()
