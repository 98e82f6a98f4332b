"""The background thread on which a client's driver lives, and the queue by which the application talks to it.

Laws: the application thread never touches the loop, the machine or a socket; it posts events and waits for tickets.
A call after `stop`, or in a forked child, raises `StateError`. A call never waits for a thread that has ended, nor a
thread for itself: a call that waits is refused in callbacks of futures, which run on this thread.
Source: architecture rule 6; the consumer threading refactor (CTR).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kohort.client.core import own_threads
from kohort.client.core.host import Host
from kohort.client.options import ClientSettings
from kohort.errors import KohortTimeoutError, StateError

if TYPE_CHECKING:
    import asyncio

    from kohort.client.core.driver import Machine


E = TypeVar("E")
#: A wait looks up this often to see whether the I/O thread still runs.
_LOOK_UP_S: Final = 0.5


class IoThread(Host[E]):
    """A host that runs its machine on a background thread, started with the first event.

    Args:
        shared: the other arguments of `Host`; its functions run on this thread.
    """

    def __init__(
        self,
        machine: Machine[E],
        settings: ClientSettings,
        *,
        holds: Callable[[object], bool] = lambda _: False,
        **shared: Any,
    ) -> None:
        super().__init__(machine, settings, **shared)
        #: Returns whether a future is one that this client has to end itself; see `own_threads`.
        self._holds = holds
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._finished = threading.Event()

    # -- the application's side -----------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the thread has started and not ended."""
        return self._thread is not None and not self._finished.is_set()

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
        elif self._finished.is_set():
            self.check()

    def call(self, build: Callable[[Future[object]], E], timeout: float) -> object:
        """Post the event that `build` makes with a ticket, and return the ticket's result.

        Raises:
            KohortTimeoutError: the ticket has not ended within `timeout` seconds.
            StateError: called on this thread, so in a future's callback; nothing was posted.
            KohortError: the error with which the machine has ended the ticket.
        """
        self.check_may_wait()
        ticket: Future[object] = Future()
        self.post(build(ticket))
        return self.wait(ticket, timeout)

    def wait(self, ticket: Future[object], timeout: float) -> object:
        """Wait for a posted ticket and return its result; errors are those of `call`."""
        self.check_may_wait()
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

    def check_may_wait(self) -> None:
        """Raise `StateError` on this very thread, which would wait for itself."""
        if self._thread is threading.current_thread():
            raise StateError(
                f"this call waits for the {self._what}'s own thread, and callbacks of futures run on that thread: "
                "make the call from a thread of yours"
            )

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread; harmless if it never ran or has ended."""
        if self._thread is None or self._pid != os.getpid():
            return
        self.check_may_wait()
        if self._loop is not None and not self._finished.is_set():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop_driver)
        self._thread.join(timeout)

    def join(self, timeout: float) -> bool:
        """Wait until the thread has ended by itself; return whether it has."""
        if self._thread is not None and self._pid == os.getpid():
            self.check_may_wait()
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def check(self) -> None:
        """Raise `StateError` if nothing can be posted (any more)."""
        self._check_process()
        if self._bug is not None or self._finished.is_set():
            raise self._refusal()

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
        import asyncio

        own_threads.enter(self._holds)
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(ready))
        except RuntimeError:
            # A program that ends starts no thread any more, not even the one that the loop waits in for its others.
            if self._retirement is None:
                raise
        except SystemExit:
            # Out of a callback; it ends this thread, and the log and every call say why.
            pass
        finally:
            own_threads.leave()
            leave(self)
            self._finished.set()
            ready.set()
            # The loop is over, and so is the driver: it refuses what has come too late for it.
            self._drain()

    async def _serve(self, ready: threading.Event) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = self._loop.create_future()
        self._driver = self._build_driver(lambda: stopped.set_result(None))
        ready.set()
        await stopped
        # Aborted transports report their end in the next rounds of the loop; then nothing is left open.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _drain(self) -> None:
        self._is_woken = False
        while self._inbox and self._driver is not None:
            self._driver.handle(self._inbox.popleft())

    def _stop_driver(self) -> None:
        if self._driver is not None:
            self._driver.stop()


# A program that ends with open clients: producers flush and members leave, in bounded time and all at once. The exit
# comes before daemon threads stop (`atexit`). A second Ctrl-C ends it. A forked child closes no client of its parent.

#: Seconds that all clients together may take.
EXIT_SECONDS: Final = 5.0
#: Seconds after that, or after Ctrl-C, in which the clients say what is lost.
_LAST_WORDS_SECONDS: Final = 1.0


_open: Final[set[IoThread[Any]]] = set()


def enter(thread: IoThread[Any]) -> None:
    """Register a client to be closed when the program exits."""
    # Registered anew each time: the latest registration runs first, and this program's broker may be younger.
    atexit.unregister(_on_exit)
    atexit.register(_on_exit)
    _open.add(thread)


def leave(thread: IoThread[Any]) -> None:
    """Unregister a client that has ended."""
    _open.discard(thread)


def _on_exit() -> None:
    threads = list(_open)
    try:
        _wait([thread.retire(EXIT_SECONDS) for thread in threads], EXIT_SECONDS + _LAST_WORDS_SECONDS)
    except KeyboardInterrupt:
        _wait([thread.retire(0.0) for thread in threads], _LAST_WORDS_SECONDS)
    for thread in threads:
        thread.warn_unclosed()


def _wait(tickets: list[Future[object] | None], seconds: float) -> None:
    wait([ticket for ticket in tickets if ticket is not None], seconds)
