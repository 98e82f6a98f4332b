"""What the simulation found: each failing seed becomes a test with a name."""

from __future__ import annotations

from kohort.coordinator.commands import JoinGroup, JoinGroupReply, SyncGroup
from kohort.wire.embedded import encode_assignment, encode_subscription
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
