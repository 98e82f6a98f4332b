"""Owners of partitions over time as SVG: a lane a partition, rebalances as ticks, lag under them on the same axis.

Laws: no style and no script stands in the picture, as the page's policy forbids both; every text is escaped. What is
drawn is bounded: a span that ends less than a unit behind the one before is left out, until the picture is zoomed, and
more rebalances than there is room for are drawn as their density, with their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final, NamedTuple

from kohort.journal.explain.explanation import GroupExplanation, GroupRebalance
from kohort.journal.words import show_clock, show_duration

#: Where a time is, in units from the left.
Place = Callable[[float], float]


class Shape(NamedTuple):
    """The units of a picture: its width, where time begins; the letters of a lane's name and the ticks of its axis."""

    width: int
    left: int
    name_letters: int
    ticks: int


BROAD: Final = Shape(1000, 150, 20, 6)
#: For the screens of telephones.
NARROW: Final = Shape(400, 92, 12, 3)
#: Heights of a lane, of the axis, of the lag and of the density of rebalances, in units.
_LANE: Final = 22
_AXIS: Final = 22
_LAG: Final = 64
_DENSITY: Final = 40
#: Colours of members, which the style sheet has.
COLOURS: Final = 8
_NARROWEST: Final = 1.0
#: Letters that fit into a unit of a span.
_LETTER: Final = 7.2
#: The most ticks; of more rebalances the density is drawn, in so many bars.
SEAMS_DRAWN: Final = 100
_BARS: Final = 80
_STEPS_MS: Final = tuple(
    1_000 * seconds for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
)

Values = dict[str, Any]


def spans_of(
    found: GroupExplanation, *, from_ms: int, to_ms: int, now_ms: int
) -> tuple[dict[tuple[str, int], list[Values]], list[str]]:
    """Return the spans of each partition's owners and of its times without a reader, and all members in order."""
    by_place: dict[tuple[str, int], list[Values]] = {}
    members: dict[str, None] = {}
    for row in found.owners:
        spans = by_place.setdefault((row.topic, row.partition), [])
        members.setdefault(row.member)
        ended_ms = now_ms if row.ended_ms is None else row.ended_ms
        if ended_ms >= from_ms and row.began_ms <= to_ms:
            spans.append(_span(row.member, row.began_ms, ended_ms, row.sentence))
    for place, unread in _unread(found.rebalances, now_ms):
        if place in by_place and unread["to_ms"] >= from_ms and unread["from_ms"] <= to_ms:
            by_place[place].append(unread)
    for spans in by_place.values():
        spans.sort(key=lambda each: (each["is_unread"], each["from_ms"]))
    return by_place, list(members)


def _span(member: str, from_ms: int, to_ms: int, said: str, *, is_unread: bool = False) -> Values:
    return {"member": member, "from_ms": from_ms, "to_ms": to_ms, "said": said, "is_unread": is_unread}


def _unread(rebalances: Iterable[GroupRebalance], now_ms: int) -> Iterator[tuple[tuple[str, int], Values]]:
    """Find the times in which no member read a partition that moved."""
    for each in rebalances:
        for move in each.moves:
            if move.read_ms is None:
                continue
            until_ms = move.read_again_ms
            if until_ms is None and (move.granted_ms is None or each.ended_ms is not None):
                # Without the row of the first fetch it is not known when that was.
                until_ms = now_ms if move.granted_ms is None and each.ended_ms is None else move.granted_ms
            if until_ms is not None and until_ms > move.read_ms:
                most = "at most " if move.is_at_most else ""
                said = f"no member read it for {most}{show_duration(until_ms - move.read_ms)}"
                yield (move.topic, move.partition), _span("", move.read_ms, until_ms, said, is_unread=True)


def mark_rebalances(
    rebalances: Sequence[GroupRebalance],
    href_of: Callable[[GroupRebalance], str | None],
    *,
    from_ms: int,
    to_ms: int,
    most: int = SEAMS_DRAWN,
) -> Values:
    """Return the `seams` of a picture, a tick for each rebalance, or the bars of its `density` if they are too many."""
    shown = [each for each in rebalances if from_ms <= each.began_ms <= to_ms]
    if len(shown) > most:
        took = [(each.began_ms, None if each.ended_ms is None else each.ended_ms - each.began_ms) for each in shown]
        return {"seams": [], "density": count_rebalances(took, from_ms=from_ms, to_ms=to_ms)}
    seams = [{"time_ms": each.began_ms, "href": href_of(each), "said": each.sentence[:300]} for each in shown]
    return {"seams": seams, "density": []}


