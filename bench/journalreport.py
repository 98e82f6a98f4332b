"""The page of `kohort report` over generated rows of histories, in a driver of 1 GB: `python bench/journalreport.py`.

Not a part of `make bench`, since it has no peer: it says whether the report comes to its end, how fast, and how large
its page is. `--rows 1000000 --group-rows 10000` are 100 groups.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

from kohort.assign.assignors import BALANCING
from kohort.cli.report.aggregates import aggregate, tables_from
from kohort.cli.report.gather import Gathered
from kohort.cli.report.page import render
from kohort.pipelines.journal import JOURNAL_SCHEMA

ROWS = 50_000_000
#: Rows of one group; a number of cycles.
GROUP_ROWS = 100_000
PARTITIONS = 8
#: Who is there from a group's first row on.
FIRST = ("transition", "member_joined", "ada", {"client": "ada", "host": "/10.0.0.1", "topics": "orders"})
#: What happens again and again: bob joins, gets half of what ada has, and leaves. "#" is the first epoch of a cycle.
CYCLE = (
    ("stimulus", "ConsumerGroupHeartbeat", "bob", {"member_epoch": "0"}),
    ("transition", "member_joined", "bob", {"client": "bob", "host": "/10.0.0.2", "topics": "orders"}),
    ("decision", "epoch_bumped", "", {"epoch": "#", "trigger": "member joined"}),
    ("transition", "assignment_changed", "bob", {"epoch": "#", "state": "UNRELEASED_PARTITIONS"}),
    ("decision", "target_computed", "", {"epoch": "#", "members_changed": "2"}),
    ("stimulus", "ConsumerGroupHeartbeat", "ada", {"member_epoch": "1"}),
    ("transition", "assignment_changed", "ada", {"state": "UNREVOKED_PARTITIONS", "epoch": "#", "asked_back": "%"}),
    ("stimulus", "ConsumerGroupHeartbeat", "ada", {"member_epoch": "1"}),
    ("transition", "assignment_changed", "ada", {"state": "STABLE", "epoch": "#", "released": "%"}),
    ("stimulus", "ConsumerGroupHeartbeat", "bob", {"member_epoch": "1"}),
    ("transition", "assignment_changed", "bob", {"state": "STABLE", "epoch": "#", "gained": "%"}),
    ("decision", "refused", "bob", {"api": "CommitOffsets", "error": "STALE_MEMBER_EPOCH"}),
    ("stimulus", "ConsumerGroupHeartbeat", "bob", {"member_epoch": "-1"}),
    ("transition", "assignment_released", "bob", {"released": "%"}),
    ("transition", "member_removed", "bob", {"reason": "member left"}),
    ("decision", "epoch_bumped", "", {"epoch": "##", "trigger": "member left"}),
    ("stimulus", "deadline_passed", "", {"deadline": "assignment due"}),
    ("decision", "target_computed", "", {"epoch": "##", "members_changed": "1"}),
    ("stimulus", "ConsumerGroupHeartbeat", "ada", {"member_epoch": "1"}),
    ("transition", "assignment_changed", "ada", {"state": "STABLE", "epoch": "##", "gained": "%"}),
)


def generate(spark: Any, count: int, group_rows: int = GROUP_ROWS) -> Any:
    """`count` rows, as the coordinator words them."""
    from pyspark.sql import functions as f

    half = " ".join(f"orders-{number}" for number in range(PARTITIONS // 2, PARTITIONS))

    def struct_of(kind: str, event: str, member: str, details: dict[str, str]) -> Any:
        words = (f.lit(part.replace("%", half)) for pair in details.items() for part in pair)
        texts = (f.lit(kind).alias("kind"), f.lit(event).alias("event"), f.lit(member).alias("member_id"))
        return f.struct(*texts, f.create_map(*words).alias("details"))

    again = f.array(*(struct_of(*row) for row in CYCLE))[(f.col("id") % len(CYCLE)).cast("int")]
    is_first = f.col("id") % group_rows == 0
    rows = spark.range(count).withColumn("row", f.when(is_first, struct_of(*FIRST)).otherwise(again))
    cycle = (f.col("id") % group_rows / len(CYCLE)).cast("bigint") * 2
    epoch = f.when(f.col("row.details")["epoch"] == "##", cycle + 1).otherwise(cycle).cast("string")
    details = f.transform_values("row.details", lambda name, value: f.when(name == "epoch", epoch).otherwise(value))
    group = f.concat(f.lit("group-"), (f.col("id") / group_rows).cast("bigint").cast("string"))
    now = f.lit(1_700_000_000_000) + f.col("id") * 50
    made = rows.select(
        group.alias("group_id"), (f.col("id") + 1).alias("sequence"), now.alias("time_ms"), now.alias("last_time_ms"),
        f.lit(1).alias("times"), f.col("id").alias("cause"), f.col("id").alias("origin"), "row.kind", "row.event",
        "row.member_id", details.alias("details"),
    )  # fmt: skip
    assert made.columns == [column.split(" ")[0] for column in JOURNAL_SCHEMA.split(", ")]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--group-rows", type=int, default=GROUP_ROWS, help="rows of a group, a multiple of 20")
    parser.add_argument("--no-what-if", action="store_true", help="as for kohort report")
    options = parser.parse_args()
    count = options.rows
    import kohort.spark

    settings = {"spark.ui.enabled": False, "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": False}
    spark = kohort.spark.session(master="local[2]", **{**settings, "spark.driver.memory": "1g"})
    began = time.perf_counter()
    gathered = Gathered(paths=(), partitions={"orders": PARTITIONS})
    assignors = () if options.no_what_if else BALANCING
    report = aggregate(
        tables_from(generate(spark, count, options.group_rows), gathered, since_ms=None, assignors=assignors), gathered
    )
    page = render(report)
    seconds = time.perf_counter() - began
    assert report["summary"]["rebalances"] == count // len(CYCLE) * 2, report["summary"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count:,} rows, {report['summary']['rebalances']:,} rebalances of {len(report['groups']):,} groups")
    print(f"a page of {len(page.encode()) / 1e3:,.0f} kB, {page.count('<h3 '):,} groups drawn")
    print(f"{seconds:.0f} s, {count / seconds:,.0f} rows/s, {memory:.0f} MiB in the process that writes the page")
    spark.stop()


if __name__ == "__main__":
    main()
