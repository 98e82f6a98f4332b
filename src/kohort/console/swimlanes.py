"""Owners of partitions over time as SVG: a lane a partition, lag under them on the same axis.

Laws: no style and no script stands in the picture, as the page's policy forbids both; every text is escaped. What is
drawn is bounded: a span that ends less than a unit behind the one before is left out, until the picture is zoomed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

#: Where a time is, in units from the left.
Place = Callable[[float], float]
#: Units of the picture: its width, where time begins, heights of a lane, of the axis and of the lag.
_WIDTH: Final = 1000
_LEFT: Final = 150
_LANE: Final = 22
_AXIS: Final = 22
_LAG: Final = 64
#: Colours of members, which the style sheet has.
COLOURS: Final = 8
_NARROWEST: Final = 1.0
#: Letters that fit into a unit of a span; a lane's name has so many at most.
_LETTER: Final = 7.2
_NAME_LETTERS: Final = 20
_TICKS: Final = 6
_STEPS_MS: Final = tuple(
    1_000 * seconds for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
)


def draw_lanes(picture: Mapping[str, Any]) -> str:
    """Draw the lanes that `pages.picture_of` has put together."""
    from_ms: int = picture["from_ms"]
    to_ms: int = max(picture["to_ms"], from_ms + 1)
    lanes = picture["lanes"]
    has_lag = len(picture["lags"]) > 1
    height = _LANE * len(lanes) + _AXIS + (_LAG if has_lag else 0)

    def place(time_ms: float) -> float:
        share = (min(max(time_ms, from_ms), to_ms) - from_ms) / (to_ms - from_ms)
        return round(_LEFT + share * (_WIDTH - _LEFT), 2)

    colours = {member: number % COLOURS for number, member in enumerate(picture["members"])}
    parts = [
        f'<svg class="lanes" viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Owners of partitions over time" '
        f'data-from="{from_ms}" data-to="{to_ms}" data-left="{_LEFT / _WIDTH}">'
    ]
    for row, lane in enumerate(lanes):
        parts += _lane(lane, row * _LANE, place, colours)
    bottom = _LANE * len(lanes)
    for seam in picture["seams"]:
        if from_ms <= seam["time_ms"] <= to_ms:
            at = place(seam["time_ms"])
            parts.append(
                f'<a href="{escape(seam["href"])}" class="seam" aria-label="{escape(seam["said"])}"><title>'
                f'{escape(seam["said"])}</title><rect class="hit" x="{at - 3}" y="0" width="6" height="{bottom}"/>'
                f'<line x1="{at}" x2="{at}" y1="0" y2="{bottom}"/></a>'
            )
    parts += _axis(from_ms, to_ms, bottom, place)
    if has_lag:
        parts += _lags(picture["lags"], from_ms, bottom + _AXIS, place)
    return "".join([*parts, "</svg>"])


def _lane(lane: Mapping[str, Any], top: int, place: Place, colours: Mapping[str, int]) -> Iterator[str]:
    name = lane["name"]
    shown = name if len(name) <= _NAME_LETTERS else f"…{name[1 - _NAME_LETTERS :]}"
    yield (
        f'<a href="{escape(lane["href"])}"><title>{escape(name)}</title><text x="{_LEFT - 8}" y="{top + 15}" '
        f'text-anchor="end">{escape(shown)}</text></a>'
    )
    yield f'<rect class="lane" x="{_LEFT}" y="{top + 2}" width="{_WIDTH - _LEFT}" height="{_LANE - 4}"/>'
    # Of owners, and of times without a reader, which lie over them.
    latest = {False: 0.0, True: 0.0}
    for span in lane["spans"]:
        left, right = place(span["from_ms"]), place(span["to_ms"])
        if right <= left or right - latest[span["is_unread"]] < _NARROWEST:
            continue
        latest[span["is_unread"]] = right
        member = span["member"]
        kind = "unread" if span["is_unread"] else f"m{colours.get(member, 0)}"
        yield (
            f'<g class="{kind}"><title>{escape(span["said"])}</title><rect x="{left}" y="{top + 2}" '
            f'width="{round(right - left, 2)}" height="{_LANE - 4}"/>'
        )
        room = int((right - left) / _LETTER) - 1
        if not span["is_unread"] and room > 0:
            text = member if len(member) <= room else member[: room - 1] + "…" if room > 3 else ""
            yield f'<text x="{left + 4}" y="{top + 15}">{escape(text)}</text>'
        yield "</g>"


def _axis(from_ms: int, to_ms: int, top: int, place: Place) -> Iterator[str]:
    step = next((each for each in _STEPS_MS if (to_ms - from_ms) / each <= _TICKS), _STEPS_MS[-1])
    form = "%H:%M:%S" if step < 60_000 else "%H:%M" if to_ms - from_ms < 86_400_000 else "%d %b %H:%M"
    # Ticks are at whole numbers of the local clock.
    shift = datetime.fromtimestamp(from_ms / 1000).astimezone().utcoffset()
    shift_ms = 0 if shift is None else int(shift.total_seconds() * 1000)
    first = -(-(from_ms + shift_ms) // step) * step - shift_ms
    for number in range(_TICKS + 2):
        time_ms = first + number * step
        if time_ms > to_ms:
            return
        at = place(time_ms)
        anchor = "end" if at > _WIDTH - 40 else "middle" if at > _LEFT + 40 else "start"
        yield f'<line class="tick" x1="{at}" x2="{at}" y1="{top}" y2="{top + 4}"/>'
        text = datetime.fromtimestamp(time_ms / 1000).strftime(form)
        yield f'<text class="tick" x="{at}" y="{top + 17}" text-anchor="{anchor}">{text}</text>'


def _lags(readings: Sequence[Sequence[int]], from_ms: int, top: int, place: Place) -> Iterator[str]:
    shown = [(time_ms, lag) for time_ms, lag in readings if time_ms >= from_ms]
    most = max((lag for _, lag in shown), default=0)
    if len(shown) < 2:
        return
    bottom, room = top + _LAG - 4, _LAG - 20
    points = _steps((place(time_ms), round(bottom - room * lag / max(most, 1), 1)) for time_ms, lag in shown)
    line = " ".join(f"{x},{y}" for x, y in points)
    yield (
        f'<g class="lag"><title>Lag, {most:,} at most</title><text x="{_LEFT - 8}" y="{top + 18}" text-anchor="end">'
        f'lag {most:,}</text><text x="{_LEFT - 8}" y="{bottom}" text-anchor="end">0</text>'
        f'<line class="tick" x1="{_LEFT}" x2="{_WIDTH}" y1="{bottom}" y2="{bottom}"/><polyline points="{line}"/></g>'
    )


def _steps(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep of points in a column of the picture the highest: no more are to be seen."""
    found: dict[float, float] = {}
    for x, y in points:
        column = round(x, 0)
        found[column] = min(y, found.get(column, y))
    return list(found.items())
