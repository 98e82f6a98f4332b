"""A client's driver on the loop of the application: no thread, and nothing is ever waited for but by `await`.

Laws: everything happens on one loop, the one that ran at the first event; a call from elsewhere is a `StateError`. An
event is handled in a round of the loop of its own, never inside the call that posts it. A call that is cancelled is
given up, and nothing else is.
Source: architecture rule 6; what native asyncio clients promise.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeVar

from kohort.client.core.host import Host
from kohort.errors import KohortError, KohortTimeoutError, StateError

E = TypeVar("E")
#: Seconds that a client takes at most to end with its loop, if the application has not closed it.
_FAREWELL_S: Final = 5.0


class InLoop(Host[E]):
    """Runs a machine on the running loop; starts with the first event. Arguments as those of `Host`."""

    #: Done when the driver has ended; made with it.
    _ended: asyncio.Event
    _last_round: AsyncGenerator[None, None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended, and the loop is there."""
        return self._loop is not None and not self._ended.is_set() and not self._loop.is_closed()

    def post(self, event: E) -> None:
        """Hand an event to the machine; it is handled in the loop's next round.

        Raises:
            StateError: it has ended, or this is not the loop that it runs on.
        """
        self.check()
        if self._driver is None:
            self._start()
        self._inbox.append(event)
        if not self._is_woken:
            self._is_woken = True
            assert self._loop is not None
            self._loop.call_soon(self._drain)

    async def call(self, build: Callable[[Future[object]], E], timeout: float) -> object:
        """Post the event that `build` makes around a ticket, and wait for its end; cancelled, only the wait ends.

        Raises:
            KohortTimeoutError: no end within `timeout` seconds.
            KohortError: what the machine failed the ticket with.
        """
        ticket: Future[object] = Future()
        self.post(build(ticket))
        return await self.wait(ticket, timeout)

    async def wait(self, ticket: Future[object], timeout: float) -> object:
        """Wait for the end of a ticket that was posted; raises like `call`."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        ticket.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        if not ticket.done():
            # Not wait_for: before Python 3.12 it forgets a cancellation that comes together with the end.
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await ended.wait()
        if not ticket.done():
            raise KohortTimeoutError(f"the call did not finish within {timeout:g} s")
        return ticket.result()

    def stop(self, timeout: float = 5.0) -> None:
        """End it at once; harmless if it never ran or has ended. What is open is closed in the loop's next rounds."""
        if self._driver is not None and self.is_running:
            self._check_place()
            self._driver.stop()

    async def join(self, timeout: float) -> bool:
        """Wait until it has ended by itself, and nothing of it is open; whether it has."""
        if self.is_running:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._ended.wait()
        if self.is_running:
            return False
        if self._last_round is not None:
            await self._last_round.aclose()
        await self._settle()
        return True

    def check(self) -> None:
        """Raise `StateError` if nothing can be posted (any more), or not from here."""
        self._check_process()
        if self._bug is not None or (self._loop is not None and self._ended.is_set()):
            raise self._refusal()
        self._check_place()

    def warn_unclosed(self) -> None:
        """Raise a `ResourceWarning`, once, if it has started and not ended, as Python does for unclosed sockets."""
        if self._loop is None or self._ended.is_set() or self._is_unclosed_said:
            return
        self._is_unclosed_said = True
        text = f"a {self._what} was not closed: use it in an async with statement, or await close()"
        warnings.warn(text, ResourceWarning, stacklevel=2)

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _check_place(self) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            raise StateError(f"this {self._what} works on an event loop only: call it in a coroutine") from None
        if self._loop is not None and self._loop is not here:
            raise StateError(f"this {self._what} belongs to another event loop; create one for each loop")

    def _start(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._driver = self._build_driver(self._ended.set)
        self._last_round = self._await_the_end()
        with suppress(StopIteration):
            # Runs to its yield without a pause: from there on the loop knows it, and closes it at its own end.
            self._last_round.__anext__().send(None)

    async def _await_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self.is_running:
                self.warn_unclosed()
                await self._say_farewell()
                self.stop()
                await self._settle()

    async def _say_farewell(self) -> None:
        farewell = self._farewell
        if farewell is not None:
            with suppress(KohortError):
                await self.call(
                    lambda ticket: farewell(ticket=ticket, deadline_ms=self.deadline_ms(_FAREWELL_S)), _FAREWELL_S
                )

    async def _settle(self) -> None:
        # Aborted transports and cancelled tasks report their end in the loop's next rounds.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _drain(self) -> None:
        self._is_woken = False
        assert self._driver is not None
        while self._inbox:
            self._driver.handle(self._inbox.popleft())


#: Seconds between two rounds: a task that takes ready records, or sends without a wait, awaits nothing by itself.
_ROUND_S: Final = 0.005


class Rounds:
    """The rounds that one client gives to the loop's other tasks, while it goes on and on and awaits nothing."""

    def __init__(self) -> None:
        self._last_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last round is some time ago.

        Looked at for each record: a coroutine would cost more.
        """
        return time.monotonic() - self._last_s >= _ROUND_S

    async def let_others_run(self) -> None:
        """Give the loop a round."""
        await asyncio.sleep(0)
        self._last_s = time.monotonic()
