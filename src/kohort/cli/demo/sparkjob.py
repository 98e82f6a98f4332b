"""The Spark part of the demo: a streaming query that is a member of a group, and its result as table and picture."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.spark.java import use_java, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHT_SCHEMA = "carrier string, sched_dep_time int, dep_delay int"

#: (carrier, hour, departures, mean delay in minutes or None)
CarrierHour = tuple[str, int, int, float | None]


def open_session() -> SparkSession:
    """A local session that says little; two threads, no web page."""
    use_java()
    use_this_python()
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.ERROR)
    return (
        SparkSession.builder.master("local[2]")
        .appName("kohort demo")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def aggregate(session: SparkSession, *, bootstrap: str, topic: str, group: str, checkpoint: Path) -> list[CarrierHour]:
    """Departures and mean delay by carrier and hour, from a streaming query that ends at the present end."""
    from pyspark.sql import functions as f

    shutil.rmtree(checkpoint, ignore_errors=True)
    records = (
        session.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.group.id", group)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 120_000)
        .option("columns", "value")
        .load()
    )
    flight = records.select(f.from_json(f.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")).select(
        "flight.*"
    )
    hour = f.floor(f.col("sched_dep_time") / 100).cast("int").alias("hour")
    by_hour = flight.groupBy("carrier", hour).agg(
        f.count("*").alias("departures"), f.sum("dep_delay"), f.count("dep_delay")
    )
    query = (
        by_hour.writeStream.format("memory")
        .queryName("departures")
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = session.sql("select * from departures order by carrier, hour").collect()
    return [(row[0], row[1], row[2], row[3] / row[4] if row[4] else None) for row in rows]


def by_carrier(cells: list[CarrierHour]) -> list[tuple[str, int, float]]:
    """(carrier, departures, mean delay), most departures first; the mean is weighted by departures."""
    totals: dict[str, list[float]] = {}
    for carrier, _, departures, delay in cells:
        total = totals.setdefault(carrier, [0, 0.0])
        total[0] += departures
        total[1] += departures * (delay or 0.0)
    rows = [(carrier, int(count), minutes / count) for carrier, (count, minutes) in totals.items()]
    return sorted(rows, key=lambda row: -row[1])


def draw(cells: list[CarrierHour], path: Path) -> None:
    """Two maps, carrier by hour: how many departures, and how late they were."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    carriers = [carrier for carrier, _, _ in by_carrier(cells)]
    hours = list(range(min(cell[1] for cell in cells), max(cell[1] for cell in cells) + 1))
    counts = [[float("nan")] * len(hours) for _ in carriers]
    delays = [[float("nan")] * len(hours) for _ in carriers]
    for carrier, hour, departures, delay in cells:
        row, column = carriers.index(carrier), hours.index(hour)
        counts[row][column] = departures
        delays[row][column] = float("nan") if delay is None else delay
    figure, axes = plt.subplots(1, 2, figsize=(14, 6), constrained_layout=True)
    for axis, values, title, colours in (
        (axes[0], counts, "departures", "viridis"),
        (axes[1], delays, "mean departure delay, minutes", "magma"),
    ):
        image = axis.imshow(values, aspect="auto", cmap=colours)
        axis.set_xticks(range(len(hours)), [str(hour) for hour in hours])
        axis.set_yticks(range(len(carriers)), carriers)
        axis.set_xlabel("scheduled hour")
        axis.set_title(title)
        figure.colorbar(image, ax=axis)
    figure.suptitle("Flights from New York City, 2013, by carrier and hour")
    figure.savefig(path, dpi=110)
    plt.close(figure)
