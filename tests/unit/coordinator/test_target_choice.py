"""Which assignor computes a group's target."""

from __future__ import annotations

import pytest

from kohort.coordinator.commands import DescribeConsumerGroupReply
from kohort.errors import ErrorCode
from support.coordinator_dialogue import GroupDialogue


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
    answer.is_refused(ErrorCode.UNSUPPORTED_ASSIGNOR, saying="Supported assignors: uniform, range, roundrobin, sticky.")
    assert assignor_of(group) == "uniform"
