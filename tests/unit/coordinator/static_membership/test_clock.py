"""The clock of a static group: KIP-345's draft, by its own examples."""

from __future__ import annotations

from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import StaticClock

MINUTE = 60_000
SETTINGS = GroupSettings(group_registration_timeout_ms=15 * MINUTE, group_expansion_timeout_ms=5 * MINUTE)


def test_the_earliest_offline_member_counts() -> None:
    """A off 00:00, B off 00:10, A back 00:14: B's 00:10 counts. C off 00:18: at 00:25 B goes, C's runs to 00:33."""
    clock = StaticClock(14 * MINUTE)
    clock.offline = {"b": 10 * MINUTE, "c": 18 * MINUTE}
    clock.noted_ms = 25 * MINUTE - 1
    assert clock.due_ms(SETTINGS) == 25 * MINUTE
    assert clock.expired(SETTINGS, now_ms=25 * MINUTE - 1) == []
    assert clock.expired(SETTINGS, now_ms=25 * MINUTE) == ["b"]
    del clock.offline["b"]
    clock.noted_ms = 33 * MINUTE - 1
    assert clock.due_ms(SETTINGS) == 33 * MINUTE
    assert clock.expired(SETTINGS, now_ms=33 * MINUTE) == ["c"]


def test_all_that_are_offline_as_long_go_together() -> None:
    clock = StaticClock()
    clock.offline = {"b": 0, "a": 0, "c": 1}
    assert clock.expired(SETTINGS, now_ms=15 * MINUTE) == ["a", "b"]
    # A look that comes late takes who is due by then.
    assert clock.expired(SETTINGS, now_ms=15 * MINUTE + 1) == ["a", "b", "c"]


def test_time_that_was_lost_does_not_count() -> None:
    clock = StaticClock()
    clock.offline = {"a": 0}
    clock.window_opened_ms = 0
    clock.lost_ms = clock.noted_ms = 60 * MINUTE
    assert clock.expired(SETTINGS, now_ms=74 * MINUTE) == []
    assert clock.expired(SETTINGS, now_ms=75 * MINUTE) == ["a"]
    assert not clock.is_window_over(SETTINGS, now_ms=65 * MINUTE - 1)
    assert clock.is_window_over(SETTINGS, now_ms=65 * MINUTE)
    assert clock.offline_since("a") == 60 * MINUTE


def test_the_first_new_member_opens_the_window() -> None:
    """D 00:00, E 00:02, F 00:04:59: one rebalance at 00:05."""
    clock = StaticClock()
    assert clock.is_idle and not clock.has_window
    clock.window_opened_ms = 0
    assert not clock.is_idle and clock.has_window
    clock.noted_ms = 5 * MINUTE - 1
    assert clock.due_ms(SETTINGS) == 5 * MINUTE


def test_it_is_noted_now_and_then_how_far_it_has_run() -> None:
    clock = StaticClock(100)
    clock.offline = {"a": 100}
    assert clock.due_ms(SETTINGS) == 100 + 15 * MINUTE // 20
    long = GroupSettings(group_registration_timeout_ms=24 * 60 * MINUTE)
    assert clock.due_ms(long) == 100 + MINUTE
    short = GroupSettings(group_registration_timeout_ms=1_500)
    assert clock.due_ms(short) == 1_100
