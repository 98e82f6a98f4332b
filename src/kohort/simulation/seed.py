"""Runs seeds of a simulated world: `python -m kohort.simulation.seed SEED [--world clients] [--verbose]`.

It repeats one seed and prints its story, or runs many seeds in several processes to find one that fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

from kohort.errors import InvariantViolation

#: World -> its class, which is imported when a seed of it is played.
WORLDS: Final = {
    "brokers": "kohort.simulation.world:World",
    "clients": "kohort.simulation.clients.client_world:ClientWorld",
    "queries": "kohort.simulation.queries.query_world:QueryWorld",
    "transactions": "kohort.simulation.transactions.transaction_world:TransactionWorld",
    "sinks": "kohort.simulation.transactions.sink_world:SinkWorld",
}
#: So many seeds are one task of a process.
CHUNK: Final = 5


class Outcome(NamedTuple):
    """The outcome of a seed: the broken law with its story (`None`: every law held), and the text to print."""

    seed: int
    broken: str | None
    text: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 0 if every law held, 1 if one was broken, after printing its story."""
    options = _parse(arguments)
    seeds = range(options.seed, options.seed + (options.count or 1))
    began_s = time.monotonic()
    done = failed = 0
    for outcome in _outcomes(options.world, seeds, jobs=options.jobs, is_verbose=options.verbose):
        done += 1
        if outcome.broken is not None:
            failed += 1
            _say(outcome.text.partition("\n")[0] if options.keep_going else outcome.text)
            if not options.keep_going:
                return 1
        elif options.verbose or options.count is None:
            _say(outcome.text)
        if options.progress and done % 100 == 0:
            _say(f"{done} of {len(seeds)} seeds, {time.monotonic() - began_s:.0f} s")
    if failed:
        _say(f"{failed} of {done} seeds failed")
        return 1
    if options.count is not None:
        _say(f"{done} seeds from {seeds.start} on: every law held, {time.monotonic() - began_s:.1f} s")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kohort.simulation.seed", description=__doc__.partition("\n")[0])
    parser.add_argument("seed", type=int, nargs="?", default=0, help="which world; the first one with --count")
    parser.add_argument("--world", choices=WORLDS, default="brokers", help="the kind of world (default: brokers)")
    parser.add_argument("--verbose", action="store_true", help="print the whole story, also if every law held")
    parser.add_argument("--count", type=int, help="run so many seeds, and stop at the first that fails")
    parser.add_argument("--jobs", type=int, default=1, help="with --count: in so many processes")
    parser.add_argument("--progress", action="store_true", help="with --count: say how far it is")
    parser.add_argument("--keep-going", action="store_true", help="with --count: name every seed that fails")
    return parser.parse_args(arguments)


def _outcomes(world: str, seeds: range, *, jobs: int, is_verbose: bool) -> Iterator[Outcome]:
    """Yield the outcome of each seed, in their order."""
    if jobs <= 1:
        yield from (_play(world, seed, is_verbose=is_verbose) for seed in seeds)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    try:
        for outcomes in pool.map(partial(run_seeds, world, is_verbose=is_verbose), chunks):
            yield from outcomes
    finally:
        pool.shutdown(cancel_futures=True)


def run_seeds(world: str, seeds: Iterable[int], *, is_verbose: bool = False) -> list[Outcome]:
    """Return an outcome for each seed of a world, in the order of the seeds."""
    return [_play(world, seed, is_verbose=is_verbose) for seed in seeds]


def _play(name: str, seed: int, *, is_verbose: bool) -> Outcome:
    module, _, class_name = WORLDS[name].partition(":")
    world: Any = getattr(import_module(module), class_name)(seed)
    broken = None
    try:
        with _silence():
            report = world.run()
    except InvariantViolation as violation:
        broken = str(violation)
    lines = [*world.story.of(last=len(world.story)), *([] if broken else [str(world.plan)])] if is_verbose else []
    return Outcome(seed, broken, "\n".join([*lines, f"seed {seed}: {broken or f'every law held in {report.summary}'}"]))


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the log while a world runs."""
    before = logging.root.manager.disable
    # Clients and brokers warn of every fault that the world injects.
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
