"""The demo's streaming queries, which write each batch to a folder that a repeated one replaces."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.cli.demo.account import QueryAccount
from kohort.cli.demo.place import TOPIC
from kohort.cli.demo.watch import wait_until
from kohort.errors import KohortError
from kohort.spark.stopping import drain_and_stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPARK_GROUP = "flights-spark"
FLIGHT_SCHEMA = "carrier string, sched_dep_time int, dep_delay int"
#: Spark starts a reader, or ends a batch, within this on a machine that is busy with other things.
PATIENCE_S = 180.0
#: Part of the command line of the process that reads for a streaming query.
_READER = b"python_streaming_source_runner"
#: Spark's words for a process that did not start within 10 s, a limit that cannot be set.
_TOO_SLOW = "Python worker failed to connect back"


class Query:
    """One query of the group, over its runs."""

    def __init__(self, session: SparkSession, *, name: str, bootstrap: str, folder: Path, trigger: str) -> None:
        """Create a query.

        `folder`: takes its output and its checkpoint. `trigger`: the interval of its batches, as Spark writes it.
        """
        self.account = QueryAccount(name=name)
        self._session = session
        self._bootstrap = bootstrap
        self._rows = folder / "rows" / f"query={name}"
        self._checkpoint = folder / "checkpoints" / name
        self._trigger = trigger
        self._query: StreamingQuery | None = None
        self._readers: set[int] = set()

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self._query is not None and bool(self._query.isActive)

    def start(self) -> None:
        """Start it, with the checkpoint of its run before; its reader is there when this returns."""
        from pyspark.sql import functions as f

        before = find_readers()
        records = (
            self._session.readStream.format("kohort")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", TOPIC)
            .option("kafka.group.id", SPARK_GROUP)
            .option("kafka.group.instance.id", self.account.name)
            .option("startingOffsets", "earliest")
            .option("columns", "value,partition,offset")
            .option("checkpointLocation", str(self._checkpoint))
            .load()
        )
        flight = f.from_json(f.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
        self._query = (
            records.select("partition", "offset", flight)
            .select("partition", "offset", "flight.*")
            .writeStream.queryName(self.account.name)
            .foreachBatch(self._write)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=self._trigger)
            .start()
        )
        wait_until(
            lambda: bool(find_readers() - before) or not self.is_active,
            f"{self.account.name} did not start",
            seconds=PATIENCE_S,
        )
        self._readers = find_readers() - before

    def _write(self, batch: DataFrame, number: int) -> None:
        batch.coalesce(1).write.mode("overwrite").parquet(f"{self._rows}/batch={number}")

    def finished(self) -> int:
        """Return the number of the last batch that this run has finished, -1 before that."""
        progress = None if self._query is None else self._query.lastProgress
        if progress is None:
            return -1
        # Progress without records has the number of the batch to come.
        return progress.batchId if "addBatch" in progress.durationMs else progress.batchId - 1

    def is_between_triggers(self, *, behind: int) -> bool:
        """Whether a batch after number `behind` is finished, and Spark waits for the next trigger."""
        assert self._query is not None
        return self.finished() > behind and not self._query.status["isTriggerActive"]

    def stop(self) -> None:
        """Stop the query between two triggers, without leaving its group first."""
        assert self._query is not None
        self._query.stop()
        self.account.ends.append("stopped between two triggers")

    def kill_reader(self) -> None:
        """Kill the reader's process by SIGKILL; the query ends when it notices."""
        if not self._readers:
            raise KohortError(f"the process that reads for {self.account.name} was not found")
        for reader in self._readers:
            os.kill(reader, signal.SIGKILL)
        wait_until(
            lambda: not self.is_active, f"{self.account.name} did not notice its reader's end", seconds=PATIENCE_S
        )
        self.account.ends.append("reader killed (SIGKILL)")
        last = self.finished()
        self.account.in_doubt += [last, last + 1]

    def drain(self) -> None:
        """Let it finish its batch, leave the group, and stop."""
        assert self._query is not None
        drain_and_stop(self._query, timeout=PATIENCE_S)
        self.account.ends.append("drained")

    def check(self) -> None:
        """Raise if it has ended by itself; if its Python was too slow for Spark, start it again."""
        why = None if self._query is None or self.is_active else self._query.exception()
        if why is None:
            return
        if _TOO_SLOW not in str(why):
            raise KohortError(f"query {self.account.name} has ended: {str(why).splitlines()[0]}")
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