def count_rebalances(took: Iterable[tuple[int, int | None]], *, from_ms: int, to_ms: int) -> list[Values]:
    """Count rebalances, given by their beginnings and milliseconds, in equal spans of time; empty ones are left out."""
    width = bar_width_ms(from_ms, to_ms)
    bars: dict[int, Values] = {}
    for began_ms, took_ms in took:
        begin = from_ms + (began_ms - from_ms) // width * width
        bar = bars.setdefault(begin, {"from_ms": begin, "to_ms": begin + width, "count": 0, "longest_ms": 0})
        bar["count"] += 1
        bar["longest_ms"] = max(bar["longest_ms"], took_ms or 0)
    return [bars[begin] for begin in sorted(bars)]


def bar_width_ms(from_ms: int, to_ms: int) -> int:
    """Return how long the time of a bar is in a density from one time to another, both included."""
    return max(1, -(-(to_ms + 1 - from_ms) // _BARS))


def draw_lanes(picture: Mapping[str, Any], shape: Shape = BROAD) -> str:
    """Draw the owners' lanes by `spans_of`, the rebalances by `mark_rebalances`, and the lag, as SVG."""
    from_ms: int = picture["from_ms"]
    to_ms: int = max(picture["to_ms"], from_ms + 1)
    lanes, density = picture["lanes"], picture.get("density", ())
    has_lag = len(picture["lags"]) > 1
    top = _DENSITY if density else 0
    bottom = top + _LANE * len(lanes)
    width, left = shape.width, shape.left

    def place(time_ms: float) -> float:
        share = (min(max(time_ms, from_ms), to_ms) - from_ms) / (to_ms - from_ms)
        return round(left + share * (width - left), 2)

    colours = {member: number % COLOURS for number, member in enumerate(picture["members"])}
    parts = [
        f'<svg class="lanes" viewBox="0 0 {width} {bottom + _AXIS + (_LAG if has_lag else 0)}" role="group" '
        f'aria-label="Owners of partitions over time" data-from="{from_ms}" data-to="{to_ms}" '
        f'data-left="{left / width}">'
    ]
    if density:
        parts += _density(density, place, shape)
    for row, lane in enumerate(lanes):
        parts += _lane(lane, top + row * _LANE, place, shape, colours)
    for seam in picture["seams"]:
        if from_ms <= seam["time_ms"] <= to_ms:
            parts.append(_seam(seam, place(seam["time_ms"]), bottom))
    parts += _axis(from_ms, to_ms, bottom, place, shape)
    if has_lag:
        parts += _lags(picture["lags"], from_ms, bottom + _AXIS, place, shape)
    return "".join([*parts, "</svg>"])


def _seam(seam: Mapping[str, Any], at: float, bottom: int) -> str:
    said = escape(seam["said"])
    drawn = (
        f'<title>{said}</title><rect class="hit" x="{at - 3:.6g}" y="0" width="6" height="{bottom}"/>'
        f'<line x1="{at}" x2="{at}" y1="0" y2="{bottom}"/>'
    )
    if seam["href"] is None:
        return f'<g class="seam">{drawn}</g>'
    return f'<a href="{escape(seam["href"])}" class="seam" aria-label="{said}">{drawn}</a>'


def _density(bars: Sequence[Mapping[str, Any]], place: Place, shape: Shape) -> Iterator[str]:
    most, total = max(bar["count"] for bar in bars), sum(bar["count"] for bar in bars)
    for number, text in enumerate((f"{total:,}", "rebalances")):
        yield f'<text x="{shape.left - 8}" y="{14 + 14 * number}" text-anchor="end">{text}</text>'
    for bar in bars:
        left, right = place(bar["from_ms"]), place(bar["to_ms"])
        height = round((_DENSITY - 8) * bar["count"] / most, 1)
        took = f", the longest took {show_duration(bar['longest_ms'])}" if bar["longest_ms"] else ""
        said = f"{bar['count']:,} from {show_clock(bar['from_ms'])[:8]} to {show_clock(bar['to_ms'])[:8]}{took}"
        yield (
            f'<g class="density"><title>{said}</title><rect x="{left}" y="{_DENSITY - 4 - height:.6g}" '
            f'width="{max(right - left - 0.5, 0.5):.4g}" height="{height}"/></g>'
        )


def _lane(lane: Mapping[str, Any], top: int, place: Place, shape: Shape, colours: Mapping[str, int]) -> Iterator[str]:
    name, most = lane["name"], shape.name_letters
    shown = name if len(name) <= most else f"…{name[1 - most :]}"
    label = (
        f'<title>{escape(name)}</title><text x="{shape.left - 8}" y="{top + 15}" text-anchor="end">'
        f"{escape(shown)}</text>"
    )
    yield f"<g>{label}</g>" if lane["href"] is None else f'<a href="{escape(lane["href"])}">{label}</a>'
    yield (
        f'<rect class="lane" x="{shape.left}" y="{top + 2}" width="{shape.width - shape.left}" height="{_LANE - 4}"/>'
    )
    # Of owners, and of times without a reader, which lie over them.
    latest = {False: 0.0, True: 0.0}
    unread = [(place(each["from_ms"]), place(each["to_ms"])) for each in lane["spans"] if each["is_unread"]]
    for span in lane["spans"]:
        left, right = place(span["from_ms"]), place(span["to_ms"])
        if right <= left or right - latest[span["is_unread"]] < _NARROWEST:
            continue
        latest[span["is_unread"]] = right
        member = span["member"]
        kind = "unread" if span["is_unread"] else f"m{colours.get(member, 0)}" if member else "many"
        title = f"<title>{escape(span['said'])}</title>" if span["said"] else ""
        yield (
            f'<g class="{kind}">{title}<rect x="{left}" y="{top + 2}" width="{right - left:.5g}" height="{_LANE - 4}"/>'
        )
        room = int((right - left) / _LETTER) - 1
        # A name begins behind the red that lies over the beginning of its span.
        at = bisect_right(unread, (left + _LETTER, 0.0)) - 1 if room > 0 else -1
        if at >= 0 and left < unread[at][1] < right - 2 * _LETTER:
            left = unread[at][1]
            room = int((right - left) / _LETTER) - 1
        if not span["is_unread"] and room > 0:
            text = member if len(member) <= room else member[: room - 1] + "…" if room > 3 else ""
            if text:
                yield f'<text x="{left + 4:.6g}" y="{top + 15}">{escape(text)}</text>'
        yield "</g>"


def _axis(from_ms: int, to_ms: int, top: int, place: Place, shape: Shape) -> Iterator[str]:
    step = next((each for each in _STEPS_MS if (to_ms - from_ms) / each <= shape.ticks), None)
    if step is None:
        # Longer than all steps: whole weeks.
        step = _STEPS_MS[-1] * -(-(to_ms - from_ms) // (_STEPS_MS[-1] * shape.ticks))
    form = "%H:%M:%S" if step < 60_000 else "%H:%M" if to_ms - from_ms < 86_400_000 else "%d %b %H:%M"
    # Ticks are at whole numbers of the local clock.
    shift = datetime.fromtimestamp(from_ms / 1000).astimezone().utcoffset()
    shift_ms = 0 if shift is None else int(shift.total_seconds() * 1000)
    first = -(-(from_ms + shift_ms) // step) * step - shift_ms
    for number in range(shape.ticks + 2):
        time_ms = first + number * step
        if time_ms > to_ms:
            return
        at = place(time_ms)
        anchor = "end" if at > shape.width - 40 else "middle" if at > shape.left + 40 else "start"
        yield f'<line class="tick" x1="{at}" x2="{at}" y1="{top}" y2="{top + 4}"/>'
        text = datetime.fromtimestamp(time_ms / 1000).strftime(form)
        yield f'<text class="tick" x="{at}" y="{top + 17}" text-anchor="{anchor}">{text}</text>'


def _lags(readings: Sequence[Sequence[int]], from_ms: int, top: int, place: Place, shape: Shape) -> Iterator[str]:
    shown = [(time_ms, lag) for time_ms, lag in readings if time_ms >= from_ms]
    most = max((lag for _, lag in shown), default=0)
    if len(shown) < 2:
        return
    bottom, room = top + _LAG - 4, _LAG - 20
    points = _steps((place(time_ms), round(bottom - room * lag / max(most, 1), 1)) for time_ms, lag in shown)
    line = " ".join(f"{x},{y}" for x, y in points)
    yield (
        f'<g class="lag"><title>Lag, {most:,} at most</title><text x="{shape.left - 8}" y="{top + 18}" '
        f'text-anchor="end">lag</text><text x="{shape.left + 4}" y="{top + 11}">{most:,} at most</text>'
        f'<text x="{shape.left - 8}" y="{bottom}" text-anchor="end">0</text>'
        f'<line class="tick" x1="{shape.left}" x2="{shape.width}" y1="{bottom}" y2="{bottom}"/>'
        f'<polyline points="{line}"/></g>'
    )


def _steps(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep of points in a column of the picture the highest: no more are to be seen."""
    found: dict[float, float] = {}
    for x, y in points:
        column = round(x, 0)
        found[column] = min(y, found.get(column, y))
    return list(found.items())
