"""The values of each page, as its template and its JSON twin show them.

Laws: a page reads and changes nothing. Every list is bounded, and a value says how much was left out. Names of groups,
topics and members are the clients' own text: they are escaped where they are shown, and travel in queries only.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from kohort.assign.assignors import BUILT_IN
from kohort.client.admin.results.groups import GroupDescription
from kohort.console import SORTS
from kohort.console.reader import ClusterReader, ClusterView, GroupLine, GroupReader, GroupView
from kohort.console.records import RECORDS_SHOWN, Wanted, read_records
from kohort.console.swimlanes import mark_rebalances, spans_of
from kohort.errors import KohortError, NotInHistoryError
from kohort.journal.explain.explanation import GroupExplanation, GroupRebalance
from kohort.journal.words import show_duration, show_partitions
from kohort.metrics.cluster import is_stuck
from kohort.metrics.peers import find_problems
from kohort.pipelines.replaying import Replay, find_assignor

#: Rows of one page of groups, lanes of one picture, rebalances and rows of history on the page of a group.
GROUPS_SHOWN: Final = 100
LANES_SHOWN: Final = 40
REBALANCES_SHOWN: Final = 20
ROWS_SHOWN: Final = 60
MEMBERS_SHOWN: Final = 200
OFFSETS_SHOWN: Final = 200
#: Names of spans of time, and their minutes; `all`: of the whole history.
SPANS: Final = {"1m": 1, "5m": 5, "15m": 15, "1h": 60, "6h": 360, "24h": 1440}
_HOUR_MS: Final = 3_600_000

Params = Mapping[str, str]
Values = dict[str, Any]


class PageError(Exception):
    """A page that there is not; the text says why."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status: Final = status


def link(page: str, /, **params: object) -> str:
    """Return the URL of a page; parameters that are `None` or empty are left out.

    >>> link("group", id="a/b c", span=None, page=2)
    '/group?id=a%2Fb+c&page=2'
    """
    found = {name: value for name, value in params.items() if value not in (None, "")}
    return f"/{page}" + (f"?{urlencode(found)}" if found else "")


def number_of(params: Params, name: str, *, default: int | None = None, low: int = 0) -> int:
    """Read a number of a query.

    Raises:
        PageError: it is none, or missing without a default.
    """
    text = params.get(name, "")
    if not text and default is not None:
        return default
    # More digits than Kafka's numbers have are no number of its.
    if len(text) > 20 or not text.lstrip("-").isdecimal() or int(text) < low:
        raise PageError(400, f"{name} cannot be {text[:40]!r}: a number from {low} on is expected")
    return int(text)


def text_of(params: Params, name: str) -> str:
    """Read a text of a query that has to be there."""
    if not params.get(name):
        raise PageError(400, f"{name} is missing")
    return params[name]


# -- groups -----------------------------------------------------------------------------------------------------------


