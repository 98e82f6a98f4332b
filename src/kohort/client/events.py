"""What a client machine is told by its driver. What the application asks is declared beside each machine.

Laws: events are values; the driver hands them over one at a time, in the order in which they happened.
Source: architecture rule 6.
"""

from __future__ import annotations

from enum import Enum

from kohort.values import value
from kohort.wire.schema import Message


class Failure(Enum):
    """Why a request got no answer."""

    #: No connection could be opened: refused, no route, unknown host.
    UNREACHABLE = "unreachable"
    #: A connection was opened, but no Kafka broker answered on it; nothing was sent.
    NO_BROKER = "no broker"
    #: A broker is there, but one of the two does not believe the other: login or certificate. Nothing was sent.
    NOT_AUTHENTICATED = "not authenticated"
    #: The connection closed or broke while the request was queued or under way; it may have been carried out.
    DISCONNECTED = "disconnected"
    #: No answer within the request's timeout; the connection was closed. It may have been carried out.
    TIMED_OUT = "timed out"
    #: The broker has no version of this API that the request can use; nothing was sent.
    UNSUPPORTED = "unsupported"
    #: The request cannot be encoded (a bug or an impossible value); nothing was sent.
    UNENCODABLE = "cannot be encoded"


@value
class ResponseReceived:
    """The answer to the `Send` with that token."""

    token: int
    #: The version in which request and response travelled.
    version: int
    message: Message
    #: Whether the broker is one of kohort's.
    is_kohort: bool = False


@value
class RequestFailed:
    """The `Send` with that token will not be answered."""

    token: int
    failure: Failure
    #: For people: what the operating system or the codec said.
    detail: str


@value
class DeadlineReached:
    """`next_deadline()` has come."""


#: Everything that every machine must understand.
DriverEvent = ResponseReceived | RequestFailed | DeadlineReached
