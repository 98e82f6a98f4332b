"""The second half of the demo: two Spark queries in a group, stopped and killed under load.

Laws: whatever becomes of a query, each record is in the folder of a batch, and in two of them only where a batch was in
doubt because its reader was killed; Spark counts them.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort import Admin
from kohort.cli.demo import sparkjob
from kohort.cli.demo.account import QueryAccount, SparkAccount
from kohort.cli.demo.flights import Load
from kohort.cli.demo.place import PARTITIONS, PICTURE_NAME, REPORT_NAME, TOPIC
from kohort.cli.demo.watch import GroupWatch, Screen, read_rebalances, show_numbers, wait_until
from kohort.errors import KohortError
from kohort.spark.driver.stopping import drain_and_stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.table import Table


#: A query that is started again is back long before that.
SPARK_SESSION_TIMEOUT_MS: Final = 10_000
#: What the flights of the second half are parted into; some arrive in every act.
SHARES: Final = (0.7, 0.8, 0.9, 1.0)
NAMES: Final = ("eve", "fay")
HALF: Final = PARTITIONS // 2


class SparkScene:
    """One run of it; `run()` fills in the account."""

    def __init__(self, output: Path, bootstrap: str, load: Load, admin: Admin, *, quiet: bool, seconds: float) -> None:
        """Create the scene.

        `seconds`: the time that the remaining flights take.
        """
        self._output = output
        self._bootstrap = bootstrap
        self._load = load
        self._admin = admin
        self._quiet = quiet
        self._seconds = seconds
        self._began = time.monotonic()
        self._phase = "starting Spark"
        self._queries: list[Query] = []

    def run(self, account: SparkAccount) -> None:
        """Run all acts, then the count, the picture and the page.

        Raises:
            KohortError: an act did not come to its end.
        """
        self._say(f"\nSpark: {' and '.join(NAMES)}, two streaming queries, share a group while more flights arrive")
        self._admin.alter_group_configs(SPARK_GROUP, {"consumer.session.timeout.ms": SPARK_SESSION_TIMEOUT_MS})
        watch = GroupWatch(self._bootstrap, SPARK_GROUP)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="kohort-demo-") as scratch,
                Screen(self._render, watch, quiet=self._quiet),
                sparkjob.open_session(Path(scratch)) as session,
            ):
                self._play(session, Path(scratch), account)
                self._phase = "Spark counts what it has read"
                self._count(session, Path(scratch, "rows"), account)
                self._phase = "Spark makes the report of both groups"
                self._report(session, Path(scratch), account)
        finally:
            watch.close()
        account.seconds = time.monotonic() - self._began

    def _play(self, session: SparkSession, folder: Path, account: SparkAccount) -> None:
        from kohort.spark import QueryListener

        session.streams.addListener(QueryListener())
        # One looks seldom, so that it can be stopped long before its next look.
        self._queries = [
            Query(session, name=name, bootstrap=self._bootstrap, folder=folder, trigger=trigger)
            for name, trigger in zip(NAMES, ("4 seconds", "1 second"), strict=True)
        ]
        account.queries = [query.account for query in self._queries]
        self._join(*self._queries)
        self._stop(*self._queries)
        self._kill(self._queries[1])
        self._phase = "reading the rest"
        self._come(3)
        account.produced = self._load.settle()
        self._wait(lambda: self._lag() == 0, "the queries did not reach the end of the topic")
        for query in self._queries:
            query.drain()
        account.rebalances = read_rebalances(self._admin, SPARK_GROUP)
        self._say("  eve and fay are drained: nothing is in doubt, and the group is empty")

    def _join(self, eve: Query, fay: Query) -> None:
        self._phase = "the queries join"
        eve.start()
        self._wait(lambda: self._is_shared(eve=PARTITIONS) and eve.finished() >= 0, "eve did not read")
        self._say(f"  eve starts, and reads all {PARTITIONS} partitions from their beginning")
        self._come(0)
        fay.start()
        self._wait(lambda: self._is_halved() and fay.finished() >= 0, "fay got no partitions")
        self._say(f"  fay starts, and goes on with {HALF} of them where eve has ended")

    def _stop(self, eve: Query, fay: Query) -> None:
        self._phase = "a stop"
        last = eve.finished()
        self._come(1)
        self._wait(lambda: eve.is_between_triggers(behind=last), "eve did not finish a batch")
        eve.stop()
        took_s = self._wait(lambda: self._is_shared(fay=PARTITIONS), "fay did not take over from eve")
        self._say(f"  eve is stopped between two triggers: fay has all {PARTITIONS} after {took_s:.1f} s")
        eve.start()
        self._wait(self._is_halved, "eve did not get its partitions back")
        self._say(f"  eve starts again from its checkpoint, and has {HALF} of the {PARTITIONS} again")

    def _kill(self, fay: Query) -> None:
        self._phase = "a kill"
        self._come(2)
        fay.kill_reader()
        self._say(
            f"  fay's reader is killed (SIGKILL), and the query ends: its partitions wait for it, "
            f"{SPARK_SESSION_TIMEOUT_MS / 1000:g} s at the most"
        )
        began = time.monotonic()
        fay.start()
        self._wait(lambda: self._is_halved() and fay.finished() >= 0, "fay did not come back")
        back_s = time.monotonic() - began
        self._say(f"  fay starts again, repeats the batch that was in doubt, and is back after {back_s:.1f} s")

    def _wait(self, is_reached: Callable[[], bool], otherwise: str) -> float:
        """Wait and return the seconds; a query that has ended by itself ends the wait."""

        def look() -> bool:
            for query in self._queries:
                query.check()
            return is_reached()

        return wait_until(look, otherwise, seconds=PATIENCE_S)

    def _is_shared(self, **shares: int) -> bool:
        """Whether the group is at rest, and each query has so many partitions."""
        return {name: held for name, held in self._held().items() if held} == shares

    def _is_halved(self) -> bool:
        return self._is_shared(eve=HALF, fay=HALF)

    def _come(self, act: int) -> None:
        """Let the flights of that act arrive, those of the act before being there."""
        self._load.begin(SHARES[act], seconds=self._seconds / len(SHARES))

    def _held(self) -> Mapping[str, int]:
        """Count each query's partitions while the group is at rest; else nothing."""
        if all(listing.group_id != SPARK_GROUP for listing in self._admin.list_groups()):
            return {}
        group = self._admin.describe_group(SPARK_GROUP)
        if group.state != "Stable":
            return {}
        return {member.instance_id or member.member_id: len(member.assignment) for member in group.members}

    def _lag(self) -> int:
        offsets = self._admin.group_offsets(SPARK_GROUP)
        return sum(row.end_offset if row.lag is None else row.lag for row in offsets)

    def _count(self, session: SparkSession, rows: Path, account: SparkAccount) -> None:
        cells = sparkjob.count_rows(session, rows, account)
        account.rows = sparkjob.by_carrier(cells)
        account.committed = sum(row.committed or 0 for row in self._admin.group_offsets(SPARK_GROUP))
        picture = self._output / PICTURE_NAME
        sparkjob.draw(cells, picture)
        account.picture = os.fspath(picture)

    def _report(self, session: SparkSession, folder: Path, account: SparkAccount) -> None:
        from kohort.cli.report.aggregates import aggregate, tables_of
        from kohort.cli.report.gather import gather_groups
        from kohort.cli.report.page import write_page

        everything = argparse.Namespace(group=None, bootstrap=self._bootstrap, no_lag=False)
        gathered = gather_groups(everything, folder)
        page = self._output / REPORT_NAME
        write_page(aggregate(tables_of(session, gathered, since_ms=None), gathered), page)
        account.report = os.fspath(page)

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)

    def _render(self, watch: GroupWatch) -> tuple[str, Table]:
        from rich.table import Table

        line = f"{self._phase}, {time.monotonic() - self._began:.0f} s: "
        line += f"{self._load.sent:,} of {self._load.flights:,} flights"
        if watch.lag is not None:
            line += f", lag {watch.lag:,}"
        members = sorted(watch.group.members, key=lambda row: row.instance_id or "") if watch.group else []
        table = Table("QUERY", "OWNS", box=None, show_header=bool(members))
        for member in members:
            name = member.instance_id or member.member_id
            numbers = show_numbers(row.partition for row in member.assignment)
            line += f", {name} {numbers}"
            table.add_row(name, numbers)
        return line, table


# The demo's streaming queries, which write each batch to a folder that a repeated one replaces.

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
