"""Seeds of worlds, played by every core of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

Outcomes = dict[int, Future[list[tuple[int, str | None]]]]


@contextmanager
def played(run_seeds: Callable[[range], list[tuple[int, str | None]]], count: int, at_once: int) -> Iterator[Outcomes]:
    """First seed of each `at_once` -> what comes of them."""
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    seeds = [range(first, first + at_once) for first in range(0, count, at_once)]
    try:
        yield {each.start: pool.submit(run_seeds, each) for each in seeds}
    finally:
        pool.shutdown(cancel_futures=True)
