"""A hand-over between two of our consumers: from the callback that gives a partition up to that of its next owner; with
the release in the last commit (`released`), and with a heartbeat behind it.

A partition goes to and fro between the two members by submitted moves, each behind a record that has to be committed.
Both talk to the broker through a proxy that holds each chunk of bytes for some milliseconds, both ways: so many round
trips as a hand-over takes stand in its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

import kohort
from kohort.client.consumer.offsets.commits import Commits
from report import Row, Table, compare
from servers import KohortServer

TOPIC, GROUP = "handed", "hand-over"
PARTITION = kohort.TopicPartition(TOPIC, 0)
MOVES, PATIENCE_S = 60, 30.0
#: One way, milliseconds; 0: without a proxy.
DELAYS_MS = (0, 5)


class SlowWay:
    """A proxy that holds what passes for `delay_ms`, both ways."""

    def __init__(self, delay_ms: float) -> None:
        self.target_port = self.port = 0
        self._delay_s = delay_ms / 1e3
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target_port)
        ways = (self._pass(client, to_broker), self._pass(broker, to_client))
        await asyncio.wait([asyncio.ensure_future(each) for each in ways], return_when=asyncio.FIRST_COMPLETED)

    async def _pass(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                self._loop.call_later(self._delay_s, to.write, data)
        to.close()


class Member:
    """A consumer that is polled by a thread of its own."""

    def __init__(self, address: str) -> None:
        #: When it was last asked for the partition, and given it; and the values that it was handed.
        self.asked_s = self.granted_s = 0.0
        self.values: list[bytes | None] = []
        self.granted = threading.Event()
        self.consumer = kohort.Consumer(bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest")
        self.consumer.subscribe([TOPIC], on_assigned=self._on_assigned, on_revoked=self._on_revoked)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_assigned(self, _: Any, partitions: list[kohort.TopicPartition]) -> None:
        if PARTITION in partitions:
            self.granted_s = time.perf_counter()
            self.granted.set()

    def _on_revoked(self, _: Any, partitions: list[kohort.TopicPartition]) -> None:
        if PARTITION in partitions:
            self.asked_s = time.perf_counter()
            self.granted.clear()

    def _run(self) -> None:
        while not self._is_over:
            self.values += [record.value for record in self.consumer.poll(0.2)]

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        self.consumer.close()


@contextlib.contextmanager
def releasing(is_on: bool) -> Iterator[None]:
    """Consumers of this process say with their last commits what they release, or do not."""
    is_last: Any = Commits._is_last
    if not is_on:
        Commits._is_last = lambda *_: False  # type: ignore[method-assign]
    try:
        yield
    finally:
        Commits._is_last = is_last  # type: ignore[method-assign]


def hand_overs_ms(delay_ms: float, moves: int, runs: int) -> tuple[list[float], list[float]]:
    """The median time of the hand-overs of each run, with the release in the commit and without."""
    with ExitStack() as stack:
        server = stack.enter_context(KohortServer(in_memory=True))
        address = server.bootstrap_servers
        if delay_ms:
            way = SlowWay(delay_ms)
            stack.callback(way.close)
            # Clients are told the proxy's port.
            server.__exit__(None, None, None)
            server = stack.enter_context(
                KohortServer({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{way.port}"}, in_memory=True)
            )
            way.target_port, address = server.port, f"127.0.0.1:{way.port}"
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=address))
        admin.create_topic(TOPIC, 2)
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=address, linger_ms=0))
        members = [Member(address), Member(address)]
        for member in members:
            stack.callback(member.close)
        wait(lambda: [each.granted.is_set() for each in members].count(True) == 1)
        wait(lambda: all(len(each.consumer.assignment()) == 1 for each in members))
        found: tuple[list[float], list[float]] = ([], [])
        for run in range(2 * (runs + 1)):
            with releasing(run % 2 == 0):
                times = [hand_over_ms(admin, producer, members) for _ in range(moves)]
            if run >= 2:
                found[run % 2].append(median(times))
        return found


def hand_over_ms(admin: kohort.Admin, producer: kohort.Producer, members: list[Member]) -> float:
    """One move, behind a record that its old owner has to commit."""
    owner, other = members if members[0].granted.is_set() else members[::-1]
    known = len(owner.values)
    producer.send(TOPIC, b"record", partition=0).result(PATIENCE_S)
    wait(lambda: len(owner.values) > known)
    admin.submit_moves(GROUP, {PARTITION: other.consumer.member_id})
    assert other.granted.wait(PATIENCE_S), "it was not given the partition"
    return (other.granted_s - owner.asked_s) * 1e3


def wait(is_so: Any) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, "it takes too long"
        time.sleep(0.001)


def measure(runs: int) -> list[Table]:
    return [Table("handover", "From the callback that gives up to the one that gains", rows(runs))]


def rows(runs: int, moves: int = MOVES) -> list[Row]:
    found = {delay_ms: hand_overs_ms(delay_ms, moves, runs) for delay_ms in DELAYS_MS}
    return [
        compare(
            f"asked -> granted, {f'{delay_ms} ms each way' if delay_ms else 'loopback'}",
            released,
            told,
            unit="ms",
            # What a round trip takes on loopback is less than what the two applications do.
            reach=">= 1.43x" if delay_ms else "report",
            peer_name="commit, then heartbeat",
            how=f"median of {moves} moves in each of {runs} runs",
            less_is_better=True,
        )
        for delay_ms, (released, told) in found.items()
    ]


if __name__ == "__main__":
    for row in rows(runs=4, moves=20):
        print(row.what, f"{row.ours:.2f} ms, without {row.peer:.2f} ms")
