"""`kohort group history GROUP`: a sentence for each event of a group, with its reason, under its date.

Laws: `--json` prints every field of every event, as the broker keeps it. A group that does not exist is an error;
`--deleted` shows the remaining history of a deleted group.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.output import complain, plain, print_json, print_table, say
from kohort.errors import BrokerError, ErrorCode, KohortError
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.words import (
    MemberNames,
    name_principal,
    read_partitions,
    show_clock,
    show_duration,
    show_partitions,
    show_principal,
)

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.client.admin.results.groups import GroupHistory, HistoryEvent


#: Seconds between two requests for new events with `--follow`.
FOLLOW_INTERVAL_S = 0.5
#: The last event of a group.
_END = "group_forgotten"


def add_history(actions: Any) -> Any:
    """Add the action `history` to `kohort group`, and return its parser."""
    history = actions.add_parser(
        "history",
        help="what happened to a group, and why",
        description="Print requests, decisions of the coordinator and their effects, oldest first. CAUSE numbers the "
        "input that led to a row; 13<12: input 13, in the rebalance that input 12 began. Members have short names: "
        "the instance id, the client id, or the client id with the beginning of the member id.",
        run=run_history,
    )
    history.add_argument("group", metavar="GROUP")
    history.add_argument(
        "--follow", action="store_true", help="also print new rows until Ctrl-C; with --json one per line"
    )
    history.add_argument("--all", action="store_true", help="also older rows, from the topic __group_journal")
    history.add_argument("--deleted", action="store_true", help="show the remaining history of a deleted group")
    return history


def run_history(options: argparse.Namespace) -> int:
    """Print the events, oldest first, each with its cause and with the cause of its rebalance."""
    with open_admin(options) as admin:
        found = admin.group_history(options.group, whole=options.all)
        if options.follow:
            _follow(admin, found, options)
        check_is_there(admin, found, is_end_welcome=options.deleted)
        if options.json:
            print_json(found)
            return 0
        empty = f"group {found.group_id} has no history"
        print_rows(found.events, MemberNames(), empty=empty)
        if any(event.cause != event.origin for event in found.events):
            print("CAUSE a<b: input a, as part of the rebalance that input b began")
        if found.counts:
            say("counted: " + ", ".join(f"{name} {count}" for name, count in found.counts.items()))
        if found.has_older:
            print("older rows are in the topic __group_journal: --all shows them, too")
        elif not found.is_complete:
            print("older rows were deleted: " + where_rows_are_kept(admin))
    return 0


def where_rows_are_kept(admin: Admin) -> str:
    """Name the configs of the broker that limit how many events it keeps."""
    if any(topic.name == JOURNAL_TOPIC for topic in admin.list_topics()):
        return "the broker keeps journal.topic.retention.ms and journal.topic.retention.bytes of them"
    return "without a data directory the broker keeps journal.ring.rows of all groups together"


def _follow(admin: Admin, found: GroupHistory, options: argparse.Namespace) -> None:
    """Show the history so far and then new events, until Ctrl-C."""
    if not found.events:
        complain(f"group {options.group} has no history yet")
    names = MemberNames()
    last, day = 0, ""
    while True:
        if found.events:
            if options.json:
                for event in found.events:
                    print_json({"group_id": found.group_id, **plain(event)})
            else:
                day = print_rows(found.events, names, empty="", has_heading=last == 0, day=day)
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
        deleted = show_clock(ended.time_ms)
        raise KohortError(f"group {group} was deleted at {deleted}; --deleted shows its history")
    # Refused requests alone are no history: such a group has never existed.
    if all(event.event == "refused" for event in found.events):
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")


def print_rows(
    events: Sequence[HistoryEvent], names: MemberNames, *, empty: str, has_heading: bool = True, day: str = ""
) -> str:
    """Print events, those of each day under its date, and return the date of the last event.

    `day`: the date of the event that was printed before; empty: none was.
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


# `coordinator/journal_events/` writes the events. An event without a sentence here is shown by its name and details.
Details = Mapping[str, str]

#: Details that name partitions.
_OF_PARTITIONS: Final = ("partitions", "released", "held")
#: The error in the response to a classic heartbeat while the group rebalances.
REBALANCING: Final = "REBALANCE_IN_PROGRESS"
#: Classic request -> the events of the same cause whose sentences stand for the request, too.
_TOLD_WITH: Final = {
    "JoinGroup": ("member_joined", "member_rejoined", "member_replaced"),
    "SyncGroup": ("assignment_changed", "group_at_rest"),
}


