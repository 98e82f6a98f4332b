"""Sizes and cleanliness of the source, held by a test a rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MODULE_LINES = 800
FUNCTION_LINES = 60
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
#: What tells the time, by the last part of its name.
CLOCKS = {
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "src").as_posix()


def test_modules_are_small_enough() -> None:
    """House style: a module ends where its idea ends, and has 800 lines at most."""
    lines = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: found for name, found in lines.items() if found > MODULE_LINES} == {}


def test_functions_are_small_enough() -> None:
    """House style: 60 lines a function."""
    lines = {name: found for path in SOURCES for name, found in parts_of(path).functions.items()}
    assert {name: found for name, found in lines.items() if found > FUNCTION_LINES} == {}


class Parts(NamedTuple):
    """What the rules are about in a module, taken from its tree in one walk: trees of all modules have a gigabyte."""

    docstring: str | None
    #: Name of each function -> its lines; of several of one name in a module the longest counts.
    functions: dict[str, int]
    #: Its texts that are no docstrings.
    texts: list[str]


@cache
def parts_of(path: Path) -> Parts:
    """Read a module."""
    tree = ast.parse(path.read_text())
    functions: dict[str, int] = {}
    constants: dict[int, str] = {}
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{name_of(path)}:{node.name}"
            functions[name] = max(functions.get(name, 0), (node.end_lineno or node.lineno) - node.lineno + 1)
        elif isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            constants[id(node)] = node.value
    texts = [text for number, text in constants.items() if number not in docstrings]
    return Parts(ast.get_docstring(tree), functions, texts)


def test_modules_say_what_they_are_for() -> None:
    """House style: every module starts with a docstring; empty packages need none."""
    silent = [path for path in SOURCES if not parts_of(path).docstring and path.read_text().strip()]
    assert [name_of(path) for path in silent] == []
    assert [name_of(path) for path in SOURCES if path.stem in VAGUE_NAMES] == [], "says nothing about what is inside"


def test_messages_name_the_actor() -> None:
    """House style: errors, help and log lines say which member, broker or client."""
    vague = re.compile(r"\b(whoever|whatever|somebody|nobody|everybody|anybody)\b", re.IGNORECASE)
    texts = [(path, text) for path in SOURCES for text in parts_of(path).texts]
    assert [f"{name_of(path)}: {text}" for path, text in texts if vague.search(text)] == []


def test_glossary_names_modules_that_are_there() -> None:
    """docs/glossary.md: a term names its module, an old name leads to a module, and no old name has come back."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    modules = {name_of(path).removesuffix(".py").removesuffix("/__init__").removeprefix("kohort/") for path in SOURCES}
    terms = re.findall(r"^\| [^`|].*\| `([^`]+)` \|$", text, re.MULTILINE)
    renamed = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE)
    assert terms, "no row has a term"
    assert len(terms) + len(renamed) == text.count("\n| ") - 4, "a row below the two heads was not read"
    assert [name for name in (*terms, *(new for _, new in renamed)) if name not in modules] == []
    assert [old for old, _ in renamed if old in modules] == []


def test_nothing_is_left_over() -> None:
    """No marker of unfinished work without an issue."""
    marker = r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))"
    assert [name_of(path) for path in SOURCES if re.search(marker, path.read_text())] == []


def test_no_test_asserts_how_fast_a_machine_is() -> None:
    """Work is counted (`support.work`) and waiting has patience (`support.waiting`); times are for bench/."""
    found = [f"{path.relative_to(ROOT)}:{line}" for path in TESTS for line in limits_of_time(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("began = time.monotonic()\nassert time.monotonic() - began < 1", [2]),
        ("began = perf_counter()\ntook_s = perf_counter() - began\nassert 3 > took_s", [3]),
        ("def took():\n    return time.time() - began\nbest = min(took() for _ in range(5))\nassert best <= 1e-6", [4]),
        ("took = []\ntook.append(time.monotonic() - began)\nassert sorted(took)[len(took) // 2] < 1", [3]),
        ("began = time.monotonic()\nassert time.monotonic() - began >= 0.09", []),
        ("until = time.monotonic() + 20\nwhile time.monotonic() < until:\n    pass", []),
        ("assert now_ms() < 5", []),
    ],
)
def test_limit_of_time_is_noticed(source: str, lines: list[int]) -> None:
    """A wait that is at least so long is no limit, and no machine is too slow for it."""
    assert list(limits_of_time(source)) == lines


def limits_of_time(source: str) -> Iterator[int]:
    """Lines of assertions that something takes no longer than it should, by a clock."""
    if not re.search(rf"\b({'|'.join(CLOCKS)})\(", source):
        return
    tree = ast.parse(source)
    timed = names_of_times(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert):
            continue
        for compared in (each for each in ast.walk(node.test) if isinstance(each, ast.Compare)):
            sides = [compared.left, *compared.comparators]
            for left, op, right in zip(sides, compared.ops, sides[1:], strict=False):
                lesser = left if isinstance(op, (ast.Lt, ast.LtE)) else right
                if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and is_timed(lesser, timed):
                    yield node.lineno


def names_of_times(tree: ast.Module) -> set[str]:
    """Variables and functions whose value comes from a clock, wherever in the module they are."""
    timed: set[str] = set()
    known = -1
    while known != len(timed):
        known = len(timed)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and is_timed(node.value, timed):
                timed.update(
                    each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
                )
            elif isinstance(node, ast.Call) and any(is_timed(each, timed) for each in node.args):
                if isinstance(node.func, ast.Attribute) and node.func.attr == "append":
                    timed.update(each.id for each in ast.walk(node.func.value) if isinstance(each, ast.Name))
            elif isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Return) and each.value is not None and is_timed(each.value, timed)
                for each in ast.walk(node)
            ):
                timed.add(node.name)
    return timed


def is_timed(node: ast.expr, timed: set[str]) -> bool:
    """Whether a clock or something that was computed from one is in an expression."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in timed:
            return True
        if isinstance(each, ast.Call):
            name = each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", "")
            if name in CLOCKS:
                return True
    return False
