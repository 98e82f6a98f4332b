"""Static KIP-848 groups beside pushed answers, and with members that speak the classic protocol."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands import Refusal
from kohort.errors import ErrorCode
from kohort.wire import embedded
from support.dialogues.hold_dialogue import HoldDialogue
from support.dialogues.mixed_dialogue import MixedDialogue, subscription

STATIC: dict[str, str | None] = {
    "group.membership": "static",
    "group.registration.timeout.ms": "60000",
    "group.expansion.timeout.ms": "5000",
}


def held_group() -> HoldDialogue:
    """Two named members at rest, whose heartbeats are held."""
    group = HoldDialogue({"t": 4})
    for name in ("a", "b"):
        group.heartbeat(name, epoch=0, instance_id=name)
    group.settle()
    group.alter_configs(STATIC).is_done()
    return group


def test_an_older_holder_whose_heartbeat_is_held_is_told_at_once() -> None:
    group = held_group()
    held = group.beat("a", instance_id="a")
    assert held.is_parked
    group.heartbeat("a2", epoch=0, instance_id="a")
    group.tell_news()
    held.is_refused(ErrorCode.FENCED_INSTANCE_ID)


def test_those_who_wait_are_told_at_once_when_the_window_closes() -> None:
    group = held_group()
    group.heartbeat("c", epoch=0, instance_id="c", hold_ms=0).replies(epoch=2, assigned=[])
    givers = [group.beat("a"), group.beat("b")]
    assert all(giver.is_parked for giver in givers)
    group.advance(ms=3_000)
    taker = group.beat("c", owned=[])
    assert taker.is_parked
    group.advance(ms=2_000)
    assert any(not giver.is_parked for giver in givers)
    group.settle()
    assert len(group.holders()["c"]) == 1


@pytest.mark.parametrize("left_ms", range(600, 5_000, 100))
def test_who_joins_shortly_before_the_window_closes_is_within_reach_then(left_ms: int) -> None:
    """A client that comes as often as it was told, and bears a hold of four fifths of that."""
    group = held_group()
    group.heartbeat("c", epoch=0, instance_id="c", hold_ms=0).replies(epoch=2, assigned=[])
    group.advance(5_000 - left_ms)
    told = group.heartbeat("d", epoch=0, instance_id="d", hold_ms=0).body_as(commands.ConsumerGroupHeartbeatReply)
    group.advance(told.heartbeat_interval_ms)
    held = group.beat("d", hold_ms=told.heartbeat_interval_ms * 4 // 5)
    group.advance(left_ms - told.heartbeat_interval_ms - 1)
    assert held.is_parked and group.group.target_epoch == 2


def test_a_silent_member_whose_heartbeat_is_held_is_told_that_it_is_fenced() -> None:
    group = held_group()
    held = group.beat("a", hold_ms=100_000)
    assert held.is_parked
    group.advance(ms=45_000)
    held.is_refused(ErrorCode.FENCED_MEMBER_EPOCH)


def hosted_group() -> MixedDialogue:
    """A member of each protocol, both named, at rest in a static group."""
    group = MixedDialogue({"t": 4})
    group.heartbeat("a", epoch=0, instance_id="a", client_id="a")
    group.alter_configs(STATIC).is_done()
    return group


def join_classic(group: MixedDialogue, name: str, member_id: str = "") -> commands.JoinGroupReply:
    protocols = (("range", subscription(generation=-1)),)
    answer = group.join(member_id, fresh=f"{name}-1", instance_id=name, protocols=protocols)
    reply: commands.JoinGroupReply = answer.body_as(commands.JoinGroupReply)
    return reply


def test_a_new_classic_member_waits_in_the_present_generation_with_an_empty_assignment() -> None:
    group = hosted_group()
    epoch = group.group.epoch
    joined = join_classic(group, "c")
    assert (joined.error, joined.generation_id) == (ErrorCode.NONE, epoch)
    synced = group.sync(joined.member_id, epoch, instance_id="c").body_as(commands.SyncGroupReply)
    assert embedded.decode_assignment(synced.assignment).partitions == {}
    assert group.group.epoch == epoch
    group.advance(ms=5_000)
    assert group.group.epoch == epoch + 1 and group.group.targets[joined.member_id]


def test_a_silent_classic_member_is_away_and_comes_back_to_what_it_had() -> None:
    group = hosted_group()
    joined = join_classic(group, "c")
    group.sync(joined.member_id, joined.generation_id, instance_id="c")
    group.alter_configs({"group.rebalance.token": "1"}).is_done()
    epoch = group.group.epoch
    group.advance(ms=10_000)
    assert joined.member_id in group.shard.groups.clocks["g"].offline and group.group.epoch == epoch
    back = join_classic(group, "c")
    assert back.error == ErrorCode.NONE and group.group.epoch == epoch
    assert group.shard.groups.clocks == {}


def test_a_classic_member_without_a_name_is_refused_by_a_static_group_of_the_other_protocol() -> None:
    group = hosted_group()
    refusal = group.join(fresh="n").body_as(Refusal)
    assert "the group g is static" in str(refusal.message)


def test_who_waits_is_told_to_come_before_the_window_ends_to_be_held_then() -> None:
    """A heartbeat that is not held when its member gets a share brings it up to an interval late."""
    group = MixedDialogue({"t": 4}, group_membership="static", group_expansion_timeout_ms=8_000)
    group.heartbeat("a", epoch=0, instance_id="a")
    terms = {"topics": ["t"], "hold_ms": 0}
    group.heartbeat("b", epoch=0, instance_id="b", **terms).replies(epoch=1, assigned=[], interval=5_000)
    group.advance(5_000)
    group.heartbeat("c", epoch=0, instance_id="c", **terms).replies(epoch=1, assigned=[], interval=2_500)
    group.advance(2_900)
    group.heartbeat("d", epoch=0, instance_id="d", **terms).replies(epoch=1, assigned=[], interval=500)
