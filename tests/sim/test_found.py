"""What the simulation found: each failing seed becomes a test with a name."""

from __future__ import annotations

import pytest

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.commands import JoinGroup, JoinGroupReply, SyncGroup, SyncGroupReply
from kohort.coordinator.decision import TimerKey
from kohort.errors import ErrorCode
from kohort.wire.embedded import encode_assignment, encode_subscription
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.mixed_dialogue import MixedDialogue, assignment, subscription


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


def join(group: GroupDialogue, *, fresh: str, owned: list[int]) -> JoinGroupReply | None:
    """A cooperative member called "i" of topic t joins without a member id; `None` while it is parked."""
    generation = 1 if owned else -1
    blob = encode_subscription(["t"], owned_partitions={"t": owned}, generation_id=generation)
    answer = group.ask(
        JoinGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            member_id="",
            fresh_member_id=fresh,
            client_id="c",
            client_host="h",
            instance_id="i",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("cooperative-sticky", blob),),
        )
    )
    assert answer.body is None or isinstance(answer.body, JoinGroupReply)
    return answer.body


def test_static_member_that_is_replaced_before_it_rejoined_leaves_no_partition_without_an_owner() -> None:
    """Seed 1161: a cooperative leader takes a partition from a static member, whose process ends before it rejoins.

    Only that rejoin would let the leader give the partition to somebody, so the successor's arrival has to be one.
    """
    group = GroupDialogue({"t": 2})
    join(group, fresh="a", owned=[0, 1])
    group.ask(
        SyncGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            generation_id=1,
            member_id="a",
            assignments={"a": encode_assignment({"t": [0]})},
        )
    )

    again = join(group, fresh="b", owned=[])

    assert again is not None
    assert again.generation_id == 2
    assert again.leader == "b"


@pytest.mark.parametrize("understands", [True, False])
def test_static_leader_that_was_away_while_a_topic_grew_has_it_shared_out(understands: bool) -> None:
    """Seed 614: who leads looks whether topics change, and takes what it sees first for what always was."""
    group = MixedDialogue({"t": 1})
    group.rebalance(group.client("x", instance_id="i"), group.client("y"), shares={"x": [0], "y": []})

    group.set_topics({"t": 2})
    back = group.join(fresh="x-2", instance_id="i", supports_skip_assignment=understands)

    assert back.is_parked, "everybody rejoins, so that the leader shares out what there is now"


@pytest.mark.parametrize("understands", [True, False])
def test_static_leader_that_missed_nothing_comes_back_without_a_rebalance(understands: bool) -> None:
    """The counterpart: it goes on leading, also by an older JoinGroup, or nobody would see the next change."""
    group = MixedDialogue({"t": 2})
    group.rebalance(group.client("x", instance_id="i"), group.client("y"), shares={"x": [0], "y": [1]})

    reply = group.join(fresh="x-2", instance_id="i", supports_skip_assignment=understands).body_as(JoinGroupReply)

    assert (reply.generation_id, reply.leader, len(reply.members)) == (2, "x-2", 2)
    assert reply.skip_assignment == understands


