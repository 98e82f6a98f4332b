"""Records that were deleted before they were read."""

from __future__ import annotations

import logging

import pytest

from kohort import TopicPartition
from kohort.spark.losses import settle_positions
from kohort.spark.offsets import RecordsLostError

ZERO, ONE = TopicPartition("t", 0), TopicPartition("u", 1)
BEGINS, ENDS = {ZERO: 10, ONE: 0}, {ZERO: 20, ONE: 5}


@pytest.mark.parametrize("position", [10, 15, 20])
def test_a_position_in_its_log_stays(position: int) -> None:
    """Its beginning and its end are in it."""
    positions = {ZERO: position, ONE: 3}
    assert settle_positions(positions, begins=BEGINS, ends=ENDS, fails=True) == positions


@pytest.mark.parametrize(
    ("position", "renewed", "why", "found"),
    [
        (9, "", "it begins at 10", 10),
        (21, "", "it ends at 20", 20),
        (12, "t", "its topic was made anew", 10),
        (99, "t", "its topic was made anew", 10),
    ],
)
def test_a_loss_ends_the_query_or_is_skipped(
    position: int, renewed: str, why: str, found: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`failOnDataLoss`; for one partition, with a line that says from where to where."""
    positions = {ZERO: position, ONE: 3}
    with pytest.raises(RecordsLostError, match=f"t-0 cannot be read at offset {position}: {why}.*failOnDataLoss=false"):
        settle_positions(positions, begins=BEGINS, ends=ENDS, renewed=[renewed], fails=True)
    with caplog.at_level(logging.WARNING, logger="kohort.spark"):
        settled = settle_positions(positions, begins=BEGINS, ends=ENDS, renewed=[renewed], fails=False)
    assert settled == {ZERO: found, ONE: 3}
    assert [record.getMessage() for record in caplog.records] == [
        f"t-0 goes on at offset {found} and not at {position}: {why} (failOnDataLoss=false)"
    ]
