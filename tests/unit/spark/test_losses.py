"""Records that were deleted before they were read."""

from __future__ import annotations

import logging

import pytest

from kohort import TopicPartition
from kohort.spark.offsets import RecordsLostError, Span
from kohort.spark.reading import MADE_ANEW, drop_renewed, settle_positions

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
        (9, [], "it begins at 10", 10),
        (21, [], "it ends at 20", 20),
        (12, [ZERO], MADE_ANEW, 10),
        (99, [ZERO], MADE_ANEW, 10),
    ],
)
def test_a_loss_ends_the_query_or_is_skipped(
    position: int, renewed: list[TopicPartition], why: str, found: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`failOnDataLoss`; for one partition, with a line that says from where to where."""
    positions = {ZERO: position, ONE: 3}
    with pytest.raises(RecordsLostError, match=f"t-0 cannot be read at offset {position}: {why}.*failOnDataLoss=false"):
        settle_positions(positions, begins=BEGINS, ends=ENDS, renewed=renewed, fails=True)
    with caplog.at_level(logging.WARNING, logger="kohort.spark"):
        settled = settle_positions(positions, begins=BEGINS, ends=ENDS, renewed=renewed, fails=False)
    assert settled == {ZERO: found, ONE: 3}
    assert [record.getMessage() for record in caplog.records] == [
        f"t-0 goes on at offset {found} and not at {position}: {why} (failOnDataLoss=false)"
    ]


def test_a_batch_is_not_repeated_from_another_topic(caplog: pytest.LogCaptureFixture) -> None:
    """Its records are gone; what is empty loses nothing."""
    spans = {ZERO: Span(3, 9), TopicPartition("t", 1): Span(4, 4), ONE: Span(0, 5)}
    with pytest.raises(RecordsLostError, match=f"t-0 cannot be read at offset 3: {MADE_ANEW}"):
        drop_renewed(spans, ["t"], fails=True)
    assert drop_renewed(spans, ["t"], fails=False) == {**spans, ZERO: Span(9, 9)}
    assert caplog.text.count("goes on at") == 1
