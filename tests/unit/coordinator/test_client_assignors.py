"""Members that run an assignor themselves compute their group's target, one at a time, and nothing is lost by it."""

from __future__ import annotations

from kohort.coordinator import commands
from kohort.coordinator.commands import ClientAssignment
from kohort.errors import ErrorCode
from support.dialogues.client_assignors import assignor, beat, compute, given, is_asked, join, said
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.hold_dialogue import HoldDialogue

TAKEN = commands.InstallAssignmentReply()


def test_member_that_joins_first_is_asked_and_computes() -> None:
    """KIP-848 as drafted: the coordinator picks one member, which prepares and installs the assignment."""
    group = GroupDialogue({"t": 4})
    answer = join(group, "a")
    answer.replies(epoch=1, assigned=[])
    assert is_asked(answer)
    prepared = given(group, "a")
    assert (prepared.group_epoch, prepared.assignor, prepared.version, prepared.member_epochs) == (2, "mine", 1, (1,))
    assert [member.member_id for member in prepared.assignable.members] == ["a"]
    assert list(prepared.assignable.owner) == [-1] * 4
    assert not is_asked(group.heartbeat("a", epoch=1, owned=[])), "it knows by now"
    assert group.install("a", [0] * 4, epoch=1, group_epoch=2).body == TAKEN
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=2, assigned=[0, 1, 2, 3])


def test_metadata_of_members_are_given_to_the_assignor_and_its_own_to_them() -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a", assignor(metadata=b"lag 7", version=1))
    compute(group, "a", 0, 0, 0, 0)
    group.settle()
    join(group, "b", assignor(metadata=b"lag 0"), rack_id="north")
    assert is_asked(beat(group, "a"))
    prepared = given(group, "a")
    assert [(each.metadata, each.metadata_version, each.rack_id) for each in prepared.assignable.members] == [
        (b"lag 7", 1, None),
        (b"lag 0", 0, "north"),
    ]
    compute(group, "a", 0, 0, 0, 1, said=(("b", 1, b"for b"),))
    assert said(beat(group, "a")) is None
    group.settle()
    answer = group.heartbeat("b", epoch=group.member("b").member_epoch, full=True, owned=[3], client_id="x")
    assert said(answer) == ClientAssignment(0, 1, b"for b")
    group.restart()
    assert said(beat(group, "b")) == ClientAssignment(0, 1, b"for b")
    assert said(beat(group, "b")) is None


def test_who_is_asked_and_does_not_answer_is_followed_by_another_and_in_the_end_by_the_server() -> None:
    """KIP-848 as drafted: by the rebalance timeout since it was told; it is not fenced."""
    group = GroupDialogue({"t": 4}, group_consumer_session_timeout_ms=60_000)
    group.rebalance_timeout_ms = 10_000
    join(group, "a")
    join(group, "b")
    group.advance(ms=10_000)
    assert is_asked(group.heartbeat("b", epoch=1, owned=[]))
    assert said(group.heartbeat("a", epoch=1, owned=[])) == ClientAssignment(-1, 0, b"")
    group.advance(ms=9_999)
    assert group.group.target_epoch < group.group.epoch
    group.advance(ms=1)
    assert group.group.target_epoch == group.group.epoch
    assert sorted(group.group.members) == ["a", "b"]
    group.settle()
    assert sorted(map(len, group.holders().values())) == [2, 2]


def test_error_of_an_assignor_is_told_to_all_and_somebody_else_is_asked() -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a")
    join(group, "b")
    prepared = given(group, "a")
    answer = group.install("a", epoch=1, group_epoch=prepared.group_epoch, error=7)
    assert answer.body == TAKEN
    group.fire_due()
    told = group.heartbeat("b", epoch=1, owned=[])
    assert is_asked(told)
    assert said(told) == ClientAssignment(7, 0, b"")
    compute(group, "b", 0, 1, 0, 1)
    group.settle()
    assert group.holders() == {"a": {("t", 0), ("t", 2)}, "b": {("t", 1), ("t", 3)}}


def test_assignment_that_is_none_is_refused_and_changes_nothing() -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a")
    answer = compute(group, "a", 0, 0, 0)
    reply = answer.body_as(commands.InstallAssignmentReply)
    assert reply.error == ErrorCode.INVALID_REQUEST
    assert "gave 3 owners for 4 partitions" in (reply.message or "")
    group.settle()
    assert group.holders() == {"a": {("t", number) for number in range(4)}}, "the server's assignor"


def test_who_waits_for_news_is_asked_before_others_and_hears_at_once() -> None:
    """Anybody else would hear of it with its next heartbeat, up to an interval later."""
    group = HoldDialogue({"t": 2}, group_consumer_assignment_window_ms=0)
    for member_id in ("a", "b"):
        join(group, member_id)
        compute(group, "a", *([0, 0] if member_id == "a" else [0, 1]))
        group.tell_news()
    for member_id, number in (("a", 0), ("b", 1), ("a", 0), ("b", 1)):
        group.beat(member_id, owned=[number], hold_ms=0)
    waiting = group.beat("b")
    assert group.held() == {"b"}
    join(group, "c")
    group.tell_news()
    assert is_asked(waiting)
