"""An assignor of the user's own works beside the coordinator, and nothing that it does can harm a group."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kohort.coordinator.commands import ConsumerGroupHeartbeatReply
from kohort.coordinator.consumer.assignment.async_assignor import LONGEST_ERROR, LONGEST_RETRY_MS, REFUSE_AFTER
from kohort.coordinator.consumer.assignment.batching_window import assignment_key
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue


def group_of(topics: dict[str, int] | None = None, **limits: int) -> GroupDialogue:
    """A group whose first assignor is the user's own, "mine"."""
    return GroupDialogue(
        {"t": 4} if topics is None else topics,
        group_consumer_assignors=("mine", "uniform"),
        own_assignors=("mine",),
        **limits,
    )


def test_first_target_comes_when_the_assignor_has_answered() -> None:
    """G5: the decision only asks; the answer comes as a command of its own."""
    group = group_of()
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[])
    (order,) = group.computations
    assert (order.assignor, order.epoch, order.timeout_ms, order.is_offloaded) == ("mine", 2, 5_000, True)
    assert [member.member_id for member in order.assignable.members] == ["a"]
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=1, assigned=None)
    group.computed([0, 0, 0, 0])
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=2, assigned=[0, 1, 2, 3])
    assert group.group.computing is None


def test_target_is_what_the_assignor_says_however_uneven() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.computed([0, 0, 0, 0])
    group.settle()
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.computed([0, 0, 0, 1])
    group.settle()
    assert group.holders() == {"a": {("t", 0), ("t", 1), ("t", 2)}, "b": {("t", 3)}}


def test_result_for_an_older_epoch_is_taken_and_the_next_one_is_asked_for() -> None:
    """KIP-848: an assignment is installed although the epoch has moved on, so that a busy group makes progress."""
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.heartbeat("c", epoch=0)
    assert len(group.computations) == 1, "one at a time"
    group.leave("b")
    group.computed([0, 0, 0, 0])
    assert (group.group.epoch, group.group.target_epoch) == (5, 2)
    group.fire_due()
    (order,) = group.computations
    assert [member.member_id for member in order.assignable.members] == ["a", "c"]
    assert list(order.assignable.owner) == [0, 0, 0, 0]
    group.computed([0, 0, 1, 1])
    assert group.group.target_epoch == 5


def test_what_a_member_that_left_was_to_own_is_nobodys_until_the_next_target() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.computed([0, 0, 0, 0])
    group.settle()
    group.heartbeat("b", epoch=0)
    group.leave("b")
    group.computed([0, 1, 0, 1])
    assert group.named(group.group.targets["a"]) == {"t": (0, 2)}
    group.fire_due()
    group.computed([0, 0, 0, 0])
    group.settle()
    assert group.holders() == {"a": {("t", partition) for partition in range(4)}}


@pytest.mark.parametrize(
    ("owner", "fault"),
    [
        ([0, 0, 0, 0], "gave 4 owners for 5 partitions"),
        ([0, 0, 0, 0, 0, 0], "gave 6 owners for 5 partitions"),
        ([], "gave 0 owners"),
        ([0, 1, 2, 0, 1], "left partition t-2 without an owner (number 2)"),
        ([0, 1, -2, 0, 1], "left partition t-2 without an owner (number -2)"),
        ([0, 1, -1, 0, 1], "left partition t-2 without an owner (number -1)"),
        ([0, 1, 0, 0, 0], "gave partition u-0 to member a, which does not want it"),
        (None, "gave NoneType instead of array"),
    ],
)
def test_answer_that_is_not_an_assignment_changes_nothing(owner: Sequence[int] | None, fault: str) -> None:
    """Issue 4, bad input: foreign partitions, one that is nobody's, a member that does not subscribe."""
    group = group_of({"t": 4, "u": 1})
    group.heartbeat("a", epoch=0)
    group.computed([0, 0, 0, 0])
    group.settle()
    group.heartbeat("b", epoch=0, topics=["t", "u"])
    targets = dict(group.group.targets)
    group.computed(owner)
    assert group.group.targets == targets
    assert group.group.target_epoch == 2
    assert group.group.failure is not None
    assert fault in group.group.failure.error
    assert group.group.computing is None


