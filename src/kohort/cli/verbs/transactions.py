"""`kohort transactions list|describe|hanging|abort|fence`: open transactions, and their end.

Laws: a verb that ends a transaction shows it first, and ends it with `--execute`.
Source: kafka-transactions; KIP-664.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import NOTHING_CHANGED, complain, print_json, print_table
from kohort.cli.verbs.why import read_partition
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.journal.words import show_partitions

if TYPE_CHECKING:
    from kohort.client.admin.results.transactions import ProducerDescription


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    transactions = subparsers.add_parser("transactions", help="transactions: what is open, what hangs, and its end")
    actions = transactions.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="what the cluster's coordinators know", run=run_list)
    listing.add_argument("--state", action="append", metavar="STATE", help="only Ongoing, ...; may be repeated")
    listing.add_argument("--longer-than", type=int, metavar="MS", help="only those that are open for longer")

    describe = actions.add_parser("describe", help="partitions, producers and times of some", run=run_describe)
    describe.add_argument("ids", metavar="ID", nargs="+", help="a transactional id")

    hanging = actions.add_parser(
        "hanging", help="what is open in a topic though no coordinator knows of it", run=run_hanging
    )
    hanging.add_argument("topic", metavar="TOPIC")
    hanging.add_argument(
        "--older-than", type=int, default=15 * 60 * 1000, metavar="MS", help="only those silent for so long (900000)"
    )

    abort = actions.add_parser("abort", help="end one that hangs, in one partition", run=run_abort)
    abort.add_argument("partition", metavar="TOPIC-N", type=read_partition)
    abort.add_argument("--start-offset", type=int, required=True, metavar="N", help="where it begins there")
    add_execute(abort)

    fence = actions.add_parser("fence", help="take ids from their producers; what is open is aborted", run=run_fence)
    fence.add_argument("ids", metavar="ID", nargs="+", help="a transactional id")
    add_execute(fence)

    add_common(listing, describe, hanging, abort, fence)


def run_list(options: argparse.Namespace) -> int:
    """Print the transactions by transactional id."""
    with open_admin(options) as admin:
        found = admin.list_transactions(options.state, running_longer_than_ms=options.longer_than)
    if options.json:
        print_json(found)
    else:
        rows = [(row.transactional_id, row.producer_id, row.state) for row in found]
        print_table(("ID", "PRODUCER", "STATE"), rows, empty="no transactions")
    return 0


def run_describe(options: argparse.Namespace) -> int:
    """Print the transactions in the order asked."""
    with open_admin(options) as admin:
        found = admin.describe_transactions(options.ids)
    _show(options, found)
    return 0


def run_fence(options: argparse.Namespace) -> int:
    """Show the producers to be fenced, and fence them with `--execute`."""
    with open_admin(options) as admin:
        found = admin.describe_transactions(options.ids)
        if options.execute:
            admin.fence_producers(options.ids)
    _show(options, found)
    if not options.execute and not options.json:
        complain(NOTHING_CHANGED)
    return 0


def _show(options: argparse.Namespace, found: list[Any]) -> None:
    if options.json:
        print_json(found)
        return
    rows = [
        (row.transactional_id, row.state, row.producer_id, row.producer_epoch, show_partitions(row.partitions))
        for row in found
    ]
    print_table(("ID", "STATE", "PRODUCER", "EPOCH", "PARTITIONS"), rows, empty="no transactions")


def run_hanging(options: argparse.Namespace) -> int:
    """Print hanging transactions by partition."""
    with open_admin(options) as admin:
        (topic,) = admin.describe_topics([options.topic])
        partitions = [TopicPartition(topic.name, row.partition) for row in topic.partitions]
        found = admin.find_hanging_transactions(partitions, older_than_ms=options.older_than)
    if options.json:
        print_json(found)
        return 0
    _print_producers(found, empty="nothing hangs")
    return 0


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
    if options.json:
        print_json({"executed": options.execute, "producers": chosen})
        return 0
    _print_producers(chosen, empty="")
    if not options.execute:
        complain(NOTHING_CHANGED)
    return 0


def _print_producers(found: Sequence[ProducerDescription], *, empty: str) -> None:
    rows = [
        (row.topic, row.partition, row.producer_id, row.producer_epoch, row.transaction_start_offset) for row in found
    ]
    print_table(("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "BEGINS AT"), rows, empty=empty)
