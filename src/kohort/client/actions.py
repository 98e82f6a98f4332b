"""What a client machine asks its driver to do.

Laws: actions are values, carried out in the order of the list; none of them waits for another.
Source: architecture rules 4 and 6.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kohort.values import value
from kohort.wire.schema import Message


class Endpoint(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Lane(Enum):
    """Which of the connections to a broker: answers come in order, so a slow one must not hold up the others."""

    #: Metadata, offsets by time, administration.
    CONTROL = "control"
    #: Membership and committed offsets; nothing else, above all no fetch.
    COORDINATOR = "coordinator"
    #: Long-polling fetches.
    FETCH = "fetch"
    #: Fetches that do not wait, of partitions that were not ready when the long one went out.
    FETCH_AT_ONCE = "fetch at once"
    PRODUCE = "produce"


@value
class Send:
    """Send a request; a connection is opened if there is none.

    It ends in exactly one `ResponseReceived` or `RequestFailed` with the same token.
    """

    token: int
    to: Endpoint
    lane: Lane
    request: Message
    #: Limits on the version that is agreed with the broker; `None` leaves it to what both sides know.
    min_version: int | None
    max_version: int | None
    #: Counted from now, waiting for a connection included.
    timeout_ms: int
    #: `False` where the broker never answers (Produce with acks=0): the send itself counts as an answer-less
    #: `ResponseReceived` whose message is the request.
    has_response: bool


@value
class Disconnect:
    """Close that connection; what is under way on it fails as DISCONNECTED."""

    to: Endpoint
    lane: Lane


@value
class Complete:
    """What the application asked for under this ticket is done."""

    ticket: object
    value: object


@value
class Fail:
    """What the application asked for under this ticket ends in an exception."""

    ticket: object
    error: Exception


@value
class Deliver:
    """Hand `item` to the application's side (the function given to the driver), without waiting for it."""

    item: object


@value
class Warn:
    """One line for the log."""

    text: str
    #: `False` where all is well: it is news, not a warning.
    is_warning: bool = True


@value
class Stop:
    """The machine is finished: close every connection and end."""


Action = Send | Disconnect | Complete | Fail | Deliver | Warn | Stop
