"""Prints the tables of docs/performance.md anew from bench/published.json; what stands between them is left as it is.

Run it with: python tools/performance_tables.py

A table stands between `<!-- table: NAME NAME -->` and `<!-- end -->`: the rows of those tables of the benches, one
behind the other, or how to measure one that is not published yet. `<!-- run -->` is followed by when and on what they
were measured.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
PUBLISHED = ROOT / "bench" / "published.json"
_PART = re.compile(r"<!-- (run|table: [a-z ]+) -->\n.*?<!-- end -->", re.DOTALL)
#: In the place of a table.
UNPUBLISHED = "Not published yet; `make bench` measures it."
_KILO, _MEGA = 1e3, 1e6
_TIMES, _DASH = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"

Document = Mapping[str, Mapping[str, Any]]


def render(text: str, published: Document) -> str:
    """The document with every part between its marks made anew."""

    def part(found: re.Match[str]) -> str:
        mark = found.group(1)
        lines = run_of(published) if mark == "run" else table_of(published, mark.removeprefix("table: ").split())
        return "\n".join([f"<!-- {mark} -->", *lines, "<!-- end -->"])

    return _PART.sub(part, text)


def asked_for(text: str) -> list[str]:
    """The names of the tables that the document shows."""
    marks = [found.group(1) for found in _PART.finditer(text)]
    return [name for mark in marks if mark != "run" for name in mark.removeprefix("table: ").split()]


def run_of(published: Document) -> list[str]:
    """When and on what it was measured; more than one of a kind only where benches were measured apart."""
    entries = list(published.values())
    dates = sorted({entry["date"] for entry in entries})
    # Tables of one bench may have been measured one after the other.
    commits = sorted({commit for entry in entries for commit in entry["commit"].split(" and ")})
    machines = sorted({", ".join(described(entry["machine"])) for entry in entries})
    minutes = sum(entry["seconds"] for entry in entries) / 60
    return [
        f"Measured on {' and '.join(dates)} at commit {' and '.join(commits)}, in {minutes:.0f} minutes: "
        f"{'; '.join(machines)}.",
        *sorted({sentence for entry in entries for table in entry["tables"] for sentence in table["left_out"]}),
    ]


def described(machine: Mapping[str, str | int]) -> list[str]:
    """A machine in a few words."""
    words = dict(machine)
    return [f"{words.pop('cores')} cores", str(words.pop("system")), *(f"{name} {is_}" for name, is_ in words.items())]


def table_of(published: Document, names: Sequence[str]) -> list[str]:
    """The lines of one Markdown table; settings and cores are columns where a row has any."""
    tables = {table["name"]: table for entry in published.values() for table in entry["tables"]}
    if not tables.keys() >= set(names):
        return [UNPUBLISHED]
    rows = [row for name in names for row in tables[name]["rows"]]
    columns = ["what", "kohort", "peer", "peer is", "ratio", "reach", "runs", f"min{_DASH}max, kohort / peer"]
    has_settings, has_cores = any(row["settings"] for row in rows), any(row["cores"] for row in rows)
    columns += ["not the default"] * has_settings + ["cores, kohort / peer (generator)"] * has_cores
    lines = [_line(columns), _line(["---"] * len(columns))]
    for row in rows:
        cells = [
            row["what"],
            figure(row["ours"], row["unit"]),
            "-" if row["peer"] is None else figure(row["peer"], row["unit"]),
            row["peer_name"],
            "-" if row["ratio"] is None else f"{three_digits(row['ratio'])}x",
            row["reach"],
            row["how"],
            spread(row),
            *([row["settings"] or "-"] if has_settings else []),
            *([cores(row["cores"])] if has_cores else []),
        ]
        lines.append(_line([typeset(cell) for cell in cells]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def figure(value: float, unit: str) -> str:
    """A value with its unit, as a person reads it."""
    if unit in ("req/s", "rec/s", "rows/s"):
        if value >= _MEGA:
            return f"{value / _MEGA:.2f} M {unit}"
        return f"{value / _KILO:.1f} k {unit}" if value >= 10 * _KILO else f"{value:,.0f} {unit}"
    if unit == "us" and value >= 10 * _KILO:
        return f"{three_digits(value / _KILO)} ms"
    return f"{three_digits(value)} {unit}" if unit != "moves" else f"{value:,.0f}"


def three_digits(value: float) -> str:
    """At least three digits, and no more behind the point than that needs."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 or value == 0 else 3
    return f"{value:,.{digits}f}"


def spread(row: Mapping[str, Any]) -> str:
    """Least and most of both sides; nothing to say of a single run."""
    ranges = [one for one in (row["ours_range"], row["peer_range"]) if one]
    if all(low == high for low, high in ranges):
        return "-"
    return " / ".join(f"{_bare(low, row['unit'])}{_DASH}{figure(high, row['unit'])}" for low, high in ranges)


def _bare(value: float, unit: str) -> str:
    return figure(value, unit).removesuffix(f" {unit}")


def cores(shares: Sequence[float | None] | None) -> str:
    """Processors kept busy by each broker, and by the generator under each."""
    if not shares:
        return "-"
    ours, over_ours, peer, over_peer = shares
    pairs = ((ours, peer), (over_ours, over_peer))
    told = [" / ".join(f"{share:.2f}" for share in pair if share is not None) for pair in pairs]
    return f"{told[0]} ({told[1]})"


def typeset(cell: str) -> str:
    """What the benches write in ASCII, as a document has it."""
    cell = cell.replace(">= ", "≥ ").replace("<= ", "≤ ").replace(" x ", f" {_TIMES} ").replace(" us", " µs")
    return re.sub(r"(\d)x\b", rf"\1{_TIMES}", cell.replace("2^63-1", "2⁶³-1")).replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text(), json.loads(PUBLISHED.read_text())))
    sys.stdout.write(f"wrote {DOCUMENT.relative_to(ROOT)}\n")
