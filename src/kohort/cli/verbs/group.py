"""`kohort group`: list and describe groups; change their configs, membership, offsets and members.

Laws: `reset-offsets`, `delete-offsets` and `remove-members` change nothing without `--execute`; the output shows the
changes that would be made now.
Source: kafka-consumer-groups and its file of topic,partition,offset; KIP-345 as drafted.
"""

from __future__ import annotations

import argparse
import csv
from typing import TYPE_CHECKING, Any, Final

from kohort.cli import arguments
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import NOTHING_CHANGED, complain, print_json, print_table, say, show, show_plan, text
from kohort.cli.verbs.grouphistory import add_history
from kohort.cli.verbs.groupmove import add_move
from kohort.cli.verbs.why import add_why
from kohort.errors import BrokerError, ConfigError, GroupNotEmptyError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.journal.words import show_clock, show_duration, show_partitions

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.client.admin.results.groups import GroupDescription, MemberDescription
    from kohort.client.admin.results.offsets import ResetTo


#: Bytes of a member's metadata that a table shows.
_SHOWN_BYTES: Final = 60
#: Heading -> field of a member's description, an age in milliseconds that only brokers of kohort send.
_AGES: Final = {
    "HEARD": "last_heard_ms",
    "POLLED": "last_poll_ms",
    "FETCHED": "last_fetch_ms",
    "COMMITTED": "last_commit_ms",
    "SESSION LEFT": "session_left_ms",
}


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    group = subparsers.add_parser(
        "group",
        help="consumer groups: list, describe, history (what happened), why (a rebalance explained), move (partitions "
        "to members), static, dynamic, rebalance, reset-offsets, delete-offsets, remove-members, config, delete",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="groups of both protocols, their members and lag", run=run_list)
    listing.add_argument(
        "--brief", action="store_true", help="without members and lag: one request for any number of groups"
    )

    describe = actions.add_parser("describe", help="members, owners, offsets and lag", run=run_describe)
    describe.add_argument("group", metavar="GROUP")

    config = actions.add_parser(
        "config",
        help="show or change the configs of a group",
        description="Without NAME=VALUE, print every config of the group. NAME=VALUE sets one, and NAME= resets one to "
        "the broker's value. The group need not exist yet. A change takes effect at once.",
        run=run_config,
    )
    config.add_argument("group", metavar="GROUP")
    config.add_argument("changes", metavar="NAME=VALUE", nargs="*")

    history = add_history(actions)
    why = add_why(actions)
    move = add_move(actions)
    membership = add_membership(actions)

    delete = actions.add_parser("delete", help="delete empty groups and their offsets", run=run_delete)
    delete.add_argument("groups", metavar="GROUP", nargs="+")

    changes = (add_reset(actions), add_delete_offsets(actions), add_remove_members(actions))
    add_common(listing, describe, history, why, move, *membership, config, delete, *changes)


def run_list(options: argparse.Namespace) -> int:
    """Print the groups by name; without `--brief` also their number of members and their lag."""
    with open_admin(options) as admin:
        groups: list[Any] = [*(admin.list_groups() if options.brief else admin.summarize_groups())]
    columns = ("GROUP", "TYPE", "STATE", *(() if options.brief else ("MEMBERS", "LAG")))
    rows = [
        (group.group_id, group.group_type, group.state, *(() if options.brief else (group.members, group.lag)))
        for group in groups
    ]
    return show(options, groups, columns, rows, empty="no groups yet")


def run_describe(options: argparse.Namespace) -> int:
    """Print the members of a group, then its committed offsets."""
    with open_admin(options) as admin:
        group = admin.describe_group(options.group)
        offsets = admin.group_offsets(options.group)
        waiting = [] if options.json else _find_short(admin, options.group)
    if options.json:
        print_json({"group": group, "offsets": offsets})
        return 0
    epochs = (
        "" if group.group_epoch is None else f", epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}"
    )
    mode = ", static" if group.is_static else ""
    say(f"{group.group_id}: {group.group_type}{mode}, {group.state}, assignor {group.assignor or '-'}{epochs}")
    if group.assignor_failure:
        say(f"the assignor has failed: {group.assignor_failure}")
    columns, members = _members(group)
    print_table(columns, members, empty="no members")
    if any(row.last_heard_ms is not None for row in group.members):
        say("")
        ages = [(row.member_id, *(getattr(row, name) for name in _AGES.values())) for row in group.members]
        shown = [(name, *(None if age is None else show_duration(age) for age in row)) for name, *row in ages]
        print_table(("MEMBER", *_AGES), shown, empty="")
    say(*_tell_overdue(group), *waiting, "")
    rows = [(row.topic, row.partition, row.committed, row.end_offset, row.lag, row.member_id) for row in offsets]
    print_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"), rows, empty="no offsets committed")
    return 0


