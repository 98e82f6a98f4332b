"""docs/limits.md says what the broker does, and each limit has a test."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from kohort.broker.apis.describe_broker import COUNTED
from kohort.broker.limitstable import LIMITS, Limit
from kohort.broker.options.settings import BROKER_OPTIONS

ROOT = Path(__file__).resolve().parents[1]


def test_document_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "limits_table.py"))["document"]()
    assert made == (ROOT / "docs" / "limits.md").read_text(), "run: python tools/limits_table.py > docs/limits.md"


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.bounds)
def test_a_limit_names_an_option_and_a_test_that_there_are(limit: Limit) -> None:
    file, *names = limit.test.split("::")
    assert f"def {names[-1]}(" in (ROOT / "tests" / "unit" / "broker" / file).read_text()
    if limit.option is not None:
        assert limit.option in {option.name for option in BROKER_OPTIONS}


def test_what_is_counted_is_in_the_table() -> None:
    assert {limit.counted for limit in LIMITS} == {*COUNTED, None}
