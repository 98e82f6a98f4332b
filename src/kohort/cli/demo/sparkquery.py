"""A streaming query of the demo, over its runs, and the count of the queries' output as table and picture.

Each batch is written to a folder that a repeated one replaces.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kohort.cli.demo.account import QueryAccount, SparkAccount
from kohort.cli.demo.place import TOPIC
from kohort.cli.demo.watch import wait_until
from kohort.errors import KohortError
from kohort.spark.driver.stopping import drain_and_stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPARK_GROUP: Final = "flights-spark"
#: Spark starts a reader, or ends a batch, within this on a machine that is busy with other things.
PATIENCE_S: Final = 180.0
_FLIGHT_SCHEMA: Final = "carrier string, sched_dep_time int, dep_delay int"
#: Part of the command line of the process that reads for a streaming query.
_READER: Final = b"python_streaming_source_runner"
#: Spark's words for a process that did not start within 10 s, a limit that cannot be set.
_TOO_SLOW: Final = "Python worker failed to connect back"


class Query:
    """One query of the group, over its runs."""

    #: Of its latest run.
    _query: StreamingQuery
    _has_started = False

    def __init__(self, session: SparkSession, *, name: str, bootstrap: str, folder: Path, trigger: str) -> None:
        """Create a query.

        `folder`: takes its output and its checkpoint. `trigger`: the interval of its batches, as Spark writes it.
        """
        self.account = QueryAccount(name=name)
        self._rows = folder / "rows" / f"query={name}"
        self._trigger = trigger
        self._checkpoint = str(folder / "checkpoints" / name)
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": TOPIC,
            "kafka.group.id": SPARK_GROUP,
            "kafka.group.instance.id": name,
            "startingOffsets": "earliest",
            "columns": "value,partition,offset",
            "checkpointLocation": self._checkpoint,
        }
        self._records = session.readStream.format("kohort").options(**options)
        self._readers: set[int] = set()

    def start(self) -> None:
        """Start it, with the checkpoint of its run before; its reader is there when this returns."""
        from pyspark.sql import functions as f

        before = find_readers()
        flight = f.from_json(f.col("value").cast("string"), _FLIGHT_SCHEMA).alias("flight")
        self._query = (
            self._records.load()
            .select("partition", "offset", flight)
            .select("partition", "offset", "flight.*")
            .writeStream.queryName(self.account.name)
            .foreachBatch(self._write)
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=self._trigger)
            .start()
        )
        self._has_started = True
        self._wait(lambda: bool(find_readers() - before) or not self._query.isActive, "did not start")
        self._readers = find_readers() - before

    def _write(self, batch: DataFrame, number: int) -> None:
        batch.coalesce(1).write.mode("overwrite").parquet(f"{self._rows}/batch={number}")

    def _wait(self, is_reached: Callable[[], bool], otherwise: str) -> None:
        wait_until(is_reached, f"{self.account.name} {otherwise}", seconds=PATIENCE_S)

    def finished(self) -> int:
        """Return the number of the last batch that this run has finished, -1 before that."""
        progress = self._query.lastProgress
        if progress is None:
            return -1
        # Progress without records has the number of the batch to come.
        return progress.batchId if "addBatch" in progress.durationMs else progress.batchId - 1

    def is_between_triggers(self, *, behind: int) -> bool:
        """Whether a batch after number `behind` is finished, and Spark waits for the next trigger."""
        return self.finished() > behind and not self._query.status["isTriggerActive"]

    def stop(self) -> None:
        """Stop the query between two triggers, without leaving its group first."""
        self._query.stop()
        self.account.ends.append("stopped between two triggers")

    def kill_reader(self) -> None:
        """Kill the reader's process by SIGKILL; the query ends when it notices."""
        if not self._readers:
            raise KohortError(f"the process that reads for {self.account.name} was not found")
        for reader in self._readers:
            os.kill(reader, signal.SIGKILL)
        self._wait(lambda: not self._query.isActive, "did not notice its reader's end")
        self.account.ends.append("reader killed (SIGKILL)")
        self.account.in_doubt += [self.finished(), self.finished() + 1]

    def drain(self) -> None:
        """Let it finish its batch, leave the group, and stop."""
        drain_and_stop(self._query, timeout=PATIENCE_S)
        self.account.ends.append("drained")

    def check(self) -> None:
        """Raise if it has ended by itself; if its Python was too slow for Spark, start it again."""
        why = str(self._query.exception() or "") if self._has_started and not self._query.isActive else ""
        if why and _TOO_SLOW not in why:
            raise KohortError(f"query {self.account.name} has ended: {why.splitlines()[0]}")
        if why:
            self.start()


