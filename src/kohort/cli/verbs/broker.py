"""`kohort broker`: the state of a broker.

Source: DescribeBroker, an API of kohort's own; Apache Kafka has its metrics by JMX.
"""

from __future__ import annotations

import argparse
from typing import Any

from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common
from kohort.cli.output import show


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    broker = subparsers.add_parser("broker", help="how a broker is doing")
    actions = broker.add_subparsers(dest="action", metavar="ACTION", required=True)
    status = actions.add_parser(
        "status", help="version, address, what it has, the longest time without an answer", run=run_status
    )
    add_common(status)


def run_status(options: argparse.Namespace) -> int:
    """Print the broker's description of itself."""
    with open_admin(options) as admin:
        facts = admin.describe_broker()
    rows = [(name, value or "-") for name, value in facts.items()]
    return show(options, facts, ("FACT", "VALUE"), rows, empty="it says nothing")
