"""The common case is cheap: a heartbeat that changes nothing does not look at the rest of its group.

Steps are counted, in a small group and in a large one; bench/ has the times.
"""

from __future__ import annotations

from functools import cache

import pytest

from kohort.coordinator import commands
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.ids import CauseId, RequestToken
from support.dialogues.coordinator_dialogue import topic_id_of
from support.work import steps_of, use_plain_kernels

FEW, MANY = 100, 1_000
SHARE = 10


def heartbeat(member_id: str, epoch: int, **fields: object) -> commands.ConsumerGroupHeartbeat:
    return commands.ConsumerGroupHeartbeat(
        cause=CauseId(1),
        request=RequestToken(1),
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        client_id="c",
        client_host="h",
        **fields,  # type: ignore[arg-type]
    )


def join(member_id: str) -> commands.ConsumerGroupHeartbeat:
    return heartbeat(member_id, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), topic_partitions={})


@cache
def shard_of(members: int) -> Shard:
    """A group at rest, with ten partitions for each member."""
    # The interval lets all joins share two computations, as a large group's would.
    shard = Shard(GroupSettings(group_consumer_assignment_interval_ms=1_000, group_consumer_assignment_window_ms=0))
    facts = TopicFacts(name="t", topic_id=topic_id_of("t"), partition_count=SHARE * members)
    shard.commit(
        shard.handle(commands.TopicsChanged(cause=CauseId(1), image=TopicImage.of([facts], version=1)), now_ms=1),
        now_ms=1,
    )
    for number in range(members):
        shard.commit(shard.handle(join(f"m{number:04}"), now_ms=1), now_ms=1)
    while (decision := shard.expire(2_000)) is not None:
        shard.commit(decision, now_ms=2_000)
    group = shard.groups.consumer["g"]
    for _ in range(3):
        for member in group.members.values():
            owned = {topic_id: tuple(grants) for topic_id, grants in member.assigned.items()}
            command = heartbeat(member.member_id, member.member_epoch, topic_partitions=owned)
            shard.commit(shard.handle(command, now_ms=2_000), now_ms=2_000)
    assert {len(member.assigned[topic_id_of("t")]) for member in group.members.values()} == {SHARE}
    return shard


@pytest.mark.large
def test_settled_heartbeat_takes_as_many_steps_in_a_large_group_as_in_a_small_one() -> None:
    """Deciding, arming the session anew, and asking for the next deadline."""
    assert steps_of_heartbeat(MANY) == steps_of_heartbeat(FEW)


def steps_of_heartbeat(members: int) -> int:
    shard = shard_of(members)
    command = heartbeat("m0050", shard.groups.consumer["g"].epoch)

    def beat() -> None:
        decision = shard.handle(command, now_ms=2_000)
        assert not decision.records
        shard.commit(decision, now_ms=2_000)
        shard.next_deadline()

    # The deadlines of the joins are sorted out by the first one.
    beat()
    return steps_of(beat)


@pytest.mark.large
def test_one_join_into_a_large_group_is_one_pass_over_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_kernels(monkeypatch)
    steps = {members: steps_of(lambda members=members: join_one_more(members)) for members in (FEW, MANY)}
    assert steps[MANY] < 1.2 * MANY / FEW * steps[FEW]


def join_one_more(members: int) -> None:
    decision = shard_of(members).handle(join("z"), now_ms=10_000)
    # One subscription, one epoch, one target of about ten donors and the joiner, one assignment.
    assert 10 < len(decision.records) < 20
