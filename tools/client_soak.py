"""A soak test: real clients on real sockets while brokers and members come and go.

`python tools/client_soak.py --seconds 600`. The brokers are a process of their own, whose log grows;
what is measured is the process of the clients.

Laws: every group goes on reading; no call raises what is not documented; what the process of the clients holds at the
end is what it held when it was warm.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from kohort import Admin, Consumer, Producer
from kohort.errors import KohortError
from kohort.simulation.clients.plan import Protocol
from kohort.testing.cluster import Cluster

PARTITIONS: Final = 6
#: Records a second.
RATE: Final = 2_000
#: Memory that allocators keep, MiB, beside a twentieth.
SLACK_MIB: Final = 8.0
#: Longest time in which a group reads nothing, s: a member that is gone is missed for its session.
QUIET_S: Final = 60.0
#: The groups, which are called as their protocols, and options of their members. After each restart of its coordinator
#: a classic group waits for members that its log has and that are long gone; consumer groups' session is the brokers'.
MEMBERS: Final[dict[Protocol, dict[str, object]]] = {
    "consumer": {},
    "classic": {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500},
}
PROTOCOLS: Final = tuple(MEMBERS)
CONFIG: Final = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.min.session.timeout.ms": 1_000,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test; return 0 if every law held."""
    parser = argparse.ArgumentParser(prog="python tools/client_soak.py")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long; a fifth of it is for warming up")
    parser.add_argument("--seed", type=int, default=0, help="who comes and goes when")
    options = parser.parse_args(arguments)
    logging.getLogger("kohort").setLevel(logging.ERROR)
    here, there = get_context("spawn").Pipe()
    brokers = get_context("spawn").Process(target=_serve, args=(there, options.seed), daemon=True)
    brokers.start()
    there.close()
    try:
        return _soak(here.recv(), options.seconds, options.seed)
    finally:
        if brokers.is_alive():
            here.send("stop")
        brokers.join(30)


def why_not_flat(samples: Sequence[float]) -> str | None:
    """Explain why a run's memory, MiB at even distances, is not flat; `None` if it stayed flat.

    >>> why_not_flat([50, 90, 92, 91, 93, 90, 92, 91, 90, 92]) is None
    True
    >>> why_not_flat([50, 90, 100, 110, 120, 130, 140, 150, 160, 170])
    'from 105.0 MiB when it was warm to 165.0 MiB in the end'
    """
    fifth = max(1, len(samples) // 5)
    warm, end = _mean(samples[fifth : 2 * fifth]), _mean(samples[-fifth:])
    return (
        None if end <= warm * 1.05 + SLACK_MIB else f"from {warm:.1f} MiB when it was warm to {end:.1f} MiB in the end"
    )


def _soak(bootstrap: str, seconds: float, seed: int) -> int:
    crew = _Crew(bootstrap, seed)
    samples: list[float] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and crew.failure is None:
        time.sleep(min(1.0, seconds / 20))
        samples.append(_resident_mib())
        for group, read_s in crew.last_read_s.items():
            if time.monotonic() - read_s > QUIET_S:
                crew.failure = AssertionError(f"the {group} group has read nothing for {QUIET_S:g} s")
    crew.stop()
    wrong = why_not_flat(samples) if crew.failure is None else repr(crew.failure)
    sys.stdout.write(
        f"{seconds:g} s: {crew.sent} records sent, read: {dict(crew.read)} by {crew.members} members; "
        f"{samples[0]:.0f} MiB at first, {_mean(samples):.0f} on average, {samples[-1]:.0f} in the end"
        f"{'' if wrong is None else f'; FAILED: {wrong}'}\n"
    )
    return 0 if wrong is None else 1


class _Crew:
    """The clients of the soak test, on threads."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self.sent = self.members = 0
        #: By group.
        self.read: Counter[Protocol] = Counter()
        self.last_read_s = dict.fromkeys(PROTOCOLS, time.monotonic())
        calls: list[Callable[[], None]] = [partial(self._write, Random(f"writer {seed}"))]
        calls += [partial(self._be_member, Random(f"member {each} {seed}"), PROTOCOLS[each % 2]) for each in range(4)]
        self._threads = [threading.Thread(target=self._guard, args=(call,), daemon=True) for call in calls]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Close every client."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive() and self.failure is None:
                self.failure = AssertionError("a client has not closed within a minute")

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as failure:
            self.failure = failure

    def _write(self, random: Random) -> None:
        while not self._stopping.is_set():
            with Producer(bootstrap_servers=self._bootstrap, delivery_timeout_ms=20_000) as producer:
                for _ in range(random.randint(20, 200)):
                    if self._stopping.wait(0.05):
                        break
                    for _ in range(RATE // 20):
                        producer.send("orders", value=b"x" * 100, key=b"%d" % random.randint(0, 1_000))
                        self.sent += 1

    def _be_member(self, random: Random, protocol: Protocol) -> None:
        while not self._stopping.is_set():
            self.members += 1
            until_s = time.monotonic() + random.uniform(3, 20)
            with Consumer(
                MEMBERS[protocol],
                bootstrap_servers=self._bootstrap,
                group_id=protocol,
                group_protocol=protocol,
                auto_offset_reset="earliest",
            ) as consumer:
                consumer.subscribe(["orders"])
                while time.monotonic() < until_s and not self._stopping.is_set():
                    try:
                        records = consumer.poll(0.5)
                    except KohortError:
                        continue  # A broker is away.
                    self.read[protocol] += len(records)
                    if records:
                        self.last_read_s[protocol] = time.monotonic()


def _serve(pipe: Connection, seed: int) -> None:
    """Run the brokers in a process of their own, and restart them at random."""
    random = Random(f"brokers {seed}")
    with Cluster(3, config=CONFIG) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topic("orders", PARTITIONS)
        pipe.send(cluster.bootstrap_servers)
        while not pipe.poll(random.uniform(0.5, 3.0)):
            broker = random.choice(cluster.brokers)
            match random.randint(0, 3):
                case 0:
                    cluster.move_leader("orders", random.randrange(PARTITIONS), broker)
                case 1:
                    cluster.move_coordinator(random.choice(("consumer", "classic")), broker)
                case which:
                    (cluster.stop if which == 2 else cluster.kill)(broker)
                    pipe.poll(random.uniform(0.1, 2.0))
                    cluster.start(broker)


def _resident_mib() -> float:
    """Return this process's resident memory, MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    sys.exit(main())
