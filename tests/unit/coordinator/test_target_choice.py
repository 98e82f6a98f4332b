"""Which assignor computes a group's target."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import submit


def assignor_of(group: GroupDialogue) -> str:
    name: str = group.describe().body_as(DescribeConsumerGroupReply).assignor_name
    return name


def test_without_a_wish_the_first_on_the_list_computes() -> None:
    """KIP-848: the coordinator uses the first of `group.consumer.assignors`."""
    group = GroupDialogue({"t": 4, "u": 4}, group_consumer_assignors=("range", "uniform"))
    group.heartbeat("a", epoch=0, topics=["t", "u"])
    group.heartbeat("b", epoch=0, topics=["t", "u"])
    assert assignor_of(group) == "range"
    group.settle()
    assert group.holders()["a"] == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}


def test_most_votes_win_and_the_order_of_the_list_breaks_a_tie() -> None:
    """KIP-848: the server assignor that most members name; one without a wish has no vote."""
    group = GroupDialogue()
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0, server_assignor="roundrobin")
    assert assignor_of(group) == "roundrobin"
    group.heartbeat("c", epoch=0, server_assignor="range")
    assert assignor_of(group) == "range"
    group.heartbeat("d", epoch=0, server_assignor="roundrobin")
    assert assignor_of(group) == "roundrobin"
    group.leave("d")
    group.leave("b")
    assert assignor_of(group) == "range"
    group.leave("c")
    assert assignor_of(group) == "uniform"


def test_another_choice_raises_the_epoch_and_a_wish_that_changes_nothing_does_not() -> None:
    """KAFKA-20434: Apache Kafka before 4.4 goes on with the old target."""
    group = GroupDialogue({"t": 4, "u": 4})
    for name in "ab":
        group.heartbeat(name, epoch=0, topics=["t", "u"], server_assignor="range")
    group.settle()
    epoch = group.group.epoch
    group.heartbeat("a", epoch=epoch, server_assignor="uniform")
    assert assignor_of(group) == "uniform"
    assert group.group.epoch == group.group.target_epoch == epoch + 1
    group.heartbeat("b", epoch=epoch, server_assignor="uniform")
    assert group.group.epoch == epoch + 1


def test_votes_survive_a_restart() -> None:
    group = GroupDialogue()
    group.heartbeat("a", epoch=0, server_assignor="sticky")
    group.restart()
    assert assignor_of(group) == "sticky"


def test_wish_that_the_broker_no_longer_offers_counts_as_none() -> None:
    group = GroupDialogue(group_consumer_assignors=("range", "sticky"))
    group.heartbeat("a", epoch=0, server_assignor="sticky")
    fewer = GroupDialogue(group_consumer_assignors=("range",))
    fewer.log = group.log
    fewer.restart()
    assert assignor_of(fewer) == "range"


@pytest.mark.parametrize("epoch", [0, 1])
def test_unknown_assignor_is_refused_with_the_names_of_the_known(epoch: int) -> None:
    """G5: a member that no assignor of the group can serve gets the field's error."""
    group = GroupDialogue()
    group.heartbeat("a", epoch=0)
    answer = group.heartbeat("a" if epoch else "b", epoch=epoch, server_assignor="mine")
    answer.is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="Supported assignors: uniform, range, roundrobin, sticky, external."
    )
    assert assignor_of(group) == "uniform"


def test_the_groups_own_assignor_counts_whatever_members_name() -> None:
    """Ours: an operator's word stands above votes, and taking it back gives them their weight again."""
    group = GroupDialogue()
    group.heartbeat("a", epoch=0, server_assignor="range")
    group.alter_configs({"group.assignor": "sticky"}).is_done()
    assert assignor_of(group) == "sticky"
    group.restart()
    assert assignor_of(group) == "sticky"
    group.alter_configs({"group.assignor": ""}).is_done()
    assert assignor_of(group) == "range"


def test_the_brokers_assignor_is_that_of_every_group_without_one() -> None:
    group = GroupDialogue(group_assignor="roundrobin")
    group.heartbeat("a", epoch=0, server_assignor="range")
    assert assignor_of(group) == "roundrobin"
    group.alter_configs({"group.assignor": ""}).is_done()
    assert assignor_of(group) == "range"


def test_a_groups_assignor_that_the_broker_no_longer_offers_counts_as_none() -> None:
    group = GroupDialogue()
    group.alter_configs({"group.assignor": "sticky"}).is_done()
    group.heartbeat("a", epoch=0)
    fewer = GroupDialogue(group_consumer_assignors=("range", "uniform"))
    fewer.log = group.log
    fewer.restart()
    assert assignor_of(fewer) == "range"


