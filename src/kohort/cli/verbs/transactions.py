"""`kohort transactions list|describe|history|hanging|abort|fence`: open transactions, and their end.

Laws: a verb that ends a transaction shows it first, and ends it with `--execute`.
Source: kafka-transactions; KIP-664.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import print_json, show, show_plan
from kohort.cli.verbs.grouphistory import print_rows
from kohort.cli.verbs.why import read_partition
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.journal.words import MemberNames, show_partitions

if TYPE_CHECKING:
    from kohort.client.admin.results.transactions import ProducerDescription

_COLUMNS: Final = ("ID", "STATE", "PRODUCER", "EPOCH", "PARTITIONS")
_PRODUCER_COLUMNS: Final = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "BEGINS AT")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    transactions = subparsers.add_parser(
        "transactions", help="transactions: list, describe, history, hanging, abort, fence"
    )
    actions = transactions.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the transactions that the cluster's coordinators know", run=run_list)
    listing.add_argument("--state", action="append", metavar="STATE", help="only Ongoing, ...; may be repeated")
    listing.add_argument("--longer-than", type=int, metavar="MS", help="only those open for longer than this")

    describe = actions.add_parser("describe", help="state, producer and partitions of some", run=run_describe)
    describe.add_argument("ids", metavar="ID", nargs="+", help="a transactional id")

    history = actions.add_parser(
        "history",
        help="the steps of a transactional id's transactions",
        description="Print each step, producer and refusal, oldest first. Steps that repeat are one line with the "
        "number of times.",
        run=run_history,
    )
    history.add_argument("id", metavar="ID", help="a transactional id")
    history.add_argument("--all", action="store_true", help="also older rows, from the topic __group_journal")

    hanging = actions.add_parser(
        "hanging", help="open transactions of a topic that no coordinator knows", run=run_hanging
    )
    hanging.add_argument("topic", metavar="TOPIC")
    hanging.add_argument(
        "--older-than", type=int, default=15 * 60 * 1000, metavar="MS", help="only without writes for so long (900000)"
    )

    abort = actions.add_parser("abort", help="abort a hanging transaction in one partition", run=run_abort)
    abort.add_argument("partition", metavar="TOPIC-N", type=read_partition)
    abort.add_argument("--start-offset", type=int, required=True, metavar="N", help="the offset at which it begins")
    add_execute(abort)

    fence = actions.add_parser("fence", help="fence producers, and abort their open transactions", run=run_fence)
    fence.add_argument("ids", metavar="ID", nargs="+", help="a transactional id")
    add_execute(fence)

    add_common(listing, describe, history, hanging, abort, fence)


def run_list(options: argparse.Namespace) -> int:
    """Print the transactions by transactional id."""
    with open_admin(options) as admin:
        found = admin.list_transactions(options.state, running_longer_than_ms=options.longer_than)
    rows = [(row.transactional_id, row.producer_id, row.state) for row in found]
    return show(options, found, ("ID", "PRODUCER", "STATE"), rows, empty="no transactions")


def run_describe(options: argparse.Namespace) -> int:
    """Print the transactions in the order asked."""
    with open_admin(options) as admin:
        found = admin.describe_transactions(options.ids)
    return show(options, found, _COLUMNS, _rows(found), empty="no transactions")


def run_history(options: argparse.Namespace) -> int:
    """Print the events of a transactional id, oldest first."""
    with open_admin(options) as admin:
        found = admin.transaction_history(options.id, whole=options.all)
    if options.json:
        print_json(found)
        return 0
    print_rows(found.events, MemberNames(), empty=f"{options.id} has no history")
    if found.has_older:
        print("older rows are in the topic __group_journal: --all shows them, too")
    return 0


def run_fence(options: argparse.Namespace) -> int:
    """Show the producers to be fenced, and fence them with `--execute`."""
    with open_admin(options) as admin:
        found = admin.describe_transactions(options.ids)
        if options.execute:
            admin.fence_producers(options.ids)
    return show_plan(options, found, _COLUMNS, _rows(found), empty="no transactions")


def _rows(found: list[Any]) -> list[tuple[object, ...]]:
    return [
        (row.transactional_id, row.state, row.producer_id, row.producer_epoch, show_partitions(row.partitions))
        for row in found
    ]


def run_hanging(options: argparse.Namespace) -> int:
    """Print hanging transactions by partition."""
    with open_admin(options) as admin:
        (topic,) = admin.describe_topics([options.topic])
        partitions = [TopicPartition(topic.name, row.partition) for row in topic.partitions]
        found = admin.find_hanging_transactions(partitions, older_than_ms=options.older_than)
    return show(options, found, _PRODUCER_COLUMNS, _producer_rows(found), empty="no hanging transactions")


def run_abort(options: argparse.Namespace) -> int:
    """Show the producer of a transaction, and abort the transaction with `--execute`."""
    with open_admin(options) as admin:
        open_ones = [
            row for row in admin.describe_producers([options.partition]) if row.transaction_start_offset is not None
        ]
        chosen = [row for row in open_ones if row.transaction_start_offset == options.start_offset]
        if not chosen:
            begins = ", ".join(str(row.transaction_start_offset) for row in open_ones) or "none is open"
            raise ConfigError(f"no transaction of {options.partition} begins at {options.start_offset}: {begins}")
        if options.execute:
            admin.abort_transaction(options.partition, options.start_offset)
    shown = {"executed": options.execute, "producers": chosen}
    return show_plan(options, shown, _PRODUCER_COLUMNS, _producer_rows(chosen), empty="")


def _producer_rows(found: Sequence[ProducerDescription]) -> list[tuple[object, ...]]:
    return [
        (row.topic, row.partition, row.producer_id, row.producer_epoch, row.transaction_start_offset) for row in found
    ]
