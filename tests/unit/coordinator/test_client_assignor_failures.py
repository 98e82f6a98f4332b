"""What members that compute a target can do wrong, and what they cannot harm by it."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.consumer.client_assignors.assignment_request import FAULTY, GONE, LATE, MOST_FAILED
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.static_membership.mode import start_offline
from kohort.errors import ErrorCode
from support.dialogues.client_assignors import assignor, beat, compute, given, is_asked, join, said
from support.dialogues.coordinator_dialogue import GroupDialogue

OTHERS = {"a": {("t", 0), ("t", 1)}, "b": {("t", 2), ("t", 3)}}


def group_of(**limits: Any) -> GroupDialogue:
    """a and b, at rest by an assignment that a has computed; then c joins, and a is asked."""
    group = GroupDialogue({"t": 4}, **limits)
    join(group, "a")
    join(group, "b")
    compute(group, "a", 0, 0, 1, 1)
    group.settle()
    assert group.holders() == OTHERS
    join(group, "c")
    group.new_records()
    return group


def refused(answer: Any, code: ErrorCode, saying: str) -> None:
    """An assignment was not taken."""
    reply = answer.body_as(commands.InstallAssignmentReply)
    assert (reply.error, saying in reply.message) == (code, True), reply


def errors(group: GroupDialogue) -> set[int]:
    """What members are told of the latest computation."""
    told = [said(beat(group, member_id)) for member_id in sorted(group.group.members)]
    return {-100 if each is None else each.error for each in told}


def test_error_is_told_to_everybody_and_the_target_stays() -> None:
    """KIP-848 as drafted: it is distributed so that members can see it, and the previous assignment remains."""
    group = group_of()
    targets, epoch = dict(group.group.targets), group.group.epoch
    given(group, "a")
    answer = group.install("a", epoch=group.member("a").member_epoch, group_epoch=epoch, error=42)
    assert answer.body == commands.InstallAssignmentReply()
    assert (group.group.targets, group.group.epoch) == (targets, epoch)
    assert errors(group) == {42}
    assert said(beat(group, "b")) is None, "once"
    group.fire_due()
    assert is_asked(beat(group, "b"))
    compute(group, "b", 0, 1, 2, 2)
    assert errors(group) == {0}, "that is over"
    group.settle()
    assert group.holders() == {"a": {("t", 0)}, "b": {("t", 1)}, "c": {("t", 2), ("t", 3)}}


@pytest.mark.parametrize(
    ("owners", "extra", "why"),
    [
        ((0, 0, 1), (), "gave 3 owners for 4 partitions"),
        ((0, 0, 1, 1, 2), (), "gave 5 owners for 4 partitions"),
        ((0, 0, 1, 3), (), "left partition t-3 without an owner (number 3)"),
        ((0, 0, 1, -1), (), "left partition t-3 without an owner"),
        ((0, 0, 1, 2), (("d", 0, b""),), "said something to d, which was not to be assigned anything"),
        ((0, 0, 1, 2), (("b", 0, b""), ("b", 1, b"")), "said something to b twice"),
        ((0, 0, 1, 2), (("b", 0, b"!" * 65_537),), "gave b 65537 bytes of metadata, more than 65536"),
    ],
)
def test_owners_and_words_that_cannot_be_are_refused(owners: tuple[int, ...], extra: Any, why: str) -> None:
    """Issue 14, bad input: owners foreign, double or missing. The next member is asked at once."""
    group = group_of()
    targets = dict(group.group.targets)
    refused(compute(group, "a", *owners, said=extra), ErrorCode.INVALID_REQUEST, f"the assignor mine {why}")
    assert group.group.targets == targets
    assert group.holders() == {**OTHERS, "c": set()}
    assert errors(group) == {FAULTY}
    group.fire_due()
    assert is_asked(beat(group, "b"))


def test_tools_are_told_of_the_failure_until_there_is_a_target() -> None:
    group = group_of()

    def told() -> str:
        failure: str = group.describe().body_as(DescribeConsumerGroupReply).assignor_failure
        return failure

    assert told() == ""
    compute(group, "a", 0)
    assert told() == "mine of a gave 1 owners for 4 partitions"
    group.fire_due()
    compute(group, "b", 0, 1)
    assert told() == "mine of a gave 1 owners for 4 partitions; mine of b gave 2 owners for 4 partitions"
    group.fire_due()
    compute(group, "c", 0, 1, 2, 2)
    assert told() == ""


def test_owner_that_does_not_subscribe_is_refused() -> None:
    group = GroupDialogue({"t": 1, "u": 1})
    join(group, "a", topics=["t", "u"])
    join(group, "b")
    answer = compute(group, "a", 0, 1)
    refused(answer, ErrorCode.INVALID_REQUEST, "gave partition u-0 to member b, which does not want it")


def test_who_answers_twice_is_heard_once() -> None:
    group = group_of()
    compute(group, "a", 0, 1, 2, 2)
    targets, epoch = dict(group.group.targets), group.group.epoch
    again = group.install("a", [0] * 4, epoch=group.member("a").member_epoch, group_epoch=epoch)
    again.is_refused(ErrorCode.UNKNOWN_MEMBER_ID, saying="is not the one that computes the assignment of g now")
    assert group.group.targets == targets


def test_answer_for_another_epoch_is_refused_and_the_right_one_still_taken() -> None:
    group = group_of()
    epoch = given(group, "a").group_epoch
    known = group.member("a").member_epoch
    for other in (epoch - 1, epoch + 1):
        group.install("a", [0] * 4, epoch=known, group_epoch=other).is_refused(
            ErrorCode.INVALID_REQUEST,
            saying=f"GroupEpoch {other} is not the one of what a computes: it was given {epoch}",
        )
    assert group.install("a", [0] * 4, epoch=known, group_epoch=epoch).body == commands.InstallAssignmentReply()


def test_who_has_not_asked_what_to_compute_has_nothing_to_bring() -> None:
    group = group_of()
    answer = group.install("a", [0] * 4, epoch=group.member("a").member_epoch, group_epoch=group.group.epoch)
    answer.is_refused(ErrorCode.INVALID_REQUEST, saying="it was given none yet; prepare the assignment anew")


def test_who_is_unknown_not_asked_or_behind_is_told_so() -> None:
    """KIP-848 as drafted: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    group = group_of()
    for ask in (group.prepare, lambda *a, **o: group.install(*a, **o, group_epoch=5)):
        ask("a", epoch=1, group_id="other").is_refused(ErrorCode.GROUP_ID_NOT_FOUND)
        ask("z", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID, saying="z is not in the group g")
        ask("b", epoch=group.member("b").member_epoch).is_refused(ErrorCode.UNKNOWN_MEMBER_ID, saying="was not asked")
        ask("a", epoch=1).is_refused(ErrorCode.STALE_MEMBER_EPOCH, saying="its next heartbeat tells it")


