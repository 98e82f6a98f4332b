"""`kohort topic create|list|describe|grow|delete`; verbs about records are in `topicrecords`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.cli.bootstrap import add_bootstrap, connection
from kohort.cli.main import add_json, parse_pairs
from kohort.cli.output import print_json, print_table
from kohort.cli.topicrecords import add_delete_records, add_offsets
from kohort.cli.words import parse_brokers
from kohort.errors import PartlyDoneError


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    topic = subparsers.add_parser(
        "topic",
        help="topics: create, list, describe, grow (more partitions), offsets (at a time), delete-records, delete",
        allow_abbrev=False,
    )
    actions = topic.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics", allow_abbrev=False)
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument("--partitions", type=int, metavar="N", help="number of partitions (default 1)")
    create.add_argument(
        "--replication-factor", type=int, metavar="N", help="copies of each partition (default: the cluster's)"
    )
    _add_assign(create, "the brokers of each partition, the preferred leader first: 1:2,2:3")
    create.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a topic config; repeatable"
    )
    create.set_defaults(run=run_create)

    listing = actions.add_parser("list", help="list topics", allow_abbrev=False)
    listing.add_argument("--internal", action="store_true", help="show the broker's own topics too")
    listing.set_defaults(run=run_list)

    describe = actions.add_parser("describe", help="partitions, offsets and configs of topics", allow_abbrev=False)
    describe.add_argument("topics", metavar="TOPIC", nargs="+")
    describe.set_defaults(run=run_describe)

    grow = actions.add_parser(
        "grow",
        help="give topics more partitions",
        description="Give topics more partitions. They cannot be taken away again, and from then on keys go to other "
        "partitions than before.",
        allow_abbrev=False,
    )
    grow.add_argument("topics", metavar="TOPIC", nargs="+")
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="how many there shall be")
    _add_assign(grow, "the brokers of each new partition, the preferred leader first: 1:2,2:3")
    grow.set_defaults(run=run_grow)

    delete = actions.add_parser("delete", help="delete topics and their records", allow_abbrev=False)
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.set_defaults(run=run_delete)

    for parser in (create, listing, describe, grow, add_offsets(actions), add_delete_records(actions), delete):
        add_bootstrap(parser)
        add_json(parser)


def _add_assign(parser: Any, text: str) -> None:
    parser.add_argument("--assign", type=parse_brokers, metavar="BROKERS", help=text)
    parser.add_argument("--validate-only", action="store_true", help="only say whether it could be done")


def run_create(options: argparse.Namespace) -> int:
    """Create topics; those created are printed also if others could not be."""
    from kohort import Admin, NewTopic

    configs = parse_pairs(options.config, option="--config")
    wanted = [
        NewTopic(name, options.partitions, options.replication_factor, options.assign, configs)
        for name in options.topics
    ]
    with Admin(connection(options)) as admin:
        try:
            _tell_created(options, admin.create_topics(wanted, validate_only=options.validate_only))
        except PartlyDoneError as partly:
            _tell_created(options, partly.done.values())
            raise
    return 0


def _tell_created(options: argparse.Namespace, made: Iterable[Any]) -> None:
    for row in made:
        if options.json:
            told = {"topic": row.name, "partitions": row.partition_count, "replication_factor": row.replication_factor}
            print_json({**told, "created": not options.validate_only, "idle": row.idle})
            continue
        count = f"{row.partition_count} partition{'s' * (row.partition_count != 1)}"
        copies = f", {row.replication_factor} copies of each" if (row.replication_factor or 1) > 1 else ""
        done = "could create" if options.validate_only else "created"
        print("; ".join([f"{done} {row.name} with {count}{copies}", *show_idle(row.idle)]))


def run_list(options: argparse.Namespace) -> int:
    """List topics by name."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        topics = [topic for topic in admin.list_topics() if options.internal or not topic.is_internal]
    topics.sort(key=lambda topic: topic.name)
    if options.json:
        print_json(topics)
    else:
        rows = [(topic.name, topic.partition_count, topic.topic_id) for topic in topics]
        print_table(
            ("TOPIC", "PARTITIONS", "ID"), rows, empty="no topics yet; create one with: kohort topic create NAME"
        )
    return 0


def run_describe(options: argparse.Namespace) -> int:
    """Print one table a topic."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        topics = admin.describe_topics(options.topics)
    if options.json:
        print_json(topics)
        return 0
    for topic in topics:
        configs = ", ".join(
            f"{name}={value} ({topic.idle[name]})" if name in topic.idle else f"{name}={value}"
            for name, value in sorted(topic.configs.items())
        )
        print(f"{topic.name}  id {topic.topic_id}" + (f"  {configs}" if configs else ""))
        if topic.loss_window is not None:
            print(topic.loss_window.told(topic.copies))
        rows = [
            (
                row.partition,
                row.leader,
                row.leader_epoch,
                row.begin_offset,
                row.end_offset,
                row.end_offset - row.begin_offset,
            )
            for row in topic.partitions
        ]
        print_table(("PARTITION", "LEADER", "EPOCH", "BEGIN", "END", "RECORDS"), rows, empty="no partitions")
    return 0


def run_grow(options: argparse.Namespace) -> int:
    """Give topics more partitions; those that got them are told also where others could not."""
    from kohort import Admin

    totals = dict.fromkeys(options.topics, options.partitions)
    brokers = None if options.assign is None else dict.fromkeys(options.topics, options.assign)
    with Admin(connection(options)) as admin:
        try:
            admin.create_partitions(totals, assignments=brokers, validate_only=options.validate_only)
        except PartlyDoneError as partly:
            _tell_grown(options, partly.done)
            raise
    _tell_grown(options, totals)
    return 0


def _tell_grown(options: argparse.Namespace, grown: Iterable[str]) -> None:
    for name in grown:
        if options.json:
            print_json({"topic": name, "partitions": options.partitions, "grown": not options.validate_only})
        elif options.validate_only:
            print(f"{name} could have {options.partitions} partitions")
        else:
            print(f"{name} has {options.partitions} partitions now")


def run_delete(options: argparse.Namespace) -> int:
    """Delete topics."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        try:
            admin.delete_topics(options.topics)
        except PartlyDoneError as partly:
            _tell_deleted(options, list(partly.done))
            raise
    _tell_deleted(options, list(dict.fromkeys(options.topics)))
    return 0


def _tell_deleted(options: argparse.Namespace, deleted: list[str]) -> None:
    if options.json:
        print_json({"deleted": deleted})
    elif deleted:
        print(f"deleted {', '.join(deleted)}")


def show_idle(idle: Mapping[str, str]) -> list[str]:
    """Format idle configs as `not acted on yet: retention.bytes`, one for each of the broker's words."""
    names: dict[str, list[str]] = {}
    for name, words in sorted(idle.items()):
        names.setdefault(words, []).append(name)
    return [f"{words}: {', '.join(named)}" for words, named in sorted(names.items())]
