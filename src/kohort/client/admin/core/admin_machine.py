"""The admin client's machine: one request at a time per call, to the broker that can answer it.

Laws: a call ends once, with the response or an error; codes that may pass are asked again until its deadline.
Source: architecture rule 6; Kafka's admin client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

from kohort.client.actions import Action, Endpoint, Lane, Stop
from kohort.client.cluster import Cluster
from kohort.client.coordinator_lookup import MOVED, CoordinatorLookup
from kohort.client.events import DeadlineReached, DriverEvent, Failure, RequestFailed, ResponseReceived
from kohort.client.options import ClientSettings
from kohort.client.requests import Answer, Requests
from kohort.errors import (
    AdvertisedAddressError,
    BrokerError,
    BrokersUnreachableError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
)
from kohort.wire.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The broker that coordinates a group."""

    group_id: str


class MovedError(KohortError):
    """The broker of an address is not the one to ask any more; `why` is what it or its absence said."""

    def __init__(self, why: KohortError) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAsked:
    """One request; the ticket ends in its response.

    `target`: an address (the ticket ends in a `MovedError` when whoever is there does not lead, or nobody is there and
    no broker names it), the coordinator of a group, or `None` for any broker. `codes` finds the error codes in a
    response: as long as one of them may pass, the request is sent again.
    """

    ticket: object
    deadline_ms: int
    request: Message
    target: Endpoint | Coordinator | None
    codes: Callable[[Message], Iterable[int]]
    during: str
    max_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCloseAsked:
    """End at once; calls without an answer fail."""


AdminEvent = RequestAsked | AdminCloseAsked


@dataclass(slots=True, eq=False)
class _Call:
    """A request on its way; `due_ms` `None` while it is under way."""

    asked: RequestAsked
    due_ms: int | None = 0
    attempts: int = 0
    #: What came last, for the message when time runs out.
    last_error: KohortError | None = None


