"""docs/client.md says what the code says: states, events, what callbacks may do, options."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.storage.topicconfig import TOPIC_OPTIONS

#: Dotted names that are no options of the client.
OTHER_NAMES = {
    "application_events.py",
    "kohort.aio",
    "kohort.client",
    "concurrent.futures",
    "py.typed",
    "transaction.timeout.ms",
}
ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "client.md").read_text()


def test_tables_are_those_of_the_code() -> None:
    """A state, step or event was added or worded anew: put it into the document with the change."""
    made = runpy.run_path(str(ROOT / "tools" / "client_tables.py"))["render"](TEXT)
    assert made == TEXT, "run: python tools/client_tables.py"


def test_every_policy_of_revocation_is_explained() -> None:
    (option,) = [option for option in CONSUMER_OPTIONS if option.name == "revocation.timeout.policy"]
    rows = TEXT.partition("| policy | what happens |")[2].split("\n\n", 1)[0]
    assert sorted(re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)) == sorted(option.choices)


def test_every_option_that_is_named_exists() -> None:
    """Dotted names in code font."""
    sets = (CONSUMER_OPTIONS, PRODUCER_OPTIONS, TOPIC_OPTIONS, BROKER_OPTIONS)
    known = {option.name for options in sets for option in options}
    named = set(re.findall(r"`((?:[a-z]+\.)+[a-z]+)(?:=[^`]*)?`", TEXT)) - OTHER_NAMES
    assert named
    assert named <= known


def test_every_complaint_has_a_test_that_exists() -> None:
    """Or says why it has none."""
    rows = TEXT.partition("| complaint | here | test |")[2].split("\n\n", 1)[0].splitlines()[2:]
    assert rows
    for row in rows:
        found = re.findall(r"`([\w/]+\.py)::(\w+)` \|$", row)
        if not found:
            assert row.endswith(("| none |", "`make test` runs mypy |")), row
        for path, name in found:
            tree = ast.parse((ROOT / "tests" / path).read_text())
            assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, row


def test_who_comes_from_another_client_changes_three_lines_at_most() -> None:
    """Of a consumer, and of a producer, beside the import."""
    section = TEXT.partition("## Coming from another client")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        halves = re.split(r"^(?=from kohort)", block, flags=re.MULTILINE)[1:]
        assert [half.count("# import: ") for half in halves] == [1, 1]
        assert all(half.count("# was: ") <= 3 for half in halves)
