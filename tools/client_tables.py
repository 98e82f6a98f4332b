"""Puts the tables of states, events and callbacks into docs/client.md, as the client's code has them.

Run it with: python tools/client_tables.py
"""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path

from kohort.client.consumer import application_events, context, reader, subscriptions
from kohort.client.consumer.membership.states import ACTIVE, TRANSITIONS, MemberState

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "client.md"

#: The design's name of an event -> ours.
EVENTS = {
    "fetch": [application_events.Chunk],
    "callback invocation": [application_events.CallbackWanted],
    "acknowledgement": [application_events.CallbackStarted, application_events.CallbackDone],
    "error": [application_events.Trouble],
    "poll": [application_events.Polled],
    "commit": [application_events.CommitAsked],
    "leave group": [application_events.Unsubscribed, application_events.CloseAsked],
}


def meanings(kind: type[Enum]) -> dict[str, str]:
    """Name of a value -> the `#:` lines above it."""
    found = re.findall(r"((?: {4}#: .*\n)+) {4}(\w+) = ", inspect.getsource(kind))
    return {name: " ".join(line.strip().removeprefix("#: ") for line in lines.splitlines()) for lines, name in found}


def states() -> list[str]:
    """What each state means."""
    told = meanings(MemberState)
    return ["| state | meaning |", "| --- | --- |", *(f"| {each.name} | {told[each.name]} |" for each in MemberState)]


def transitions() -> list[str]:
    """Which step leads where; what any active state does alike is one row."""
    rows = ["| from | step | to |", "| --- | --- | --- |"]
    shared = {
        (step, target)
        for step in {step for _, step in TRANSITIONS}
        for target in {TRANSITIONS.get((state, step)) for state in ACTIVE}
        if target is not None and all(TRANSITIONS.get((state, step)) is target for state in ACTIVE)
    }
    shown = None
    for (state, step), target in sorted(TRANSITIONS.items(), key=lambda entry: list(MemberState).index(entry[0][0])):
        if state in ACTIVE and (step, target) in shared:
            continue
        rows.append(f"| {'' if state is shown else state.name} | {step.value} | {target.name} |")
        shown = state
    for step, target in sorted(shared, key=lambda entry: entry[0].value):
        rows.append(f"| any state of a member | {step.value} | {target.name} |")
    return rows


def events() -> list[str]:
    """The design's events by our names."""
    rows = ["| event | in `application_events.py` | what it says |", "| --- | --- | --- |"]
    for name, kinds in EVENTS.items():
        for kind in kinds:
            said = (inspect.getdoc(kind) or "").splitlines()[0]
            rows.append(f"| {name} | `{kind.__name__}` | {said} |")
    return rows


def refusals() -> list[str]:
    """The calls that a callback may not make."""
    code = "".join(inspect.getsource(module) for module in (context, reader, subscriptions))
    names = {*re.findall(r'\.begin_long\("(\w+)"\)', code), *re.findall(r'\._read\(\s*"(\w+)"', code), "close"}
    return ["Refused in a callback: " + ", ".join(f"`{name}`" for name in sorted(names)) + "."]


#: Name of a table, as the document's markers have it.
TABLES = {"states": states, "transitions": transitions, "events": events, "refusals": refusals}


def render(text: str) -> str:
    """The document with the tables between its markers as they are now."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        made = f"{begin}\n\n" + "\n".join(make()) + f"\n\n{end}"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text, count = pattern.subn(lambda _, made=made: made, text)  # type: ignore[misc]
        assert count == 1, f"docs/client.md has {count} places for the {name}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text()))
