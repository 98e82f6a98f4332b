"""The clients' own threads, on which a callback must not wait for a future that the thread itself completes.

Laws: other threads are not affected. A future that another client completes may be waited for on any thread.
Source: `concurrent.futures` runs a future's callbacks where it is completed, so on a producer's own thread.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Final

from kohort.errors import StateError

#: Thread -> function that returns whether its client has to complete a given future itself.
_holders: Final[dict[int, Callable[[object], bool]]] = {}


def enter(holds: Callable[[object], bool]) -> None:
    """Register this thread as a client's own; `holds` returns whether the client has to complete a given future."""
    _holders[get_ident()] = holds


def leave() -> None:
    """Unregister this thread before it ends."""
    _holders.pop(get_ident(), None)


def check_may_wait(future: object) -> None:
    """Raise `StateError` if this thread itself has to complete that future, so that a wait would never end."""
    holds = _holders.get(get_ident())
    if holds is not None and holds(future):
        raise StateError(
            "this record is not stored yet, and callbacks of futures run on the thread that stores it: "
            "wait for it in a thread of yours, or use add_done_callback"
        )
