"""The lookup of the group's coordinator.

Laws: one lookup at a time. A failure of the coordinator is followed by a new lookup, after growing pauses.
Source: Kafka's FindCoordinator API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.membership_updates import Hearing
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.client.core.retry import Backoff
from kohort.errors import ErrorCode, KohortError
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

#: Codes after which the coordinator has to be looked up again.
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
#: Codes after which the same coordinator is asked again, after a pause.
BUSY: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT})


class CoordinatorLookup:
    """Finds the coordinator of one group.

    Args:
        requests: sends requests.
        cluster: the brokers.
        group_id: the group.
        retry: pauses between two attempts.
        on_refused: called with the error and the time when the group may not be looked up at all.
        hears: whether the member takes news that the coordinator sends with other answers.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        *,
        group_id: str,
        retry: Backoff,
        on_refused: Callable[[KohortError, int], None],
        hears: bool = False,
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._group_id = group_id
        self._retry = retry
        self._on_refused = on_refused
        #: News of the coordinator beside its answers to heartbeats.
        self.hearing: Final = Hearing(is_wanted=hears)
        #: Address of the coordinator; `None` while it is not known.
        self.endpoint: Endpoint | None = None
        #: When to send the lookup; `None`: no part needs it, or the address is known.
        self._due_ms: int | None = None
        self._in_flight = False
        self._attempts = 0
        #: Wakes this part of the machine: a request may be due.
        self.wake: Callable[[], None] = lambda: None

    def need(self, now_ms: int) -> Endpoint | None:
        """Return the coordinator; start a lookup if it is not known."""
        if self.endpoint is None and not self._in_flight and self._due_ms is None:
            self._due_ms = now_ms
            self.wake()
        return self.endpoint

    def lost(self, endpoint: Endpoint, now_ms: int) -> None:
        """Look the coordinator up again after a pause: that broker fails, or is not the coordinator."""
        if self.endpoint == endpoint:
            self.endpoint = None
            self.hearing.lose()
            self._requests.wake_all()
            self._due_ms = now_ms + self._retry.delay_ms(self._attempts)
            self._attempts += 1

    def works(self) -> None:
        """Start with small pauses again, because the coordinator has given a good answer."""
        self._attempts = 0

    def next_deadline(self) -> int | None:
        """Return when `work` has a request to send."""
        return None if self._in_flight else self._due_ms

    def work(self, now_ms: int) -> None:
        """Send a FindCoordinator request when one is due."""
        if self._in_flight or self._due_ms is None or now_ms < self._due_ms:
            return
        self._in_flight, self._due_ms = True, None
        request = FindCoordinatorRequest(key=self._group_id, key_type=0, coordinator_keys=[self._group_id])
        self._requests.send(self._cluster.any_endpoint(), Lane.CONTROL, request, self._on_answer)

    def _on_answer(self, answer: Answer, now_ms: int) -> None:
        self._in_flight = False
        response = message_of(answer, FindCoordinatorResponse)
        if response is None:
            # The cluster goes on with another broker, and reports if none answers.
            self._cluster.refresh(now_ms)
            self._again(now_ms)
            return
        found = response.coordinators[0] if response.coordinators else _single(response)
        code = ErrorCode.of(found.error_code)
        if code is ErrorCode.NONE:
            self.endpoint = Endpoint(found.host, found.port)
        elif code.retriable:
            self._again(now_ms)
        else:
            during = f"looking for the coordinator of {self._group_id}"
            error = refused(code, found.error_message, during=during, operation="read", name=self._group_id)
            self._on_refused(error, now_ms)

    def _again(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._retry.delay_ms(self._attempts)
        self._attempts += 1


def _single(response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
