"""The page: one HTML file with tables, SVG plots and style inside, without scripts or network.

Laws: every text that comes from a group is escaped; the file is replaced at once, so that a reader sees the
old page or the new one. Equal lines give an equal picture.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kohort.cli.folders import PAGE_MARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; } p { max-width: 60rem; }
.sums { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; list-style: none; }
.sums li { background: var(--soft); border-radius: .5rem; padding: .6rem 1rem; }
.sums b { display: block; font-size: 1.5rem; }
.wide { overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; } td.t { white-space: nowrap; } th { font-weight: 600; } .none { opacity: .7; }
"""
#: Columns of times, which are not broken into two lines.
_TIMES: Final = ("began", "last")


class Section(NamedTuple):
    """A part of the page: the name of its lines in the report, its title and its explanation."""

    name: str
    title: str
    explains: str
    empty: str


SECTIONS: Final = (
    Section("causes", "Why groups rebalanced",
            "From the row that began a rebalance to the one after which the group was at rest.", "No rebalance."),
    Section("rebalances", "The latest rebalances",
            "moved: partitions that went from one living member to another; given back by: members that had to stop "
            "for that; unread: partitions without a reader until then, unread seconds: the longest of them. Of classic "
            "groups moves are not counted. Without seconds: it is not over.", "No rebalance."),
    Section("unread", "Partitions without a reader",
            "From its owner's last fetch or commit to the next one's first fetch, as far as they are seen. Groups "
            "without any member are left out.", "Every partition was read."),
    Section("waits", "Members that kept others waiting, or waited",
            "More than a second, or still, which has no seconds; the longest first. asked back: it had to give up "
            "partitions; away: a static member that left for a while.", "No member waited for more than a second."),
    Section("flapping", "Members that come and go", "Three ends or more in an hour.", "None."),
    Section("lag", "Lag", "Offsets that were there and not committed, out of the commits that the brokers keep.",
            "No commits are known, or lag was not asked for."),
    Section("skew", "How even the partitions are", "ratio: the most that one member has, to the mean; 1 is even. "
            "worst: of all rebalances.", "No groups of the consumer protocol."),
    Section("what_if", "What another assignor would have moved",
            "The same members with each assignor from the beginning; partitions taken from living members.",
            "No groups of the consumer protocol, or assignors were not asked."),
    Section("refusals", "What was refused", "Without what every classic rebalance has.", "Nothing."),
)  # fmt: skip


