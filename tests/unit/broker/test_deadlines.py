"""Deadlines are fair to a process that stood still, and to clients whose bytes are already here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from kohort.base.clock import SystemClock
from kohort.broker.groups.deadlines import GAP_MS, Deadlines

PATIENCE_SECONDS = 10.0
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class JumpingClock(SystemClock):
    """The real clock, which a test can set forward: to the loop that looks like having stood still."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0
        self.set_ms = 0

    @property
    def stepped_ms(self) -> int:
        return super().stepped_ms + self.set_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms + self.set_ms


class Watched:
    """Deadlines of a shard with one timer, and what happened."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.deadline_ms: int | None = None
        self.story: list[tuple[str, int]] = []
        self._something = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(loop, self.clock, on_due=self._on_due, on_gap=self._on_gap, on_step=self._on_step)

    def arm(self, in_ms: int) -> None:
        now_ms = self.clock.now_ms()
        self.deadline_ms = now_ms + in_ms
        self.deadlines.watch(self.deadline_ms, now_ms)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not happened():
                self._something.clear()
                await self._something.wait()

    def note(self, what: str, value: int = 0) -> None:
        self.story.append((what, value))
        self._something.set()

    def _on_due(self, now_ms: int) -> int | None:
        if self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.note("due", now_ms - self.deadline_ms)
            self.deadline_ms = None
        return self.deadline_ms

    def _on_gap(self, gap_ms: int, what: str = "gap") -> None:
        if self.deadline_ms is not None:
            self.deadline_ms += gap_ms
        self.note(what, gap_ms)

    def _on_step(self, by_ms: int) -> None:
        self._on_gap(by_ms, "step")


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Watched], Awaitable[None]]], None]:
    """Run a dialogue on each kind of loop."""

    def run(dialogue: Callable[[Watched], Awaitable[None]]) -> None:
        async def main() -> None:
            watched = Watched()
            try:
                await dialogue(watched)
            finally:
                watched.deadlines.stop()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())

    return run


Run = Callable[[Callable[[Watched], Awaitable[None]]], None]


def test_a_deadline_fires_when_it_is_due(run: Run) -> None:
    async def dialogue(watched: Watched) -> None:
        watched.arm(20)
        await watched.until(lambda: bool(watched.story))
        ((what, late_ms),) = watched.story
        assert what == "due" and 0 <= late_ms < GAP_MS

    run(dialogue)


def test_an_earlier_deadline_is_not_kept_waiting_by_a_later_one(run: Run) -> None:
    async def dialogue(watched: Watched) -> None:
        watched.arm(60_000)
        watched.arm(10)
        await watched.until(lambda: bool(watched.story))
        assert watched.story[0][0] == "due"

    run(dialogue)


def test_a_gap_of_the_loop_shifts_deadlines_before_any_of_them_fires(run: Run) -> None:
    """Architecture rule 17: a process that stood still fences nobody."""

    async def dialogue(watched: Watched) -> None:
        watched.arm(50)
        watched.clock.ahead_ms += 10_000
        await watched.until(lambda: len(watched.story) == 2)
        (first, gap_ms), (second, _) = watched.story
        assert (first, second) == ("gap", "due")
        assert 10_000 <= gap_ms < 11_000

    run(dialogue)


def test_a_gap_before_a_distant_deadline_is_noticed_too(run: Run) -> None:
    """Otherwise a session of 45 s would lose the minute that a laptop's lid was closed."""

    async def dialogue(watched: Watched) -> None:
        watched.arm(45_000)
        watched.clock.ahead_ms += 60_000
        await watched.until(lambda: bool(watched.story))
        assert watched.story[0][0] == "gap"
        assert watched.deadline_ms is not None and watched.deadline_ms > watched.clock.now_ms()

    run(dialogue)


@pytest.mark.parametrize("by_ms", [7_200_000, -7_200_000])
def test_clock_that_is_set_takes_deadlines_along_and_is_no_gap(run: Run, by_ms: int) -> None:
    async def dialogue(watched: Watched) -> None:
        watched.arm(50)
        watched.clock.set_ms += by_ms
        await watched.until(lambda: len(watched.story) == 2)
        (first, stepped_ms), (second, late_ms) = watched.story
        assert (first, stepped_ms, second) == ("step", by_ms, "due")
        assert 0 <= late_ms < GAP_MS

    run(dialogue)


def test_bytes_that_are_here_are_read_before_a_deadline_fires(run: Run) -> None:
    """A heartbeat that waits in the socket must not lose against its own session timeout."""

    async def dialogue(watched: Watched) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            asyncio.get_running_loop().add_reader(ours, lambda: watched.note("read", len(ours.recv(10))))
            watched.arm(30)
            # The loop is busy until after the deadline; the heartbeat comes meanwhile.
            theirs.send(b"heartbeat")
            busy_until = watched.clock.now_ms() + 60
            while watched.clock.now_ms() < busy_until:
                pass
            await watched.until(lambda: len(watched.story) == 2)
            asyncio.get_running_loop().remove_reader(ours)
            assert [what for what, _ in watched.story] == ["read", "due"]

    run(dialogue)


def test_nothing_fires_after_a_stop(run: Run) -> None:
    async def dialogue(watched: Watched) -> None:
        watched.arm(5)
        watched.deadlines.stop()
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, done.set)
        await done.wait()
        assert watched.story == []

    run(dialogue)
