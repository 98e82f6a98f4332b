"""The host of a client's machine: a thread of its own, or the application's event loop.

Laws: a client only posts events and waits for tickets. Every posted ticket ends, at the latest with the host. A call
after the end, or in a forked child, raises `StateError`, which names the cause if the machine has failed.
Source: architecture rule 6; the consumer threading refactor (CTR).
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

from kohort.base.clock import ElapsedClock
from kohort.client.metrics import Traffic
from kohort.client.options import ClientSettings
from kohort.errors import StateError
from kohort.records.kernel_form import log_kernels

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from kohort.client.core.driver import Driver, Machine


E = TypeVar("E")
#: Makes the event that ends a machine, from a `ticket` and a `deadline_ms`.
Farewell = Callable[..., E]


def refuse_copies(client: object) -> NoReturn:
    """Refuse to pickle or copy a client, whose connections belong to this process; the `__reduce__` of clients."""
    raise TypeError(
        f"{type(client).__name__} cannot be pickled or copied: its connections are those of this process. "
        "Make one where it is used, of the same options"
    )


class Host(ABC, Generic[E]):
    """The base of both hosts, the thread and the event loop.

    Args:
        counts_sleep: whether deadlines pass while the computer sleeps, as the session of a member does at the broker.
    """

    def __init__(
        self,
        machine: Machine[E],
        settings: ClientSettings,
        *,
        deliver: Callable[[object], None],
        what: str,
        on_crash: Callable[[StateError], None] = lambda _: None,
        farewell: Farewell[E] | None = None,
        counts_sleep: bool = False,
    ) -> None:
        log_kernels()
        self._machine = machine
        self._settings = settings
        #: Called where the machine runs, for each `Deliver`.
        self._deliver = deliver
        #: Called where the machine runs, with the error for the application's calls, if the machine has failed.
        self._on_crash = on_crash
        #: Makes the event that ends the machine of a client that the application has not closed; `None`: it has nothing
        #: to finish.
        self._farewell = farewell
        self._what = what
        self._clock = ElapsedClock(counts_sleep=counts_sleep)
        #: What goes over its connections, counted.
        self.traffic: Final = Traffic(self._clock)
        self._pid = os.getpid()
        self._driver: Driver[E] | None = None
        #: Why the machine has failed; `None` while it has not.
        self._bug: BaseException | None = None
        #: Ends with a client that the application has not closed, with the host at the latest; `None`: it goes on.
        self._retirement: Future[object] | None = None
        self._is_unclosed_said = False
        #: Events that were posted and not handed to the driver yet; whether the loop knows of them.
        self._inbox: deque[E] = deque()
        self._is_woken = False
        self._loop: AbstractEventLoop | None = None

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the host has started and not ended."""

    @abstractmethod
    def post(self, event: E) -> None:
        """Pass an event to the machine, without waiting; the first event starts the host.

        Raises:
            StateError: as `check`.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise `StateError` if nothing can be posted (any more)."""

    def now_ms(self) -> int:
        """Return the time of the driver's clock."""
        return self._clock.now_ms()

    def deadline_ms(self, timeout: float) -> int:
        """Return the instant `timeout` seconds from now, on the driver's clock."""
        return self._clock.now_ms() + int(timeout * 1000)

    def raise_failure(self) -> None:
        """Raise `StateError` with the cause if the machine has failed, but not if it was closed."""
        if self._bug is not None:
            raise self._refusal()

    def retire(self, seconds: float) -> Future[object] | None:
        """Begin to close a client that the application has dropped without `close`; do not wait for it.

        Returns:
            A ticket that ends with the client, after `seconds` at the latest; `None` if the client needs no closing.
        """
        if self._farewell is None or not self.is_running or self._pid != os.getpid():
            return None
        ticket: Future[object] = Future()
        self._retirement = ticket
        try:
            self.post(self._farewell(ticket=ticket, deadline_ms=self.deadline_ms(seconds)))
        except (StateError, RuntimeError):
            self._retirement = None
            return None
        return ticket

    def warn_unclosed(self) -> None:
        """Issue one `ResourceWarning` for a client that was not closed, as Python does for unclosed sockets."""
        if self._retirement is None or self._is_unclosed_said:
            return
        self._is_unclosed_said = True
        text = f"a {self._what} was not closed: use it in a with statement, or call close()"
        warnings.warn(text, ResourceWarning, stacklevel=2)

    # -- for hosts ----------------------------------------------------------------------------------------------------

    def _build_driver(self, on_stopped: Callable[[], None]) -> Driver[E]:
        """Build the driver on the running loop; the driver calls `on_stopped` once, when it stops."""
        from kohort.client.core.driver import Driver

        def note_end(bug: BaseException | None) -> None:
            self._bug = bug
            if self._retirement is not None and not self._retirement.done():
                self._retirement.set_result(None)
            try:
                if bug is not None:
                    self._on_crash(self._refusal())
            finally:
                on_stopped()

        return Driver(
            self._machine,
            self._settings,
            clock=self._clock,
            traffic=self.traffic,
            deliver=self._deliver,
            on_stopped=note_end,
            refusal=self._refusal,
        )

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise StateError(f"this {self._what} belongs to another process; create a new one after a fork")

    def _refusal(self) -> StateError:
        """Build the error of a call after the end of the host."""
        if self._bug is None:
            return StateError(f"this {self._what} is closed")
        cause = f"{type(self._bug).__name__}: {self._bug}".removesuffix(": ")
        error = StateError(f"this {self._what} has stopped after an internal error ({cause}); create a new one")
        error.__cause__ = self._bug
        return error
