"""`kohort demo`: flights through a broker, a consumer group and two Spark queries, with an account.

Laws: every claim that it prints is counted from what the members and Spark wrote down themselves; whatever does not
add up is said in one sentence and the exit code is not 0.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kohort.cli.output import complain, print_json
from kohort.errors import ConfigError

#: How many there are in the data.
FLIGHTS: Final = 336_776


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    demo = subparsers.add_parser(
        "demo",
        help="336,776 flights through broker, consumer group and Spark, with a member killed on the way",
        run=run,
    )
    demo.add_argument(
        "--output",
        default="demo-output",
        metavar="DIR",
        help="a folder for data, picture and report: a new one, or that of an earlier run (default demo-output)",
    )
    demo.add_argument(
        "--flights", type=int, default=FLIGHTS, metavar="N", help="take only the first N flights (default all)"
    )
    demo.add_argument("--seconds", type=float, default=25.0, metavar="S", help="how long producing takes (default 25)")
    demo.add_argument("--no-spark", action="store_true", help="stop after the consumer group")
    demo.add_argument("--json", action="store_true", help="print the account as JSON at the end")


def run(options: argparse.Namespace) -> int:
    """Run the whole demo; 0 if everything adds up."""
    from kohort.cli.demo.account import print_account
    from kohort.cli.demo.stage import Stage

    if not 1 <= options.flights <= FLIGHTS:
        raise ConfigError(f"--flights {options.flights}: 1 to {FLIGHTS} is expected")
    if not (math.isfinite(options.seconds) and options.seconds > 0):
        raise ConfigError(f"--seconds {options.seconds:g}: a number above 0 is expected")
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    stage = Stage(
        Path(options.output),
        flights=options.flights,
        seconds=options.seconds,
        without_spark="--no-spark: Spark is left out" if options.no_spark else why_no_spark(),
        quiet=options.json,
    )
    account = stage.run()
    if options.json:
        print_json(account)
    else:
        print_account(account)
        if not account.complaints:
            print(f'next: {own_command()} up, and README.md from "Use it" on')
    sys.stdout.flush()
    for complaint in account.complaints:
        complain(complaint)
    return 1 if account.complaints else 0


def why_no_spark() -> str | None:
    """Explain what the demo's Spark part lacks here and how to get it; `None` if nothing."""
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib") if find_spec(name) is None]
    if missing:
        return f"Spark is left out, for want of {' and '.join(missing)}: pip install 'kohort[spark,demo]'"
    from kohort.spark.driver.java import JavaNotFoundError, find_java_home

    try:
        find_java_home()
    except JavaNotFoundError as why:
        return f"Spark is left out: {why}"
    return None


def own_command() -> str:
    """Return the command for this kohort: its name if the shell finds it, else its path."""
    own = Path(sys.executable).with_name("kohort")
    found = shutil.which("kohort")
    if not own.exists() or (found and os.path.samefile(found, own)):
        return "kohort"
    below = os.path.relpath(own)
    return str(own) if below.startswith("..") else below
