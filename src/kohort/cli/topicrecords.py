"""`kohort topic offsets|delete-records`: where records stand, and the oldest of them that have to go.

Laws: without `--execute` nothing is deleted; what is shown is what would be deleted now.
Source: kafka-get-offsets (`--time`), kafka-delete-records.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import connection
from kohort.cli.main import add_execute
from kohort.cli.output import complain, print_json, print_table
from kohort.cli.words import parse_datetime, parse_duration, parse_offset, parse_time, parse_topic
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.admin.requests.records import OffsetAt

_HINT: Final = "nothing is deleted yet: --execute does it, and nobody can undo it"


def add_offsets(actions: Any) -> Any:
    """Add `offsets` to the actions of `kohort topic`; its parser."""
    offsets = actions.add_parser("offsets", help="offsets of topics at a time or at either end", allow_abbrev=False)
    offsets.add_argument("topics", metavar="TOPIC", nargs="+", type=parse_topic, help="orders, or orders:0,2")
    offsets.add_argument(
        "--at",
        type=_at,
        default="latest",
        metavar="WHEN",
        help="latest (default), earliest, max-timestamp, earliest-local, latest-tiered; the first record since "
        "2026-01-31T12:00Z, or of the last 2h",
    )
    offsets.set_defaults(run=run_offsets)
    return offsets


def add_delete_records(actions: Any) -> Any:
    """Add `delete-records`; its parser."""
    delete = actions.add_parser(
        "delete-records",
        help="delete the oldest records of partitions",
        description="Show where partitions would begin, and with --execute delete what is before that, for good. An "
        "offset that a partition does not have becomes the nearest that it has.",
        allow_abbrev=False,
    )
    delete.add_argument("topics", metavar="TOPIC", nargs="+", type=parse_topic, help="orders, or orders:0,2")
    before = delete.add_mutually_exclusive_group(required=True)
    before.add_argument("--before-offset", type=parse_offset, metavar="N", help="records below the offset N")
    before.add_argument(
        "--before-datetime", dest="before", type=parse_datetime, metavar="TIME", help="older than 2026-01-31T12:00Z"
    )
    before.add_argument(
        "--older-than", dest="before", type=parse_duration, metavar="SPAN", help="older than so long: 2h, 7d, PT30M"
    )
    before.add_argument("--all", dest="before", action="store_const", const="latest", help="all that are there")
    add_execute(delete, done="deleted")
    delete.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)
    delete.set_defaults(run=run_delete_records)
    return delete


def run_offsets(options: argparse.Namespace) -> int:
    """Print a row for each partition."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        found = admin.list_offsets(_places(options.topics), options.at)
    rows = [(each.topic, each.partition, row.offset, row.timestamp) for each, row in sorted(found.items())]
    if options.json:
        names = ("topic", "partition", "offset", "timestamp")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return 0
    table = [(*row[:3], None if row[3] is None else _shown(row[3])) for row in rows]
    print_table(("TOPIC", "PARTITION", "OFFSET", "TIME"), table, empty="no partitions")
    return 0


def run_delete_records(options: argparse.Namespace) -> int:
    """Show the records to be deleted, and delete them with `--execute`."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        places = _places(options.topics)
        begins = {each: row.offset or 0 for each, row in admin.list_offsets(places, "earliest").items()}
        ends = {each: row.offset or 0 for each, row in admin.list_offsets([*begins]).items()}
        wanted: dict[TopicPartition, int | None] = dict.fromkeys(begins, options.before_offset)
        if options.before is not None:
            wanted = {each: row.offset for each, row in admin.list_offsets([*begins], options.before).items()}
        cuts: dict[TopicPartition, int] = {}
        for each, end in ends.items():
            cut = wanted[each]
            # No record is as young: all are older.
            cuts[each] = end if cut is None else min(max(cut, begins[each]), end)
        if options.execute:
            admin.delete_records({each: cut for each, cut in cuts.items() if cut > begins[each]})
        _tell_cuts(options, begins, cuts, ends)
        if not options.execute and not options.json:
            complain(_HINT)
    return 0


def _tell_cuts(
    options: argparse.Namespace,
    begins: dict[TopicPartition, int],
    cuts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> None:
    rows = [
        (each.topic, each.partition, begins[each], cut, ends[each], cut - begins[each])
        for each, cut in sorted(cuts.items())
    ]
    if options.json:
        names = ("topic", "partition", "begin", "new_begin", "end", "records")
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"executed": options.execute, "partitions": partitions})
    else:
        print_table(("TOPIC", "PARTITION", "BEGIN", "NEW", "END", "RECORDS"), rows, empty="no partitions")


def _places(topics: Sequence[tuple[str, tuple[int, ...]]]) -> list[str | TopicPartition]:
    return [
        each
        for topic, numbers in topics
        for each in ([TopicPartition(topic, number) for number in numbers] if numbers else [topic])
    ]


def _at(text: str) -> OffsetAt:
    from kohort.client.admin.requests.records import WORDS

    for word in WORDS:
        if word == text:
            return word
    if text.isdecimal():
        return parse_offset(text)
    if (time := parse_time(text)) is not None:
        return time
    raise argparse.ArgumentTypeError(f"{text!r} is no time: {', '.join(WORDS)}, 2h and 2026-01-31T12:00Z are")


def _shown(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
