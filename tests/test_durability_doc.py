"""docs/durability.md: every promise names a test, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "durability.md").read_text()
#: `path` or `path::test`.
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)))


@pytest.mark.parametrize(("path", "test"), NAMED)
def test_named_test_is_there(path: str, test: str) -> None:
    source = (ROOT / path).read_text()
    assert not test or re.search(rf"^def {test}\(", source, re.MULTILINE)


def test_every_row_names_a_test() -> None:
    """A row is a promise; headings and rules are none."""
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "---" not in line]
    promises = [row for row in rows if not row.endswith("held by |")]
    assert len(promises) >= 15
    assert [row for row in promises if "`tests/" not in row] == []