def fold(events: Sequence[HistoryEvent], names: MemberNames) -> list[tuple[HistoryEvent, str]]:
    """Pair events with their sentences; leave out a classic request if the next event shows its result.

    The reason in a request to join is added to the sentence that the member has joined.
    """
    told: list[tuple[HistoryEvent, str]] = []
    asked: HistoryEvent | None = None
    for number, event in enumerate(events):
        following = events[number + 1] if number + 1 < len(events) else None
        is_same = following is not None and following.cause == event.cause
        if is_same and following is not None and following.event in _TOLD_WITH.get(event.event, ()):
            asked = event
            continue
        said = sentence(event, names)
        if asked is not None and asked.details.get("reason"):
            said += f" ({names.within(asked.details['reason'])})"
        asked = None
        told.append((event, said))
    return told


def sentence(event: HistoryEvent, names: MemberNames) -> str:
    """Return the sentence that describes an event to the user."""
    who = names.of(event.member_id)
    details = {
        name: names.within(text) if name in ("why", "reason", "from") else text for name, text in event.details.items()
    }
    # Each sentence names the principal in the same way: the one that asked, or by which the change was made.
    principal = show_principal(details.pop("principal", ""), details.pop("label", ""))
    tell = _SENTENCES.get(event.event)
    if isinstance(tell, str):
        shown = details | {name: _partitions(details.get(name, "")) for name in _OF_PARTITIONS}
        said = tell.format_map(defaultdict(str, shown, who=who))
    elif tell is not None:
        said = tell(who, details)
    elif event.kind == "stimulus":
        said = f"{who or 'a client'} asked: {_words(event.event)}{_rest(details)}"
    else:
        said = f"{_words(event.event)}{' of ' + who if who else ''}{_rest(details)}"
    if principal:
        said = name_principal(said, principal, "as" if event.kind == "stimulus" else "by")
    if event.times > 1:
        said += f", {event.times} times until {datetime.fromtimestamp(event.last_time_ms / 1000):%H:%M:%S}"
    return said


