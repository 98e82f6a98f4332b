"""Commits in the name of a classic group, in every state."""

from __future__ import annotations

from kohort.errors import ErrorCode


def test_commit_without_a_group_needs_no_member(dialogue):
    """An administrator, or a consumer that was assigned by hand; KafkaConsumer.assign does so."""
    assert dialogue.commit("", -1) == ErrorCode.NONE
    assert dialogue.commit("", 3) == ErrorCode.ILLEGAL_GENERATION


def test_empty_group_takes_commits_without_a_member(dialogue):
    generation = dialogue.stable("a")
    dialogue.leave("a")
    assert dialogue.commit("", -1) == ErrorCode.NONE
    assert dialogue.commit("a", generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_with_members_takes_no_commits_of_others(dialogue):
    generation = dialogue.stable("a")
    assert dialogue.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.commit("ghost", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.commit("a", -1) == ErrorCode.ILLEGAL_GENERATION
    assert dialogue.commit("a", generation - 1) == ErrorCode.ILLEGAL_GENERATION


def test_current_member_commits_in_every_state(dialogue):
    """Nobody is stuck behind the barrier."""
    generation = dialogue.stable("a", "b")
    assert dialogue.commit("b", generation) == ErrorCode.NONE
    dialogue.join("a")
    assert dialogue.state == "PreparingRebalance"
    assert dialogue.commit("b", generation) == ErrorCode.NONE
    assert dialogue.commit("a", generation) == ErrorCode.NONE, "also while its own join is parked"
    dialogue.join("b")
    assert dialogue.state == "CompletingRebalance"
    assert dialogue.commit("b", generation) == ErrorCode.ILLEGAL_GENERATION
    assert dialogue.commit("b", generation + 1) == ErrorCode.NONE
    dialogue.sync("a", generation + 1, {})
    assert dialogue.commit("b", generation + 1) == ErrorCode.NONE


def test_commit_keeps_the_member(dialogue):
    generation = dialogue.stable("a")
    dialogue.advance(dialogue.session_timeout_ms - 1)
    dialogue.commit("a", generation)
    assert dialogue.deadline("session", "a") == dialogue.session_timeout_ms


def test_commit_does_not_shorten_the_wait_of_a_new_member(dialogue):
    generation = dialogue.stable("a")
    dialogue.join(fresh="b")
    before = dialogue.deadline("session", "b")
    assert dialogue.commit("b", generation) == ErrorCode.NONE
    assert dialogue.deadline("session", "b") == before


def test_commit_of_a_replaced_instance_is_fenced(dialogue):
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.sync("i-1", 1, {})
    dialogue.join(fresh="i-2", instance_id="i")
    assert dialogue.commit("i-1", 1, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert dialogue.commit("i-2", 1, instance_id="i") == ErrorCode.NONE
