"""Tests of the job: its sums are right although its group rebalances, and its broker is killed, while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import job
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from kohort import Producer
from kohort.testing import Broker

pytestmark = pytest.mark.kohort(topics={"orders": 2})


def order(servers: str, **amounts: int) -> None:
    """Send an order of each customer, and wait until the broker has them."""
    with Producer(bootstrap_servers=servers) as producer:
        for sent in [producer.send("orders", key=name, value=str(amount)) for name, amount in amounts.items()]:
            sent.result(10)


@contextmanager
def running(spark: SparkSession, servers: str, group: str, path: Path, table: str) -> Iterator[StreamingQuery]:
    """Have the job run beside the test."""
    query = job.start(spark, servers, group, checkpoint=str(path), table=table)
    try:
        yield query
    finally:
        query.stop()


def wait_for(spark: SparkSession, table: str, sums: Mapping[str, int]) -> None:
    """Wait until the job has these sums; pytest's own time limit ends a wait in vain."""
    while {row.customer: row.amount for row in spark.table(table).collect()} != sums:
        threading.Event().wait(0.1)


def test_sums_are_right_although_the_group_rebalances(
    kohort_spark: SparkSession, kohort: Broker, kohort_group: str, tmp_path: Path
) -> None:
    with running(kohort_spark, kohort.bootstrap_servers, kohort_group, tmp_path, "rebalanced"):
        order(kohort.bootstrap_servers, ann=3, bob=4)
        wait_for(kohort_spark, "rebalanced", {"ann": 3, "bob": 4})
        kohort.group(kohort_group).rebalance()
        order(kohort.bootstrap_servers, ann=5)
        wait_for(kohort_spark, "rebalanced", {"ann": 8, "bob": 4})
    # The member of a query lives in a process of Spark's, and leaves a moment after the query has stopped.
    kohort.group(kohort_group).wait_for(members=0)


def test_sums_are_right_although_the_broker_is_killed(
    kohort_spark: SparkSession, kohort_process: Broker, tmp_path: Path
) -> None:
    servers = kohort_process.bootstrap_servers
    with running(kohort_spark, servers, "billing", tmp_path / "checkpoint", "killed") as query:
        order(servers, ann=3, bob=4)
        wait_for(kohort_spark, "killed", {"ann": 3, "bob": 4})
        kohort_process.kill()
        kohort_process.start()
        order(servers, ann=5)
        wait_for(kohort_spark, "killed", {"ann": 8, "bob": 4})
        assert query.exception() is None
