"""Seeds of each world in which everything goes wrong, and every law holds.

One of them again: make seed SEED=n, with WORLD=clients, queries, transactions or sinks one of the other worlds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kohort.simulation.seed import Outcome, main, run_seeds

#: World -> seeds that are played; `make soak` plays 10,000, 1,000, 5,000, and 10,000 each.
SEEDS = {"brokers": 500, "clients": 200, "queries": 200, "transactions": 500, "sinks": 300}
SEEDS_PER_TEST = 50
TESTS = [(world, first) for world, count in SEEDS.items() for first in range(0, count, SEEDS_PER_TEST)]

Outcomes = dict[tuple[str, int], Future[list[Outcome]]]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    """World and first seed of each test -> what comes of its seeds, which every core of the machine works at."""
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    try:
        yield {
            # The first ones tell their whole story.
            (world, first): pool.submit(run_seeds, world, range(first, first + SEEDS_PER_TEST), is_verbose=not first)
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


#: World -> the count of a run, its sum in the first seeds at least, and words that their stories have, by |.
WORTH = {
    "brokers": (
        "steps",
        200 * SEEDS_PER_TEST,
        "kind='consumer'|kind='eager'|kind='cooperative'|kind='rolling eager'|kind='rolling cooperative'|dies;| closes|"
        "killed|stands still|cuts | breaks |deleted| grows |revokes|waits no longer|UNKNOWN_MEMBER_ID|"
        "ILLEGAL_GENERATION|REBALANCE_IN_PROGRESS|MEMBER_ID_REQUIRED",
    ),
    "clients": (
        "handed out",
        200 * SEEDS_PER_TEST,
        "protocol='consumer'|protocol='classic'|assigned|revoked|lost|closes|crashes|raised|stops polling|leads|"
        "coordinates|stops, and|dies|is back|stands still|breaks|reaches no broker|grows|deleted",
    ),
    "queries": (
        "records",
        SEEDS_PER_TEST,
        "protocol='consumer'|protocol='classic'|is stopped|its reader is killed|its container is killed|is put back|"
        "leaves for good|leaves as one that comes back|may be read twice|the broker restarts|gives up",
    ),
    "transactions": (
        "committed",
        4 * SEEDS_PER_TEST,
        "version 0|version 2|is killed|dies;|stands still|full disk|is told None|NONE|PRODUCER_FENCED|"
        "INVALID_TXN_STATE|COORDINATOR_NOT_AVAILABLE|CONCURRENT_TRANSACTIONS|next_producer_id|"
        "refuses with INVALID_PRODUCER_EPOCH|PREPARE_COMMIT|PREPARE_ABORT|COMPLETE_COMMIT|COMPLETE_ABORT",
    ),
    "sinks": (
        "committed",
        4 * SEEDS_PER_TEST,
        "version 0|version 2|is killed|dies;|stands still|full disk|a task fails|is put back|ends: refused|ends: done|"
        "ends: replaced|api=read|PRODUCER_FENCED|INVALID_TXN_STATE|COORDINATOR_LOAD_IN_PROGRESS",
    ),
}


@pytest.mark.parametrize("world", SEEDS)
def test_worlds_are_worth_their_time(world: str, outcomes: Outcomes) -> None:
    """The first seeds see everything go wrong that can, in each protocol, and much is done all the same."""
    stories = "\n".join(each.text for each in outcomes[world, 0].result())
    what, least, words = WORTH[world]
    counts = [int(count) for count in re.findall(rf"(\d+) {what}", stories)]
    assert sum(counts) > least
    assert world != "queries" or all(counts), "a query read nothing"
    assert [word for word in words.split("|") if word not in stories] == [], "no story has them"


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


# What the processes play is the same code in each world, and `outcomes` plays all of them in processes.
@pytest.mark.parametrize(("world", "jobs"), [*((world, "1") for world in SEEDS), ("brokers", "2")])
def test_command_line_runs_many(world: str, jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5", "--count", "3", "--jobs", jobs, "--world", world]) == 0
    assert "3 seeds from 5 on: every law held" in capsys.readouterr().out
