"""Alternating runs, medians, ratios: how every bench measures and prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One line of a table; `ratio` is ours over the peer's in the sense that more is better."""

    what: str
    ours: float
    peer: float | None
    peer_name: str
    unit: str
    reach: str
    ratio: float | None
    spread: str


def alternate(
    runs: int, first: Callable[[], float], second: Callable[[], float] | None
) -> tuple[list[float], list[float]]:
    """A B A B ..., after one warm-up of each."""
    first()
    if second is not None:
        second()
    ours, peers = [], []
    for _ in range(runs):
        ours.append(first())
        if second is not None:
            peers.append(second())
    return ours, peers


def compare(
    what: str,
    ours: Sequence[float],
    peers: Sequence[float],
    *,
    unit: str,
    reach: str,
    peer_name: str,
    less_is_better: bool = False,
) -> Row:
    """Medians, and the ratio of the medians."""
    mine, theirs = median(ours), median(peers) if peers else None
    ratio = None
    # Counts may be none at all on either side; then there is no ratio.
    if theirs and mine:
        ratio = theirs / mine if less_is_better else mine / theirs
    spread = f"{min(ours):,.4g}-{max(ours):,.4g}" + (f" / {min(peers):,.4g}-{max(peers):,.4g}" if peers else "")
    return Row(what, mine, theirs, peer_name, unit, reach, ratio, spread)


def show(title: str, rows: Sequence[Row], *, left_out: Sequence[str] = ()) -> None:
    """A table for people, and the same as JSON in bench/results."""
    from kohort.cli.output import print_table

    print(f"\n{title}")
    cells = [
        (
            row.what,
            f"{row.ours:,.4g} {row.unit}",
            "-" if row.peer is None else f"{row.peer:,.4g} {row.unit}",
            row.peer_name,
            "-" if row.ratio is None else f"{row.ratio:.2f}x",
            row.reach,
            row.spread,
        )
        for row in rows
    ]
    print_table(("BENCH", "KOHORT", "PEER", "PEER IS", "RATIO", "REACH", "MIN-MAX"), cells, empty="nothing measured")
    for sentence in left_out:
        print(sentence)
    RESULTS.mkdir(exist_ok=True)
    name = title.lower().replace(" ", "-").replace(",", "")
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
