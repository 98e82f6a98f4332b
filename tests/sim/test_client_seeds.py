"""150 worlds of real consumers, producers and brokers, and every law holds.

One again: make seed WORLD=clients SEED=n.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.simulation.clients.client_world import ClientWorld
from kohort.simulation.clients.seed import main, run_seeds
from support.seed_pool import Outcomes, played

#: `make soak` plays 1,000.
SEEDS = 50
SEEDS_PER_TEST = 25


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    """First seed of each test -> what comes of its seeds, which every core of the machine works at."""
    with played(run_seeds, SEEDS, SEEDS_PER_TEST) as found:
        yield found


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_law_holds(first: int, outcomes: Outcomes) -> None:
    """A failure says which seed it was and tells the story."""
    told = outcomes[first].result()
    assert [seed for seed, _ in told] == list(range(first, first + SEEDS_PER_TEST))
    for seed, broken in told:
        assert broken is None, f"make seed WORLD=clients SEED={seed}: {broken}"


def test_a_partition_that_a_group_gives_before_a_broker_knows_it() -> None:
    """The topic has grown while the member had only old answers: it was never read."""
    assert ClientWorld(926).run().handed_out > 0


@pytest.mark.logs_bugs
def test_worlds_are_worth_their_time() -> None:
    """The seeds see everything go wrong that can, in both protocols, and much is read all the same."""
    told: list[str] = []
    protocols: set[str] = set()
    handed_out = 0
    for seed in range(20):
        world = ClientWorld(seed)
        handed_out += world.run().handed_out
        protocols |= {party.protocol for party in world.plan.parties}
        told += world.story.of(last=len(world.story))
    assert protocols == {"consumer", "classic"}
    assert handed_out > 20 * 200
    words = ("assigned", "revoked", "lost", "closes", "crashes", "stops polling", "raised", "leads", "coordinates")
    for word in (
        *words,
        "stops, and",
        "dies",
        "is back",
        "stands still",
        "breaks",
        "reaches nobody",
        "grows",
        "deleted",
    ):
        assert any(word in row for row in told), f"no story has {word!r}"


def test_command_line_runs_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5", "--count", "2"]) == 0
    assert capsys.readouterr().out.count("every law held") == 2
