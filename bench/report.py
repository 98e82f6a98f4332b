"""Alternating runs, medians, ratios: what every bench gives back, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

APACHE_KAFKA = "Apache Kafka 4.3"
NO_PEER = "no peer"

Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Row:
    """One line of a table; `ratio` is ours over the peer's in the sense that more is better, `least_ratio` that of our
    worst run and the peer's best.

    Ranges are (least, most) of the counted runs; `how` says how many those are and what went before; `settings` are
    those that are not the default, of either side. `cores` are processors kept busy: by us and by the generator
    meanwhile, by the peer and by the generator meanwhile; `None` where no generator took part.
    """

    what: str
    unit: str
    ours: float
    ours_range: tuple[float, float]
    peer: float | None
    peer_range: tuple[float, float] | None
    peer_name: str
    ratio: float | None
    least_ratio: float | None
    reach: str
    how: str
    settings: str
    cores: tuple[float | None, ...] | None = None


@dataclass(frozen=True)
class Table:
    """Rows under one name, by which docs/reference/performance.md asks for them."""

    name: str
    title: str
    rows: Sequence[Row]
    left_out: Sequence[str] = field(default_factory=list)


def alternate(
    runs: int, first: Callable[[], float], second: Callable[[], float] | None
) -> tuple[list[float], list[float]]:
    """A B A B ..., after one warm-up of each."""
    ours, *peers = take_turns(runs, *filter(None, (first, second)))
    return ours, peers[0] if peers else []


def take_turns(runs: int, *sides: Callable[[], Measured]) -> list[list[Measured]]:
    """A B C A B C ..., after one warm-up of each: what each side has measured."""
    for side in sides:
        side()
    rounds = [[side() for side in sides] for _ in range(runs)]
    return [list(each) for each in zip(*rounds, strict=True)]


def warmed(runs: int) -> str:
    """What `alternate` does, as a row says it."""
    return f"{runs}, after 1 to warm up"


def compare(
    what: str,
    ours: Sequence[float],
    peers: Sequence[float],
    *,
    unit: str,
    reach: str,
    peer_name: str,
    how: str,
    settings: str = "",
    less_is_better: bool = False,
    cores: tuple[float | None, ...] | None = None,
) -> Row:
    """Medians, and the ratio of the medians."""
    mine, theirs = median(ours), median(peers) if peers else None
    ratio = least = None
    if theirs is not None:
        worst, best = (max(ours), min(peers)) if less_is_better else (min(ours), max(peers))
        ratio = ratio_of(mine, theirs, less_is_better=less_is_better)
        least = ratio_of(worst, best, less_is_better=less_is_better)
    return Row(
        what=what,
        unit=unit,
        ours=mine,
        ours_range=(min(ours), max(ours)),
        peer=theirs,
        peer_range=(min(peers), max(peers)) if peers else None,
        peer_name=peer_name,
        ratio=ratio,
        least_ratio=least,
        reach=reach,
        how=how,
        settings=settings,
        cores=cores,
    )


def ratio_of(mine: float, theirs: float, *, less_is_better: bool) -> float | None:
    """How many times better ours is; `None` where that is without limit, as none are better than some."""
    if mine == theirs:
        return 1.0
    over, under = (theirs, mine) if less_is_better else (mine, theirs)
    return over / under if under else None


def show(table: Table) -> None:
    """A table for people."""
    from kohort.cli.output import print_table

    print(f"\n{table.title}")
    cells = [
        (
            row.what,
            f"{row.ours:,.4g} {row.unit}",
            "-" if row.peer is None else f"{row.peer:,.4g} {row.unit}",
            row.peer_name,
            "-" if row.ratio is None else f"{row.ratio:.2f}x",
            row.reach,
            " / ".join(f"{low:,.4g}-{high:,.4g}" for low, high in filter(None, (row.ours_range, row.peer_range))),
            "-" if row.cores is None else " / ".join("-" if share is None else f"{share:.2f}" for share in row.cores),
        )
        for row in table.rows
    ]
    columns = ("BENCH", "KOHORT", "PEER", "PEER IS", "RATIO", "REACH", "MIN-MAX", "CORES")
    print_table(columns, cells, empty="nothing measured")
    for sentence in table.left_out:
        print(sentence)
