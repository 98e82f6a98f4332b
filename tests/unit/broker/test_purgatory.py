"""Fetches that wait: woken by their logs, answered once, gone with their connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise

import pytest

from kohort.broker.fetch import purgatory as purgatory_module
from kohort.broker.fetch.purgatory import LONG_TICK_MS, LONGEST_WAIT_MS, DelayedFetch, Purgatory
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import empty_log

FOREVER_MS = 3_600_000


class Waiting:
    """A fetch that has enough after `looks_needed` looks."""

    def __init__(self, *logs: PartitionLog | None, looks_needed: int = 1) -> None:
        self.logs = logs
        #: The rows of each look.
        self.looks: list[list[int]] = []
        self.answers = 0
        #: Of the answer.
        self.size_bytes = 0
        self._needed = looks_needed

    def look(self, rows: Iterable[int]) -> bool:
        self.looks.append(list(rows))
        return len(self.looks) >= self._needed

    def answer(self) -> None:
        self.answers += 1


def run(dialogue: Callable[[Purgatory], Awaitable[None]]) -> None:
    async def main() -> None:
        await dialogue(Purgatory(asyncio.get_running_loop()))

    asyncio.run(main())


async def a_turn() -> None:
    """Let the loop carry out what was scheduled."""
    for _ in range(3):
        await asyncio.sleep(0)


def new_log() -> PartitionLog:
    return empty_log(MemoryFileSystem())


def test_a_log_that_grows_often_in_one_turn_wakes_a_fetch_once() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        logs = [new_log() for _ in range(2)]
        fetch = Waiting(*logs)
        purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        for _ in range(5):
            for log in logs:
                purgatory.notify(log)
        await a_turn()
        assert (fetch.looks, fetch.answers) == ([[0, 1]], 1)
        assert len(purgatory) == 0

    run(dialogue)


def test_a_fetch_looks_at_nothing_but_what_has_grown() -> None:
    """However much else it reads."""

    async def dialogue(purgatory: Purgatory) -> None:
        logs = [new_log(), None, new_log(), new_log()]
        fetch = Waiting(*logs, looks_needed=3)
        purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        for log in (logs[2], logs[0]):
            assert log is not None
            purgatory.notify(log)
            await a_turn()
        assert (fetch.looks, fetch.answers) == ([[2], [0]], 0)

    run(dialogue)


def test_a_fetch_without_enough_goes_on_waiting() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log, other = new_log(), new_log()
        fetch = Waiting(log, looks_needed=2)
        purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        purgatory.notify(other)
        await a_turn()
        assert fetch.looks == []
        purgatory.notify(log)
        await a_turn()
        assert (len(fetch.looks), fetch.answers, len(purgatory)) == (1, 0, 1)
        purgatory.notify(log)
        await a_turn()
        assert (len(fetch.looks), fetch.answers, len(purgatory)) == (2, 1, 0)

    run(dialogue)


def test_a_fetch_is_answered_when_its_time_is_over() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        over = asyncio.Event()

        class Impatient(Waiting):
            def answer(self) -> None:
                super().answer()
                over.set()

        fetch = Impatient(new_log())
        purgatory.park(fetch, max_wait_ms=5)
        async with asyncio.timeout(10):
            await over.wait()
        assert (fetch.looks, fetch.answers, len(purgatory)) == ([], 1, 0)

    run(dialogue)


def test_nobody_waits_longer_than_the_limit() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        parked = purgatory.park(Waiting(new_log()), max_wait_ms=2**31 - 1)
        assert parked.due_ms is not None
        assert parked.due_ms <= asyncio.get_running_loop().time() * 1000 + LONGEST_WAIT_MS + LONG_TICK_MS
        parked.cancel()

    run(dialogue)


def test_a_fetch_that_is_cancelled_is_not_looked_at_again() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log = new_log()
        fetch, other = Waiting(log), Waiting(log)
        parked = purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        purgatory.park(other, max_wait_ms=FOREVER_MS)
        purgatory.notify(log)
        parked.cancel()
        parked.cancel()
        await a_turn()
        assert (fetch.looks, fetch.answers, other.answers, len(purgatory)) == ([], 0, 1, 0)

    run(dialogue)


def test_one_fetch_may_end_another_of_the_same_turn() -> None:
    """A connection that is closed while the woken fetches are looked at takes its own fetches with it."""

    async def dialogue(purgatory: Purgatory) -> None:
        log = new_log()
        second = Waiting(log)
        parked: list[DelayedFetch] = []

        class Closing(Waiting):
            def look(self, rows: Iterable[int]) -> bool:
                parked[1].cancel()
                return super().look(rows)

        parked.append(purgatory.park(Closing(log), max_wait_ms=FOREVER_MS))
        parked.append(purgatory.park(second, max_wait_ms=FOREVER_MS))
        purgatory.notify(log)
        await a_turn()
        assert (second.looks, second.answers, len(purgatory)) == ([], 0, 0)

    run(dialogue)


@pytest.mark.parametrize(("at_once", "size_bytes"), [(2, 0), (4, purgatory_module.BYTES_PER_LOG)])
def test_many_woken_fetches_take_several_turns(at_once: int, size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are answered in between: a hundred long answers, woken by one append, kept the loop for half a second."""
    monkeypatch.setattr(purgatory_module, "LOGS_AT_ONCE", at_once)

    async def dialogue(purgatory: Purgatory) -> None:
        log = new_log()
        fetches = [Waiting(log) for _ in range(5)]
        for fetch in fetches:
            fetch.size_bytes = size_bytes
            purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        purgatory.notify(log)
        answered = []
        for _ in range(4):
            await asyncio.sleep(0)
            answered.append(sum(fetch.answers for fetch in fetches))
        assert answered == [2, 4, 5, 5]

    run(dialogue)