@pytest.mark.parametrize("topics", [{"t": 1}, {"t": 1, "u": 2}, {"t": 1, "u": 1, "v": 1}])
def test_static_leader_that_missed_a_change_between_its_join_and_its_sync_leads_a_rebalance(
    topics: dict[str, int],
) -> None:
    """Seed 9742: the topic was deleted before the answer to the join had left; the leader has never seen it.

    What it sees first it takes for what always was, and of a Stable group's leader nobody takes a plan.
    """
    group = MixedDialogue({"t": 1, "u": 1})
    everything = ["t", "u", "v"]
    x, y = group.client("x", topics=everything, instance_id="i"), group.client("y", topics=everything)
    group.rebalance(x, y, shares={"x": {"t": [0]}, "y": {"u": [0]}})
    protocols = (("range", subscription(everything)),)
    reply = group.join(fresh="x-2", instance_id="i", protocols=protocols).body_as(JoinGroupReply)
    assert (reply.error, reply.leader) == (ErrorCode.NONE, "x-2"), "nobody notices that it was restarted"

    group.advance(ms=9_000)
    group.beat("y", y.generation)
    group.set_topics(topics)
    refusal = group.sync("x-2", reply.generation_id, {"x-2": {"t": [0]}}).body_as(SyncGroupReply)

    assert refusal.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.beat("y", y.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    session = group.shard.timers.deadline(TimerKey("session", "g", "x-2"))
    assert session == group.now_ms + 10_000, "it has just been heard of"


def test_static_leader_syncs_by_what_its_group_works_by_and_nobody_rebalances() -> None:
    """The counterpart, also where one of the topics is not there yet."""
    group = MixedDialogue({"t": 1})
    everything = ["t", "u"]
    x = group.client("x", topics=everything, instance_id="i")
    group.rebalance(x, shares={"x": {"t": [0]}})
    reply = group.join(fresh="x-2", instance_id="i", protocols=(("range", subscription(everything)),)).body_as(
        JoinGroupReply
    )

    answer = group.sync("x-2", reply.generation_id).body_as(SyncGroupReply)

    assert (answer.error, answer.assignment) == (ErrorCode.NONE, assignment({"t": [0]}))


def test_classic_member_learns_that_its_topic_was_gone_when_the_group_was_moved_up() -> None:
    """Seed 1121: it would take a topic that is made again under the same name for the one that it owns."""
    group = MixedDialogue({"t": 2, "u": 1})
    x = group.client("x", topics=["t", "u"])
    group.rebalance(x, shares={"x": {"t": [0, 1], "u": [0]}})

    group.set_topics({"u": 1})
    group.heartbeat("a", epoch=0)

    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    x.rejoin()
    group.settle_all(x)
    assert group.group.members["x"].pending_revocation == {}


def test_classic_member_of_a_group_that_went_down_and_up_again_gives_up_what_was_deleted_meanwhile() -> None:
    """Seed 5160: the assignment that it takes along names topics, and of one that is gone only the id was known."""
    group = MixedDialogue({"t": 1, "u": 1, "w": 1})
    x = group.client("x", topics=["t", "u"])
    group.rebalance(x, shares={"x": {"t": [0], "u": [0]}})
    group.heartbeat("a", epoch=0, topics=["w"])
    group.settle_all(x)
    assert x.owned == {"t": (0,), "u": (0,)}

    group.set_topics({"t": 1, "w": 1})
    group.leave("a")
    group.heartbeat("b", epoch=0, topics=["w"])
    group.fire_due()

    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    group.settle_all(x)
    assert x.owned == {"t": (0,)}
    assert group.member("x").pending_revocation == {}


def test_successor_of_a_static_classic_member_is_rid_of_its_deadlines() -> None:
    """Seed 10958: one that was left ended the first rebalance of the group, once it was classic, with nobody there."""
    group = MixedDialogue({"t": 2})
    x = group.client("x", instance_id="i")
    group.rebalance(x, shares={"x": [0, 1]})
    group.heartbeat("a", epoch=0)
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    key = TimerKey("join", "g", "x")
    deadline_ms = group.shard.timers.deadline(key)
    assert deadline_ms is not None

    group.join(fresh="y", instance_id="i")
    assert group.shard.timers.deadline(key) is None
    group.leave("a")
    group.shard.timers.arm(key, group.now_ms)
    group.fire_due()

    assert group.shard.groups.classic["g"].members.keys() == {"y"}
    assert group.shard.groups.classic["g"].state is ClassicGroupState.PREPARING_REBALANCE


def test_own_assignor_that_knew_the_predecessor_of_a_static_member_is_asked_again() -> None:
    """Found beside test_planted_bugs: who had no target leaves none behind that would show it, and no new epoch.

    What the assignor gave to the id that is gone was nobody's, until something else happened.
    """
    group = GroupDialogue({"t": 2}, group_consumer_assignors=("own",), own_assignors=("own",))
    group.heartbeat("a", epoch=0)
    group.computed([0, 0])
    group.heartbeat("b", epoch=0, instance_id="i")

    group.heartbeat("b", epoch=-2, instance_id="i")
    group.heartbeat("c", epoch=0, instance_id="i")
    group.computed([0, 1])
    group.fire_due()

    assert [member.member_id for member in group.computations[0].assignable.members] == ["a", "c"]
    group.computed([0, 1])
    assert group.group.targets.keys() == {"a", "c"}


def test_process_that_takes_a_static_name_has_no_wishes_but_its_own() -> None:
    """Seed 490: a client that has no pattern says nothing of patterns, and nobody would take the old one back."""
    group = GroupDialogue({"t": 1, "u": 1})
    group.heartbeat("a", epoch=0, instance_id="i", topics=[], subscribed_topic_regex="[tu]", rack_id="r")
    group.heartbeat("a", epoch=-2, instance_id="i")

    group.heartbeat("b", epoch=0, instance_id="i", topics=["u"], server_assignor="range")

    member = group.member("b")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("u",), None)
    assert (member.rack_id, member.server_assignor) == (None, "range")
    assert group.holders() == {"b": {("u", 0)}}


def test_static_member_that_is_away_has_the_longer_session_too() -> None:
    """Seed 89: that its connection was closed leaves a static member its session, whatever that is now."""
    group = GroupDialogue({"t": 1}, group_consumer_session_timeout_ms=5_000, group_consumer_heartbeat_interval_ms=1_000)
    group.heartbeat("a", epoch=0, instance_id="i")
    group.disconnect("a")

    group.alter_configs({"consumer.session.timeout.ms": "9000"}).is_done()
    group.advance(ms=8_900)
    assert "a" in group.group.members
    group.advance(ms=200)
    assert "a" not in group.shard.groups.consumer["g"].members
