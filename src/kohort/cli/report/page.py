"""The page: one HTML file with tables, SVG pictures and style inside, without scripts or network.

Pictures, colours and sentences are those of the console; durations are told as `kohort group why` tells them.

Laws: every text that comes from a group is escaped; the file is replaced at once, so that a reader sees the
old page or the new one. Equal contents give an equal page. However many groups and partitions there are, the page has
at most a megabyte: pictures of many groups have fewer lanes, and the page says how many are left out.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import kohort.console
from kohort.cli.folders import PAGE_MARK
from kohort.console.swimlanes import BROAD, NARROW, Shape, draw_lanes
from kohort.journal.words import show_clock, show_duration

_STYLE: Final = """
main { padding-bottom: 3rem; } h3 { font-size: 1rem; margin: 1.8rem 0 .3rem; overflow-wrap: anywhere; }
td, td:first-child { overflow-wrap: break-word; min-width: 0; } .long { overflow-wrap: anywhere; }
th, th.n { white-space: normal; vertical-align: bottom; } .name { white-space: nowrap; } .none { color: var(--quiet); }
svg.lanes { min-width: 0; } .narrow { display: none; }
ul.members { display: flex; flex-wrap: wrap; gap: .1rem .9rem; list-style: none; padding: 0; margin: .3rem 0; }
ul.members svg { width: 12px; height: 12px; margin-right: .3rem; } details { margin: .3rem 0; }
ol { padding-left: 1.4rem; } li:target { background: var(--soft); }
@media (max-width: 700px) {
  .broad { display: none; } .narrow { display: block; } thead { display: none; } table { min-width: 0; width: 100%; }
  tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  td, .n, .t { display: block; text-align: left; white-space: normal; border: 0; padding: .05rem 0; max-width: none; }
  td::before { content: attr(data-head) ": "; color: var(--quiet); } td:first-child { font-weight: 600; }
}
"""
#: Columns of names.
_NAMES: Final = ("group_id", "topic", "member", "host")
#: Letters of a name and of another word that are not broken into two lines; the most that are shown of a name, in a
#: heading and in a table.
_UNBROKEN_LETTERS: Final = 36
_WORD_LETTERS: Final = 20
_HEADING_LETTERS: Final = 120
_NAME_LETTERS: Final = 60
#: Bytes of all pictures together; half of them for narrow screens.
_PICTURE_BYTES: Final = 560_000
#: Lanes, ticks or bars, and readings of lag of a picture: as many as there is room for.
_DETAILS: Final = ((40, 100, 400), (24, 60, 200), (12, 30, 120), (6, 12, 60), (3, 6, 30), (1, 4, 20))
_MEMBERS_NAMED: Final = 8


class Section(NamedTuple):
    """A part of the page: the name of its lines in the report, its title, its explanation, and the heads of columns."""

    name: str
    title: str
    explains: str
    empty: str
    heads: Mapping[str, str]


_GROUP: Final = {"group_id": "Group"}
SECTIONS: Final = (
    Section("causes", "Why groups rebalanced",
            "A rebalance lasts from the row that began it to the one after which the group was at rest.",
            "No group rebalanced.",
            {"why": "Began because of", "rebalances": "Rebalances", "median_seconds": "Half of them took at most",
             "p95_seconds": "19 of 20 took at most", "longest_seconds": "The longest took",
             "moved": "Partitions that moved", "unread_seconds": "Longest time without a reader"}),
    Section("rebalances", "The latest rebalances",
            "Partitions move from one living member to another, which has to stop for that; of classic groups such "
            "moves are not counted. A rebalance without a duration is not over.", "No group rebalanced.",
            {**_GROUP, "protocol": "Protocol", "epoch": "Epoch", "began": "Began", "seconds": "Took",
             "why": "Began because of", "cause": "More exactly", "members": "Members then",
             "moved": "Partitions that moved", "given_back_by": "Members that gave some up",
             "unread": "Partitions left unread", "unread_seconds": "Longest time without a reader"}),
    Section("unread", "Partitions without a reader",
            "From its owner's last fetch or commit to the next one's first fetch, as far as they are seen. Times in "
            "which a group had no member are left out.", "Every partition was read.",
            {**_GROUP, "topic": "Topic", "partition": "Partition", "times": "Times", "seconds": "All together",
             "longest_seconds": "The longest time", "longest_because": "Because of", "still": "Not over"}),
    Section("waits", "Members that kept others waiting, or waited",
            "More than a second, the longest first. A member without a duration still waits, or is still waited for.",
            "No member waited for more than a second.",
            {**_GROUP, "member": "Member", "began": "Began", "seconds": "Took", "why": "It", "end": "Until it was",
             "partitions": "Partitions"}),
    Section("flapping", "Members that come and go", "Three ends or more in an hour.", "No member comes and goes.",
            {**_GROUP, "member": "Member", "host": "Host", "began": "In the hour from", "ends": "Times it ended",
             "silent": "By session timeout", "shortest_seconds": "Shortest stay", "mean_seconds": "Mean stay"}),
    Section("skew", "How even the partitions are",
            "The share of the member that has most, in even shares: 1 is even.",
            "There is no group of the consumer protocol.",
            {**_GROUP, "epoch": "Epoch", "members": "Members", "partitions": "Partitions",
             "fewest": "The least a member has", "most": "The most a member has", "ratio": "In even shares",
             "worst_ratio": "The worst that it was"}),
    Section("what_if", "What another assignor would have moved",
            "The same members with each assignor from the beginning; partitions taken from living members.",
            "There is no group of the consumer protocol, or assignors were not asked.",
            {**_GROUP, "rebalances": "Rebalances", "as_it_was": "As it was"}),
    Section("refusals", "What was refused", "Without what every classic rebalance has.", "No request was refused.",
            {**_GROUP, "api": "Request", "error": "Answer", "times": "Times", "last": "The last time",
             "because": "Because"}),
)  # fmt: skip
_BY_GROUP: Final = {
    **_GROUP, "state": "It is", "rebalances": "Rebalances", "unread_seconds": "Partitions were unread for",
    "lag_now": "Lag now", "most": "Its worst lag", "advice": "To be done",
}  # fmt: skip


def write_page(report: dict[str, Any], out: Path) -> None:
    """Write the page to a draft next to `out`, then rename it to `out`."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        draft.write_text(render(report), encoding="utf-8", errors="replace")
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def render(report: dict[str, Any]) -> str:
    """Render the page as text; `report` is the result of `aggregate`."""
    groups = report["groups"]
    title = f"Group {groups[0]}" if len(groups) == 1 else f"{len(groups):,} groups"
    has_history = "summary" in report
    css = Path(kohort.console.__file__).with_name("static") / "console.css"
    parts = [
        f"<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n{PAGE_MARK}",
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>',
        f"<style>{css.read_text(encoding='utf-8')}{_STYLE}</style>\n</head>\n<body>\n<main>",
        f"<h1><bdi>{escape(_shorten(title))}</bdi></h1>\n<p class=quiet>Made {escape(report['made'])}.</p>",
        *(f"<p>{escape(note)}</p>" for note in report["notes"]),
        f"<p>{_sum_up(report)}</p>" if has_history else "",
        *_tell_groups(report),
    ]
    for section in SECTIONS if has_history else ():
        if section.name == "rebalances" and report.get("pictures"):
            # They are told beside the pictures of their groups.
            continue
        parts.append(f"<h2>{section.title}</h2>\n<p>{section.explains}</p>")
        if section.name == "causes":
            parts.append(_draw_density(report))
        parts.append(_table(report.get(section.name, []), section.heads, empty=section.empty))
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


