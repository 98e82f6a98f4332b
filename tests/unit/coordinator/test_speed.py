"""The common case is cheap: a heartbeat that changes nothing does not look at the rest of its group.

The limits are several times what the code needs, so that only a change of its order fails.
"""

from __future__ import annotations

import time

import pytest

from kohort.coordinator import commands as asked
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.ids import CauseId, RequestToken
from support.coordinator_dialogue import topic_id_of

MEMBERS, PARTITIONS = 1_000, 10_000


def heartbeat(member_id: str, epoch: int, **fields: object) -> asked.ConsumerGroupHeartbeat:
    return asked.ConsumerGroupHeartbeat(
        cause=CauseId(1),
        request=RequestToken(1),
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        client_id="c",
        client_host="h",
        **fields,  # type: ignore[arg-type]
    )


def join(member_id: str) -> asked.ConsumerGroupHeartbeat:
    return heartbeat(member_id, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), topic_partitions={})


@pytest.fixture(scope="module")
def shard() -> Shard:
    """A group of 1,000 members and 10,000 partitions at rest."""
    # The interval lets all joins share two computations, as a large group's would.
    shard = Shard(GroupSettings(group_consumer_assignment_interval_ms=1_000, group_consumer_assignment_window_ms=0))
    facts = TopicFacts(name="t", topic_id=topic_id_of("t"), partition_count=PARTITIONS)
    shard.commit(
        shard.handle(asked.TopicsChanged(cause=CauseId(1), image=TopicImage.of([facts], version=1)), now_ms=1), now_ms=1
    )
    for number in range(MEMBERS):
        shard.commit(shard.handle(join(f"m{number:04}"), now_ms=1), now_ms=1)
    while (decision := shard.expire(2_000)) is not None:
        shard.commit(decision, now_ms=2_000)
    group = shard.groups.consumer["g"]
    for _ in range(3):
        for member in group.members.values():
            owned = {topic_id: tuple(grants) for topic_id, grants in member.assigned.items()}
            command = heartbeat(member.member_id, member.member_epoch, topic_partitions=owned)
            shard.commit(shard.handle(command, now_ms=2_000), now_ms=2_000)
    assert {len(member.assigned[topic_id_of("t")]) for member in group.members.values()} == {10}
    return shard


def test_settled_heartbeat_takes_microseconds_in_a_large_group(shard: Shard) -> None:
    """Deciding, arming the session anew, and asking for the next deadline."""
    command = heartbeat("m0500", shard.groups.consumer["g"].epoch)
    best = min(_time_heartbeats(shard, command) for _ in range(5))
    assert best < 30e-6


def _time_heartbeats(shard: Shard, command: asked.ConsumerGroupHeartbeat) -> float:
    count = 500
    started = time.perf_counter()
    for step in range(count):
        decision = shard.handle(command, now_ms=2_000 + step)
        assert not decision.records
        shard.commit(decision, now_ms=2_000 + step)
        shard.next_deadline()
    return (time.perf_counter() - started) / count


def test_one_join_into_a_large_group_is_one_pass_over_its_partitions(shard: Shard) -> None:
    started = time.perf_counter()
    decision = shard.handle(join("z"), now_ms=10_000)
    elapsed_s = time.perf_counter() - started
    # One subscription, one epoch, one target of about ten donors and the joiner, one assignment.
    assert 10 < len(decision.records) < 20
    assert elapsed_s < 0.1
