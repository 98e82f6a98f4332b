"""The moves that another assignor would have made, as a data frame.

Source: requirement P5; `replaying.py`, which asks the assignors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kohort.assign.interface import Assignor
from kohort.assign.registry import BALANCING
from kohort.pipelines.fact import Kind
from kohort.pipelines.journal import follow_groups
from kohort.pipelines.replaying import EVENTS, Replays, find_assignor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def what_if(
    rows: DataFrame, assignors: Sequence[str | Assignor] = BALANCING, *, partitions: Mapping[str, int] | None = None
) -> DataFrame:
    """Find the moves of each assignor, had the group used it from the beginning; batch and stream.

    Args:
        rows: journal rows, of groups of the consumer protocol; of classic ones there is no table. Or facts that were
            made with these assignors.
        assignors: names of those that come with kohort, or assignors of one's own.
        partitions: topic -> its number of partitions; by default those that the rows name. Facts have their own.

    Returns:
        `group_id`; `began`, when the coordinator computed an assignment, its `epoch` and `why`; `assignor`; `members`
        and `partitions` it had to do with; `moved`, as in `rebalances`; `fewest` and `most` partitions of one member
        then. Compare it with `moved` of `rebalances`, the actual moves.

    Raises:
        ConfigError: there is no assignor of that name.

    >>> moved = what_if(rows, ["range", "sticky"]).groupBy("assignor").sum("moved")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    chosen = tuple(find_assignor(assignor) for assignor in assignors)
    if "event" in rows.columns:
        rows = follow_groups(rows, Replays(chosen, dict(partitions or {})), events=EVENTS)
    told = rows.where((f.col("kind") == Kind.REPLAY.value) & f.col("assignor").isin([each.name for each in chosen]))
    began = f.timestamp_millis("began_ms").alias("began")
    return told.select(
        "group_id", began, "epoch", "why", "assignor", "members", "partitions", "moved", "fewest", "most"
    )
