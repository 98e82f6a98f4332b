"""The questions of the application that change nothing: offsets, positions, topics and partitions.

Laws: each ticket ends once. No question starts or stops reading.
Source: Kafka's consumer API.
"""

from __future__ import annotations

from typing import assert_never

from kohort.client.application_events import (
    CommittedAsked,
    OffsetsAsked,
    PartitionsAsked,
    PositionAsked,
    Question,
    TopicsAsked,
)
from kohort.client.cluster import Cluster
from kohort.client.fetch.partition_state import Readings
from kohort.client.offsets.committed import Committed, CommittedOffsets
from kohort.client.offsets.queries import UNKNOWN_TOPIC_GRACE_MS, OffsetQueries, Result
from kohort.client.offsets.topic_listings import TopicListings
from kohort.client.requests import Requests
from kohort.client.retry import Backoff
from kohort.errors import ErrorCode, KohortError, KohortTimeoutError, StateError
from kohort.ids import ZERO_TOPIC_ID

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


class Lookups:
    """The questions that cannot be answered at once."""

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        queries: OffsetQueries,
        readings: Readings,
        committed: CommittedOffsets | None,
        *,
        retry: Backoff,
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._queries = queries
        self._readings = readings
        self._committed = committed
        #: Questions for the cluster's topics.
        self._listings = TopicListings(requests, cluster, retry=retry)
        self._positions: list[PositionAsked] = []
        #: Questions with the time at which they came.
        self._partitions: list[tuple[PartitionsAsked, int]] = []

    def topics(self) -> set[str]:
        """Return the topics of open questions, so that the metadata include them."""
        return self._queries.topics() | {asked.topic for asked, _ in self._partitions}

    def on_question(self, asked: Question, now_ms: int) -> None:
        """Answer a question as soon as that is possible."""
        match asked:
            case CommittedAsked():
                self._on_committed(asked, now_ms)
            case OffsetsAsked():
                self._on_offsets(asked, now_ms)
            case PositionAsked():
                self._on_position(asked)
            case PartitionsAsked():
                # It waits until the metadata show the topic.
                self._partitions.append((asked, now_ms))
            case TopicsAsked():
                self._listings.ask(asked, now_ms)
            case _:
                assert_never(asked)

    def _on_offsets(self, asked: OffsetsAsked, now_ms: int) -> None:
        """Ask the leaders for the offsets."""

        def then(result: Result, _: int) -> None:
            self._settle(asked.ticket, result)

        self._queries.ask(asked.timestamps, then, deadline_ms=asked.deadline_ms, now_ms=now_ms)

    def _on_committed(self, asked: CommittedAsked, now_ms: int) -> None:
        """Ask the coordinator for the committed offsets."""
        if self._committed is None:
            self._requests.fail(asked.ticket, StateError("there are no committed offsets without group_id"))
            return

        def then(result: Committed, _: int) -> None:
            self._settle(asked.ticket, result)

        wanted = dict.fromkeys(asked.partitions, ZERO_TOPIC_ID)
        self._committed.ask(wanted, then, deadline_ms=asked.deadline_ms, now_ms=now_ms)

    def _on_position(self, asked: PositionAsked) -> None:
        """Wait until the first offset is found."""
        self._positions.append(asked)
        reading = self._readings.get(asked.partition)
        if reading is not None:
            # The first offset of a paused partition is looked up only if it is wanted.
            self._readings.want(reading)

    def fail_all(self, error: KohortError) -> None:
        """End every question with that error."""
        for asked, _ in self._partitions:
            self._requests.fail(asked.ticket, error)
        for position in self._positions:
            self._requests.fail(position.ticket, error)
        self._partitions.clear()
        self._positions.clear()
        self._listings.fail_all(error)

    def next_deadline(self) -> int | None:
        """Return when a question reaches its deadline."""
        deadlines = [asked.deadline_ms for asked in self._positions]
        deadlines += [min(asked.deadline_ms, since + UNKNOWN_TOPIC_GRACE_MS) for asked, since in self._partitions]
        listing_ms = self._listings.next_deadline()
        return min(deadlines if listing_ms is None else [*deadlines, listing_ms], default=None)

    def on_tick(self, now_ms: int) -> None:
        """Answer the questions that can be answered by now."""
        self._positions = [asked for asked in self._positions if not self._try_position(asked, now_ms)]
        self._partitions = [entry for entry in self._partitions if not self._try_partitions(*entry, now_ms)]
        self._listings.on_tick(now_ms)

    def _try_position(self, asked: PositionAsked, now_ms: int) -> bool:
        reading = self._readings.get(asked.partition)
        if reading is None:
            self._requests.fail(asked.ticket, StateError(f"{asked.partition} is not assigned"))
        elif reading.offset is not None:
            self._requests.complete(asked.ticket, reading.offset)
        elif now_ms >= asked.deadline_ms or reading.is_stuck or reading.refusal is not ErrorCode.NONE:
            error = KohortTimeoutError(f"the position of {asked.partition} was not found in time")
            self._requests.fail(asked.ticket, error)
        else:
            return False
        return True

    def _try_partitions(self, asked: PartitionsAsked, since_ms: int, now_ms: int) -> bool:
        topic = self._cluster.topics.get(asked.topic)
        if topic is not None and topic.error is ErrorCode.NONE:
            self._requests.complete(asked.ticket, list(topic.partitions))
        elif topic is not None and topic.error in _MISSING and now_ms >= since_ms + UNKNOWN_TOPIC_GRACE_MS:
            self._requests.complete(asked.ticket, [])
        elif now_ms >= asked.deadline_ms:
            self._requests.fail(asked.ticket, KohortTimeoutError(f"no answer about topic {asked.topic} in time"))
        else:
            return False
        return True

    def _settle(self, ticket: object, result: object) -> None:
        if isinstance(result, KohortError):
            self._requests.fail(ticket, result)
        else:
            self._requests.complete(ticket, result)
