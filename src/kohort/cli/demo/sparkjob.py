"""Spark for the demo: a session, and the count of the queries' output as table and picture."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kohort.cli.demo.account import SparkAccount
from kohort.errors import KohortError
from kohort.spark.driver.java import use_java, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Errors are shown, nothing else; how a query has ended is asked of the query. Where the shell's own logger has the
#: root's level, Spark does not say what that is.
_QUIET_LOG = """status = error
rootLogger.level = error
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


class CarrierHour(NamedTuple):
    """A cell of the result; `flights` includes cancelled ones, `delay`: mean minutes or `None`."""

    carrier: str
    hour: int
    flights: int
    departures: int
    delay: float | None


class SparkFailedError(KohortError):
    """A failure of Spark's; its text is the first lines of the reason, without Java's hundreds."""

    def __str__(self) -> str:
        lines = [line.lstrip(": ").rstrip() for line in str(self.args[0]).splitlines()]
        reasons = [line for line in lines if line and not line.startswith(("at ", "An error occurred while calling"))]
        return f"Spark failed: {' '.join(reasons[:1]) or 'it gave no reason'}"


@contextmanager
def open_session(folder: Path, *, name: str = "kohort demo") -> Iterator[SparkSession]:
    """Open a quiet local session with two threads and no web page; `folder` takes its files."""
    use_java(quiet_in=folder)
    # The shell may be set up for another Spark: the demo runs the one beside it, on its own Python.
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        os.environ.pop(variable, None)
    use_this_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings = folder / "log4j2.properties"
    settings.write_text(_QUIET_LOG)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The scene that kills a reader reports it.
    logging.getLogger("kohort.spark.driver.listening").setLevel(logging.CRITICAL)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={settings.resolve().as_uri()}")
    )
    try:
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
    except (PySparkException, Py4JError) as why:
        raise SparkFailedError(str(why)) from why


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
    again = f.sum("again")
    totals = records.agg(
        f.count("*"), again, f.coalesce(f.sum(f.when(~f.col("excused"), f.col("again"))), f.lit(0))
    ).first()
    assert totals is not None
    account.counted, account.duplicates, account.doubled = totals
    by_query = rows.groupBy("query").agg(f.count("*"), f.count_distinct("batch"))
    counts = {name: (records, batches) for name, records, batches in by_query.collect()}
    for query in account.queries:
        query.records, query.batches = counts.get(query.name, (0, 0))
    hour = f.floor(f.col("sched_dep_time") / 100).cast("int").alias("hour")
    once = rows.dropDuplicates(["partition", "offset"])
    by_hour = once.groupBy("carrier", hour).agg(f.count("*"), f.count("dep_delay"), f.avg("dep_delay"))
    cells = [CarrierHour(*row) for row in by_hour.orderBy("carrier", "hour").collect()]
    rows.unpersist()
    return cells


def by_carrier(cells: list[CarrierHour]) -> list[tuple[str, int, float]]:
    """Return (carrier, departures, mean delay), most departures first.

    The mean is weighted by departures.
    """
    totals: dict[str, list[float]] = {}
    for cell in cells:
        total = totals.setdefault(cell.carrier, [0, 0.0])
        total[0] += cell.departures
        total[1] += cell.departures * (cell.delay or 0.0)
    rows = [(carrier, int(count), minutes / max(count, 1)) for carrier, (count, minutes) in totals.items()]
    return sorted(rows, key=lambda row: -row[1])


def draw(cells: list[CarrierHour], path: Path) -> None:
    """Draw two maps, carrier by hour: the departures, and their delay."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    carriers = [carrier for carrier, _, _ in by_carrier(cells)]
    hours = list(range(min(cell.hour for cell in cells), max(cell.hour for cell in cells) + 1))
    counts = [[float("nan")] * len(hours) for _ in carriers]
    delays = [[float("nan")] * len(hours) for _ in carriers]
    for cell in cells:
        row, column = carriers.index(cell.carrier), hours.index(cell.hour)
        counts[row][column] = cell.departures
        delays[row][column] = float("nan") if cell.delay is None else cell.delay
    figure, axes = plt.subplots(1, 2, figsize=(14, 6), constrained_layout=True)
    for axis, values, title, colours, most in (
        (axes[0], counts, "departures", "viridis", None),
        # One flight that was hours late would leave no colours for all the others.
        (axes[1], delays, "mean departure delay, minutes (60 and above alike)", "magma", 60.0),
    ):
        image = axis.imshow(values, aspect="auto", cmap=colours, vmax=most)
        axis.set_xticks(range(len(hours)), [str(hour) for hour in hours])
        axis.set_yticks(range(len(carriers)), carriers)
        axis.set_xlabel("scheduled hour")
        axis.set_title(title)
        figure.colorbar(image, ax=axis)
    figure.suptitle("Flights from New York City, 2013, by carrier and hour")
    figure.savefig(path, dpi=110)
    plt.close(figure)
