"""The admin client's machine: requests, each to the broker that can answer it, and the coordinators of groups.

Laws: a call ends once, with the response or an error; codes that may pass are asked again until its deadline.
Source: architecture rule 6; Kafka's admin client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, field
from typing import Any, Generic, TypeVar, assert_never

from kohort.base.values import value
from kohort.client.admin.coordinators import Coordinators
from kohort.client.core.actions import Action, Endpoint, Lane, Stop
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import MOVED
from kohort.client.core.requests import (
    Answer,
    DeadlineReached,
    DriverEvent,
    Failure,
    RequestFailed,
    Requests,
    ResponseReceived,
)
from kohort.client.options import ClientSettings
from kohort.errors import (
    AdvertisedAddressError,
    BrokerError,
    BrokersUnreachableError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    UnsupportedFeatureError,
)
from kohort.wire.schema import Message


@value
class Coordinator:
    """The target of a request: the broker that coordinates a group."""

    group_id: str


@value
class CoordinatorAt:
    """The target of a request about several groups: a broker that was looked up as their coordinator."""

    endpoint: Endpoint


#: Where a request goes; `None`: to any broker.
Target = Endpoint | Coordinator | CoordinatorAt | None


class MovedError(KohortError):
    """The broker at an address can no longer answer the request; `why` is its error, or that of the connection."""

    def __init__(self, why: KohortError) -> None:
        super().__init__(why)
        self.why = why


R = TypeVar("R", bound=Message)


def _code_of(response: Message) -> Iterable[int]:
    """Return the error code of the whole response; those of its rows are for the call to read."""
    code = getattr(response, "error_code", None)
    return () if code is None else (code,)


@value(kw_only=False)
class Question(Generic[R]):
    """One request, and the type of its response.

    Args:
        target: the broker to ask. An address: the ticket ends in a `MovedError` if the broker there is not the leader,
            or if it is gone and no other broker has it in its metadata. A `Coordinator`. A `CoordinatorAt`: the ticket
            ends in a `MovedError` as soon as that broker fails.
        codes: finds the error codes in a response; the request is repeated while one of them is retriable.
        min_version: the first version that has the fields of the request.
    """

    request: Message
    expected: type[R]
    _: KW_ONLY
    during: str
    codes: Callable[[R], Iterable[int]] = _code_of
    target: Target = None
    min_version: int | None = None
    max_version: int | None = None


@value
class RequestAsked:
    """A request of a call; the ticket's result is the response, or an error."""

    ticket: object
    deadline_ms: int
    question: Question[Any]


@value
class CoordinatorsAsked:
    """A look-up of coordinators; the ticket's result maps each group to its `Endpoint`, or to an error.

    `lost`: brokers that an earlier look-up has returned, and that turned out not to be the coordinator.
    """

    ticket: object
    deadline_ms: int
    groups: tuple[str, ...]
    lost: Mapping[str, Endpoint]


@value
class AdminCloseAsked:
    """The request to stop at once; calls without a response fail."""


AdminEvent = RequestAsked | CoordinatorsAsked | AdminCloseAsked


@value(kw_only=False, frozen=False, eq=False)
class _Call:
    """A request of a call; `due_ms`: when it is to be sent (again), `None` while it is in flight."""

    asked: RequestAsked
    due_ms: int | None = 0
    attempts: int = 0
    #: The latest error, for the message when time runs out.
    last_error: KohortError | None = None
    #: The broker that is asked; `None` before the first.
    at: Endpoint | None = None

    @property
    def question(self) -> Question[Any]:
        """The question of the request."""
        return self.asked.question

    def timed_out(self) -> KohortTimeoutError:
        """Build the error of a call whose time is over before any answer."""
        why = "" if self.at is None else f": {self.at} has not answered, and may still do what it was asked for"
        return KohortTimeoutError(f"{self.question.during} took too long{why}")


