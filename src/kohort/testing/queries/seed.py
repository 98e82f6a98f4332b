"""Runs seeds of the queries' world from the command line: `python -m kohort.testing.queries.seed SEED [--verbose]`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Sequence

from kohort.errors import InvariantViolation
from kohort.testing.queries.query_world import QueryWorld


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; 0 if every law held, 1 if one was broken, whose story is printed."""
    parser = argparse.ArgumentParser(prog="python -m kohort.testing.queries.seed", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=0, help="which world; the first one with --count")
    parser.add_argument("--verbose", action="store_true", help="print the whole story, also if every law held")
    parser.add_argument("--count", type=int, default=1, help="run so many seeds, and stop at the first that fails")
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.count):
        world = QueryWorld(seed)
        try:
            report = world.run()
        except InvariantViolation as broken:
            _say(f"{_story_of(world) if options.verbose else ''}seed {seed}: {broken}")
            return 1
        if options.verbose:
            _say(f"{_story_of(world)}{report.plan}")
        _say(
            f"seed {seed}: every law held; {report.records} records, {report.doubled} twice, "
            f"{report.virtual_s:.1f} s of virtual time"
        )
    return 0


def run_seeds(seeds: Iterable[int]) -> list[tuple[int, str | None]]:
    """What broke in each seed, with its story; `None`: nothing."""
    # What queries warn of in the middle of all this is nobody's concern.
    logging.disable(logging.ERROR)
    outcomes: list[tuple[int, str | None]] = []
    for seed in seeds:
        try:
            QueryWorld(seed).run()
        except InvariantViolation as broken:
            outcomes.append((seed, str(broken)))
        else:
            outcomes.append((seed, None))
    return outcomes


def _story_of(world: QueryWorld) -> str:
    return "\n".join([*world.story.of(last=len(world.story)), ""])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings have an order of their own in each process; a seed has to say everything.
        command = [sys.executable, "-m", "kohort.testing.queries.seed", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
