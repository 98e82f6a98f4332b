"""Worlds whose groups have an assignor of the user's own, slow and unreliable, and limits to moves: every law holds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kohort.simulation.scenario import GroupPlan, Scenario, draw_scenario
from kohort.testing import World

SEEDS = 16
SEEDS_PER_TEST = 16


def scenario_of(seed: int, *, is_own: bool) -> Scenario:
    """A drawn world with groups of the consumer protocol whose moves are limited."""
    random = Random(seed)
    drawn = draw_scenario(random)
    settings = replace(
        drawn.settings,
        own_assignors=("mine",),
        group_consumer_assignors=("mine", "uniform") if is_own else ("uniform", "range"),
        group_assignor_max_moves=random.choice((-1, 1, 2)),
        group_assignor_imbalance=random.choice((0, 0, 1)),
    )
    groups = tuple(
        GroupPlan(group_id=plan.group_id, kind="consumer", member_count=plan.member_count) for plan in drawn.groups
    )
    return replace(drawn, groups=groups, settings=settings)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_law_holds_beside_an_assignor_of_the_users_own(first: int) -> None:
    heard: set[str] = set()
    for seed in range(first, first + SEEDS_PER_TEST):
        world = World(seed, scenario=scenario_of(seed, is_own=True))
        world.run()
        rows = world.story.of(last=len(world.story))
        heard.update(word for row in rows if "assignor" in row for word in row.split())
    assert {"asks", "cope", "longer"} <= heard, "no assignor was asked, or none failed"


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_law_holds_where_moves_are_limited(first: int) -> None:
    """Steps come and end; a group that is at rest stays so."""
    for seed in range(first, first + SEEDS_PER_TEST):
        World(seed, scenario=scenario_of(seed, is_own=False)).run()
