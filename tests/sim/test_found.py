"""What the simulation found: each failing seed becomes a test with a name."""

from __future__ import annotations

from support.coordinator_dialogue import GroupDialogue


def test_topic_that_vanished_while_the_broker_was_down_is_taken_from_its_group() -> None:
    """Seed 114: after a restart there is no older picture of topics; that one is missing shows in the hash alone."""
    group = GroupDialogue({"t": 2, "u": 1})
    group.stable(a={"t": [0, 1]})
    epoch = group.group.epoch

    group.shard = group.fold()
    group.shard.on_loaded(group.now_ms)
    group.set_topics({"u": 1})
    group.fire_due()

    assert group.group.epoch == epoch + 1
    assert group.group.targets["a"] == {}


def test_restart_with_the_same_topics_moves_nobody() -> None:
    """The counterpart: the first picture after a restart is no change by itself."""
    group = GroupDialogue({"t": 2})
    group.stable(a=[0, 1])
    epoch = group.group.epoch

    group.restart()
    group.fire_due()

    assert group.group.epoch == epoch


def test_clock_that_was_set_back_does_not_hold_up_an_assignment() -> None:
    """Seed 148: the last target was computed minutes from now, before a restart, and there is an interval to keep."""
    group = GroupDialogue({"t": 2}, group_consumer_assignment_interval_ms=1_000)
    group.stable(a=[0, 1])

    group.now_ms -= 500_000
    group.restart()
    group.heartbeat("b", epoch=0)
    group.advance(1_000)

    assert group.group.target_epoch == group.group.epoch
    assert group.group.targets["b"] != {}
