"""Passes of the loop that many connections want for themselves: who goes on in which one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kohort.broker import scheduling as module
from kohort.broker.scheduling import LONG_BYTES_PER_PASS, FairQueue
from kohort.wire.registry import ApiKey

LONG = LONG_BYTES_PER_PASS


class Loud:
    """Notes its turns; asks for `more` of them, and may begin something long in each."""

    def __init__(self, name: str, passes: FairQueue, notes: list[str], *, more: int = 0, size: int = 0) -> None:
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
        self.loop = loop
        self.notes: list[str] = []
        self.passes = FairQueue(loop)

    def run(self, count: int) -> list[str]:
        """What was noted in each of so many passes, from now on."""
        found = []
        for _ in range(count):
            before = len(self.notes)
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
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


def test_records_are_read_in_a_pass_until_it_has_had_its_share(tally: Tally) -> None:
    """However many connections ask for them at once; in the order in which they asked."""

    def reader(name: str, size: int) -> Callable[[], None]:
        def begin() -> None:
            tally.notes.append(name)
            tally.passes.note_read(size)

        return begin

    for name in "abcde":
        tally.passes.read(reader(name, module.READ_BYTES_PER_PASS // 2))
    assert "".join(tally.notes) == "ab"
    tally.passes.read(reader("f", 0))
    assert tally.run(3) == ["cd", "ef", ""]


def test_reader_that_fails_holds_up_no_other(tally: Tally) -> None:
    def fail() -> None:
        raise ValueError("it cannot be read")

    told: list[str] = []
    tally.loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    tally.passes.note_read(module.READ_BYTES_PER_PASS)
    for begin in (fail, lambda: tally.notes.append("a")):
        tally.passes.read(begin)
    assert tally.run(3) == ["", "a", ""]
    assert told == ["it cannot be read"]


def test_records_wait_for_nobody(tally: Tally) -> None:
    assert tally.passes.may_begin(ApiKey.FETCH, 1 << 20)
    assert not tally.passes.may_begin(ApiKey.FETCH, module.SHORT_BYTES + 1)
    assert tally.passes.may_begin(ApiKey.PRODUCE, 1 << 20)
