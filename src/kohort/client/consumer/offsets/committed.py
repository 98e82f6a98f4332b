"""Queries for the group's committed offsets.

Laws: each partition of a query gets one result. A query by topic id never returns an offset of another topic with the
same name. A topic that the coordinator does not know yet does not delay the others.
Source: Kafka's OffsetFetch API; KIP-848, offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.base.values import value
from kohort.client.consumer.offsets.commits import LAST_BY_NAME, NO_MEMBER, UNKNOWN_TOPIC, Committer
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.coordinator_lookup import MOVED, CoordinatorLookup
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.client.records import OffsetAndMetadata
from kohort.errors import ErrorCode, KohortError, KohortTimeoutError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.wire.messages import offset_fetch

_Row = offset_fetch.OffsetFetchResponsePartition | offset_fetch.OffsetFetchResponsePartitions
#: The committed offset of each partition (`None` without one), or the error that ended the query.
Committed = Mapping[TopicPartition, OffsetAndMetadata | None] | KohortError
FetchThen = Callable[[Committed, int], None]


@value(frozen=False, eq=False)
class _Query:
    #: Partitions without a result, with the topic ids that are asked for; zero asks by name.
    open: dict[TopicPartition, TopicId]
    then: FetchThen
    deadline_ms: int
    is_wanted: Callable[[TopicPartition], bool]
    is_asked: bool = False
    is_over: bool = False
    due_ms: int = 0
    attempts: int = 0


class CommittedOffsets:
    """The OffsetFetch queries of one group."""

    def __init__(self, requests: Requests, lookup: CoordinatorLookup, committer: Committer, *, group_id: str) -> None:
        self._requests = requests
        self._lookup = lookup
        self._committer = committer
        self._group_id = group_id
        self._queries: list[_Query] = []
        #: Wakes this part of the machine.
        self.wake: Callable[[], None] = lambda: None

    def ask(
        self,
        partitions: Mapping[TopicPartition, TopicId],
        then: FetchThen,
        *,
        deadline_ms: int,
        now_ms: int,
        is_wanted: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        """Look up committed offsets; `None` for a partition without one.

        Args:
            partitions: with the topic ids by which they are read; zero means the topic that has the name now.
            then: called with the results: once for all partitions that are asked for by name, and for those by id as
                they are found, since a coordinator may not know a topic yet.
        """
        self._queries.append(
            _Query(open=dict(partitions), then=then, deadline_ms=deadline_ms, is_wanted=is_wanted, due_ms=now_ms)
        )
        self.wake()

    def next_deadline(self) -> int | None:
        """Return when the next request or a deadline is due."""
        deadlines = [query.deadline_ms for query in self._queries]
        if self._lookup.endpoint is not None:
            deadlines += [query.due_ms for query in self._queries if not query.is_asked]
        return min(deadlines, default=None)

    def work(self, now_ms: int) -> None:
        """Send the queries that are due, and end those past their deadline."""
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
        # A consumer that is not a member at present may still ask; then no epoch is checked.
        member_id, epoch = self._committer.identity() or ("", -1)
        topics: dict[tuple[str, TopicId], list[int]] = {}
        for each, topic_id in query.open.items():
            topics.setdefault((each.topic, topic_id), []).append(each.partition)
        names = {bytes(topic_id): name for name, topic_id in topics}
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=member_id or None,
            member_epoch=epoch if member_id else -1,
            topics=[
                offset_fetch.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=each)
                for (name, topic_id), each in topics.items()
            ],
        )
        request = offset_fetch.OffsetFetchRequest(
            group_id=self._group_id,
            topics=[
                offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=each)
                for (name, _), each in topics.items()
            ],
            groups=[group],
            # An offset of a transaction that may yet be aborted must not be read past.
            require_stable=True,
        )
        query.is_asked = True

        def then(answer: Answer, now_ms: int) -> None:
            query.is_asked = False
            if not query.is_over:
                self._on_query_answer(query, answer, endpoint, names, now_ms)

        most = LAST_BY_NAME if ZERO_TOPIC_ID in names else None
        self._requests.send(endpoint, Lane.COORDINATOR, request, then, max_version=most)

    def _on_query_answer(
        self, query: _Query, answer: Answer, endpoint: Endpoint, names: Mapping[bytes, str], now_ms: int
    ) -> None:
        response = message_of(answer, offset_fetch.OffsetFetchResponse)
        if response is None:
            self._lookup.lost(endpoint, now_ms)
            self._ask_again(query, now_ms)
            return
        code, found = _read_offsets(response, names)
        if code is ErrorCode.NONE:
            self._lookup.works()
            self._on_found(query, found, now_ms)
        elif code in MOVED:
            self._lookup.lost(endpoint, now_ms)
            self._ask_again(query, now_ms)
        elif code is ErrorCode.STALE_MEMBER_EPOCH or code in NO_MEMBER or code.retriable:
            # The membership is changing: its heartbeat brings the epoch with which to ask. A stale epoch is never read
            # as "no offset" (platformatic/kafka #267); it is asked again after a pause (KAFKA-20765).
            self._ask_again(query, now_ms)
        else:
            during = f"asking for the committed offsets of group {self._group_id}"
            self._end_query(query, refused(code, during=during, operation="read", name=self._group_id), now_ms)

    def _on_found(self, query: _Query, found: Mapping[TopicPartition, _Row], now_ms: int) -> None:
        """Pass on the offsets that were found; ask again for topics that the coordinator does not know yet."""
        unknown = {
            each: topic_id
            for each, topic_id in query.open.items()
            if topic_id != ZERO_TOPIC_ID and each in found and ErrorCode.of(found[each].error_code) in UNKNOWN_TOPIC
        }
        known = {each: _read_offset(found.get(each)) for each in query.open if each not in unknown}
        query.open = {each: topic_id for each, topic_id in unknown.items() if query.is_wanted(each)}
        if not query.open:
            self._end_query(query, known, now_ms)
            return
        self._ask_again(query, now_ms)
        if known:
            query.then(known, now_ms)

    def _ask_again(self, query: _Query, now_ms: int) -> None:
        query.due_ms = now_ms + max(1, self._requests.retry.delay_ms(query.attempts))
        query.attempts += 1

    def _end_query(self, query: _Query, result: Committed, now_ms: int) -> None:
        query.is_over = True
        self._queries.remove(query)
        query.then(result, now_ms)


def _read_offsets(
    response: offset_fetch.OffsetFetchResponse, names: Mapping[bytes, str]
) -> tuple[ErrorCode, dict[TopicPartition, _Row]]:
    """Return the first error other than an unknown topic, and the rows; `names` maps topic ids to names."""
    rows: list[tuple[str, _Row]]
    if response.groups:
        group = response.groups[0]
        code = ErrorCode.of(group.error_code)
        rows = [
            (topic.name or names.get(bytes(topic.topic_id), ""), each)
            for topic in group.topics
            for each in topic.partitions
        ]
    else:
        code = ErrorCode.of(response.error_code)
        rows = [(topic.name, each) for topic in response.topics for each in topic.partitions]
    for _, each in rows:
        if code is ErrorCode.NONE and ErrorCode.of(each.error_code) not in UNKNOWN_TOPIC:
            code = ErrorCode.of(each.error_code)
    return code, {TopicPartition(name, each.partition_index): each for name, each in rows}


def _read_offset(row: _Row | None) -> OffsetAndMetadata | None:
    """Read one row; -1 in a response means that nothing is committed."""
    if row is None or row.committed_offset < 0:
        return None
    return OffsetAndMetadata(row.committed_offset, row.metadata or "", row.committed_leader_epoch)
