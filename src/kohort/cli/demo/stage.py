"""The run of the demo: broker, load, members that come and go, Spark; progress while it lasts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort import Admin, Broker, Producer, TopicPartition
from kohort.cli.demo.account import Account, MemberAccount, check, check_spark
from kohort.cli.demo.flights import find_flights, read_flights
from kohort.cli.demo.watch import GroupWatch
from kohort.cli.group import show_partitions
from kohort.errors import KohortError

if TYPE_CHECKING:
    from rich.table import Table

TOPIC = "flights"
GROUP = "flights-readers"
SPARK_GROUP = "flights-spark"
PARTITIONS = 12
FLIGHTS = 336_776

BROKER_CONFIG = {
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
}


class Member:
    """A member process, and the thread that reads what it writes down."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.account = MemberAccount(name=name, fate="running")
        arguments = ["--bootstrap", bootstrap, "--group", GROUP, "--topic", TOPIC, "--name", name]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo.member", *arguments], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """SIGKILL: no leave, no last commit."""
        self.process.kill()
        self.account.fate = "killed (SIGKILL)"

    def leave(self) -> None:
        """SIGTERM: it commits and leaves; then everything that it wrote has been read."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.account.fate = "did not leave in time"
        self._reader.join(10.0)
        if self.account.fate == "running":
            self.account.fate = "left" if self.process.returncode == 0 else f"failed with {self.process.returncode}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._note(json.loads(line))

    def _note(self, row: dict[str, Any]) -> None:
        account = self.account
        if row["event"] == "started":
            account.member_id = row["member"]
        elif row["event"] == "assigned":
            account.owned = sorted({*account.owned, *row["partitions"]})
        elif row["event"] in ("revoked", "lost"):
            account.owned = [partition for partition in account.owned if partition not in row["partitions"]]
        elif row["event"] == "processed":
            for partition, (first, last, count) in row["spans"].items():
                account.records += count
                account.spans.append((int(partition), first, last))


