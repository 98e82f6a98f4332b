"""How old the rows of a stream were when their batch was finished."""

from __future__ import annotations

import pytest

from support.builders.benches import load_bench

steady = load_bench("sparksteady")


def test_ages_are_spread_evenly_over_a_batch() -> None:
    """From 1 s for the last row to 3 s for the first."""
    batch = steady.Batch(ended_s=13.0, rows=1000, first_s=10.0, last_s=12.0)
    assert steady.percentile([batch], 0.5) == pytest.approx(2.0, abs=0.02)
    assert steady.percentile([batch], 0.99) == pytest.approx(2.98, abs=0.02)


def test_batches_count_by_their_rows() -> None:
    """One old row in a hundred does not move the middle."""
    young = steady.Batch(ended_s=11.0, rows=99, first_s=10.0, last_s=10.0)
    old = steady.Batch(ended_s=20.0, rows=1, first_s=10.0, last_s=10.0)
    assert steady.percentile([young, old], 0.5) == 1.0
    assert steady.percentile([young, old], 0.995) == 10.0


def test_no_batch_has_no_age() -> None:
    with pytest.raises(ValueError, match="no batches"):
        steady.percentile([], 0.5)
