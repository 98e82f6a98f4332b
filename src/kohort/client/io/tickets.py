"""The tickets of calls that have not ended: each ends once, by the machine or with the driver.

Laws: whoever has given a call up is not told; nothing breaks by it. Those that came first end first.
Source: architecture rule 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from typing import Final, Protocol

_LOG: Final = logging.getLogger("kohort.client")


class Ticket(Protocol):
    """Where the end of a call goes."""

    def set_result(self, result: object, /) -> None:
        """The call is done."""
        ...

    def set_exception(self, exception: BaseException | None, /) -> None:
        """The call has failed."""
        ...


class Tickets:
    """Those that a machine was given."""

    def __init__(self) -> None:
        #: By identity: a ticket need not be hashable.
        self._open: dict[int, Ticket] = {}

    def note(self, event: object) -> None:
        """The machine takes an event, which may bring a ticket."""
        ticket: Ticket | None = getattr(event, "ticket", None)
        if ticket is not None:
            self._open[id(ticket)] = ticket

    def end(self, ticket: object, value: object, error: Exception | None) -> None:
        """The machine has ended a ticket, well if `error` is `None`."""
        self._open.pop(id(ticket), None)
        _settle(ticket, value, error)  # type: ignore[arg-type]  # machines carry tickets without knowing what they are

    def refuse(self, build: Callable[[], Exception]) -> None:
        """All that are open end, each with an error of its own."""
        tickets, self._open = self._open, {}
        for ticket in tickets.values():
            _settle(ticket, None, build())


def _settle(ticket: Ticket, value: object, error: Exception | None) -> None:
    try:
        if error is None:
            ticket.set_result(value)
        else:
            ticket.set_exception(error)
    except InvalidStateError:
        _LOG.debug("the end of a call came after its caller had given up")