def _words(name: str) -> str:
    """Convert `DeleteGroup` or `delete_group` to `delete group`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


def _rest(details: Details) -> str:
    return f" ({_pairs(details)})" if details else ""


def _pairs(details: Details) -> str:
    return ", ".join(f"{name} {value}" for name, value in details.items())


def _why(details: Details, name: str = "why") -> str:
    return f": {details[name]}" if details.get(name) else ""


def _span(details: Details, name: str) -> str:
    return show_duration(int(details[name]))


def _partitions(text: str) -> str:
    """Shorten `orders-0 orders-1 and 3 more` to `orders:0-1 and 3 more`."""
    named, more = read_partitions(text)
    return show_partitions(named) + (f" and {more} more" if more else "")


def _heartbeat(who: str, details: Details) -> str:
    epoch = details.get("member_epoch", "")
    if details.get("answer") == "held":
        held = f" after {_span(details, 'held_ms')}" if "held_ms" in details else ""
        return f"the coordinator responds to the delayed heartbeat of {who}{held}, epoch {epoch}"
    leaving = {"-1": "asks to leave", "-2": "asks to leave for a while", "0": "asks to join"}
    return f"{who} {leaving.get(epoch, f'sends a heartbeat at epoch {epoch}')}"


def _deadline(who: str, details: Details) -> str:
    return f"a deadline passed{' for ' + who if who else ''}{_why(details, 'deadline')}"


def _leave(who: str, details: Details) -> str:
    if details.get("by") == "administrator":
        is_said = details.get("reason") != "removed by an administrator"
        return f"an administrator asks to remove {who or 'members'}{_why(details, 'reason') if is_said else ''}"
    return f"{who or 'a member'} asks to leave{_why(details, 'reason')}"


def _joined(verb: str) -> Callable[[str, Details], str]:
    def tell(who: str, details: Details) -> str:
        parts = []
        if details.get("host"):
            parts.append(f"from {details['host'].removeprefix('/')}")
        if details.get("client") and not who.startswith(details["client"]):
            parts.append(f"client {details['client']}")
        return " ".join([f"{who} {verb}", *parts]) + _wishes(details)

    return tell


def _wishes(details: Details) -> str:
    shown = {name: details[name] for name in ("topics", "pattern", "assignor", "protocols") if details.get(name)}
    return f": {_pairs(shown)}" if shown else ""


def _assignment(who: str, details: Details) -> str:
    verbs = {"gained": "gains", "held": "holds", "asked_back": "has to give back", "released": "gave up"}
    moves = [f"{verb} {_partitions(details[name])}" for name, verb in verbs.items() if details.get(name)]
    if details.get("state") == "UNRELEASED_PARTITIONS":
        moves.append("waits for partitions that others still hold")
    if not moves:
        return f"{who} is at epoch {details.get('epoch', '')}"
    return f"{who} {', '.join(moves)} (epoch {details.get('epoch', '')})"


def _away(who: str, details: Details) -> str:
    held = f", keeping {_partitions(details['held'])}" if details.get("held") else ""
    released = f", without {_partitions(details['released'])}" if details.get("released") else ""
    return f"{who} is away for a while{held}{released}"


def _refused(who: str, details: Details) -> str:
    asker = f" of {who}" if who else ""
    if details.get("error") == REBALANCING and details.get("api") == "Heartbeat":
        # This error is no refusal: a classic member learns of a rebalance by it.
        return f"the response to the heartbeat{asker} says that the group rebalances"
    return f"refused, {_words(details.get('api', ''))}{asker}: {details.get('error', '')}{_why(details)}"


def _started(_: str, details: Details) -> str:
    if details.get("before") != "crashed":
        return "the broker started"
    return f"the broker started after a crash: what happened after {show_clock(int(details['last_ms']))} may be missing"


def _target(_: str, details: Details) -> str:
    count = details.get("members_changed", "0")
    changes = {"0": "no member changes", "1": "1 member changes"}.get(count, f"{count} members change")
    by = f" by {details['by']}" if details.get("by") else ""
    return f"assignment of epoch {details.get('epoch', '')} computed{by}: {changes}"


def _at_rest(_: str, details: Details) -> str:
    took = f", after {_span(details, 'took_ms')}" if "took_ms" in details else ""
    if "epoch" in details:
        return f"at rest: every member has its assignment of epoch {details['epoch']}{took}"
    state, generation = details.get("state", ""), details.get("generation", "")
    return f"at rest: {state}, generation {generation}, members: {details.get('members', '')}{took}"


def _planned(who: str, details: Details) -> str:
    reach = {"held": "at once: its heartbeat is delayed", "awaited": "by its next heartbeat"}
    how = reach.get(details.get("heartbeat", ""), "by the next response")
    return f"{who} has to give up {_partitions(details.get('partitions', ''))}, and is notified {how}"


def _waiting(_: str, details: Details) -> str:
    if details.get("moves") == "0":
        return "no move waits any more"
    pace = f" ({details['pace']})" if details.get("pace") else ""
    return f"{_partitions(details.get('partitions', ''))} stay where they are until their moves may begin{pace}"


def _read(who: str, details: Details) -> str:
    most = "at most " if details.get("at_most") else ""
    unread = show_duration(int(details.get("unread_ms", 0)))
    since = (
        f": {details.get('from', '')} did until {show_clock(int(details['read_ms']))}" if "read_ms" in details else ""
    )
    return f"{who} reads {_partitions(details.get('partitions', ''))}, which were unread for {most}{unread}{since}"


def _removed(who: str, details: Details) -> str:
    last = "a fetch, the last sign of it" if details.get("heard_by") == "fetch" else "the last sign of it"
    since = {"silent_ms": last, "disconnected_ms": "the end of its connection"}
    spans = [f", {_span(details, name)} after {what}" for name, what in since.items() if name in details]
    return f"{who} is no member any more{_why(details, 'reason')}{''.join(spans)}"


#: Event -> its sentence: text with the member's name (`who`) and the details, or a function of both. A detail that a
#: row does not have is empty in a text, and partitions are shortened.
_SENTENCES: Final[dict[str, str | Callable[[str, Details], str]]] = {
    "ConsumerGroupHeartbeat": _heartbeat,
    "Heartbeat": "{who} sends a heartbeat",
    "JoinGroup": lambda who, details: f"{who or 'a new member'} asks to join{_why(details, 'reason')}",
    "SyncGroup": "{who} asks for its assignment",
    "LeaveGroup": _leave,
    "MemberFetched": "{who} fetches",
    "MemberDisconnected": lambda who, _: f"{who or 'a member'}'s connection broke",
    "TopicsChanged": "topics changed",
    "TargetComputed": lambda _, details: f"the assignor {details.get('outcome', 'answered')}",
    "deadline_passed": _deadline,
    "refused": _refused,
    "epoch_bumped": lambda _, details: f"group epoch {details.get('epoch', '')}{_why(details, 'trigger')}",
    "target_computed": _target,
    "revocation_planned": _planned,
    "moves_waiting": _waiting,
    "moves_begun": lambda _, details: (
        f"{_partitions(details.get('partitions', ''))} may move now, {details.get('left', '0')} still wait"
    ),
    "partitions_moved": "{partitions} moved to {who} from {from}",
    "partitions_read": _read,
    "meanwhile": "others wait for {who}, which goes on with {did}",
    "assignor_asked": lambda who, details: f"{who or 'an assignor'} is asked to compute: {_pairs(details)}",
    "assignor_failed": lambda who, details: (
        f"assignor {details.get('assignor', '')} of {who}{_why(details)}"
        if who
        else f"assignor {details.get('assignor', '')} failed, {details.get('failures', '1')} in a row{_why(details)}"
    ),
    "PrepareAssignment": "{who} asks for the data to compute an assignment",
    "InstallAssignment": "{who} has computed the assignment",
    "rebalance_began": lambda _, details: f"a rebalance begins{_why(details, 'trigger')}{_why(details)}",
    "generation_began": lambda who, details: (
        f"generation {details.get('generation', '')} begins, led by {who}, assignor {details.get('protocol', '-')}"
    ),
    "member_id_required": "{who} gets its member id and has to join again with it",
    "member_joined": _joined("joined"),
    "member_rejoined": _joined("rejoined"),
    "member_kept": _joined("stays a member"),
    "member_changed": _joined("changed its client"),
    "subscription_changed": lambda who, details: f"{who} changed its subscription{_wishes(details)}",
    "member_removed": _removed,
    "member_away": _away,
    "member_offline": lambda who, details: f"{who} is offline, last heard of {_span(details, 'silent_ms')} ago",
    "member_back": lambda who, details: f"{who} is back after {_span(details, 'away_ms')}",
    "member_replaced": "{who} is another process now, under the same instance id",
    "assignment_changed": _assignment,
    "assignment_released": "{who} gave up {released}",
    "group_at_rest": _at_rest,
    "member_found": "found after the crash: {who}, epoch {epoch}, with {held}",
    "group_found": "found after the crash: epoch {epoch}, members: {members}",
    "share_short": lambda who, details: (
        f"{who} gets no more than {details.get('has', '0')}: {details.get('because', '')}"
    ),
    "window_opened": lambda _, details: (
        f"new members of the static group wait until {show_clock(int(details.get('ends_ms', 0)))}"
    ),
    "window_closed": "new members of the static group wait no longer",
    "broker_started": _started,
    "broker_stopped": "the broker stopped",
    "journal_gap": "{rows} rows could not be written and are missing here",
    "group_forgotten": "the group is gone",
    "group_converted": "the group uses the {to} protocol from now on",
    "connection_lost": "{who} lost its connection",
    "connection_back": "{who} is connected again",
    "configs_changed": lambda _, details: f"configs changed: {', '.join(map('='.join, details.items()))}",
    "producer_initialized": "producer {who} got epoch {epoch}, with a transaction timeout of {timeout_ms} ms",
    "transaction_began": "producer {who} began a transaction",
    "transaction_decided": lambda who, details: (
        f"the transaction of producer {who} is to {details.get('result', 'end')}{_why(details)}"
        + (f", in {_partitions(details['partitions'])}" if details.get("partitions") else "")
    ),
    "transaction_completed": "all partitions have the marker of producer {who}'s transaction",
    "transactional_id_forgotten": "the transactional id has expired",
    "offsets_reset": "offsets of {partitions} were set by hand",
    "offsets_forgotten": lambda _, details: f"offsets of {details.get('partitions', '')} partitions forgotten",
}
