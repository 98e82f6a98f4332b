"""The background thread on which a client's driver lives, and the queue by which the application talks to it.

Laws: the application thread never touches the loop, the machine or a socket; it posts events and waits for tickets.
A call after `stop`, or in a forked child, is a `StateError`; a call never waits for a thread that has ended.
Source: architecture rule 6; the consumer threading refactor (CTR).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Final, Generic, TypeVar

from kohort.client.io.driver import Driver, Machine
from kohort.client.io.farewell import enter, leave
from kohort.client.options import ClientSettings
from kohort.clock import SystemClock
from kohort.errors import KohortTimeoutError, StateError

E = TypeVar("E")
#: A wait looks up this often to see whether the I/O thread still runs.
_LOOK_UP_S: Final = 0.5


class IoThread(Generic[E]):
    """Owns the thread; starts it with the first event.

    Args:
        machine: run by the driver.
        settings: of the client.
        deliver: called on the I/O thread for each `Deliver`.
        what: for messages and the thread's name, e.g. "consumer".
        on_crash: called on the I/O thread if the machine had a bug.
        farewell: makes of a ticket and a deadline the event that ends the machine when nobody has closed the client;
            `None` for one that has nothing to finish.
    """

    def __init__(
        self,
        machine: Machine[E],
        settings: ClientSettings,
        *,
        deliver: Callable[[object], None],
        what: str,
        on_crash: Callable[[], None] = lambda: None,
        farewell: Callable[[Future[object], int], E] | None = None,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._deliver = deliver
        self._on_crash = on_crash
        self._farewell = farewell
        #: The client is being ended, since nobody has closed it; done with the thread at the latest.
        self._retirement: Future[object] | None = None
        self._is_unclosed_said = False
        self._what = what
        self._clock = SystemClock()
        self._inbox: deque[E] = deque()
        self._is_woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver[E] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._bug: BaseException | None = None
        self._pid = os.getpid()

    # -- the application's side -----------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the thread has started and not ended."""
        return self._thread is not None and not self._finished.is_set()

    def now_ms(self) -> int:
        """The driver's clock."""
        return self._clock.now_ms()

    def deadline_ms(self, timeout: float) -> int:
        """The instant `timeout` seconds from now, on the driver's clock."""
        return self._clock.now_ms() + int(timeout * 1000)

    def post(self, event: E) -> None:
        """Hand an event to the machine, without waiting.

        Raises:
            StateError: the thread has ended, or this process is a fork of the one that started it.
        """
        self.check()
        if self._thread is None:
            self._start()
        self._inbox.append(event)
        # One wake-up is enough for everything that is queued until the loop gets to it.
        if not self._is_woken:
            self._is_woken = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                self.check()
                raise

    def call(self, build: Callable[[Future[object]], E], timeout: float) -> object:
        """Post the event that `build` makes around a ticket, and wait for its end.

        Raises:
            KohortTimeoutError: no end within `timeout` seconds.
            KohortError: what the machine failed the ticket with.
        """
        ticket: Future[object] = Future()
        self.post(build(ticket))
        return self.wait(ticket, timeout)

    def wait(self, ticket: Future[object], timeout: float) -> object:
        """Wait for the end of a ticket that was posted; raises like `call`."""
        until = time.monotonic() + timeout
        while True:
            try:
                return ticket.result(max(0.0, min(_LOOK_UP_S, until - time.monotonic())))
            except FutureTimeoutError:
                if ticket.done():
                    return ticket.result()
                if time.monotonic() >= until:
                    raise KohortTimeoutError(f"the call did not finish within {timeout:g} s") from None
                self.check()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread; harmless if it never ran or has ended."""
        if self._thread is None or self._pid != os.getpid():
            return
        if self._loop is not None and not self._finished.is_set():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop_driver)
        self._thread.join(timeout)

    def join(self, timeout: float) -> bool:
        """Wait until the thread has ended by itself; whether it has."""
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def retire(self, seconds: float) -> Future[object] | None:
        """Have a client end that nobody has closed, without waiting for it.

        Returns:
            A ticket that ends with the client, after `seconds` at the latest; `None` if there is nothing to wait for.
        """
        if self._farewell is None or not self.is_running or self._pid != os.getpid():
            return None
        ticket: Future[object] = Future()
        self._retirement = ticket
        try:
            self.post(self._farewell(ticket, self.deadline_ms(seconds)))
        except (StateError, RuntimeError):
            return None
        return ticket

    def warn_unclosed(self) -> None:
        """Say what Python says of files and sockets that nobody has closed, if this was retired; once."""
        if self._retirement is None or self._is_unclosed_said:
            return
        self._is_unclosed_said = True
        text = f"a {self._what} was not closed: use it in a with statement, or call close()"
        warnings.warn(text, ResourceWarning, stacklevel=2)

    def check(self) -> None:
        """Raise `StateError` if nothing can be posted (any more)."""
        if self._pid != os.getpid():
            raise StateError(f"this {self._what} belongs to another process; create a new one after a fork")
        if self._bug is not None:
            raise StateError(f"this {self._what} has stopped after an internal error; create a new one") from self._bug
        if self._finished.is_set():
            raise StateError(f"this {self._what} is closed")

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            ready = threading.Event()
            thread = threading.Thread(target=self._main, args=(ready,), name=f"kohort-{self._what}", daemon=True)
            thread.start()
            ready.wait()
            self._thread = thread
            if self._farewell is not None:
                enter(self)

    # -- the I/O thread's side --------------------------------------------------------------------------------------

    def _main(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(ready))
        except RuntimeError:
            # A program that ends starts no thread any more, not even the one that the loop waits in for its others.
            if self._retirement is None:
                raise
        finally:
            leave(self)
            self._finished.set()
            ready.set()
            if self._retirement is not None and not self._retirement.done():
                self._retirement.set_result(None)
            if self._bug is not None:
                self._on_crash()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = self._loop.create_future()

        def on_stopped(bug: BaseException | None) -> None:
            self._bug = bug
            if not stopped.done():
                stopped.set_result(None)

        self._driver = Driver(
            self._machine, self._settings, clock=self._clock, deliver=self._deliver, on_stopped=on_stopped
        )
        ready.set()
        await stopped
        # Aborted transports report their end in the next rounds of the loop; then nothing is left open.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _drain(self) -> None:
        self._is_woken = False
        assert self._driver is not None
        while self._inbox:
            self._driver.handle(self._inbox.popleft())

    def _stop_driver(self) -> None:
        if self._driver is not None:
            self._driver.stop()
