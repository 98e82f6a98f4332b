"""`kohort topic`: create, list, describe, grow and delete topics; show offsets, delete old records.

Laws: without `--execute` no record is deleted; the output shows the records that would be deleted now.
Source: kafka-topics, kafka-get-offsets (`--time`), kafka-delete-records.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kohort.cli import arguments
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import complain, print_json, print_table, show
from kohort.errors import BrokerError, PartlyDoneError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.admin.results.topics import OffsetAt


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    topic = subparsers.add_parser(
        "topic",
        help="topics: create, list, describe, grow (more partitions), offsets (at a time), delete-records, delete",
    )
    actions = topic.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics", run=run_create)
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument("--partitions", type=int, metavar="N", help="number of partitions (default 1)")
    create.add_argument(
        "--replication-factor", type=int, metavar="N", help="copies of each partition (default: the cluster's)"
    )
    _add_assign(create, "the brokers of each partition, the preferred leader first: 1:2,2:3")
    create.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a topic config; repeatable"
    )

    listing = actions.add_parser("list", help="list topics", run=run_list)
    listing.add_argument("--internal", action="store_true", help="show the broker's own topics too")

    describe = actions.add_parser("describe", help="partitions, offsets and configs of topics", run=run_describe)
    describe.add_argument("topics", metavar="TOPIC", nargs="+")

    grow = actions.add_parser(
        "grow",
        help="give topics more partitions",
        description="Give topics more partitions. They cannot be removed again, and from then on keys map to other "
        "partitions than before.",
        run=run_grow,
    )
    grow.add_argument("topics", metavar="TOPIC", nargs="+")
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="the new number of partitions")
    _add_assign(grow, "the brokers of each new partition, the preferred leader first: 1:2,2:3")

    delete = actions.add_parser("delete", help="delete topics and their records", run=run_delete)
    delete.add_argument("topics", metavar="TOPIC", nargs="+")

    add_common(create, listing, describe, grow, add_offsets(actions), add_delete_records(actions), delete)


def _add_assign(parser: Any, text: str) -> None:
    parser.add_argument("--assign", type=arguments.parse_brokers, metavar="BROKERS", help=text)
    parser.add_argument("--validate-only", action="store_true", help="only check whether the change is possible")


def run_create(options: argparse.Namespace) -> int:
    """Create topics, and print the created ones even if others could not be created."""
    from kohort import NewTopic

    configs = arguments.parse_pairs(options.config, option="--config")
    wanted = [
        NewTopic(name, options.partitions, options.replication_factor, options.assign, configs)
        for name in options.topics
    ]
    with open_admin(options) as admin:
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
    """Print the topics by name."""
    with open_admin(options) as admin:
        topics = [topic for topic in admin.list_topics() if options.internal or not topic.is_internal]
    topics.sort(key=lambda topic: topic.name)
    rows = [(topic.name, topic.partition_count, topic.topic_id) for topic in topics]
    empty = "no topics yet; create one with: kohort topic create NAME"
    return show(options, topics, ("TOPIC", "PARTITIONS", "ID"), rows, empty=empty)


def run_describe(options: argparse.Namespace) -> int:
    """Print a table of partitions for each topic."""
    with open_admin(options) as admin:
        topics = admin.describe_topics(options.topics)
        opened = [] if options.json else _open_transactions(admin, topics)
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
        numbers = attrgetter("partition", "leader", "leader_epoch", "begin_offset", "end_offset")
        rows = [(*numbers(row), row.end_offset - row.begin_offset) for row in topic.partitions]
        print_table(("PARTITION", "LEADER", "EPOCH", "BEGIN", "END", "RECORDS"), rows, empty="no partitions")
        for each in opened:
            if each.topic == topic.name:
                print(
                    f"partition {each.partition}: readers of committed records wait at offset "
                    f"{each.transaction_start_offset} for a transaction of producer {each.producer_id}"
                )
    return 0


def _open_transactions(admin: Any, topics: Iterable[Any]) -> list[Any]:
    """Return the oldest open transaction of each partition that has one, where the broker may tell them."""
    partitions = [(topic.name, row.partition) for topic in topics for row in topic.partitions]
    try:
        producers = admin.describe_producers(partitions)
    except (BrokerError, PartlyDoneError):
        # A broker without transactions, or a user without the right to read the topic.
        return []
    oldest: dict[tuple[str, int], Any] = {}
    for each in producers:
        start, known = each.transaction_start_offset, oldest.get((each.topic, each.partition))
        if start is not None and (known is None or start < known.transaction_start_offset):
            oldest[each.topic, each.partition] = each
    return list(oldest.values())


def run_grow(options: argparse.Namespace) -> int:
    """Add partitions to topics, and print the changed topics even if others could not be changed."""
    totals = dict.fromkeys(options.topics, options.partitions)
    brokers = None if options.assign is None else dict.fromkeys(options.topics, options.assign)
    with open_admin(options) as admin:
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
    with open_admin(options) as admin:
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
    """Format configs without effect as `not acted on yet: retention.bytes`, a text for each reason."""
    names: dict[str, list[str]] = {}
    for name, words in sorted(idle.items()):
        names.setdefault(words, []).append(name)
    return [f"{words}: {', '.join(named)}" for words, named in sorted(names.items())]


_HINT: Final = "nothing is deleted yet: --execute does it, and it cannot be undone"


def add_offsets(actions: Any) -> Any:
    """Add the action `offsets` to `kohort topic`, and return its parser."""
    offsets = actions.add_parser("offsets", help="offsets at a time, the beginning or the end", run=run_offsets)
    offsets.add_argument("topics", metavar="TOPIC", nargs="+", type=arguments.parse_topic, help="orders, or orders:0,2")
    offsets.add_argument(
        "--at",
        type=_at,
        default="latest",
        metavar="WHEN",
        help="latest (default), earliest, max-timestamp, earliest-local, latest-tiered; the first record since "
        "2026-01-31T12:00Z, or of the last 2h",
    )
    return offsets


def add_delete_records(actions: Any) -> Any:
    """Add the action `delete-records`, and return its parser."""
    delete = actions.add_parser(
        "delete-records",
        help="delete the oldest records of partitions",
        description="Show the new first offset of each partition, and with --execute delete all records before it. An "
        "offset outside of the log becomes the nearest one in it.",
        run=run_delete_records,
    )
    delete.add_argument("topics", metavar="TOPIC", nargs="+", type=arguments.parse_topic, help="orders, or orders:0,2")
    before = delete.add_mutually_exclusive_group(required=True)
    before.add_argument("--before-offset", type=arguments.parse_offset, metavar="N", help="records below the offset N")
    before.add_argument(
        "--before-datetime",
        dest="before",
        type=arguments.parse_datetime,
        metavar="TIME",
        help="older than 2026-01-31T12:00Z",
    )
    before.add_argument(
        "--older-than",
        dest="before",
        type=arguments.parse_duration,
        metavar="SPAN",
        help="older than 2h, 7d, PT30M",
    )
    before.add_argument("--all", dest="before", action="store_const", const="latest", help="all records")
    add_execute(delete, done="deleted")
    delete.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)
    return delete


def run_offsets(options: argparse.Namespace) -> int:
    """Print the offset of each partition at the chosen time, with the timestamp of its record."""
    with open_admin(options) as admin:
        found = admin.list_offsets(arguments.flat_topics(options.topics), options.at)
    rows = [(each.topic, each.partition, row.offset, row.timestamp) for each, row in sorted(found.items())]
    value = [dict(zip(("topic", "partition", "offset", "timestamp"), row, strict=True)) for row in rows]
    table = [(*row[:3], None if row[3] is None else _shown(row[3])) for row in rows]
    return show(options, value, ("TOPIC", "PARTITION", "OFFSET", "TIME"), table, empty="no partitions")


def run_delete_records(options: argparse.Namespace) -> int:
    """Show the records to be deleted, and delete them with `--execute`."""
    with open_admin(options) as admin:
        places = arguments.flat_topics(options.topics)
        begins = {each: row.offset or 0 for each, row in admin.list_offsets(places, "earliest").items()}
        ends = {each: row.offset or 0 for each, row in admin.list_offsets([*begins]).items()}
        wanted: dict[TopicPartition, int | None] = dict.fromkeys(begins, options.before_offset)
        if options.before is not None:
            wanted = {each: row.offset for each, row in admin.list_offsets([*begins], options.before).items()}
        cuts: dict[TopicPartition, int] = {}
        for each, end in ends.items():
            cut = wanted[each]
            # `None`: no record is that young, so all of them are deleted.
            cuts[each] = end if cut is None else min(max(cut, begins[each]), end)
        if options.execute:
            admin.delete_records({each: cut for each, cut in cuts.items() if cut > begins[each]})
    rows = [
        (each.topic, each.partition, begins[each], cut, ends[each], cut - begins[each])
        for each, cut in sorted(cuts.items())
    ]
    names = ("topic", "partition", "begin", "new_begin", "end", "records")
    value = {"executed": options.execute, "partitions": [dict(zip(names, row, strict=True)) for row in rows]}
    show(options, value, ("TOPIC", "PARTITION", "BEGIN", "NEW", "END", "RECORDS"), rows, empty="no partitions")
    if not options.execute and not options.json:
        complain(_HINT)
    return 0


def _at(text: str) -> OffsetAt:
    from kohort.client.admin.results.topics import WORDS

    for word in WORDS:
        if word == text:
            return word
    if text.isdecimal():
        return arguments.parse_offset(text)
    if (time := arguments.parse_time(text)) is not None:
        return time
    raise argparse.ArgumentTypeError(f"{text!r} is no time: {', '.join(WORDS)}, 2h and 2026-01-31T12:00Z are")


def _shown(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