def fail(group: GroupDialogue, *, times: int, error: str = "ValueError: no idea") -> None:
    """The assignor fails so often, each time it is asked."""
    for _ in range(times):
        while not group.computations:
            group.advance(ms=500)
        group.computed(error=error)


def test_members_go_on_and_new_ones_are_told_while_the_assignor_fails() -> None:
    """A joining heartbeat gets UNKNOWN_SERVER_ERROR as in Kafka, with the name of the assignor and its error."""
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.computed([0, 0, 0, 0])
    group.settle()
    group.heartbeat("b", epoch=0)
    fail(group, times=REFUSE_AFTER)
    group.heartbeat("c", epoch=0).is_refused(
        ErrorCode.UNKNOWN_SERVER_ERROR, saying="the assignor mine fails for the group g: ValueError: no idea"
    )
    assert sorted(group.group.members) == ["a", "b"]
    group.heartbeat("a", epoch=2).replies(epoch=2, assigned=None)
    group.commit({0: 5}, member_id="a", epoch=2).errors()
    group.heartbeat("b", epoch=2, owned=[]).replies(epoch=2, assigned=None)
    # One whose vote makes the group use another assignor is welcome.
    group.heartbeat("d", epoch=0, server_assignor="uniform").replies(epoch=4, assigned=[])
    assert group.group.failure is None


def test_failing_assignor_is_asked_again_later_and_later() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    pauses = []
    for _ in range(9):
        # A member that lives keeps the group alive.
        group.computed(error="it raises")
        deadline_ms = group.shard.timers.deadline(assignment_key("g"))
        assert deadline_ms is not None
        pauses.append(deadline_ms - group.now_ms)
        while group.now_ms < deadline_ms:
            group.heartbeat("a", epoch=1)
            group.advance(ms=min(30_000, deadline_ms - group.now_ms))
        assert len(group.computations) == 1
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, LONGEST_RETRY_MS, LONGEST_RETRY_MS, LONGEST_RETRY_MS]
    group.computed([0, 0, 0, 0])
    assert group.group.failure is None
    assert group.group.target_epoch == group.group.epoch


def test_change_does_not_hurry_an_assignor_that_fails() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.computed(error="x" * 10_000)
    assert group.group.failure is not None
    assert len(group.group.failure.error) == LONGEST_ERROR
    group.leave("b")
    group.advance(ms=999)
    assert not group.computations
    group.advance(ms=1)
    assert len(group.computations) == 1


def test_votes_for_a_built_in_one_do_not_wait_for_the_users_own() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0, server_assignor="uniform")
    assert group.group.target_epoch == group.group.epoch == 3
    group.computed([0, 0, 0, 1])
    assert group.group.target_epoch == 3
    group.settle()
    assert sorted(map(len, group.holders().values())) == [2, 2]


def test_restart_asks_anew_and_an_answer_to_the_old_question_is_not_heard() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    (order,) = group.computations
    group.restart()
    group.fire_due()
    assert len(group.computations) == 1
    group.computations.insert(0, order)
    group.computed([0, 0, 0, 0])
    assert group.group.target_epoch == 1
    group.computed([0, 0, 0, 0])
    assert group.group.target_epoch == 2


def test_group_that_is_gone_or_empty_needs_no_answer() -> None:
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.leave("a")
    group.computed([0, 0, 0, 0])
    assert group.group.target_epoch == group.group.epoch
    assert not group.group.targets
    group.heartbeat("a", epoch=0)
    group.leave("a")
    group.delete_group().is_done()
    group.computed([0, 0, 0, 0])
    assert group.list_groups() == []


def test_successor_of_a_static_member_is_not_robbed_by_a_result_that_does_not_know_it() -> None:
    """The result names its predecessor: it is thrown away, and the assignor is asked again."""
    group = group_of()
    group.heartbeat("a", epoch=0, instance_id="s")
    group.heartbeat("b", epoch=0)
    group.computed([0, 0, 0, 0])
    group.fire_due()
    group.computed([0, 0, 1, 1])
    group.settle()
    group.heartbeat("c", epoch=0)
    group.heartbeat("a", epoch=-2, instance_id="s")
    group.heartbeat("a2", epoch=0, instance_id="s")
    assert group.named(group.group.targets["a2"]) == {"t": (0, 1)}
    group.computed([2, 2, 1, 1])
    assert group.group.target_epoch == 3
    group.fire_due()
    (order,) = group.computations
    assert [member.member_id for member in order.assignable.members] == ["a2", "b", "c"]
    assert list(order.assignable.owner) == [0, 0, 1, 1]


