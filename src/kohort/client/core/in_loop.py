"""A client's driver on the application's event loop: no thread, and no wait other than `await`.

Laws: everything happens on one loop, the one that ran at the first event; a call from elsewhere raises `StateError`. An
event is handled in a later iteration of the loop, never inside the call that posts it. Cancelling a call affects
nothing else.
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
    """A host that runs its machine on the running loop, from the first event on; arguments as for `Host`."""

    #: Done when the driver has ended; made with it.
    _ended: asyncio.Event
    _last_round: AsyncGenerator[None, None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the host has started and not ended, and its loop is not closed."""
        return self._loop is not None and not self._ended.is_set() and not self._loop.is_closed()

    def post(self, event: E) -> None:
        """Pass an event to the machine, which handles it in the loop's next iteration.

        Raises:
            StateError: the host has ended, or runs on another loop.
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
        """Post the event that `build` makes with a ticket, and return the result; cancelling ends the wait only.

        Raises:
            KohortTimeoutError: the ticket has not ended within `timeout` seconds.
            KohortError: the error with which the machine has ended the ticket.
        """
        ticket: Future[object] = Future()
        self.post(build(ticket))
        return await self.wait(ticket, timeout)

    async def wait(self, ticket: Future[object], timeout: float) -> object:
        """Wait for a posted ticket and return its result; errors are those of `call`."""
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
        """Stop the driver at once, if it runs; connections are closed in the loop's next iterations."""
        if self._driver is not None and self.is_running:
            self._check_place()
            self._driver.stop()

    async def join(self, timeout: float) -> bool:
        """Wait until the host has ended by itself and its connections are closed; return whether it has."""
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
        """Raise `StateError` if nothing can be posted (any more), or not from this loop."""
        self._check_process()
        if self._bug is not None or (self._loop is not None and self._ended.is_set()):
            raise self._refusal()
        self._check_place()

    def warn_unclosed(self) -> None:
        """Issue one `ResourceWarning` for a client that was not closed, as Python does for unclosed sockets."""
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
    """Lets the loop's other tasks run while a task calls a client that never has to wait."""

    def __init__(self) -> None:
        self._last_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether other tasks have not run for 5 ms.

        Checked for each record: a coroutine would take longer.
        """
        return time.monotonic() - self._last_s >= _ROUND_S

    async def let_others_run(self) -> None:
        """Let the other tasks run once."""
        await asyncio.sleep(0)
        self._last_s = time.monotonic()
