"""Worlds of real clients by their seeds: from the command line, and many of them in the processes of a test."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Protocol

from kohort.errors import InvariantViolation
from kohort.testing.story import Story


class SeededWorld(Protocol):
    """What a seed makes; `run` gives its report, or breaks a law."""

    @property
    def story(self) -> Story:
        """What has happened."""
        ...

    def run(self) -> Any:
        """Play the whole story."""
        ...


def play(
    build: Callable[[int], SeededWorld],
    summarize: Callable[[Any], str],
    arguments: Sequence[str] | None,
    *,
    module: str,
    description: str | None,
) -> int:
    """Run the seeds that a command line names; 0 if every law held, 1 if one was broken, whose story is printed.

    Args:
        build: makes the world of a seed.
        summarize: a report in a line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="which world; the first one with --count")
    parser.add_argument("--verbose", action="store_true", help="print the whole story, also if every law held")
    parser.add_argument("--count", type=int, default=1, help="run so many seeds, and stop at the first that fails")
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.count):
        world = build(seed)
        try:
            report = world.run()
        except InvariantViolation as broken:
            _say(f"{_story_of(world) if options.verbose else ''}seed {seed}: {broken}")
            return 1
        if options.verbose:
            _say(f"{_story_of(world)}{report.plan}")
        _say(f"seed {seed}: every law held; {summarize(report)}")
    return 0


def outcomes_of(build: Callable[[int], SeededWorld], seeds: Iterable[int]) -> list[tuple[int, str | None]]:
    """What broke in each seed, with its story; `None`: nothing."""
    # What clients warn of in the middle of all this is nobody's concern.
    logging.disable(logging.ERROR)
    outcomes: list[tuple[int, str | None]] = []
    for seed in seeds:
        try:
            build(seed).run()
        except InvariantViolation as broken:
            outcomes.append((seed, str(broken)))
        else:
            outcomes.append((seed, None))
    return outcomes


def start(main: Callable[[], int], *, module: str) -> NoReturn:
    """Run `main` where sets of strings have the same order in each process: a seed has to say everything."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())


def _story_of(world: SeededWorld) -> str:
    return "\n".join([*world.story.of(last=len(world.story)), ""])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
