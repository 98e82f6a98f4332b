"""Delayed responses that end when their clients lose the right to them.

A request that waits says what it needs by `Request.on_rights`, which is called when rights have changed. Requests of
a group's members need the right to read the group until they are answered.

Laws: every connection whose rights are restricted is examined after each change, some in each turn of the loop; one
that may do everything is not. A request that is refused is answered once, and the coordinator does not keep it.
Source: a right that is taken away ends what is under way within 100 ms; Apache Kafka asks when a request comes, and
never again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from typing import Final, Protocol

from kohort.broker.access.rights import Rights
from kohort.broker.connections.request import Request
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.schema import Message

log = logging.getLogger("kohort.broker.access")

#: Connections that are examined in one turn of the loop; to refuse what waits there takes some 50 us.
EXAMINED_AT_ONCE: Final = 100


def watch_group_right(
    request: Request, group_id: str, refusal: Message, on_refused: Callable[[], object] = lambda: None
) -> None:
    """Have a waiting request answered with `refusal` as soon as its client may not read the group any more."""
    if request.rights.is_restricted:
        # It has not the request itself: such a circle would stay until the garbage collector runs.
        request.on_rights = partial(_examine, group_id, refusal, on_refused)


def _examine(group_id: str, refusal: Message, on_refused: Callable[[], object], request: Request) -> None:
    if request.is_open and not request.rights.allows(AclOperation.READ, ResourceType.GROUP, group_id):
        # Answered first: what the coordinator says to the end of it is no answer any more.
        request.on_abandon = None
        request.answer(refusal)
        on_refused()


class Examined(Protocol):
    """A connection, as the examination sees it."""

    #: What the principal may do.
    rights: Rights

    @property
    def peer(self) -> str:
        """The client's address and port, for logs."""

    def abort(self) -> None:
        """Close without waiting for the client."""

    def examine_rights(self) -> None:
        """End the delayed responses whose clients have lost the right to them."""


class RightsExamination:
    """The examination of all connections after a change of rights."""

    __slots__ = ("_connections", "_due", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Collection[Examined]) -> None:
        self._loop: Final = loop
        self._connections: Final = connections
        #: Connections that are to be examined, the longest waiting first.
        self._due: Final[dict[Examined, None]] = {}

    def begin(self) -> None:
        """Examine every connection with restricted rights, the first ones now."""
        is_under_way = bool(self._due)
        # Those that wait already keep their places: changes that follow each other hold up none.
        self._due.update((each, None) for each in self._connections if each.rights.is_restricted)
        if not is_under_way:
            self._go_on()

    def _go_on(self) -> None:
        # Taken together: to look for the first one behind those that were taken out costs as much as all of them.
        for connection in list(islice(self._due, EXAMINED_AT_ONCE)):
            del self._due[connection]
            try:
                connection.examine_rights()
            except Exception:
                # What it has under way may be what was taken away: it ends, and the others are examined.
                log.exception("event=examination_failed peer=%s action=close", connection.peer)
                connection.abort()
        if self._due:
            self._loop.call_soon(self._go_on)