def _tell_overdue(group: GroupDescription) -> list[str]:
    """Return a sentence for each stuck member: a member for which others have waited for 10 s."""
    # Imported here, so that the other actions start without metrics.
    from kohort.metrics.cluster import is_stuck

    said = []
    for each in filter(is_stuck, group.members):
        # A classic member has no target assignment yet: the group's leader computes it when all have joined.
        kept = show_partitions(set(each.assignment) - set(each.target))
        still = "joined again" if each.member_epoch is None else f"given up {kept}"
        said.append(f"STUCK: {each.member_id} has not {still} for {show_duration(each.overdue_ms or 0)}")
    return said


def _find_short(admin: Admin, group: str) -> list[str]:
    """Explain why members have fewer partitions than others; empty if the broker explains nothing."""
    try:
        found = admin.explain_group(group)
    except (BrokerError, UnsupportedFeatureError):
        return []
    return [each.sentence for each in found.members if each.is_short]


def _members(group: GroupDescription) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return columns and rows of a group's members.

    Rows of a static group have the instance id, and since when a member is offline. Rows have the published metadata
    if at least one member of the group publishes some.
    """
    publishes = any(row.metadata_size >= 0 for row in group.members)
    columns = ("MEMBER", "CLIENT", "HOST", *(("NAME", "OFFLINE SINCE") if group.is_static else ()))
    rows: list[tuple[object, ...]] = []
    for row in group.members:
        offline_since = "-" if row.offline_since_ms is None else show_clock(row.offline_since_ms)
        names = (row.instance_id, offline_since) if group.is_static else ()
        said = (_show_metadata(row),) if publishes else ()
        held = (row.member_epoch, show_partitions(row.assignment))
        rows.append((row.member_id, row.client_id, row.client_host, *names, *held, *said))
    return (*columns, "EPOCH", "PARTITIONS", *(("PUBLISHES",) if publishes else ())), rows


def _show_metadata(member: MemberDescription) -> str | None:
    """Return a member's published metadata for a table, as text, shortened if it is long."""
    if member.metadata_size < 0:
        return None
    shown = text((member.metadata or b"")[:_SHOWN_BYTES])
    if member.metadata is not None and len(member.metadata) <= _SHOWN_BYTES:
        return shown
    return f"{shown}... ({member.metadata_size} bytes)"


def run_config(options: argparse.Namespace) -> int:
    """Change the given configs, then print every config of the group."""
    changes = arguments.parse_pairs(options.changes, option="config")
    with open_admin(options) as admin:
        if changes:
            admin.alter_group_configs(options.group, {name: value or None for name, value in changes.items()})
        configs = admin.describe_group_configs(options.group)
    rows = [(row.name, row.value, "group" if row.is_own else "broker", row.doc) for row in configs]
    return show(options, configs, ("NAME", "VALUE", "SET BY", "MEANING"), rows, empty="no configs")


def run_delete(options: argparse.Namespace) -> int:
    """Delete groups."""
    with open_admin(options) as admin:
        admin.delete_groups(options.groups)
    _tell(options, {"deleted": options.groups}, f"deleted {', '.join(options.groups)}")
    return 0


def _tell(options: argparse.Namespace, value: object, sentence: str) -> None:
    """Print a value as JSON with `--json`, else the sentence about it."""
    if options.json:
        print_json(value)
    else:
        say(sentence)


_REGISTRATION = "group.registration.timeout.ms"
_EXPANSION = "group.expansion.timeout.ms"


