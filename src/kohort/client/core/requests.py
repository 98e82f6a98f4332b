"""Requests in flight with the callbacks for their responses; the outbox that the parts of a machine share.

Laws: for each request `then` is called exactly once, or never if the request was forgotten.
Source: architecture rule 6; KIP-219 (a broker that throttles answers at once, and says for how long to leave it alone).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

from kohort.base.values import value
from kohort.client.core.actions import Action, Complete, Deliver, Endpoint, Fail, Lane, Send, Warn
from kohort.client.core.retry import Backoff
from kohort.wire.schema import Message


class Failure(Enum):
    """The reason for which a request got no response."""

    #: No connection could be opened: refused, no route, unknown host.
    UNREACHABLE = "unreachable"
    #: A connection was opened, but the other side does not speak Kafka's protocol; nothing was sent.
    NO_BROKER = "no broker"
    #: Login or TLS certificate failed on one of the two sides; nothing was sent.
    NOT_AUTHENTICATED = "not authenticated"
    #: The connection closed or broke while the request was queued or under way; it may have been carried out.
    DISCONNECTED = "disconnected"
    #: No response within the request's timeout; the connection was closed. The request may have been carried out.
    TIMED_OUT = "timed out"
    #: The broker has no version of this API that the request can use; nothing was sent.
    UNSUPPORTED = "unsupported"
    #: The request cannot be encoded (a bug or an impossible value); nothing was sent.
    UNENCODABLE = "cannot be encoded"


@value
class ResponseReceived:
    """The response to the `Send` with that token."""

    token: int
    #: The version of request and response.
    version: int
    message: Message
    #: Whether the broker is kohort's.
    is_kohort: bool = False
    #: Lifetime of the connection's SASL session, milliseconds; 0: without end.
    login_ms: int = 0
    #: The finalized level of the feature `transaction.version`; 0: none.
    transaction_version: int = 0


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


#: The outcome of a request.
Answer = ResponseReceived | RequestFailed
#: Called with the outcome of a request and the time.
Then = Callable[[Answer, int], None]
M = TypeVar("M", bound=Message)


class Requests:
    """The actions that one call of `handle` queues, and the callbacks of all requests in flight."""

    def __init__(self, *, request_timeout_ms: int, retry: Backoff) -> None:
        self.request_timeout_ms: Final = request_timeout_ms
        #: Pauses before a failed request is sent again.
        self.retry: Final = retry
        self._actions: list[Action] = []
        #: token -> broker, callback, and function that wakes the part concerned; for each request in flight.
        self._waiting: dict[int, tuple[Endpoint, Then, Callable[[], None] | None]] = {}
        self._next_token = 1
        #: coordinator -> token of the latest request on the coordinator's connection.
        self._latest: dict[Endpoint, int] = {}
        #: broker -> end of its throttling, for each that ever throttled.
        self._throttled_ms: dict[Endpoint, int] = {}
        #: Called after the outcome of every request, with the broker, the outcome and the time.
        self.on_end: Callable[[Endpoint, Answer, int], None] | None = None
        #: Wakes every part of the machine.
        self.wake_all: Callable[[], None] = lambda: None

    def send(
        self,
        to: Endpoint,
        lane: Lane,
        request: Message,
        then: Then,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: int | None = None,
        has_response: bool = True,
        wake: Callable[[], None] | None = None,
    ) -> int:
        """Queue a request and return its token; `then(answer, now_ms)` is called once with its outcome.

        `wake`: called after a response; without it, and after a failure, every part of the machine is woken.
        """
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = (to, then, wake)
        if lane is Lane.COORDINATOR:
            self._latest[to] = token
        self._actions.append(
            Send(
                token=token,
                to=to,
                lane=lane,
                request=request,
                min_version=min_version,
                max_version=max_version,
                timeout_ms=self.request_timeout_ms if timeout_ms is None else timeout_ms,
                has_response=has_response,
            )
        )
        return token

    def answer(self, event: Answer, now_ms: int) -> bool:
        """Call the callback of a request with its outcome; return `False` if the request was forgotten."""
        waiting = self._waiting.pop(event.token, None)
        if waiting is None:
            return False
        to, then, wake = waiting
        wait_ms = 0 if isinstance(event, RequestFailed) else getattr(event.message, "throttle_time_ms", 0)
        if wait_ms > 0:
            self._throttled_ms[to] = max(self.not_before_ms(to), now_ms + wait_ms)
        (self.wake_all if wake is None or isinstance(event, RequestFailed) or wait_ms > 0 else wake)()
        then(event, now_ms)
        if self.on_end is not None:
            self.on_end(to, event, now_ms)
        return True

    def is_followed(self, to: Endpoint, token: int) -> bool:
        """Return whether a later request was sent to the coordinator on the same connection."""
        return self._latest.get(to, token) > token

    def not_before_ms(self, to: Endpoint) -> int:
        """Return until when the broker throttles this client; 0 if it does not."""
        return self._throttled_ms.get(to, 0)

    def forget(self, token: int) -> None:
        """Ignore the response to a request when it arrives."""
        self._waiting.pop(token, None)

    def add(self, action: Action) -> None:
        """Queue an action."""
        self._actions.append(action)

    def complete(self, ticket: object, value: object = None) -> None:
        """Queue the result of the application's call; for a ticket of `None` do nothing."""
        if ticket is not None:
            self._actions.append(Complete(ticket=ticket, value=value))

    def fail(self, ticket: object, error: Exception) -> None:
        """Queue the error of the application's call; for a ticket of `None` do nothing."""
        if ticket is not None:
            self._actions.append(Fail(ticket=ticket, error=error))

    def deliver(self, item: object) -> None:
        """Queue an item for the application's side."""
        self._actions.append(Deliver(item=item))

    def warn(self, text: str, *, is_warning: bool = True) -> None:
        """Queue a line for the log, a warning or information."""
        self._actions.append(Warn(text=text, is_warning=is_warning))

    def drain(self) -> list[Action]:
        """Return every action queued since the last call, in order."""
        actions, self._actions = self._actions, []
        return actions


def message_of(answer: Answer, expected: type[M]) -> M | None:
    """Return the response in `answer`; `None`: the request failed."""
    if isinstance(answer, RequestFailed):
        return None
    assert isinstance(answer.message, expected), f"{type(answer.message).__name__} answers for {expected.__name__}"
    return answer.message
