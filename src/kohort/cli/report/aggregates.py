"""The lines that a report's page shows, which Spark computes from the tables of `kohort.pipelines`.

Laws: each line is the result of a Spark query that sorts and limits, or sums; the limits below bound the lines that are
collected in this process, however long the history.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession, Window
from pyspark.sql import functions as f

from kohort import pipelines
from kohort.assign.assignors import BALANCING
from kohort.cli.report.gather import Gathered
from kohort.cli.report.timelines import draw_groups
from kohort.console.swimlanes import bar_width_ms
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC

#: Lines of a table on the page.
LINES: Final = 30
#: Groups that the page names and draws; of more, those whose partitions no member read for longest.
GROUPS_SHOWN: Final = 100
#: The fewest of the latest rebalances that are listed of each group.
_LATEST: Final = 3
#: The shortest wait that is shown, seconds; shorter waits are a part of every rebalance.
SHORTEST_WAIT_S: Final = 1.0
#: Refusals that every classic rebalance has.
_ROUTINE: Final = ("REBALANCE_IN_PROGRESS", "MEMBER_ID_REQUIRED")
#: Widths of the spans of lag, in seconds; the shortest is used with which there are at most `_SPANS_SHOWN` spans.
_SPANS: Final = {"second": 1, "10 seconds": 10, "minute": 60, "10 minutes": 600, "hour": 3600, "6 hours": 21_600}
_SPANS_SHOWN: Final = 200

Lines = list[dict[str, Any]]


def tables_of(
    spark: SparkSession, gathered: Gathered, *, since_ms: int | None, assignors: Sequence[str] = BALANCING
) -> dict[str, DataFrame]:
    """Build the tables, by the names of their functions, without rows that ended before `since_ms`.

    `assignors`: those that `what_if` compares; if there are none, there is no such table.
    """
    tables: dict[str, DataFrame] = {}
    if gathered.has_history:
        rows = pipelines.read_journal(spark, list(gathered.paths))
        if gathered.journal:
            # A row in both sources counts once.
            source = _source(spark, gathered.journal, gathered.settings)
            older = source.option("subscribe", JOURNAL_TOPIC).option("columns", "value")
            rows = rows.unionByName(pipelines.parse_journal(older.load()))
        tables = tables_from(rows, gathered, since_ms=since_ms, assignors=assignors)
    if gathered.bootstrap and gathered.ends:
        tables["lag"] = _lag(spark, gathered, since_ms=since_ms)
    return tables


def tables_from(
    rows: DataFrame, gathered: Gathered, *, since_ms: int | None, assignors: Sequence[str] = BALANCING
) -> dict[str, DataFrame]:
    """Build all tables except lag from a data frame of rows, which are the table `rows`."""
    if gathered.groups:
        rows = rows.where(f.col("group_id").isin(list(gathered.groups)))
    facts = pipelines.facts(rows, assignors=assignors, partitions=gathered.partitions).persist()
    if since_ms is not None:
        facts = facts.where(f.coalesce("ended_ms", f.lit(since_ms)) >= since_ms)
    tables = {
        "rows": rows,
        "rebalances": pipelines.rebalances(facts),
        "unread": pipelines.unread(facts, session_timeout_ms=gathered.session_timeouts_ms),
        "waits": pipelines.waits(facts, longer_than_s=SHORTEST_WAIT_S),
        "flapping": pipelines.flapping(facts),
        "skew": pipelines.skew(facts),
        "refusals": pipelines.refusals(facts),
    }
    return {**tables, "what_if": pipelines.what_if(facts, assignors)} if assignors else tables


def aggregate(tables: Mapping[str, DataFrame], gathered: Gathered, *, since_ms: int | None = None) -> dict[str, Any]:
    """Build the page's content: sections by name, each a list of lines; and `summary`, `groups` and `pictures`.

    Without tables of a history its sections are missing; without rows there are no pictures.
    """
    report: dict[str, Any] = {
        "groups": list(gathered.groups),
        "made": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "notes": list(gathered.notes),
        "pictures": {},
    }
    by_group: dict[str, dict[str, Any]] = {}
    if "rebalances" in tables:
        rebalances = tables["rebalances"].persist()
        kept = {**tables, "rebalances": rebalances}
        by_group = {line["group_id"]: line for line in _lines(_by_group(kept).limit(GROUPS_SHOWN))}
        if not report["groups"]:
            groups = rebalances.select("group_id").distinct()
            report["groups"] = sorted(row[0] for row in groups.collect())
        report |= _history_lines(kept, groups=len(report["groups"]))
        # Otherwise Spark would use the persisted table for a later one that is read from the same files.
        rebalances.unpersist()
    if "lag" in tables:
        report |= _lag_lines(tables["lag"], list(by_group))
    for group_id in [*(line["group_id"] for line in report.get("lag", ())), *report["groups"]]:
        if len(by_group) < GROUPS_SHOWN:
            by_group.setdefault(group_id, {"group_id": group_id})
    if "rows" in tables:
        report["pictures"] = draw_groups(tables["rows"], list(by_group), now_ms=gathered.now_ms, since_ms=since_ms)
    report["by_group"] = [_told(line, report, gathered) for line in by_group.values()]
    return report


def _by_group(tables: Mapping[str, DataFrame]) -> DataFrame:
    """Return a line for each group, those whose partitions no member read for longest first."""
    counted = tables["rebalances"].groupBy("group_id").agg(f.count("*").alias("rebalances"))
    gaps = tables["unread"].where("not is_empty").groupBy("group_id")
    unread = gaps.agg(f.sum("seconds").alias("unread_seconds"), f.count_if(f.col("ended").isNull()).alias("still"))
    ends = tables["flapping"].where("is_flapping").groupBy("group_id")
    flapping = ends.agg(f.max(f.struct("ends", "silent", "member")).alias("flapping"))
    lines = counted.join(unread, "group_id", "left").join(flapping, "group_id", "left")
    order = (f.desc_nulls_last("unread_seconds"), f.desc("rebalances"), "group_id")
    return _rounded(
        lines.select(
            "group_id", "rebalances", "unread_seconds", "still",
            f.col("flapping.ends").alias("ends"), f.col("flapping.silent").alias("silent"),
            f.col("flapping.member").alias("member"),
        ).orderBy(*order)
    )  # fmt: skip


def _told(line: Mapping[str, Any], report: Mapping[str, Any], gathered: Gathered) -> dict[str, Any]:
    """Return the line of a group with its state, its lag, and the thing to do about it."""
    group_id = line["group_id"]
    picture = report["pictures"].get(group_id)
    lag: dict[str, Any] = next((each for each in report.get("lag", ()) if each["group_id"] == group_id), {})
    state = gathered.states.get(group_id) or (picture and picture["state"])
    unread_s = line.get("unread_seconds") or 0.0
    if picture is not None and not picture["left_out"]["rows"]:
        # As `why` and the picture have it.
        unread_s = picture["unread_ms"] / 1000
    return {
        "group_id": group_id,
        "state": state,
        "rebalances": line.get("rebalances", 0) if "summary" in report else None,
        "unread_seconds": unread_s if "summary" in report else None,
        "lag_now": lag.get("lag_now"),
        "most": lag.get("most"),
        "advice": advise(line, lag, state=state, known=picture["advice"] if picture else ""),
    }


def advise(line: Mapping[str, Any], lag: Mapping[str, Any], *, state: str | None, known: str) -> str:
    """Say in a sentence how to mend a group, or that nothing is to be done.

    `line`: of `_by_group`. `lag`: its lag, empty if unknown. `known`: the advice that its rows give.
    """
    if known:
        return known
    if line.get("ends"):
        return (
            f"Find out why {line['member']} ends: {line['ends']:,} times within an hour, "
            f"{line['silent'] or 'none'} of them by the session timeout"
        )
    if lag.get("lag_now") and str(state).lower() in ("empty", "without members", "dead"):
        return f"Start a member: {lag['lag_now']:,} records wait, and the group has none"
    if line.get("still"):
        partitions = "1 partition" if line["still"] == 1 else f"{line['still']:,} partitions"
        return f"Look for the owner of {partitions}: no member reads there"
    if lag.get("lag_now") and lag["lag_now"] == lag["most"]:
        return f"Watch its lag: {lag['lag_now']:,} records, the most that it has had"
    return "Nothing"


def _history_lines(tables: Mapping[str, DataFrame], *, groups: int) -> dict[str, Any]:
    rebalances = tables["rebalances"]
    unread, flapping = tables["unread"].where("not is_empty"), tables["flapping"].where("is_flapping")
    (total,) = _lines(
        rebalances.agg(
            f.count("*").alias("rebalances"),
            f.round(f.coalesce(f.sum("seconds"), f.lit(0)), 3).alias("seconds"),
            f.round(f.max("seconds"), 3).alias("longest_seconds"),
            f.sum("moved").alias("moved"),
            f.min("began").alias("first"),
            f.max("began").alias("last"),
            f.unix_millis(f.min("began")).alias("from_ms"),
            f.unix_millis(f.max("began")).alias("to_ms"),
        )
    )
    nth = f.row_number().over(Window.partitionBy("group_id").orderBy(f.desc("began")))
    latest = rebalances.withColumn("nth", nth).where(f.col("nth") <= max(_LATEST, LINES // max(1, groups)))
    return {
        "summary": total,
        "density": _density(rebalances, total["from_ms"], total["to_ms"]) if total["rebalances"] else [],
        "causes": _lines(_causes(rebalances)),
        "rebalances": _lines(_rounded(latest.orderBy(f.desc("began")).limit(LINES).drop("nth"))),
        "unread": _lines(_owners(unread)),
        "waits": _lines(_rounded(tables["waits"].orderBy(f.desc_nulls_first("seconds"), "began").limit(LINES))),
        "flapping": _lines(_rounded(flapping.orderBy(f.desc("ends")).limit(LINES)).drop("is_flapping")),
        "skew": _lines(_latest_skew(tables["skew"])),
        "refusals": _lines(_refusals(tables["refusals"])),
        "what_if": _lines(_moved(tables["what_if"], rebalances)) if "what_if" in tables else [],
    }


def _density(rebalances: DataFrame, from_ms: int, to_ms: int) -> Lines:
    """Count rebalances over time, in spans as `count_rebalances` has them."""
    width = bar_width_ms(from_ms, to_ms)
    begin = f.floor((f.unix_millis("began") - from_ms) / width) * width + from_ms
    bars = rebalances.groupBy(begin.cast("bigint").alias("from_ms")).agg(
        f.count("*").alias("count"),
        f.coalesce(f.round(f.max("seconds") * 1000), f.lit(0)).cast("bigint").alias("longest_ms"),
    )
    return _lines(bars.withColumn("to_ms", f.col("from_ms") + width).orderBy("from_ms"))


def _causes(rebalances: DataFrame) -> DataFrame:
    by_cause = rebalances.groupBy("why").agg(
        f.count("*").alias("rebalances"),
        # The exact one would hold every value that there is.
        f.percentile_approx("seconds", 0.5).alias("median_seconds"),
        f.percentile_approx("seconds", 0.95).alias("p95_seconds"),
        f.max("seconds").alias("longest_seconds"),
        f.sum("moved").alias("moved"),
        f.max("unread_seconds").alias("unread_seconds"),
    )
    return _rounded(by_cause.orderBy(f.desc("rebalances")).limit(LINES))


def _owners(unread: DataFrame) -> DataFrame:
    by_partition = unread.groupBy("group_id", "topic", "partition").agg(
        f.count("*").alias("times"),
        f.sum("seconds").alias("seconds"),
        f.max("seconds").alias("longest_seconds"),
        f.max_by("why", "seconds").alias("longest_because"),
        f.count_if(f.col("ended").isNull()).alias("still"),
    )
    return _rounded(by_partition.orderBy(f.desc_nulls_last("seconds")).limit(LINES))


def _latest_skew(skew: DataFrame) -> DataFrame:
    columns = ("epoch", "members", "partitions", "fewest", "most", "ratio")
    latest = (
        skew.where("members > 0")
        .groupBy("group_id")
        .agg(*(f.max_by(name, "ended").alias(name) for name in columns), f.max("ratio").alias("worst_ratio"))
    )
    return _rounded(latest.orderBy(f.desc("ratio")).limit(LINES))


def _refusals(refusals: DataFrame) -> DataFrame:
    told = (
        refusals.where(~f.col("error").isin(*_ROUTINE))
        .groupBy("group_id", "api", "error")
        .agg(f.sum("times").alias("times"), f.max("ended").alias("last"), f.max_by("cause", "ended").alias("because"))
    )
    return told.orderBy(f.desc("times")).limit(LINES)


def _moved(moved: DataFrame, rebalances: DataFrame) -> DataFrame:
    """Return the actual moves of each group beside those that each assignor would have made."""
    was = (
        rebalances.where("protocol = 'consumer'")
        .groupBy("group_id")
        .agg(f.count("*").alias("rebalances"), f.sum("moved").alias("as_it_was"))
    )
    would = moved.groupBy("group_id").pivot("assignor", list(BALANCING)).sum("moved")
    return was.join(would, "group_id").orderBy(f.desc("as_it_was")).limit(LINES)


def _lag(spark: SparkSession, gathered: Gathered, *, since_ms: int | None) -> DataFrame:
    now_ms = gathered.now_ms or int(time.time() * 1000)
    source = _source(spark, str(gathered.bootstrap), gathered.settings)
    groups = sorted({group for group, _, _ in gathered.ends})
    topics = sorted({topic for _, topic, _ in gathered.ends})
    offsets = source.option("subscribe", OFFSETS_TOPIC).option("columns", "key,value,timestamp").load()
    commits = pipelines.parse_commits(offsets).where(f.col("group_id").isin(groups)).persist()
    first_ms = commits.agg(f.unix_millis(f.min("time"))).first()[0]  # type: ignore[index]
    from_ms = max(since_ms or 0, now_ms if first_ms is None else first_ms)
    every = next((span for span, s in _SPANS.items() if (now_ms - from_ms) / 1000 / s <= _SPANS_SHOWN), "1 day")
    every = every if every[0].isdecimal() else f"1 {every}"
    # Of what was committed before, the last counts, as if it had been committed then.
    begin = f.timestamp_millis(f.lit(from_ms))
    keys = ("group_id", "topic", "partition")
    before = commits.where(f.col("time") < begin).groupBy(*keys).agg(f.max_by("offset", "time").alias("offset"))
    since = commits.where(f.col("time") >= begin).unionByName(before.withColumn("time", begin))
    records = (
        source.option("subscribe", ",".join(topics))
        .option("columns", "topic,partition,offset,timestamp")
        .option("startingTimestamp", from_ms)
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )
    # The ends as they are now: of partitions to which nothing was written since.
    present = {(topic, partition, end) for (_, topic, partition), end in gathered.ends.items()}
    now = spark.createDataFrame(list(present), "topic string, partition int, end_offset bigint")
    newest = now.select(
        "topic", "partition", f.window(f.timestamp_millis(f.lit(now_ms)), every).start.alias("time"), "end_offset"
    )
    ends = pipelines.parse_ends(records, every=every).unionByName(newest)
    ends = ends.groupBy("topic", "partition", "time").agg(f.max("end_offset").alias("end_offset")).persist()
    # Records go on arriving while the report is made.
    return pipelines.lag(since.persist(), ends, every=every).where(f.col("time") <= f.timestamp_millis(f.lit(now_ms)))


def _source(spark: SparkSession, bootstrap: str, settings: Mapping[str, str]) -> DataFrameReader:
    given = {f"kafka.{name}": value for name, value in settings.items()}
    return spark.read.format("kohort").options(**{**given, "kafka.bootstrap.servers": bootstrap})


def _lag_lines(lag: DataFrame, groups: Sequence[str]) -> dict[str, Lines]:
    """Return the lag of the worst groups and of those named, the worst first, and its readings over time."""
    by_group = lag.groupBy("group_id", "time").agg(f.sum("lag").alias("lag")).persist()
    latest = by_group.groupBy("group_id").agg(
        f.max_by("lag", "time").alias("lag_now"), f.max("lag").alias("most"), f.avg("lag").alias("mean")
    )
    is_named = f.col("group_id").isin(list(groups))
    lines = _lines(_rounded(latest.orderBy(f.desc(is_named), f.desc("most")).limit(GROUPS_SHOWN)))
    shown = f.col("group_id").isin([line["group_id"] for line in lines]) & f.col("lag").isNotNull()
    points = by_group.where(shown).orderBy("group_id", "time").limit(GROUPS_SHOWN * (_SPANS_SHOWN + 2))
    return {
        "lag": sorted(lines, key=lambda line: -(line["most"] or 0)),
        "lag_points": _lines(points.select("group_id", f.unix_millis("time").alias("time_ms"), "lag")),
    }


def _rounded(table: DataFrame) -> DataFrame:
    return table.select(*(f.round(name, 3).alias(name) if kind == "double" else name for name, kind in table.dtypes))


def _lines(table: DataFrame) -> Lines:
    return [
        {
            name: value.isoformat(" ", "milliseconds") if hasattr(value, "isoformat") else value
            for name, value in row.asDict().items()
        }
        for row in table.collect()
    ]
