"""Which threads are clients' own, and what must not be waited for on them: their callbacks would wait for themselves.

Laws: whoever may wait learns nothing of this; a future that another client ends may be waited for on any thread.
Source: `concurrent.futures` runs a future's callbacks where it is settled, so on a producer's own thread.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Final

from kohort.errors import StateError

#: Thread -> whether the client that it belongs to has to end a future itself.
_holders: Final[dict[int, Callable[[object], bool]]] = {}


def enter(holds: Callable[[object], bool]) -> None:
    """This thread is a client's own; `holds` is asked on it about futures that have no end yet."""
    _holders[get_ident()] = holds


def leave() -> None:
    """This thread ends."""
    _holders.pop(get_ident(), None)


def check_may_wait(future: object) -> None:
    """Raise `StateError` if this thread itself has to end that future, so that to wait for it would never end."""
    holds = _holders.get(get_ident())
    if holds is not None and holds(future):
        raise StateError(
            "this record is not stored yet, and callbacks of futures run on the thread that stores it: "
            "wait for it in a thread of yours, or use add_done_callback"
        )
