"""Alternating runs, medians and ratios."""

from __future__ import annotations

from typing import Any

import pytest

from support.builders.benches import load_bench

report = load_bench("report")


def compared(ours: list[float], peers: list[float], *, less_is_better: bool = False) -> Any:
    return report.compare(
        "row", ours, peers, unit="s", reach="report", peer_name="p", how="3", less_is_better=less_is_better
    )


def test_sides_take_turns_after_one_run_of_each_that_does_not_count() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = report.alternate(2, lambda: side("A"), lambda: side("B"))
    assert order == ["A", "B", "A", "B", "A", "B"]
    assert found == ([3.0, 5.0], [4.0, 6.0])


def test_ratio_is_that_of_the_medians_and_more_is_better() -> None:
    row = compared([1.0, 9.0, 6.0], [2.0, 3.0, 100.0])
    assert (row.ours, row.peer, row.ratio) == (6.0, 3.0, 2.0)
    assert row.least_ratio == 0.01
    assert (row.ours_range, row.peer_range) == ((1.0, 9.0), (2.0, 100.0))
    row = compared([5.0, 6.0, 9.0], [3.0, 2.0, 4.0], less_is_better=True)
    assert (row.ratio, row.least_ratio) == (0.5, 2 / 9)


def test_row_without_a_peer_has_no_ratio() -> None:
    row = compared([6.0], [])
    assert (row.peer, row.peer_range, row.ratio, row.least_ratio) == (None, None, None, None)


@pytest.mark.parametrize(("mine", "theirs", "ratio"), [(0.0, 0.0, 1.0), (5.0, 0.0, 0.0), (0.0, 5.0, None)])
def test_none_at_all_is_as_good_as_it_gets(mine: float, theirs: float, ratio: float | None) -> None:
    """Moves that need not be: none on both sides is even, none on ours better without limit."""
    assert report.ratio_of(mine, theirs, less_is_better=True) == ratio
