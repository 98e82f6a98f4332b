"""Tables of the events of groups: each a function from journal rows (or their facts) to a data frame.

Laws: a table states its columns and their units; `group_id` is the first. Batch and stream alike: without
`every` nothing here aggregates, so that a stream appends. Durations are seconds, times Spark's timestamps.
Source: requirement P5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kohort.assign.assignors import BALANCING
from kohort.assign.interface import Assignor
from kohort.pipelines.fact import Kind
from kohort.pipelines.following import SILENT
from kohort.pipelines.journal import facts, follow_groups
from kohort.pipelines.replaying import EVENTS, Replays, find_assignor

#: The default session timeout, milliseconds.
USUAL_SILENCE_MS: Final = 45_000
#: The default window of `flapping`.
EVERY: Final = "1 hour"
#: A member flaps if at least this many of its stays end in one window.
FLAPS: Final = 3


def rebalances(rows: DataFrame) -> DataFrame:
    """Find each rebalance: from the row that raised the epoch to the row after which the group rests.

    Returns:
        `group_id`; `protocol` (consumer, classic); `epoch` (the generation of a classic group); `began`, `ended`
        (null: it went on when the rows ended), `seconds`; `why`, the coordinator's trigger; `cause`, for instance
        the member that joined or left; `members` at its end; `moved`, partitions that went from one living member to
        another; `given_back_by`, members that had to stop for that; `unread`, partitions that no member read until
        it assigned them; `unread_seconds`, the longest of these times, as in `kohort group why`. For classic groups
        `moved` and `given_back_by` are null; with eager rebalancing no member reads for `seconds`.
    """
    return _of(rows, Kind.REBALANCE).select(
        "group_id", "protocol", "epoch", *_span(), "why", "cause", "members", "moved", "given_back_by", "unread",
        _seconds_of("unread_ms").alias("unread_seconds"),
    )  # fmt: skip


def unread(rows: DataFrame, *, session_timeout_ms: int | Mapping[str, int] = USUAL_SILENCE_MS) -> DataFrame:
    """Find the times in which a partition was not read.

    Such a time lasts from the owner's last fetch or commit to the next owner's first fetch.

    `rows`: journal rows or facts. `session_timeout_ms`: the session timeout, for all groups or by group. A member that
    was removed by it has read nothing for at least so long; rows of an earlier version do not say since when.

    Returns:
        `group_id`, `topic`, `partition`; `began`, `ended` (null: it still was when the rows ended), `seconds`; `member`
        that had it and `next_member` that got it; `why`: asked back, away, or the reason for which the member was
        removed; `is_empty`: there was no member at all meanwhile, the group was stopped. Only groups of the consumer
        protocol, and partitions that rows name.
    """
    gaps = _of(rows, Kind.GAP)
    silence = f.when(f.col("why") == SILENT, _by_group(session_timeout_ms)).otherwise(f.lit(0))
    # If the coordinator noticed the loss of the connection, the gap begins there.
    began = f.when(f.col("is_noticed"), f.col("began_ms")).otherwise(f.col("began_ms") - silence)
    return gaps.withColumn("began_ms", began).select(
        "group_id", "topic", "partition", *_span(), "member", "next_member", "why", "is_empty", "is_at_most"
    )


def waits(rows: DataFrame, *, longer_than_s: float = 0.0) -> DataFrame:
    """Find members that waited, or kept others waiting; stuck members have the longest waits.

    `rows`: journal rows or facts. `longer_than_s`: only waits of more than so many seconds, and those without an end.

    Returns:
        `group_id`, `member`, `member_id`; `began`, `ended` (null: it still did when the rows ended), `seconds`; `why`:
        `asked back` (it had to give up partitions and had not yet), `waits for others` (another member still has them),
        `away` (a static member that left for a while); `end`: given back, got them, returned, or the reason for which
        it was removed; `partitions`: how many of them, null if not known.
    """
    found = _of(rows, Kind.WAIT).select(
        "group_id", "member", "member_id", *_span(), "why", f.col("cause").alias("end"), "partitions"
    )
    return found.where(f.col("ended").isNull() | (f.col("seconds") > longer_than_s)) if longer_than_s else found


def stays(rows: DataFrame) -> DataFrame:
    """Find the stay of each member in its group, from its join to its end.

    Returns:
        `group_id`, `member` (instance id, client id or member id), `member_id`, `host`; `began`, `ended` (null: it is
        still there), `seconds`; `why` it ended; `namesakes`: members of this name at its end, itself included.
    """
    return _of(rows, Kind.STAY).select(
        "group_id", "member", "member_id", "host", *_span(), "why", f.col("members").alias("namesakes")
    )


def flapping(rows: DataFrame, *, every: str = EVERY, flaps: int = FLAPS) -> DataFrame:
    """Find members that come and go again and again, by name and span of time.

    A stream of this needs output mode update or complete; it keeps its windows for ever.

    `rows`: journal rows or facts. `every`: the span in which ends are counted, as Spark writes it. `flaps`: a member
    flaps from so many ends on, times the number of members that have its name at once.

    Returns:
        `group_id`, `member`, `host`, `began` of the span; `ends` in it, `silent` of them by session timeout;
        `shortest_seconds`, `mean_seconds` of those stays; `is_flapping`.
    """
    return flapping_of(stays(rows), every=every, flaps=flaps)


def flapping_of(members: DataFrame, *, every: str = EVERY, flaps: int = FLAPS) -> DataFrame:
    """Find flapping members as `flapping` does, from a table of `stays`."""
    ended = members.where("ended is not null")
    counted = ended.groupBy("group_id", "member", "host", f.window("ended", every).alias("span")).agg(
        f.count("*").alias("ends"),
        f.count_if(f.col("why") == SILENT).alias("silent"),
        f.min("seconds").alias("shortest_seconds"),
        f.avg("seconds").alias("mean_seconds"),
        f.max("namesakes").alias("namesakes"),
    )
    return counted.select(
        "group_id", "member", "host", f.col("span.start").alias("began"), "ends", "silent", "shortest_seconds",
        "mean_seconds", (f.col("ends") >= flaps * f.col("namesakes")).alias("is_flapping"),
    )  # fmt: skip


def skew(rows: DataFrame) -> DataFrame:
    """Find how evenly partitions are spread over the members after each rebalance.

    Returns:
        `group_id`, `epoch`, `ended`; `members`, `partitions`; `fewest` and `most` partitions of one member; `ratio` of
        `most` to the mean, 1 is even; null without members. Groups of the consumer protocol.
    """
    left = _of(rows, Kind.REBALANCE).where("protocol = 'consumer' and ended_ms is not null")
    ratio = f.when(f.col("partitions") > 0, f.col("most") * f.col("members") / f.col("partitions"))
    ended = _time_of("ended_ms").alias("ended")
    return left.select("group_id", "epoch", ended, "members", "partitions", "fewest", "most", ratio.alias("ratio"))


def refusals(rows: DataFrame) -> DataFrame:
    """Find the requests that the coordinator refused.

    Returns:
        `group_id`; `member`, `member_id` of the sender; `api`, `error` (the code), `cause` (a sentence, null without);
        `began`, `ended`: the first and the last of `times` in a row, `seconds` between them.
    """
    found = _of(rows, Kind.REFUSAL)
    return found.select(
        "group_id", "member", "member_id", f.col("protocol").alias("api"), f.col("why").alias("error"), "cause",
        *_span(), "times",
    )  # fmt: skip


def _of(rows: DataFrame, kind: Kind) -> DataFrame:
    return facts(rows).where(f.col("kind") == kind.value)


def _span() -> tuple[Column, Column, Column]:
    seconds = _seconds_of(f.col("ended_ms") - f.col("began_ms")).alias("seconds")
    return _time_of("began_ms").alias("began"), _time_of("ended_ms").alias("ended"), seconds


def _time_of(name: str) -> Column:
    return f.timestamp_millis(f.col(name))


def _seconds_of(milliseconds: Column | str) -> Column:
    return (f.col(milliseconds) if isinstance(milliseconds, str) else milliseconds) / 1000.0


def _by_group(milliseconds: int | Mapping[str, int]) -> Column:
    if isinstance(milliseconds, int):
        return f.lit(milliseconds)
    return reduce(
        lambda other, pair: f.when(f.col("group_id") == pair[0], f.lit(pair[1])).otherwise(other),
        milliseconds.items(),
        f.lit(USUAL_SILENCE_MS),
    )


def what_if(
    rows: DataFrame, assignors: Sequence[str | Assignor] = BALANCING, *, partitions: Mapping[str, int] | None = None
) -> DataFrame:
    """Find the moves that each assignor would have made, had the group used it from the beginning.

    `rows`: journal rows, batch or stream, of groups of the consumer protocol (classic ones give no row); or facts that
    were made with these assignors. `assignors`: names of kohort's assignors, or your own assignors. `partitions`: topic
    -> its number of partitions; by default those that the rows name. Facts have their own.

    Returns:
        `group_id`; `began`, when the coordinator computed an assignment, its `epoch` and `why`; `assignor`; `members`
        and `partitions` in that assignment; `moved`, as in `rebalances`; `fewest` and `most` partitions of one member
        then. Compare it with `moved` of `rebalances`, the actual moves.

    Raises:
        ConfigError: there is no assignor of that name.

    >>> moved = what_if(rows, ["range", "sticky"]).groupBy("assignor").sum("moved")  # doctest: +SKIP
    """
    chosen = tuple(find_assignor(assignor) for assignor in assignors)
    if "event" in rows.columns:
        rows = follow_groups(rows, Replays(chosen, dict(partitions or {})), events=EVENTS)
    told = rows.where((f.col("kind") == Kind.REPLAY.value) & f.col("assignor").isin([each.name for each in chosen]))
    began = f.timestamp_millis("began_ms").alias("began")
    return told.select(
        "group_id", began, "epoch", "why", "assignor", "members", "partitions", "moved", "fewest", "most"
    )
