"""Puts the tables of states into docs/groups.md, as the coordinator's code has them.

Run it with: python tools/state_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kohort.coordinator.classic.state import TRANSITIONS as CLASSIC_TRANSITIONS
from kohort.coordinator.consumer.describe import GROUP_TRANSITIONS, MEMBER_TRANSITIONS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "groups.md"

#: Name of a table, as the document's markers have it -> (state, next state) -> what brings there.
TABLES: Mapping[str, Mapping[tuple[str, str], str]] = {
    "classic group": {(before.value, after.value): why for (before, after), why in CLASSIC_TRANSITIONS.items()},
    "consumer group": GROUP_TRANSITIONS,
    "consumer member": MEMBER_TRANSITIONS,
}


def table(transitions: Mapping[tuple[str, str], str]) -> str:
    """The rows of a Markdown table; a state is named in its first row only."""
    rows = ["| from | to | when |", "| --- | --- | --- |"]
    order = list(dict.fromkeys(before for before, _ in transitions))
    shown = ""
    for before, after in sorted(transitions, key=lambda step: order.index(step[0])):
        rows.append(f"| {'' if before == shown else before} | {after} | {transitions[before, after]} |")
        shown = before
    return "\n".join(rows)


def render(text: str) -> str:
    """The document with the tables between its markers as they are now."""
    for name, transitions in TABLES.items():
        begin, end = f"<!-- states of a {name} -->", "<!-- end of states -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        made = f"{begin}\n\n{table(transitions)}\n\n{end}"
        text, count = pattern.subn(lambda _, made=made: made, text)
        assert count == 1, f"docs/groups.md has {count} places for the states of a {name}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text()))