def _sum_up(report: dict[str, Any]) -> str:
    summary = report["summary"]
    if not summary["rebalances"]:
        return "No group rebalanced in that time."
    count = _count(summary["rebalances"], "rebalance", "rebalances")
    moved = f"; {summary['moved']:,} partitions moved between members" if summary["moved"] else ""
    longest = f", the longest {_duration(summary['longest_seconds'])}" if summary["longest_seconds"] else ""
    flapping, waits = len(report["flapping"]), sum(line["ended"] is None for line in report["waits"])
    come = (
        f" {_count(flapping, 'member comes', 'members come')} and {'goes' if flapping == 1 else 'go'}."
        if flapping
        else ""
    )
    wait = f" {_count(waits, 'wait is', 'waits are')} not over." if waits else ""
    return (
        f"{count} from {_minute(summary['first'])} to {_minute(summary['last'])} took "
        f"{_duration(summary['seconds'])} together{longest}{moved}.{come}{wait}"
    )


def _minute(time: str | None) -> str:
    return escape((time or "")[:19])


# -- groups -----------------------------------------------------------------------------------------------------------


def _tell_groups(report: dict[str, Any]) -> Iterator[str]:
    """Return the table of groups, and a picture with sentences for each."""
    lines = report.get("by_group", [])
    left_out = len(report["groups"]) - len(lines)
    yield "<h2>Groups</h2>"
    if left_out > 0:
        yield f"<p>The {len(lines):,} whose partitions no member read for longest. {left_out:,} more are left out.</p>"
    numbers = {line["group_id"]: number for number, line in enumerate(lines)}
    yield _table(lines, _BY_GROUP, empty="There is no group.", links=numbers)
    readings: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for point in report.get("lag_points", ()):
        readings[point["group_id"]].append((point["time_ms"], point["lag"]))
    pictures = report.get("pictures", {})
    drawn = [group_id for group_id in numbers if group_id in pictures or len(readings[group_id]) > 1]
    if not drawn:
        return
    yield (
        "<h2>Owners over time</h2>\n<p>Each lane is a partition, or all partitions with the same history. Colours are "
        "members, red is a time in which no member read, and a dashed line is a rebalance. Lag is below, on the same "
        "axis of time.</p>"
    )
    room = _PICTURE_BYTES // len(drawn)
    for group_id in drawn:
        yield _draw_group(group_id, numbers[group_id], pictures.get(group_id), readings[group_id], room=room)


