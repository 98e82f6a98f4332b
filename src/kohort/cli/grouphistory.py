"""`kohort group history GROUP`: the events of a group and their reasons, a sentence a row, day by day.

Laws: with `--json` every field of every row is there, as the broker keeps it. A group that does not exist is an error;
the remaining history of a deleted one is shown with `--deleted`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kohort.cli.bootstrap import connection
from kohort.cli.historysentences import fold
from kohort.cli.output import complain, plain, print_json, print_table
from kohort.errors import BrokerError, ErrorCode, KohortError
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.words import MemberNames, show_clock

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.client.admin.results.groups import GroupHistory, HistoryEvent

#: Seconds between two looks at a history that is followed.
FOLLOW_INTERVAL_S = 0.5
#: The row with which a group ends.
_END = "group_forgotten"


def add_history(actions: Any) -> Any:
    """Add the action to those of `kohort group`; its parser."""
    history = actions.add_parser(
        "history",
        help="what happened to a group, and why",
        description="What came in, what the coordinator decided and what that changed, oldest first. CAUSE numbers the "
        "input that led to a row; 13<12: as part of the rebalance that input 12 began. Members have short names: "
        "their instance id, their client id, or it with the beginning of the member id.",
        allow_abbrev=False,
    )
    history.add_argument("group", metavar="GROUP")
    history.add_argument(
        "--follow", action="store_true", help="stay and show what comes, until Ctrl-C; with --json a row per line"
    )
    history.add_argument("--all", action="store_true", help="also what lies far back in the topic __group_journal")
    history.add_argument("--deleted", action="store_true", help="show what is still known of a group that is gone")
    history.set_defaults(run=run_history)
    return history


def run_history(options: argparse.Namespace) -> int:
    """Print rows, oldest first; each names the input that caused it and that of its rebalance."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        found = admin.group_history(options.group, whole=options.all)
        if options.follow:
            _follow(admin, found, options)
        check_is_there(admin, found, is_end_welcome=options.deleted)
        if options.json:
            print_json(found)
            return 0
        empty = f"nothing is known to have happened to {found.group_id}"
        _print_rows(found.events, MemberNames(), empty=empty)
        if any(event.cause != event.origin for event in found.events):
            print("CAUSE a<b: input a, as part of the rebalance that input b began")
        if found.counts:
            print("counted: " + ", ".join(f"{name} {count}" for name, count in found.counts.items()))
        if found.has_older:
            print("older rows are in the topic __group_journal: --all shows them, too")
        elif not found.is_complete:
            print("older rows are gone: " + where_rows_are_kept(admin))
    return 0


def where_rows_are_kept(admin: Admin) -> str:
    """Explain why the oldest rows of a history are gone."""
    if any(topic.name == JOURNAL_TOPIC for topic in admin.list_topics()):
        return "the broker keeps journal.topic.retention.ms and journal.topic.retention.bytes of them"
    return "without a data directory the broker keeps journal.ring.rows of all groups together"


def _follow(admin: Admin, found: GroupHistory, options: argparse.Namespace) -> None:
    """Show the history so far and then new events, until Ctrl-C."""
    if not found.events:
        complain(f"nothing is known of {options.group} yet")
    names = MemberNames()
    last, day = 0, ""
    while True:
        if found.events:
            if options.json:
                for event in found.events:
                    print_json({"group_id": found.group_id, **plain(event)})
            else:
                day = _print_rows(found.events, names, empty="", has_heading=last == 0, day=day)
            last = found.events[-1].sequence
        time.sleep(FOLLOW_INTERVAL_S)
        found = admin.group_history(options.group, after=last)


def check_is_there(admin: Admin, found: GroupHistory, *, is_end_welcome: bool) -> None:
    """Raise an error if the group does not exist."""
    group = found.group_id
    if any(row.group_id == group for row in admin.list_groups()):
        return
    ended = next((event for event in reversed(found.events) if event.event == _END), None)
    if ended is not None and not is_end_welcome:
        gone = show_clock(ended.time_ms)
        raise KohortError(f"there is no group {group} since {gone}; --deleted shows what was before")
    # Refused requests alone are no history: such a group has never existed.
    if all(event.event == "refused" for event in found.events):
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")


def _print_rows(
    events: Sequence[HistoryEvent], names: MemberNames, *, empty: str, has_heading: bool = True, day: str = ""
) -> str:
    """Print rows, each day's under its date, and return the last row's day.

    `day`: that of the latest row before.
    """
    names.learn(events)
    rows = []
    for event, said in fold(events, names):
        before, day = day, f"{datetime.fromtimestamp(event.time_ms / 1000):%Y-%m-%d}"
        if day != before:
            rows.append((day, "", ""))
        rows.append((show_clock(event.time_ms), _cause(event), said))
    print_table(("TIME", "CAUSE", "WHAT HAPPENED"), rows, empty=empty, has_heading=has_heading)
    return day


def _cause(event: HistoryEvent) -> str:
    return str(event.cause) if event.cause == event.origin else f"{event.cause}<{event.origin}"
