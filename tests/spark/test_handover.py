"""Two real queries that share a group: stopped between two triggers, killed, drained; each record is read once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kohort
from kohort.spark import drain_and_stop
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark
#: The group's rebalances are quick (conftest); everything else is Spark on a busy machine.
PATIENCE_S = 90.0


class Job:
    """A query that writes each batch to a file of its own, named by query and batch id: the last writing counts."""

    def __init__(self, spark: SparkSession, broker: kohort.Broker, folder: Path, name: str) -> None:
        self._spark, self._servers, self._folder, self.name = spark, broker.bootstrap_servers, folder, name
        self.query: StreamingQuery | None = None
        #: Process ids of the reader of the present run.
        self.readers: set[int] = set()

    def start(self, trigger: str) -> None:
        before = _readers()
        frame = (
            self._spark.readStream.format("kohort")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", "handover")
            .option("kafka.group.id", "handover-group")
            .option("startingOffsets", "earliest")
            .load()
        )
        folder, name = self._folder, self.name

        def write(batch: DataFrame, number: int) -> None:
            rows = [int(row.value) for row in batch.select("value").collect()]
            (folder / f"{name}-{number}.json").write_text(json.dumps(rows))

        self.query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
            .trigger(processingTime=trigger)
            .start()
        )
        until(lambda: bool(_readers() - before), what="the reader's process", seconds=PATIENCE_S)
        self.readers = _readers() - before

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()

    def read(self) -> list[int]:
        return [number for path in self._folder.glob(f"{self.name}-*.json") for number in json.loads(path.read_text())]


def _readers() -> set[int]:
    """Processes of streaming sources on this machine that this test may have started."""
    found = set()
    for place in Path("/proc").iterdir():
        try:
            is_reader = b"python_streaming_source_runner" in (place / "cmdline").read_bytes()
        except OSError:
            continue
        if place.name.isdigit() and is_reader:
            found.add(int(place.name))
    return found


@pytest.fixture
def jobs(spark: SparkSession, broker: kohort.Broker, tmp_path: Path) -> Iterator[tuple[Job, Job]]:
    """Two of them; what runs at the end is stopped."""
    both = Job(spark, broker, tmp_path, "one"), Job(spark, broker, tmp_path, "two")
    yield both
    for job in both:
        if job.query is not None:
            job.stop()


def test_each_record_is_read_once_whatever_becomes_of_a_query(
    jobs: tuple[Job, Job], admin: kohort.Admin, fill: Callable[..., None]
) -> None:
    """P4: files named (query, batch id); nothing missing, nothing doubled."""
    one, two = jobs

    def read() -> list[int]:
        return sorted(one.read() + two.read())

    def wait_for(count: int, what: str) -> None:
        until(lambda: len(read()) >= count, what=what, seconds=PATIENCE_S)
        assert read() == list(range(count))

    fill("handover", partitions=4, records=100)
    two.start("300 milliseconds")
    wait_for(100, "the first one reads all")
    # A trigger that does not come again before the stop: the batch is finished, and nobody has said so.
    one.start("10 minutes")
    until(
        lambda: sorted(len(each.assignment) for each in admin.describe_group("handover-group").members) == [2, 2],
        what="two partitions each",
        seconds=PATIENCE_S,
    )
    one.stop()
    one.start("1 second")
    fill.add("handover", partitions=4, first=100, records=100)  # type: ignore[attr-defined]
    wait_for(200, "both read on after a stop")

    for reader in one.readers:
        os.kill(reader, signal.SIGKILL)
    assert one.query is not None
    until(lambda: not one.query.isActive, what="the query notices", seconds=PATIENCE_S)  # type: ignore[union-attr]
    fill.add("handover", partitions=4, first=200, records=100)  # type: ignore[attr-defined]
    one.start("300 milliseconds")
    wait_for(300, "both read on after a kill")

    assert two.query is not None
    drain_and_stop(two.query, timeout=PATIENCE_S)
    fill.add("handover", partitions=4, first=300, records=100)  # type: ignore[attr-defined]
    wait_for(400, "the other one reads all after a drain")
    assert one.read()
    assert two.read()