def _draw_group(
    group_id: str,
    number: int,
    picture: Mapping[str, Any] | None,
    readings: Sequence[tuple[int, int]],
    *,
    room: int,
) -> str:
    if picture is None:
        # Of brokers without a history lag is known.
        picture = {"from_ms": readings[0][0], "to_ms": readings[-1][0], "lanes": [], "seams": [], "members": []}
    anchor = f"g{number}"
    seams = [{**each, "href": each["href"] and f"#{anchor}-{each['href'][1:]}"} for each in picture["seams"]]
    within = [number for number, each in enumerate(readings) if picture["from_ms"] <= each[0] <= picture["to_ms"]]
    # The next reading says how lag goes on to the picture's end.
    lags = readings[within[0] : within[-1] + 2] if within else []
    whole = {**picture, "seams": seams, "lags": lags}
    broad, shown = _fit(whole, BROAD, room // 2)
    narrow, _ = _fit(whole, NARROW, room // 2)
    told = picture.get("told", ())
    parts = [
        f'<h3 id="{anchor}"><bdi title="{escape(group_id)}">{escape(_shorten(group_id))}</bdi></h3>',
        f"<p>{escape(picture['summary'][:1].upper() + picture['summary'][1:])}.</p>" if picture.get("summary") else "",
        _legend(picture["members"]),
        f'<div class="broad">{broad}</div><div class="narrow">{narrow}</div>',
        f"<p class=quiet>{' '.join(_say_left_out(picture, shown))}</p>",
    ]
    if told:
        count = f"The latest {len(told):,} of {picture['rebalances']:,} rebalances"
        if len(told) == picture["rebalances"]:
            count = "Its rebalance" if len(told) == 1 else f"Its {len(told):,} rebalances"
        items = "".join(_item(f"{anchor}-{at}", each) for at, each in enumerate(told))
        parts.append(
            f"<details{' open' if number == 0 else ''}><summary>{count}, in words</summary>\n<ol>{items}</ol></details>"
        )
    return "\n".join(filter(None, parts))


def _item(anchor: str, told: Mapping[str, Any]) -> str:
    day = f"{datetime.fromtimestamp(told['time_ms'] / 1000):%Y-%m-%d}"
    timing = f" <span class=quiet>{escape(told['timing'])}</span>" if told["timing"] else ""
    return f'<li id="{anchor}"><time>{day} {show_clock(told["time_ms"])}</time> {escape(told["said"])}{timing}</li>'


def _legend(members: Sequence[str]) -> str:
    """Name the members of a picture, if each has a colour of its own."""
    if not 0 < len(members) <= _MEMBERS_NAMED:
        return ""
    chip = '<svg viewBox="0 0 12 12" aria-hidden="true"><g class="m{0}"><rect width="12" height="12"/></g></svg>'
    items = (f"<li>{chip.format(number)}<bdi>{escape(name)}</bdi></li>" for number, name in enumerate(members))
    return f"<ul class=members>{''.join(items)}</ul>"


def _fit(picture: Mapping[str, Any], shape: Shape, room: int) -> tuple[str, dict[str, Any]]:
    """Draw a picture with the most detail that `room` bytes allow; return it with the values drawn."""
    for lanes, ticks, readings in _DETAILS:
        part = {**picture, "lanes": picture["lanes"][:lanes], "lags": _thin(picture["lags"], readings)}
        if len(part["seams"]) > ticks or part.get("density"):
            part |= {"seams": [], "density": _coarsen(picture["bars"], ticks)}
        drawn = draw_lanes(part, shape)
        if len(drawn.encode()) <= room:
            break
    return drawn, part


def _thin(readings: Sequence[tuple[int, int]], most: int) -> Sequence[tuple[int, int]]:
    """Keep the highest of neighbouring readings, if they are too many, and the last."""
    size = -(-len(readings) // most)
    if size < 2:
        return readings
    parts = (readings[at : at + size] for at in range(0, len(readings), size))
    return [*(max(part, key=lambda each: each[1]) for part in parts), readings[-1]]


def _coarsen(bars: Sequence[Mapping[str, Any]], most: int) -> Sequence[Mapping[str, Any]]:
    """Put neighbouring bars of a density together until each of at most so many spans of time has one."""
    first, width = bars[0]["from_ms"], max(bars[-1]["to_ms"] - bars[0]["from_ms"], 1)
    found: dict[int, dict[str, Any]] = {}
    for bar in bars:
        part = found.setdefault((bar["from_ms"] - first) * most // width, {**bar, "count": 0, "longest_ms": 0})
        part["to_ms"] = bar["to_ms"]
        part["count"] += bar["count"]
        part["longest_ms"] = max(part["longest_ms"], bar["longest_ms"])
    return list(found.values())


def _say_left_out(picture: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[str]:
    left_out, lanes = picture.get("left_out", {}), len(shown["lanes"])
    if lanes < len(picture["lanes"]) or left_out.get("partitions"):
        yield (
            f"{lanes:,} lanes of its {picture['partitions']:,} partitions are drawn: those that no member read for "
            "longest, then those that stand for most partitions."
        )
    if shown.get("density"):
        yield f"Its {picture['rebalances']:,} rebalances are too many for a line each: bars show how many began when."
    if left_out.get("rows"):
        yield f"The picture is of its latest rows; {left_out['rows']:,} older ones are only counted."


def _draw_density(report: dict[str, Any]) -> str:
    bars, summary = report.get("density", []), report["summary"]
    if len(bars) < 2:
        return ""
    picture = {
        "from_ms": summary["from_ms"], "to_ms": bars[-1]["to_ms"], "lanes": [], "seams": [], "members": [],
        "lags": [], "density": bars,
    }  # fmt: skip
    width = show_duration(bars[0]["to_ms"] - bars[0]["from_ms"])
    return (
        f"<p>All {summary['rebalances']:,} rebalances by their beginning, {width} a bar.</p>\n"
        f'<div class="broad">{draw_lanes(picture)}</div><div class="narrow">{draw_lanes(picture, NARROW)}</div>'
    )


# -- tables -----------------------------------------------------------------------------------------------------------


def _table(
    lines: Sequence[dict[str, Any]], heads: Mapping[str, str], *, empty: str, links: Mapping[str, int] | None = None
) -> str:
    if not lines:
        return f"<p class=none>{empty}</p>"
    # Assignors are columns that have no words but their names.
    known = {"member_id", "ended", "lag"}
    names = [*(name for name in heads if name in lines[0]), *(n for n in lines[0] if n not in heads and n not in known)]
    numeric = {name for name in names if all(isinstance(line[name], (int, float, type(None))) for line in lines)}
    words = {name: heads.get(name, name.replace("_", " ")) for name in names}
    head = "".join(f"<th{' class=n' if name in numeric else ''}>{escape(words[name])}</th>" for name in names)
    rows = (
        "<tr>"
        + "".join(
            f'<td{" class=n" if name in numeric else ""} data-head="{escape(words[name])}">'
            f"{_cell(name, line[name], links)}</td>"
            for name in names
        )
        + "</tr>"
        for line in lines
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _cell(name: str, value: Any, links: Mapping[str, int] | None) -> str:
    if value is None:
        return "-"
    if name.endswith("seconds"):
        return f"<span class=name>{_duration(value)}</span>"
    if name in ("began", "last"):
        return f"<span class=name>{escape(str(value)[:19])}</span>"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    said = str(value)
    text = f"<bdi>{escape(said)}</bdi>"
    if name in _NAMES and len(said) > _NAME_LETTERS:
        text = f'<bdi title="{escape(said)}">{escape(said[: _NAME_LETTERS - 1])}…</bdi>'
    if name == "group_id" and links is not None:
        text = f'<a href="#g{links[value]}">{text}</a>'
    if name in _NAMES and len(said) <= _UNBROKEN_LETTERS:
        return f"<span class=name>{text}</span>"
    # Only what is too long for any column is broken within a word.
    is_long = any(len(word) > _WORD_LETTERS for word in said.split())
    return f"<span class=long>{text}</span>" if is_long else text


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _duration(seconds: float) -> str:
    return show_duration(round(seconds * 1000))


def _shorten(name: str) -> str:
    return name if len(name) <= _HEADING_LETTERS else f"{name[: _HEADING_LETTERS - 1]}…"
