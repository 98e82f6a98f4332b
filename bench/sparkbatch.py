"""Spark batch read of 10 M records of 100 B, seven columns, into `noop`, and writing (`sparkwrite.py`); `local[2]`.

Peer: Spark's own source and sink `spark-sql-kafka-0-10`, same broker, both in one session.
"""

from __future__ import annotations

import time
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


def rate(session: Any, source: str, bootstrap: str) -> float:
    """Records per second of one batch query."""
    frame = (
        session.read.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return RECORDS / (time.perf_counter() - began)


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
            ours, peers = alternate(
                runs,
                lambda a=address: rate(session, "kohort", a),
                None if left_out else lambda a=address: rate(session, "kafka", a),
            )
            measured = [(f"batch, from {running.name}", ">= 1.5x", ours, peers)]
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
