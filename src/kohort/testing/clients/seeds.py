"""Runs of client worlds by seed: from the command line, and many in the processes of a test."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

from kohort.errors import InvariantViolation
from kohort.testing.clients.program_world import ProgramWorld

R = TypeVar("R")


def play(
    build: Callable[[int], ProgramWorld[R]],
    summarize: Callable[[R], str],
    arguments: Sequence[str] | None,
    *,
    module: str,
    description: str | None,
) -> int:
    """Run the seeds that a command line names; return 0 if every law held, else 1.

    The story of the seed that broke a law is printed.

    Args:
        build: makes the world of a seed; like `summarize` something that other processes can import.
        summarize: a report in a line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="which world; the first one with --count")
    parser.add_argument("--verbose", action="store_true", help="print the whole story, also if every law held")
    parser.add_argument("--count", type=int, default=1, help="run so many seeds, and stop at the first that fails")
    parser.add_argument("--jobs", type=int, default=1, help="in so many processes")
    options = parser.parse_args(arguments)
    one = partial(_play_one, build, summarize, is_verbose=options.verbose)
    seeds = range(options.seed, options.seed + options.count)
    if options.jobs == 1:
        return _say_all(map(one, seeds))
    with get_context("spawn").Pool(options.jobs) as pool:
        return _say_all(pool.imap(one, seeds, chunksize=5))


def outcomes_of(build: Callable[[int], ProgramWorld[R]], seeds: Iterable[int]) -> list[tuple[int, str | None]]:
    """Run each seed and return the broken law's story; `None`: every law held."""
    outcomes: list[tuple[int, str | None]] = []
    for seed in seeds:
        try:
            with _silence():
                build(seed).run()
        except InvariantViolation as broken:
            outcomes.append((seed, str(broken)))
        else:
            outcomes.append((seed, None))
    return outcomes


def _play_one(
    build: Callable[[int], ProgramWorld[R]], summarize: Callable[[R], str], seed: int, *, is_verbose: bool
) -> tuple[bool, str]:
    """Run one seed and return whether every law held, with the text to print."""
    world = build(seed)
    try:
        with _silence():
            report = world.run()
    except InvariantViolation as broken:
        return False, f"{_story_of(world) if is_verbose else ''}seed {seed}: {broken}"
    story = f"{_story_of(world)}{world.plan}\n" if is_verbose else ""
    return True, f"{story}seed {seed}: every law held; {summarize(report)}"


def _say_all(told: Iterable[tuple[bool, str]]) -> int:
    for has_held, text in told:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        if not has_held:
            return 1
    return 0


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the clients' log while a world runs."""
    before = logging.root.manager.disable
    # Clients warn of every fault that the world injects.
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _story_of(world: ProgramWorld[R]) -> str:
    return "\n".join([*world.story.of(last=len(world.story)), ""])
