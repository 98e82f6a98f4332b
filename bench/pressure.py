"""One row of a broker under the compiled generator: both sides warmed by ten seconds of the same load, then A B A B.

Recorded beside the rate: how many cores each broker kept busy, and how much of one the generator took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import Any

from generator import NOWHERE, UNLIMITED, Line, generate
from report import APACHE_KAFKA, Row, compare
from servers import cpu_s

WARM_S = 10.0
COUNTED_S = 1.0
#: What is produced in one run at most, so that the disk is not what is measured.
COUNTED_BYTES, WARM_BYTES = 1_000_000_000, 3_000_000_000


@dataclass(frozen=True)
class Prepared:
    """Connections with their requests, of which the first has been answered and seen to be no error."""

    lines: Sequence[Line]
    place: int = NOWHERE


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """A load and its row. `unit`: req/s, or MB/s of what is sent (produce) or received (fetch)."""

    what: str
    in_flight: int
    reach: str
    unit: str = "req/s"
    is_produced: bool = False
    settings: str = ""
    peer: str = APACHE_KAFKA


@dataclass(frozen=True)
class Figure:
    """One run: rate in the row's unit, cores of the broker, cores of the generator."""

    rate: float
    cores: float
    generator_cores: float


Prepare = Callable[[Any], AbstractContextManager[Prepared]]


def once(server: Any, pressure: Pressure, prepare: Prepare, *, seconds: float, most_bytes: int) -> Figure:
    """Prepare, load, and look at the clocks."""
    with prepare(server) as prepared:
        limit = UNLIMITED
        if pressure.is_produced:
            limit = most_bytes // len(prepared.lines[0].requests[0])
        before = cpu_s(server.process.pid)
        report = generate(
            prepared.lines, in_flight=pressure.in_flight, seconds=seconds, limit=limit, place=prepared.place
        )
        used = cpu_s(server.process.pid) - before
    done = float(report.answers)
    if pressure.unit == "MB/s":
        done = (report.sent_bytes if pressure.is_produced else report.received_bytes) / 1e6
    return Figure(done / report.seconds, used / report.seconds, report.cpu_s / report.seconds)


def under_pressure(pressure: Pressure, prepare: Prepare, servers: Sequence[Any], runs: int) -> Row:
    """Warm each server, then alternate; `servers`: ours, and the peer if there is one."""
    for server in servers:
        once(server, pressure, prepare, seconds=WARM_S, most_bytes=WARM_BYTES)
    found: list[list[Figure]] = [[], []]
    for _ in range(runs):
        for place, server in enumerate(servers):
            found[place].append(once(server, pressure, prepare, seconds=COUNTED_S, most_bytes=COUNTED_BYTES))
    ours, peers = found
    return compare(
        pressure.what,
        [figure.rate for figure in ours],
        [figure.rate for figure in peers],
        unit=pressure.unit,
        reach=pressure.reach,
        peer_name=pressure.peer,
        how=f"{runs}, after {WARM_S:g} s of it",
        settings=pressure.settings,
        cores=(*_medians(ours), *_medians(peers)),
    )


def _medians(figures: Sequence[Figure]) -> tuple[float | None, float | None]:
    """Cores of a broker, and of the generator meanwhile."""
    if not figures:
        return None, None
    return median(figure.cores for figure in figures), median(figure.generator_cores for figure in figures)
