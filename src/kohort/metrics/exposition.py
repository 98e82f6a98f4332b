"""Families of metrics, and the two text formats by which scrapers read them.

Laws: a page has each family once, with all of its series. A counter is named without `_total` here: the older format
has the suffix in its TYPE line, OpenMetrics has it not. A label may have any text. Writing is cut into steps of
`ROWS_PER_STEP` lines, so that a broker writes a long page in short turns.
Source: Prometheus' text format 0.0.4; OpenMetrics 1.0.0.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final, Literal

from kohort.base.values import value

Kind = Literal["counter", "gauge", "histogram"]

#: Lines of a page that are written in one step.
ROWS_PER_STEP: Final = 500
TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: Bounds of histograms of durations, seconds.
LATENCY_BOUNDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


#: One line of a family: its labels as they are written, its value, and what stands behind the name. Plain tuples, as a
#: page has many thousands: the garbage collector looks at none of them twice.
Row = tuple[str, float, str]


@value(kw_only=False, frozen=False, eq=False)
class Family:
    """Series of one name; `name` without the `_total` of a counter."""

    name: str
    kind: Kind
    doc: str
    rows: list[Row] = field(default_factory=list)

    def add(self, value: float, **labels: object) -> None:
        """Add a series."""
        self.rows.append((write_labels(labels), value, ""))


class Histogram:
    """Counts of observed values below bounds, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        self.bounds: Final = bounds
        #: Number of values up to each bound and above the one before it; at the end of those above all.
        self.counts: Final = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def rows(self, labels: str = "") -> Iterator[Row]:
        """Return the lines of the histogram, with labels as `write_labels` writes them."""
        prefix, count = f"{labels}," if labels else "", 0
        for bound, here in zip((*self.bounds, math.inf), list(self.counts), strict=True):
            count += here
            yield f'{prefix}le="{write_value(float(bound))}"', count, "_bucket"
        yield labels, self.total, "_sum"
        yield labels, count, "_count"


def escape(value: str) -> str:
    r"""Escape the text of a label.

    >>> escape('a "quoted" \\ name\n') == r'a \"quoted\" \\ name\n'
    True
    """
    if not value.isascii():
        # A lone surrogate, which stands for a byte that is not UTF-8, has no bytes of its own.
        value = value.encode("utf-8", "backslashreplace").decode()
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def write_labels(labels: Mapping[str, object]) -> str:
    """Write labels as they stand between the braces."""
    return ",".join(f'{name}="{escape(str(value))}"' for name, value in labels.items())


@lru_cache(10_000)
def read_labels(text: str) -> dict[str, str]:
    r"""Read labels as `write_labels` writes them.

    >>> read_labels(write_labels({"topic": 'a"b\n\\', "partition": 0}))
    {'topic': 'a"b\n\\', 'partition': '0'}
    """
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def write_value(value: float) -> str:
    """Write a number as both formats have it.

    >>> [write_value(each) for each in (3, 0.25, 1e21, math.inf, -math.inf, math.nan)]
    ['3', '0.25', '1e+21', '+Inf', '-Inf', 'NaN']
    """
    if isinstance(value, int):
        return str(int(value))
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def is_open(accept: str) -> bool:
    """Whether a scraper wants OpenMetrics, by its header `Accept`.

    >>> is_open("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    True
    >>> is_open("text/plain;version=0.0.4,application/openmetrics-text;q=0"), is_open("*/*"), is_open("")
    (False, False, False)
    """
    wanted = {"text/plain": 0.0, "application/openmetrics-text": 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        if kind in wanted:
            wanted[kind] = max(wanted[kind], _number(quality))
    return wanted["application/openmetrics-text"] > 0 and wanted["application/openmetrics-text"] >= wanted["text/plain"]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def write_steps(families: Iterable[Family], *, as_open: bool = False, is_end: bool = True) -> Iterator[str]:
    """Write a page in parts of at most `ROWS_PER_STEP` lines; without `is_end` more families follow."""
    for family in families:
        total = "_total" if family.kind == "counter" else ""
        named = family.name if as_open else family.name + total
        doc = family.doc.replace("\\", "\\\\").replace("\n", "\\n")
        head = f"# HELP {named} {doc}\n" if doc else ""
        yield f"{head}# TYPE {named} {family.kind}\n"
        for at in range(0, len(family.rows), ROWS_PER_STEP):
            yield "".join(
                f"{family.name}{total}{suffix}{{{labels}}} {write_value(value)}\n"
                if labels
                else f"{family.name}{total}{suffix} {write_value(value)}\n"
                for labels, value, suffix in family.rows[at : at + ROWS_PER_STEP]
            )
    if as_open and is_end:
        yield "# EOF\n"


def write(families: Iterable[Family], *, as_open: bool = False) -> str:
    """Write a page.

    >>> family = Family("jobs", "counter", "Jobs that are done.")
    >>> family.add(3, queue="a")
    >>> print(write([family], as_open=True), end="")
    # HELP jobs Jobs that are done.
    # TYPE jobs counter
    jobs_total{queue="a"} 3
    # EOF
    """
    return "".join(write_steps(families, as_open=as_open))
