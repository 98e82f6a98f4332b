"""docs/options.md says what the option sets say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from kohort.base.options import OptionSet
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.spark.option_table import OPTIONS as SPARK_OPTIONS
from kohort.storage.topicconfig import TOPIC_OPTIONS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = (ROOT / "docs" / "options.md").read_text()


def test_document_is_up_to_date() -> None:
    """An option was changed: make the document anew and commit it with the change."""
    made = runpy.run_path(str(ROOT / "tools" / "options_table.py"))["document"]()
    assert made == DOCUMENT, "run: python tools/options_table.py > docs/options.md"


@pytest.mark.parametrize(
    "options",
    [BROKER_OPTIONS, TOPIC_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS, ADMIN_OPTIONS, SPARK_OPTIONS],
    ids=lambda options: options.what,
)
def test_every_option_says_what_it_is(options: OptionSet) -> None:
    """A sentence each, and a default that the option itself would take."""
    for option in options:
        assert option.doc.endswith("."), f"{option.name}: {option.doc!r} is not a sentence"
        assert f"| `{option.name}` |" in DOCUMENT
        if option.default is not None:
            assert option.check(option.default) == option.default, f"{option.name} refuses its own default"
