"""Classic groups in static mode: worlds in which every law holds, and planted bugs that each law of theirs finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.coordinator.classic import rebalance, sessions, static
from kohort.coordinator.classic.pending_decision import PendingDecision
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.errors import ErrorCode
from kohort.simulation.scenario import GroupPlan, Scenario
from kohort.testing import World
from support.scenarios.planted_bugs import NAMED, always, law_that_finds

SEEDS = 20
#: Groups that move between the protocols while they are static.
ROLLING = replace(
    NAMED,
    groups=(
        GroupPlan(group_id="blue", kind="rolling eager", member_count=3),
        GroupPlan(group_id="red", kind="rolling cooperative", member_count=3),
    ),
)


@pytest.mark.parametrize(
    ("scenario", "reasons"),
    [
        (NAMED, ["the registration of", "the expansion timeout ended", "an administrator has asked for it"]),
        (ROLLING, []),
    ],
    ids=["classic", "rolling"],
)
def test_every_law_holds(scenario: Scenario, reasons: list[str]) -> None:
    """Modes are switched, fleets restarted and doubled, the broker is killed in the midst of windows and rebalances."""
    told: list[str] = []
    for seed in range(SEEDS):
        world = World(seed, scenario=scenario)
        world.run()
        told += [line for line in world.story.of(last=len(world.story)) if "RebalanceBegun" in line]
    whole = "\n".join(told)
    assert [reason for reason in reasons if reason not in whole] == []


def test_member_that_goes_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(pending: PendingDecision, settings: GroupSettings, heard_ms: dict[str, int]) -> None:
        for member_id in heard_ms:
            rebalance.remove_member(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        rebalance.go_on_without(pending, settings, reason="planted")

    monkeypatch.setattr(sessions, "go_offline", give_up)

    assert law_that_finds(scenario=NAMED) == "RegistrationIsKept"


def test_registration_that_ends_with_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody who is away goes when the first one does."""
    monkeypatch.setattr(
        StaticClock,
        "expired",
        lambda clock, settings, *, now_ms: (
            sorted(clock.offline)
            if any(
                since_ms + clock.lost_ms + settings.group_registration_timeout_ms <= now_ms
                for since_ms in clock.offline.values()
            )
            else []
        ),
    )

    assert law_that_finds(scenario=NAMED) == "RegistrationIsKept"


def test_new_member_for_which_the_others_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "is_window_for", always(False))

    assert law_that_finds(scenario=NAMED) == "OneRebalancePerWindow"


def test_window_that_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_over(clock: StaticClock, settings: GroupSettings, *, now_ms: int) -> bool:
        return clock.has_window

    monkeypatch.setattr(StaticClock, "is_window_over", is_over)

    assert law_that_finds(scenario=NAMED) == "OneRebalancePerWindow"


def test_return_that_makes_the_others_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "_wants_the_same", always(False))

    assert law_that_finds(scenario=NAMED) == "ReturnsMoveNothing"


def test_rebalance_that_waits_for_who_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingDecision, "offline", property(always([])))

    assert law_that_finds(scenario=NAMED) == "NobodyWaitsForTheOffline"
