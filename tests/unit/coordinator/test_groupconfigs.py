"""Configs of single groups: bounded, atomic, in effect at once, and there after a restart."""

from __future__ import annotations

import pytest

from kohort.coordinator.commands import admin as asked
from kohort.coordinator.configs import GROUP_CONFIGS, configs_in, effective_settings
from kohort.coordinator.records.types import GroupConfigsForgotten, GroupConfigsSet
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


@pytest.fixture
def group() -> GroupDialogue:
    return GroupDialogue({"t": 2})


def test_a_group_has_the_brokers_settings_but_for_its_own() -> None:
    """KIP-848: group configs; the heartbeat interval is the one that is announced."""
    group = GroupDialogue({"t": 2}, group_consumer_rebalance_heartbeat_interval_ms=0)
    group.alter_configs({INTERVAL: "1000"}).is_done()
    group.heartbeat("a", epoch=0, topics=["none"]).replies(epoch=1, assigned=[], interval=1_000)
    group.heartbeat("b", epoch=0, topics=["none"], group_id="other").replies(epoch=1, assigned=[], interval=5_000)
    group.heartbeat("a", epoch=1).replies(epoch=1, interval=1_000)
    group.alter_configs({INTERVAL: None}).is_done()
    group.heartbeat("a", epoch=1).replies(epoch=1, interval=5_000)


def test_configs_outlive_restarts_and_the_group(group: GroupDialogue) -> None:
    """Apache Kafka keeps a group's configs when the group is deleted; they are no part of it."""
    group.alter_configs({SESSION: "10000", INTERVAL: "1000"}).is_done()
    group.heartbeat("a", epoch=0)
    group.leave("a")
    group.delete_group().is_done()
    group.restart()
    assert group.configs() == {SESSION: "10000", INTERVAL: "1000"}
    assert group.shard.settings_for("g").group_consumer_session_timeout_ms == 10_000
    group.alter_configs({SESSION: None, INTERVAL: None}).is_done()
    assert group.new_records()[-1:] == [GroupConfigsForgotten(group_id="g")]
    group.restart()
    assert group.configs() == {}
    assert group.shard.settings_for("g") is group.shard.settings


def test_nothing_is_written_where_nothing_changes(group: GroupDialogue) -> None:
    group.alter_configs({SESSION: "50000"}, validate_only=True).is_done()
    assert group.configs() == {}
    group.alter_configs({SESSION: None}).is_done()
    assert group.new_records()[1:] == []
    group.alter_configs({SESSION: " 050000"}).is_done()
    assert group.new_records() == [GroupConfigsSet(group_id="g", configs={SESSION: "50000"})]
    group.alter_configs({SESSION: "50000"}).is_done()
    assert group.new_records() == []


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({"consumer.sesion.timeout.ms": "1"}, "did you mean consumer.session.timeout.ms?"),
        ({"consumer_session_timeout_ms": "50000"}, "unknown group config"),
        ({"x" * 1_000_000: "1"}, "no name is longer than 249 characters"),
        ({SESSION: "9" * 1_000_000}, "has 1000000 characters; at most 249"),
        ({SESSION: "9" * 200}, "100 to 1800000 is expected"),
        ({SESSION: "99"}, "100 to 1800000 is expected (the broker's group.consumer.min.session.timeout.ms and"),
        ({SESSION: "-1"}, "100 to 1800000"),
        ({SESSION: ""}, "a whole number is expected"),
        ({SESSION: "1.5"}, "a whole number is expected"),
        ({INTERVAL: "49"}, "50 to 600000"),
        ({INTERVAL: "600001"}, "50 to 600000"),
        ({INTERVAL: "45000"}, "has to be below consumer.session.timeout.ms (45000, as the broker has it)"),
        ({SESSION: "5000"}, "consumer.heartbeat.interval.ms (5000, as the broker has it) has to be below"),
        ({ASSIGNMENT_INTERVAL: "15001"}, "0 to 15000"),
        ({"consumer.assignor.offload.enable": "yes"}, "true or false is expected"),
        ({"group.disconnect.grace.ms": "-2"}, "-1 to 2147483647"),
        ({"group.assignor.max.moves": "2147483648"}, "-1 to 2147483647"),
        ({"group.assignor.imbalance": "-1"}, "0 to 2147483647"),
        ({"group.assignor": "mine"}, "one of uniform, range, roundrobin, sticky, external is expected"),
        ({"group.membership": "fixed"}, "one of dynamic, static is expected"),
        ({"group.registration.timeout.ms": "99"}, "100 to 86400000 is expected (the broker's group.min.registration"),
        ({"group.expansion.timeout.ms": "86400001"}, "100 to 86400000 is expected (the broker's group.min.expansion"),
        ({"group.static.fallback": "never"}, "one of admin, join is expected"),
        ({"group.rebalance.token": "1"}, "this one is dynamic: set group.membership=static first"),
        ({"share.session.timeout.ms": "45000"}, "is not offered"),
        ({"streams.num.standby.replicas": None}, "is not offered"),
        ({"errors.deadletterqueue.topic.name": "dlq"}, "is not offered"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    group: GroupDialogue, changes: dict[str, str | None], saying: str
) -> None:
    """Apache Kafka: INVALID_CONFIG; ours says what is allowed."""
    group.new_records()
    refusal = group.alter_configs({"group.assignor.imbalance": "1", **changes}).is_refused(
        ErrorCode.INVALID_CONFIG, saying=saying
    )
    assert len(refusal.message or "") < 500
    assert group.new_records() == []
    assert group.configs() == {}


