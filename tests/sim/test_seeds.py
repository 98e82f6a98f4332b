"""Seeds of each world in which everything goes wrong, and every law holds.

One of them again: make seed SEED=n, with WORLD=clients or WORLD=queries one of the other worlds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kohort.simulation.seed import Outcome, main, run_seeds
from kohort.testing import World

#: World -> seeds that are played; `make soak` plays 10,000, 1,000 and 5,000.
SEEDS = {"brokers": 250, "clients": 150, "queries": 200}
SEEDS_PER_TEST = 50
TESTS = [(world, first) for world, count in SEEDS.items() for first in range(0, count, SEEDS_PER_TEST)]

Outcomes = dict[tuple[str, int], Future[list[Outcome]]]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    """World and first seed of each test -> what comes of its seeds, which every core of the machine works at."""
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    try:
        yield {
            (world, first): pool.submit(run_seeds, world, range(first, first + SEEDS_PER_TEST))
            for world, first in TESTS
        }
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("world", "first"), TESTS)
def test_every_law_holds(world: str, first: int, outcomes: Outcomes) -> None:
    """A failure says which seed it was and tells the story."""
    told = outcomes[world, first].result()
    assert [each.seed for each in told] == list(range(first, first + SEEDS_PER_TEST))
    for each in told:
        assert each.broken is None, each.text


def test_worlds_are_worth_their_time() -> None:
    """The seeds see members come and go, rebalances of each protocol, crashes and lost messages."""
    kinds: set[str] = set()
    told: set[str] = set()
    steps = 0
    for seed in range(15):
        world = World(seed)
        steps += world.run().steps
        kinds.update(plan.kind for plan in world.scenario.groups)
        told.update(" ".join(world.story.of(last=len(world.story))).split())
    assert steps > 15 * 200
    assert kinds == {"consumer", "eager", "cooperative", "rolling eager", "rolling cooperative"}
    for word in ("dies;", "closes", "killed", "stands", "cuts", "breaks", "deleted", "grows", "revokes", "longer"):
        assert word in told, f"no story has the word {word!r}"
    codes = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED")
    for code in codes:
        assert any(code in word for word in told), f"nobody was ever answered {code}"


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_tells_the_same_story_in_every_process(seed: int) -> None:
    """Nothing depends on addresses or on the order of sets of strings."""
    stories = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "kohort.simulation.seed", str(seed), "--verbose"]
        finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        stories.append(finished.stdout)
    assert stories[0] == stories[1]
    assert "every law held" in stories[0]


@pytest.mark.parametrize("world", SEEDS)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_command_line_runs_many(world: str, jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5", "--count", "3", "--jobs", jobs, "--world", world]) == 0
    assert "3 seeds from 5 on: every law held" in capsys.readouterr().out
