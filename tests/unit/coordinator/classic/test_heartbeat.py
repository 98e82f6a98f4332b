"""Heartbeat in every state of a classic group."""

from __future__ import annotations

from kohort.errors import ErrorCode


def test_heartbeat_keeps_the_member(dialogue):
    generation = dialogue.stable("a")
    for _ in range(5):
        dialogue.advance(dialogue.session_timeout_ms - 1)
        assert dialogue.heartbeat("a", generation) == ErrorCode.NONE
    assert dialogue.members == ["a"]


def test_heartbeat_of_who_is_no_member_is_refused(dialogue):
    """GROUP_ID_NOT_FOUND would be fatal for the client."""
    assert dialogue.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    generation = dialogue.stable("a")
    assert dialogue.heartbeat("ghost", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    dialogue.leave("a")
    assert dialogue.state == "Empty"
    assert dialogue.heartbeat("a", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.heartbeat("a", generation, group_id="") == ErrorCode.INVALID_GROUP_ID


def test_heartbeat_of_another_generation_is_refused_and_keeps_nobody(dialogue):
    dialogue.stable("a", "b")
    dialogue.advance(1_000)

    assert dialogue.heartbeat("a", 1) == ErrorCode.ILLEGAL_GENERATION
    assert dialogue.heartbeat("a", 3) == ErrorCode.ILLEGAL_GENERATION
    assert dialogue.deadline("session", "a") == dialogue.session_timeout_ms - 1_000


def test_heartbeat_during_the_join_phase_says_so_and_keeps_the_member(dialogue):
    generation = dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.advance(1_000)

    assert dialogue.heartbeat("b", generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert dialogue.deadline("session", "b") == dialogue.session_timeout_ms


def test_heartbeat_between_join_and_sync_is_fine(dialogue):
    dialogue.join(fresh="a")
    assert dialogue.state == "CompletingRebalance"
    dialogue.advance(1_000)

    assert dialogue.heartbeat("a", 1) == ErrorCode.NONE
    assert dialogue.deadline("session", "a") == dialogue.session_timeout_ms


def test_heartbeat_with_another_members_instance_is_fenced(dialogue):
    dialogue.join(fresh="i-1", instance_id="i")
    assert dialogue.heartbeat("i-1", 1, instance_id="i") == ErrorCode.NONE
    assert dialogue.heartbeat("other", 1, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
