"""`kohort topic create|list|describe|delete`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kohort.cli.bootstrap import add_bootstrap
from kohort.cli.main import add_json, parse_pairs
from kohort.cli.output import print_json, print_table


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    topic = subparsers.add_parser("topic", help="create, list, describe and delete topics", allow_abbrev=False)
    actions = topic.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create a topic", allow_abbrev=False)
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--partitions", type=int, default=1, metavar="N", help="number of partitions (default 1)")
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

    delete = actions.add_parser("delete", help="delete topics and their records", allow_abbrev=False)
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.set_defaults(run=run_delete)

    for parser in (create, listing, describe, delete):
        add_bootstrap(parser)
        add_json(parser)


def run_create(options: argparse.Namespace) -> int:
    """Create one topic."""
    from kohort import Admin

    configs = parse_pairs(options.config, option="--config")
    with Admin(bootstrap_servers=options.bootstrap) as admin:
        idle = admin.create_topic(options.topic, options.partitions, configs=configs)
    if options.json:
        print_json({"topic": options.topic, "partitions": options.partitions, "created": True, "idle": idle})
    else:
        count = f"{options.partitions} partition{'s' * (options.partitions != 1)}"
        print("; ".join([f"created {options.topic} with {count}", *show_idle(idle)]))
    return 0


def run_list(options: argparse.Namespace) -> int:
    """List topics by name."""
    from kohort import Admin

    with Admin(bootstrap_servers=options.bootstrap) as admin:
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
    """One table a topic."""
    from kohort import Admin

    with Admin(bootstrap_servers=options.bootstrap) as admin:
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


def run_delete(options: argparse.Namespace) -> int:
    """Delete topics."""
    from kohort import Admin

    with Admin(bootstrap_servers=options.bootstrap) as admin:
        admin.delete_topics(options.topics)
    if options.json:
        print_json({"deleted": options.topics})
    else:
        print(f"deleted {', '.join(options.topics)}")
    return 0


def show_idle(idle: Mapping[str, str]) -> list[str]:
    """`not acted on yet: retention.bytes, retention.ms`, one for each of the broker's words."""
    names: dict[str, list[str]] = {}
    for name, words in sorted(idle.items()):
        names.setdefault(words, []).append(name)
    return [f"{words}: {', '.join(named)}" for words, named in sorted(names.items())]
