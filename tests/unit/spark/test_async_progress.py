"""`asyncProgressTrackingEnabled`: Spark asks for the next batch before its commit log has the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.spark.checkpoint import BatchNotLoggedError
from support.spark_query import Checkpoint, Start


def test_query_whose_batches_are_not_logged_ends_and_commits_nothing(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, tmp_path: Path
) -> None:
    """The group would be ahead of the query: no reader is told of the option, but the query's checkpoint shows it."""
    name = topic(1)
    query = start(
        subscribe=name,
        startingOffsets="earliest",
        kafka__group__id=f"{name}-g",
        checkpointLocation=tmp_path,
        checkpoint=Checkpoint(location=tmp_path),
    )
    for _ in range(2):
        fill(name, {0: 5})
        assert len(query.trigger()) == 5
    for file in ("commits/1", "offsets/1"):
        (tmp_path / file).unlink()
        with pytest.raises(BatchNotLoggedError, match=r"asyncProgressTrackingEnabled cannot be true with kafka\.group"):
            query.plan()
    query.stop()
    assert [row.committed for row in admin.group_offsets(f"{name}-g")] == [5]
