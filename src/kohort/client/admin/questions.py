"""The requests of the admin client's calls: sending, retries, and the result of a call for several things.

Laws: if a call is about several things (topics, groups, ...), each succeeds or fails on its own. A thing with a final
result is not asked for again. Results that are known are kept when the rest fails.
Source: Kafka's Admin.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field, replace
from typing import Final, Generic, Protocol, Self, TypeVar

from kohort.base.values import value
from kohort.client.admin.admin_machine import AdminEvent, Coordinator, MovedError, Question, RequestAsked, may_pass
from kohort.client.admin.results import cluster as cluster_results
from kohort.client.admin.results import topics as topic_results
from kohort.client.admin.results.groups import check_group_id
from kohort.client.core.actions import Endpoint
from kohort.client.core.host import Host
from kohort.client.core.refusals import refused
from kohort.client.steps import Pause
from kohort.errors import (
    BrokerError,
    ErrorCode,
    KohortError,
    PartlyDoneError,
    StateError,
    UnknownTopicError,
    UnsupportedFeatureError,
)
from kohort.ids import TopicPartition
from kohort.wire.messages import describe_moves, group_history, list_offsets, submit_moves
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
#: Answers of kohort's own brokers.
_Own = TypeVar(
    "_Own", group_history.GroupHistoryResponse, submit_moves.SubmitMovesResponse, describe_moves.DescribeMovesResponse
)

#: Pause between two looks at the leaders, and between two rounds of a call about several things, seconds.
_AGAIN_S: Final = 0.1
#: Requests of one call that are under way at once.
_AT_ONCE: Final = 100
#: Time of a call beyond its own, so that the machine's better error arrives, seconds.
GRACE_S: Final = 5.0


class Coded(Protocol):
    """A response, or a row of one, with an error code and usually an `error_message`."""

    error_code: int


class Questions:
    """Sends the requests of the admin client's calls and returns the responses.

    Args:
        host: runs the machine.
        timeout_s: the limit of a call, seconds.
    """

    def __init__(self, host: Host[AdminEvent], timeout_s: float) -> None:
        self.host: Final = host
        self.timeout_s: Final = timeout_s

    async def ask(self, question: Question[R]) -> R:
        """Send one request and return its response; repeat it while the response has a retriable error code.

        Raises:
            UnsupportedFeatureError: the broker supports no version from `min_version` to `max_version`.
        """
        ticket = self._post(question, self.host.deadline_ms(self.timeout_s))
        return answered(await self._end(ticket, question.expected))

    async def ask_checked(self, question: Question[R]) -> R:
        """Ask as `ask` does; raise the error of the response's own error code, if it has one."""
        response = await self.ask(question)
        check(response, question.during)  # type: ignore[arg-type]  # it has a code
        return response

    async def ask_about(
        self, things: Iterable[K], question: Question[R], read: Callable[[R], Mapping[K, V | KohortError]]
    ) -> dict[K, V | KohortError]:
        """Ask one broker about several things; if it has left its address, each gets a retriable error.

        `read`: finds the result of each thing in the response.
        """
        try:
            return {**read(await self.ask(question))}
        except MovedError as moved:
            return dict.fromkeys(things, gone(moved, question.during))

    async def ask_each(self, questions: Sequence[Question[R]]) -> list[R]:
        """Send several requests at once and return their responses, or raise the first error."""
        return [answered(answer) for answer in await self.ask_all(questions)]

    async def ask_all(
        self, questions: Sequence[Question[R]], *, deadline_ms: int | None = None
    ) -> list[R | KohortError]:
        """Send several requests at once, with separate retries; return a response or an error for each.

        `deadline_ms`: by the host's clock; `None` is `default.api.timeout.ms` from now.
        """
        deadline = self.host.deadline_ms(self.timeout_s) if deadline_ms is None else deadline_ms
        tickets: list[Future[object]] = []
        found: list[R | KohortError] = []
        for number, question in enumerate(questions):
            if number >= _AT_ONCE:
                found.append(await self._end(tickets[len(found)], questions[len(found)].expected))
            tickets.append(self._post(question, deadline))
        for ticket, question in zip(tickets[len(found) :], questions[len(found) :], strict=True):
            found.append(await self._end(ticket, question.expected))
        return found

    def _post(self, question: Question[R], deadline_ms: int) -> Future[object]:
        if isinstance(question.target, Coordinator):
            check_group_id(question.target.group_id)
        ticket: Future[object] = Future()
        self.host.post(RequestAsked(ticket=ticket, deadline_ms=deadline_ms, question=question))
        return ticket

    async def _end(self, ticket: Future[object], expected: type[R]) -> R | KohortError:
        try:
            answer = await Pause(self.timeout_s + GRACE_S, ticket)
        except StateError:
            raise
        except KohortError as why:
            return why
        assert isinstance(answer, expected)
        return answer

    async def ask_own(self, request: Message, expected: type[_Own], *, group: str, feature: str, during: str) -> _Own:
        """Send a request of an API of kohort's own to the coordinator of a group.

        Raises:
            UnsupportedFeatureError: the broker has no such API; `feature` describes it in the message.
        """
        try:
            return await self.ask(Question(request, expected, during=during, target=Coordinator(group_id=group)))
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"only kohort's broker {feature}: {why.message}"
            raise UnsupportedFeatureError(why.code, text, during=during) from why

    async def metadata(
        self, topics: Iterable[str] | None, *, include_authorized_operations: bool = False
    ) -> MetadataResponse:
        """Look up the brokers and some topics (`None`: all), without creating topics."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=include_authorized_operations,
        )
        return await self.ask(Question(request, MetadataResponse, during="looking up topics"))

    async def metadata_of(self, partitions: Iterable[TopicPartition]) -> MetadataResponse:
        """Look up the topics of partitions, and check that the partitions exist.

        Raises:
            UnknownTopicError: a partition does not exist.
        """
        chosen = list(partitions)
        found = await self.metadata(sorted({each.topic for each in chosen}))
        for topic in found.topics:
            topic_results.check_topic(topic)
        cluster_results.check_partitions(chosen, found)
        return found

    async def offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, known: MetadataResponse
    ) -> dict[TopicPartition, int]:
        """Look up offsets of the partitions that have a leader, by the metadata in `known`, or newer if that fails."""
        return await self.of_brokers(lambda now: self._offsets_by(now, partitions, timestamp), known)

    async def _offsets_by(
        self, known: MetadataResponse, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        questions = [
            Question(
                request,
                list_offsets.ListOffsetsResponse,
                target=leader,
                during="looking up offsets",
                codes=lambda response: [row.error_code for topic in response.topics for row in topic.partitions],
            )
            for leader, request in topic_results.offsets_requests(partitions, timestamp, known).items()
        ]
        return {
            TopicPartition(topic.name, row.partition_index): row.offset
            for response in await self.ask_each(questions)
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == 0
        }

    async def do_all(
        self,
        wanted: Iterable[K],
        ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V | KohortError]]],
        *,
        during: str,
        per_request: Callable[[K], float] = lambda _: 0.0,
        is_passing: Callable[[KohortError], bool] = lambda _: True,
    ) -> dict[K, V]:
        """Ask for several things as `carry_out` does, within the timeout of a call; return or raise the outcome."""
        outcome = await carry_out(
            wanted, ask, during=during, within_s=self.timeout_s, per_request=per_request, is_passing=is_passing
        )
        return outcome.settle()

    async def ask_brokers(self, question: Question[R]) -> list[R]:
        """Send a request to every broker at once; raise the error of a response that has an error code."""

        async def look(known: MetadataResponse) -> list[R]:
            questions = [replace(question, target=Endpoint(row.host, row.port)) for row in known.brokers]
            return await self.ask_each(questions)

        responses = await self.of_brokers(look, await self.metadata(()))
        for response in responses:
            check(response, question.during)  # type: ignore[arg-type]  # it has a code
        return responses

    async def of_brokers(self, look: Callable[[MetadataResponse], Awaitable[T]], known: MetadataResponse) -> T:
        """Call `look` with metadata; look the metadata up and call again while a broker is not at its address."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return await look(known)
            except MovedError as moved:
                if time.monotonic() > deadline:
                    raise moved.why from None
            await Pause(_AGAIN_S)
            known = await self.metadata([topic.name for topic in known.topics if topic.name is not None])


