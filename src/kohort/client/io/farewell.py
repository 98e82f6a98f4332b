"""Clients that are still open when the program ends: producers flush, members leave their groups, in bounded time.

Laws: whoever closes its clients never comes by here. Everything happens before daemon threads stop (`atexit`), for all
clients at once; a second Ctrl-C ends it. A forked child says no farewell for its parent.
Source: a producer whose last records are lost without a word is what users of other clients run into first.
"""

from __future__ import annotations

import atexit
from concurrent.futures import Future, wait
from typing import Final, Protocol

#: All clients together have so long.
EXIT_SECONDS: Final = 5.0
#: After that, or after Ctrl-C, to say what is lost.
_LAST_WORDS_SECONDS: Final = 1.0


class Leaver(Protocol):
    """A client's thread."""

    def retire(self, seconds: float) -> Future[object] | None:
        """Have the client end by itself within `seconds`; `None` if it is over already."""
        ...

    def warn_unclosed(self) -> None:
        """`ResourceWarning`: somebody has forgotten to close it."""
        ...


_open: Final[set[Leaver]] = set()


def enter(leaver: Leaver) -> None:
    """From now on the end of the program is this one's, too."""
    # Again with each: the later it is registered, the earlier it runs, and a broker of this program may be younger.
    atexit.unregister(_on_exit)
    atexit.register(_on_exit)
    _open.add(leaver)


def leave(leaver: Leaver) -> None:
    """It has ended."""
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
