"""Every bench, one after the other: `make bench`, or `python bench/run.py produce fetch` for some of them."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import published
from report import Table, show

BENCHES = (
    "startup",
    "fixtures",
    "console",
    "scrapes",
    "requests",
    "heartbeats",
    "liveness",
    "handover",
    "commits",
    "produce",
    "fetch",
    "logs",
    "cold",
    "latency",
    "flood",
    "fetchsessions",
    "mixed",
    "consume",
    "secured",
    "tls",
    "sasl",
    "rights",
    "ownership",
    "tokens",
    "tokenlogin",
    "quotas",
    "transactions",
    "send",
    "eventloop",
    "neighbours",
    "sparkbatch",
    "sparkstream",
    "sparktasks",
    "sparkwrite",
    "members",
    "ephemeral",
    "joins",
    "joincpu",
    "static",
    "cutoff",
    "clientside",
    "metadata",
    "restart",
    "assign",
    "groups",
)
RUNS = 3


def main() -> int:
    options = parse()
    if behind := kernels_behind():
        print(
            f"{', '.join(behind)}: not compiled as it stands; install a C compiler and run: pip install -e .",
            file=sys.stderr,
        )
        return 1
    return measure_all(options)


def kernels_behind() -> list[str]:
    """Kernels that are not compiled, or were before their last change: without them other numbers come out."""
    import kohort

    def is_compiled(source: Path) -> bool:
        compiled = source.parent.glob(f"{source.stem}.*.so")
        return any(each.stat().st_mtime >= source.stat().st_mtime for each in compiled)

    root = Path(kohort.__file__).parent
    return sorted(f"kohort/{each.relative_to(root)}" for each in root.rglob("*kernels.py") if not is_compiled(each))


def measure_all(options: argparse.Namespace) -> int:
    """Every bench that was asked for; what one has given is kept when another fails. The exit code."""
    names = options.names or list(BENCHES)
    reference = published.load(published.PUBLISHED)
    # A part of the benches is measured anew beside what the last run left; a whole run begins with nothing.
    results = published.load(published.RESULTS) if options.names else {}
    failed, measured = [], []
    print(
        f"{len(names)} of {len(BENCHES)} benches, {options.runs} counted runs: {published.expected(reference, names)}"
    )
    for number, name in enumerate(names, start=1):
        print(f"\n[{number}/{len(names)}] {name}: {published.expected(reference, [name])}", flush=True)
        began = time.monotonic()
        try:
            tables = importlib.import_module(name).measure(options.runs)
        except Exception:
            # The others are still worth their minutes; this one is named at the end.
            traceback.print_exc()
            failed.append(name)
            continue
        results[name] = entry(name, tables, seconds=time.monotonic() - began)
        published.store(published.RESULTS, results)
        measured.append(name)
    return conclude(options, results, reference, measured=measured, failed=failed)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure kohort against its peers in the same run.")
    parser.add_argument("names", nargs="*", metavar="BENCH", help=f"some of: {', '.join(BENCHES)} (default: all)")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"counted runs of each side, alternating (default {RUNS})"
    )
    parser.add_argument(
        "--publish", action="store_true", help="keep what was measured as bench/published.json and print the doc anew"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"unknown bench {unknown[0]}; known: {', '.join(BENCHES)}")
    return options


def entry(name: str, tables: list[Table], *, seconds: float) -> dict[str, Any]:
    """What is kept of one bench; its tables are shown on the way."""
    for table in tables:
        show(table)
    print(f"{name} took {seconds:.0f} s", flush=True)
    return published.entry(tables, seconds=seconds)


def conclude(
    options: argparse.Namespace,
    results: dict[str, Any],
    reference: dict[str, Any],
    *,
    measured: list[str],
    failed: list[str],
) -> int:
    """Compare with what is published, publish if asked to, and say what went wrong."""
    findings = published.compare_with_published(reference, results, measured)
    print("\nCompared with bench/published.json: " + ("" if findings else "every ratio is within a third of it."))
    for finding in sorted(findings, key=lambda finding: finding.is_failure):
        print(f"  {'NO LONGER: ' if finding.is_failure else ''}{finding.what}")
    for name in failed:
        print(f"  FAILED: {name}, see its traceback above")
    if findings or failed:
        print("To measure a part again, beside what is kept of this run: python bench/run.py BENCH ...")
    if options.publish:
        # A part takes its place beside what is published; the rest may be measured another time.
        whole = {**reference, **results} if options.names else results
        if lacking := published.missing(whole, options.names or BENCHES):
            print(f"Not published: {', '.join(lacking)} must be measured with their peers first")
            return 1
        published.publish(whole, [name for name in BENCHES if name in whole])
        print("Published: bench/published.json, and with it docs/reference/performance.md, has what was measured")
        return 0
    return 1 if failed or any(finding.is_failure for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
