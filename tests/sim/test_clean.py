"""Worlds in which nothing goes wrong: members come, close, are rolled, topics grow: each record is processed once."""

from __future__ import annotations

import pytest

from kohort.simulation.scenario import Kind
from kohort.testing import GroupPlan, Scenario, World

KINDS: tuple[Kind, ...] = ("consumer", "eager", "cooperative", "rolling eager", "rolling cooperative")


@pytest.mark.parametrize("kind", KINDS)
def test_clean_hand_overs_lose_nothing_and_double_nothing(kind: Kind) -> None:
    """NothingIsSkipped and ProcessedOnce: who gives a partition up has committed it, and who gets it goes on there."""
    clean = Scenario(
        groups=(GroupPlan(group_id="blue", kind=kind, member_count=3),),
        topics={"t": 5, "u": 2},
        weights={"join": 3, "leave": 3, "roll": 3, "grow_topic": 1, "subscribe": 1},
        is_clean=True,
    )
    hand_overs = 0
    for seed in range(8):
        world = World(seed, scenario=clean)
        world.run()
        hand_overs += sum(process.given_up for process in world.members.values())
    assert hand_overs > 100
