"""The run of the demo: broker, load, members that join and leave, the view of their group, and the progress."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

from kohort import Admin, Broker, Consumer, TopicPartition
from kohort.cli.demo.account import Account, CopyAccount, MemberAccount, Span, check, check_copy
from kohort.cli.demo.flights import Load, find_flights
from kohort.cli.folders import TOPIC, take_demo_folder
from kohort.client.admin.results.groups import GroupDescription
from kohort.coordinator.settings import GroupSettings
from kohort.errors import KohortError
from kohort.journal.explain.explanation import GroupRebalance
from kohort.journal.words import show_partitions

PARTITIONS: Final = 12
GROUP: Final = "flights-readers"
FIRST_MEMBERS: Final = ("ada", "bob", "cyd")
KILLED: Final = "bob"
#: The processes that copy, one after the other, and the topic of the copy, which is their group and transactional id.
COPIERS: Final = ("gil", "hal")
COPY: Final = "flights-copy"
#: Transactions that the copy takes about, and the share of it behind which the first process is killed in one.
COPY_TRANSACTIONS: Final = 40
COPY_KILL_AT: Final = 0.4
#: Shares of the flights sent before the fourth member joins, before a member is killed, and before Spark starts.
JOIN_AT: Final = 0.3
KILL_AT: Final = 0.55
BEFORE_SPARK: Final = 0.6

SESSION_TIMEOUT_MS: Final = 3000
HEARTBEAT_INTERVAL_MS: Final = 300
BROKER_CONFIG: Final = {
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
}

#: Returns the progress line, and the rows of the table below it on a terminal. Arguments: the group (`None` before its
#: first member), and the text about its lag.
Render = Callable[[GroupDescription | None, str], tuple[str, Sequence[tuple[str, ...]]]]
#: Seconds between two updates on a terminal, and between two lines elsewhere.
LOOK_INTERVAL_S: Final = 0.4
LINE_INTERVAL_S: Final = 4.0


class Stage:
    """One run of the demo; `run()` returns the account."""

    def __init__(self, options: argparse.Namespace, *, without_spark: str | None) -> None:
        self.output = Path(options.output)
        self.flights: int = options.flights
        self.seconds: float = options.seconds
        self.is_quiet: bool = options.json
        self.copies: bool = options.transactions
        #: Why Spark is left out; `None`: the demo runs Spark.
        self.without_spark = without_spark
        self.members: list[Member] = []
        self.phase = "waiting for the members"

    def run(self, second_half: Callable[[Stage, Account], None] | None) -> Account:
        """Run the whole demo; once it has started, errors of kohort become complaints in the account."""
        began_s = time.monotonic()
        account = Account(killed=KILLED, without_spark=self.without_spark)
        flights = find_flights()
        data = take_demo_folder(self.output)
        if not self.is_quiet:
            print(self._prologue(data), flush=True)
        with Broker(data_dir=data, process=True, config=BROKER_CONFIG) as broker:
            where = self.bootstrap = broker.bootstrap_servers
            try:
                with Admin(bootstrap_servers=where) as self.admin, Load(where, flights, self.flights) as self.load:
                    self._run_group(account)
                    if self.copies:
                        self._run_copy(account)
                    if second_half is not None:
                        second_half(self, account)
            except KohortError as why:
                account.complaints.append(str(why))
            finally:
                for member in self.members:
                    member.end()
        account.seconds = time.monotonic() - began_s
        return account

    def _prologue(self, data: Path) -> str:
        usual = GroupSettings()
        usual_s = usual.group_consumer_session_timeout_ms / 1000
        usual_interval_s = usual.group_consumer_heartbeat_interval_ms / 1000
        *names, last = FIRST_MEMBERS
        return (
            f"{self.flights:,} flights through a broker that keeps its data in {data}\n"
            f"{', '.join(names)} and {last} share {PARTITIONS} partitions; dee joins; {KILLED} is killed"
            f"{'' if self.without_spark else '; then Spark'}\n"
            f"sessions are {SESSION_TIMEOUT_MS / 1000:g} s, heartbeats {HEARTBEAT_INTERVAL_MS / 1000:g} s "
            f"({usual_s:g} and {usual_interval_s:g} by default): {KILLED} is missed soon"
            + (f"\n{self.without_spark}" if self.without_spark else "")
        )

    def _run_group(self, account: Account) -> None:
        """Run three members, add a fourth, kill the second, and read the history before the others leave."""
        self.admin.create_topic(TOPIC, PARTITIONS)
        self.members = [Member(name, self.bootstrap) for name in FIRST_MEMBERS]
        watch = Watch(self, GROUP)

        def wait_for(names: list[str], otherwise: str) -> None:
            wait_until(lambda: sorted(watch.shares()) == sorted(names), otherwise)

        try:
            with watch.showing(("MEMBER", "RECORDS", "OWNS", "STATE"), self._render):
                wait_for([*FIRST_MEMBERS], "the members did not join")
                self.phase = "producing"
                share = 1.0 if self.without_spark else BEFORE_SPARK
                # A member joins, and one is killed, under load.
                self.load.begin(share, seconds=share * self.seconds)
                self.load.wait_for(JOIN_AT * share)
                self.members.append(Member("dee", self.bootstrap))
                self.load.wait_for(KILL_AT * share)
                next(member for member in self.members if member.account.name == KILLED).kill()
                self.load.settle()
                self.phase = "reading the rest"
                wait_until(lambda: watch.lag() == 0, "the group did not reach the end of the topic")
                staying = [member.account.name for member in self.members if member.account.name != KILLED]
                wait_for(staying, f"the group did not go on without {KILLED}")
                account.rebalances = watch.rebalances()
                self.phase = "leaving"
                for member in self.members:
                    member.leave()
        finally:
            account.produced = self.load.sent
            account.members = [member.account for member in self.members]
        account.complaints += [
            f"member {row.name} {row.fate}" for row in account.members if row.fate.startswith(("failed", "did not"))
        ]
        check(account, {row.partition: row.end_offset for row in self.admin.describe_topics([TOPIC])[0].partitions})

    def _run_copy(self, account: Account) -> None:
        """Copy all records so far in transactions; kill the copying process in the middle, and start another."""
        watch = Watch(self, COPY)
        first, then = COPIERS
        watch.say(f"\n{first} copies the flights in transactions, is killed, and {then} goes on")
        copy = account.copy = CopyAccount(killed=first)
        self.admin.create_topic(COPY, PARTITIONS)
        copying = (COPY, str(max(1, account.produced // COPY_TRANSACTIONS)))
        for name, records in ((first, round(COPY_KILL_AT * account.produced)), (then, 0)):
            process = Member(name, self.bootstrap, group=COPY, copying=(*copying, str(records)))
            self.members.append(process)
            if records:
                wait_until(process.was_killed, f"{name} was not killed", seconds=120.0)
        wait_until(lambda: watch.lag() == 0, "the copy was not finished", seconds=120.0)
        self.members[-1].leave()
        # Its last markers may lag behind its last answer.
        undecided = ["Ongoing", "PrepareCommit", "PrepareAbort"]
        wait_until(lambda: not self.admin.list_transactions(undecided), "a transaction did not end")
        before, after = (self._read(topic, "read_committed") for topic in (TOPIC, COPY))
        copy.records, copy.committed = (sum(count for count, _ in found.values()) for found in (before, after))
        copy.written = sum(count for count, _ in self._read(COPY, "read_uncommitted").values())
        copy.differing = [number for number in sorted(before) if before[number] != after[number]]
        check_copy(account, copy)

    def _read(self, topic: str, isolation: Literal["read_uncommitted", "read_committed"]) -> dict[int, tuple[int, str]]:
        """Read a topic; return the number of records of each partition, and a digest of them in their order."""
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        counts, digests = dict.fromkeys(range(PARTITIONS), 0), [blake2b() for _ in places]
        with Consumer(bootstrap_servers=self.bootstrap, isolation_level=isolation) as consumer:
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            while any(consumer.position(place) < end for place, end in ends.items()):
                for record in consumer.poll(0.2):
                    counts[record.partition] += 1
                    digests[record.partition].update(repr((record.key, record.value)).encode())
        return {number: (counts[number], digests[number].hexdigest()) for number in counts}

    def _render(self, group: GroupDescription | None, lag: str) -> tuple[str, list[tuple[str, ...]]]:
        rows = [
            (row.name, f"{row.records:,}", show_numbers([] if row.fate.startswith("killed") else row.owned), row.fate)
            for row in [member.account for member in self.members]
        ]
        epoch = "" if group is None else f", group {group.state}, epoch {group.group_epoch}"
        return f"{self.phase}: {self.load.sent:,} of {self.flights:,} records{lag}{epoch}", [*rows]


class Member:
    """A member of the group, a process, and the thread that reads its output into its account."""

    def __init__(self, name: str, bootstrap: str, *, group: str = GROUP, copying: Sequence[str] = ()) -> None:
        self.account = MemberAccount(name=name, fate="running")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo.member", bootstrap, group, TOPIC, name, *copying],
            # The member leaves at the end of its input, also when this process is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kill the process by SIGKILL: it neither leaves nor commits."""
        self._process.kill()
        self.account.fate = "killed (SIGKILL)"

    def was_killed(self) -> bool:
        """Return whether the process was killed by SIGKILL."""
        is_killed = self._process.poll() == -signal.SIGKILL
        if is_killed:
            self.account.fate = "killed (SIGKILL)"
        return is_killed

    def leave(self) -> None:
        """Let the process commit and leave, and read the rest of its output."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.account.fate = "did not leave in time"
        self._reader.join(10.0)
        if self.account.fate == "running":
            self.account.fate = "left" if self._process.returncode == 0 else f"failed with {self._process.returncode}"

    def end(self) -> None:
        """Kill the process if it still runs."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A kill may cut the last line.
            if line.endswith("\n"):
                self._note(json.loads(line))

    def _note(self, row: dict[str, Any]) -> None:
        self.account.owned = row.get("partitions", self.account.owned)
        for partition, (first, last, count) in row.get("spans", {}).items():
            self.account.records += count
            self.account.spans.append(Span(int(partition), first, last, row["at"]))
        self.account.committed |= {int(partition): offset for partition, offset in row.get("offsets", {}).items()}