class Stage:
    """One run; `run()` gives the account."""

    def __init__(self, output: Path, *, seconds: float, with_spark: bool, quiet: bool) -> None:
        self._output = output
        self._seconds = seconds
        self._with_spark = with_spark
        self._quiet = quiet
        self._members: list[Member] = []
        self._produced = 0
        self._phase = "starting"

    def run(self) -> Account:
        """The whole demo; errors of ours become complaints of the account, so that what was seen is still shown."""
        began = time.monotonic()
        account = Account()
        flights = find_flights()
        data = self._output / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        with ExitStack() as stack:
            broker = stack.enter_context(Broker(data_dir=str(data), process=True, config=BROKER_CONFIG))
            try:
                self._play(broker.bootstrap_servers, flights, account)
            except KohortError as why:
                account.complaints.append(str(why))
            finally:
                for member in self._members:
                    if member.process.poll() is None:
                        member.process.kill()
        account.seconds = time.monotonic() - began
        return account

    def _play(self, bootstrap: str, flights: Path, account: Account) -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
            killed = self._run_group(bootstrap, flights, admin, account)
            ends = {row.partition: row.end_offset for row in admin.describe_topics([TOPIC])[0].partitions}
            check(account, ends, killed=killed)
            if self._with_spark:
                self._run_spark(bootstrap, admin, account)

    def _run_group(self, bootstrap: str, flights: Path, admin: Admin, account: Account) -> str:
        """Three members, a fourth joins, the second is killed; returns the name of the killed one."""
        self._members = [Member(name, bootstrap) for name in ("ada", "bob", "cyd")]
        watch = GroupWatch(bootstrap, GROUP, name_of=self._name_of)
        try:
            with Screen(self._render, watch, quiet=self._quiet):
                self._produce(bootstrap, flights)
                self._phase = "reading the rest"
                self._wait_for_the_end(admin)
                self._phase = "leaving"
                for member in self._members:
                    member.leave()
        finally:
            watch.close()
        account.produced = self._produced
        account.members = [member.account for member in self._members]
        account.rebalances = watch.rebalances
        account.complaints += [
            f"member {row.name} {row.fate}" for row in account.members if row.fate.startswith(("failed", "did not"))
        ]
        return "bob"

    def _produce(self, bootstrap: str, path: Path) -> None:
        """A steady rate over the given time, so that joining and killing happen under load."""
        rate = FLIGHTS / self._seconds
        acts = iter([(0.3, self._join_fourth), (0.55, self._kill_second), (2.0, lambda _: None)])
        at, act = next(acts)
        self._phase = "producing"
        with Producer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
            futures: list[Future[Any]] = []
            began = time.monotonic()
            for key, value in read_flights(path):
                futures.append(producer.send(TOPIC, value, key))
                if len(futures) % 500 == 0:
                    self._produced = len(futures)
                    if self._produced >= at * FLIGHTS:
                        act(bootstrap)
                        at, act = next(acts)
                    ahead = began + len(futures) / rate - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
            producer.flush(30.0)
            for future in futures:
                future.result(30.0)
            self._produced = len(futures)

    def _join_fourth(self, bootstrap: str) -> None:
        self._members.append(Member("dee", bootstrap))

    def _kill_second(self, _: str) -> None:
        self._members[1].kill()

    def _name_of(self, member_id: str) -> str:
        return next((row.account.name for row in self._members if row.account.member_id == member_id), member_id)

    def _wait_for_the_end(self, admin: Admin) -> None:
        deadline = time.monotonic() + 40.0
        while time.monotonic() < deadline:
            offsets = admin.group_offsets(GROUP)
            if len(offsets) == PARTITIONS and all(row.lag == 0 for row in offsets):
                return
            time.sleep(0.2)
        raise KohortError("the group did not reach the end of the topic within 40 s after the last record")

    def _run_spark(self, bootstrap: str, admin: Admin, account: Account) -> None:
        from kohort.cli.demo import sparkjob

        self._say("Spark: a streaming query reads the same topic as a member of another group ...")
        began = time.monotonic()
        session = sparkjob.open_session(self._output)
        watch = GroupWatch(bootstrap, SPARK_GROUP, name_of=str)
        try:
            with Screen(self._render_spark, watch, quiet=self._quiet):
                cells = sparkjob.aggregate(
                    session,
                    bootstrap=bootstrap,
                    topic=TOPIC,
                    group=SPARK_GROUP,
                    checkpoint=self._output / "checkpoint",
                )
        finally:
            watch.close()
            session.stop()
        account.spark_seconds = time.monotonic() - began
        account.spark_rows = sparkjob.by_carrier(cells)
        account.spark_counted = sum(cell.flights for cell in cells)
        account.spark_committed = sum(row.committed or 0 for row in admin.group_offsets(SPARK_GROUP))
        picture = self._output / "flights.png"
        sparkjob.draw(cells, picture)
        account.picture = os.fspath(picture)
        check_spark(account)

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)

    def _render(self, watch: GroupWatch) -> tuple[str, Table]:
        from rich.table import Table

        state = watch.group.state if watch.group else "no members yet"
        epoch = watch.group.group_epoch if watch.group else 0
        line = (
            f"{self._phase}: {self._produced:,} of {FLIGHTS:,} records, lag {watch.lag:,}, group {state}, epoch {epoch}"
        )
        table = Table("MEMBER", "RECORDS", "OWNS", "STATE", box=None)
        for member in list(self._members):
            row = member.account
            partitions = [] if row.fate.startswith("killed") else row.owned
            owns = show_partitions(TopicPartition(TOPIC, partition) for partition in partitions)
            table.add_row(row.name, f"{row.records:,}", owns.removeprefix(f"{TOPIC}:"), row.fate)
        return line, table

    def _render_spark(self, watch: GroupWatch) -> tuple[str, Table]:
        from rich.table import Table

        members = watch.group.members if watch.group else ()
        table = Table("QUERY", "OWNS", box=None)
        for member in members:
            table.add_row(member.member_id, show_partitions(member.assignment).removeprefix(f"{TOPIC}:"))
        return f"Spark: {len(members)} member of group {SPARK_GROUP}, lag {watch.lag:,} of {self._produced:,}", table


class Screen:
    """While the block runs: a live table on a terminal, a line every few seconds elsewhere, nothing if `quiet`."""

    def __init__(self, render: Callable[[GroupWatch], tuple[str, Table]], watch: GroupWatch, *, quiet: bool) -> None:
        """`render` gives one line and the table below it."""
        self._render = render
        self._watch = watch
        self._quiet = quiet
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        if self._quiet:
            return
        if not sys.stdout.isatty():
            while not self._stop.wait(3.0):
                print(self._render(self._watch)[0], flush=True)
            return
        from rich.console import Group
        from rich.live import Live

        with Live(refresh_per_second=4, transient=True) as live:
            while not self._stop.wait(0.3):
                live.update(Group(*self._render(self._watch)))
