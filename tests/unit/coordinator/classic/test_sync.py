"""SyncGroup in every state of a classic group."""

from __future__ import annotations

import pytest

from kohort.coordinator.classic.validation import ASSIGNMENTS_LIMIT_BYTES
from kohort.coordinator.records.types import ClassicGroupStored
from kohort.errors import ErrorCode


def test_followers_wait_for_the_leaders_word(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    written = len(dialogue.log)

    follower = dialogue.sync("b", 3)
    assert dialogue.is_parked(follower)
    leader = dialogue.sync("a", 3, {"a": b"t-0", "b": b"t-1"})

    assert dialogue.assignment(leader) == b"t-0"
    assert dialogue.assignment(follower) == b"t-1"
    assert dialogue.state == "Stable"
    assert dialogue.deadline("sync") is None
    (record,) = dialogue.log[written:]
    assert isinstance(record, ClassicGroupStored)
    assert (record.generation, record.leader, record.protocol_name) == (3, "a", "range")
    assert [(m.member_id, m.subscription, m.assignment) for m in record.members] == [
        ("a", b"range: t", b"t-0"),
        ("b", b"range: t", b"t-1"),
    ]


def test_follower_that_syncs_late_gets_its_part_at_once(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    dialogue.sync("a", 3, {"a": b"", "b": b"t-1"})
    assert dialogue.state == "Stable"
    assert dialogue.deadline("sync") == dialogue.rebalance_timeout_ms, "b is still expected"

    assert dialogue.assignment(dialogue.sync("b", 3)) == b"t-1"

    assert dialogue.deadline("sync") is None
    assert dialogue.assignment(dialogue.sync("b", 3)) == b"t-1", "as often as it asks"


def test_whom_the_leader_forgets_owns_nothing_and_strangers_are_dropped(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")

    dialogue.sync("a", 3, {"a": b"t-0", "stranger": b"t-1"})

    assert dialogue.assignment(dialogue.sync("b", 3)) == b""
    assert [m.member_id for m in dialogue.group.stored.members] == ["a", "b"]


def test_sync_of_who_is_no_member_is_refused(dialogue):
    assert dialogue.error(dialogue.sync("ghost", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    dialogue.stable("a")
    assert dialogue.error(dialogue.sync("ghost", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.error(dialogue.sync("a", 1, group_id="")) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("generation", [1, 3, -1])
def test_sync_of_another_generation_is_refused(dialogue, generation):
    dialogue.stable("a", "b")
    assert dialogue.error(dialogue.sync("a", generation)) == ErrorCode.ILLEGAL_GENERATION


def test_sync_while_others_still_join_is_refused(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")

    assert dialogue.error(dialogue.sync("b", 2)) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, None, ErrorCode.NONE),
    ],
)
def test_version_5_says_what_it_thinks_it_syncs(dialogue, protocol_type, protocol_name, error):
    """KIP-559."""
    dialogue.join(fresh="a")

    sync = dialogue.sync("a", 1, {"a": b""}, protocol_type=protocol_type, protocol_name=protocol_name)

    assert dialogue.error(sync) == error


def test_second_sync_of_a_member_that_waits_answers_the_first(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    older = dialogue.sync("b", 3)

    younger = dialogue.sync("b", 3)

    assert dialogue.error(older) == ErrorCode.REBALANCE_IN_PROGRESS
    dialogue.sync("a", 3, {"b": b"t-1"})
    assert dialogue.assignment(younger) == b"t-1"


def test_assignments_that_are_too_large_are_refused(dialogue):
    dialogue.join(fresh="a")

    sync = dialogue.sync("a", 1, {"a": bytes(ASSIGNMENTS_LIMIT_BYTES + 1)})

    assert dialogue.error(sync) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not dialogue.log


def test_sync_with_another_members_instance_is_fenced(dialogue):
    dialogue.join(fresh="i-1", instance_id="i")
    assert dialogue.error(dialogue.sync("x", 1, instance_id="i")) == ErrorCode.FENCED_INSTANCE_ID
    assert dialogue.error(dialogue.sync("i-1", 1, instance_id="j")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.error(dialogue.sync("i-1", 1, {}, instance_id="i")) == ErrorCode.NONE
    assert dialogue.group.stored.members[0].instance_id == "i"
