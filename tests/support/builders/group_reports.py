"""Contents of a report's page without Spark: groups whose rows are told, explained and drawn as Spark's workers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kohort.cli.report.page import SECTIONS
from kohort.cli.report.timelines import draw_group
from kohort.client.admin.results.groups import HistoryEvent
from kohort.journal.explain.explaining import explain
from support.dialogues.journal_rows import Followed, GroupRows

SUMMARY = {
    "rebalances": 1, "seconds": 0.4, "longest_seconds": 0.4, "moved": 3, "from_ms": 0, "to_ms": 1,
    "first": "2026-01-31 12:00:00.000", "last": "2026-01-31 12:00:00.000",
}  # fmt: skip


def report(**lines: Any) -> dict[str, Any]:
    """A report of one group without any line, but for those given."""
    empty: dict[str, Any] = {section.name: [] for section in SECTIONS}
    return {**empty, "groups": ["billing"], "made": "now", "notes": [], "summary": SUMMARY, **lines}


def two_members() -> GroupRows:
    """The rows of `Followed.two_members`, which may go on."""
    return Followed().two_members()


def report_of(groups: Mapping[str, Sequence[HistoryEvent]], *, lag: Sequence[int] = (), **lines: Any) -> dict[str, Any]:
    """A report of these groups by their rows; `lag`: that of each of them, from its first row to its last."""
    found = {group_id: explain(group_id, rows) for group_id, rows in groups.items()}
    pictures = {group_id: draw_group(each, end_ms=groups[group_id][-1].time_ms) for group_id, each in found.items()}
    by_group = [
        {
            "group_id": group_id, "state": picture["state"], "rebalances": picture["rebalances"],
            "unread_seconds": picture["unread_ms"] / 1000, "lag_now": lag[-1] if lag else None,
            "most": max(lag, default=None), "advice": picture["advice"] or "Nothing",
        }
        for group_id, picture in pictures.items()
    ]  # fmt: skip
    points = [
        {"group_id": group_id, "time_ms": each["from_ms"] + number * (each["to_ms"] - each["from_ms"]) // len(lag),
         "lag": value}
        for group_id, each in pictures.items()
        for number, value in enumerate(lag)
    ]  # fmt: skip
    drawn = {"groups": list(groups), "pictures": pictures, "by_group": by_group, "lag_points": points}
    return report(**{**drawn, **lines})