def find_readers() -> set[int]:
    """Find the processes below this one that read for streaming queries."""
    found: set[int] = set()
    rest = [os.getpid()]
    while rest:
        process = rest.pop()
        try:
            if _READER in Path(f"/proc/{process}/cmdline").read_bytes():
                found.add(process)
            for task in Path(f"/proc/{process}/task").iterdir():
                rest += map(int, (task / "children").read_text().split())
        except OSError:
            # It has ended meanwhile.
            continue
    return found


class CarrierHour(NamedTuple):
    """A cell of the result: how many flights departed, and their mean delay in minutes, or `None`."""

    carrier: str
    hour: int
    departures: int
    delay: float | None


def count_rows(session: SparkSession, folder: Path, account: SparkAccount) -> list[CarrierHour]:
    """Go through all that the queries wrote, fill in their account, and sum it up by carrier and hour.

    Args:
        folder: of Parquet, with a folder for each query and in it one for each of its batches.
    """
    from pyspark.sql import functions as f

    rows = session.read.parquet(str(folder)).persist()
    in_doubt = f.lit(False)
    for query in account.queries:
        in_doubt = in_doubt | ((f.col("query") == query.name) & f.col("batch").isin(query.in_doubt))
    records = rows.groupBy("partition", "offset").agg(
        (f.count("*") - 1).alias("again"), f.max(in_doubt).alias("excused")
    )
    doubled = f.sum(f.when(f.col("excused"), 0).otherwise(f.col("again")))
    ((account.counted, account.duplicates, account.doubled),) = records.agg(
        f.count("*"), f.coalesce(f.sum("again"), f.lit(0)), f.coalesce(doubled, f.lit(0))
    ).collect()
    by_query = rows.groupBy("query").agg(f.count("*"), f.count_distinct("batch"))
    counts = {name: (records, batches) for name, records, batches in by_query.collect()}
    for query in account.queries:
        query.records, query.batches = counts.get(query.name, (0, 0))
    hour = f.floor(f.col("sched_dep_time") / 100).cast("int").alias("hour")
    by_hour = rows.dropDuplicates(["partition", "offset"]).groupBy("carrier", hour)
    cells = by_hour.agg(f.count("dep_delay"), f.avg("dep_delay")).orderBy("carrier", "hour").collect()
    rows.unpersist()
    return [CarrierHour(*cell) for cell in cells]


def count_by_carrier(cells: list[CarrierHour]) -> list[tuple[str, int, float]]:
    """Return (carrier, departures, mean delay), most departures first; the mean is weighted by departures."""
    departures: Counter[str] = Counter()
    minutes: defaultdict[str, float] = defaultdict(float)
    for cell in cells:
        departures[cell.carrier] += cell.departures
        minutes[cell.carrier] += cell.departures * (cell.delay or 0.0)
    return [(carrier, count, minutes[carrier] / max(count, 1)) for carrier, count in departures.most_common()]


def draw(cells: list[CarrierHour], path: str) -> None:
    """Draw two maps, carrier by hour: the departures, and their delay."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    nan = float("nan")
    found = {(cell.carrier, cell.hour): (cell.departures, nan if cell.delay is None else cell.delay) for cell in cells}
    carriers = [carrier for carrier, _, _ in count_by_carrier(cells)]
    hours = range(min(cell.hour for cell in cells), max(cell.hour for cell in cells) + 1)
    figure, axes = plt.subplots(1, 2, figsize=(14, 6), constrained_layout=True)
    for at, title, colours, most in (
        (0, "departures", "viridis", None),
        # One flight that was hours late would leave no colours for all the others.
        (1, "mean departure delay, minutes (60 and above alike)", "magma", 60.0),
    ):
        values = [[found.get((carrier, hour), (nan, nan))[at] for hour in hours] for carrier in carriers]
        image = axes[at].imshow(values, aspect="auto", cmap=colours, vmax=most)
        axes[at].set_xticks(range(len(hours)), [str(hour) for hour in hours])
        axes[at].set_yticks(range(len(carriers)), carriers)
        axes[at].set_xlabel("scheduled hour")
        axes[at].set_title(title)
        figure.colorbar(image, ax=axes[at])
    figure.suptitle("Flights from New York City, 2013, by carrier and hour")
    figure.savefig(path, dpi=110)
    plt.close(figure)
