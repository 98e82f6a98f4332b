"""Worlds whose members run assignors themselves, slow and unreliable ones: every law holds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kohort.simulation.scenario import GroupPlan, Scenario, draw_scenario
from kohort.testing import World

SEEDS = 16
SEEDS_PER_TEST = 8


def scenario_of(seed: int) -> Scenario:
    """A drawn world in which most members run assignors, beside some that do not and some of the classic protocol."""
    random = Random(seed)
    drawn = draw_scenario(random)
    groups = tuple(
        GroupPlan(
            group_id=plan.group_id,
            kind=random.choice(("consumer", "consumer", "rolling eager")),
            member_count=plan.member_count,
        )
        for plan in drawn.groups
    )
    settings = replace(drawn.settings, group_assignor_max_moves=random.choice((-1, -1, 1)))
    weights = {**drawn.weights, "ask_anew": 4, "crash_broker": 3}
    share = random.choice((1.0, 1.0, 0.8))
    return replace(drawn, groups=groups, settings=settings, weights=weights, assignor_share=share)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_law_holds_whatever_members_compute(first: int) -> None:
    heard = set()
    for seed in range(first, first + SEEDS_PER_TEST):
        world = World(seed, scenario=scenario_of(seed))
        world.run()
        rows = world.story.of(last=len(world.story))
        heard.update(row.rpartition(", ")[2].split()[0] for row in rows if "computes the assignment" in row)
    assert {"right", "hanging", "failing", "foreign", "twice", "dying"} <= heard
