"""Runs seeds of the simulation from the command line: `python -m kohort.testing.seed SEED [--verbose]`.

One seed again, with its story; or many of them, to look for one that fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from kohort.errors import InvariantViolation
from kohort.testing.world import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; 0 if every law held, 1 if one was broken, whose story is printed."""
    options = _parse(arguments)
    if options.count is None:
        return _run_one(options.seed, is_verbose=options.verbose)
    return _run_many(options.seed, options.count, shows_progress=options.progress)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kohort.testing.seed", description=__doc__.partition("\n")[0])
    parser.add_argument("seed", type=int, nargs="?", default=0, help="which world; the first one with --count")
    parser.add_argument("--verbose", action="store_true", help="print the whole story, also if every law held")
    parser.add_argument("--count", type=int, help="run so many seeds, and stop at the first that fails")
    parser.add_argument("--progress", action="store_true", help="with --count: say how far it is")
    return parser.parse_args(arguments)


def _run_one(seed: int, *, is_verbose: bool) -> int:
    world = World(seed)
    try:
        report = world.run()
    except InvariantViolation as broken:
        if is_verbose:
            _say("\n".join(world.story.of(last=len(world.story))))
        _say(f"seed {seed}: {broken}")
        return 1
    if is_verbose:
        _say("\n".join(world.story.of(last=len(world.story))))
        _say(str(report.scenario))
    _say(
        f"seed {seed}: every law held in {report.steps} steps and {report.answers} answers, "
        f"{report.virtual_ms / 1000:.1f} s of virtual time; at rest {report.rest_after_ms / 1000:.1f} s after the end "
        "of the perturbations"
    )
    return 0


def _run_many(first: int, count: int, *, shows_progress: bool) -> int:
    begun = time.monotonic()
    steps = 0
    for done, seed in enumerate(range(first, first + count), start=1):
        try:
            steps += World(seed).run().steps
        except InvariantViolation as broken:
            _say(f"seed {seed}: {broken}")
            return 1
        if shows_progress and done % 100 == 0:
            _say(f"{done} of {count} seeds, {steps} steps, {time.monotonic() - begun:.0f} s")
    _say(f"{count} seeds from {first} on: every law held, {steps} steps in {time.monotonic() - begun:.1f} s")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
