"""The actions that a client machine asks its driver to carry out.

Laws: actions are values, carried out in the order of the list; none of them waits for another.
Source: architecture rules 4 and 6.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kohort.base.values import value
from kohort.wire.schema import Message


class Endpoint(NamedTuple):
    """The host and the port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Lane(Enum):
    """One of a client's connections to a broker.

    A broker answers the requests of a connection in order, so each kind of slow request has a connection of its own.
    """

    #: Metadata, offsets by time, administration.
    CONTROL = "control"
    #: Membership and committed offsets; nothing else, above all no fetch.
    COORDINATOR = "coordinator"
    #: Long-polling fetches.
    FETCH = "fetch"
    #: Fetches that do not wait, for partitions that were not ready when the long one was sent.
    FETCH_AT_ONCE = "fetch at once"
    PRODUCE = "produce"


@value
class Send:
    """Send a request; a connection is opened if there is none.

    Exactly one `ResponseReceived` or `RequestFailed` with the same token follows.
    """

    token: int
    to: Endpoint
    lane: Lane
    request: Message
    #: Limits of the API version that is agreed with the broker; `None`: any that both sides support.
    min_version: int | None
    max_version: int | None
    #: Counted from now, including the wait for a connection.
    timeout_ms: int
    #: `False`: the broker never responds (Produce with acks=0). Once the request is sent, a `ResponseReceived` follows
    #: whose message is the request.
    has_response: bool


@value
class Disconnect:
    """Close a connection; its requests in flight fail as DISCONNECTED."""

    to: Endpoint
    lane: Lane


@value
class Complete:
    """End the application's call that waits for this ticket, with a value."""

    ticket: object
    value: object


@value
class Fail:
    """End the application's call that waits for this ticket, with an exception."""

    ticket: object
    error: Exception


@value
class Deliver:
    """Pass `item` to the application's side by the driver's `deliver` function, without waiting."""

    item: object


@value
class Warn:
    """Write one line to the log."""

    text: str
    #: `False`: it is information, not a warning.
    is_warning: bool = True


@value
class Stop:
    """Close every connection and end: the machine is finished."""


Action = Send | Disconnect | Complete | Fail | Deliver | Warn | Stop
