"""`kohort demo`: flights through a broker, a consumer group and two Spark queries, with an account.

Laws: every number that the demo prints is counted from what the members and Spark wrote themselves. Each contradiction
between the numbers is printed in one sentence, and then the exit code is 1.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from typing import Any, Final

from kohort.cli.output import complain, print_json
from kohort.errors import ConfigError

#: Flights in the data set.
FLIGHTS: Final = 336_776


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    story = "336,776 flights through broker, consumer group and Spark, with a member killed on the way"
    demo = subparsers.add_parser("demo", help=story, run=run)
    where = "a folder for data, picture and report: a new one, or that of an earlier run (default demo-output)"
    demo.add_argument("--output", default="demo-output", metavar="DIR", help=where)
    first = "take only the first N flights (default all)"
    demo.add_argument("--flights", type=int, default=FLIGHTS, metavar="N", help=first)
    demo.add_argument("--seconds", type=float, default=25.0, metavar="S", help="how long producing takes (default 25)")
    demo.add_argument("--no-spark", action="store_true", help="stop after the consumer group")
    copied = "also copy the flights into a topic in transactions, with the copying process killed on the way"
    demo.add_argument("--transactions", action="store_true", help=copied)
    demo.add_argument("--json", action="store_true", help="print the account as JSON at the end")


def run(options: argparse.Namespace) -> int:
    """Run the whole demo; return 0 if the account has no contradiction."""
    from kohort.cli.demo.account import print_account
    from kohort.cli.demo.stage import Stage
    from kohort.cli.report.session import why_no_spark

    if not 1 <= options.flights <= FLIGHTS:
        raise ConfigError(f"--flights {options.flights}: 1 to {FLIGHTS} is expected")
    if not (math.isfinite(options.seconds) and options.seconds > 0):
        raise ConfigError(f"--seconds {options.seconds:g}: a number above 0 is expected")
    # As Ctrl-C does, SIGTERM ends the processes that were started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    without_spark = "--no-spark: Spark is left out" if options.no_spark else why_no_spark()
    stage = Stage(options, without_spark=without_spark)
    if without_spark is None:
        from kohort.cli.demo.sparkscene import SparkScene

        account = stage.run(lambda *first_half: SparkScene(*first_half).run())
    else:
        account = stage.run(None)
    if options.json:
        print_json(account)
    else:
        from kohort.cli.advice import own_command

        print_account(account)
        if not account.complaints:
            print(f'next: {own_command()} up, and README.md from "Use it" on')
    sys.stdout.flush()
    for complaint in account.complaints:
        complain(complaint)
    return 1 if account.complaints else 0
