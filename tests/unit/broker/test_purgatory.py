"""Fetches that wait: woken by their logs, answered once, gone with their connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kohort.broker.purgatory import ParkedFetch, Purgatory
from kohort.storage.memoryfs import MemoryFileSystem
from support.storage_logs import empty_log

FOREVER_MS = 3_600_000


class Waiting:
    """A fetch that has enough after `looks_needed` looks."""

    def __init__(self, looks_needed: int = 1) -> None:
        self.looks: list[bool] = []
        self._needed = looks_needed

    def complete(self, is_over: bool) -> bool:
        self.looks.append(is_over)
        return is_over or len(self.looks) >= self._needed


def run(dialogue: Callable[[Purgatory], Awaitable[None]]) -> None:
    async def main() -> None:
        await dialogue(Purgatory(asyncio.get_running_loop()))

    asyncio.run(main())


async def a_turn() -> None:
    """Let the loop carry out what was scheduled."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_log_that_grows_often_in_one_turn_wakes_a_fetch_once() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        logs = [empty_log(MemoryFileSystem()) for _ in range(2)]
        fetch = Waiting()
        purgatory.park(logs, max_wait_ms=FOREVER_MS, complete=fetch.complete)
        for _ in range(5):
            for log in logs:
                purgatory.notify(log)
        await a_turn()
        assert fetch.looks == [False]
        assert len(purgatory) == 0

    run(dialogue)


def test_a_fetch_without_enough_goes_on_waiting() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log, other = empty_log(MemoryFileSystem()), empty_log(MemoryFileSystem())
        fetch = Waiting(looks_needed=2)
        purgatory.park([log], max_wait_ms=FOREVER_MS, complete=fetch.complete)
        purgatory.notify(other)
        await a_turn()
        assert fetch.looks == []
        purgatory.notify(log)
        await a_turn()
        assert (fetch.looks, len(purgatory)) == ([False], 1)
        purgatory.notify(log)
        await a_turn()
        assert (fetch.looks, len(purgatory)) == ([False, False], 0)

    run(dialogue)


def test_a_fetch_is_answered_when_its_time_is_over() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        fetch = Waiting()
        over = asyncio.Event()

        def complete(is_over: bool) -> bool:
            over.set()
            return fetch.complete(is_over)

        purgatory.park([empty_log(MemoryFileSystem())], max_wait_ms=5, complete=complete)
        async with asyncio.timeout(10):
            await over.wait()
        assert (fetch.looks, len(purgatory)) == ([True], 0)

    run(dialogue)


def test_a_fetch_that_is_cancelled_is_not_looked_at_again() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log = empty_log(MemoryFileSystem())
        fetch = Waiting()
        parked = purgatory.park([log], max_wait_ms=FOREVER_MS, complete=fetch.complete)
        purgatory.notify(log)
        parked.cancel()
        parked.cancel()
        await a_turn()
        assert (fetch.looks, len(purgatory)) == ([], 0)

    run(dialogue)


def test_one_fetch_may_end_another_of_the_same_turn() -> None:
    """A connection that is closed while the woken fetches are looked at takes its own fetches with it."""

    async def dialogue(purgatory: Purgatory) -> None:
        log = empty_log(MemoryFileSystem())
        second = Waiting()
        parked: list[ParkedFetch] = []

        def end_the_other(is_over: bool) -> bool:
            del is_over
            parked[1].cancel()
            return True

        parked.append(purgatory.park([log], max_wait_ms=FOREVER_MS, complete=end_the_other))
        parked.append(purgatory.park([log], max_wait_ms=FOREVER_MS, complete=second.complete))
        purgatory.notify(log)
        await a_turn()
        assert (second.looks, len(purgatory)) == ([], 0)

    run(dialogue)


def test_everybody_is_answered_when_the_broker_stops() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log = empty_log(MemoryFileSystem())
        fetches = [Waiting(looks_needed=99) for _ in range(3)]
        for fetch in fetches:
            purgatory.park([log], max_wait_ms=FOREVER_MS, complete=fetch.complete)
        purgatory.release_all()
        assert [fetch.looks for fetch in fetches] == [[True]] * 3
        assert len(purgatory) == 0

    run(dialogue)
