"""The picture of each group: its owners over time, its rebalances in the sentences of `kohort group why`, and advice.

Spark hands the rows of a group to one worker, which explains them as `why` does and returns what is drawn.

Laws: what a worker returns is bounded, however many members, partitions and rebalances a group has; what is left out
is counted. Partitions that had the same owners at the same times share a lane. A worker holds the latest rows of one
group.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kohort.console.swimlanes import BROAD, count_rebalances, mark_rebalances, spans_of
from kohort.journal.explain.explaining import explain
from kohort.journal.explain.explanation import GroupExplanation, GroupRebalance
from kohort.journal.words import show_partitions
from kohort.pipelines.following import SILENT
from kohort.pipelines.journal import GroupRow, rows_by_group

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Rows of a group that are explained; of a longer history the latest.
ROWS_EXPLAINED: Final = 20_000
#: Lanes, ticks and sentences of all groups together, and the most and the fewest of one.
_BUDGETS: Final = ((900, 40, 6), (1_200, 100, 4), (400, 20, 3))
#: Letters of a sentence, and of a member's name in a span.
_SENTENCE_LETTERS: Final = 400
#: Where fewer rebalances of a group are told, their phases are not.
_TIMED: Final = 8
_NAME_LETTERS: Final = 60
#: Spans of a lane.
_SPANS: Final = 150

Values = dict[str, Any]


def draw_groups(
    rows: DataFrame, groups: Sequence[str], *, now_ms: int | None, since_ms: int | None = None
) -> dict[str, Values]:
    """Return the pictures of groups by their ids, without those of which there are no rows.

    Args:
        rows: journal rows of these groups and perhaps of others.
        groups: those to be drawn; the more they are the less is drawn of each.
        now_ms: the time of the report; `None`: the time of the latest row of each group.
        since_ms: where the pictures begin; `None`: with the first owner.
    """
    from pyspark.sql import functions as f

    limits = [max(fewest, min(most, whole // max(1, len(groups)))) for whole, most, fewest in _BUDGETS]
    wanted = rows.where(f.col("group_id").isin(list(groups)))
    draw = partial(_draw_all, limits=limits, now_ms=now_ms, since_ms=since_ms)
    drawn = rows_by_group(wanted, draw, "group_id string, picture string")
    return {group_id: json.loads(picture) for group_id, picture in drawn.collect()}


def _draw_all(
    groups: Iterable[tuple[str, Iterator[GroupRow]]],
    *,
    limits: Sequence[int],
    now_ms: int | None,
    since_ms: int | None,
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for group_id, rows in groups:
        kept: deque[GroupRow] = deque(maxlen=ROWS_EXPLAINED)
        last, count = (-1, -1), 0
        for row in rows:
            # A row of two sources counts once, as in the facts.
            if row.sequence > last[0] or row.time_ms > last[1]:
                last, count = (row.sequence, row.time_ms), count + 1
                kept.append(row)
        found = explain(group_id, kept, now_ms=now_ms, is_complete=count == len(kept))
        end_ms = max(now_ms or 0, kept[-1].time_ms)
        picture = draw_group(found, end_ms=end_ms, since_ms=since_ms, limits=limits)
        picture["left_out"]["rows"] = count - len(kept)
        yield pa.RecordBatch.from_pydict({"group_id": [group_id], "picture": [json.dumps(picture)]})


def draw_group(
    found: GroupExplanation, *, end_ms: int, since_ms: int | None = None, limits: Sequence[int] = (40, 100, 20)
) -> Values:
    """Return the picture and the sentences of a group; `limits`: the most lanes, ticks and sentences."""
    lanes_shown, ticks_shown, told = limits
    first_ms = min((row.began_ms for row in found.owners), default=end_ms)
    first_ms = min([first_ms, *(each.began_ms for each in found.rebalances[:1])])
    if all(row.ended_ms is not None for row in found.owners):
        # Behind its last owner a group has nothing but lag.
        last_ms = max([first_ms, *(row.ended_ms or 0 for row in found.owners), *(r.began_ms for r in found.rebalances)])
        end_ms = min(end_ms, last_ms + 1_000 + (last_ms - first_ms) // 4)
    from_ms = min(end_ms - 1, first_ms - 1_000 if since_ms is None else max(since_ms, first_ms - 1_000))
    by_place, members = spans_of(found, from_ms=from_ms, to_ms=end_ms, now_ms=end_ms)
    lanes = _merge(by_place, from_ms, end_ms)
    unit_ms = (end_ms - from_ms) / (BROAD.width - BROAD.left)
    drawn: list[Values] = [
        {"name": show_partitions(places)[:_NAME_LETTERS], "href": None, "spans": _thin(spans, unit_ms)}
        for places, spans in lanes[:lanes_shown]
    ]
    owners = {span["member"] for lane in drawn for span in lane["spans"]}
    numbers = {id(each): number for number, each in enumerate(found.rebalances[-told:])}
    return {
        "from_ms": from_ms,
        "to_ms": end_ms,
        "summary": found.summary,
        "state": _state(found),
        "advice": _advise(found),
        "members": [short for name in members if (short := name[:_NAME_LETTERS]) in owners],
        "lanes": drawn,
        **mark_rebalances(
            found.rebalances,
            # The sentences below the picture are those of the latest rebalances.
            lambda each: f"#{numbers[id(each)]}" if id(each) in numbers else None,
            from_ms=from_ms,
            to_ms=end_ms,
            most=ticks_shown,
        ),
        # For a page without room for so many ticks.
        "bars": count_rebalances(
            ((each.began_ms, _took_ms(each)) for each in found.rebalances if each.began_ms >= from_ms),
            from_ms=from_ms,
            to_ms=end_ms,
        ),
        "told": [_tell(each, is_short=told < _TIMED) for each in found.rebalances[-told:]],
        "lags": [],
        "left_out": {
            "partitions": sum(len(places) for places, _ in lanes[lanes_shown:]),
            "rebalances": max(0, len(found.rebalances) - told),
        },
        "partitions": len(by_place),
        "rebalances": len(found.rebalances),
        "unread_ms": sum(move.unread_ms or 0 for each in found.rebalances for move in each.moves),
    }


def _merge(
    by_place: dict[tuple[str, int], list[Values]], from_ms: int, to_ms: int
) -> list[tuple[list[tuple[str, int]], list[Values]]]:
    """Put partitions with the same history together; those that no member read for longest come first."""
    # Differences that no picture shows make no lane: a four-hundredth of its width.
    unit_ms = max(1, (to_ms - from_ms) // 400)
    lanes: dict[tuple[object, ...], tuple[list[tuple[str, int]], list[Values]]] = {}
    for place in sorted(by_place):
        spans = by_place[place]
        history = tuple(
            (each["member"], max(each["from_ms"], from_ms) // unit_ms, each["to_ms"] // unit_ms) for each in spans
        )
        lanes.setdefault((place[0], history), ([], spans))[0].append(place)
    return sorted(lanes.values(), key=lambda lane: (-_unread_ms(lane[1]), -len(lane[0]), lane[0][0]))


def _unread_ms(spans: Iterable[Values]) -> int:
    return sum(each["to_ms"] - each["from_ms"] for each in spans if each["is_unread"])


def _thin(spans: Sequence[Values], unit_ms: float) -> list[Values]:
    """Put owners together that follow each other too fast to be drawn, and leave out the shortest of too many spans."""
    wide: list[Values] = []
    fast: list[Values] = []
    for span in (*spans, None):
        if span is not None and not span["is_unread"] and span["to_ms"] - span["from_ms"] < unit_ms:
            fast.append(span)
            continue
        if fast and fast[-1]["to_ms"] - fast[0]["from_ms"] >= unit_ms:
            said = f"{len(fast):,} owners, one after the other"
            wide.append({**fast[0], "member": "", "to_ms": fast[-1]["to_ms"], "said": said})
        fast = []
        if span is not None:
            said = _cut(span["said"]) if span["is_unread"] else ""
            wide.append({**span, "member": span["member"][:_NAME_LETTERS], "said": said})
    longest = sorted(wide, key=lambda each: each["from_ms"] - each["to_ms"])[:_SPANS]
    return sorted(longest, key=lambda each: (each["is_unread"], each["from_ms"]))


def _tell(each: GroupRebalance, *, is_short: bool) -> Values:
    return {
        "time_ms": each.began_ms,
        "took_ms": _took_ms(each),
        "said": _cut(each.sentence),
        "timing": "" if is_short else _cut(each.timing),
    }


def _took_ms(each: GroupRebalance) -> int | None:
    return None if each.ended_ms is None else each.ended_ms - each.began_ms


def _cut(text: str) -> str:
    return text if len(text) <= _SENTENCE_LETTERS else text[: _SENTENCE_LETTERS - 1] + "…"


def _state(found: GroupExplanation) -> str:
    if found.is_gone:
        return "deleted"
    if found.last is not None and found.last.ended_ms is None:
        return "rebalancing"
    return "stable" if found.members else "without members"


def _advise(found: GroupExplanation) -> str:
    """Return advice about a group, derived from its journal rows; empty if none is needed."""
    if found.now:
        return _cut(f"Look at {found.now[0].member}: {found.now[0].sentence}")
    short = next((each for each in found.members if each.is_short), None)
    if short is not None:
        return _cut(short.sentence)
    triggers = Counter(trigger.trigger for each in found.rebalances for trigger in each.triggers)
    silent = triggers[SILENT]
    if silent >= 3 and 2 * silent >= triggers.total():
        return (
            f"Let members close their consumers when they stop: {silent:,} of {triggers.total():,} triggers of "
            "rebalances were members that had fallen silent"
        )
    return ""
