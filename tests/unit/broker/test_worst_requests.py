"""The longest request of each API that the limits let through: nobody waits for it for long, and it takes no memory.

Laws: how long a turn of the loop takes is told by the calls that are made in it, which are the same on every machine:
eight of them take a microsecond on a slow one.
Source: architecture rule 18 (20 ms); requirement B4: 50 ms and 20 times the bytes of a request.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from selectors import DefaultSelector, SelectorKey

import pytest

from kohort.wire.registry import SERVED, ApiKey
from support.depth import IS_SOAK
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker
from support.scenarios.worst_requests import PARTITIONS, WIDE, WITHOUT_ROWS, WORST, Worst
from support.work import CallCount

pytestmark = pytest.mark.large

#: In one turn of the loop: 50 ms.
MOST_CALLS = 400_000
#: What a request may take, by its bytes, and what any may: ten thousand answers as objects.
MOST_TIMES, FLOOR_BYTES = 20, 24 << 20
#: Measured in every run, since they take most; the others by `make soak ONLY=worst-requests`.
LARGE = [
    "new topics to check",
    "topics of no name",
    "commits of topics",
    "batches that are empty",
    "topics to grow",
]
#: Access lists are kept where rights are looked at; these clients may do everything.
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
MEASURED = WORST if IS_SOAK else {name: WORST[name] for name in LARGE}
#: Answered in so many turns that a quarter of their rows shows one that is too long; all of them by the same soak.
MANY_TURNS = {
    "offsets of groups",
    "groups to describe",
    "new topics to check",
    "configs of groups",
    "configs to set",
    "configs to change",
    "groups to delete",
    "consumer groups to describe",
}
MOST_TURNS = 20_000


class Calls:
    """Counts the calls of each turn of a loop."""

    def __init__(self) -> None:
        self._count = CallCount()
        self.most = 0

    def end_turn(self) -> None:
        self.most = max(self.most, self._count.take())

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._count.begin()
        try:
            yield
        finally:
            self._count.end()
            self.end_turn()


class Turns(DefaultSelector):
    """Tells where turns end."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        self._calls.end_turn()
        return super().select(timeout)


async def answered(connection: WiredConnection, frame: bytes) -> None:
    """Feed a request and wait for its answer."""
    connection.feed(frame)
    for _ in range(MOST_TURNS):
        if connection.take_written():
            return
        await asyncio.sleep(0)
    raise AssertionError("no answer")


def carry_out(worst: Worst, calls: Calls, *, measures_memory: bool) -> tuple[int, int]:
    """(bytes of the longest request, most memory that it took)."""

    async def play() -> tuple[int, int]:
        frame = encode_request(worst.key, worst.version, worst.of(worst.most))
        with wired_broker(CONFIG) as context:
            # To make it takes longer than most of these requests.
            if WIDE.encode() in frame:
                context.cluster.create_topic(WIDE, PARTITIONS, {})
            connection = WiredConnection(context)
            # What is compiled and imported once does not count.
            await answered(connection, encode_request(worst.key, worst.version, worst.of(1)))
            for _ in range(3):
                await asyncio.sleep(0)
            if measures_memory:
                gc.collect()
                tracemalloc.start()
                await answered(connection, frame)
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                return len(frame), peak
            with calls.counting():
                await answered(connection, frame)
            return len(frame), 0

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Turns(calls))) as runner:
        return runner.run(play())


def test_every_api_has_its_worst_request() -> None:
    kafkas = {worst.key for worst in WORST.values() if isinstance(worst.key, ApiKey)}
    assert kafkas | WITHOUT_ROWS == set(SERVED)


@pytest.mark.parametrize("name", WORST)
def test_nobody_waits_long_for_the_longest_request(name: str) -> None:
    calls, worst = Calls(), WORST[name]
    share = 4 if name in MANY_TURNS and not IS_SOAK else 1
    carry_out(worst._replace(most=worst.most // share), calls, measures_memory=False)
    assert 0 < calls.most <= MOST_CALLS // share


@pytest.mark.parametrize("worst", MEASURED.values(), ids=MEASURED)
def test_the_longest_request_takes_little_memory(worst: Worst) -> None:
    size, peak = carry_out(worst, Calls(), measures_memory=True)
    assert peak <= max(MOST_TIMES * size, FLOOR_BYTES)


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST)
def test_one_that_is_longer_closes_its_connection(worst: Worst) -> None:
    async def play() -> bool:
        with wired_broker({}) as context:
            connection = WiredConnection(context)
            connection.feed(encode_request(worst.key, worst.version, worst.of(worst.beyond)))
            return connection.is_closed

    assert asyncio.run(play())
