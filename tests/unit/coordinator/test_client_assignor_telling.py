"""Who computes is told at once, who has metadata gets them, and what is not used changes nothing."""

from __future__ import annotations

from kohort.coordinator import commands
from kohort.coordinator.commands import ClientAssignment, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from kohort.coordinator.consumer.heartbeat import find_settled
from kohort.coordinator.records.types import ClientAssignmentSet
from support.dialogues.client_assignors import assignor, beat, compute, given, is_asked, join, said
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.hold_dialogue import HoldDialogue


def pair(*, window_ms: int = 0) -> GroupDialogue:
    """a and b, at rest by an assignment of a's, which said something to both."""
    group = GroupDialogue(
        {"t": 4}, group_consumer_assignment_window_ms=window_ms, group_consumer_assignment_window_max_ms=10 * window_ms
    )
    join(group, "a")
    join(group, "b")
    group.advance(ms=window_ms)
    compute(group, "a", 0, 0, 1, 1, said=(("a", 1, b"to a"), ("b", 2, b"to b")))
    group.settle()
    return group


def rows(group: GroupDialogue, *events: str) -> list[tuple[str, str, dict[str, str]]]:
    """What the journal says of these events."""
    return [(row.event, row.member_id, dict(row.details)) for row in group.told if row.event in events]


def test_who_is_asked_is_told_at_once_in_the_answer_that_was_held() -> None:
    group = HoldDialogue({"t": 4}, group_consumer_assignment_window_ms=0)
    join(group, "a")
    compute(group, "a", 0, 0, 0, 0)
    group.at_rest(a=[0, 1, 2, 3])
    waiting = group.beat("a")
    assert group.held() == {"a"}
    join(group, "b")
    group.tell_news()
    assert is_asked(waiting)
    assert said(waiting) is None


def test_who_joins_and_is_asked_is_not_held() -> None:
    group = HoldDialogue({"t": 4}, group_consumer_assignment_window_ms=0)
    assert is_asked(join(group, "a", hold_ms=1_000))
    assert not group.held()


def test_metadata_release_only_the_heartbeats_of_whom_they_concern() -> None:
    group = HoldDialogue({"t": 4}, group_consumer_assignment_window_ms=0)
    join(group, "a")
    join(group, "b")
    compute(group, "a", 0, 0, 1, 1)
    group.at_rest(a=[0, 1], b=[2, 3])
    beat(group, "a", client_assignors=(assignor(reason=1),))
    given(group, "a")
    waiting = [group.beat(name, owned=owned) for name, owned in (("a", [0, 1]), ("b", [2, 3]))]
    compute(group, "a", 0, 0, 1, 1, said=(("b", 7, b"to b"),))
    group.tell_news()
    assert [answer.is_parked for answer in waiting] == [True, False]
    assert said(waiting[1]) == ClientAssignment(0, 7, b"to b")


def test_an_error_is_told_with_the_next_answer_and_releases_nobody() -> None:
    """In a large group whose members fail one after the other that would be the square of its size."""
    group = HoldDialogue({"t": 4}, group_consumer_assignment_window_ms=0)
    join(group, "a")
    join(group, "b")
    compute(group, "a", 0, 0, 1, 1)
    group.at_rest(a=[0, 1], b=[2, 3])
    beat(group, "a", client_assignors=(assignor(reason=1),))
    given(group, "a")
    waiting = group.beat("b", owned=[2, 3])
    group.install("a", epoch=group.member("a").member_epoch, group_epoch=group.group.epoch, error=5)
    group.tell_news()
    assert waiting.is_parked


def test_who_has_something_to_be_told_is_not_settled() -> None:
    group = pair()
    beats = ConsumerGroupHeartbeat(
        cause=group.cause(), request=group.request(), group_id="g", member_id="b", member_epoch=3,
        client_id="client-b", client_host="/127.0.0.1",
    )  # fmt: skip
    group.restart()
    assert find_settled(group.shard.groups, beats) is None
    assert said(group.heartbeat("b", epoch=3)) == ClientAssignment(0, 2, b"to b")
    assert find_settled(group.shard.groups, beats) is not None


