"""Runs seeds of the queries' world: `python -m kohort.simulation.queries.seed SEED [--verbose]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from kohort.simulation.clients.program_world import outcomes_of, play
from kohort.simulation.queries.query_world import QueryReport, QueryWorld

_MODULE: Final = "kohort.simulation.queries.seed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 0 if every law held, 1 if one was broken, after printing its story."""
    return play(QueryWorld, _summarize, arguments, module=_MODULE, description=__doc__)


def run_seeds(seeds: Iterable[int]) -> list[tuple[int, str | None]]:
    """Run each seed and return the broken law's story; `None`: every law held."""
    return outcomes_of(QueryWorld, seeds)


def _summarize(report: QueryReport) -> str:
    return f"{report.records} records, {report.doubled} twice, {report.virtual_s:.1f} s of virtual time"


if __name__ == "__main__":
    sys.exit(main())
