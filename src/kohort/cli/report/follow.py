"""`--follow`: tables that a streaming query keeps, and a page that is made anew from them whenever something came.

Laws: a table's lines come once, whatever is stopped and begun again: rows that were written down before are known by
their numbers, and each batch of the query has a folder of its own in each table. What is not over is not in them yet.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort.cli.output import complain, plain
from kohort.cli.report.aggregates import SHORTEST_WAIT_S, aggregate
from kohort.cli.report.gather import Gathered
from kohort.cli.report.page import write_page
from kohort.errors import KohortError
from kohort.pipelines.tables import flapping_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kohort import Admin

#: Seconds between two looks at the histories.
INTERVAL_S: Final = 1.0
_MARK: Final = ".kohort-report"
_KEPT: Final = ("rebalances", "unowned", "waits", "stays", "skew", "refusals")


def follow(options: argparse.Namespace, out: Path, scratch: Path) -> None:
    """Keep tables and page until Ctrl-C, or until the query fails."""
    from kohort import Admin
    from kohort.cli.demo.sparkjob import open_session

    place = take_place(Path(options.tables or out.with_name(f"{out.stem}-tables")))
    with Admin(bootstrap_servers=options.bootstrap) as admin, open_session(scratch, name="kohort report") as spark:
        rows = Rows(admin, place / "history", options.group)
        rows.write_new()
        query = start_query(spark, place, out, group=options.group)
        complain(f"tables in {place}, the page in {out}; Ctrl-C ends it")
        try:
            while query.isActive:
                time.sleep(INTERVAL_S)
                rows.write_new()
            query.awaitTermination()
        finally:
            query.stop()


def take_place(place: Path) -> Path:
    """A folder of ours: a new or empty one, or one that carries the mark of an earlier run."""
    if place.exists() and not (place / _MARK).exists() and any(place.iterdir()):
        raise KohortError(f"{place} holds files and not the mark of a report's tables: choose another with --tables")
    (place / "history").mkdir(parents=True, exist_ok=True)
    (place / _MARK).touch()
    return place


class Rows:
    """Writes down what comes to histories, a file a look."""

    def __init__(self, admin: Admin, folder: Path, group: str | None) -> None:
        self._admin: Final = admin
        self._folder: Final = folder
        self._group: Final = group
        #: Group -> the sequence of its last row that is written.
        self._last: dict[str, int] = {}

    def write_new(self) -> None:
        """One more file, if there is something to write."""
        groups = [self._group] if self._group else [row.group_id for row in self._admin.list_groups()]
        lines = []
        for group in groups:
            for event in self._admin.group_history(group, after=self._last.get(group, 0)).events:
                lines.append(json.dumps({"group_id": group, **plain(event)}) + "\n")
                self._last[group] = event.sequence
        if lines:
            draft = self._folder / f".{time.time_ns()}.json"
            draft.write_text("".join(lines))
            # Spark takes no notice of names that begin with a dot.
            draft.replace(self._folder / draft.name[1:])


def start_query(spark: SparkSession, place: Path, out: Path, *, group: str | None) -> StreamingQuery:
    """The query that keeps the tables below `place` and the page `out`; `group` `None`: all that are in the rows."""
    from kohort import pipelines

    lines = spark.readStream.text(str(place / "history"))

    def keep(facts: DataFrame, batch_id: int) -> None:
        facts.persist()
        made: Mapping[str, DataFrame] = {name: getattr(pipelines, name)(facts) for name in _KEPT}
        for name, table in made.items():
            table.write.mode("overwrite").parquet(str(place / name / f"batch={batch_id}"))
        facts.unpersist()
        tables = {name: spark.read.parquet(str(place / name)) for name in _KEPT}
        tables["waits"] = tables["waits"].where(f"seconds > {SHORTEST_WAIT_S}")
        tables["flapping"] = flapping_of(tables["stays"])
        notes = ("Kept up to date; what is not over is not in it yet, nor lag, nor other assignors.",)
        write_page(aggregate(tables, Gathered(paths=(), groups=(group,) if group else (), notes=notes)), out)

    facts = pipelines.facts(pipelines.parse_journal(lines))
    stream = facts.writeStream.foreachBatch(keep).option("checkpointLocation", str(place / "checkpoint"))
    return stream.start()
