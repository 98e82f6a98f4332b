"""Each rule of group coordination has a test that exists: the tables in `rules/` say which.

A table is a TOML file of `[[rule]]` entries: `says`, one sentence; `source`, where the rule comes from (a KIP, an issue
of Kafka's, "Apache Kafka" for what only its code says, "ours" where we differ); `tests`, one or more of
`path below tests/::function`.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TABLES = sorted((Path(__file__).parent / "rules").glob("*.toml"))


def rules_in(table: Path) -> list[dict[str, object]]:
    rules = tomllib.loads(table.read_text())["rule"]
    assert isinstance(rules, list)
    return rules


@cache
def functions_in(path: Path) -> frozenset[str]:
    """The tests of a file, without importing it: some need clients that are not installed everywhere."""
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_rule_names_tests_that_exist(table: Path) -> None:
    for rule in rules_in(table):
        assert rule.keys() == {"says", "source", "tests"}, rule
        tests = rule["tests"]
        assert isinstance(tests, list) and tests, f"{rule['says']}: no test"
        for test in tests:
            path, _, function = test.partition("::")
            assert (TESTS / path).is_file(), f"{rule['says']}: there is no {path}"
            assert function in functions_in(TESTS / path), f"{rule['says']}: there is no {function} in {path}"
            assert function.startswith("test_")


def test_no_rule_is_there_twice() -> None:
    said = [rule["says"] for table in TABLES for rule in rules_in(table)]
    assert len(said) == len(set(said))
    assert len(said) > 180