class Calls:
    """The base of the classes with the admin client's calls."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._ask = questions.ask


def check(said: Coded, during: str, *, text: str | None = None, topic: str | None = None) -> None:
    """Raise the exception for the error code of a response, if it has one; arguments as for `error_of`."""
    if (error := error_of(said, during, text=text, topic=topic)) is not None:
        raise error


def error_of(
    said: Coded, during: str, *, text: str | None = None, topic: str | None = None, operation: str = ""
) -> KohortError | None:
    """Build the exception for the error code of a response; `None` for NONE.

    Args:
        text: message instead of the response's own.
        topic: the topic of the request, which may not exist.
        operation: the ACL operation on the cluster that the call needs.
    """
    code = ErrorCode.of(said.error_code)
    if code is ErrorCode.NONE:
        return None
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        return UnknownTopicError(topic)
    return refused(code, text or getattr(said, "error_message", None), during=during, operation=operation)


def gone(moved: MovedError, during: str) -> BrokerError:
    """Build the retriable error of a thing for which another broker is asked at the next attempt."""
    return BrokerError(ErrorCode.NETWORK_EXCEPTION, str(moved.why), during=during)


def answered(found: T | KohortError) -> T:
    """Return a result, or raise it if it is an error."""
    if isinstance(found, KohortError):
        raise found
    return found


@value(kw_only=False, frozen=False)
class Outcome(Generic[K, V]):
    """The results and errors of a call for several things, in the order of the call."""

    during: str
    done: dict[K, V] = field(default_factory=dict)
    failed: dict[K, KohortError] = field(default_factory=dict)

    @classmethod
    def of(cls, during: str, found: Mapping[K, V | KohortError]) -> Self:
        """Build the outcome of results, some of which are errors."""
        outcome = cls(during)
        for each, said in found.items():
            if isinstance(said, KohortError):
                outcome.failed[each] = said
            else:
                outcome.done[each] = said
        return outcome

    def settle(self) -> dict[K, V]:
        """Return all results if there are no errors.

        Raises:
            PartlyDoneError: some things have failed; if only one thing was asked for, its own error.
        """
        if not self.failed:
            return self.done
        if len(self.failed) == 1 and not self.done:
            raise next(iter(self.failed.values()))
        raise PartlyDoneError(self.during, self.done, self.failed)


async def carry_out(
    wanted: Iterable[K],
    ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V | KohortError]]],
    *,
    during: str,
    within_s: float,
    per_request: Callable[[K], float] = lambda _: 0.0,
    is_passing: Callable[[KohortError], bool] = lambda _: True,
) -> Outcome[K, V]:
    """Ask for several things until each has a result or a final error, or the time is up.

    Args:
        ask: sends one request and returns the result of each thing; an error that it raises applies to all things in
            the request, and to those not asked for yet.
        per_request: the share of one request that a thing uses up, 0 to 1.
        is_passing: returns whether to ask again after a retriable error.

    Raises:
        KohortError: raised by `ask` before any thing has a result.
    """
    order = list(dict.fromkeys(wanted))
    deadline = time.monotonic() + within_s
    found: dict[K, V | KohortError] = {}
    left = order
    while left:
        for part in _parts(left, per_request):
            try:
                found.update(await ask(part))
            except KohortError as why:
                if not found:
                    raise
                found.update({each: why for each in order if each not in found or each in part})
                break
        else:
            left = [each for each in left if _may_pass(found.get(each), is_passing)]
            if left and time.monotonic() < deadline:
                await Pause(_AGAIN_S)
                continue
        break
    unsaid = {each: KohortError(f"the broker has said nothing of {each}") for each in order if each not in found}
    return Outcome.of(during, {each: unsaid.get(each) or found[each] for each in order})


def _may_pass(said: object, is_passing: Callable[[KohortError], bool]) -> bool:
    return isinstance(said, BrokerError) and may_pass(said.code) and is_passing(said)


def _parts(things: Sequence[K], per_request: Callable[[K], float]) -> Iterable[list[K]]:
    part: list[K] = []
    full = 0.0
    for each in things:
        full += per_request(each)
        if part and full > 1:
            yield part
            part, full = [], per_request(each)
        part.append(each)
    yield part
