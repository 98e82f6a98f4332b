"""Situations of groups with static members; see `situations.py`."""

from __future__ import annotations

from support.dialogues.classic_fleet import Fleet
from support.dialogues.mixed_dialogue import MixedDialogue
from support.scenarios.situations import says, settled


@says("one has had 4.0 s to come back with t:2-3")
def now_a_static_member_is_away() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b", instance_id="one")
    group.settle()
    group.heartbeat("b", epoch=-2, instance_id="one")
    group.advance(4_000)
    return group


@says(
    "one had t:0 for 5.0 s, until one came back under the same name; then one has t:0, for 1.0 s by now "
    "(it was unread for at most 5.0 s)"
)
def owners_when_a_static_member_comes_back() -> MixedDialogue:
    group = MixedDialogue({"t": 1})
    group.heartbeat("a", epoch=0, client_id="a", instance_id="one")
    group.advance(1_000)
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.advance(4_000)
    group.heartbeat("a2", epoch=0, client_id="a", instance_id="one")
    group.advance(1_000)
    return group


@says(
    "the rebalance to epoch 3, because one was silent for the whole session timeout: a took t:2-3 from one; it"
    " took 0 ms, 45 s after the last sign of one; 2 partitions were unread for at most 45 s; a member "
    "may be silent for 45 s, its session timeout, before it is missed"
)
def static_member_does_not_come_back() -> MixedDialogue:
    group = now_a_static_member_is_away()
    for _ in range(41):
        group.report(group.member("a"))
        group.advance(1_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because one came back under the same name: a took t:1 from one, one took "
    "u:0-1, which had no owner; "
    "it took 10 ms; one took 10 ms to hear that it has to give up t:1, out of reach until its next heartbeat"
)
def static_member_subscribes_anew_when_it_comes_back() -> MixedDialogue:
    group = settled("a", topics={"t": 2, "u": 2})
    group.heartbeat("b", epoch=0, client_id="b", instance_id="one")
    group.settle()
    group.heartbeat("b", epoch=-2, instance_id="one")
    group.advance(4_000)
    group.heartbeat("b2", epoch=0, client_id="b", instance_id="one", topics=["t", "u"])
    group.advance(10)
    group.settle()
    return group


def static_group() -> MixedDialogue:
    """Members one and two of a static group, of which two was silent for 2 s when its connection closed."""
    group = MixedDialogue(
        {"t": 2}, group_membership="static", group_registration_timeout_ms=600_000, group_expansion_timeout_ms=100
    )
    group.heartbeat("a", epoch=0, client_id="a", instance_id="one")
    group.heartbeat("b", epoch=0, client_id="b", instance_id="two")
    group.advance(100)
    group.settle()
    group.advance(2_000)
    group.disconnect("b")
    return group


@says("two has had 6.0 s to come back with t:1")
def now_a_member_of_a_static_group_is_offline() -> MixedDialogue:
    group = static_group()
    group.advance(4_000)
    return group


@says("the group is at rest with 2 members: nothing is waited for")
def now_a_member_of_a_static_group_is_back() -> MixedDialogue:
    group = static_group()
    group.heartbeat("b", epoch=group.member("a").member_epoch, client_id="b", instance_id="two")
    group.advance(1_000)
    return group


@says("a has had 30 s to come back with t:0,2,4,6,8,10")
def now_a_classic_member_of_a_static_group_is_offline() -> MixedDialogue:
    fleet = Fleet()
    fleet.start("x", "a")
    fleet.off("a")
    fleet.until("00:30")
    return fleet.dialogue
