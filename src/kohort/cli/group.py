"""`kohort group`: list, describe, config and delete; its other actions have modules of their own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import add_bootstrap, connection
from kohort.cli.grouphistory import add_history
from kohort.cli.groupmembership import add_membership
from kohort.cli.groupmove import add_move
from kohort.cli.groupreset import add_delete_offsets, add_remove_members, add_reset
from kohort.cli.main import add_json, parse_pairs
from kohort.cli.output import print_json, print_table, text
from kohort.cli.why import add_why
from kohort.errors import BrokerError, UnsupportedFeatureError
from kohort.journal.words import show_clock, show_partitions

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.client.admin.results.groups import GroupDescription, MemberDescription

#: Bytes of a member's metadata that a table shows.
_SHOWN_BYTES: Final = 60


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    group = subparsers.add_parser(
        "group",
        help="consumer groups: list, describe, history (what happened), why (a rebalance explained), move (partitions "
        "to members), static, dynamic, rebalance, reset-offsets, delete-offsets, remove-members, config, delete",
        allow_abbrev=False,
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="groups of both protocols, their members and lag", allow_abbrev=False)
    listing.add_argument(
        "--brief", action="store_true", help="without members and lag: one request, however many groups"
    )
    listing.set_defaults(run=run_list)

    describe = actions.add_parser("describe", help="members, who owns what, offsets and lag", allow_abbrev=False)
    describe.add_argument("group", metavar="GROUP")
    describe.set_defaults(run=run_describe)

    config = actions.add_parser(
        "config",
        help="show or change what a group is set to",
        description="Without NAME=VALUE, show every config of the group; with them, set those. NAME= takes one back: "
        "the broker's value counts again. The group need not exist yet; a change is in effect at once.",
        allow_abbrev=False,
    )
    config.add_argument("group", metavar="GROUP")
    config.add_argument("changes", metavar="NAME=VALUE", nargs="*")
    config.set_defaults(run=run_config)

    history = add_history(actions)
    why = add_why(actions)
    move = add_move(actions)
    membership = add_membership(actions)

    delete = actions.add_parser("delete", help="delete empty groups and their offsets", allow_abbrev=False)
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.set_defaults(run=run_delete)

    changes = (add_reset(actions), add_delete_offsets(actions), add_remove_members(actions))
    for parser in (listing, describe, history, why, move, *membership, config, delete, *changes):
        add_bootstrap(parser)
        add_json(parser)


def run_list(options: argparse.Namespace) -> int:
    """List groups by name."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        groups: list[Any] = [*(admin.list_groups() if options.brief else admin.summarize_groups())]
    if options.json:
        print_json(groups)
        return 0
    columns = ("GROUP", "TYPE", "STATE", *(() if options.brief else ("MEMBERS", "LAG")))
    rows = [
        (group.group_id, group.group_type, group.state, *(() if options.brief else (group.members, group.lag)))
        for group in groups
    ]
    print_table(columns, rows, empty="no groups yet")
    return 0


def run_describe(options: argparse.Namespace) -> int:
    """Print the members, then the offsets."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
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
    print(f"{group.group_id}: {group.group_type}{mode}, {group.state}, assignor {group.assignor or '-'}{epochs}")
    if group.assignor_failure:
        print(f"the assignor has failed: {group.assignor_failure}")
    columns, members = _members(group)
    print_table(columns, members, empty="no members")
    for line in waiting:
        print(line)
    print()
    rows = [(row.topic, row.partition, row.committed, row.end_offset, row.lag, row.member_id) for row in offsets]
    print_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"), rows, empty="no offsets committed")
    return 0


def _find_short(admin: Admin, group: str) -> list[str]:
    """Explain why members have less than others; nothing if the broker keeps no history."""
    try:
        found = admin.explain_group(group)
    except (BrokerError, UnsupportedFeatureError):
        return []
    return [each.sentence for each in found.members if each.is_short]


def _members(group: GroupDescription) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return columns and rows of a group's members.

    A static group shows names and offline members. Metadata is shown where a member publishes some.
    """
    own: list[tuple[object, ...]] = [(row.member_id, row.client_id, row.client_host) for row in group.members]
    names: list[tuple[object, ...]] = [
        (row.instance_id, "-" if row.offline_since_ms is None else show_clock(row.offline_since_ms))
        for row in group.members
    ]
    held: list[tuple[object, ...]] = [(row.member_epoch, show_partitions(row.assignment)) for row in group.members]
    said: list[tuple[object, ...]] = [(_show_metadata(row),) for row in group.members]
    publishes = any(row.metadata_size >= 0 for row in group.members)
    columns = ("MEMBER", "CLIENT", "HOST", *(("NAME", "OFFLINE SINCE") if group.is_static else ()))
    rows = [
        (*a, *(b if group.is_static else ()), *c, *(d if publishes else ()))
        for a, b, c, d in zip(own, names, held, said, strict=True)
    ]
    return (*columns, "EPOCH", "PARTITIONS", *(("PUBLISHES",) if publishes else ())), rows


def _show_metadata(member: MemberDescription) -> str | None:
    """Return a member's published metadata for a table, as text and cut if it is long."""
    if member.metadata_size < 0:
        return None
    shown = text((member.metadata or b"")[:_SHOWN_BYTES])
    if member.metadata is not None and len(member.metadata) <= _SHOWN_BYTES:
        return shown
    return f"{shown}... ({member.metadata_size} bytes)"


def run_config(options: argparse.Namespace) -> int:
    """Change configs if some are given, then show them all."""
    from kohort import Admin

    changes = parse_pairs(options.changes, option="config")
    with Admin(connection(options)) as admin:
        if changes:
            admin.alter_group_configs(options.group, {name: value or None for name, value in changes.items()})
        configs = admin.describe_group_configs(options.group)
    if options.json:
        print_json(configs)
    else:
        rows = [(row.name, row.value, "group" if row.is_own else "broker", row.doc) for row in configs]
        print_table(("NAME", "VALUE", "SET BY", "MEANING"), rows, empty="no configs")
    return 0


def run_delete(options: argparse.Namespace) -> int:
    """Delete groups."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        admin.delete_groups(options.groups)
    if options.json:
        print_json({"deleted": options.groups})
    else:
        print(f"deleted {', '.join(options.groups)}")
    return 0
