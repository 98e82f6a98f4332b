"""Two processes that transform are killed, frozen and removed, and their broker is: each record is in the target once.

200 of each. In `make test` the scenarios of `transform` have a removed member and a replaced producer.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import kohort
from kohort import TopicPartition
from support.depth import IS_SOAK, at_depth
from support.peers.cli import environment, forks_of
from support.peers.forked_commands import ForkedProcess
from support.peers.restarts import MortalBroker, Worker, wait_until
from support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not IS_SOAK, reason="make soak ONLY=transform-members")]

KILLS = at_depth(1, 200)
GROUP = "copying"
#: A member that was killed gives its partitions to the other one soon.
SESSIONS = {"group.consumer.session.timeout.ms": 1_500, "group.consumer.min.session.timeout.ms": 1_000}
#: Most records that wait for the processes.
MOST_BEHIND = 1_000
PARTITIONS = [TopicPartition("in", number) for number in range(4)]
PROGRAM = f"""
import sys, kohort
address, name = sys.argv[1:]
with (
    kohort.Consumer(
        "in", bootstrap_servers=address, group_id="{GROUP}", auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed", max_poll_records=20, reconnect_backoff_max_ms=100,
    ) as consumer,
    kohort.Producer(
        bootstrap_servers=address, transactional_id=name, transaction_timeout_ms=2_000, reconnect_backoff_max_ms=100
    ) as producer,
):
    def copy(records, transaction):
        for record in records:
            transaction.send("out", record.value, record.key)
    kohort.transform(consumer, producer, copy)
"""


class Copiers:
    """Two processes of the group; one that has ended is started anew."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._running: dict[str, ForkedProcess] = {}
        # Errors go nowhere: a process that gives up is looked at by what it has left undone.
        self._nowhere = os.open(os.devnull, os.O_WRONLY)

    def look(self) -> None:
        """Start those that do not run."""
        for name in ("copier-1", "copier-2"):
            known = self._running.get(name)
            if known is not None and known.poll() is not None:
                self.kill(name)
            if name not in self._running:
                self._running[name] = forks_of(environment()).open(
                    (self._address, name), environment=environment(), script=PROGRAM, errors=os.dup(self._nowhere)
                )

    def kill(self, name: str) -> None:
        with self._running.pop(name) as process:
            process.kill()
            process.wait(PATIENCE_SECONDS)

    def pause(self, name: str, *, is_paused: bool) -> None:
        self._running[name].send_signal(signal.SIGSTOP if is_paused else signal.SIGCONT)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.look()
            yield
        finally:
            for name in list(self._running):
                self.kill(name)
            os.close(self._nowhere)


@pytest.mark.timeout(120 + 20 * KILLS)
def test_each_record_is_copied_once_though_broker_and_processes_are_killed(tmp_path: Path) -> None:
    chance, pause = Random(17), threading.Event()
    sent = done = 0
    with (
        MortalBroker(tmp_path / "data", SESSIONS) as broker,
        kohort.Admin(bootstrap_servers=broker.address) as admin,
        kohort.Producer(bootstrap_servers=broker.address, reconnect_backoff_max_ms=100) as feed,
    ):
        admin.create_topic("in", len(PARTITIONS), configs={"segment.bytes": 16 * 1024})
        admin.create_topic("out", 2, configs={"segment.bytes": 16 * 1024})
        copiers = Copiers(broker.address)

        def committed() -> int:
            nonlocal done
            pause.wait(0.02)
            done = sum(row.committed or 0 for row in admin.group_offsets(GROUP))
            return done

        def send() -> None:
            nonlocal sent
            if sent > done + MOST_BEHIND:
                pause.wait(0.02)
                return
            values = [b"%d" % number for number in range(sent, sent + 50)]
            feed.send_many("in", values, keys=values).result(PATIENCE_SECONDS)
            sent += len(values)

        with copiers.running(), Worker(send) as feeding:
            for _ in range(KILLS):
                for victim in ("broker", "copier-1", "copier-2", "stopped"):
                    goal = committed() + chance.randrange(20, 400)

                    def has_worked(goal: int = goal) -> bool:
                        feeding.check()
                        copiers.look()
                        return committed() > goal

                    wait_until(has_worked, "the processes go on after a kill", seconds=3 * PATIENCE_SECONDS)
                    if victim == "broker":
                        broker.kill()
                        broker.revive()
                    elif victim == "stopped":
                        # It wakes up as a member that has been silent, in the middle of a transaction.
                        copiers.pause("copier-1", is_paused=True)
                        admin.remove_members(GROUP)
                        goal = committed() + 20

                        def other_has_worked(goal: int = goal) -> bool:
                            return committed() > goal

                        wait_until(other_has_worked, "the other one goes on", seconds=3 * PATIENCE_SECONDS)
                        copiers.pause("copier-1", is_paused=False)
                    else:
                        copiers.kill(victim)
            feeding.stop()
            wait_until(lambda: committed() >= sent, "everything is copied", seconds=3 * PATIENCE_SECONDS)
        copied = values_of(broker.address)
    assert copied == Counter(b"%d" % number for number in range(sent))


def values_of(address: str) -> Counter[bytes]:
    """How often each value is in the target, as a reader of committed records sees it."""
    found: Counter[bytes] = Counter()
    with kohort.Consumer(
        bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        chosen = [TopicPartition("out", number) for number in range(2)]
        reader.assign(chosen)
        ends = reader.end_offsets(chosen)

        def is_read() -> bool:
            found.update(record.value or b"" for record in reader.poll(0.2, max_records=10_000))
            return all(reader.position(each) >= end for each, end in ends.items())

        wait_until(is_read, "the target is read")
    return found
