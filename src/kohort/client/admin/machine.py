"""The admin client's machine: one request at a time per question, to the broker that can answer it.

Laws: a question ends once, with the response or an error; codes that may pass are asked again until its deadline.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAsked:
    """One request; the ticket ends in its response.

    `target`: an address, the coordinator of a group, or `None` for any broker. `codes` finds the error codes in a
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
    """End at once; questions without an answer fail."""


AdminEvent = RequestAsked | AdminCloseAsked


@dataclass(slots=True, eq=False)
class _Question:
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
        self._questions: list[_Question] = []
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
                self._questions.append(_Question(event))
                if self._cluster.generation == 0:
                    self._cluster.refresh(now_ms)
            case AdminCloseAsked():
                for question in list(self._questions):
                    self._fail(question, KohortError("the admin client was closed"))
                self._requests.add(Stop())
            case _:
                assert_never(event)
        self._on_tick(now_ms)
        return self._requests.drain()

    def next_deadline(self) -> int | None:
        """When something is to be done without being asked."""
        deadlines = [self._cluster.next_deadline()]
        deadlines += [lookup.next_deadline() for lookup in self._lookups.values()]
        deadlines += [question.asked.deadline_ms for question in self._questions]
        deadlines += [question.due_ms for question in self._questions if question.due_ms]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _on_tick(self, now_ms: int) -> None:
        for question in list(self._questions):
            if now_ms >= question.asked.deadline_ms:
                text = f"{question.asked.during} took too long"
                self._fail(question, question.last_error or KohortTimeoutError(text))
            elif question.due_ms is not None and question.due_ms <= now_ms and self._cluster.generation > 0:
                self._send(question, now_ms)
        for lookup in self._lookups.values():
            lookup.on_tick(now_ms)
        self._cluster.on_tick(now_ms)

    def _send(self, question: _Question, now_ms: int) -> None:
        endpoint = self._resolve(question.asked.target, now_ms)
        if endpoint is None:
            # The end of the look-up is an event, and that comes by here again.
            question.due_ms = 0
            return
        question.due_ms = None
        is_for_group = isinstance(question.asked.target, Coordinator)
        self._requests.send(
            endpoint,
            Lane.COORDINATOR if is_for_group else Lane.CONTROL,
            question.asked.request,
            lambda answer, later_ms: self._on_answer(question, endpoint, answer, later_ms),
            max_version=question.asked.max_version,
            timeout_ms=min(self._settings.request_timeout_ms, question.asked.deadline_ms - now_ms),
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

    def _on_answer(self, question: _Question, endpoint: Endpoint, answer: Answer, now_ms: int) -> None:
        if question not in self._questions:
            return
        if isinstance(answer, RequestFailed):
            self._on_failure(question, endpoint, answer, now_ms)
            return
        codes = [ErrorCode.of(code) for code in question.asked.codes(answer.message)]
        passing = next((code for code in codes if code.retriable and _may_pass(code)), None)
        if passing is None:
            self._questions.remove(question)
            self._requests.complete(question.asked.ticket, answer.message)
            return
        if passing in MOVED:
            self._lose_coordinator(question, endpoint, now_ms)
        self._again(question, BrokerError(passing, during=question.asked.during), now_ms)

    def _on_failure(self, question: _Question, endpoint: Endpoint, answer: RequestFailed, now_ms: int) -> None:
        during = question.asked.during
        if answer.failure is Failure.UNSUPPORTED:
            self._fail(question, BrokerError(ErrorCode.UNSUPPORTED_VERSION, answer.detail, during=during))
        elif answer.failure is Failure.UNENCODABLE:
            self._fail(question, KohortError(f"{during}: {answer.detail}"))
        else:
            self._cluster.refresh(now_ms)
            self._lose_coordinator(question, endpoint, now_ms)
            self._again(question, KohortTimeoutError(f"{during} failed: {answer.detail}"), now_ms)

    def _lose_coordinator(self, question: _Question, endpoint: Endpoint, now_ms: int) -> None:
        if isinstance(question.asked.target, Coordinator):
            self._lookups[question.asked.target.group_id].lost(endpoint, now_ms)

    def _again(self, question: _Question, error: KohortError, now_ms: int) -> None:
        question.last_error = error
        question.due_ms = now_ms + self._settings.retry.delay_ms(question.attempts)
        question.attempts += 1

    def _fail(self, question: _Question, error: KohortError) -> None:
        self._questions.remove(question)
        self._requests.fail(question.asked.ticket, error)

    def _refuse_group(self, group_id: str, error: KohortError) -> None:
        for question in list(self._questions):
            if question.asked.target == Coordinator(group_id=group_id):
                self._fail(question, error)

    def _on_unreachable(self, error: BrokersUnreachableError, now_ms: int) -> None:
        for question in list(self._questions):
            # Under an address to start from any broker answers what needs no certain one.
            if question.asked.target is not None or not isinstance(error, AdvertisedAddressError):
                self._fail(question, error)


def _may_pass(code: ErrorCode) -> bool:
    # Retriable for a reader who knows that the topic exists; here it is the answer. A full disk stays full by itself.
    return code not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
