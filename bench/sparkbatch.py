"""Spark reads 10 M records of 100 B, `local[2]`: a batch of seven columns and a stream into `noop`, a batch of one; and
writes (`sparkwrite.py`).

Peer: Spark's own source and sink `spark-sql-kafka-0-10`, same broker, both in one session.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from report import Row, Table, alternate, compare, warmed
from servers import KohortServer, apache_server
from sparkwrite import writing_rates
from support.spark_kafka import JARS, SparkKafkaUnavailableError, fetch_jars
from topics import fill

RECORDS = 10_000_000
TOPIC = "sparkbatch"
#: Spark's own source is the newest whose jars go together here; it reads by the client that it was built with.
PEER = " with ".join(":".join(JARS[number].split(":")[1:]) for number in (0, 3))
SETTINGS = "local[2], spark.driver.memory=3g"


def rate(job: Job, session: Any, source: str, bootstrap: str) -> float:
    """Records per second of one query."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
    began = time.perf_counter()
    job(session, source, options)
    return RECORDS / (time.perf_counter() - began)


def batch(session: Any, source: str, options: dict[str, str]) -> None:
    session.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()


def one_column(session: Any, source: str, options: dict[str, str]) -> None:
    # Spark's own source makes all of them, and has no option for it.
    columns = {"columns": "value"} if source == "kohort" else {}
    frame = session.read.format(source).options(**options, **columns).load()
    assert frame.selectExpr("sum(length(value))").collect()[0][0] == 100 * RECORDS


def stream(session: Any, source: str, options: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = session.readStream.format(source).options(**options, maxOffsetsPerTrigger="1000000").load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


Job = Callable[[Any, str, dict[str, str]], None]
#: What is said of each, and what is aimed at.
JOBS: dict[str, tuple[Job, str]] = {
    "batch": (batch, ">= 1.5x"),
    "batch, sum(length(value))": (one_column, ">= 2x"),
    "stream, 1 M a batch": (stream, "report"),
}


def measure(runs: int) -> list[Table]:
    from pyspark.sql import SparkSession

    from kohort.spark.java import use_java, use_this_python

    use_java()
    use_this_python()
    jars, left_out = "", []
    try:
        jars = ",".join(map(str, fetch_jars()))
    except SparkKafkaUnavailableError as why:
        left_out = [f"left out: {why}"]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    session = builder.config("spark.jars", jars).getOrCreate()
    peer = apache_server()
    rows: list[Row] = []
    for server in (KohortServer(), *(() if isinstance(peer, str) else (peer,))):
        with server as running:
            fill(running, TOPIC, partitions=4, records=RECORDS, value=b"x" * 100, key=b"k" * 8)
            address = running.bootstrap_servers
            measured = []
            for job, (run, reach) in JOBS.items():
                ours, peers = alternate(
                    runs,
                    partial(rate, run, session, "kohort", address),
                    None if left_out else partial(rate, run, session, "kafka", address),
                )
                measured.append((f"{job}, from {running.name}", reach, ours, peers))
            measured += [
                (f"{what}, to {running.name}", ">= 1x", ours, peers)
                for what, ours, peers in writing_rates(session, running, runs, has_peer=not left_out)
            ]
            rows += [
                compare(
                    what,
                    ours,
                    peers,
                    unit="rows/s",
                    reach=reach,
                    peer_name=PEER,
                    how=warmed(runs),
                    settings=SETTINGS,
                )
                for what, reach, ours, peers in measured
            ]
    session.stop()
    return [Table("sparkbatch", "Spark batch", rows, left_out)]