async def groups(reader: ClusterReader, params: Params) -> Values:
    """List groups, those that match, in the order asked for."""
    view = await reader.look()
    wanted, state = params.get("q", "").strip(), params.get("state", "")
    sort = params.get("sort", SORTS[0])
    if sort not in SORTS:
        raise PageError(400, f"sort is one of {', '.join(SORTS)}")
    named = [each for each in view.lines if wanted.lower() in each.state.group_id.lower()]
    lines = sorted((each for each in named if state in ("", each.state.state)), key=_ORDERS[sort])
    page = number_of(params, "page", default=1, low=1)
    shown = lines[(page - 1) * GROUPS_SHOWN : page * GROUPS_SHOWN]
    return {
        **_about(view),
        "q": wanted,
        "state": state,
        "sort": sort,
        "page": page,
        "pages": max(1, -(-len(lines) // GROUPS_SHOWN)),
        "matching": len(lines),
        "all": len(view.lines),
        "states": sorted({each.state.state for each in view.lines}),
        "since_ms": reader.since_ms,
        "groups": [_line_values(each) for each in shown],
    }


def _line_values(line: GroupLine) -> Values:
    state = line.state
    partitions = Counter({topic: len(committed) for topic, committed in state.offsets.items()})
    # Not every partition that members own has a committed offset.
    partitions |= sum((Counter(each.assigned) for each in state.members), Counter[str]())
    return {
        "id": state.group_id,
        "state": state.state,
        "assignor": state.protocol,
        "members": len(state.members),
        "stuck": sum(map(is_stuck, state.members)),
        "lag": line.lag,
        "lag_ms": line.lag_ms,
        "changes": line.changes,
        "partitions": partitions.total(),
    }


def _descending(value: int | None) -> int:
    return 1 if value is None else -value


_ORDERS: Final[dict[str, Any]] = {
    "seconds": lambda line: (_descending(line.lag_ms), _descending(line.lag), line.state.group_id),
    "lag": lambda line: (_descending(line.lag), line.state.group_id),
    "name": lambda line: line.state.group_id,
    "state": lambda line: (line.state.state, line.state.group_id),
    "members": lambda line: (-len(line.state.members), line.state.group_id),
    "flapping": lambda line: (-line.changes, line.state.group_id),
}


def _about(view: ClusterView) -> Values:
    """Say of which moment a page of the cluster is."""
    age_s = time.monotonic() - view.read_at if view.read_at else None
    return {"failure": view.failure, "age_s": age_s, "is_known": view.snapshot is not None}


# -- a group ----------------------------------------------------------------------------------------------------------


async def group(reader: ClusterReader, params: Params) -> Values:
    """Return a group's members, lag, owners over time, rebalances and history."""
    group_id = text_of(params, "id")
    view = reader.group(group_id).view
    return {
        **await group_values(reader, group_id),
        "picture": view.explanation and picture_of(group_id, view.explanation, params, lags=list(view.lags)),
        "rows": [asdict(each) for each in reversed(view.told[-ROWS_SHOWN:])],
    }


async def group_values(reader: ClusterReader, group_id: str) -> Values:
    """Return a group's members, lag, offsets and rebalances, without the picture of its owners and its history."""
    view = await reader.group(group_id).look()
    _check_is_known(group_id, view)
    found = view.explanation
    rebalances = list(found.rebalances) if found is not None else []
    hour_ago = _now_ms() - _HOUR_MS
    lags = [row.lag for row in view.offsets if row.lag is not None]
    members = members_of(view)
    names = {each["member_id"]: each["name"] for each in members}
    return {
        "id": group_id,
        **_description_values(view),
        "failure": view.failure,
        "is_gone": view.is_gone,
        "has_history": view.has_history,
        "lag": sum(lags) if lags else None,
        "lag_ms": view.lag_ms,
        "rebalances_per_hour": sum(each.began_ms > hour_ago for each in rebalances),
        "why": None if not rebalances else _rebalance_values(group_id, rebalances[-1], is_short=True),
        "summary": found.summary if found is not None else "",
        "now": [asdict(each) for each in found.now] if found is not None else [],
        "held_by": [each.sentence for each in found.held_by] if found is not None else [],
        "members": members,
        "offsets": [
            {
                **{name: getattr(row, name) for name in ("topic", "partition", "committed", "end_offset", "lag")},
                "owner": row.member_id,
                "owner_name": names.get(row.member_id or "", row.member_id),
            }
            for row in view.offsets[:OFFSETS_SHOWN]
        ],
        "offsets_left_out": max(0, len(view.offsets) - OFFSETS_SHOWN),
        "rebalances": [
            _rebalance_values(group_id, each, is_short=True) for each in reversed(rebalances[-REBALANCES_SHOWN:])
        ],
        "is_complete": found is None or found.is_complete,
    }


def _check_is_known(group_id: str, view: GroupView) -> None:
    if view.is_gone and not view.told:
        raise PageError(404, f"there is no group {group_id}")
    if view.description is None and not view.told:
        raise PageError(503, view.failure or "the cluster has not answered yet")


def _description_values(view: GroupView) -> Values:
    """Return the fields of the group itself; of one that is gone they are empty."""
    names = [each.name for each in fields(GroupDescription) if each.name not in ("group_id", "members")]
    found = view.description
    return {name: getattr(found, name, None) for name in names} | ({} if found is not None else {"state": "gone"})


def members_of(view: GroupView) -> list[Values]:
    """List the members of a group: those that others wait for first, then by name."""
    found = view.explanation
    standings = {each.member_id: each for each in found.members} if found is not None else {}
    delays = {each.member: each.sentence for each in found.now} if found is not None else {}
    members = []
    for each in view.description.members if view.description is not None else ():
        standing = standings.get(each.member_id)
        name = standing.member if standing is not None else each.instance_id or each.client_id or each.member_id
        because = standing.sentence if standing is not None and standing.because else ""
        if (overdue_ms := each.overdue_ms) is not None:
            because = delays.get(name) or f"others have waited for it for {show_duration(overdue_ms)}"
        members.append(
            {
                "name": name,
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "host": each.client_host.removeprefix("/"),
                "epoch": each.member_epoch,
                "partitions": len(each.assignment),
                "owned": show_partitions((row.topic, row.partition) for row in each.assignment),
                "heard_ms": each.last_heard_ms,
                "polled_ms": each.last_poll_ms,
                "fetched_ms": each.last_fetch_ms,
                "committed_ms": each.last_commit_ms,
                "session_left_ms": each.session_left_ms,
                "is_connected": each.is_connected,
                "overdue_ms": overdue_ms,
                "is_stuck": is_stuck(each),
                "because": because,
            }
        )
    members.sort(key=lambda each: (each["overdue_ms"] is None, each["name"], each["member_id"]))
    return members[:MEMBERS_SHOWN]


def picture_of(
    group_id: str, found: GroupExplanation, params: Params, *, lags: Sequence[tuple[int, int]] = ()
) -> Values:
    """Return the lanes, rebalances and lag of a group's picture, within the time span in the query."""
    now_ms = max([_now_ms(), *(row.began_ms + 1_000 for row in found.owners)])  # the broker's clock may be ahead
    first_ms = min((row.began_ms for row in found.owners), default=now_ms)
    span = params.get("span", "")
    to_ms = min(now_ms, number_of(params, "to", default=now_ms))
    if span in SPANS:
        from_ms = to_ms - SPANS[span] * 60_000
    else:
        # By itself the picture begins a little before the first owner, and no more than an hour ago.
        usual_ms = max(first_ms - 1_000, to_ms - _HOUR_MS) if span != "all" else first_ms - 1_000
        from_ms = number_of(params, "from", default=usual_ms)
    from_ms = min(from_ms, to_ms - 1)
    by_place, members = spans_of(found, from_ms=from_ms, to_ms=to_ms, now_ms=now_ms)
    places = sorted(by_place)
    page = number_of(params, "lanes", default=1, low=1)
    shown = places[(page - 1) * LANES_SHOWN : page * LANES_SHOWN]
    return {
        "from_ms": from_ms,
        "to_ms": to_ms,
        "is_latest": "to" not in params,
        "span": span if span in SPANS or span == "all" else "",
        "members": members,
        "lanes": [
            {
                "name": f"{topic}-{number}",
                "href": link("partition", group=group_id, topic=topic, partition=str(number)),
                "spans": by_place[topic, number],
            }
            for topic, number in shown
        ],
        "page": page,
        "pages": max(1, -(-len(places) // LANES_SHOWN)),
        "partitions": len(places),
        **mark_rebalances(
            found.rebalances,
            lambda each: link("rebalance", group=group_id, began=each.began_ms),
            from_ms=from_ms,
            to_ms=to_ms,
        ),
        "lags": [list(each) for each in lags if from_ms <= each[0] <= to_ms],
    }


# -- a rebalance ------------------------------------------------------------------------------------------------------


async def rebalance(reader: ClusterReader, params: Params) -> Values:
    """Show one rebalance: its phases by member, its moves, owners before and after."""
    group_id = text_of(params, "group")
    found = await _explanation(reader, group_id)
    began = params.get("began", "")
    try:
        if began:
            began_ms = number_of(params, "began")
            wanted = next(each for each in found.rebalances if each.began_ms == began_ms)
        else:
            wanted = found.rebalance(number_of(params, "number"))
    except StopIteration:
        raise PageError(404, f"the history of group {group_id} has no rebalance that began then") from None
    except NotInHistoryError as why:
        raise PageError(404, str(why)) from None
    at = found.rebalances.index(wanted)
    beside = {"before": found.rebalances[at - 1] if at else None}
    beside["after"] = found.rebalances[at + 1] if at + 1 < len(found.rebalances) else None
    return {
        "group": group_id,
        **_rebalance_values(group_id, wanted, is_short=False),
        **{name: each and link("rebalance", group=group_id, began=each.began_ms) for name, each in beside.items()},
        "owners": _before_and_after(found, wanted),
        "what_if": await _what_if(reader.group(group_id), wanted),
    }


async def _what_if(group: GroupReader, wanted: GroupRebalance) -> list[Values]:
    """List how many partitions each assignor would have moved, each having its own way since the oldest row."""
    if wanted.protocol != "consumer" or wanted.number is None:
        return []
    events, first = list(group.events), wanted.first_number or wanted.number

    def replay() -> list[Values]:
        told = Replay(group.group_id, [find_assignor(name) for name in BUILT_IN], {})
        for event in events:
            told.read(event)
        return [
            {"assignor": fact.assignor, "moved": fact.moved, "fewest": fact.fewest, "most": fact.most}
            for fact in told.finish()
            if fact.epoch is not None and first <= fact.epoch <= (wanted.number or first)
        ]

    return await asyncio.to_thread(replay)


async def _explanation(reader: ClusterReader, group_id: str) -> GroupExplanation:
    view = await reader.group(group_id).look()
    _check_is_known(group_id, view)
    if view.explanation is None:
        raise PageError(404, "this cluster keeps no history of groups: brokers of kohort do, Apache Kafka's do not")
    return view.explanation


def _rebalance_values(group_id: str, each: GroupRebalance, *, is_short: bool) -> Values:
    values = {
        "number": each.number,
        "href": link("rebalance", group=group_id, began=each.began_ms),
        "began_ms": each.began_ms,
        "ended_ms": each.ended_ms,
        "took_ms": None if each.ended_ms is None else each.ended_ms - each.began_ms,
        "moved": len(each.moves) + each.unnamed,
        "unread_ms": each.unread_ms,
        "triggers": [{"trigger": one.trigger, "sentence": one.sentence} for one in each.triggers[:20]],
        "sentence": each.sentence,
        "timing": each.timing,
    }
    if is_short:
        return values
    end_ms = each.ended_ms or _now_ms()
    # Silence before the first trigger and a late first fetch are part of it, too.
    begin_ms = min([each.began_ms, *(phase.began_ms for phase in each.phases)])
    end_ms = max([end_ms, *(phase.ended_ms or end_ms for phase in each.phases)])
    return values | {
        "protocol": each.protocol,
        "overtaken_by": each.overtaken_by,
        "phases": [
            asdict(phase) | {"left": phase.began_ms - begin_ms, "width": (phase.ended_ms or end_ms) - phase.began_ms}
            for phase in each.phases[:200]
        ],
        "whole_ms": max(1, end_ms - begin_ms),
        "moves": [asdict(move) | {"unread_ms": move.unread_ms} for move in each.moves[:200]],
        "delays": [asdict(delay) for delay in each.delays[:50]],
    }


def _before_and_after(found: GroupExplanation, wanted: GroupRebalance) -> list[Values]:
    """List the partitions of each member before and after a rebalance."""
    end_ms = wanted.ended_ms if wanted.ended_ms is not None else _now_ms()
    before: dict[str, list[tuple[str, int]]] = {}
    after: dict[str, list[tuple[str, int]]] = {}
    for row in found.owners:
        for when_ms, into in ((wanted.began_ms - 1, before), (end_ms, after)):
            if row.began_ms <= when_ms and (row.ended_ms is None or row.ended_ms > when_ms):
                into.setdefault(row.member, []).append((row.topic, row.partition))
    return [
        {
            "member": member,
            "before": show_partitions(before.get(member, ())),
            "after": show_partitions(after.get(member, ())),
            "gained": len(set(after.get(member, ())) - set(before.get(member, ()))),
            "lost": len(set(before.get(member, ())) - set(after.get(member, ()))),
        }
        for member in sorted({*before, *after})
    ]


# -- a partition ------------------------------------------------------------------------------------------------------


async def partition(reader: ClusterReader, params: Params) -> Values:
    """Show the owners of one partition in a group, one after the other, and how far it is read."""
    group_id, topic, number = text_of(params, "group"), text_of(params, "topic"), number_of(params, "partition")
    readers = reader.group(group_id)
    view = await readers.look()
    _check_is_known(group_id, view)
    offsets = next((row for row in view.offsets if (row.topic, row.partition) == (topic, number)), None)
    owner = offsets.member_id if offsets is not None else None
    found = view.explanation
    owners = [row for row in found.owners if (row.topic, row.partition) == (topic, number)] if found else []
    if not owners and offsets is None:
        raise PageError(404, f"group {group_id} has nothing to do with partition {topic}-{number}")
    return {
        "group": group_id,
        "topic": topic,
        "partition": number,
        "committed": offsets.committed if offsets is not None else None,
        "end_offset": offsets.end_offset if offsets is not None else None,
        "lag": offsets.lag if offsets is not None else None,
        "owner": owner,
        "owner_name": next((each["name"] for each in members_of(view) if each["member_id"] == owner), owner),
        "has_history": view.has_history,
        "owners": [asdict(row) for row in reversed(owners[-100:])],
        "failure": view.failure,
        "around": await _records(reader, _around(topic, number, None if offsets is None else offsets.committed)),
    }


def _around(topic: str, partition: int, committed: int | None) -> Wanted:
    start = None if committed is None else max(0, committed - RECORDS_SHOWN // 2)
    return Wanted(topic=topic, partition=partition, offset=start)


# -- topics -----------------------------------------------------------------------------------------------------------


async def topics(reader: ClusterReader, params: Params) -> Values:
    """List topics by name, those that match, with the groups that have committed in them."""
    view = await reader.look()
    wanted, page = params.get("q", "").strip(), number_of(params, "page", default=1, low=1)
    found = sorted(view.snapshot.topics.values(), key=lambda each: each.name) if view.snapshot else []
    matching = [each for each in found if wanted.lower() in each.name.lower()]
    return {
        **_about(view),
        "q": wanted,
        "page": page,
        "pages": max(1, -(-len(matching) // GROUPS_SHOWN)),
        "matching": len(matching),
        "all": len(found),
        "topics": [
            {
                "name": each.name,
                "partitions": len(each.partitions),
                "offsets": sum(max(0, row.end - max(row.begin, 0)) for row in each.partitions),
                "cleanup_policy": each.cleanup_policy,
                "without_leader": sum(row.leader < 0 for row in each.partitions),
                "out_of_sync": sum(len(row.in_sync) < len(row.replicas) for row in each.partitions),
                "groups": sum(each.name in line.state.offsets for line in view.lines),
            }
            for each in matching[(page - 1) * GROUPS_SHOWN : page * GROUPS_SHOWN]
        ],
    }


async def topic(reader: ClusterReader, params: Params) -> Values:
    """Show one topic: its partitions, configs and readers, and records by offset, time or key."""
    name = text_of(params, "name")
    view = await reader.look()
    (described,) = await reader.call(lambda: reader.admin.describe_topics([name]))
    wanted = Wanted(
        topic=name,
        partition=number_of(params, "partition") if params.get("partition") else None,
        offset=number_of(params, "offset") if params.get("offset") else None,
        time_ms=time_of(params, "time") if params.get("time") else None,
        key=params.get("key") or None,
        path=params.get("path", ""),
    )
    partitions = [asdict(row) for row in described.partitions]
    lines = [line for line in view.lines if name in line.state.offsets]
    return {
        "name": name,
        "topic_id": described.topic_id,
        "configs": dict(described.configs),
        "partitions": partitions[:OFFSETS_SHOWN],
        "partitions_left_out": max(0, len(partitions) - OFFSETS_SHOWN),
        "readers": [_line_values(line) for line in lines[:GROUPS_SHOWN]],
        "asked": {"partition": wanted.partition, "offset": wanted.offset, "time": params.get("time", ""),
                  "key": wanted.key, "path": wanted.path},
        "records": await _records(reader, wanted),
    }  # fmt: skip


async def _records(reader: ClusterReader, wanted: Wanted) -> Values:
    """Read records, or say why they cannot be read: the rest of the page is there all the same."""
    try:
        return {**await read_records(reader.options, wanted), "failure": ""}
    except KohortError as why:
        return {"records": [], "scanned": 0, "is_cut": False, "bound": "", "next": None, "failure": str(why)}


def time_of(params: Params, name: str) -> int:
    """Read a time of a query: milliseconds since 1970, or a date with a time as forms have it.

    Raises:
        PageError: it is neither.
    """
    if params[name].isdecimal():
        return number_of(params, name)
    try:
        return int(datetime.fromisoformat(params[name]).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise PageError(400, f"{name} cannot be {params[name][:40]!r}: as 2026-11-28T14:02:11 is expected") from None


# -- brokers ----------------------------------------------------------------------------------------------------------

#: Facts of a broker by the first words of their names, and a title for each part.
_PARTS: Final = (
    ("Limits reached", ("limits.reached.",)),
    ("Loop", ("loop.",)),
    ("Disk and recovery", ("disk.", "recovery.", "data.", "relaxed.", "damaged.", "offline.", "log.")),
    ("Quotas", ("quotas",)),
    ("The rest", ("",)),
)


async def broker(reader: ClusterReader, _: Params) -> Values:
    """Return the brokers, and the status of the broker that was asked."""
    view = await reader.look()
    snapshot = view.snapshot
    facts = dict(snapshot.facts) if snapshot is not None else {}
    parts: dict[str, Values] = {title: {} for title, _ in _PARTS}
    for name, value in facts.items():
        title = next(title for title, starts in _PARTS if name.startswith(starts))
        # Limits that were never met are many.
        if title != _PARTS[0][0] or value != "0":
            parts[title][name.removeprefix("limits.reached.")] = value
    return {
        **_about(view),
        "cluster_id": snapshot.cluster_id if snapshot is not None else "",
        "controller_id": snapshot.controller_id if snapshot is not None else -1,
        "brokers": [
            {name: getattr(each, name) for name in ("broker_id", "host", "port", "rack")}
            for each in (snapshot.brokers if snapshot is not None else ())
        ],
        "problems": [each.said for each in find_problems(facts)],
        "facts": facts,
        "parts": parts,
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
