"""The events that a driver hands to a client machine.

The application's calls are events, too; they are declared beside each machine.

Laws: events are values; the driver hands them over one at a time, in the order in which they happened.
Source: architecture rule 6.
"""

from __future__ import annotations

from enum import Enum

from kohort.values import value
from kohort.wire.schema import Message


class Failure(Enum):
    """The reason why a request got no answer."""

    #: No connection could be opened: refused, no route, unknown host.
    UNREACHABLE = "unreachable"
    #: A connection was opened, but the other side does not speak Kafka's protocol; nothing was sent.
    NO_BROKER = "no broker"
    #: Login or TLS certificate failed on one of the two sides; nothing was sent.
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
    #: The version of request and response.
    version: int
    message: Message
    #: Whether the broker is kohort's.
    is_kohort: bool = False


@value
class RequestFailed:
    """The failure of the `Send` with that token."""

    token: int
    failure: Failure
    #: For people: the message of the operating system or of the codec.
    detail: str


@value
class DeadlineReached:
    """The time of `next_deadline()` has come."""


#: The events that every machine must understand.
DriverEvent = ResponseReceived | RequestFailed | DeadlineReached