def test_a_step_that_knows_the_predecessor_of_a_static_member_is_thrown_away() -> None:
    """Found by seed 554: the successor kept what the step gave to another, and the target had two owners."""
    group = group_of(group_assignor_max_moves=1)
    group.heartbeat("a", epoch=0, instance_id="s")
    group.computed([0, 0, 0, 0])
    group.settle()
    group.heartbeat("b", epoch=0)
    group.computed([0, 0, 0, 1])
    group.settle()
    group.advance(ms=1_000)
    (order,) = group.computations
    assert order.is_step
    group.heartbeat("a", epoch=-2, instance_id="s")
    group.heartbeat("a2", epoch=0, instance_id="s")
    group.computed([0, 0, 1, 1])
    assert group.named(group.group.targets["a2"]) == {"t": (0, 1, 2)}
    assert group.named(group.group.targets["b"]) == {"t": (3,)}
    group.advance(ms=1_000)
    group.computed([0, 0, 1, 1])
    group.settle()
    assert group.holders() == {"a2": {("t", 0), ("t", 1)}, "b": {("t", 2), ("t", 3)}}


def test_settings_say_how_long_it_may_take_and_whether_it_runs_beside() -> None:
    group = group_of(group_consumer_assignor_timeout_ms=70, group_consumer_assignor_offload_enable=False)
    group.heartbeat("a", epoch=0)
    (order,) = group.computations
    assert (order.timeout_ms, order.is_offloaded) == (70, False)


def test_one_mishap_refuses_nobody() -> None:
    """Clients take the refusal as fatal: who joins while the machine is slow waits for the target instead."""
    group = group_of()
    group.heartbeat("a", epoch=0)
    fail(group, times=REFUSE_AFTER - 1, error="it took longer than 5000 ms")
    group.heartbeat("b", epoch=0).replies(epoch=1, assigned=[])
    fail(group, times=1)
    group.heartbeat("c", epoch=0).is_refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    group.heartbeat("b", epoch=1, owned=[]).replies(epoch=1, assigned=None)


def test_members_are_not_told_to_hurry_while_the_assignor_fails() -> None:
    """Nobody knows when the target will come: the short interval of a rebalance would only cost."""
    group = group_of(group_consumer_rebalance_heartbeat_interval_ms=100)
    answer = group.heartbeat("a", epoch=0)
    assert answer.body_as(ConsumerGroupHeartbeatReply).heartbeat_interval_ms == 100
    fail(group, times=1)
    answer = group.heartbeat("a", epoch=1, owned=[])
    assert answer.body_as(ConsumerGroupHeartbeatReply).heartbeat_interval_ms == 5_000


def test_topics_that_change_meanwhile_are_for_the_next_computation() -> None:
    """A topic that is deleted while the assignor works is nobody's, one that grows is divided by the next target."""
    group = group_of({"t": 2, "u": 2})
    group.heartbeat("a", epoch=0, topics=["t", "u"])
    group.set_topics({"t": 3})
    group.fire_due()
    group.computed([0, 0, 0, 0])
    group.settle()
    assert group.holders() == {"a": {("t", 0), ("t", 1)}}
    group.computed([0, 0, 0])
    group.settle()
    assert group.holders() == {"a": {("t", 0), ("t", 1), ("t", 2)}}


def test_member_that_wants_less_meanwhile_gets_less() -> None:
    group = group_of({"t": 1, "u": 1})
    group.heartbeat("a", epoch=0, topics=["t", "u"])
    group.heartbeat("a", epoch=1, topics=["t"])
    group.computed([0, 0])
    group.settle()
    assert group.holders() == {"a": {("t", 0)}}


def test_group_that_is_given_up_does_not_hear_the_answer_for_the_one_before() -> None:
    """Deleted and made again: the answer to a question about the first is not about the second."""
    group = group_of()
    group.heartbeat("a", epoch=0)
    group.leave("a")
    group.delete_group().is_done()
    group.heartbeat("b", epoch=0)
    group.computed([0, 0, 0, 0])
    assert group.group.target_epoch == 1
    group.computed([0, 0, 0, 0])
    group.settle()
    assert group.holders() == {"b": {("t", partition) for partition in range(4)}}