class AdminMachine:
    """Decides for one admin client."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._requests = Requests(request_timeout_ms=settings.request_timeout_ms)
        self._cluster = Cluster(
            self._requests,
            bootstrap=settings.bootstrap,
            retry=settings.retry,
            max_age_ms=settings.metadata_max_age_ms,
            on_change=lambda _: None,
            on_unreachable=self._on_unreachable,
        )
        self._calls: list[_Call] = []
        #: group -> where its coordinator is.
        self._lookups: dict[str, CoordinatorLookup] = {}

    def handle(self, event: AdminEvent | DriverEvent, now_ms: int) -> list[Action]:
        """Take one event; return what is to be done."""
        match event:
            case ResponseReceived() | RequestFailed():
                self._requests.answer(event, now_ms)
            case DeadlineReached():
                pass
            case RequestAsked():
                self._calls.append(_Call(event))
                if self._cluster.generation == 0:
                    self._cluster.refresh(now_ms)
            case AdminCloseAsked():
                for call in list(self._calls):
                    self._fail(call, KohortError("the admin client was closed"))
                self._requests.add(Stop())
            case _:
                assert_never(event)
        self._on_tick(now_ms)
        return self._requests.drain()

    def next_deadline(self) -> int | None:
        """When something is to be done without being asked."""
        deadlines = [self._cluster.next_deadline()]
        deadlines += [lookup.next_deadline() for lookup in self._lookups.values()]
        deadlines += [call.asked.deadline_ms for call in self._calls]
        deadlines += [call.due_ms for call in self._calls if call.due_ms]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _on_tick(self, now_ms: int) -> None:
        for call in list(self._calls):
            if now_ms >= call.asked.deadline_ms:
                text = f"{call.asked.during} took too long"
                self._fail(call, call.last_error or KohortTimeoutError(text))
            elif call.due_ms is not None and call.due_ms <= now_ms and self._cluster.generation > 0:
                self._send(call, now_ms)
        for lookup in self._lookups.values():
            lookup.on_tick(now_ms)
        self._cluster.on_tick(now_ms)

    def _send(self, call: _Call, now_ms: int) -> None:
        is_named = call.asked.target in self._cluster.brokers.values()
        if isinstance(call.asked.target, Endpoint) and call.last_error is not None and not is_named:
            self._fail(call, MovedError(call.last_error))
            return
        endpoint = self._resolve(call.asked.target, now_ms)
        if endpoint is None:
            # The end of the look-up is an event, and that comes by here again.
            call.due_ms = 0
            return
        call.due_ms = None
        is_for_group = isinstance(call.asked.target, Coordinator)
        self._requests.send(
            endpoint,
            Lane.COORDINATOR if is_for_group else Lane.CONTROL,
            call.asked.request,
            lambda answer, later_ms: self._on_answer(call, endpoint, answer, later_ms),
            max_version=call.asked.max_version,
            timeout_ms=min(self._settings.request_timeout_ms, call.asked.deadline_ms - now_ms),
        )

    def _resolve(self, target: Endpoint | Coordinator | None, now_ms: int) -> Endpoint | None:
        if target is None:
            return self._cluster.any_endpoint()
        if isinstance(target, Endpoint):
            return target
        lookup = self._lookups.get(target.group_id)
        if lookup is None:
            lookup = self._lookups[target.group_id] = CoordinatorLookup(
                self._requests,
                self._cluster,
                group_id=target.group_id,
                retry=self._settings.retry,
                on_refused=lambda error, _: self._refuse_group(target.group_id, error),
            )
        return lookup.need(now_ms)

    def _on_answer(self, call: _Call, endpoint: Endpoint, answer: Answer, now_ms: int) -> None:
        if call not in self._calls:
            return
        if isinstance(answer, RequestFailed):
            self._on_failure(call, endpoint, answer, now_ms)
            return
        codes = [ErrorCode.of(code) for code in call.asked.codes(answer.message)]
        passing = next((code for code in codes if code.retriable and _may_pass(code)), None)
        if passing is None:
            self._calls.remove(call)
            self._requests.complete(call.asked.ticket, answer.message)
            return
        error = BrokerError(passing, during=call.asked.during)
        if passing.invalidates_metadata and isinstance(call.asked.target, Endpoint):
            self._fail(call, MovedError(error))
            return
        if passing in MOVED:
            self._lose_coordinator(call, endpoint, now_ms)
        self._again(call, error, now_ms)

    def _on_failure(self, call: _Call, endpoint: Endpoint, answer: RequestFailed, now_ms: int) -> None:
        during = call.asked.during
        if answer.failure is Failure.UNSUPPORTED:
            self._fail(call, BrokerError(ErrorCode.UNSUPPORTED_VERSION, answer.detail, during=during))
        elif answer.failure is Failure.UNENCODABLE:
            self._fail(call, KohortError(f"{during}: {answer.detail}"))
        else:
            self._cluster.refresh(now_ms)
            self._lose_coordinator(call, endpoint, now_ms)
            self._again(call, KohortTimeoutError(f"{during} failed: {answer.detail}"), now_ms)

    def _lose_coordinator(self, call: _Call, endpoint: Endpoint, now_ms: int) -> None:
        if isinstance(call.asked.target, Coordinator):
            self._lookups[call.asked.target.group_id].lost(endpoint, now_ms)

    def _again(self, call: _Call, error: KohortError, now_ms: int) -> None:
        call.last_error = error
        call.due_ms = now_ms + self._settings.retry.delay_ms(call.attempts)
        call.attempts += 1

    def _fail(self, call: _Call, error: KohortError) -> None:
        self._calls.remove(call)
        self._requests.fail(call.asked.ticket, error)

    def _refuse_group(self, group_id: str, error: KohortError) -> None:
        for call in list(self._calls):
            if call.asked.target == Coordinator(group_id=group_id):
                self._fail(call, error)

    def _on_unreachable(self, error: BrokersUnreachableError, now_ms: int) -> None:
        for call in list(self._calls):
            # Under an address to start from any broker answers what needs no certain one.
            if call.asked.target is not None or not isinstance(error, AdvertisedAddressError):
                self._fail(call, error)


def _may_pass(code: ErrorCode) -> bool:
    # Retriable for a reader who knows that the topic exists; here it is the answer. A full disk stays full by itself.
    return code not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
