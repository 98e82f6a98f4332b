"""Deadlines of a classic group, and what a restart makes of them."""

from __future__ import annotations

import pytest

from kohort.coordinator.classic.sessions import decide_expiry
from kohort.coordinator.classic.validation import NEW_MEMBER_TIMEOUT_MS
from kohort.coordinator.decision import Decision, TimerKey
from kohort.errors import ErrorCode


def test_silent_member_is_given_up(dialogue):
    generation = dialogue.stable("a", "b")
    dialogue.advance(dialogue.session_timeout_ms - 1)
    dialogue.heartbeat("a", generation)
    assert dialogue.members == ["a", "b"]

    dialogue.advance(1)

    assert dialogue.members == ["a"]
    assert dialogue.group.rebalance_reason == "the session of member b ended"
    assert dialogue.heartbeat("b", generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_of_silent_members_ends_empty(dialogue):
    dialogue.stable("a", "b", "c")
    dialogue.advance(10 * dialogue.rebalance_timeout_ms)
    assert dialogue.state == "Empty"
    assert dialogue.timers.next_deadline() is None


def test_member_that_does_not_rejoin_is_left_behind(dialogue):
    """The join phase lasts as long as the most patient member allows; heartbeats alone do not count."""
    generation = dialogue.stable("a", "b")
    join = dialogue.join("a")
    while dialogue.is_parked(join):
        dialogue.advance(1_000)
        if dialogue.is_parked(join):
            assert dialogue.heartbeat("b", generation) == ErrorCode.REBALANCE_IN_PROGRESS

    assert [m.member_id for m in dialogue.joined(join).members] == ["a"]
    assert dialogue.now_ms == 1_000_000 + dialogue.rebalance_timeout_ms


def test_leader_that_does_not_rejoin_is_replaced(dialogue):
    dialogue.stable("a", "b", "c")
    dialogue.leave("c")
    join = dialogue.join("b")

    dialogue.advance(dialogue.rebalance_timeout_ms)

    assert dialogue.joined(join).leader == "b"


def test_member_whose_join_is_parked_needs_no_heartbeat(dialogue):
    generation = dialogue.stable("a", "b")
    join = dialogue.join("a")
    for _ in range(5):
        dialogue.advance(dialogue.session_timeout_ms)
        dialogue.heartbeat("b", generation)
        if "b" not in dialogue.members:
            break
    assert "a" in dialogue.members
    assert dialogue.joined(join).leader == "a", "b's session ended the wait"
    assert dialogue.deadline("session", "a") is not None, "from the answer on it counts again"


def test_member_whose_sync_is_parked_needs_no_heartbeat(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    sync = dialogue.sync("b", 3)
    for _ in range(5):
        dialogue.advance(dialogue.session_timeout_ms - 1)
        dialogue.heartbeat("a", 3)
    assert dialogue.is_parked(sync)
    assert dialogue.members == ["a", "b"]

    dialogue.sync("a", 3, {"b": b"t-0"})

    assert dialogue.assignment(sync) == b"t-0"
    assert dialogue.deadline("session", "b") == dialogue.session_timeout_ms


def test_new_member_that_waits_too_long_is_given_up(dialogue):
    """It cannot be told from one that has gone: its join is all that was ever heard of it."""
    generation = dialogue.stable("a")
    dialogue.leave("a")
    dialogue.join(fresh="b", rebalance_timeout_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    dialogue.sync("b", generation + 2, {})
    join = dialogue.join(fresh="c", rebalance_timeout_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    waited = 0
    while dialogue.is_parked(join):
        dialogue.advance(5_000)
        waited += 5_000
        if dialogue.is_parked(join):
            dialogue.heartbeat("b", generation + 2)

    assert waited == NEW_MEMBER_TIMEOUT_MS
    assert dialogue.error(join) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.members == ["b"]


def test_expected_member_that_never_comes_is_waited_for_as_long_as_its_session(dialogue):
    dialogue.stable("a")
    dialogue.join(fresh="b", requires_known_member_id=True)
    join = dialogue.join("a")
    dialogue.advance(dialogue.session_timeout_ms - 1)
    assert dialogue.is_parked(join)

    dialogue.advance(1)

    assert dialogue.joined(join).generation_id == 2
    assert dialogue.error(dialogue.join("b")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_that_was_only_asked_for_is_forgotten(dialogue):
    dialogue.join(fresh="a", requires_known_member_id=True)
    dialogue.advance(dialogue.session_timeout_ms)
    assert dialogue.group is None


def test_leader_that_never_syncs_is_left_behind(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    sync = dialogue.sync("b", 3)
    while dialogue.is_parked(sync):
        dialogue.advance(5_000)
        if dialogue.is_parked(sync):
            assert dialogue.heartbeat("a", 3) == ErrorCode.NONE

    assert dialogue.error(sync) == ErrorCode.REBALANCE_IN_PROGRESS
    assert dialogue.members == ["b"]
    assert dialogue.joined(dialogue.join("b")).leader == "b"


def test_follower_that_never_syncs_is_left_behind(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    dialogue.sync("a", 3, {})
    assert dialogue.state == "Stable"
    for _ in range(12):
        dialogue.advance(5_000)
        if "b" in dialogue.members:
            dialogue.heartbeat("a", 3)
            dialogue.heartbeat("b", 3)

    assert dialogue.members == ["a"]
    assert dialogue.state == "PreparingRebalance"


def test_late_deadlines_change_nothing(dialogue):
    dialogue.stable("a", "b")
    for kind in ("join", "sync", "initial_delay", "rebalance"):
        key = TimerKey(kind, "orders")
        assert decide_expiry(dialogue.group, key, dialogue.settings, now_ms=dialogue.now_ms) == Decision()
    for kind in ("session", "pending"):
        key = TimerKey(kind, "orders", "ghost")
        assert decide_expiry(dialogue.group, key, dialogue.settings, now_ms=dialogue.now_ms) == Decision()
        assert decide_expiry(None, key, dialogue.settings, now_ms=dialogue.now_ms) == Decision()


def test_stable_group_goes_on_after_a_restart(dialogue):
    """Nobody rebalances because the broker was away; sessions run in full."""
    generation = dialogue.stable("a", "b")
    dialogue.advance(dialogue.session_timeout_ms - 1)
    dialogue.heartbeat("a", generation)

    dialogue.restart()

    assert dialogue.state == "Stable"
    assert dialogue.deadline("session", "a") == dialogue.deadline("session", "b") == dialogue.session_timeout_ms
    assert dialogue.heartbeat("a", generation) == ErrorCode.NONE
    assert dialogue.heartbeat("b", generation) == ErrorCode.NONE
    assert dialogue.assignment(dialogue.sync("b", generation)) == b"b"
    dialogue.advance(dialogue.session_timeout_ms)
    assert dialogue.members == []


@pytest.mark.parametrize("rejoined", [0, 1, 2])
def test_rebalance_that_a_restart_interrupts_is_begun_again(dialogue, rejoined):
    """The log knows the last generation at rest; members of the next one learn that it never was."""
    generation = dialogue.stable("a", "b")
    newcomer = dialogue.join(fresh="c")
    for member_id in ("a", "b")[:rejoined]:
        dialogue.join(member_id)
    assert dialogue.is_parked(newcomer) == (rejoined < 2)

    dialogue.restart()

    assert dialogue.state == "Stable"
    assert dialogue.members == ["a", "b"]
    assert dialogue.heartbeat("a", generation) == ErrorCode.NONE
    assert dialogue.heartbeat("b", generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert dialogue.error(dialogue.join("c")) == ErrorCode.UNKNOWN_MEMBER_ID
    dialogue.join(fresh="c")
    dialogue.join("a")
    assert dialogue.joined(dialogue.join("b")).generation_id == generation + 1


def test_member_that_rejoins_with_more_protocols_after_a_restart_rebalances(dialogue):
    """The log keeps only the chosen protocol, so what the member says differs from what is known of it."""
    both = (("range", b"range: t"), ("roundrobin", b""))
    dialogue.stable("a", "b", protocols=both)
    dialogue.restart()

    follower = dialogue.join("b", protocols=both)

    assert dialogue.is_parked(follower)
    dialogue.join("a", protocols=both)
    assert dialogue.joined(follower).generation_id == 3


def test_group_above_a_lowered_limit_rebalances_when_it_is_loaded(make_dialogue):
    dialogue = make_dialogue()
    dialogue.stable("a", "b", "c")
    dialogue.settings = make_dialogue(group_max_size=2).settings

    dialogue.restart()

    assert dialogue.state == "PreparingRebalance"
    dialogue.join("c")
    dialogue.join("b")
    assert dialogue.error(dialogue.join("a")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert dialogue.members == ["b", "c"]


def test_empty_group_survives_a_restart(dialogue):
    dialogue.stable("a")
    dialogue.leave("a")
    dialogue.restart()
    assert dialogue.state == "Empty"
    assert dialogue.joined(dialogue.join(fresh="b")).generation_id == 3
