"""The application's queries, which change nothing: offsets, positions, topics and partitions.

Laws: each ticket ends once. No query starts or stops reading, creates a topic, or changes the topics that the client
follows. A listing is asked of any broker, and without a response of another one after a pause. An unknown name is asked
for again for a moment, since the topic may be new.
Source: Kafka's consumer API and Metadata API.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import assert_never

from kohort.base.values import value
from kohort.client.consumer import application_events as events
from kohort.client.consumer.fetch.partition_state import Readings
from kohort.client.consumer.offsets.committed import CommittedOffsets
from kohort.client.consumer.offsets.queries import UNKNOWN_TOPIC_GRACE_MS, OffsetQueries
from kohort.client.core.actions import Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.client.records import ListedTopic
from kohort.errors import ErrorCode, KohortError, KohortTimeoutError, StateError
from kohort.ids import ZERO_TOPIC_ID, format_topic_id
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


@value(frozen=False, eq=False)
class _Listing:
    """A query for topics, which any broker can answer."""

    asked: events.TopicsAsked
    since_ms: int
    is_sent: bool = False
    due_ms: int
    attempts: int = 0


class Lookups:
    """The queries of one consumer that wait for their results."""

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        queries: OffsetQueries,
        readings: Readings,
        committed: CommittedOffsets | None,
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._queries = queries
        self._readings = readings
        self._committed = committed
        #: Questions for the cluster's topics, which any broker answers.
        self._listings: list[_Listing] = []
        self._positions: list[events.PositionAsked] = []
        #: Questions with the time at which they came.
        self._partitions: list[tuple[events.PartitionsAsked, int]] = []

    def topics(self) -> set[str]:
        """Return the topics of open queries, so that the metadata include them."""
        return self._queries.topics() | {asked.topic for asked, _ in self._partitions}

    @property
    def are_open(self) -> bool:
        """Whether a query waits for its result here."""
        return bool(self._positions or self._partitions or self._listings)

    def on_question(self, asked: events.Question, now_ms: int) -> None:
        """Begin a query; its ticket ends as soon as the result is known."""
        match asked:
            case events.CommittedAsked():
                self._on_committed(asked, now_ms)
            case events.OffsetsAsked():
                then = partial(self._settle, asked.ticket)
                self._queries.ask(asked.timestamps, then, deadline_ms=asked.deadline_ms, now_ms=now_ms)
            case events.PositionAsked():
                self._on_position(asked)
            case events.PartitionsAsked():
                # It waits until the metadata show the topic.
                self._partitions.append((asked, now_ms))
            case events.TopicsAsked():
                if self._cluster.generation == 0:
                    # No broker has answered yet. If none ever does, the metadata request says why.
                    self._cluster.refresh(now_ms)
                self._listings.append(_Listing(asked=asked, since_ms=now_ms, due_ms=now_ms))
            case _:
                assert_never(asked)

    def _on_committed(self, asked: events.CommittedAsked, now_ms: int) -> None:
        """Ask the coordinator for the committed offsets."""
        if self._committed is None:
            self._requests.fail(asked.ticket, StateError("there are no committed offsets without group_id"))
            return
        wanted, then = dict.fromkeys(asked.partitions, ZERO_TOPIC_ID), partial(self._settle, asked.ticket)
        self._committed.ask(wanted, then, deadline_ms=asked.deadline_ms, now_ms=now_ms)

    def _on_position(self, asked: events.PositionAsked) -> None:
        """Wait until the first offset is found."""
        self._positions.append(asked)
        reading = self._readings.get(asked.partition)
        if reading is not None:
            # The first offset of a paused partition is looked up only if it is wanted.
            self._readings.want(reading)

    def fail_all(self, error: KohortError) -> None:
        """End every query with that error."""
        tickets = [asked.ticket for asked, _ in self._partitions] + [asked.ticket for asked in self._positions]
        for ticket in (*tickets, *(listing.asked.ticket for listing in self._listings)):
            self._requests.fail(ticket, error)
        self._partitions, self._positions, self._listings = [], [], []

    def next_deadline(self) -> int | None:
        """Return when a query reaches its deadline, or a listing is sent again."""
        deadlines = [asked.deadline_ms for asked in self._positions]
        deadlines += [min(asked.deadline_ms, since + UNKNOWN_TOPIC_GRACE_MS) for asked, since in self._partitions]
        deadlines += [listing.asked.deadline_ms for listing in self._listings]
        if self._cluster.generation:
            deadlines += [listing.due_ms for listing in self._listings if not listing.is_sent]
        return min(deadlines, default=None)

    def work(self, now_ms: int) -> None:
        """End the queries whose results are known by now, and send listings that are due."""
        self._positions = [asked for asked in self._positions if not self._try_position(asked, now_ms)]
        self._partitions = [entry for entry in self._partitions if not self._try_partitions(*entry, now_ms)]
        for listing in list(self._listings):
            if now_ms >= listing.asked.deadline_ms:
                self._end(listing, KohortTimeoutError("no answer about the topics of the cluster in time"))
            elif self._cluster.generation and not listing.is_sent and now_ms >= listing.due_ms:
                self._send(listing)

    def _try_position(self, asked: events.PositionAsked, now_ms: int) -> bool:
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

    def _try_partitions(self, asked: events.PartitionsAsked, since_ms: int, now_ms: int) -> bool:
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

    def _settle(self, ticket: object, result: object, _: int = 0) -> None:
        if isinstance(result, KohortError):
            self._requests.fail(ticket, result)
        else:
            self._requests.complete(ticket, result)

    # -- listings of topics -------------------------------------------------------------------------------------------

    def _send(self, listing: _Listing) -> None:
        listing.is_sent = True

        def then(answer: Answer, now_ms: int) -> None:
            if listing not in self._listings:
                return
            response = message_of(answer, MetadataResponse)
            found = {} if response is None else _topics_of(response, is_named=names is not None)
            is_new = names is not None and now_ms < listing.since_ms + UNKNOWN_TOPIC_GRACE_MS
            if response is None:
                self._cluster.refresh(now_ms)
            elif not is_new or all(name in found for name in names or ()):
                self._end(listing, found)
                # The client's metadata are older than these topics.
                if self._is_news(found):
                    self._cluster.refresh(now_ms)
                return
            listing.is_sent = False
            listing.due_ms = now_ms + max(1, self._requests.retry.delay_ms(listing.attempts))
            listing.attempts += 1

        names = listing.asked.topics
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        # Version 0 reads an empty list as "all topics" and cannot ask for none. Up to version 3 a broker creates a
        # topic that is named.
        version = 1 if names is None else 4
        self._requests.send(self._cluster.any_endpoint(), Lane.CONTROL, request, then, min_version=version)

    def _is_news(self, found: Mapping[str, ListedTopic]) -> bool:
        known = self._cluster.topics
        return (self._cluster.knows_all and not found.keys() <= known.keys()) or any(
            name in known and tuple(known[name].partitions) != topic.partitions for name, topic in found.items()
        )

    def _end(self, listing: _Listing, result: dict[str, ListedTopic] | KohortError) -> None:
        self._listings.remove(listing)
        self._settle(listing.asked.ticket, result)


def _topics_of(response: MetadataResponse, *, is_named: bool) -> dict[str, ListedTopic]:
    return {
        topic.name: ListedTopic(
            format_topic_id(topic.topic_id) if any(topic.topic_id) else "",
            tuple(sorted(each.partition_index for each in topic.partitions)),
        )
        for topic in sorted(response.topics, key=lambda topic: topic.name or "")
        if topic.name is not None and (is_named or not topic.is_internal) and topic.error_code == ErrorCode.NONE
    }
