"""Planted bugs of static groups; see test_planted_bugs.py."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.consumer import heartbeat, leave
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.simulation.scenario import GroupPlan, Scenario, as_static
from support.scenarios.planted_bugs import always, forget_to_write, law_that_finds, without_timers

#: Named members that come and go, and others that come for the first time.
FIXED = as_static(
    Scenario(
        groups=(GroupPlan(group_id="blue", kind="consumer", member_count=3),),
        topics={"t": 5},
        weights={"bounce": 4, "join": 3, "kill": 2, "crash_broker": 1},
    )
)


def test_offline_member_that_goes_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def expired_early(clock: StaticClock, settings: GroupSettings, *, now_ms: int) -> list[str]:
        return sorted(each for each, since_ms in clock.offline.items() if since_ms + clock.lost_ms + 1_000 <= now_ms)

    monkeypatch.setattr(StaticClock, "expired", expired_early)

    assert law_that_finds(scenario=FIXED) == "RegistrationIsKept"


def test_silent_member_that_goes_as_in_a_dynamic_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(
        groups: GroupsState,
        group: ConsumerGroup,
        member: ConsumerMember,
        kind: str,
        settings: GroupSettings,
        *,
        now_ms: int,
    ) -> Decision:
        known = (groups, group, [member.member_id], settings)
        records, effects = leave._remove(*known, now_ms=now_ms, is_urgent=False)
        return Decision(tuple(records), tuple(effects))

    monkeypatch.setattr(leave, "_decide_offline", remove)

    assert law_that_finds(scenario=FIXED) == "RegistrationIsKept"


def test_new_member_that_gets_something_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "decide_waiting", always(None))

    assert law_that_finds(scenario=FIXED) == "OneRebalancePerWindow"


def test_window_that_ends_whenever_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_over(clock: StaticClock, *_: Any, **__: Any) -> bool:
        return clock.has_window

    monkeypatch.setattr(StaticClock, "is_window_over", is_over)

    assert law_that_finds(scenario=FIXED) == "OneRebalancePerWindow"


def test_clock_that_nobody_looks_at() -> None:
    """Who is offline stays for good, and who waits gets nothing."""
    assert law_that_finds(scenario=FIXED, build_shard=without_timers("clock")) == "EventuallyConverges"


def test_offline_member_that_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_to_write(monkeypatch, facts.OfflineMemberSet)

    assert law_that_finds(scenario=FIXED) == "FoldIsLivingState"
