"""The second half of the demo: two Spark queries in a group, and one that writes, stopped and killed under load.

Laws: each record is in the folder of a batch, also of a query that was stopped or killed. A record is in two folders
only if a batch was in doubt because its reader was killed. Spark counts these. A repeated batch replaces its folder.
A third query writes totals to a topic, exactly once, however often it is killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.demo.account import Account, QueryAccount, SparkAccount, TotalsAccount, check_spark
from kohort.cli.demo.stage import BEFORE_SPARK, PARTITIONS, Stage, Watch, show_numbers, wait_until
from kohort.cli.folders import PICTURE_NAME, REPORT_NAME, TOPIC
from kohort.cli.report.aggregates import aggregate, tables_of
from kohort.cli.report.gather import gather_groups
from kohort.cli.report.page import write_page
from kohort.cli.report.session import open_session
from kohort.client.admin.results.groups import GroupDescription
from kohort.client.consumer.consumer import Consumer
from kohort.errors import KohortError
from kohort.ids import TopicPartition
from kohort.spark import QueryListener, read_stream, start, write_stream
from kohort.spark.driver.stopping import drain_and_stop, last_batch_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_GROUP: Final = "flights-spark"
#: The session timeout of the queries; a restarted query joins long before it expires.
SPARK_SESSION_TIMEOUT_MS: Final = 10_000
#: Flights are sent this many times more slowly while Spark runs, which starts queries and rewrites batches meanwhile.
SLOWER: Final = 2.0
#: Shares of the flights that are sent by the end of each act of the second half.
SHARES: Final = (0.7, 0.8, 0.9, 1.0)
HALVES: Final = {"eve": PARTITIONS // 2, "fay": PARTITIONS // 2}
#: The topic of departures by carrier.
TOTALS: Final = "carrier-totals"
TOTALS_PARTITIONS: Final = 2
#: Seconds within which Spark starts a reader, or finishes a batch, on a busy machine.
PATIENCE_S: Final = 180.0
#: How often a query is started again whose reader was too slow for Spark.
_RETRIES: Final = 10
_FLIGHT_SCHEMA: Final = "carrier string, sched_dep_time int, dep_delay int"
#: Part of the command line of the Python process that reads for a streaming query.
_READER: Final = b"python_streaming_source_runner"


class SparkScene:
    """The second half of one run; the stage has finished the first half."""

    def __init__(self, stage: Stage, account: Account) -> None:
        account.spark = SparkAccount()
        self.stage, self.whole, self.account = stage, account, account.spark
        self.watch = Watch(stage, SPARK_GROUP)
        self.began_s = time.monotonic()
        self.phase = "starting Spark"
        #: Queries that have been started.
        self.queries: list[Query] = []

    def run(self) -> None:
        """Run all acts, count the rows, draw the picture and write the page; `KohortError` if an act fails."""
        admin, output, account = self.stage.admin, self.stage.output, self.account
        self.watch.say("\nSpark: eve and fay, two streaming queries, share a group while more flights arrive")
        admin.alter_group_configs(SPARK_GROUP, {"consumer.session.timeout.ms": SPARK_SESSION_TIMEOUT_MS})
        with (
            tempfile.TemporaryDirectory(prefix="kohort-demo-") as scratch,
            self.watch.showing(("QUERY", "OWNS"), self._render),
            open_session(Path(scratch), name="kohort demo") as session,
        ):
            self._play(session, Path(scratch))
            self.phase = "Spark counts what it has read"
            cells = count_rows(session, Path(scratch, "rows"), account)
            account.committed = sum(row.committed or 0 for row in admin.group_offsets(SPARK_GROUP))
            account.picture = os.fspath(output / PICTURE_NAME)
            draw(cells, [carrier for carrier, _, _ in account.rows], account.picture)
            self.phase = "Spark makes the report of both groups"
            everything = argparse.Namespace(group=None, bootstrap=self.stage.bootstrap, no_lag=False)
            gathered = gather_groups(everything, Path(scratch))
            write_page(aggregate(tables_of(session, gathered, since_ms=None), gathered), output / REPORT_NAME)
            account.report = os.fspath(output / REPORT_NAME)
        account.seconds = time.monotonic() - self.began_s
        check_spark(self.whole, account)

    def _play(self, session: SparkSession, folder: Path) -> None:
        session.streams.addListener(QueryListener())
        where = (session, self.stage.bootstrap, folder)
        # The long trigger interval lets `eve` be stopped long before its next batch.
        eve, fay, totals = (
            Query(QueryAccount(name="eve"), "4 seconds", *where),
            Query(QueryAccount(name="fay"), "1 second", *where),
            Totals(QueryAccount(name="totals"), "2 seconds", *where),
        )
        self.account.queries = [eve.account, fay.account]
        self.stage.admin.create_topic(TOTALS, TOTALS_PARTITIONS)
        self._join(eve, fay)
        self._start_totals(totals)
        self._stop(eve)
        self._kill_totals(totals)
        self._kill(fay)
        self._begin("reading the rest", 3)
        self._kill_totals(totals)
        self.account.produced = self.stage.load.settle()
        self._wait(lambda: self.watch.lag() == 0, "the queries did not reach the end of the topic")
        totals.running.processAllAvailable()
        for query in self.queries:
            drain_and_stop(query.running, timeout=PATIENCE_S)
            query.account.ends.append("drained")
        self.account.totals = count_totals(self.stage.bootstrap)
        self.account.rebalances = self.watch.rebalances()
        self.watch.say("  eve and fay are drained: nothing is in doubt, and the group is empty")

    def _join(self, eve: Query, fay: Query) -> None:
        self.phase = "the queries join"
        eve.start()
        self.queries.append(eve)
        self._wait(lambda: self._is_shared(eve=PARTITIONS) and eve.finished() >= 0, "eve did not read")
        self.watch.say(f"  eve starts, and reads all {PARTITIONS} partitions from their beginning")
        self._begin(self.phase, 0)
        fay.start()
        self.queries.append(fay)
        self._wait(lambda: self._is_shared(**HALVES) and fay.finished() >= 0, "fay got no partitions")
        self.watch.say(f"  fay starts, and goes on with {HALVES['fay']} of them where eve has ended")

    def _stop(self, eve: Query) -> None:
        last = eve.finished()
        self._begin("a stop", 1)
        self._wait(lambda: eve.finished() > last and not eve.running.status["isTriggerActive"], "eve ended no batch")
        # The query does not leave its group first.
        eve.running.stop()
        eve.account.ends.append("stopped between two triggers")
        took_s = self._wait(lambda: self._is_shared(fay=PARTITIONS), "fay did not take over from eve")
        self.watch.say(f"  eve is stopped between two triggers: fay has all {PARTITIONS} after {took_s:.1f} s")
        eve.start()
        self._wait(lambda: self._is_shared(**HALVES), "eve did not get its partitions back")
        self.watch.say(f"  eve starts again from its checkpoint, and has {HALVES['eve']} of the {PARTITIONS} again")

    def _kill(self, fay: Query) -> None:
        self._begin("a kill", 2)
        fay.kill_reader()
        kept = f"its partitions wait for it, {SPARK_SESSION_TIMEOUT_MS / 1000:g} s at the most"
        self.watch.say(f"  fay's reader is killed (SIGKILL), and the query ends: {kept}")
        began_s = time.monotonic()
        fay.start()
        self._wait(lambda: self._is_shared(**HALVES) and fay.finished() >= 0, "fay did not come back")
        back_s = time.monotonic() - began_s
        self.watch.say(f"  fay starts again, repeats the batch that was in doubt, and is back after {back_s:.1f} s")

    def _start_totals(self, totals: Totals) -> None:
        totals.start()
        self.queries.append(totals)
        self._wait(lambda: totals.finished() >= 0, "no totals were written")
        self.watch.say(f"  totals starts, and writes departures by carrier to topic {TOTALS}, a transaction a batch")

    def _kill_totals(self, totals: Totals) -> None:
        self.phase = "a kill of the totals"
        totals.kill_reader()
        totals.start()
        self._wait(lambda: totals.finished() >= 0, "totals did not come back")
        self.watch.say("  the reader of totals is killed (SIGKILL); the query starts again, and writes no batch twice")

    def _begin(self, phase: str, act: int) -> None:
        """Begin to send the flights of an act; those of the acts before have been sent."""
        self.phase = phase
        seconds = (1 - BEFORE_SPARK) * self.stage.seconds * SLOWER
        self.stage.load.begin(SHARES[act], seconds=seconds / len(SHARES))

    def _wait(self, is_reached: Callable[[], bool], otherwise: str) -> float:
        """Wait for a condition and return the seconds; raise if a query fails meanwhile."""

        def look() -> bool:
            for query in self.queries:
                query.check()
            return is_reached()

        return wait_until(look, otherwise, seconds=PATIENCE_S)

    def _is_shared(self, **shares: int) -> bool:
        """Return whether the group is stable and each query owns this number of partitions."""
        return {name: held for name, held in self.watch.shares().items() if held} == shares

    def _render(self, group: GroupDescription | None, lag: str) -> tuple[str, list[tuple[str, ...]]]:
        members = sorted(group.members, key=lambda row: row.instance_id or "") if group else []
        rows: list[tuple[str, ...]] = [
            (member.instance_id or member.member_id, show_numbers(row.partition for row in member.assignment))
            for member in members
        ]
        line = f"{self.phase}, {time.monotonic() - self.began_s:.0f} s: "
        line += f"{self.stage.load.sent:,} of {self.stage.flights:,} flights{lag}"
        return "".join([line, *(f", {name} {numbers}" for name, numbers in rows)]), rows


@dataclass
class Query:
    """One query of the group, in all of its runs; its output and checkpoint are below `folder`."""

    account: QueryAccount
    #: The trigger interval of its batches, as Spark writes it.
    trigger: str
    session: SparkSession
    bootstrap: str
    folder: Path

    def start(self) -> None:
        """Start the query from its checkpoint, and wait until its reader runs or the query ends."""
        before, name = find_readers(), self.account.name
        checkpoint = str(self.folder / "checkpoints" / name)
        writer = self._writer(checkpoint).queryName(name).option("checkpointLocation", checkpoint)
        self.running = start(writer.trigger(processingTime=self.trigger), retries=_RETRIES)
        self.readers = find_readers() - before

    def _writer(self, checkpoint: str) -> Any:
        where: Any = {"group_id": SPARK_GROUP, "group_instance_id": self.account.name}
        return self._flights(checkpointLocation=checkpoint, **where).writeStream.foreachBatch(self._write)

    def _flights(self, **options: Any) -> DataFrame:
        from pyspark.sql import functions as f

        what: Any = {"columns": "value,partition,offset", "startingOffsets": "earliest"}
        records = read_stream(self.session, TOPIC, bootstrap_servers=self.bootstrap, **what, **options)
        flight = f.from_json(f.col("value").cast("string"), _FLIGHT_SCHEMA).alias("flight")
        return records.select("partition", "offset", flight).select("partition", "offset", "flight.*")

    def _write(self, batch: DataFrame, number: int) -> None:
        folder = f"{self.folder}/rows/query={self.account.name}/batch={number}"
        batch.coalesce(1).write.mode("overwrite").parquet(folder)

    def _wait(self, is_reached: Callable[[], bool], otherwise: str) -> None:
        wait_until(is_reached, f"{self.account.name} {otherwise}", seconds=PATIENCE_S)

    def finished(self) -> int:
        """Return the number of the last batch that this run has finished, -1 before that."""
        return last_batch_id(self.running.lastProgress)

    def kill_reader(self) -> None:
        """Kill the process of the reader by SIGKILL, and wait until the query has ended."""
        if not self.readers:
            raise KohortError(f"the process that reads for {self.account.name} was not found")
        for reader in self.readers:
            os.kill(reader, signal.SIGKILL)
        self._wait(lambda: not self.running.isActive, "did not notice its reader's end")
        self.account.ends.append("reader killed (SIGKILL)")
        self.account.in_doubt += [self.finished(), self.finished() + 1]

    def check(self) -> None:
        """Raise if the query has failed."""
        why = "" if self.running.isActive else str(self.running.exception() or "")
        if why:
            raise KohortError(f"query {self.account.name} has ended: {why.splitlines()[0]}")


class Totals(Query):
    """The query that writes departures by carrier to a topic, each batch in a transaction, once."""

    def _writer(self, checkpoint: str) -> Any:  # of no group, it leaves nothing in doubt
        totals = self._flights().groupBy("carrier").count().selectExpr("carrier key", "string(count) value")
        where: Any = {"bootstrap_servers": self.bootstrap, "kohort_batchHeaders": True}
        # Each batch has all totals; an aggregate has no rows of its own that are final.
        return write_stream(totals, TOTALS, exactly_once=True, **where).outputMode("complete")


def count_totals(bootstrap: str) -> TotalsAccount:
    """Count the totals as readers of committed records see them: the latest of each carrier counts."""
    found, latest = Counter[tuple[bytes, bytes]](), dict[bytes, int]()
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as reader:
        partitions = [TopicPartition(TOTALS, number) for number in range(TOTALS_PARTITIONS)]
        reader.assign(partitions)
        reader.seek_to_beginning(*partitions)
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < ends[each] for each in partitions):
            for record in reader.poll(1.0):
                batch, carrier = dict(record.headers)["kohort.batch"] or b"", record.key or b""
                found[batch, carrier] += 1
                latest[carrier] = int(record.value or b"0")
    return TotalsAccount(
        departures=sum(latest.values()),
        batches=len({batch for batch, _ in found}),
        doubled=sum(count - 1 for count in found.values()),
    )


def find_readers(process: int | None = None) -> set[int]:
    """Find the processes below this one that read for streaming queries."""
    found: set[int] = set()
    folder = Path(f"/proc/{process or os.getpid()}")
    # A process may have ended meanwhile.
    with suppress(OSError):
        if process and _READER in (folder / "cmdline").read_bytes():
            found.add(process)
        for task in (folder / "task").iterdir():
            for child in (task / "children").read_text().split():
                found |= find_readers(int(child))
    return found


def count_rows(session: SparkSession, folder: Path, account: SparkAccount) -> list[Any]:
    """Count the rows of the queries into `account`; return departures and mean delay by carrier and hour."""
    from pyspark.sql import functions as f

    rows = session.read.parquet(str(folder)).persist()
    in_doubt = f.lit(False)
    for query in account.queries:
        in_doubt = in_doubt | ((f.col("query") == query.name) & f.col("batch").isin(query.in_doubt))
    again, excused = (f.count("*") - 1).alias("again"), f.max(in_doubt).alias("excused")
    records = rows.groupBy("partition", "offset").agg(again, excused)
    doubled = f.sum(f.when(f.col("excused"), 0).otherwise(f.col("again")))
    ((account.counted, account.duplicates, account.doubled),) = records.agg(
        f.count("*"), f.coalesce(f.sum("again"), f.lit(0)), f.coalesce(doubled, f.lit(0))
    ).collect()
    by_query = rows.groupBy("query").agg(f.count("*"), f.count_distinct("batch"))
    counts = {name: (records, batches) for name, records, batches in by_query.collect()}
    for query in account.queries:
        query.records, query.batches = counts.get(query.name, (0, 0))
    flights = rows.dropDuplicates(["partition", "offset"])
    departures, delay = f.count("dep_delay").alias("departures"), f.avg("dep_delay").alias("delay")
    by_carrier = flights.groupBy("carrier").agg(departures, f.coalesce(delay, f.lit(0.0)))
    account.rows = [
        (name, count, mean) for name, count, mean in by_carrier.orderBy(f.desc("departures"), "carrier").collect()
    ]
    hour = f.floor(f.col("sched_dep_time") / 100).cast("int").alias("hour")
    cells = flights.groupBy("carrier", hour).agg(departures, delay).collect()
    rows.unpersist()
    return cells


def draw(cells: list[Any], carriers: list[str], path: str) -> None:
    """Draw two heat maps of carrier by hour: the departures, and their mean delay."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    hours = range(min(cell.hour for cell in cells), max(cell.hour for cell in cells) + 1)
    figure, axes = plt.subplots(1, 2, figsize=(14, 6), constrained_layout=True)
    for axis, column, title, colours, most in (
        (axes[0], "departures", "departures", "viridis", None),
        # One flight that was hours late would leave no colours for all the others.
        (axes[1], "delay", "mean departure delay, minutes (60 and above alike)", "magma", 60.0),
    ):
        found = {(cell.carrier, cell.hour): cell[column] for cell in cells if cell[column] is not None}
        values = [[found.get((carrier, hour), float("nan")) for hour in hours] for carrier in carriers]
        figure.colorbar(axis.imshow(values, aspect="auto", cmap=colours, vmax=most), ax=axis)
        axis.set_xticks(range(len(hours)), [str(hour) for hour in hours])
        axis.set_yticks(range(len(carriers)), carriers)
        axis.set_xlabel("scheduled hour")
        axis.set_title(title)
    figure.suptitle("Flights from New York City, 2013, by carrier and hour")
    figure.savefig(path, dpi=110)
    plt.close(figure)
