"""A request that its client sends again and again, word for word: a settled member's heartbeat.

What was read of it once need not be read again, and its answer is there. A connection keeps the last such request;
the next one that differs from it in the correlation id alone is answered by `Renew`.

Laws: a repeat is carried out and answered exactly as if it were read anew, or not at all, and then it is read anew.
Whether the answer still holds is asked each time: nothing has to be told that a repeat is kept. One is kept of a
connection, of at most `LONGEST_REPEAT_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kohort.broker.dispatch import Route

#: Longer ones are not kept: an ordinary heartbeat has about 120 bytes.
LONGEST_REPEAT_BYTES: Final = 1024
#: Where the correlation id stands in a request, between its API and its client id.
_ID_AT: Final = 4
_ID_END: Final = 8

#: Carries the request out once more: the body of the answer, `None` if it has to be read anew.
Renew = Callable[[], "bytes | None"]


class Repeat:
    """One request of a connection, without its correlation id, and what answers it."""

    __slots__ = ("_head", "_tail", "renew", "route")

    def __init__(self, frame: memoryview, route: Route, renew: Renew) -> None:
        self._head: Final = bytes(frame[:_ID_AT])
        self._tail: Final = bytes(frame[_ID_END:])
        self.route: Final = route
        self.renew: Final = renew

    def is_same(self, frame: memoryview) -> bool:
        """Whether `frame` is this request, whatever its correlation id."""
        return frame[_ID_END:] == self._tail and frame[:_ID_AT] == self._head
