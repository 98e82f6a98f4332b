"""The door of the admin client: its thread, and one question with its answer.

Source: Kafka's Admin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from kohort.client.actions import Endpoint
from kohort.client.admin.core import topics as topic_shapes
from kohort.client.admin.core.admin_machine import (
    AdminCloseAsked,
    AdminEvent,
    AdminMachine,
    Coordinator,
    MovedError,
    RequestAsked,
)
from kohort.client.io.thread import IoThread
from kohort.client.options import ADMIN_OPTIONS, client_settings
from kohort.errors import BrokerError, ErrorCode, UnknownTopicError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.wire.messages.describe_moves import DescribeMovesResponse
from kohort.wire.messages.group_history import GroupHistoryResponse
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.messages.submit_moves import SubmitMovesResponse
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions

R = TypeVar("R", bound=Message)
T = TypeVar("T")
#: What kohort's own brokers answer.
_Own = TypeVar("_Own", GroupHistoryResponse, SubmitMovesResponse, DescribeMovesResponse)

#: Between two looks at who leads, seconds.
_LOOK_AGAIN_S = 0.1


class AdminDoor:
    """What every call of the admin client goes through. May be shared by threads."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Nothing is connected before the first call.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, or is given twice.
        """
        values = ADMIN_OPTIONS.parse(ADMIN_OPTIONS.gather(config, options))
        settings = client_settings(values, seed=time.monotonic_ns() & 0xFFFF_FFFF)
        self._timeout_s = values["default.api.timeout.ms"] / 1000
        self._io: IoThread[AdminEvent] = IoThread(
            AdminMachine(settings), settings, deliver=lambda _: None, what="admin client"
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An admin client from Kafka's dotted names."""
        return cls(config)

    def close(self) -> None:
        """End; harmless if it is closed already."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            self._io.join(5.0)
        self._io.raise_failure()

    def metrics(self) -> dict[str, float]:
        """What this client has counted so far, by Kafka's names; see docs/client.md."""
        return self._io.traffic.metrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self,
        request: Message,
        expected: type[R],
        *,
        during: str,
        codes: Callable[[R], Iterable[int]],
        target: Endpoint | Coordinator | None = None,
        max_version: int | None = None,
    ) -> R:
        """One request and its response; asked again while it is answered by codes that may pass."""
        deadline = self._io.deadline_ms(self._timeout_s)
        answer = self._io.call(
            lambda ticket: RequestAsked(
                ticket=ticket,
                deadline_ms=deadline,
                request=request,
                target=target,
                codes=cast("Callable[[Message], Iterable[int]]", codes),
                during=during,
                max_version=max_version,
            ),
            self._timeout_s + 5.0,
        )
        assert isinstance(answer, expected)
        return answer

    def _ask_own(self, request: Message, expected: type[_Own], *, group: str, feature: str, during: str) -> _Own:
        """One request of an API of kohort's own, to the coordinator of a group.

        Raises:
            UnsupportedFeatureError: the broker has no such API; `feature` says what it lacks.
        """
        try:
            return self._ask(
                request,
                expected,
                target=Coordinator(group_id=group),
                during=during,
                codes=lambda response: [response.error_code],
            )
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"only kohort's broker {feature}, and this is another"
            raise UnsupportedFeatureError(why.code, text, during=during) from why

    def _metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return self._ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False),
            MetadataResponse,
            during="looking up topics",
            codes=lambda response: [response.error_code],
        )

    def _offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, metadata: MetadataResponse
    ) -> dict[TopicPartition, int]:
        """Of those partitions that have a leader; `metadata` says who leads, until that turns out to be old."""
        return self._of_brokers(lambda now: self._offsets_by(now, partitions, timestamp), metadata)

    def _offsets_by(
        self, metadata: MetadataResponse, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, request in topic_shapes.offsets_requests(partitions, timestamp, metadata).items():
            response = self._ask(
                request,
                ListOffsetsResponse,
                target=leader,
                during="looking up offsets",
                codes=lambda response: [row.error_code for topic in response.topics for row in topic.partitions],
            )
            for topic in response.topics:
                for row in topic.partitions:
                    if row.error_code == 0:
                        found[TopicPartition(topic.name, row.partition_index)] = row.offset
        return found

    def _of_brokers(self, look: Callable[[MetadataResponse], T], metadata: MetadataResponse) -> T:
        """What brokers of certain addresses say; with fresh metadata of the same topics while one of them has moved."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return look(metadata)
            except MovedError as moved:
                if time.monotonic() > deadline:
                    raise moved.why from None
            time.sleep(_LOOK_AGAIN_S)
            metadata = self._metadata([topic.name for topic in metadata.topics if topic.name is not None])


def check(code: int, message: str | None, during: str, *, topic: str | None = None) -> None:
    """Raise what a code of an answer means; NONE is nothing."""
    found = ErrorCode.of(code)
    if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        raise UnknownTopicError(topic)
    if found is not ErrorCode.NONE:
        raise BrokerError(found, message, during=during)
