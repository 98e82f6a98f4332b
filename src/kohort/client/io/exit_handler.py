"""The exit of a program with open clients: producers flush and members leave, in bounded time.

Laws: a program that closes its clients is not affected. The exit comes before daemon threads stop (`atexit`), for all
clients at once. A second Ctrl-C ends it. A forked child does not close its parent's clients.
Source: a producer whose last records are lost without a word is what users of other clients run into first.
"""

from __future__ import annotations

import atexit
from concurrent.futures import Future, wait
from typing import Final, Protocol

#: Seconds that all clients together may take.
EXIT_SECONDS: Final = 5.0
#: Seconds after that, or after Ctrl-C, in which the clients say what is lost.
_LAST_WORDS_SECONDS: Final = 1.0


class Leaver(Protocol):
    """The thread of a client."""

    def retire(self, seconds: float) -> Future[object] | None:
        """Have the client end by itself within `seconds`; return `None` if it has ended already."""
        ...

    def warn_unclosed(self) -> None:
        """Raise a `ResourceWarning`: the program has not closed the client."""
        ...


_open: Final[set[Leaver]] = set()


def enter(leaver: Leaver) -> None:
    """Have the client end when the program does."""
    # Registered anew each time: the latest registration runs first, and this program's broker may be younger.
    atexit.unregister(_on_exit)
    atexit.register(_on_exit)
    _open.add(leaver)


def leave(leaver: Leaver) -> None:
    """Remove a client that has ended."""
    _open.discard(leaver)


def _on_exit() -> None:
    leavers = list(_open)
    try:
        _wait([leaver.retire(EXIT_SECONDS) for leaver in leavers], EXIT_SECONDS + _LAST_WORDS_SECONDS)
    except KeyboardInterrupt:
        _wait([leaver.retire(0.0) for leaver in leavers], _LAST_WORDS_SECONDS)
    for leaver in leavers:
        leaver.warn_unclosed()


def _wait(tickets: list[Future[object] | None], seconds: float) -> None:
    wait([ticket for ticket in tickets if ticket is not None], seconds)