class Watch:
    """A group that is watched, and the output about it."""

    def __init__(self, stage: Stage, group: str) -> None:
        self._admin = stage.admin
        self._group = group
        self._is_quiet = stage.is_quiet

    def say(self, line: str) -> None:
        """Print a line at once."""
        if not self._is_quiet:
            print(line, flush=True)

    @contextmanager
    def showing(self, columns: Sequence[str], render: Render) -> Iterator[None]:
        """Show the group while the block runs: a live table on a terminal, else a line every few seconds."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._show, args=(columns, render, is_over), name="demo-watch", daemon=True)
        if not self._is_quiet:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            if not self._is_quiet:
                thread.join(10.0)

    def _show(self, columns: Sequence[str], render: Render, is_over: threading.Event) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.table import Table

        group: GroupDescription | None = None
        said_of_lag = ""
        with Live(refresh_per_second=4, transient=True) if sys.stdout.isatty() else nullcontext() as live:
            while not is_over.wait(LINE_INTERVAL_S if live is None else LOOK_INTERVAL_S):
                # Before its first member joins the group does not exist. That error is not printed.
                with suppress(KohortError):
                    group, lag = self._admin.describe_group(self._group), self.lag()
                    said_of_lag = "" if lag is None else f", lag {lag:,}"
                line, rows = render(group, said_of_lag)
                if live is None:
                    print(line, flush=True)
                    continue
                table = Table(*columns, box=None, show_header=bool(rows))
                for row in rows:
                    table.add_row(*row)
                live.update(Group(line, table))

    def lag(self) -> int | None:
        """Return the total lag of the group; `None` while a partition has no offset and no owner."""
        offsets = self._admin.group_offsets(self._group)
        if len(offsets) != PARTITIONS:
            return None
        return sum(row.end_offset if row.lag is None else row.lag for row in offsets)

    def shares(self) -> dict[str, int]:
        """Count each member's partitions, by instance id or else client id; nothing unless the group is stable."""
        if all(listing.group_id != self._group for listing in self._admin.list_groups()):
            return {}
        found = self._admin.describe_group(self._group)
        members = found.members if found.state == "Stable" else ()
        return {member.instance_id or member.client_id: len(member.assignment) for member in members}

    def rebalances(self) -> list[GroupRebalance]:
        """Read the rebalances of the group up to now, with the broker's sentences; `KohortError` if some are gone."""
        found = self._admin.explain_group(self._group, whole=True)
        if not found.is_complete:
            raise KohortError(f"the broker has dropped the beginning of the history of {self._group}")
        return list(found.rebalances)


def show_numbers(partitions: Iterable[int]) -> str:
    """Format partition numbers as `0-3,7`, or a dash for none."""
    return show_partitions(TopicPartition(TOPIC, partition) for partition in partitions).removeprefix(f"{TOPIC}:")


def wait_until(is_reached: Callable[[], bool], otherwise: str, *, seconds: float = 40.0) -> float:
    """Wait for a condition and return the seconds; `KohortError` if it is not reached in time."""
    began_s = time.monotonic()
    while not is_reached():
        if time.monotonic() > began_s + seconds:
            raise KohortError(f"{otherwise} within {seconds:g} s")
        time.sleep(0.05)
    return time.monotonic() - began_s