def add_membership(actions: Any) -> tuple[Any, ...]:
    """Add the actions `static`, `dynamic` and `rebalance` to `kohort group`, and return their parsers."""
    static = actions.add_parser(
        "static",
        help="make a group static: offline members keep their partitions, new members are added together",
        description="Make a group static, or change its timeouts. Every member needs a name (group.instance.id). "
        "An offline member keeps its partitions for the registration timeout. New members wait, from the first one "
        "on, for the expansion timeout, and get their partitions in one rebalance.",
        run=run_static,
    )
    static.add_argument("group", metavar="GROUP")
    static.add_argument(
        "--registration-timeout",
        metavar="SPAN",
        type=arguments.parse_duration,
        help="how long an offline member keeps its partitions: 15m, 2h (default: unchanged, at first 30 minutes)",
    )
    static.add_argument(
        "--expansion-timeout",
        metavar="SPAN",
        type=arguments.parse_duration,
        help="how long the first new member waits for others: 30s, 5m (default: unchanged, at first 5 minutes)",
    )

    dynamic = actions.add_parser(
        "dynamic",
        help="make a static group dynamic again",
        description="Undo `kohort group static`. No client has to be changed: instance ids stay, and sessions "
        "begin anew.",
        run=run_dynamic,
    )
    dynamic.add_argument("group", metavar="GROUP")

    rebalance = actions.add_parser(
        "rebalance",
        help="rebalance a static group now",
        description="Rebalance a static group once, among all online members. New members do not wait any longer.",
        run=run_rebalance,
    )
    rebalance.add_argument("group", metavar="GROUP")
    return static, dynamic, rebalance


def run_static(options: argparse.Namespace) -> int:
    """Make the group static, then print its timeouts."""
    with open_admin(options) as admin:
        admin.enable_static_membership(options.group, options.registration_timeout, options.expansion_timeout)
        configs = {config.name: config.value for config in admin.describe_group_configs(options.group)}
    registration_ms, expansion_ms = (int(configs[name] or -1) for name in (_REGISTRATION, _EXPANSION))
    timeouts = {"registration_timeout_ms": registration_ms, "expansion_timeout_ms": expansion_ms}
    sentence = (
        f"{options.group} is static: offline members keep their partitions for {show_duration(registration_ms)}, "
        f"new members wait for {show_duration(expansion_ms)}"
    )
    _tell(options, {"group": options.group, "is_static": True, **timeouts}, sentence)
    return 0


def run_dynamic(options: argparse.Namespace) -> int:
    """Make the group dynamic."""
    with open_admin(options) as admin:
        admin.enable_dynamic_membership(options.group)
    sentence = f"{options.group} is dynamic: members are removed when their sessions time out"
    _tell(options, {"group": options.group, "is_static": False}, sentence)
    return 0


def run_rebalance(options: argparse.Namespace) -> int:
    """Force a rebalance of a static group."""
    with open_admin(options) as admin:
        admin.force_rebalance(options.group)
    sentence = f"{options.group} rebalances now; kohort group why {options.group} shows what moves"
    _tell(options, {"group": options.group, "is_forced": True}, sentence)
    return 0


_MOST_BYTES: Final = 8 * 1024 * 1024


def add_reset(actions: Any) -> Any:
    """Add the action `reset-offsets` to `kohort group`, and return its parser."""
    reset = actions.add_parser(
        "reset-offsets",
        help="set the committed offsets of a group: to a time, an offset, the beginning or the end",
        description="Show the new offset of each partition, and with --execute commit it. The group must "
        "have no members then. Without --topic, all partitions with a committed offset are reset. An offset outside of "
        "the log becomes the nearest one in it.",
        run=run_reset,
    )
    reset.add_argument("group", metavar="GROUP")
    to = reset.add_mutually_exclusive_group(required=True)
    for word in ("earliest", "latest", "current"):
        to.add_argument(f"--to-{word}", dest="to", action="store_const", const=word, help=_HELP[word])
    to.add_argument(
        "--to-offset", dest="to", type=arguments.parse_offset, metavar="N", help="the offset N in every partition"
    )
    to.add_argument("--shift-by", type=int, metavar="N", help="N records forward; back with a minus")
    to.add_argument(
        "--to-datetime",
        dest="to",
        type=arguments.parse_datetime,
        metavar="TIME",
        help="the first record since 2026-01-31T12:00Z",
    )
    to.add_argument(
        "--by-duration", dest="to", type=arguments.parse_duration, metavar="SPAN", help="so long before now: 2h, 7d"
    )
    to.add_argument("--from-file", metavar="FILE", help="lines of topic,partition,offset; -: stdin")
    reset.add_argument(
        "--topic",
        dest="topics",
        action="append",
        type=arguments.parse_topic,
        metavar="TOPIC[:N,N]",
        help="only this; may be repeated",
    )
    _add_execute(reset)
    return reset


_HELP: Final = {
    "earliest": "the beginning of every log",
    "latest": "the end of every log: only new records",
    "current": "the committed offsets; with --json to save them",
}


