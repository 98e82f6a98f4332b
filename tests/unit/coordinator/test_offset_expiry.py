"""Which offsets are forgotten when: Kafka's rules for each kind of group, one by one."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands import JoinGroupReply, SyncGroupReply
from kohort.coordinator.offsets.delete import EXPIRED_AT_ONCE
from kohort.coordinator.records.types import ClassicGroupForgotten, ConsumerGroupForgotten, OffsetForgotten
from kohort.wire.embedded import encode_subscription
from support.dialogues.mixed_dialogue import MixedDialogue

RETENTION_MS = 10 * 60_000
#: Half of it.
HALF = RETENTION_MS // 2


@pytest.fixture
def group() -> MixedDialogue:
    """Offsets are kept for ten minutes; topics "t", "u" of two partitions."""
    return MixedDialogue(
        {"t": 2, "u": 2},
        offsets_retention_minutes=10,
        group_consumer_session_timeout_ms=100 * RETENTION_MS,
        group_consumer_max_session_timeout_ms=100 * RETENTION_MS,
        group_max_session_timeout_ms=100 * RETENTION_MS,
    )


def join_classic(group: MixedDialogue, *topics: str, protocol_type: str = "consumer", sync: bool = True) -> str:
    """A classic member "m" alone; its generation is 1."""
    answer = group.join(
        fresh="m",
        session_timeout_ms=50 * RETENTION_MS,
        rebalance_timeout_ms=50 * RETENTION_MS,
        protocol_type=protocol_type,
        protocols=[("range", encode_subscription(topics))],
    )
    assert answer.body_as(JoinGroupReply).generation_id == 1
    if sync:
        group.sync("m", 1, {"m": b""}).body_as(SyncGroupReply)
    return "m"


def leave_classic(group: MixedDialogue) -> None:
    group.leave_group("m")


def test_simple_group_is_kept_from_each_commit_on_and_goes_with_its_last_offset(group: MixedDialogue) -> None:
    group.commit({0: 1})
    group.advance(HALF)
    group.commit({1: 1})
    group.advance(HALF - 1)
    assert group.expire_offsets().expired == 0
    group.advance(1)
    assert group.expire_offsets().expired == 1
    assert group.committed() == {1: 1}
    group.advance(HALF)
    assert group.expire_offsets().expired == 1
    assert group.list_groups() == []
    group.restart()
    assert group.list_groups() == []


def test_empty_classic_group_is_kept_from_the_time_on_at_which_it_became_empty(group: MixedDialogue) -> None:
    join_classic(group, "t")
    group.commit({0: 1}, member_id="m", epoch=1)
    group.advance(RETENTION_MS)
    leave_classic(group)
    group.restart()
    group.advance(RETENTION_MS - 1)
    assert group.expire_offsets() == commands.ExpireOffsetsReply(unfinished=(), expired=0, removed=0)
    group.advance(1)
    group.new_records()

    assert group.expire_offsets() == commands.ExpireOffsetsReply(unfinished=(), expired=1, removed=1)

    tombstones = [OffsetForgotten(group_id="g", topic="t", partition=0), ClassicGroupForgotten(group_id="g")]
    assert group.new_records() == tombstones
    assert group.list_groups() == []


def test_what_an_administrator_commits_to_an_empty_group_is_kept_from_then_on(group: MixedDialogue) -> None:
    """Kafka counts from when the group became empty, and forgets a reset of offsets at its next look."""
    join_classic(group, "t")
    leave_classic(group)
    group.advance(RETENTION_MS)
    group.commit({0: 7})
    assert group.expire_offsets().expired == 0
    group.advance(RETENTION_MS)
    assert group.expire_offsets().expired == 1


def test_stable_classic_group_keeps_what_it_subscribes_to_for_ever(group: MixedDialogue) -> None:
    """KIP-496: topics that it has given up are forgotten by the time of the commit."""
    join_classic(group, "t")
    group.commit({0: 1, ("u", 0): 2}, member_id="m", epoch=1)
    group.advance(RETENTION_MS)

    assert group.expire_offsets() == commands.ExpireOffsetsReply(unfinished=(), expired=1, removed=0)
    assert group.committed() == {0: 1}


@pytest.mark.parametrize("how", ["rebalancing", "another type"])
def test_classic_group_whose_topics_are_not_known_keeps_everything(group: MixedDialogue, how: str) -> None:
    join_classic(
        group, "t", sync=how != "rebalancing", protocol_type="connect" if how == "another type" else "consumer"
    )
    group.commit({("u", 0): 2}, member_id="m", epoch=1)
    group.advance(3 * RETENTION_MS)
    assert group.expire_offsets().expired == 0


def test_subscription_that_nobody_can_read_may_be_to_any_topic(group: MixedDialogue) -> None:
    join_classic(group, "t")
    group.commit({("u", 0): 2}, member_id="m", epoch=1)
    member = group.shard.groups.classic["g"].members["m"]
    assert member.protocols[0][0] == "range"
    answer = group.join(
        "m",
        session_timeout_ms=50 * RETENTION_MS,
        rebalance_timeout_ms=50 * RETENTION_MS,
        protocols=[("range", b"\xff")],
    )
    assert answer.body_as(JoinGroupReply).generation_id == 2
    group.sync("m", 2)
    group.advance(2 * RETENTION_MS)
    assert group.expire_offsets().expired == 0


def test_new_protocol_keeps_what_it_subscribes_to_and_forgets_the_rest(group: MixedDialogue) -> None:
    group.stable(a=[0, 1])
    group.commit({0: 1, ("u", 0): 2}, member_id="a", epoch=1)
    group.advance(RETENTION_MS)
    assert group.expire_offsets().expired == 1
    assert group.committed() == {0: 1}

    group.leave("a")
    group.new_records()
    assert group.expire_offsets() == commands.ExpireOffsetsReply(unfinished=(), expired=1, removed=1)
    assert group.new_records()[-1] == ConsumerGroupForgotten(group_id="g")
    assert group.list_groups() == []
    group.restart()
    assert group.list_groups() == []


def test_empty_group_without_offsets_is_forgotten_at_once(group: MixedDialogue) -> None:
    join_classic(group, "t")
    leave_classic(group)
    assert group.expire_offsets() == commands.ExpireOffsetsReply(unfinished=(), expired=0, removed=1)
    assert group.list_groups() == []
    assert group.expire_offsets("g", "nobody's") == commands.ExpireOffsetsReply(unfinished=(), expired=0, removed=0)


def test_group_that_somebody_is_about_to_join_is_not_forgotten(group: MixedDialogue) -> None:
    group.join(fresh="m", requires_known_member_id=True)
    assert group.expire_offsets().removed == 0


def test_client_may_say_how_long_to_keep(group: MixedDialogue) -> None:
    """OffsetCommit 2 to 4; longer or shorter than the broker would."""
    group.commit({0: 1}, retention_ms=HALF)
    group.commit({1: 1}, retention_ms=3 * RETENTION_MS)
    group.restart()
    group.advance(HALF)
    assert group.expire_offsets().expired == 1
    group.advance(2 * RETENTION_MS)
    assert group.expire_offsets().expired == 0
    group.advance(HALF)
    assert group.expire_offsets().expired == 1


def test_retention_that_has_no_end_does_not_overflow(group: MixedDialogue) -> None:
    group.commit({0: 1}, retention_ms=2**63 - 1)
    group.restart()
    group.advance(1_000 * RETENTION_MS)
    assert group.expire_offsets().expired == 0


def test_one_decision_forgets_only_so_much(group: MixedDialogue) -> None:
    """The rest, and the group, go with the next ones."""
    group.set_topics({"t": EXPIRED_AT_ONCE + 10})
    group.commit(dict.fromkeys(range(EXPIRED_AT_ONCE + 10), 1))
    group.commit({0: 1}, group_id="h")
    group.advance(RETENTION_MS)

    first = group.expire_offsets("g", "h")
    assert first == commands.ExpireOffsetsReply(unfinished=("g", "h"), expired=EXPIRED_AT_ONCE, removed=0)
    second = group.expire_offsets(*first.unfinished)
    assert (second.unfinished, second.expired) == ((), 11)
    assert group.list_groups() == []
