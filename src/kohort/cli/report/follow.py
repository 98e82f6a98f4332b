"""`--follow`: tables kept by a streaming query, and a page made anew after each batch of rows.

A table is a folder with a folder for each batch of the query; Spark does not read a name that begins with a dot.
Laws: a table has each line once, even after restarts: rows that were written before are recognised by their numbers,
and a repeated batch replaces its folder. Facts that are not over are not in a table yet. A broker that is unreachable,
or has restarted, ends nothing. Nothing grows for ever: rows are deleted when they have been read, lines when they are
old.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort.cli.bootstrap import connection
from kohort.cli.folders import take_tables_folder
from kohort.cli.output import complain, plain
from kohort.cli.report.gather import Gathered
from kohort.cli.report.page import write_page
from kohort.errors import KohortError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kohort import Admin
    from kohort.client.admin.results.groups import HistoryEvent


#: Seconds between two looks at the histories.
INTERVAL_S: Final = 1.0
#: Seconds for which a line is kept unless --keep says otherwise: 30 days.
KEEP_S: Final = 30 * 86_400
_KEPT: Final = ("rebalances", "unread", "waits", "stays", "skew", "refusals")


def follow(options: argparse.Namespace, out: Path, scratch: Path, *, keep_s: int) -> None:
    """Keep tables and page up to date until Ctrl-C, or until the query fails.

    `keep_s`: seconds for which a line is kept after the end of its fact.

    Raises:
        BrokerError: UNSUPPORTED_VERSION: the broker keeps no history.
        KohortError: no broker can be reached at the start.
    """
    from kohort import Admin
    from kohort.cli.report.session import open_session

    with Admin(connection(options)) as admin:
        # A broker without history raises here, before a folder is made and Spark starts.
        for group in [options.group] if options.group else [row.group_id for row in admin.list_groups()[:1]]:
            if not admin.group_history(group).events:
                complain(f"group {group} has no history yet")
        place = take_tables_folder(Path(options.tables or out.with_name(f"{out.stem}-tables")))
        rows = Rows(admin, place / "history", options.group)
        with open_session(scratch, name="kohort report") as spark:
            rows.write_new()
            query = start_query(spark, place, out, group=options.group, keep_s=keep_s)
            complain(f"tables in {place}, the page in {out}; stop with Ctrl-C")
            try:
                while query.isActive:
                    time.sleep(INTERVAL_S)
                    rows.look()
                query.awaitTermination()
            finally:
                query.stop()


class Rows:
    """The writer of new history rows, one file for each look."""

    def __init__(self, admin: Admin, folder: Path, group: str | None) -> None:
        self._admin: Final = admin
        self._folder: Final = folder
        self._group: Final = group
        #: Group -> its last written row.
        self._last: dict[str, HistoryEvent] = {}
        self._is_away = False

    def look(self) -> None:
        """Call `write_new`; report an unreachable broker once, and try again at the next call."""
        try:
            self.write_new()
        except KohortError as why:
            if not why.retriable:
                raise
            if not self._is_away:
                complain(f"{why}; it is asked again")
            self._is_away = True
        else:
            self._is_away = False

    def write_new(self) -> None:
        """Write one more file, if there are new rows."""
        groups = [self._group] if self._group else [row.group_id for row in self._admin.list_groups()]
        lines = []
        for group in groups:
            for event in self._news(group):
                lines.append(json.dumps({"group_id": group, **plain(event)}) + "\n")
                self._last[group] = event
        if lines:
            draft = self._folder / f".{time.time_ns()}.json"
            draft.write_text("".join(lines))
            # Spark ignores names that begin with a dot.
            draft.replace(self._folder / draft.name[1:])

    def _news(self, group: str) -> Sequence[HistoryEvent]:
        last = self._last.get(group)
        if last is not None:
            events = self._admin.group_history(group, after=last.sequence - 1).events
            if events and (events[0].sequence, events[0].time_ms) == (last.sequence, last.time_ms):
                return events[1:]
        # A restarted broker counts from 1 again. Rows that are written twice count once.
        return self._admin.group_history(group).events


def start_query(
    spark: SparkSession, place: Path, out: Path, *, group: str | None, keep_s: int = KEEP_S
) -> StreamingQuery:
    """Start the query that keeps the tables in `place` and the page `out`; `group` of `None` means all."""
    from kohort import pipelines
    from kohort.cli.report.aggregates import SHORTEST_WAIT_S, aggregate
    from kohort.pipelines.tables import flapping_of

    for name in _KEPT:
        finish(place / name)
    # Rows that have been read are in the state of the query, so their files are deleted.
    lines = spark.readStream.option("cleanSource", "delete").text(str(place / "history"))

    def keep(facts: DataFrame, batch_id: int) -> None:
        since_ms = int((time.time() - keep_s) * 1000)
        facts.persist()
        for name in _KEPT:
            batch = place / name / f"{_BATCH}{batch_id}"
            getattr(pipelines, name)(facts).write.mode("overwrite").parquet(str(batch))
            put_together(spark, place / name, before=batch_id, since_ms=since_ms)
        facts.unpersist()
        tables = {name: read_table(spark, place / name, since_ms=since_ms) for name in _KEPT}
        tables["waits"] = tables["waits"].where(f"seconds > {SHORTEST_WAIT_S}")
        tables["flapping"] = flapping_of(tables["stays"])
        notes = ("Kept up to date, without unfinished rebalances, lag and moves of other assignors.",)
        write_page(aggregate(tables, Gathered(paths=(), groups=(group,) if group else (), notes=notes)), out)

    facts = pipelines.facts(pipelines.parse_journal(lines))
    stream = facts.writeStream.foreachBatch(keep).option("checkpointLocation", str(place / "checkpoint"))
    return stream.start()


#: The most batches of a table before they are merged.
MOST_BATCHES: Final = 50
_BATCH: Final = "batch="
# Folders are merged into a draft, without old lines, that is complete before the first folder is removed.
_DRAFT: Final = ".together="


def read_table(spark: SparkSession, folder: Path, *, since_ms: int) -> DataFrame:
    """Read the lines of facts that ended at or after `since_ms`, milliseconds since 1970."""
    return _kept(spark.read.parquet(str(folder)), since_ms).drop(_BATCH.removesuffix("="))


def put_together(spark: SparkSession, folder: Path, *, before: int, since_ms: int, most: int = MOST_BATCHES) -> None:
    """Merge the batches before `before` into one if there are more than `most`, without older rows."""
    numbers = [number for number in _batches(folder) if number < before]
    if len(numbers) <= most:
        return
    old = spark.read.parquet(*(str(folder / f"{_BATCH}{number}") for number in numbers))
    draft = folder / f"{_DRAFT}{max(numbers)}"
    _kept(old, since_ms).coalesce(1).write.mode("overwrite").parquet(str(draft))
    finish(folder)


def finish(folder: Path) -> None:
    """Complete a merge of batches, also one that another process was stopped in; drop a partial draft."""
    for draft in folder.glob(f"{_DRAFT}*"):
        last = int(draft.name.removeprefix(_DRAFT))
        if not (draft / "_SUCCESS").exists():
            shutil.rmtree(draft)
            continue
        for number in _batches(folder):
            if number <= last:
                shutil.rmtree(folder / f"{_BATCH}{number}")
        draft.rename(folder / f"{_BATCH}{last}")


def _batches(folder: Path) -> list[int]:
    return [int(path.name.removeprefix(_BATCH)) for path in folder.glob(f"{_BATCH}*")]


def _kept(table: DataFrame, since_ms: int) -> DataFrame:
    from pyspark.sql import functions as f

    # A line without an end counts from its beginning.
    last = f.coalesce(*(name for name in ("ended", "began") if name in table.columns))
    return table.where(last >= f.timestamp_millis(f.lit(since_ms)))