def test_what_was_said_is_told_with_every_assignment_and_again_to_who_says_everything() -> None:
    group = pair()
    assert said(group.heartbeat("b", epoch=3, full=True, owned=[2, 3])) == ClientAssignment(0, 2, b"to b")
    assert said(beat(group, "b")) is None


def test_a_new_target_forgets_what_was_said_with_the_one_before() -> None:
    group = pair()
    join(group, "c")
    compute(group, "a", 0, 0, 1, 2, said=(("c", 3, b"to c"),))
    assert said(beat(group, "b")) == ClientAssignment(0, 0, b"")
    assert said(beat(group, "c")) == ClientAssignment(0, 3, b"to c")
    group.heartbeat("d", epoch=0)
    assert group.group.target_epoch == group.group.epoch, "the server's"
    side = group.group.client_assignors
    assert side is not None
    assert side.said == {}


def test_a_successor_gets_the_place_of_a_static_member_with_what_was_said() -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a")
    join(group, "b", instance_id="one")
    compute(group, "a", 0, 0, 1, 1, said=(("b", 2, b"to b"),))
    group.settle()
    group.heartbeat("b", epoch=-2, instance_id="one")
    epoch = group.group.epoch
    join(group, "b2", instance_id="one")
    group.fire_due()
    assert group.group.epoch == epoch, "nothing has changed"
    assert said(beat(group, "b2")) == ClientAssignment(0, 2, b"to b")


def test_new_metadata_and_a_reason_ask_for_a_computation() -> None:
    """KIP-848 as drafted: what replaces enforceRebalance."""
    group = pair()
    epoch = group.group.epoch
    assert not is_asked(beat(group, "b", client_assignors=(assignor(),))), "nothing is new"
    beat(group, "b", client_assignors=(assignor(metadata=b"lag"),))
    assert group.group.epoch == epoch + 1
    assert [each.metadata for each in given(group, "a").assignable.members] == [b"", b"lag"]
    compute(group, "a", 0, 0, 1, 1)
    beat(group, "b", client_assignors=(assignor(metadata=b"lag", reason=3),))
    assert group.group.epoch == epoch + 2
    assert [each.reason for each in given(group, "a").assignable.members] == [0, 3]
    assert rows(group, "epoch_bumped")[-1][2]["trigger"] == "member asked for an assignment"


def test_metadata_of_an_assignor_that_is_not_used_are_kept_and_nothing_else() -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a", assignor("x"), assignor("y"))
    compute(group, "a", 0, 0, 0, 0)
    group.settle()
    epoch = group.group.epoch
    beat(group, "a", client_assignors=(assignor("x"), assignor("y", metadata=b"new", reason=1)))
    assert group.group.epoch == epoch


def test_many_wishes_in_a_window_are_one_computation() -> None:
    group = pair(window_ms=100)
    epoch = group.group.epoch
    for number in range(5):
        for name in "ab":
            beat(group, name, client_assignors=(assignor(metadata=str(number).encode()),))
        group.advance(ms=10)
    assert group.group.computing is None
    group.advance(ms=100)
    assert is_asked(beat(group, "a"))
    assert group.group.epoch > epoch
    assert len(rows(group, "assignor_asked")) == 2, "one of them the first"


def test_an_assignment_is_taken_though_the_group_has_moved_on_and_the_next_is_asked_for() -> None:
    """KIP-848 as drafted: so that a busy group makes progress."""
    group = pair()
    join(group, "c")
    epoch = given(group, "a").group_epoch
    group.leave("b")
    assert group.install("a", [0, 1, 2, 2], epoch=3, group_epoch=epoch).body == commands.InstallAssignmentReply()
    assert (group.group.target_epoch, group.group.epoch) == (epoch, epoch + 1)
    assert group.named(group.group.targets["a"]) == {"t": (0,)}
    group.fire_due()
    assert is_asked(beat(group, "a"))
    prepared = given(group, "a")
    assert (prepared.group_epoch, list(prepared.assignable.owner)) == (epoch + 1, [0, -1, 1, 1])


