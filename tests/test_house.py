"""What must not get worse of the source's size, layout and prose: figures of `tools/house.py` beside their limits."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = runpy.run_path(str(Path(__file__).parent.parent / "tools" / "house.py"))


@pytest.fixture(scope="module", autouse=True)
def _forgotten_source() -> Iterator[None]:
    """Drop the syntax of all files: every later collection of garbage in this process would go through it."""
    yield
    HOUSE["modules"].cache_clear()


def test_no_figure_is_worse_than_its_limit() -> None:
    """House style: every change looks for what it can delete. Limits only shrink: `python tools/house.py --tighten`."""
    rows = HOUSE["ROWS"]
    limits = HOUSE["limits"]()
    assert limits.keys() == {name for name in rows if not name.startswith("commit_")}
    found = {name: rows[name].measure().figure for name in limits}
    worse = {name: (found[name], limit) for name, limit in limits.items() if rows[name].is_worse(found[name], limit)}
    assert worse == {}, "figure and limit; where it comes from: python tools/house.py --list NAME"


def test_kernels_are_files_of_their_own() -> None:
    """House style: a small file that one other imports says why it is one; kernels are compiled each by itself."""
    apart = {name for name, module in HOUSE["modules"]().items() if module.is_apart}
    assert {"kohort.assign.kernels", "kohort.client.producer.core.submission_kernels"} <= apart
    assert "kohort.records.batch" not in apart


def test_circles_are_told_apart() -> None:
    """Two circles that one way joins are two; what leads into one or out of it is in none."""
    imports = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c", "out"}, "in": {"a"}, "out": set()}
    assert sorted(map(sorted, HOUSE["circles_of"](imports))) == [["a", "b"], ["c", "d"]]
