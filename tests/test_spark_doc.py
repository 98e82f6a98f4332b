"""docs/reference/spark.md names what there is: every option of the source, and a test for each promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kohort.spark.option_table import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "reference" / "spark.md").read_text()
GUARANTEES = "| how a query ends | keeps the first | keeps the last | appends | test | Kafka, exactly once | test |"


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the rows of the table with that first line."""
    rows = TEXT.partition(heading)[2].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_option_stands_in_the_table_and_no_other() -> None:
    rows = rows_under("| option | default | meaning | other than in Spark |")
    named = {name for cell, *_ in rows for name in re.findall(r"`([^`]+)`", cell)}
    assert named == {option.name for option in OPTIONS} | {"kafka.bootstrap.servers", "kafka.group.id"}
    assert [cells for cells in rows if len(cells) != 4] == []


def test_every_promise_has_a_test_that_exists() -> None:
    (path,) = re.findall(r"Tests in\s+`(tests/[\w/]+\.py)`", TEXT)
    tree = ast.parse((ROOT / path).read_text())
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    named = re.findall(r"`(test_\w+)`", TEXT.partition(GUARANTEES)[2].partition("**When a batch is finished.**")[0])
    assert sorted(named) == sorted(tests)
    assert [cells for cells in rows_under(GUARANTEES) if len(cells) != 7] == []