@value(kw_only=False, frozen=False, eq=False)
class _Search:
    """A search for coordinators; `left` are the groups of which nothing is known yet."""

    asked: CoordinatorsAsked
    left: dict[str, None]
    found: dict[str, Endpoint | KohortError] = field(default_factory=dict)


class AdminMachine:
    """The machine of one admin client."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._requests = Requests(request_timeout_ms=settings.options["request_timeout_ms"], retry=settings.retry)
        self._cluster = Cluster(
            self._requests,
            bootstrap=settings.bootstrap,
            max_age_ms=settings.options["metadata_max_age_ms"],
            on_change=lambda _: None,
            on_unreachable=self._on_unreachable,
        )
        self._coordinators = Coordinators(
            self._requests, self._cluster, retry=settings.retry, on_found=self._on_coordinator
        )
        self._calls: list[_Call] = []
        self._searches: list[_Search] = []

    def handle(self, event: AdminEvent | DriverEvent, now_ms: int) -> list[Action]:
        """Take one event; return the actions that follow from it."""
        match event:
            case ResponseReceived() | RequestFailed():
                self._requests.answer(event, now_ms)
            case DeadlineReached():
                pass
            case RequestAsked():
                self._calls.append(_Call(event))
                self._begin(now_ms)
            case CoordinatorsAsked():
                for group, endpoint in event.lost.items():
                    self._coordinators.lost(group, endpoint)
                self._searches.append(_Search(event, dict.fromkeys(event.groups)))
                self._begin(now_ms)
            case AdminCloseAsked():
                self._fail_all(KohortError("the admin client was closed"))
                self._requests.add(Stop())
            case _:
                assert_never(event)
        self._on_tick(now_ms)
        return self._requests.drain()

    def next_deadline(self) -> int | None:
        """Return when work is due without an event; `None`: never, before one."""
        deadlines = [self._cluster.next_deadline(), self._coordinators.next_deadline()]
        deadlines += [search.asked.deadline_ms for search in self._searches]
        deadlines += [call.asked.deadline_ms for call in self._calls]
        deadlines += [call.due_ms for call in self._calls if call.due_ms]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _begin(self, now_ms: int) -> None:
        if self._cluster.generation == 0:
            self._cluster.refresh(now_ms)

    def _on_tick(self, now_ms: int) -> None:
        for search in list(self._searches):
            self._go_on(search, now_ms)
        for call in list(self._calls):
            if now_ms >= call.asked.deadline_ms:
                self._fail(call, call.last_error or call.timed_out())
            elif call.due_ms is not None and call.due_ms <= now_ms and self._cluster.generation > 0:
                self._send(call, now_ms)
        self._coordinators.on_tick(now_ms)
        self._cluster.work(now_ms)

    def _go_on(self, search: _Search, now_ms: int) -> None:
        if now_ms >= search.asked.deadline_ms:
            why = KohortTimeoutError("looking for the coordinators of groups took too long")
            search.found.update(dict.fromkeys(search.left, why))
            search.left.clear()
        elif self._cluster.generation > 0:
            for group in list(search.left):
                endpoint = self._coordinators.need(group)
                if endpoint is not None:
                    del search.left[group]
                    search.found[group] = endpoint
        if not search.left:
            self._searches.remove(search)
            self._requests.complete(search.asked.ticket, search.found)

    def _send(self, call: _Call, now_ms: int) -> None:
        if call.last_error is not None and not self._may_be_asked_again(call.question.target):
            self._fail(call, MovedError(call.last_error))
            return
        endpoint = self._resolve(call.question.target)
        if endpoint is None:
            # The end of the look-up is an event, and that comes by here again.
            call.due_ms = 0
            return
        call.due_ms, call.at = None, endpoint
        is_for_group = isinstance(call.question.target, Coordinator | CoordinatorAt)
        self._requests.send(
            endpoint,
            Lane.COORDINATOR if is_for_group else Lane.CONTROL,
            call.question.request,
            lambda answer, later_ms: self._on_answer(call, endpoint, answer, later_ms),
            min_version=call.question.min_version,
            max_version=call.question.max_version,
            timeout_ms=min(self._settings.options["request_timeout_ms"], call.asked.deadline_ms - now_ms),
        )

    def _may_be_asked_again(self, target: Target) -> bool:
        if isinstance(target, Endpoint):
            return target in self._cluster.brokers.values()
        return not isinstance(target, CoordinatorAt)

    def _resolve(self, target: Target) -> Endpoint | None:
        match target:
            case None:
                return self._cluster.any_endpoint()
            case Coordinator():
                return self._coordinators.need(target.group_id)
            case CoordinatorAt():
                return target.endpoint
            case Endpoint():
                return target

    def _on_answer(self, call: _Call, endpoint: Endpoint, answer: Answer, now_ms: int) -> None:
        if call not in self._calls:
            return
        if isinstance(answer, RequestFailed):
            self._on_failure(call, endpoint, answer, now_ms)
            return
        codes = [ErrorCode.of(code) for code in call.question.codes(answer.message)]
        passing = next((code for code in codes if may_pass(code)), None)
        if passing is None:
            self._calls.remove(call)
            self._requests.complete(call.asked.ticket, answer.message)
            return
        error = BrokerError(passing, during=call.question.during)
        if passing.invalidates_metadata and isinstance(call.question.target, Endpoint):
            self._fail(call, MovedError(error))
            return
        if passing in MOVED:
            self._lose_coordinator(call, endpoint)
        self._again(call, error, now_ms)

    def _on_failure(self, call: _Call, endpoint: Endpoint, answer: RequestFailed, now_ms: int) -> None:
        during = call.question.during
        if answer.failure is Failure.UNSUPPORTED:
            self._fail(call, UnsupportedFeatureError(ErrorCode.UNSUPPORTED_VERSION, answer.detail, during=during))
        elif answer.failure is Failure.UNENCODABLE:
            self._fail(call, KohortError(f"{during}: {answer.detail}"))
        else:
            self._cluster.refresh(now_ms)
            self._lose_coordinator(call, endpoint)
            self._again(call, KohortTimeoutError(f"{during} failed: {endpoint}: {answer.detail}"), now_ms)

    def _lose_coordinator(self, call: _Call, endpoint: Endpoint) -> None:
        if isinstance(call.question.target, Coordinator):
            self._coordinators.lost(call.question.target.group_id, endpoint)

    def _again(self, call: _Call, error: KohortError, now_ms: int) -> None:
        call.last_error = error
        call.due_ms = now_ms + self._settings.retry.delay_ms(call.attempts)
        call.attempts += 1

    def _fail(self, call: _Call, error: KohortError) -> None:
        self._calls.remove(call)
        self._requests.fail(call.asked.ticket, error)

    def _fail_all(self, error: KohortError) -> None:
        for call in list(self._calls):
            self._fail(call, error)
        for search in self._searches:
            self._requests.fail(search.asked.ticket, error)
        self._searches.clear()

    def _on_coordinator(self, group: str, found: Endpoint | KohortError, now_ms: int) -> None:
        for search in self._searches:
            if group in search.left:
                del search.left[group]
                search.found[group] = found
        if isinstance(found, KohortError):
            for call in list(self._calls):
                if call.question.target == Coordinator(group_id=group):
                    call.last_error = found
                    if not found.retriable:
                        self._fail(call, found)

    def _on_unreachable(self, error: BrokersUnreachableError, now_ms: int) -> None:
        if not isinstance(error, AdvertisedAddressError):
            self._fail_all(error)
        # Under an address to start from any broker answers what needs no certain one.
        for call in [call for call in self._calls if call.question.target is not None]:
            self._fail(call, error)


def may_pass(code: ErrorCode) -> bool:
    """Return whether the same request may have another answer a little later."""
    # Retriable for a reader that knows that the topic exists; here it is the answer. A full disk stays full by itself.
    return code.retriable and code not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        # A call for an election, or to one broker, shall say that it cannot be done now.
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    )