def test_groups_that_cannot_be_are_refused(group: GroupDialogue) -> None:
    group.alter_configs({SESSION: "50000"}, group_id="").is_refused(ErrorCode.INVALID_REQUEST, saying="empty")
    group.alter_configs({SESSION: "50000"}, group_id="g" * 1_000_000).is_refused(ErrorCode.INVALID_GROUP_ID)


def test_a_shorter_session_is_in_effect_at_once(group: GroupDialogue) -> None:
    """A silent member is given up when it has had its old interval, of which it knows, and the new session."""
    group.stable(a=[0, 1])
    group.alter_configs({SESSION: "1000", INTERVAL: "200"}).is_done()
    # A third of the old session is the longest interval that anybody was told.
    group.advance(ms=15_999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_a_member_that_comes_as_it_was_told_is_not_fenced_by_a_shorter_session(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.alter_configs({SESSION: "1000", INTERVAL: "200"}).is_done()
    group.advance(ms=5_000)
    group.heartbeat("a", epoch=1).replies(epoch=1, interval=200)
    group.advance(ms=999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_a_longer_session_is_in_effect_at_once(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.advance(ms=44_000)
    group.alter_configs({SESSION: "100000"}).is_done()
    group.advance(ms=99_999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_a_shorter_assignment_interval_is_in_effect_at_once(group: GroupDialogue) -> None:
    """KIP-1263: the interval holds a computation back; nobody waits for one that is no more."""
    group.alter_configs({ASSIGNMENT_INTERVAL: "10000"}).is_done()
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    group.advance(ms=100)
    group.heartbeat("b", epoch=0)
    group.advance(ms=1_000)
    assert group.group.target_epoch < group.group.epoch
    group.alter_configs({ASSIGNMENT_INTERVAL: "0"}).is_done()
    group.advance(ms=0)
    assert group.group.target_epoch == group.group.epoch


def test_sessions_are_those_of_the_group_after_a_restart(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.alter_configs({SESSION: "1000", INTERVAL: "200"}).is_done()
    group.restart()
    group.advance(ms=999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_groups_with_configs_are_listed(group: GroupDialogue) -> None:
    """KIP-1142."""
    for name in ("b", "a"):
        group.alter_configs({"group.assignor.imbalance": "1"}, group_id=name).is_done()
    answer = group.ask(asked.ListGroupConfigs(cause=group.cause(), request=group.request()))
    assert answer.body == asked.ListGroupConfigsReply(group_ids=("a", "b"))


def test_what_was_stored_under_other_bounds_is_made_to_fit() -> None:
    """A broker that is started with narrower bounds starts, and its groups follow them."""
    base = GroupSettings(
        group_consumer_min_session_timeout_ms=20_000,
        group_consumer_max_heartbeat_interval_ms=10_000,
        group_consumer_heartbeat_interval_ms=9_000,
    )
    configs = {SESSION: "1000", INTERVAL: "600000", "of.a.newer.version": "x", ASSIGNMENT_INTERVAL: "broken"}
    made = effective_settings(base, configs)
    assert made.group_consumer_session_timeout_ms == 20_000
    assert made.group_consumer_heartbeat_interval_ms == 10_000
    assert made.group_consumer_assignment_interval_ms == base.group_consumer_assignment_interval_ms
    shortest = effective_settings(GroupSettings(), {SESSION: "100"})
    assert shortest.group_consumer_heartbeat_interval_ms == 50


def test_every_config_shows_what_it_comes_to() -> None:
    shown = configs_in(GroupSettings(group_disconnect_grace_ms=7))
    assert shown.keys() == GROUP_CONFIGS.keys()
    assert (shown["group.disconnect.grace.ms"], shown["consumer.assignor.offload.enable"]) == ("7", "true")
