"""What docs/assignors.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.assign.interface import Assignor
from kohort.assign.registry import BUILT_IN

TEXT = (Path(__file__).parents[3] / "docs" / "assignors.md").read_text()


def test_the_example_runs_and_prints_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    # As a file of its own, without the future of this one.
    exec(compile(example, "example", "exec", dont_inherit=True), names)
    assert capsys.readouterr().out == shown
    made = names["WholeTopics"]
    assert isinstance(made, type)
    assert isinstance(made(), Assignor)


def test_the_table_names_every_built_in_assignor() -> None:
    assert sorted(re.findall(r"^\| `(\w+)`", TEXT, re.MULTILINE)) == sorted(BUILT_IN)
