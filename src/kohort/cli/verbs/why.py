"""`kohort group why GROUP`: a group's rebalance, partition or state, explained in sentences.

Laws: every sentence comes from the broker's history of the group, never from clients. `--json` prints all the values
behind the sentences.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.output import print_json, say
from kohort.cli.verbs.grouphistory import where_rows_are_kept
from kohort.errors import KohortError, NotInHistoryError
from kohort.ids import TopicPartition
from kohort.journal.words import show_clock

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.journal.explain.explanation import GroupExplanation, GroupRebalance, Ownership


#: Digits of the largest partition number of Kafka, an int32.
_LONGEST_NUMBER: Final = 10


def add_why(actions: Any) -> Any:
    """Add the action `why` to `kohort group`, and return its parser."""
    why = actions.add_parser(
        "why",
        help="a rebalance, the owners of a partition or the wait for a member, explained",
        description="Without an option, the latest rebalance and the members that the group waits for now. All of it "
        "comes from the broker's history of the group.",
        run=run_why,
    )
    why.add_argument("group", metavar="GROUP")
    what = why.add_mutually_exclusive_group()
    what.add_argument("--last", action="store_true", help="the latest rebalance only")
    what.add_argument("--rebalance", metavar="N", type=int, help="the rebalance with this epoch or generation")
    what.add_argument(
        "--partition", metavar="TOPIC-N", type=read_partition, help="the owners of a partition, one after the other"
    )
    what.add_argument("--member", metavar="M", help="a member's partitions, and why: its name in sentences, or its id")
    what.add_argument("--now", action="store_true", help="the members that the group waits for at this moment")
    return why


def run_why(options: argparse.Namespace) -> int:
    """Explain the requested partition, member, rebalance or group."""
    with open_admin(options) as admin:
        found = _explain(admin, options)
        is_cut = not found.is_complete and not found.has_older and not options.json
        gone = where_rows_are_kept(admin) if is_cut else ""
    held = [each.sentence for each in found.held_by]
    if options.partition is not None:
        owners = found.partition(*options.partition)
        _say(options, owners, [line for row in owners for line in _told(row)])
    elif options.member is not None:
        member = found.member(options.member)
        _say(options, member, [member.sentence])
    elif options.now:
        _say(options, found.now, [found.summary, *held])
    elif options.last or options.rebalance is not None:
        if options.last and found.last is None:
            raise KohortError(f"the history of group {found.group_id} has no rebalance: {found.summary}")
        rebalance = found.last if options.last and found.last is not None else found.rebalance(options.rebalance)
        _say(options, rebalance, _told(rebalance))
    else:
        latest = [] if found.last is None else _told(found.last)
        shown = {"last": found.last, "now": found.now, "summary": found.summary, "held_by": found.held_by}
        _say(options, shown, [*latest, found.summary, *held])
    if gone:
        say(f"events before the oldest rows of this group's history are not known: {gone}")
    return 0


def _explain(admin: Admin, options: argparse.Namespace) -> GroupExplanation:
    """Fetch the explanation of the latest events, or of the whole history if the options need it."""
    # Most users ask about the latest events.
    found = admin.explain_group(options.group)
    is_there = options.partition is None and options.member is None
    if options.rebalance is not None:
        with contextlib.suppress(NotInHistoryError):
            found.rebalance(options.rebalance)
            return found
        is_there = False
    return found if is_there or not found.has_older else admin.explain_group(options.group, whole=True)


def _told(row: GroupRebalance | Ownership) -> list[str]:
    timing = getattr(row, "timing", "")
    return [f"{show_clock(row.began_ms)}  {row.sentence}", *([f"{' ' * 14}{timing}"] if timing else ())]


def _say(options: argparse.Namespace, values: object, sentences: list[str]) -> None:
    if options.json:
        print_json(values)
    else:
        say(*sentences)


def read_partition(text: str) -> TopicPartition:
    """Parse TOPIC-N, or TOPIC:N as sentences and tables have it, for argparse.

    >>> read_partition("my-orders:2") == read_partition("my-orders-2")
    True
    """
    # No topic has a colon in its name.
    topic, _, number = text.rpartition(":" if ":" in text else "-")
    if not topic or not number.isdecimal() or len(number) > _LONGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"{text!r} is no partition: TOPIC-N is expected, as in orders-3")
    return TopicPartition(topic, int(number))
