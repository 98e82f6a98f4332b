"""250 worlds in which everything goes wrong, and every law holds. One of them again: make seed SEED=n."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kohort.simulation.seed import main, run_seeds
from kohort.testing import World

#: `make soak` plays 10,000.
SEEDS = 100
SEEDS_PER_TEST = 25


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[int, Future[list[tuple[int, str | None, int]]]]]:
    """First seed of each test -> what comes of its seeds, which every core of the machine works at."""
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    seeds = [range(first, first + SEEDS_PER_TEST) for first in range(0, SEEDS, SEEDS_PER_TEST)]
    try:
        yield {each.start: pool.submit(run_seeds, each) for each in seeds}
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_law_holds(first: int, outcomes: dict[int, Future[list[tuple[int, str | None, int]]]]) -> None:
    """A failure says which seed it was and tells the story."""
    told = outcomes[first].result()
    assert [seed for seed, _, _ in told] == list(range(first, first + SEEDS_PER_TEST))
    for seed, broken, _ in told:
        assert broken is None, f"make seed SEED={seed}: {broken}"


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


def test_command_line_runs_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5", "--count", "3"]) == 0
    assert "3 seeds from 5 on: every law held" in capsys.readouterr().out


def test_command_line_runs_many_in_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5", "--count", "4", "--jobs", "2"]) == 0
    assert "4 seeds from 5 on: every law held" in capsys.readouterr().out