def write_page(report: dict[str, Any], out: Path) -> None:
    """Write the page to a draft next to `out`, then rename it to `out`."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        draft.write_text(render(report), encoding="utf-8")
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def render(report: dict[str, Any]) -> str:
    """Render the page as text; `report` is the result of `aggregate`."""
    groups = report["groups"]
    title = f"Group {groups[0]}" if len(groups) == 1 else f"{len(groups)} groups"
    pictures = {
        "causes": draw_rebalances(report.get("points", [])),
        "unread": draw_unread(report.get("unread", [])),
        "lag": draw_lag(report.get("lag_points", [])),
        "what_if": draw_moved(report.get("what_if", [])),
    }
    parts = [
        f"<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n{PAGE_MARK}",
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>',
        f"<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>\n<p>Made {escape(report['made'])}{_span(report)}.</p>",
        *(f"<p>{escape(note)}</p>" for note in report["notes"]),
        _sums(report) if "summary" in report else "",
    ]
    for section in SECTIONS:
        if "summary" not in report and section.name != "lag":
            # Nothing is known of it, which is not the same as that nothing happened.
            continue
        parts.append(f"<h2>{section.title}</h2>\n<p>{section.explains}</p>")
        if pictures.get(section.name):
            parts.append(f'<div class="wide">{pictures[section.name]}</div>')
        parts.append(_table(report.get(section.name, []), empty=section.empty))
    return "\n".join([*parts, "</body>\n</html>\n"])


def _span(report: dict[str, Any]) -> str:
    summary = report.get("summary")
    return f"; rebalances from {summary['first']} to {summary['last']}" if summary and summary["first"] else ""


def _sums(report: dict[str, Any]) -> str:
    summary = report["summary"]
    sums = {
        "rebalances": summary["rebalances"],
        "seconds in rebalances": summary["seconds"],
        "seconds, the longest": summary["longest_seconds"],
        "partitions moved": summary["moved"],
        "members that come and go": len(report["flapping"]),
        "waits without an end": sum(line["ended"] is None for line in report["waits"]),
    }
    return (
        "<ul class=sums>" + "".join(f"<li><b>{_show(value)}</b>{name}</li>" for name, value in sums.items()) + "</ul>"
    )


def _table(lines: Sequence[dict[str, Any]], *, empty: str) -> str:
    if not lines:
        return f"<p class=none>{empty}</p>"
    # A beginning and its seconds say the end, for which there is no room.
    left_out = {"member_id", "ended"} if "seconds" in lines[0] else {"member_id"}
    names = [name for name in lines[0] if name not in left_out]
    numeric = {name for name in names if all(isinstance(line[name], (int, float, type(None))) for line in lines)}
    kinds = {name: " class=n" if name in numeric else " class=t" if name in _TIMES else "" for name in names}
    head = "".join(f"<th{kinds[name]}>{escape(name.replace('_', ' '))}</th>" for name in names)
    rows = (
        "<tr>" + "".join(f"<td{kinds[name]}>{_show(line[name])}</td>" for name in names) + "</tr>" for line in lines
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        # As many digits in every line, so that points stand below each other.
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(str(value))


Lines = list[dict[str, Any]]
#: Stands in for the page's colour of text.
_INK: Final = "#010203"
_BARS: Final = 15


def draw_rebalances(points: Lines) -> str:
    """Draw the begin and length of rebalances by their triggers; those without an end are left out."""

    def draw(axes: Axes) -> None:
        ended = [point for point in points if point["seconds"] is not None]
        for why in sorted({point["why"] or "" for point in ended}):
            own = [point for point in ended if (point["why"] or "") == why]
            axes.scatter(_times(own, "began"), [point["seconds"] for point in own], s=18, alpha=0.8, label=why)
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK)

    return _draw(draw, name="rebalances") if any(point["seconds"] is not None for point in points) else ""


def draw_unread(lines: Lines) -> str:
    """Draw for how long each partition had no reader, the longest on top."""

    def draw(axes: Axes) -> None:
        shown = [line for line in lines[:_BARS] if line["seconds"]][::-1]
        axes.barh(
            [f"{line['topic']}-{line['partition']} ({line['group_id']})" for line in shown],
            [line["seconds"] for line in shown],
        )
        axes.set_xlabel("seconds")

    return _draw(draw, name="unread") if any(line["seconds"] for line in lines) else ""


def draw_lag(points: Lines) -> str:
    """Draw lag over time, a curve a group."""

    def draw(axes: Axes) -> None:
        for group in dict.fromkeys(point["group_id"] for point in points):
            own = [point for point in points if point["group_id"] == group and point["lag"] is not None]
            axes.step(_times(own, "time"), [point["lag"] for point in own], where="post", label=group)
        axes.set_ylabel("records")
        # Groups that are never behind have a line at 0 and no thousandths of records.
        axes.set_ylim(bottom=0, top=max(1, axes.get_ylim()[1]))
        axes.locator_params(axis="y", integer=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK)

    return _draw(draw, name="lag") if points else ""


def draw_moved(lines: Lines) -> str:
    """Draw the moves made and those that assignors would have made, of all groups together."""
    names = [name for name in (lines[0] if lines else {}) if name not in ("group_id", "rebalances")]

    def draw(axes: Axes) -> None:
        sums = [sum(line[name] or 0 for line in lines) for name in names]
        bars = axes.barh([name.replace("_", " ") for name in names][::-1], sums[::-1], color="tab:blue")
        bars[-1].set_color("tab:orange")
        axes.set_xlabel("partitions moved")

    return _draw(draw, name="moved") if lines else ""


def _times(lines: Lines, name: str) -> Any:
    return [datetime.fromisoformat(line[name]) for line in lines]


def _draw(draw: Callable[[Axes], None], *, name: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    ink: Any = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "axes.axisbelow": True, **ink}):
        figure = Figure(figsize=(9, 3.2), constrained_layout=True)
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2, color=_INK)
        draw(axes)
        if isinstance(axes.xaxis.get_major_locator(), AutoDateLocator):
            formatter: Any = ConciseDateFormatter
            axes.xaxis.set_major_formatter(formatter(axes.xaxis.get_major_locator()))
        text = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(text, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    # Pictures of one page share its names.
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