def test_those_whose_time_is_over_together_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory_module, "LOGS_AT_ONCE", 2)

    async def dialogue(purgatory: Purgatory) -> None:
        fetches = [Waiting(new_log()) for _ in range(5)]
        for fetch in fetches:
            purgatory.park(fetch, max_wait_ms=0)
        answered: list[int] = []
        while not answered or answered[-1] < 5:
            await asyncio.sleep(0)
            answered.append(sum(fetch.answers for fetch in fetches))
        assert {later - earlier for earlier, later in pairwise(answered)} <= {0, 1, 2}

    run(dialogue)


def test_who_is_about_to_be_answered_is_when_the_broker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory_module, "LOGS_AT_ONCE", 1)

    async def dialogue(purgatory: Purgatory) -> None:
        has_begun = asyncio.Event()

        class First(Waiting):
            def answer(self) -> None:
                super().answer()
                has_begun.set()

        fetches = [First(new_log()), Waiting(new_log()), Waiting(new_log())]
        for fetch in fetches:
            purgatory.park(fetch, max_wait_ms=0)
        await has_begun.wait()
        purgatory.release_all()
        assert [fetch.answers for fetch in fetches] == [1, 1, 1]
        await a_turn()
        assert [fetch.answers for fetch in fetches] == [1, 1, 1]

    run(dialogue)


def test_everybody_is_answered_when_the_broker_stops() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log = new_log()
        fetches = [Waiting(log, looks_needed=99) for _ in range(3)]
        for fetch in fetches:
            purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        purgatory.release_all()
        assert [fetch.answers for fetch in fetches] == [1, 1, 1]
        assert len(purgatory) == 0

    run(dialogue)


def test_what_all_fetches_wait_for_is_bounded_and_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 fetches of one connection, 20,000 rows each, would hold a gigabyte for a minute."""
    monkeypatch.setattr(purgatory_module, "MOST_ROWS", 5)

    async def dialogue(purgatory: Purgatory) -> None:
        logs = [new_log() for _ in range(2)]
        first, second, third = (Waiting(*logs) for _ in range(3))
        for fetch in (first, second):
            purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        await a_turn()
        assert (first.answers, second.answers) == (0, 0)
        parked = purgatory.park(third, max_wait_ms=FOREVER_MS)
        await a_turn()
        assert (first.answers, second.answers, third.answers) == (1, 0, 0)
        # Who has gone leaves room.
        parked.cancel()
        purgatory.park(Waiting(*logs), max_wait_ms=FOREVER_MS)
        await a_turn()
        assert (second.answers, len(purgatory)) == (0, 2)
        # One that is too long by itself waits alone.
        long = Waiting(*(new_log() for _ in range(9)))
        purgatory.park(long, max_wait_ms=FOREVER_MS)
        await a_turn()
        assert (long.answers, len(purgatory)) == (0, 1)

    run(dialogue)


def test_news_of_a_member_end_the_wait_of_its_fetches_and_of_no_other() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        log = new_log()
        mine, again, others, nobodys = (Waiting(log) for _ in range(4))
        purgatory.park(mine, max_wait_ms=FOREVER_MS, member=("g", "a"))
        purgatory.park(again, max_wait_ms=FOREVER_MS, member=("g", "a"))
        purgatory.park(others, max_wait_ms=FOREVER_MS, member=("g", "b"))
        purgatory.park(nobodys, max_wait_ms=FOREVER_MS)
        purgatory.tell_member(("g", "a"))
        purgatory.tell_member(("g", "c"))
        # Behind the decision that made it so.
        assert mine.answers == 0
        await a_turn()
        assert [each.answers for each in (mine, again, others, nobodys)] == [1, 1, 0, 0]
        assert len(purgatory) == 2
        purgatory.release_all()
        assert not purgatory._by_member

    run(dialogue)


def test_fetch_of_a_member_that_is_gone_is_not_told() -> None:
    async def dialogue(purgatory: Purgatory) -> None:
        fetch = Waiting(new_log())
        parked = purgatory.park(fetch, max_wait_ms=FOREVER_MS, member=("g", "a"))
        purgatory.tell_member(("g", "a"))
        parked.cancel()
        await a_turn()
        assert fetch.answers == 0

    run(dialogue)


def test_fetch_leaves_the_logs_that_it_has_waited_for() -> None:
    """Also those that it has found to be deleted, or denied, when it was asked to look."""

    class Forgetful(Waiting):
        def look(self, rows: Iterable[int]) -> bool:
            self.logs = (None, *self.logs[1:])
            return super().look(rows)

    async def dialogue(purgatory: Purgatory) -> None:
        logs = [new_log(), new_log()]
        fetch = Forgetful(*logs)
        purgatory.park(fetch, max_wait_ms=FOREVER_MS)
        purgatory.notify(logs[0])
        await a_turn()
        assert (fetch.answers, len(purgatory), len(purgatory._by_log)) == (1, 0, 0)

    run(dialogue)
