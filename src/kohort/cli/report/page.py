"""The page: one HTML file with tables, pictures and style inside, without scripts or network.

Laws: every text that comes from a group is escaped; the file is replaced at once, so that a reader sees the
old page or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from kohort.cli.report import plots

#: The mark that every report has near its beginning, and no other page.
MARK: Final = '<meta name="generator" content="kohort report">'

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
            "for that; unread: partitions that nobody read until then, unread seconds: the longest of them. Of classic "
            "groups moves are not counted. Without seconds: it is not over.", "No rebalance."),
    Section("unread", "Partitions that nobody read",
            "From its owner's last fetch or commit to the next one's first fetch, as far as they are seen. Groups "
            "without any member are left out.", "Every partition was read."),
    Section("waits", "Members that kept others waiting, or waited",
            "More than a second, or still, which has no seconds; the longest first. asked back: it had to give up "
            "partitions; away: a static member that left for a while.", "Nobody waited for more than a second."),
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
    """Write the page beside `out`, then in its place."""
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
        "causes": plots.draw_rebalances(report.get("points", [])),
        "unread": plots.draw_unread(report.get("unread", [])),
        "lag": plots.draw_lag(report.get("lag_points", [])),
        "what_if": plots.draw_moved(report.get("what_if", [])),
    }
    parts = [
        f"<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n{MARK}",
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
