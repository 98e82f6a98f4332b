"""How often members are told to heartbeat: as the group says, as they propose, soon while something is going on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator.commands import ConsumerGroupHeartbeatReply
from kohort.coordinator.liveness import MOVING_PARTS, longest_interval_ms, pending_interval_ms, settled_interval_ms
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.settings import GroupSettings
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.hold_dialogue import HoldDialogue

INT32_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("proposed", "told"),
    [
        (-(2**31), 5_000),
        (-1, 5_000),
        (0, 5_000),
        (1, 50),
        (49, 50),
        (250, 250),
        (5_000, 5_000),
        (8_000, 8_000),
        # A third of the session of 45 s.
        (15_001, 15_000),
        (INT32_MAX, 15_000),
    ],
)
def test_what_a_member_proposes_is_answered_within_limits(proposed: int, told: int) -> None:
    """G3: a member may propose its heartbeat interval; the coordinator answers within its limits."""
    group = GroupDialogue({"t": 2}, group_consumer_rebalance_heartbeat_interval_ms=0)
    group.heartbeat("a", epoch=0, proposed_heartbeat_interval_ms=proposed).replies(
        epoch=1, assigned=[0, 1], interval=told
    )
    group.heartbeat("a", epoch=1, proposed_heartbeat_interval_ms=proposed).replies(epoch=1, interval=told)
    group.restart()
    group.heartbeat("a", epoch=1, proposed_heartbeat_interval_ms=proposed).replies(epoch=1, interval=told)
    # It proposes with every heartbeat, or not at all.
    group.heartbeat("a", epoch=1).replies(epoch=1, interval=5_000)


def test_the_brokers_limits_hold_for_proposals() -> None:
    group = GroupDialogue(
        {"t": 2}, group_consumer_min_heartbeat_interval_ms=1_000, group_consumer_max_heartbeat_interval_ms=10_000
    )
    group.heartbeat("a", epoch=0, proposed_heartbeat_interval_ms=1).replies(epoch=1, assigned=[0, 1], interval=1_000)
    group.heartbeat("a", epoch=1, proposed_heartbeat_interval_ms=12_000).replies(epoch=1, interval=10_000)


def test_members_on_their_way_are_told_to_come_soon() -> None:
    """G3: the interval is short while something happens; Apache Kafka's hand-overs wait for ordinary heartbeats."""
    group = GroupDialogue({"t": 2})
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[], interval=100)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0], interval=100)
    group.heartbeat("b", epoch=2).replies(epoch=2, interval=100)
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2, interval=1_000)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1], interval=1_000)
    group.advance(ms=MOVING_PARTS * 5_000)
    group.heartbeat("b", epoch=2).replies(epoch=2, interval=5_000)


def test_settled_members_that_are_not_held_come_soon_while_their_group_moves() -> None:
    """H1: the next move is likely then, and such a member hears of it by its next heartbeat alone."""
    group = HoldDialogue({"t": 4})
    group.at_rest(a=[0, 1], b=[2, 3])
    group.advance(ms=MOVING_PARTS * 5_000)
    assert told(group, hold_ms=-1) == told(group, hold_ms=0) == 5_000

    group.heartbeat("c", epoch=0)
    group.beat("b", hold_ms=-1)
    assert told(group, hold_ms=-1) == 1_000
    assert told(group, hold_ms=0) == 5_000, "its next heartbeat may be held"
    assert told(group, hold_ms=-1, proposed_heartbeat_interval_ms=8_000) == 8_000
    group.advance(ms=MOVING_PARTS * 5_000)
    assert told(group, hold_ms=-1) == 1_000, "another one has to give a partition up"

    group.beat("b", owned=[2], hold_ms=-1)
    group.beat("c", owned=[], hold_ms=-1)
    group.beat("c", owned=[3], hold_ms=-1)
    assert told(group, hold_ms=-1) == 5_000


