"""Who asks while nothing can be written is heard: the deadline that it would have moved waits for it."""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.commands import ConsumerGroupHeartbeat
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import SPARED_MS, Shard
from kohort.ids import CauseId, RequestToken

JOIN = ConsumerGroupHeartbeat(
    cause=CauseId(1),
    request=RequestToken(1),
    group_id="g",
    client_id="c",
    client_host="h",
    member_id="a",
    member_epoch=0,
    rebalance_timeout_ms=1_000,
    subscribed_topic_names=("t",),
    topic_partitions={},
)


def member() -> tuple[Shard, int]:
    """A shard with a member, and when its session ends, ms."""
    shard = Shard(GroupSettings())
    shard.commit(shard.handle(JOIN, now_ms=0), now_ms=0)
    deadline_ms = shard.timers.deadline(shard.groups.consumer["g"].members["a"].session_key)
    assert deadline_ms is not None
    return shard, deadline_ms


def fenced_at(shard: Shard, now_ms: int) -> bool:
    decision = shard.expire(now_ms)
    while decision is not None:
        shard.commit(decision, now_ms=now_ms)
        decision = shard.expire(now_ms)
    return "a" not in shard.groups.consumer["g"].members


def test_member_whose_request_could_not_be_written_is_not_fenced_before_it_comes_again() -> None:
    shard, ends_ms = member()
    shard.spare(replace(JOIN, member_epoch=1), now_ms=ends_ms - 1)
    assert not fenced_at(shard, ends_ms + SPARED_MS - 2)
    assert fenced_at(shard, ends_ms + SPARED_MS - 1)


def test_silent_member_is_fenced_though_another_was_spared() -> None:
    shard, ends_ms = member()
    shard.spare(replace(JOIN, member_id="b"), now_ms=ends_ms - 1)
    assert fenced_at(shard, ends_ms)


def test_deadline_that_is_far_away_is_not_moved() -> None:
    shard, ends_ms = member()
    shard.spare(replace(JOIN, member_epoch=1), now_ms=0)
    assert fenced_at(shard, ends_ms)
