"""Puts the table of laws into docs/internals/simulation.md: each with what checks it and the tests that prove it.

A proof is a test with `assert law_that_finds(...) == "NAME OF THE LAW"`: worlds with that planted bug break this law
and no other.

Run it with: python tools/laws_table.py
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from kohort.simulation.checkers import LAWS

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
DOCUMENT = ROOT / "docs" / "internals" / "simulation.md"
PATTERN = re.compile(r"(?<=<!-- laws -->\n).*?(?=<!-- end of laws -->)", re.DOTALL)


def proofs() -> dict[str, list[str]]:
    """Name of a law -> the tests that prove it, as `FILE::TEST` below tests/, in the order of the files."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((TESTS / "sim").glob("test_*.py")):
        if path.name.startswith(("test_client_", "test_query_")):
            continue  # Those worlds have laws of their own.
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for law in laws_claimed_in(node):
                    found[law].append(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return found


def laws_claimed_in(test: ast.FunctionDef) -> Iterator[str]:
    """The laws that a test compares the outcome of its worlds with."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(
                left=ast.Call(func=ast.Name("law_that_finds")), ops=[ast.Eq()], comparators=[ast.Constant(str(law))]
            ):
                yield law


def table(proved: dict[str, list[str]]) -> str:
    """A row for each law."""
    rows = ["| law | what has to hold | checked by | proved by |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{name}` | {law.meaning} | `{law.checker}` | {_in_a_cell(proved[name])} |" for name, law in LAWS.items()
    ]
    return "\n".join(rows)


def _in_a_cell(tests: Sequence[str]) -> str:
    return ", ".join(f"`{test}`" for test in tests)


def render(text: str) -> str:
    """The document with the table between its markers as it is now."""
    text, count = PATTERN.subn(lambda _: f"\n{table(proofs())}\n\n", text)
    assert count == 1, f"docs/internals/simulation.md has {count} places for the laws"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text()))