def test_who_leaves_while_it_computes_is_followed_by_another() -> None:
    group = group_of()
    given(group, "a")
    group.leave("a")
    group.fire_due()
    assert errors(group) == {GONE}
    assert is_asked(beat(group, "b"))
    compute(group, "b", 0, 0, 1, 1)
    group.settle()
    assert sorted(group.holders()) == ["b", "c"]


def test_who_dies_while_it_computes_is_followed_by_another() -> None:
    """It is fenced for its silence, not for what it was asked."""
    group = group_of(group_consumer_session_timeout_ms=5_000, group_consumer_heartbeat_interval_ms=1_000)
    assert is_asked(beat(group, "a"))
    for _ in range(3):
        group.advance(ms=2_000)
        for member_id in "bc":
            beat(group, member_id)
    assert sorted(group.group.members) == ["b", "c"]
    assert is_asked(beat(group, "b"))


def test_who_goes_for_a_while_or_loses_its_connection_is_followed_by_another() -> None:
    """It keeps its place, and is not waited for."""
    for go in ("away", "disconnected"):
        group = GroupDialogue({"t": 4})
        for name in "ab":
            join(group, name, instance_id=f"static-{name}")
        assert is_asked(beat(group, "a"))
        if go == "away":
            group.heartbeat("a", epoch=-2, instance_id="static-a")
        else:
            group.disconnect("a")
        group.fire_due()
        assert is_asked(beat(group, "b")), go
        compute(group, "b", 1, 1, 1, 1)
        join(group, "c")
        assert is_asked(beat(group, "b")), "a is not there"


