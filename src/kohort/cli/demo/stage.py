"""The run of the demo: broker, load, members that come and go, Spark's part, and the progress."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kohort import Admin, Broker
from kohort.cli.demo.account import Account, MemberAccount, Span, SparkAccount, check, check_spark
from kohort.cli.demo.flights import Load, find_flights
from kohort.cli.demo.place import PARTITIONS, TOPIC, take_place
from kohort.cli.demo.watch import Screen, lag_of, read_rebalances, read_shares, show_numbers, wait_until
from kohort.client.admin.results.groups import GroupDescription
from kohort.coordinator.settings import GroupSettings
from kohort.errors import KohortError

if TYPE_CHECKING:
    from rich.table import Table

GROUP: Final = "flights-readers"
FIRST_MEMBERS: Final = ("ada", "bob", "cyd")
KILLED: Final = "bob"
#: How much of the flights has come when the fourth member joins, and when one is killed; and what comes before Spark.
JOIN_AT: Final = 0.3
KILL_AT: Final = 0.55
BEFORE_SPARK: Final = 0.6
#: Flights come more slowly beside Spark, which starts queries and rewrites batches in the meantime.
SLOWER: Final = 2.0

SESSION_TIMEOUT_MS: Final = 3000
HEARTBEAT_INTERVAL_MS: Final = 300
BROKER_CONFIG: Final = {
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
}


class Stage:
    """One run; `run()` gives the account."""

    def __init__(self, output: Path, *, flights: int, seconds: float, without_spark: str | None, quiet: bool) -> None:
        """Create a run.

        `seconds`: the time to produce; `without_spark`: why there is no Spark; `quiet`: print nothing meanwhile.
        """
        self._output = output
        self._flights = flights
        self._seconds = seconds
        self._without_spark = without_spark
        self._screen = Screen(quiet=quiet)
        self._members: list[Member] = []
        self._phase = "waiting for the members"

    def run(self) -> Account:
        """Run the whole demo; errors of kohort become complaints in the account, which is still shown.

        Raises:
            PlaceRefusedError, FlightsMissingError: nothing was started.
        """
        began = time.monotonic()
        account = Account(killed=KILLED, without_spark=self._without_spark)
        flights = find_flights()
        data = take_place(self._output)
        self._screen.say(self._prologue(data))
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
        usual = GroupSettings()
        usual_s, usual_interval_s = (
            ms / 1000 for ms in (usual.group_consumer_session_timeout_ms, usual.group_consumer_heartbeat_interval_ms)
        )
        *names, last = FIRST_MEMBERS
        return (
            f"{self._flights:,} flights through a broker that keeps its data in {data}\n"
            f"{', '.join(names)} and {last} share {PARTITIONS} partitions; dee joins; {KILLED} is killed"
            + ("\n" if self._without_spark else "; then Spark\n")
            + f"sessions are {SESSION_TIMEOUT_MS / 1000:g} s, heartbeats {HEARTBEAT_INTERVAL_MS / 1000:g} s "
            f"({usual_s:g} and {usual_interval_s:g} by default): {KILLED} is missed soon"
            + (f"\n{self._without_spark}" if self._without_spark else "")
        )

    def _play(self, bootstrap: str, flights: Path, account: Account) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin, Load(bootstrap, flights, flights=self._flights) as load:
            admin.create_topic(TOPIC, PARTITIONS)
            self._run_group(bootstrap, load, admin, account)
            partitions = admin.describe_topics([TOPIC])[0].partitions
            check(account, {row.partition: row.end_offset for row in partitions})
            if not self._without_spark:
                from kohort.cli.demo.sparkscene import SparkScene

                account.spark = SparkAccount()
                seconds = (1 - BEFORE_SPARK) * self._seconds * SLOWER
                SparkScene(self._output, bootstrap, load, admin, self._screen, seconds=seconds).run(account.spark)
                check_spark(account, account.spark)

    def _run_group(self, bootstrap: str, load: Load, admin: Admin, account: Account) -> None:
        """Run three members, add a fourth, kill the second, and read the history before the others leave."""
        self._members = [Member(name, bootstrap) for name in FIRST_MEMBERS]

        def wait_for(names: tuple[str, ...], otherwise: str) -> None:
            wait_until(lambda: sorted(read_shares(admin, GROUP)) == sorted(names), otherwise)

        try:
            with self._screen.watching(bootstrap, GROUP, lambda group, lag: self._render(load, group, lag)):
                wait_for(FIRST_MEMBERS, "the members did not join")
                self._produce(bootstrap, load)
                self._phase = "reading the rest"
                wait_until(lambda: lag_of(admin, GROUP) == 0, "the group did not reach the end of the topic")
                staying = (member.account.name for member in self._members if member.account.name != KILLED)
                wait_for(tuple(staying), f"the group did not go on without {KILLED}")
                account.rebalances = read_rebalances(admin, GROUP)
                self._phase = "leaving"
                for member in self._members:
                    member.leave()
        finally:
            account.produced = load.sent
            account.members = [member.account for member in self._members]
        account.complaints += [
            f"member {row.name} {row.fate}" for row in account.members if row.fate.startswith(("failed", "did not"))
        ]

    def _produce(self, bootstrap: str, load: Load) -> None:
        """Produce at a steady rate over the given time, so that members join and are killed under load."""
        share = 1.0 if self._without_spark else BEFORE_SPARK
        self._phase = "producing"
        load.begin(share, seconds=share * self._seconds)
        load.wait_for(JOIN_AT * share)
        self._members.append(Member("dee", bootstrap))
        load.wait_for(KILL_AT * share)
        next(member for member in self._members if member.account.name == KILLED).kill()
        load.settle()

    def _render(self, load: Load, group: GroupDescription | None, lag: int | None) -> tuple[str, Table]:
        from rich.table import Table

        line = f"{self._phase}: {load.sent:,} of {self._flights:,} records"
        if lag is not None:
            line += f", lag {lag:,}"
        if group is not None:
            line += f", group {group.state}, epoch {group.group_epoch}"
        table = Table("MEMBER", "RECORDS", "OWNS", "STATE", box=None)
        for member in list(self._members):
            row = member.account
            partitions = [] if row.fate.startswith("killed") else row.owned
            table.add_row(row.name, f"{row.records:,}", show_numbers(partitions), row.fate)
        return line, table


class Member:
    """A member of the group, a process, and the thread that reads its output into its account."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.account = MemberAccount(name=name, fate="running")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo.member", bootstrap, GROUP, TOPIC, name],
            # Its end tells the member to leave, also when this process is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kill the process by SIGKILL: it neither leaves nor commits."""
        self.process.kill()
        self.account.fate = "killed (SIGKILL)"

    def leave(self) -> None:
        """Let the process commit and leave, and read the rest of its output."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.account.fate = "did not leave in time"
        self._reader.join(10.0)
        if self.account.fate == "running":
            self.account.fate = "left" if self.process.returncode == 0 else f"failed with {self.process.returncode}"

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A kill may cut the last line.
            if line.endswith("\n"):
                self._note(json.loads(line))

    def _note(self, row: dict[str, Any]) -> None:
        account = self.account
        if row["event"] == "owns":
            account.owned = row["partitions"]
        elif row["event"] == "processed":
            for partition, (first, last, count) in row["spans"].items():
                account.records += count
                account.spans.append(Span(int(partition), first, last, row["at"]))
        elif row["event"] == "committed":
            account.committed.update({int(partition): offset for partition, offset in row["offsets"].items()})