def told(group: HoldDialogue, **fields: Any) -> int:
    """The interval that the settled member is told."""
    return group.beat("a", **fields).body_as(ConsumerGroupHeartbeatReply).heartbeat_interval_ms


def test_members_of_a_group_whose_target_is_not_computed_are_told_to_come_soon() -> None:
    """The window of changes, and the assignment interval of KIP-1263."""
    group = GroupDialogue({"t": 2}, group_consumer_assignment_interval_ms=1_000)
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0).replies(epoch=1, assigned=[], interval=100)
    group.heartbeat("a", epoch=1).replies(epoch=1, interval=100)


def test_short_intervals_can_be_switched_off() -> None:
    """Then it is Apache Kafka's behaviour."""
    group = GroupDialogue({"t": 2}, group_consumer_rebalance_heartbeat_interval_ms=0)
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[], interval=5_000)
    group.heartbeat("b", epoch=2, proposed_heartbeat_interval_ms=300).replies(epoch=2, interval=300)


def test_a_member_that_wants_to_come_more_often_than_that_may() -> None:
    group = GroupDialogue({"t": 2})
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0, proposed_heartbeat_interval_ms=60).replies(epoch=2, assigned=[], interval=60)


def test_intervals_grow_with_the_group() -> None:
    """users@kafka 2014: heartbeats are not to flood the servers."""
    settings = GroupSettings(group_heartbeat_rate_max=100)
    assert [settled_interval_ms(settings, members, -1) for members in (1, 500, 501, 1_000)] == [
        5_000,
        5_000,
        5_010,
        10_000,
    ]
    # One who proposes may not take the rate of the others.
    assert settled_interval_ms(settings, 1_000, 50) == 10_000
    # Nobody is to be fenced for it.
    assert settled_interval_ms(settings, 10_000, -1) == 15_000


def test_those_on_their_way_share_what_the_settled_ones_leave() -> None:
    settings = GroupSettings(group_heartbeat_rate_max=300)

    def told(members: int, settled: int) -> int:
        group = ConsumerGroup("g")
        group.epoch = group.target_epoch = 7
        group.members = dict.fromkeys(map(str, range(members)))  # type: ignore[arg-type]
        group.behind = set(map(str, range(settled, members)))
        return pending_interval_ms(settings, group, -1)

    # 990 settled ones take 198 of 300 a second.
    assert told(1_000, 990) == 100
    assert told(1_090, 990) == 981
    assert told(1_000, 0) == 3_334
    assert told(100_000, 0) == 15_000


@given(
    interval=st.integers(50, 20_000),
    session=st.integers(101, 60_000),
    members=st.integers(0, 1_000_000),
    rate=st.integers(1, 10_000),
    proposed=st.integers(-(2**31), INT32_MAX),
    short=st.integers(0, 5_000),
    settled=st.integers(0, 1_000_000),
)
def test_no_interval_is_dangerous(  # noqa: PLR0917
    interval: int, session: int, members: int, rate: int, proposed: int, short: int, settled: int
) -> None:
    """Below the session always; within the broker's limits, or the group's own; a third of the session if longer."""
    settings = GroupSettings(
        group_consumer_heartbeat_interval_ms=min(interval, session - 1),
        group_consumer_session_timeout_ms=session,
        group_heartbeat_rate_max=rate,
        group_consumer_rebalance_heartbeat_interval_ms=short,
    )
    group = ConsumerGroup("g")
    group.epoch = group.target_epoch = 1
    group.members = dict.fromkeys(map(str, range(min(members, 100))))  # type: ignore[arg-type]
    group.behind = set(map(str, range(settled, len(group.members))))
    longest = longest_interval_ms(settings)
    assert longest <= max(settings.group_consumer_heartbeat_interval_ms, session // 3) < session
    told = settled_interval_ms(settings, members, proposed)
    assert 50 <= told <= longest
    assert 1 <= pending_interval_ms(settings, group, proposed) <= longest
    assert pending_interval_ms(settings, group, proposed) <= settled_interval_ms(settings, len(group.members), proposed)
