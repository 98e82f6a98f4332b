"""`kohort demo`: real flights through a broker, a consumer group under stress, and a Spark query; then the account.

Laws: every claim that it prints is counted from what the members and Spark wrote down themselves; whatever does not
add up is said in one sentence and the exit code is not 0.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kohort.cli.output import complain, print_json


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    demo = subparsers.add_parser(
        "demo",
        help="336,776 flights through broker, consumer group and Spark, with a member killed on the way",
        allow_abbrev=False,
    )
    demo.add_argument(
        "--output", default="demo-output", metavar="DIR", help="where data and picture go, default demo-output"
    )
    demo.add_argument("--seconds", type=float, default=25.0, metavar="S", help="how long producing takes (default 25)")
    demo.add_argument("--no-spark", action="store_true", help="stop after the consumer group")
    demo.add_argument("--json", action="store_true", help="print the account as JSON at the end")
    demo.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the whole demo; 0 if everything adds up."""
    from kohort.cli.demo.account import print_account
    from kohort.cli.demo.stage import Stage

    stage = Stage(Path(options.output), seconds=options.seconds, with_spark=not options.no_spark, quiet=options.json)
    account = stage.run()
    if options.json:
        print_json(account)
    else:
        print_account(account)
    for complaint in account.complaints:
        complain(complaint)
    return 1 if account.complaints else 0
