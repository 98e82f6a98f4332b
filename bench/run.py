"""Every bench, one after the other: `make bench`, or `python bench/run.py produce fetch` for some of them."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

BENCHES = (
    "startup",
    "restart",
    "memory",
    "requests",
    "members",
    "ephemeral",
    "commits",
    "produce",
    "fetch",
    "consume",
    "joins",
    "joincpu",
    "sparkbatch",
    "assign",
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure kohort against its peers in the same run.")
    parser.add_argument("names", nargs="*", metavar="BENCH", help=f"some of: {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each side, alternating (default 5)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"unknown bench {unknown[0]}; known: {', '.join(BENCHES)}")
    from kohort.records.choice import kernel_name

    if kernel_name() != "c":
        print("the compiled kernel is missing: install a C compiler and run: pip install -e .", file=sys.stderr)
        return 1
    for name in options.names or BENCHES:
        importlib.import_module(name).main(options.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
