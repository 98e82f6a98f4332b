"""`kohort group reset-offsets|delete-offsets|remove-members`: show or make changes.

Laws: without `--execute` nothing is changed; the output shows the changes that would be made now.
Source: kafka-consumer-groups (`--reset-offsets`, `--delete-offsets`) and its file of topic,partition,offset.
"""

from __future__ import annotations

import argparse
import csv
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import connection
from kohort.cli.inputs import input_name, read_input
from kohort.cli.main import add_execute
from kohort.cli.output import NOTHING_CHANGED, complain, print_json, print_table
from kohort.cli.words import parse_datetime, parse_duration, parse_offset, parse_topic
from kohort.errors import ConfigError, GroupNotEmptyError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.admin.requests.offsets import ResetTo

_MOST_BYTES: Final = 8 * 1024 * 1024


def add_reset(actions: Any) -> Any:
    """Add `reset-offsets` to the actions of `kohort group`; its parser."""
    reset = actions.add_parser(
        "reset-offsets",
        help="where a group begins anew: at a time, an offset, either end",
        description="Show where the group would begin in each partition, and with --execute set it. The group must "
        "have no members then. Without --topic it is about all that the group has committed. An offset that the log "
        "does not have becomes the nearest that it has.",
        allow_abbrev=False,
    )
    reset.add_argument("group", metavar="GROUP")
    to = reset.add_mutually_exclusive_group(required=True)
    for word in ("earliest", "latest", "current"):
        to.add_argument(f"--to-{word}", dest="to", action="store_const", const=word, help=_HELP[word])
    to.add_argument("--to-offset", dest="to", type=parse_offset, metavar="N", help="the offset N in every partition")
    to.add_argument("--shift-by", type=int, metavar="N", help="N records on; back with a minus")
    to.add_argument(
        "--to-datetime", dest="to", type=parse_datetime, metavar="TIME", help="the first record since 2026-01-31T12:00Z"
    )
    to.add_argument("--by-duration", dest="to", type=parse_duration, metavar="SPAN", help="so long ago: 2h, 7d, PT30M")
    to.add_argument("--from-file", metavar="FILE", help="lines of topic,partition,offset; -: stdin")
    reset.add_argument(
        "--topic",
        dest="topics",
        action="append",
        type=parse_topic,
        metavar="TOPIC[:N,N]",
        help="only this; may be repeated",
    )
    _add_execute(reset)
    reset.set_defaults(run=run_reset)
    return reset


_HELP: Final = {
    "earliest": "the beginning of every log",
    "latest": "the end: only what comes",
    "current": "where it stands; with --json a file to come back to",
}


def add_delete_offsets(actions: Any) -> Any:
    """Add `delete-offsets`; its parser."""
    delete = actions.add_parser(
        "delete-offsets",
        help="forget what a group has committed of topics that none of its members reads",
        allow_abbrev=False,
    )
    delete.add_argument("group", metavar="GROUP")
    delete.add_argument(
        "--topic",
        dest="topics",
        action="append",
        required=True,
        type=parse_topic,
        metavar="TOPIC[:N,N]",
        help="may be repeated",
    )
    _add_execute(delete)
    delete.set_defaults(run=run_delete_offsets)
    return delete


def add_remove_members(actions: Any) -> Any:
    """Add `remove-members`; its parser."""
    remove = actions.add_parser(
        "remove-members",
        help="take members out of a group, static ones by their names",
        description="Take members out as if they had left: at once, not at the end of their sessions. One that is "
        "alive comes back by itself.",
        allow_abbrev=False,
    )
    remove.add_argument("group", metavar="GROUP")
    remove.add_argument("members", metavar="MEMBER", nargs="*", help="member id or group.instance.id")
    remove.add_argument("--all", action="store_true", help="all of them")
    remove.add_argument("--reason", metavar="TEXT", help="for the group's history")
    _add_execute(remove)
    remove.set_defaults(run=run_remove_members)
    return remove


def _add_execute(parser: Any) -> None:
    add_execute(parser)
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)


