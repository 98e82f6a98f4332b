"""Lag over time, by Spark: commits from `__consumer_offsets`, log end offsets from the topics.

Laws: the data is read with `format("kohort")` without a group, so no group is disturbed. Of the topics only offsets and
times are read, of commits only offset and time. What compaction or retention has removed is missing.
Source: Kafka's group-coordinator `OffsetCommitKey.json` and `OffsetCommitValue.json`, versions 0 to 4.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f


def parse_commits(records: DataFrame) -> DataFrame:
    """Parse the offsets that groups committed, from the records of `__consumer_offsets`.

    `records`: columns `key`, `value` and `timestamp`, as the source gives them.

    Returns:
        `group_id`, `topic`, `partition`, `offset` (the next one that the group reads), `time` of the commit.

    >>> offsets = spark.read.format("kohort").option("subscribe", "__consumer_offsets")  # doctest: +SKIP
    >>> commits = parse_commits(offsets.options(**servers).load())  # doctest: +SKIP
    """
    # A key is: type 0 or 1, the group, the topic, the partition; texts with their length in two bytes before them.
    group_bytes, topic_bytes = _number("key", "3", 2), _number("key", "5 + group_bytes", 2)
    found = (
        records.where(f.col("value").isNotNull())
        .withColumn("type", _number("key", "1", 2))
        .where("type in (0, 1)")
        .withColumn("group_bytes", group_bytes)
        .withColumn("topic_bytes", topic_bytes)
    )
    return found.select(
        f.expr("decode(substring(key, 5, group_bytes), 'UTF-8')").alias("group_id"),
        f.expr("decode(substring(key, 7 + group_bytes, topic_bytes), 'UTF-8')").alias("topic"),
        _number("key", "7 + group_bytes + topic_bytes", 4).alias("partition"),
        _number("value", "3", 8).cast("bigint").alias("offset"),
        f.col("timestamp").alias("time"),
    )


def parse_ends(records: DataFrame, *, every: str) -> DataFrame:
    """Find the log end offsets at the end of each time span, from the records of topics.

    For batches, and for streams in update mode.

    `records`: columns `topic`, `partition`, `offset` and `timestamp`; others need not be read (option `columns`).
    `every`: the span, as Spark writes it, such as "1 minute".

    Returns:
        `topic`, `partition`, `time` (the span's beginning), `end_offset`: the offset after the last record of the
        span, by the records' timestamps.
    """
    spans = records.groupBy("topic", "partition", f.window("timestamp", every).alias("span"))
    return spans.agg((f.max("offset") + 1).alias("end_offset")).select(
        "topic", "partition", f.col("span.start").alias("time"), "end_offset"
    )


def lag(commits: DataFrame, ends: DataFrame, *, every: str) -> DataFrame:
    """Find the lag of each group, span by span; batch only, since values carry over to later spans.

    `commits`: from `parse_commits`; they are read three times, so `persist` them, and the ends. `ends`: from
    `parse_ends` with the same `every`. `every`: the span, as Spark writes it.

    Returns:
        `group_id`, `topic`, `partition`, `time` (a span's beginning), `committed`, `end_offset`, `lag`: offsets that
        existed and were not committed at the span's end; from the span of the group's first commit to the last of all.
    """
    keys = ("group_id", "topic", "partition")
    spans = commits.groupBy(*keys, f.window("time", every).alias("span")).agg(
        f.max_by("offset", "time").alias("committed")
    )
    committed = spans.select(*keys, f.col("span.start").alias("time"), "committed")
    first = committed.groupBy(*keys).agg(f.min("time").alias("first"), f.max("time").alias("latest"))
    last = ends.agg(f.max("time").alias("end")).crossJoin(committed.agg(f.max("time").alias("commit")))
    to = f.greatest("end", "commit")
    grid = first.crossJoin(last).select(
        *keys, f.explode(f.sequence("first", to, f.expr(f"interval {every}"))).alias("time")
    )
    # Records before the first commit count too: the last end before it is carried on.
    known = grid.join(committed, [*keys, "time"], "left")
    before = first.join(ends, ["topic", "partition"]).where(f.col("time") <= f.col("first"))
    start = before.groupBy(*keys).agg(f.max("end_offset").alias("start"))
    known = known.join(ends, ["topic", "partition", "time"], "left").join(start, list(keys), "left")
    so_far = Window.partitionBy(*keys).orderBy("time")
    carried = known.select(
        *keys,
        "time",
        f.last("committed", ignorenulls=True).over(so_far).alias("committed"),
        f.coalesce(f.max("end_offset").over(so_far), f.col("start")).alias("end_offset"),
    )
    return carried.withColumn("lag", f.greatest(f.col("end_offset") - f.col("committed"), f.lit(0)))


def _number(column: str, start: str, length: int) -> Column:
    """Read a big-endian number from bytes, as Kafka's formats have it; `start` counts from 1."""
    return f.expr(f"cast(conv(hex(substring({column}, {start}, {length})), 16, 10) as bigint)")
