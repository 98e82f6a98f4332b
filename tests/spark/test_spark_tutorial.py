"""The tutorial of docs/ about a Spark pipeline: its blocks are one program, which prints what the page says."""

from __future__ import annotations

import pytest

from support.builders.site import blocks, run_block

pytestmark = pytest.mark.spark


def test_tutorial_prints_what_it_shows(java_of_programs: dict[str, str]) -> None:
    """tutorials/spark-pipeline.md, from top to bottom."""
    page = blocks("tutorials/spark-pipeline.md", "python")
    printed = run_block("".join(each.code for each in page), warnings="default", variables=java_of_programs)
    assert printed == "".join(each.shown for each in page)
