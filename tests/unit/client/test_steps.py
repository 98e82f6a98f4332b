"""Methods of doors that are made of coroutines: the call waits where it stands, in a thread or on a loop."""

from __future__ import annotations

import _thread
import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from kohort.client.admin.admin_machine import AdminEvent, AdminMachine
from kohort.client.core.in_loop import InLoop
from kohort.client.core.thread import IoThread
from kohort.client.options import ADMIN_OPTIONS, client_settings
from kohort.client.steps import Pause, Wait, awaited, blocking, run, run_on_loop
from kohort.errors import KohortError, KohortTimeoutError

R = TypeVar("R")
HOUR_S = 3_600.0
SETTINGS = client_settings(ADMIN_OPTIONS.parse({"bootstrap.servers": "127.0.0.1:1"}), seed=1)


class Calls:
    """What both doors call."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    async def twice(self, number: int, *, others: int = 0) -> int:
        """Double a number.

        >>> Door().twice(2)
        4

        Raises:
            TypeError: it is none.
        """
        await Pause(0.0)
        ticket: Future[object] = Future()
        ticket.set_result(number)
        found = await Pause(HOUR_S, ticket)
        assert isinstance(found, int)
        return 2 * found + others

    async def fail(self) -> None:
        """Deal with one error, and raise another."""
        ticket: Future[object] = Future()
        ticket.set_exception(KohortError("first"))
        with pytest.raises(KohortError, match="first"):
            await Pause(HOUR_S, ticket)
        raise KohortError("second")

    async def wait(self, seconds: float, *, is_interrupted: bool = False) -> None:
        """Wait for a ticket that never ends."""
        try:
            if is_interrupted:
                threading.Thread(target=_thread.interrupt_main).start()
            await Pause(seconds, Future())
        finally:
            self.ends.append("wait")


class Door:
    """One that blocks."""

    twice = blocking(Calls.twice)
    fail = blocking(Calls.fail)
    wait = blocking(Calls.wait)

    def __init__(self) -> None:
        self._io: IoThread[AdminEvent] = IoThread(
            AdminMachine(SETTINGS), SETTINGS, deliver=lambda _: None, what="client"
        )
        self.calls = Calls()
        self._calls = {"Calls": self.calls}

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._wait)

    def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause)
        return None if wait.ticket is None else self._io.wait(wait.ticket, wait.seconds)


class AwaitedDoor:
    """One on a loop."""

    twice = awaited(Calls.twice)
    fail = awaited(Calls.fail)
    wait = awaited(Calls.wait)

    def __init__(self) -> None:
        self._io: InLoop[AdminEvent] = InLoop(AdminMachine(SETTINGS), SETTINGS, deliver=lambda _: None, what="client")
        self.calls = Calls()
        self._calls = {"Calls": self.calls}

    async def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return await run_on_loop(call, self._wait)

    async def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause)
        return None if wait.ticket is None else await self._io.wait(wait.ticket, wait.seconds)


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door()
    yield door
    door._io.stop()


def test_call_returns_what_its_coroutine_returns(door: Door) -> None:
    assert door.twice(4) == 8
    assert asyncio.run(AwaitedDoor().twice(4)) == 8


def test_method_tells_of_itself_as_the_call_does() -> None:
    """For `help`, editors and everybody who asks `inspect`; examples are those of the blocking door."""
    for method in (Door.twice, AwaitedDoor.twice):
        assert str(inspect.signature(method)) == "(self, number: 'int', *, others: 'int' = 0) -> 'int'"
        assert method.__name__ == "twice"
        assert (inspect.getdoc(method) or "").startswith("Double a number.\n\n")
        assert (inspect.getdoc(method) or "").endswith("Raises:\n    TypeError: it is none.")
    assert ">>> Door().twice(2)\n4\n" in (inspect.getdoc(Door.twice) or "")
    assert ">>>" not in (inspect.getdoc(AwaitedDoor.twice) or "")
    assert not inspect.iscoroutinefunction(Door.twice)
    assert inspect.iscoroutinefunction(AwaitedDoor.twice)


def test_arguments_that_do_not_fit_are_refused_in_the_words_of_the_call(door: Door) -> None:
    with pytest.raises(TypeError, match=r"^Calls\.twice\(\) got an unexpected keyword argument 'other'"):
        door.twice(1, other=2)  # type: ignore[call-arg]


def test_error_of_a_ticket_is_raised_where_the_call_waits(door: Door) -> None:
    """What the call raises when it has dealt with that has nothing of it."""
    with pytest.raises(KohortError, match="second") as raised:
        door.fail()
    assert raised.value.__context__ is None
    with pytest.raises(KohortError, match="second") as raised:
        asyncio.run(AwaitedDoor().fail())
    assert raised.value.__context__ is None


def test_ticket_that_does_not_end_is_given_up(door: Door) -> None:
    with pytest.raises(KohortTimeoutError, match=r"within 0\.01 s"):
        door.wait(0.01)
    assert door.calls.ends == ["wait"]


def test_interrupt_ends_the_call_where_it_waits(door: Door) -> None:
    """Ctrl-C: what the call has to put in order it puts in order."""
    with pytest.raises(KeyboardInterrupt):
        door.wait(HOUR_S, is_interrupted=True)
    assert door.calls.ends == ["wait"]


def test_cancellation_ends_the_call_where_it_waits() -> None:
    async def main() -> list[str]:
        door = AwaitedDoor()
        task = asyncio.create_task(door.wait(HOUR_S))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return door.calls.ends

    assert asyncio.run(main()) == ["wait"]
