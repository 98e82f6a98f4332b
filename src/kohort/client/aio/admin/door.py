"""The same as `client/admin/door.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import cast

from kohort.client.actions import Endpoint
from kohort.client.admin.core import topics as topic_shapes
from kohort.client.admin.core.admin_machine import Coordinator, MovedError, RequestAsked
from kohort.client.admin.core.groupid import check_group_id
from kohort.client.admin.door import _AT_ONCE, _LOOK_AGAIN_S, GRACE_S, Question, R, T, _Own, answered
from kohort.client.aio.admin_host import AdminHost
from kohort.errors import BrokerError, ErrorCode, KohortError, StateError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.schema import Message


class AdminDoor(AdminHost):
    """What every call of the admin client goes through."""

    async def _ask(
        self,
        request: Message,
        expected: type[R],
        *,
        during: str,
        codes: Callable[[R], Iterable[int]],
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
        return (await self._ask_each([question]))[0]

    async def _ask_each(self, questions: Sequence[Question[R]]) -> list[R]:
        """The responses to several requests that are sent together; where one has none, why the first of them has."""
        return [answered(answer) for answer in await self._ask_all(questions)]

    async def _ask_all(
        self, questions: Sequence[Question[R]], *, deadline_ms: int | None = None
    ) -> list[R | KohortError]:
        """Several requests, sent together and each asked again by itself: its response, or why there is none.

        `deadline_ms`: by the host's clock; `None` is `default.api.timeout.ms` from now.
        """
        deadline = self._io.deadline_ms(self._timeout_s) if deadline_ms is None else deadline_ms
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
        self._io.post(
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
            answer = await self._io.wait(ticket, self._timeout_s + GRACE_S)
        except StateError:
            raise
        except KohortError as why:
            return why
        assert isinstance(answer, expected)
        return answer

    async def _ask_own(self, request: Message, expected: type[_Own], *, group: str, feature: str, during: str) -> _Own:
        """One request of an API of kohort's own, to the coordinator of a group.

        Raises:
            UnsupportedFeatureError: the broker has no such API; `feature` says what it lacks.
        """
        try:
            return await self._ask(
                request,
                expected,
                target=Coordinator(group_id=group),
                during=during,
                codes=lambda response: [response.error_code],
            )
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"only kohort's broker {feature}: {why.message}"
            raise UnsupportedFeatureError(why.code, text, during=during) from why

    async def _metadata(
        self, topics: Iterable[str] | None, *, include_authorized_operations: bool = False
    ) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return await self._ask(
            MetadataRequest(
                topics=wanted,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=include_authorized_operations,
            ),
            MetadataResponse,
            during="looking up topics",
            codes=lambda response: [response.error_code],
        )

    async def _offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, metadata: MetadataResponse
    ) -> dict[TopicPartition, int]:
        """Of those partitions that have a leader; `metadata` says who leads, until that turns out to be old."""
        return await self._of_brokers(lambda now: self._offsets_by(now, partitions, timestamp), metadata)

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
            for response in await self._ask_each(questions)
            for topic in response.topics
            for row in topic.partitions
            if row.error_code == 0
        }

    async def _of_brokers(self, look: Callable[[MetadataResponse], Awaitable[T]], metadata: MetadataResponse) -> T:
        """What brokers of certain addresses say; with fresh metadata of the same topics while one of them has moved."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return await look(metadata)
            except MovedError as moved:
                if time.monotonic() > deadline:
                    raise moved.why from None
            await asyncio.sleep(_LOOK_AGAIN_S)
            metadata = await self._metadata([topic.name for topic in metadata.topics if topic.name is not None])
