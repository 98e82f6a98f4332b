"""What docs/reference/assignors.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.assign.assignors import BUILT_IN

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "assignors.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(("example", "shown", "name"), [(*EXAMPLES[0], "WholeTopics"), (*EXAMPLES[1], "ByWeight")])
def test_an_example_runs_and_prints_what_the_text_says(
    example: str, shown: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {}
    # As a file of its own, without the future of this one.
    exec(compile(example, "example", "exec", dont_inherit=True), names)
    assert capsys.readouterr().out == shown
    made = names[name]
    assert isinstance(made, type) and callable(made.assign)  # type: ignore[attr-defined]


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == TEXT.count("```python") == 2


def test_the_table_names_every_built_in_assignor() -> None:
    assert sorted(re.findall(r"^\| `(\w+)`", TEXT.partition("## Balance")[0], re.MULTILINE)) == sorted(BUILT_IN)
