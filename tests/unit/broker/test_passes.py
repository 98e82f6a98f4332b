"""Passes of the loop that many connections want for themselves: who goes on in which one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kohort.broker.turns import passes as module
from kohort.broker.turns.passes import LONG_BYTES_PER_PASS, Passes
from kohort.wire.registry import ApiKey

LONG = LONG_BYTES_PER_PASS


class Loud:
    """Notes its turns; asks for `more` of them, and may begin something long in each."""

    def __init__(self, name: str, passes: Passes, notes: list[str], *, more: int = 0, size: int = 0) -> None:
        self._name = name
        self._passes = passes
        self._notes = notes
        self._more = more
        self._size = size

    def take_turn(self) -> None:
        if self._size and not self._passes.may_begin(ApiKey.FETCH, self._size):
            self._passes.ask(self)
            return
        self._notes.append(self._name)
        if self._more:
            self._more -= 1
            self._passes.ask(self)


class Tally:
    """What was noted in each pass."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.notes: list[str] = []
        self.passes = Passes(loop)

    def run(self, count: int) -> list[str]:
        """What was noted in each of so many passes, from now on."""
        found = []
        for _ in range(count):
            before = len(self.notes)
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
            found.append("".join(self.notes[before:]))
        return found


@pytest.fixture
def tally() -> Iterator[Tally]:
    loop = asyncio.new_event_loop()
    yield Tally(loop)
    loop.close()


def test_who_asks_goes_on_in_the_next_pass_in_order(tally: Tally) -> None:
    for name in "abc":
        tally.passes.ask(Loud(name, tally.passes, tally.notes, more=1))
    assert tally.run(3) == ["abc", "abc", ""]


def test_pass_ends_when_its_time_is_over(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had no turn has the first of the next pass."""
    monkeypatch.setattr(module, "PASS_SECONDS", 0.0)
    tally.passes.ask(Loud("a", tally.passes, tally.notes, more=2))
    tally.passes.ask(Loud("b", tally.passes, tally.notes))
    assert tally.run(5) == ["a", "b", "a", "a", ""]


def test_long_requests_of_many_connections_wait_for_later_passes(tally: Tally) -> None:
    """One in a pass, or as many as are not too long together; in the order in which they came."""
    for name in "abc":
        tally.passes.ask(Loud(name, tally.passes, tally.notes, size=LONG))
    tally.passes.ask(Loud("s", tally.passes, tally.notes))
    assert tally.run(4) == ["as", "b", "c", ""]
    for name in "abcde":
        tally.passes.ask(Loud(name, tally.passes, tally.notes, size=LONG // 2))
    assert tally.run(4) == ["ab", "cd", "e", ""]


def test_records_wait_for_nobody(tally: Tally) -> None:
    assert tally.passes.may_begin(ApiKey.FETCH, 1 << 20)
    assert not tally.passes.may_begin(ApiKey.FETCH, module.SHORT_BYTES + 1)
    assert tally.passes.may_begin(ApiKey.PRODUCE, 1 << 20)
