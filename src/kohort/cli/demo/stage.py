"""The run of the demo: broker, load, members that come and go, Spark; progress while it lasts."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kohort import Admin, Broker, Producer, TopicPartition
from kohort.cli.demo.account import Account, check, check_spark
from kohort.cli.demo.crew import GROUP, Member
from kohort.cli.demo.flights import find_flights, read_flights
from kohort.cli.demo.place import PICTURE_NAME, TOPIC, take_place
from kohort.cli.demo.rebalances import rebalances_of
from kohort.cli.demo.screen import Screen
from kohort.cli.demo.watch import GroupWatch
from kohort.cli.group import show_partitions
from kohort.coordinator.settings import GroupSettings
from kohort.errors import KohortError

if TYPE_CHECKING:
    from rich.table import Table

SPARK_GROUP: Final = "flights-spark"
PARTITIONS: Final = 12
FIRST_MEMBERS: Final = ("ada", "bob", "cyd")
KILLED: Final = "bob"

SESSION_TIMEOUT_MS: Final = 3000
HEARTBEAT_INTERVAL_MS: Final = 300
BROKER_CONFIG: Final = {
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
}
#: What these are where nobody sets them.
USUAL: Final = GroupSettings()


class Stage:
    """One run; `run()` gives the account."""

    def __init__(self, output: Path, *, flights: int, seconds: float, with_spark: bool, quiet: bool) -> None:
        """`flights`: how many of them; `seconds`: how long producing takes; `quiet`: say nothing while it runs."""
        self._output = output
        self._flights = flights
        self._seconds = seconds
        self._with_spark = with_spark
        self._quiet = quiet
        self._members: list[Member] = []
        self._produced = 0
        self._spark_began = 0.0
        self._phase = "waiting for the members"

    def run(self) -> Account:
        """The whole demo; errors of ours become complaints of the account, so that what was seen is still shown.

        Raises:
            PlaceRefusedError, FlightsMissingError: nothing was started.
        """
        began = time.monotonic()
        account = Account(killed=KILLED)
        flights = find_flights()
        data = take_place(self._output)
        self._say(self._prologue(data))
        with Broker(data_dir=data, process=True, config=BROKER_CONFIG) as broker:
            try:
                self._play(broker.bootstrap_servers, flights, account)
            except KohortError as why:
                account.complaints.append(str(why))
            finally:
                for member in self._members:
                    member.end()
        account.seconds = time.monotonic() - began
        return account

    def _prologue(self, data: Path) -> str:
        *names, last = FIRST_MEMBERS
        session_s, interval_s = SESSION_TIMEOUT_MS / 1000, HEARTBEAT_INTERVAL_MS / 1000
        usual_s = USUAL.group_consumer_session_timeout_ms / 1000
        usual_interval_s = USUAL.group_consumer_heartbeat_interval_ms / 1000
        return (
            f"{self._flights:,} flights through a broker that keeps its data in {data}\n"
            f"{', '.join(names)} and {last} share {PARTITIONS} partitions; dee joins; {KILLED} is killed"
            + ("; Spark reads all\n" if self._with_spark else "\n")
            + f"sessions are {session_s:g} s, heartbeats {interval_s:g} s ({usual_s:g} and {usual_interval_s:g} by "
            f"default): {KILLED} is missed soon"
        )

    def _play(self, bootstrap: str, flights: Path, account: Account) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
            self._run_group(bootstrap, flights, admin, account)
            ends = {row.partition: row.end_offset for row in admin.describe_topics([TOPIC])[0].partitions}
            check(account, ends)
            if self._with_spark:
                self._run_spark(bootstrap, admin, account)

    def _run_group(self, bootstrap: str, flights: Path, admin: Admin, account: Account) -> None:
        """Three members, a fourth joins, the second is killed; the history is read before the others leave."""
        self._members = [Member(name, bootstrap) for name in FIRST_MEMBERS]
        watch = GroupWatch(bootstrap, GROUP)
        try:
            with Screen(self._render, watch, quiet=self._quiet):
                self._wait_until(lambda: _is_at_rest(admin, *FIRST_MEMBERS), "the members did not join")
                self._produce(bootstrap, flights)
                self._phase = "reading the rest"
                self._wait_until(lambda: _has_read_all(admin), "the group did not reach the end of the topic")
                staying = [member.account.name for member in self._members if member.account.name != KILLED]
                self._wait_until(lambda: _is_at_rest(admin, *staying), f"the group did not go on without {KILLED}")
                self._read_history(admin, account)
                self._phase = "leaving"
                for member in self._members:
                    member.leave()
        finally:
            watch.close()
            account.produced = self._produced
            account.members = [member.account for member in self._members]
        account.complaints += [
            f"member {row.name} {row.fate}" for row in account.members if row.fate.startswith(("failed", "did not"))
        ]

    def _read_history(self, admin: Admin, account: Account) -> None:
        history = admin.group_history(GROUP)
        configs = {row.name: row.value or "" for row in admin.describe_group_configs(GROUP)}
        account.rebalances = rebalances_of(
            history.events,
            session_timeout_ms=int(configs["consumer.session.timeout.ms"]),
            default_session_timeout_ms=USUAL.group_consumer_session_timeout_ms,
        )
        if not history.is_complete:
            account.complaints.append("the broker has dropped the beginning of the group's history")

    def _produce(self, bootstrap: str, path: Path) -> None:
        """A steady rate over the given time, so that joining and killing happen under load."""
        rate = self._flights / self._seconds
        acts = [(0.3, self._join_fourth), (0.55, self._kill_second)]
        step = max(1, min(500, self._flights // 20))
        self._phase = "producing"
        with Producer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
            futures: list[Future[Any]] = []
            began = time.monotonic()
            for key, value in islice(read_flights(path), self._flights):
                futures.append(producer.send(TOPIC, value, key))
                if len(futures) % step == 0:
                    self._produced = len(futures)
                    while acts and self._produced >= acts[0][0] * self._flights:
                        acts.pop(0)[1](bootstrap)
                    ahead = began + len(futures) / rate - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
            self._phase = "waiting for the last acknowledgements"
            producer.flush(30.0)
            for future in futures:
                future.result(30.0)
            self._produced = len(futures)

    def _join_fourth(self, bootstrap: str) -> None:
        self._members.append(Member("dee", bootstrap))

    def _kill_second(self, _: str) -> None:
        next(member for member in self._members if member.account.name == KILLED).kill()

    def _wait_until(self, is_reached: Callable[[], bool], otherwise: str, *, seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_reached():
            if time.monotonic() > deadline:
                raise KohortError(f"{otherwise} within {seconds:g} s")
            time.sleep(0.1)

    def _run_spark(self, bootstrap: str, admin: Admin, account: Account) -> None:
        from kohort.cli.demo import sparkjob

        self._say("Spark: a streaming query reads the same topic as a member of another group")
        self._spark_began = time.monotonic()
        watch = GroupWatch(bootstrap, SPARK_GROUP)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="kohort-demo-") as scratch,
                Screen(self._render_spark, watch, quiet=self._quiet),
                sparkjob.open_session(Path(scratch)) as session,
            ):
                cells = sparkjob.aggregate(
                    session,
                    bootstrap=bootstrap,
                    topic=TOPIC,
                    group=SPARK_GROUP,
                    checkpoint=Path(scratch, "checkpoint"),
                )
        finally:
            watch.close()
        account.spark_seconds = time.monotonic() - self._spark_began
        account.spark_rows = sparkjob.by_carrier(cells)
        account.spark_counted = sum(cell.flights for cell in cells)
        account.spark_committed = sum(row.committed or 0 for row in admin.group_offsets(SPARK_GROUP))
        picture = self._output / PICTURE_NAME
        sparkjob.draw(cells, picture)
        account.picture = os.fspath(picture)
        check_spark(account)

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)

    def _render(self, watch: GroupWatch) -> tuple[str, Table]:
        from rich.table import Table

        line = f"{self._phase}: {self._produced:,} of {self._flights:,} records"
        if watch.lag is not None:
            line += f", lag {watch.lag:,}"
        if watch.group is not None:
            line += f", group {watch.group.state}, epoch {watch.group.group_epoch}"
        table = Table("MEMBER", "RECORDS", "OWNS", "STATE", box=None)
        for member in list(self._members):
            row = member.account
            partitions = [] if row.fate.startswith("killed") else row.owned
            table.add_row(row.name, f"{row.records:,}", _numbers(partitions), row.fate)
        return line, table

    def _render_spark(self, watch: GroupWatch) -> tuple[str, Table]:
        from rich.table import Table

        members = watch.group.members if watch.group else ()
        table = Table("QUERY", "OWNS", box=None, show_header=bool(members))
        for member in members:
            table.add_row(member.member_id, _numbers(row.partition for row in member.assignment))
        line = f"Spark, {time.monotonic() - self._spark_began:.0f} s: "
        if members:
            line += f"the query is a member of group {SPARK_GROUP}"
            if watch.lag is not None:
                line += f", lag {watch.lag:,}"
        else:
            line += "starting" if watch.group is None else "the query has left its group"
        return line, table


def _numbers(partitions: Iterable[int]) -> str:
    """`0-3,7`, or a dash for none."""
    return show_partitions(TopicPartition(TOPIC, partition) for partition in partitions).removeprefix(f"{TOPIC}:")


def _is_at_rest(admin: Admin, *names: str) -> bool:
    """Whether these are the group's members, and all of them have what they shall have."""
    if all(listing.group_id != GROUP for listing in admin.list_groups()):
        return False
    group = admin.describe_group(GROUP)
    return group.state == "Stable" and sorted(row.client_id for row in group.members) == sorted(names)


def _has_read_all(admin: Admin) -> bool:
    offsets = admin.group_offsets(GROUP)
    return len(offsets) == PARTITIONS and all(row.lag == 0 for row in offsets)
