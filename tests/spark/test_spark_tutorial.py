"""The tutorial of docs/ about a Spark pipeline: its blocks are one program, which prints what the page says."""

from __future__ import annotations

import pytest

from support.builders.site import blocks, run_block
from support.peers.spark_session import require_spark

pytestmark = pytest.mark.spark


def test_tutorial_prints_what_it_shows() -> None:
    """tutorials/spark-pipeline.md, from top to bottom."""
    require_spark()
    page = blocks("tutorials/spark-pipeline.md", "python")
    assert run_block("".join(each.code for each in page), warnings="default") == "".join(each.shown for each in page)