def test_external_gives_out_what_nobody_owns_and_leaves_the_rest_where_it_is() -> None:
    """Requirement H9: who joins waits for a scheduler; who leaves is replaced at once."""
    group = GroupDialogue({"t": 4})
    group.alter_configs({"group.assignor": "external"}).is_done()
    group.stable(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.settle()
    assert group.holders() == {"a": {("t", number) for number in range(4)}, "b": set()}
    group.leave("a")
    group.settle()
    assert group.holders() == {"b": {("t", number) for number in range(4)}}


def test_what_was_moved_by_hand_stays_when_members_come_and_go_under_external() -> None:
    """Requirement H9: an outside scheduler drives the group; topics that grow give out only what is new."""
    group = GroupDialogue({"t": 4}, group_assignor="external")
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.settle()
    submit(group, dict.fromkeys(range(4), "b"))
    group.settle()
    moved = {("t", number) for number in range(4)}
    group.heartbeat("c", epoch=0)
    group.settle()
    assert group.holders() == {"a": set(), "b": moved, "c": set()}
    group.leave("a")
    group.set_topics({"t": 5})
    group.settle()
    assert group.holders() == {"b": moved, "c": {("t", 4)}}


def test_another_assignor_of_the_group_moves_what_it_wants_moved_at_once() -> None:
    group = GroupDialogue({"t": 4}, group_assignor="external")
    group.stable(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.settle()
    group.alter_configs({"group.assignor": "uniform"}).is_done()
    group.advance(ms=0)
    group.settle()
    assert group.holders() == {"a": {("t", 0), ("t", 1)}, "b": {("t", 2), ("t", 3)}}


def test_external_moves_nothing_in_a_group_whose_balance_is_kept() -> None:
    """Requirement G7: the short way of large groups comes to what the assignor says."""
    group = GroupDialogue(
        {"t": 40}, group_assignor="external", incremental_from_partitions=1, group_consumer_assignment_window_ms=50
    )
    for name in "abcdefghij":
        group.heartbeat(name, epoch=0)
    group.advance(ms=50)
    group.settle()
    before = group.holders()
    group.heartbeat("k", epoch=0)
    group.advance(ms=50)
    group.settle()
    assert group.group.balance is not None
    assert group.holders() == {**before, "k": set()}
    group.leave("a")
    group.advance(ms=50)
    group.settle()
    after = group.holders()
    assert after["k"] == before["a"]
    assert {name: after[name] for name in "bcdefghij"} == {name: before[name] for name in "bcdefghij"}


def refusing(**settings: Any) -> GroupDialogue:
    return GroupDialogue(group_consumer_assignor_mismatch="refuse", **settings)


def test_who_names_another_assignor_than_the_group_uses_is_refused_with_its_name() -> None:
    """G5 to the letter; the first member chooses, who names none is welcome, and nothing has changed for the others."""
    group = refusing()
    group.heartbeat("a", epoch=0, server_assignor="range").replies(epoch=1, assigned=[0, 1])
    group.heartbeat("b", epoch=0)
    epoch = group.group.epoch
    group.heartbeat("c", epoch=0, server_assignor="sticky").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="the group g uses the assignor range, not sticky"
    )
    assert set(group.group.members) == {"a", "b"} and group.group.epoch == epoch
    group.heartbeat("c", epoch=0, server_assignor="range")
    assert set(group.group.members) == {"a", "b", "c"}


def test_members_that_name_nothing_use_the_brokers_first() -> None:
    group = refusing()
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0, server_assignor="range").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="uses the assignor uniform"
    )
    group.heartbeat("b", epoch=0, server_assignor="uniform")
    assert len(group.group.members) == 2


def test_the_only_member_may_choose_anew_and_one_of_two_may_not() -> None:
    group = refusing()
    group.heartbeat("a", epoch=0, server_assignor="range")
    group.heartbeat("a", epoch=1, server_assignor="sticky")
    assert assignor_of(group) == "sticky"
    group.heartbeat("b", epoch=0)
    group.settle()
    group.heartbeat("a", epoch=group.group.epoch, server_assignor="sticky", owned=[0])
    group.heartbeat("a", epoch=group.group.epoch, server_assignor="range").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="uses the assignor uniform"
    )
    assert assignor_of(group) == "sticky"


def test_with_an_assignor_of_the_group_even_the_first_member_may_name_no_other() -> None:
    group = refusing(group_assignor="external")
    group.heartbeat("a", epoch=0, server_assignor="range").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="uses the assignor external, not range"
    )
    group.heartbeat("a", epoch=0, server_assignor="external")
    assert set(group.group.members) == {"a"}


def test_a_successor_goes_on_with_the_wish_before_it_and_members_that_disagree_already_stay() -> None:
    """Refusing begins while members are there: nobody is put out for what it asked for before."""
    group = GroupDialogue()
    group.heartbeat("a", epoch=0, server_assignor="range", instance_id="one")
    group.heartbeat("b", epoch=0, server_assignor="range")
    group.heartbeat("c", epoch=0, server_assignor="sticky", instance_id="three")
    group.alter_configs({"group.consumer.assignor.mismatch": "refuse"}).is_done()
    group.settle()
    group.heartbeat("c", epoch=group.group.epoch, server_assignor="sticky", instance_id="three", owned=[])
    group.heartbeat("c", epoch=-2, instance_id="three")
    group.heartbeat("c2", epoch=0, server_assignor="sticky", instance_id="three")
    assert "c2" in group.group.members
    group.heartbeat("c2", epoch=-2, instance_id="three")
    group.heartbeat("c3", epoch=0, server_assignor="uniform", instance_id="three").is_refused(
        ErrorCode.UNSUPPORTED_ASSIGNOR, saying="uses the assignor range"
    )
    assert "c2" in group.group.members
    group.alter_configs({"group.consumer.assignor.mismatch": ""}).is_refused(
        ErrorCode.INVALID_CONFIG, saying="one of vote, refuse is expected"
    )


def test_by_default_members_that_disagree_vote() -> None:
    """Kafka's way stays what it was."""
    group = GroupDialogue()
    group.heartbeat("a", epoch=0, server_assignor="range")
    group.heartbeat("b", epoch=0, server_assignor="sticky")
    assert set(group.group.members) == {"a", "b"}
