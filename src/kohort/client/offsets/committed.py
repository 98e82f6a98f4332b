"""Asking which offsets the group has committed.

Laws: each query ends once; a stale epoch is never read as "no offset", it is asked again with the epoch of then
(platformatic/kafka #267), after a pause (KAFKA-20765).
Source: Kafka's OffsetFetch API; KIP-848, offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kohort.client.actions import Endpoint, Lane
from kohort.client.coordinator_lookup import MOVED, CoordinatorLookup
from kohort.client.offsets.commits import NO_MEMBER, Committer
from kohort.client.records import OffsetAndMetadata
from kohort.client.refusals import refused
from kohort.client.requests import Answer, Requests, message_of
from kohort.client.retry import Backoff
from kohort.errors import ErrorCode, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

#: The request goes by topic name up to this version.
_BY_NAME: Final = 9

#: What is committed of each partition, `None` where nothing is; or why nobody knows.
Committed = Mapping[TopicPartition, OffsetAndMetadata | None] | KohortError
FetchThen = Callable[[Committed, int], None]


@dataclass(slots=True, kw_only=True, eq=False)
class _Query:
    partitions: tuple[TopicPartition, ...]
    then: FetchThen
    deadline_ms: int
    is_asked: bool = False
    is_over: bool = False
    due_ms: int = 0
    attempts: int = 0


class CommittedOffsets:
    """Asks the coordinator of one group."""

    def __init__(
        self, requests: Requests, lookup: CoordinatorLookup, committer: Committer, *, group_id: str, retry: Backoff
    ) -> None:
        self._requests = requests
        self._lookup = lookup
        self._committer = committer
        self._group_id = group_id
        self._retry = retry
        self._queries: list[_Query] = []

    def ask(self, partitions: Iterable[TopicPartition], then: FetchThen, *, deadline_ms: int, now_ms: int) -> None:
        """Find the committed offsets; `None` for a partition without one."""
        query = _Query(partitions=tuple(partitions), then=then, deadline_ms=deadline_ms, due_ms=now_ms)
        self._queries.append(query)

    def next_deadline(self) -> int | None:
        """When `on_tick` has something to do."""
        deadlines = [query.deadline_ms for query in self._queries]
        if self._lookup.endpoint is not None:
            deadlines += [query.due_ms for query in self._queries if not query.is_asked]
        return min(deadlines, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Ask what is due, give up what is late."""
        for query in [each for each in self._queries if now_ms >= each.deadline_ms]:
            error = KohortTimeoutError(f"the committed offsets of group {self._group_id} were not found in time")
            self._end_query(query, error, now_ms)
        for query in list(self._queries):
            if not query.is_asked and now_ms >= query.due_ms:
                endpoint = self._lookup.need(now_ms)
                if endpoint is not None:
                    self._send_query(query, endpoint)

    def fail_all(self, error: KohortError, now_ms: int) -> None:
        """End every query with that error."""
        for query in list(self._queries):
            self._end_query(query, error, now_ms)

    def _send_query(self, query: _Query, endpoint: Endpoint) -> None:
        # Who is no member at present may still ask, unchecked.
        member_id, epoch = self._committer.identity() or ("", -1)
        topics: dict[str, list[int]] = {}
        for topic, partition in query.partitions:
            topics.setdefault(topic, []).append(partition)
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=member_id or None,
            member_epoch=epoch if member_id else -1,
            topics=[OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()],
        )
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()],
            groups=[group],
            # An offset of a transaction that may yet be aborted must not be read past.
            require_stable=True,
        )
        query.is_asked = True

        def then(answer: Answer, now_ms: int) -> None:
            query.is_asked = False
            if not query.is_over:
                self._on_query_answer(query, answer, endpoint, now_ms)

        self._requests.send(endpoint, Lane.COORDINATOR, request, then, max_version=_BY_NAME)

    def _on_query_answer(self, query: _Query, answer: Answer, endpoint: Endpoint, now_ms: int) -> None:
        response = message_of(answer, OffsetFetchResponse)
        if response is None:
            self._lookup.lost(endpoint, now_ms)
            self._ask_again(query, now_ms)
            return
        code, found = _read_offsets(response)
        if code is ErrorCode.NONE:
            self._lookup.works()
            self._end_query(query, {each: found.get(each) for each in query.partitions}, now_ms)
        elif code in MOVED:
            self._lookup.lost(endpoint, now_ms)
            self._ask_again(query, now_ms)
        elif code is ErrorCode.STALE_MEMBER_EPOCH or code in NO_MEMBER or code.retriable:
            # The membership is changing: its heartbeat brings the epoch with which to ask.
            self._ask_again(query, now_ms)
        else:
            during = f"asking for the committed offsets of group {self._group_id}"
            self._end_query(query, refused(code, during=during, operation="read", name=self._group_id), now_ms)

    def _ask_again(self, query: _Query, now_ms: int) -> None:
        query.due_ms = now_ms + max(1, self._retry.delay_ms(query.attempts))
        query.attempts += 1

    def _end_query(self, query: _Query, result: Committed, now_ms: int) -> None:
        query.is_over = True
        self._queries.remove(query)
        query.then(result, now_ms)


def _read_offsets(response: OffsetFetchResponse) -> tuple[ErrorCode, dict[TopicPartition, OffsetAndMetadata | None]]:
    """The first error, or what is committed."""
    entries: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    if response.groups:
        group = response.groups[0]
        code = ErrorCode.of(group.error_code)
        entries = [(topic.name, each) for topic in group.topics for each in topic.partitions]
    else:
        code = ErrorCode.of(response.error_code)
        entries = [(topic.name, each) for topic in response.topics for each in topic.partitions]
    for _, each in entries:
        code = code if code is not ErrorCode.NONE else ErrorCode.of(each.error_code)
    return code, {TopicPartition(name, each.partition_index): _read_offset(each) for name, each in entries}


def _read_offset(
    entry: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> OffsetAndMetadata | None:
    """-1 on the wire means that nothing is committed."""
    if entry.committed_offset < 0:
        return None
    return OffsetAndMetadata(entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch)