def test_who_is_offline_in_a_static_group_is_not_asked() -> None:
    """It may stay so for half an hour."""
    group = GroupDialogue({"t": 4})
    for name in "ab":
        join(group, name, instance_id=f"static-{name}")
    compute(group, "a", 0, 0, 1, 1)
    group.settle()
    gone = start_offline(group.shard.groups, "g", {"a": group.now_ms}, group.settings, now_ms=group.now_ms)
    group._commit(TimerKey("clock", "g"), Decision(tuple(gone[0]), tuple(gone[1])))
    join(group, "c", instance_id="static-c")
    assert group.group.computing is not None
    assert group.group.computing.member_id == "b"


def test_who_hangs_is_late_by_its_rebalance_timeout_since_it_was_told() -> None:
    group = group_of(group_consumer_session_timeout_ms=600_000)
    group.advance(ms=30_000)
    assert is_asked(beat(group, "a")), "it is told now"
    group.advance(ms=20_000)
    assert not is_asked(beat(group, "b"))
    given(group, "a")
    group.advance(ms=39_999)
    assert group.group.computing is not None
    assert group.group.computing.member_id == "a"
    group.advance(ms=1)
    assert errors(group) == {LATE}
    assert is_asked(beat(group, "b"))
    assert "a" in group.group.members, "nobody is fenced for it"
    late = group.install("a", [0] * 4, epoch=group.member("a").member_epoch, group_epoch=group.group.epoch)
    late.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_when_each_has_failed_the_server_computes_and_the_next_change_asks_members_again() -> None:
    group = group_of()
    for member_id in "abc":
        group.fire_due()
        assert is_asked(beat(group, member_id))
        refused(compute(group, member_id, 0), ErrorCode.INVALID_REQUEST, "gave 1 owners")
    group.fire_due()
    assert group.group.target_epoch == group.group.epoch
    group.settle()
    assert sorted(map(len, group.holders().values())) == [1, 1, 2]
    join(group, "d")
    assert is_asked(beat(group, "a"))


def test_a_mistake_that_all_have_is_not_made_by_each_of_a_large_group() -> None:
    """One that hangs would take a rebalance timeout each."""
    group = GroupDialogue({"t": 4}, group_consumer_assignment_window_ms=10)
    for number in range(MOST_FAILED + 4):
        join(group, f"m{number:02}")
    group.advance(ms=10)
    for number in range(MOST_FAILED):
        assert group.group.target_epoch < group.group.epoch
        refused(compute(group, f"m{number:02}", 0), ErrorCode.INVALID_REQUEST, "gave 1 owners")
        group.fire_due()
    assert group.group.target_epoch == group.group.epoch


def test_who_has_failed_and_says_something_new_may_be_asked_again() -> None:
    group = group_of()
    refused(compute(group, "a", 0), ErrorCode.INVALID_REQUEST, "gave 1 owners")
    group.fire_due()
    beat(group, "a", client_assignors=(assignor(metadata=b"mended"),))
    refused(compute(group, "b", 0), ErrorCode.INVALID_REQUEST, "gave 1 owners")
    group.fire_due()
    assert is_asked(beat(group, "a"))


def test_a_request_about_an_earlier_computation_does_not_compute_for_ever() -> None:
    """Who asks before it is told has a deadline, too."""
    group = group_of(group_consumer_session_timeout_ms=600_000)
    given(group, "a")
    group.advance(ms=60_000)
    assert group.group.computing is not None
    assert group.group.computing.member_id == "b"


def test_a_broker_that_restarts_asks_anew() -> None:
    group = group_of()
    epoch = given(group, "a").group_epoch
    group.restart()
    group.fire_due()
    answer = group.install("a", [0] * 4, epoch=group.member("a").member_epoch, group_epoch=epoch)
    answer.is_refused(ErrorCode.INVALID_REQUEST, saying="prepare the assignment anew")
    assert is_asked(beat(group, "a"))
    compute(group, "a", 0, 1, 2, 2)
    group.settle()
    assert sorted(map(len, group.holders().values())) == [1, 1, 2]


def test_a_broker_that_stood_still_gives_the_time_back() -> None:
    group = group_of(group_consumer_session_timeout_ms=600_000)
    assert is_asked(beat(group, "a"))
    group.stand_still(ms=100_000)
    group.advance(ms=59_999)
    assert group.group.computing is not None
    assert group.group.computing.member_id == "a"
