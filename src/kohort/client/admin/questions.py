"""Questions that the admin client asks brokers, and their answers.

Source: Kafka's Admin.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

from kohort.client.admin.admin_machine import AdminEvent, Coordinator, CoordinatorAt, MovedError, RequestAsked, may_pass
from kohort.client.admin.results import cluster as replica_shapes
from kohort.client.admin.results import topics as topic_shapes
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
from kohort.wire.messages.describe_moves import DescribeMovesResponse
from kohort.wire.messages.group_history import GroupHistoryResponse
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.messages.submit_moves import SubmitMovesResponse
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
#: What kohort's own brokers answer.
_Own = TypeVar("_Own", GroupHistoryResponse, SubmitMovesResponse, DescribeMovesResponse)

#: Between two looks at who leads, seconds.
_LOOK_AGAIN_S = 0.1
#: Requests of one call that are under way at once.
_AT_ONCE: Final = 100
#: What a call may take beyond its own time, so that the machine's better error arrives, seconds.
GRACE_S: Final = 5.0


def _code_of(response: Message) -> Iterable[int]:
    """Find the code of the whole response; those of its rows are for the call to read."""
    code = getattr(response, "error_code", None)
    return () if code is None else (code,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[R]):
    """One request and what answers it; the other fields are those of `RequestAsked`."""

    request: Message
    expected: type[R]
    during: str
    codes: Callable[[R], Iterable[int]] = _code_of
    target: Endpoint | Coordinator | CoordinatorAt | None = None
    min_version: int | None = None
    max_version: int | None = None


class Questions:
    """What every call of the admin client goes through.

    Args:
        host: where the machine runs.
        timeout_s: how long a call may take, seconds.
    """

    def __init__(self, host: Host[AdminEvent], timeout_s: float) -> None:
        self.host: Final = host
        self.timeout_s: Final = timeout_s

    async def ask(
        self,
        request: Message,
        expected: type[R],
        *,
        during: str,
        codes: Callable[[R], Iterable[int]] = _code_of,
        target: Endpoint | Coordinator | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """One request and its response; asked again while it is answered by codes that may pass.

        Raises:
            UnsupportedFeatureError: the broker has no version of it from `min_version` to `max_version`.
        """
        question = Question(
            request=request,
            expected=expected,
            during=during,
            codes=codes,
            target=target,
            min_version=min_version,
            max_version=max_version,
        )
        ticket = self._post(question, self.host.deadline_ms(self.timeout_s))
        return answered(await self._end(ticket, expected))

    async def ask_checked(
        self, request: Message, expected: type[R], *, during: str, min_version: int | None = None
    ) -> R:
        """Ask any broker, as `ask` does; raise what the code of the whole response means."""
        response = await self.ask(request, expected, during=during, min_version=min_version)
        check(response.error_code, getattr(response, "error_message", None), during)  # type: ignore[attr-defined]
        return response

    async def ask_each(self, questions: Sequence[Question[R]]) -> list[R]:
        """The responses to several requests that are sent together; where one has none, why the first of them has."""
        return [answered(answer) for answer in await self.ask_all(questions)]

    async def ask_all(
        self, questions: Sequence[Question[R]], *, deadline_ms: int | None = None
    ) -> list[R | KohortError]:
        """Several requests, sent together and each asked again by itself: its response, or why there is none.

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
        self.host.post(
            RequestAsked(
                ticket=ticket,
                deadline_ms=deadline_ms,
                request=question.request,
                target=question.target,
                codes=cast("Callable[[Message], Iterable[int]]", question.codes),
                during=question.during,
                min_version=question.min_version,
                max_version=question.max_version,
            )
        )
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
        """One request of an API of kohort's own, to the coordinator of a group.

        Raises:
            UnsupportedFeatureError: the broker has no such API; `feature` says what it lacks.
        """
        try:
            return await self.ask(request, expected, target=Coordinator(group_id=group), during=during)
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"only kohort's broker {feature}: {why.message}"
            raise UnsupportedFeatureError(why.code, text, during=during) from why

    async def metadata(
        self, topics: Iterable[str] | None, *, include_authorized_operations: bool = False
    ) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return await self.ask(
            MetadataRequest(
                topics=wanted,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=include_authorized_operations,
            ),
            MetadataResponse,
            during="looking up topics",
        )

    async def metadata_of(self, partitions: Iterable[TopicPartition]) -> MetadataResponse:
        """The metadata of partitions that have to be there.

        Raises:
            UnknownTopicError: one of them is not.
        """
        chosen = list(partitions)
        metadata = await self.metadata(sorted({each.topic for each in chosen}))
        for topic in metadata.topics:
            topic_shapes.check_topic(topic)
        replica_shapes.check_partitions(chosen, metadata)
        return metadata

    async def offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, metadata: MetadataResponse
    ) -> dict[TopicPartition, int]:
        """The offsets of those partitions that have a leader: the one in `metadata` until it has moved."""
        return await self.of_brokers(lambda now: self._offsets_by(now, partitions, timestamp), metadata)

    async def _offsets_by(
        self, metadata: MetadataResponse, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        questions = [
            Question(
                request=request,
                expected=ListOffsetsResponse,
                target=leader,
                during="looking up offsets",
                codes=lambda response: [row.error_code for topic in response.topics for row in topic.partitions],
            )
            for leader, request in topic_shapes.offsets_requests(partitions, timestamp, metadata).items()
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
        """Ask for several things as `carry_out` does, within the time of a call; return what was done, or raise."""
        outcome = await carry_out(
            wanted, ask, during=during, within_s=self.timeout_s, per_request=per_request, is_passing=is_passing
        )
        return outcome.settle()

    async def of_brokers(self, look: Callable[[MetadataResponse], Awaitable[T]], metadata: MetadataResponse) -> T:
        """What brokers of certain addresses say; with fresh metadata of the same topics while one of them has moved."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return await look(metadata)
            except MovedError as moved:
                if time.monotonic() > deadline:
                    raise moved.why from None
            await Pause(_LOOK_AGAIN_S)
            metadata = await self.metadata([topic.name for topic in metadata.topics if topic.name is not None])


class Calls:
    """A family of the admin client's calls."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions


def check(code: int, message: str | None, during: str, *, topic: str | None = None) -> None:
    """Raise what a code of an answer means; NONE is nothing."""
    error = error_of(code, message, during, topic=topic)
    if error is not None:
        raise error


def error_of(
    code: int, message: str | None, during: str, *, topic: str | None = None, operation: str = ""
) -> KohortError | None:
    """What a code of an answer means, `None` for NONE; `operation` is the right on the cluster that it needed."""
    found = ErrorCode.of(code)
    if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        return UnknownTopicError(topic)
    return None if found is ErrorCode.NONE else refused(found, message, during=during, operation=operation)


def answered(found: T | KohortError) -> T:
    """What was found; raise why there is nothing."""
    if isinstance(found, KohortError):
        raise found
    return found


# What one call asks for of several things, each of which may be done or refused on its own.
#
# Laws: what was answered for good is not asked again; nothing that was done is forgotten when the rest fails.

#: Between two rounds, seconds.
_AGAIN_S: Final = 0.1


@dataclass(slots=True)
class Outcome(Generic[K, V]):
    """What became of each thing, in the order asked."""

    during: str
    done: dict[K, V] = field(default_factory=dict)
    failed: dict[K, KohortError] = field(default_factory=dict)

    def settle(self) -> dict[K, V]:
        """All that was done.

        Raises:
            PartlyDoneError: some of it was not; where only one thing was asked for its own error.
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
    """Ask for several things until each is done, or refused for good, or time is up.

    Args:
        ask: one request and what it says of each thing; an error that it raises is that of all that it was asked for,
            and of what would have come behind.
        per_request: which part of what one request may have a thing takes, 0 to 1.
        is_passing: whether to ask again after one of the errors that may pass.

    Raises:
        KohortError: of `ask`, where nothing is known of anything yet.
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
    outcome: Outcome[K, V] = Outcome(during)
    for each in order:
        said = found.get(each, KohortError(f"the broker has said nothing of {each}"))
        if isinstance(said, KohortError):
            outcome.failed[each] = said
        else:
            outcome.done[each] = said
    return outcome


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
