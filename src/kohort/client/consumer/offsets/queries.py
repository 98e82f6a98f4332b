"""Queries for offsets: the log's start, its end, or that of the first record at or after a timestamp.

Laws: each query ends once, with results for all its partitions or with an error. A partition whose leader is unknown or
has changed is asked for again after a pause, until the query's deadline.
Source: Kafka's ListOffsets API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from kohort.base.values import value
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.errors import BrokerError, ErrorCode, KohortError, KohortTimeoutError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.wire.messages import list_offsets
from kohort.wire.messages.list_offsets import ListOffsetsPartition

#: A topic that was just created may be unknown to a broker for a moment.
UNKNOWN_TOPIC_GRACE_MS: Final = 1_000

#: (offset, timestamp of its record), or `None` without a record from the timestamp on.
Found = tuple[int, int] | None
Result = Mapping[TopicPartition, Found] | KohortError
Then = Callable[[Result, int], None]
#: Called for a partition without a result, with the reason and the time.
OnError = Callable[[TopicPartition, KohortError, int], None]


@value(frozen=False, eq=False)
class _Query:
    #: Partitions without a result -> timestamp.
    open: dict[TopicPartition, int]
    then: Then
    on_error: OnError | None
    started_ms: int
    #: The first generation of the cluster's metadata that was asked for since the query began.
    first_generation: int
    deadline_ms: int
    found: dict[TopicPartition, Found] = field(default_factory=dict)
    #: Partitions that are being asked for now.
    asked: set[TopicPartition] = field(default_factory=set)
    due_ms: int = 0
    #: Generation of the metadata in which a leader was missing; newer metadata is looked at without a pause.
    looked_at_generation: int | None = None
    attempts: int = 0
    is_over: bool = False


class OffsetQueries:
    """The ListOffsets queries of one client; each partition's leader is asked."""

    def __init__(self, requests: Requests, cluster: Cluster, *, is_read_committed: bool) -> None:
        self._requests = requests
        self._cluster = cluster
        self._is_read_committed = is_read_committed
        self._queries: list[_Query] = []
        #: Wakes this part of the machine, and the one that follows the queries' topics.
        self.wake: Callable[[], None] = lambda: None

    def ask(
        self,
        timestamps: Mapping[TopicPartition, int],
        then: Then,
        *,
        deadline_ms: int,
        now_ms: int,
        on_error: OnError | None = None,
    ) -> None:
        """Look up an offset for each partition; call `then(result, now_ms)` once, or with `on_error` in parts.

        Args:
            timestamps: partition -> timestamp, or one of Kafka's negative codes.
            on_error: called for each partition that fails. With it, `then` is called with each part of the result as
                it arrives, so that no partition waits for another one's leader; an error in `then` concerns the
                partitions that are still missing.
        """
        self._queries.append(
            _Query(
                open=dict(timestamps),
                then=then,
                on_error=on_error,
                started_ms=now_ms,
                first_generation=self._cluster.next_generation,
                deadline_ms=deadline_ms,
                due_ms=now_ms,
            )
        )
        self.wake()

    def topics(self) -> set[str]:
        """Return the topics of open queries."""
        return {partition.topic for query in self._queries for partition in query.open}

    def next_deadline(self) -> int | None:
        """Return when the next request or a deadline is due."""
        deadlines = [query.deadline_ms for query in self._queries]
        deadlines += [query.due_ms for query in self._queries if query.open.keys() - query.asked]
        return min(deadlines, default=None)

    def work(self, now_ms: int) -> None:
        """Send the queries that are due, and end those past their deadline."""
        for query in list(self._queries):
            if not query.open:
                self._end(query, query.found, now_ms)
            elif now_ms >= query.deadline_ms:
                names = ", ".join(str(partition) for partition in sorted(query.open)[:5])
                self._end(query, KohortTimeoutError(f"no answer about the offsets of {names} in time"), now_ms)
            elif now_ms >= query.due_ms or query.looked_at_generation not in (None, self._cluster.generation):
                self._ask_leaders(query, now_ms)

    def fail_all(self, error: KohortError, now_ms: int) -> None:
        """End every query with that error."""
        for query in list(self._queries):
            self._end(query, error, now_ms)

    def _ask_leaders(self, query: _Query, now_ms: int) -> None:
        by_leader: dict[Endpoint, list[TopicPartition]] = {}
        waiting = False
        query.looked_at_generation = None
        for partition in sorted(query.open.keys() - query.asked):
            leader = self._cluster.leader_of(partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
                continue
            refusal = self.find_refusal(partition.topic)
            if refusal is not None or self._is_unknown(query, partition, now_ms):
                self._fail(query, partition, refusal or self._unknown(partition), now_ms)
                if query.is_over:
                    return
            else:
                waiting = True
        if not query.open:
            self._end(query, query.found, now_ms)
            return
        for leader, partitions in by_leader.items():
            self._send(query, leader, partitions, now_ms)
        if waiting:
            query.looked_at_generation = self._cluster.generation
            self._cluster.refresh_soon(now_ms)
            self._pause(query, now_ms)

    def _is_unknown(self, query: _Query, partition: TopicPartition, now_ms: int) -> bool:
        topic = self._cluster.topics.get(partition.topic)
        # A topic that was just created may be unknown to the broker that was asked.
        is_new = now_ms < query.started_ms + UNKNOWN_TOPIC_GRACE_MS
        # Metadata from before the query may lack a new partition.
        if topic is None or is_new or self._cluster.generation < query.first_generation:
            return False
        is_missing = topic.error is ErrorCode.NONE and partition.partition not in topic.partitions
        return is_missing or topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)

    def find_refusal(self, name: str) -> BrokerError | None:
        """Return the error if brokers hide a topic from this client because it may not read it, otherwise `None`."""
        if not self._cluster.is_hidden(name):
            return None
        return refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, during=f"looking up topic {name}", operation="read", name=name
        )

    def _unknown(self, partition: TopicPartition) -> UnknownTopicError:
        there = self._cluster.partitions_of(partition.topic)
        if there:
            return UnknownTopicError(partition.topic, partition.partition, len(there))
        return UnknownTopicError(partition.topic)

    def _pause(self, query: _Query, now_ms: int) -> None:
        query.due_ms = now_ms + max(1, self._requests.retry.delay_ms(query.attempts))
        query.attempts += 1

    def _send(self, query: _Query, leader: Endpoint, partitions: list[TopicPartition], now_ms: int) -> None:
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if self._is_read_committed else 0,
            topics=_by_topic(
                (partition.topic, self._entry(partition, query.open[partition])) for partition in partitions
            ),
            timeout_ms=max(1, min(query.deadline_ms - now_ms, self._requests.request_timeout_ms)),
        )
        query.asked.update(partitions)

        def then(answer: Answer, now_ms: int) -> None:
            query.asked.difference_update(partitions)
            if not query.is_over:
                self._on_answer(query, answer, now_ms)

        self._requests.send(leader, Lane.CONTROL, request, then)

    def _entry(self, partition: TopicPartition, timestamp: int) -> ListOffsetsPartition:
        info = self._cluster.partition(partition)
        return ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            timestamp=timestamp,
        )

    def _on_answer(self, query: _Query, answer: Answer, now_ms: int) -> None:
        response = message_of(answer, list_offsets.ListOffsetsResponse)
        if response is None:
            self._cluster.refresh(now_ms)
            self._pause(query, now_ms)
            return
        for topic in response.topics:
            for found in topic.partitions:
                if query.is_over:
                    return
                self._on_partition(query, TopicPartition(topic.name, found.partition_index), found, now_ms)
        if not query.open:
            self._end(query, query.found, now_ms)
        # A part of the result is handed on, so that it does not wait for other leaders.
        elif query.on_error is not None and query.found:
            partial, query.found = query.found, {}
            query.then(partial, now_ms)

    def _on_partition(
        self, query: _Query, partition: TopicPartition, found: list_offsets.ListOffsetsPartitionResponse, now_ms: int
    ) -> None:
        code = ErrorCode.of(found.error_code)
        if partition not in query.open:
            return
        if code is ErrorCode.NONE:
            del query.open[partition]
            query.found[partition] = (found.offset, found.timestamp) if found.offset >= 0 else None
        elif code.retriable:
            # As Kafka's client: a leader epoch that the broker does not know may be one of a deleted topic.
            self._cluster.refresh(now_ms)
            self._pause(query, now_ms)
        else:
            during = f"asking for the offsets of {partition}"
            error = refused(code, during=during, operation="read", name=partition.topic)
            self._fail(query, partition, error, now_ms)

    def _fail(self, query: _Query, partition: TopicPartition, error: KohortError, now_ms: int) -> None:
        if query.on_error is None:
            self._end(query, error, now_ms)
        else:
            del query.open[partition]
            query.on_error(partition, error, now_ms)

    def _end(self, query: _Query, result: Result, now_ms: int) -> None:
        query.is_over = True
        self._queries.remove(query)
        query.then(result, now_ms)


def _by_topic(entries: Iterable[tuple[str, ListOffsetsPartition]]) -> list[list_offsets.ListOffsetsTopic]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, entry in entries:
        topics.setdefault(name, []).append(entry)
    return [list_offsets.ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
