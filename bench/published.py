"""What was measured as a file, and whether a new measurement still gives what is published.

Laws: a figure holds if its ratio is at least two thirds of the published one, or one that the published runs gave
themselves: some of Apache Kafka's times are 5 s or 10 s, as it happens. Only ratios are compared: a figure without a
peer says more about the machine than about the code, and where the peer cannot be had there is nothing to compare. A
row that is published must be measured again by its bench.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The run of which docs/reference/performance.md has the tables.
PUBLISHED = HERE / "published.json"
#: The latest measurement of each bench.
RESULTS = HERE / "results" / "latest.json"
WORSE, BETTER = 2 / 3, 4 / 3
#: Named with each measurement, where they are installed.
PACKAGES = ("confluent-kafka", "pyarrow", "pyspark", "uvloop")

#: Bench by name: when, where and of what it was measured, and its tables.
Document = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Finding:
    """One published row that is not what it was, or a row that is not published: `what` is one sentence."""

    is_failure: bool
    what: str


def load(path: Path) -> Document:
    """What the file holds; nothing if there is none."""
    if not path.exists():
        return {}
    found: Document = json.loads(path.read_text())
    return found


def store(path: Path, document: Document) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def entry(tables: Sequence[Any], *, seconds: float) -> dict[str, Any]:
    """One bench as it is kept."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(),
        "seconds": round(seconds),
        "tables": [asdict(table) for table in tables],
    }


def commit() -> str:
    """The commit that is checked out, with a plus if files have changed since."""
    try:
        name = _first_line(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"])
        changed = _first_line(["git", "-C", str(HERE), "status", "--porcelain", "--untracked-files=no"])
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}+" if changed else name


def machine() -> dict[str, str | int]:
    """What a figure depends on beside the code."""
    found: dict[str, str | int] = {
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    if shutil.which("java"):
        run = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        found["Java"] = run.stderr.split('"')[1] if '"' in run.stderr else run.stderr.strip()
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _first_line(command: Sequence[str]) -> str:
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return printed.splitlines()[0].strip() if printed else ""


def expected(reference: Mapping[str, Any], names: Sequence[str]) -> str:
    """How long benches may take, going by the published run."""
    if not all(name in reference for name in names):
        return "how long it takes is not known yet"
    seconds = sum(reference[name]["seconds"] for name in names)
    return f"about {seconds} s" if seconds < 120 else f"about {seconds / 60:.0f} minutes"


def rows_by_name(measured: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All rows of a bench, by table and name."""
    return {f"{table['name']}: {row['what']}": row for table in measured["tables"] for row in table["rows"]}


def compare_with_published(reference: Document, results: Document, names: Sequence[str]) -> list[Finding]:
    """What a reader of the published figures of these benches would have to know."""
    findings = []
    for name in names:
        if name not in reference:
            findings.append(Finding(False, f"{name} is not published"))
            continue
        old, new = rows_by_name(reference[name]), rows_by_name(results[name])
        for what, row in old.items():
            findings += _compare_row(what, row, new.get(what))
        findings += [Finding(False, f"{what} is not published") for what in new if what not in old]
    return findings


def _compare_row(what: str, old: Mapping[str, Any], new: Mapping[str, Any] | None) -> list[Finding]:
    if new is None:
        return [Finding(True, f"{what} is published, but was not measured")]
    if old["ratio"] is None or (new["ratio"] is None and new["peer"] is not None):
        # There is no peer, or ours is better without limit, as none are better than some.
        return []
    if new["ratio"] is None:
        return [Finding(False, f"{what} was not compared: its peer was left out")]
    told = f"{what} is {new['ratio']:.2f}x, published is {old['ratio']:.2f}x"
    if new["ratio"] < min(old["ratio"] * WORSE, old["least_ratio"]):
        return [Finding(True, told)]
    return [Finding(False, f"{told}: better")] if new["ratio"] > old["ratio"] * BETTER else []


def missing(results: Document, names: Sequence[str]) -> list[str]:
    """Benches without which a run is not whole, or whose peer was left out of it."""
    return [name for name in names if name not in results or any(t["left_out"] for t in results[name]["tables"])]


def publish(results: Document, names: Sequence[str]) -> None:
    """Replace what is published, benches in their order; docs/reference/performance.md is made of it."""
    store(PUBLISHED, {name: results[name] for name in names})
