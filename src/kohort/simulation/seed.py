"""Runs seeds of the simulation from the command line: `python -m kohort.simulation.seed SEED [--verbose]`.

One seed again, with its story; or many of them, in several processes, to look for one that fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from kohort.errors import InvariantViolation
from kohort.simulation.world import World

#: So many seeds are one task of a process.
CHUNK = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 0 if every law held, 1 if one was broken, after printing its story."""
    options = _parse(arguments)
    if options.count is None:
        return _run_one(options.seed, is_verbose=options.verbose)
    seeds = range(options.seed, options.seed + options.count)
    return _run_many(seeds, jobs=options.jobs, shows_progress=options.progress, keeps_going=options.keep_going)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kohort.simulation.seed", description=__doc__.partition("\n")[0])
    parser.add_argument("seed", type=int, nargs="?", default=0, help="which world; the first one with --count")
    parser.add_argument("--verbose", action="store_true", help="print the whole story, also if every law held")
    parser.add_argument("--count", type=int, help="run so many seeds, and stop at the first that fails")
    parser.add_argument("--jobs", type=int, default=1, help="with --count: in so many processes")
    parser.add_argument("--progress", action="store_true", help="with --count: say how far it is")
    parser.add_argument("--keep-going", action="store_true", help="with --count: name every seed that fails")
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


def _run_many(seeds: range, *, jobs: int, shows_progress: bool, keeps_going: bool) -> int:
    begun = time.monotonic()
    done = steps = failed = 0
    for seed, broken, its_steps in _outcomes(seeds, jobs):
        done += 1
        steps += its_steps
        if broken is not None:
            failed += 1
            _say(f"seed {seed}: {broken.partition(chr(10))[0] if keeps_going else broken}")
            if not keeps_going:
                return 1
        if shows_progress and done % 100 == 0:
            _say(f"{done} of {len(seeds)} seeds, {steps} steps, {time.monotonic() - begun:.0f} s")
    if failed:
        _say(f"{failed} of {done} seeds failed")
        return 1
    _say(f"{done} seeds from {seeds.start} on: every law held, {steps} steps in {time.monotonic() - begun:.1f} s")
    return 0


#: Seed, what broke with its story (`None`: nothing), steps.
_Outcome = tuple[int, str | None, int]


def _outcomes(seeds: range, jobs: int) -> Iterator[_Outcome]:
    """Yield the outcome of each seed when it is done; with several processes not in order."""
    if jobs <= 1:
        yield from map(_outcome, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
        pending = [pool.submit(run_seeds, chunk) for chunk in chunks]
        try:
            for finished in as_completed(pending):
                yield from finished.result()
        finally:
            for future in pending:
                future.cancel()


def run_seeds(seeds: Iterable[int]) -> list[_Outcome]:
    """Return an outcome for each seed, in the order of the seeds."""
    return [_outcome(seed) for seed in seeds]


def _outcome(seed: int) -> _Outcome:
    try:
        return seed, None, World(seed).run().steps
    except InvariantViolation as broken:
        return seed, str(broken), 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