def add_delete_offsets(actions: Any) -> Any:
    """Add the action `delete-offsets`, and return its parser."""
    delete = actions.add_parser(
        "delete-offsets",
        help="delete the committed offsets of a group for topics that none of its members subscribes to",
        run=run_delete_offsets,
    )
    delete.add_argument("group", metavar="GROUP")
    delete.add_argument(
        "--topic",
        dest="topics",
        action="append",
        required=True,
        type=arguments.parse_topic,
        metavar="TOPIC[:N,N]",
        help="may be repeated",
    )
    _add_execute(delete)
    return delete


def add_remove_members(actions: Any) -> Any:
    """Add the action `remove-members`, and return its parser."""
    remove = actions.add_parser(
        "remove-members",
        help="remove members from a group, static ones by their instance ids",
        description="Remove members as if they had left: at once, not at the end of their sessions. A member that "
        "still runs joins again by itself.",
        run=run_remove_members,
    )
    remove.add_argument("group", metavar="GROUP")
    remove.add_argument("members", metavar="MEMBER", nargs="*", help="member id or group.instance.id")
    remove.add_argument("--all", action="store_true", help="all members")
    remove.add_argument("--reason", metavar="TEXT", help="the reason in the group's history")
    _add_execute(remove)
    return remove


def _add_execute(parser: Any) -> None:
    add_execute(parser)
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)


def run_reset(options: argparse.Namespace) -> int:
    """Show the committed and the new offsets, and commit the new ones with `--execute`."""
    to: ResetTo | None = options.to
    if options.from_file is not None:
        to = read_offsets(options.from_file)
    with open_admin(options) as admin:
        rows = admin.reset_offsets(
            options.group,
            to,
            shift_by=options.shift_by,
            of=None if options.topics is None else arguments.flat_topics(options.topics),
            execute=options.execute,
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
            is_there = any(row.group_id == options.group for row in admin.list_groups())
            members = admin.describe_group(options.group).members if is_there else ()
            if members:
                names = [member.client_id or member.member_id for member in members]
                complain(f"and only when the group has no members: {GroupNotEmptyError(options.group, names)}")
    return 0


def run_delete_offsets(options: argparse.Namespace) -> int:
    """Show the committed offsets to be deleted, and delete them with `--execute`."""
    with open_admin(options) as admin:
        there = {TopicPartition(row.topic, row.partition): row.committed for row in admin.group_offsets(options.group)}
        named = set(arguments.flat_topics(options.topics))
        chosen = {
            each: offset
            for each, offset in there.items()
            if offset is not None and not named.isdisjoint({each, each.topic})
        }
        if options.execute and chosen:
            admin.delete_group_offsets(options.group, chosen)
    rows = [(each.topic, each.partition, offset) for each, offset in chosen.items()]
    offsets = [dict(zip(("topic", "partition", "committed"), row, strict=True)) for row in rows]
    value = {"group": options.group, "executed": options.execute, "offsets": offsets}
    columns = ("TOPIC", "PARTITION", "COMMITTED")
    return show_plan(options, value, columns, rows, empty="the group has no such committed offsets")


def run_remove_members(options: argparse.Namespace) -> int:
    """Show the members to be removed, and remove them with `--execute`."""
    if options.all == bool(options.members):
        raise ConfigError("name the members, or give --all; kohort group describe GROUP shows them")
    with open_admin(options) as admin:
        there = admin.describe_group(options.group).members
        named = set(options.members)
        chosen = [each for each in there if options.all or named & {each.member_id, each.instance_id}]
        if options.execute:
            admin.remove_members(options.group, None if options.all else options.members, reason=options.reason)
        elif missing := named - {name for each in chosen for name in (each.member_id, each.instance_id)}:
            raise ConfigError(f"group {options.group} has no member {min(missing)}; kohort group describe shows them")
    value = {"group": options.group, "executed": options.execute, "members": [each.member_id for each in chosen]}
    rows = [(each.member_id, each.instance_id, each.client_id, each.client_host) for each in chosen]
    return show_plan(options, value, ("MEMBER", "INSTANCE", "CLIENT", "HOST"), rows, empty="no members")


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Read offsets by partition from lines of topic,partition,offset; a heading is skipped.

    Raises:
        ConfigError: a line is malformed, or repeats a partition; the error names the line.
        OSError: the file cannot be opened.
    """
    name, data = arguments.input_name(path), arguments.read_input(path, _MOST_BYTES)
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