def test_what_is_given_is_the_group_as_it_is_then() -> None:
    """Who is slow to ask is given what has changed meanwhile."""
    group = pair()
    join(group, "c")
    join(group, "d")
    prepared = given(group, "a")
    assert [member.member_id for member in prepared.assignable.members] == ["a", "b", "c", "d"]
    assert prepared.group_epoch == group.group.epoch
    compute(group, "a", 0, 1, 2, 3)
    assert group.group.target_epoch == group.group.epoch


def test_an_assignment_that_fits_nobody_is_thrown_away() -> None:
    """A static member was replaced meanwhile: the assignment names the one before."""
    group = GroupDialogue({"t": 4})
    join(group, "a")
    join(group, "b", instance_id="one")
    compute(group, "a", 0, 0, 1, 1)
    group.settle()
    join(group, "c")
    epoch = given(group, "a").group_epoch
    group.heartbeat("b", epoch=-2, instance_id="one")
    join(group, "b2", instance_id="one")
    answer = group.install("a", [0, 1, 1, 2], epoch=group.member("a").member_epoch, group_epoch=epoch)
    reply = answer.body_as(commands.InstallAssignmentReply)
    assert reply.error.name == "REBALANCE_IN_PROGRESS"
    group.fire_due()
    assert is_asked(beat(group, "a"))


def test_limited_moves_are_made_step_by_step_by_members() -> None:
    """`group.assignor.max.moves`: the assignor is told how many may begin."""
    group = GroupDialogue({"t": 4}, group_assignor_max_moves=1)
    join(group, "a")
    compute(group, "a", 0, 0, 0, 0)
    group.settle()
    join(group, "b")
    assert given(group, "a").assignable.max_moves == 1
    compute(group, "a", 0, 0, 0, 1)
    group.settle()
    epoch = group.group.epoch
    group.advance(ms=1_000)
    assert is_asked(beat(group, "a"))
    assert group.group.epoch == epoch
    prepared = given(group, "a")
    assert (prepared.group_epoch, prepared.assignable.max_moves) == (epoch + 1, 1)
    compute(group, "a", 0, 0, 1, 1)
    group.settle()
    assert (group.group.epoch, group.holders()["b"]) == (epoch + 1, {("t", 2), ("t", 3)})


def test_the_journal_tells_who_was_asked_who_failed_and_who_computed() -> None:
    group = GroupDialogue({"t": 4})
    join(group, "a")
    join(group, "b")
    compute(group, "a", 0)
    group.fire_due()
    compute(group, "b", 0, 0, 1, 1)
    told = rows(group, "assignor_asked", "assignor_failed", "target_computed")[1:]
    assert [(event, member_id) for event, member_id, _ in told] == [
        ("assignor_asked", "a"),
        ("assignor_failed", "a"),
        ("assignor_asked", "b"),
        ("target_computed", ""),
    ]
    assert told[1][2] == {"assignor": "mine", "why": "gave 1 owners for 4 partitions"}
    assert told[3][2]["by"] == "b"


def test_where_nobody_runs_an_assignor_nothing_is_said_and_nothing_kept() -> None:
    group = GroupDialogue({"t": 4})
    for name in "ab":
        reply = group.heartbeat(name, epoch=0).body_as(ConsumerGroupHeartbeatReply)
        assert (reply.should_compute, reply.client_assignment) == (False, None)
    group.settle()
    assert group.group.client_assignors is None
    assert not [record for record in group.new_records() if isinstance(record, ClientAssignmentSet)]
