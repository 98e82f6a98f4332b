"""The second half of the demo: two Spark queries in a group, stopped and killed under load.

Laws: whatever becomes of a query, each record is in the folder of a batch, and in two of them only where a batch was in
doubt because its reader was killed; Spark counts them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort import Admin
from kohort.cli.demo.account import SparkAccount
from kohort.cli.demo.flights import Load
from kohort.cli.demo.place import PARTITIONS, PICTURE_NAME, REPORT_NAME
from kohort.cli.demo.sparkquery import PATIENCE_S, SPARK_GROUP, Query, count_by_carrier, count_rows, draw
from kohort.cli.demo.watch import Screen, lag_of, read_rebalances, read_shares, show_numbers, wait_until
from kohort.client.admin.results.groups import GroupDescription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

#: A query that is started again is back long before that.
SPARK_SESSION_TIMEOUT_MS: Final = 10_000
#: What the flights of the second half are parted into; some arrive in every act.
SHARES: Final = (0.7, 0.8, 0.9, 1.0)
NAMES: Final = ("eve", "fay")
HALF: Final = PARTITIONS // 2


class SparkScene:
    """One run of it; `run()` fills in the account."""

    def __init__(
        self, output: Path, bootstrap: str, load: Load, admin: Admin, screen: Screen, *, seconds: float
    ) -> None:
        """Create the scene.

        `seconds`: the time that the remaining flights take.
        """
        self._output = output
        self._bootstrap = bootstrap
        self._load = load
        self._admin = admin
        self._screen = screen
        self._seconds = seconds
        self._began = time.monotonic()
        self._phase = "starting Spark"
        self._queries: list[Query] = []

    def run(self, account: SparkAccount) -> None:
        """Run all acts, then the count, the picture and the page.

        Raises:
            KohortError: an act did not come to its end.
        """
        from kohort.cli.report.session import open_session

        self._screen.say(
            f"\nSpark: {' and '.join(NAMES)}, two streaming queries, share a group while more flights arrive"
        )
        self._admin.alter_group_configs(SPARK_GROUP, {"consumer.session.timeout.ms": SPARK_SESSION_TIMEOUT_MS})
        with (
            tempfile.TemporaryDirectory(prefix="kohort-demo-") as scratch,
            self._screen.watching(self._bootstrap, SPARK_GROUP, self._render),
            open_session(Path(scratch), name="kohort demo") as session,
        ):
            self._play(session, Path(scratch), account)
            self._phase = "Spark counts what it has read"
            cells = count_rows(session, Path(scratch, "rows"), account)
            account.rows = count_by_carrier(cells)
            account.committed = sum(row.committed or 0 for row in self._admin.group_offsets(SPARK_GROUP))
            account.picture = os.fspath(self._output / PICTURE_NAME)
            draw(cells, account.picture)
            self._phase = "Spark makes the report of both groups"
            self._report(session, Path(scratch), account)
        account.seconds = time.monotonic() - self._began

    def _play(self, session: SparkSession, folder: Path, account: SparkAccount) -> None:
        from kohort.spark import QueryListener

        session.streams.addListener(QueryListener())
        # One looks seldom, so that it can be stopped long before its next look.
        eve, fay = self._queries = [
            Query(session, name=name, bootstrap=self._bootstrap, folder=folder, trigger=trigger)
            for name, trigger in zip(NAMES, ("4 seconds", "1 second"), strict=True)
        ]
        account.queries = [query.account for query in self._queries]
        self._join(eve, fay)
        self._stop(eve)
        self._kill(fay)
        self._phase = "reading the rest"
        self._come(3)
        account.produced = self._load.settle()
        self._wait(lambda: lag_of(self._admin, SPARK_GROUP) == 0, "the queries did not reach the end of the topic")
        for query in self._queries:
            query.drain()
        account.rebalances = read_rebalances(self._admin, SPARK_GROUP)
        self._screen.say("  eve and fay are drained: nothing is in doubt, and the group is empty")

    def _join(self, eve: Query, fay: Query) -> None:
        self._phase = "the queries join"
        eve.start()
        self._wait(lambda: self._is_shared(eve=PARTITIONS) and eve.finished() >= 0, "eve did not read")
        self._screen.say(f"  eve starts, and reads all {PARTITIONS} partitions from their beginning")
        self._come(0)
        fay.start()
        self._wait(lambda: self._is_halved() and fay.finished() >= 0, "fay got no partitions")
        self._screen.say(f"  fay starts, and goes on with {HALF} of them where eve has ended")

    def _stop(self, eve: Query) -> None:
        self._phase = "a stop"
        last = eve.finished()
        self._come(1)
        self._wait(lambda: eve.is_between_triggers(behind=last), "eve did not finish a batch")
        eve.stop()
        took_s = self._wait(lambda: self._is_shared(fay=PARTITIONS), "fay did not take over from eve")
        self._screen.say(f"  eve is stopped between two triggers: fay has all {PARTITIONS} after {took_s:.1f} s")
        eve.start()
        self._wait(self._is_halved, "eve did not get its partitions back")
        self._screen.say(f"  eve starts again from its checkpoint, and has {HALF} of the {PARTITIONS} again")

    def _kill(self, fay: Query) -> None:
        self._phase = "a kill"
        self._come(2)
        fay.kill_reader()
        self._screen.say(
            f"  fay's reader is killed (SIGKILL), and the query ends: its partitions wait for it, "
            f"{SPARK_SESSION_TIMEOUT_MS / 1000:g} s at the most"
        )
        began = time.monotonic()
        fay.start()
        self._wait(lambda: self._is_halved() and fay.finished() >= 0, "fay did not come back")
        back_s = time.monotonic() - began
        self._screen.say(f"  fay starts again, repeats the batch that was in doubt, and is back after {back_s:.1f} s")

    def _wait(self, is_reached: Callable[[], bool], otherwise: str) -> float:
        """Wait and return the seconds; a query that has ended by itself ends the wait."""

        def look() -> bool:
            for query in self._queries:
                query.check()
            return is_reached()

        return wait_until(look, otherwise, seconds=PATIENCE_S)

    def _is_shared(self, **shares: int) -> bool:
        """Whether the group is at rest, and each query has so many partitions."""
        return {name: held for name, held in read_shares(self._admin, SPARK_GROUP).items() if held} == shares

    def _is_halved(self) -> bool:
        return self._is_shared(eve=HALF, fay=HALF)

    def _come(self, act: int) -> None:
        """Let the flights of that act arrive, those of the act before being there."""
        self._load.begin(SHARES[act], seconds=self._seconds / len(SHARES))

    def _report(self, session: SparkSession, folder: Path, account: SparkAccount) -> None:
        from kohort.cli.report.aggregates import aggregate, tables_of
        from kohort.cli.report.gather import gather_groups
        from kohort.cli.report.page import write_page

        everything = argparse.Namespace(group=None, bootstrap=self._bootstrap, no_lag=False)
        gathered = gather_groups(everything, folder)
        page = self._output / REPORT_NAME
        write_page(aggregate(tables_of(session, gathered, since_ms=None), gathered), page)
        account.report = os.fspath(page)

    def _render(self, group: GroupDescription | None, lag: int | None) -> tuple[str, Table]:
        from rich.table import Table

        line = f"{self._phase}, {time.monotonic() - self._began:.0f} s: "
        line += f"{self._load.sent:,} of {self._load.flights:,} flights"
        if lag is not None:
            line += f", lag {lag:,}"
        members = sorted(group.members, key=lambda row: row.instance_id or "") if group else []
        table = Table("QUERY", "OWNS", box=None, show_header=bool(members))
        for member in members:
            name = member.instance_id or member.member_id
            numbers = show_numbers(row.partition for row in member.assignment)
            line += f", {name} {numbers}"
            table.add_row(name, numbers)
        return line, table