def run_reset(options: argparse.Namespace) -> int:
    """Show the plan, and carry it out if that is asked for."""
    from kohort import Admin

    to: ResetTo | None = options.to
    if options.from_file is not None:
        to = read_offsets(options.from_file)
    with Admin(connection(options)) as admin:
        rows = admin.reset_offsets(
            options.group, to, shift_by=options.shift_by, of=_chosen(options.topics), execute=options.execute
        )
        if options.json:
            print_json({"group": options.group, "executed": options.execute, "offsets": rows})
            return 0
        shown = [
            (row.topic, row.partition, row.committed, row.offset, "" if row.wanted == row.offset else row.wanted)
            for row in rows
        ]
        print_table(("TOPIC", "PARTITION", "COMMITTED", "NEW", "WANTED"), shown, empty="nothing to reset")
        if not options.execute:
            complain(NOTHING_CHANGED)
            members = admin.describe_group(options.group).members if _is_there(admin, options.group) else ()
            if members:
                names = [member.client_id or member.member_id for member in members]
                complain(f"and not before its members are gone: {GroupNotEmptyError(options.group, names)}")
    return 0


def run_delete_offsets(options: argparse.Namespace) -> int:
    """Show the committed offsets to be deleted, and delete them with `--execute`."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        there = {TopicPartition(row.topic, row.partition): row.committed for row in admin.group_offsets(options.group)}
        chosen = {
            each: offset
            for each, offset in there.items()
            if offset is not None and any(_covers(topic, numbers, each) for topic, numbers in options.topics)
        }
        if options.execute and chosen:
            admin.delete_group_offsets(options.group, chosen)
    if options.json:
        rows = [{"topic": each.topic, "partition": each.partition, "committed": at} for each, at in chosen.items()]
        print_json({"group": options.group, "executed": options.execute, "offsets": rows})
        return 0
    table = [(each.topic, each.partition, offset) for each, offset in chosen.items()]
    print_table(("TOPIC", "PARTITION", "COMMITTED"), table, empty="the group has committed nothing of that")
    if chosen and not options.execute:
        complain(NOTHING_CHANGED)
    return 0


def run_remove_members(options: argparse.Namespace) -> int:
    """Show the members to be removed, and remove them with `--execute`."""
    from kohort import Admin

    if options.all == bool(options.members):
        raise ConfigError("members are named, or --all is given; kohort group describe GROUP shows them")
    with Admin(connection(options)) as admin:
        there = admin.describe_group(options.group).members
        named = set(options.members)
        chosen = [each for each in there if options.all or named & {each.member_id, each.instance_id}]
        if options.execute:
            admin.remove_members(options.group, None if options.all else options.members, reason=options.reason)
        elif named - {name for each in chosen for name in (each.member_id, each.instance_id)}:
            missing = min(named - {name for each in chosen for name in (each.member_id, each.instance_id) if name})
            raise ConfigError(f"group {options.group} has no member {missing}; kohort group describe shows them")
    if options.json:
        print_json(
            {"group": options.group, "executed": options.execute, "members": [each.member_id for each in chosen]}
        )
        return 0
    rows = [(each.member_id, each.instance_id, each.client_id, each.client_host) for each in chosen]
    print_table(("MEMBER", "INSTANCE", "CLIENT", "HOST"), rows, empty="no members")
    if chosen and not options.execute:
        complain(NOTHING_CHANGED)
    return 0


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Read offsets by partition from lines of topic,partition,offset; a heading is skipped.

    Raises:
        ConfigError: what is wrong, and in which line.
        OSError: it cannot be opened.
    """
    name, data = input_name(path), read_input(path, _MOST_BYTES)
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(data.decode("utf-8-sig", errors="replace").splitlines()), 1):
        words = [word.strip() for word in row]
        if not any(words) or (number == 1 and words[:2] == ["topic", "partition"]):
            continue
        if len(words) != 3 or not words[0] or not all(word.isdecimal() and len(word) < 20 for word in words[1:]):
            raise ConfigError(f"{name}, line {number}: topic,partition,offset is expected, as in orders,0,17")
        partition = TopicPartition(words[0], int(words[1]))
        if partition in found:
            raise ConfigError(f"{name}, line {number}: {partition} is named twice; name it once")
        found[partition] = int(words[2])
    if not found:
        raise ConfigError(f"{name} has no line of topic,partition,offset")
    return found


def _is_there(admin: Any, group: str) -> bool:
    return any(row.group_id == group for row in admin.list_groups())


def _covers(topic: str, numbers: tuple[int, ...], partition: TopicPartition) -> bool:
    return topic == partition.topic and (not numbers or partition.partition in numbers)


def _chosen(topics: list[tuple[str, tuple[int, ...]]] | None) -> list[str | TopicPartition] | None:
    if topics is None:
        return None
    chosen: list[str | TopicPartition] = []
    for topic, numbers in topics:
        chosen += [TopicPartition(topic, number) for number in numbers] if numbers else [topic]
    return chosen
