"""200 worlds of queries that share a group, and every law holds. One again: make seed-queries SEED=n."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kohort.testing.queries.query_world import QueryWorld
from kohort.testing.queries.seed import main, run_seeds

SEEDS = 200
SEEDS_PER_TEST = 20


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[int, Future[list[tuple[int, str | None]]]]]:
    """First seed of each test -> what comes of its seeds, which every core of the machine works at."""
    # The order of sets of strings is a part of a world.
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    seeds = [range(first, first + SEEDS_PER_TEST) for first in range(0, SEEDS, SEEDS_PER_TEST)]
    try:
        yield {each.start: pool.submit(run_seeds, each) for each in seeds}
    finally:
        pool.shutdown(cancel_futures=True)
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_law_holds(first: int, outcomes: dict[int, Future[list[tuple[int, str | None]]]]) -> None:
    """A failure says which seed it was and tells the story."""
    told = outcomes[first].result()
    assert [seed for seed, _ in told] == list(range(first, first + SEEDS_PER_TEST))
    for seed, broken in told:
        assert broken is None, f"make seed-queries SEED={seed}: {broken}"


def test_worlds_are_worth_their_time() -> None:
    """The seeds see everything that can become of a query, in both protocols."""
    told: list[str] = []
    protocols: set[str] = set()
    for seed in range(25):
        world = QueryWorld(seed)
        assert world.run().records > 0
        protocols.add(world.queries.protocol)
        told += world.story.of(last=len(world.story))
    assert protocols == {"consumer", "classic"}
    words = ("is stopped", "its reader is killed", "its container is killed", "is put back", "leaves for good")
    more = ("leaves as one that comes back", "may be read twice", "the broker restarts", "gives up")
    for word in (*words, *more):
        assert any(word in row for row in told), f"no story has {word!r}"


def test_command_line_runs_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["5", "--count", "2"]) == 0
    assert capsys.readouterr().out.count("every law held") == 2
