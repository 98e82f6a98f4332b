"""`asyncProgressTrackingEnabled`: Spark asks for the next batch before its commit log has the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.spark.checkpoint import BatchNotLoggedError
from support.dialogues.spark_query import Checkpoint, Start


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
    fill(name, {0: 5})
    assert len(query.trigger()) == 5
    fill(name, {0: 5})
    assert query.plan()
    # Whoever follows the commit log must never have seen this batch in it.
    query.checkpoint.location = None
    assert len(query.trigger()) == 5
    refused = r"asyncProgressTrackingEnabled cannot be true with kafka\.group"
    with pytest.raises(BatchNotLoggedError, match=refused):
        query.plan()
    (tmp_path / "offsets" / "1").unlink()
    with pytest.raises(BatchNotLoggedError, match=refused):
        query.plan()
    query.stop()
    assert [row.committed for row in admin.group_offsets(f"{name}-g")] == [5]
