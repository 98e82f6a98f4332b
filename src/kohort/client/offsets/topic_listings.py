"""The question which topics the cluster has.

Laws: each question ends once. It goes to any broker, and to another one after a pause if there is no answer. An unknown
name is asked for again for a moment, since it may be new; no question creates a topic. The topics that the client
follows stay as they are. An answer with news of them starts a new metadata request.
Source: Kafka's Metadata API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.client.actions import Lane
from kohort.client.application_events import TopicsAsked
from kohort.client.cluster import Cluster
from kohort.client.offsets.queries import UNKNOWN_TOPIC_GRACE_MS
from kohort.client.records import ListedTopic
from kohort.client.requests import Answer, Requests, message_of
from kohort.client.retry import Backoff
from kohort.errors import ErrorCode, KohortError, KohortTimeoutError
from kohort.ids import format_topic_id
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    asked: TopicsAsked
    since_ms: int
    is_sent: bool = False
    due_ms: int
    attempts: int = 0


class TopicListings:
    """The open questions for topics; any broker answers."""

    def __init__(self, requests: Requests, cluster: Cluster, *, retry: Backoff) -> None:
        self._requests = requests
        self._cluster = cluster
        self._retry = retry
        self._questions: list[_Question] = []

    def ask(self, asked: TopicsAsked, now_ms: int) -> None:
        """Ask for the topics."""
        if self._cluster.generation == 0:
            # No broker has answered yet. If none ever does, the metadata request says why.
            self._cluster.refresh(now_ms)
        self._questions.append(_Question(asked=asked, since_ms=now_ms, due_ms=now_ms))

    def next_deadline(self) -> int | None:
        """Return when the next request or a deadline is due."""
        deadlines = [question.asked.deadline_ms for question in self._questions]
        if self._cluster.generation:
            deadlines += [question.due_ms for question in self._questions if not question.is_sent]
        return min(deadlines, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send the questions that are due, and end those past their deadline."""
        for question in list(self._questions):
            if now_ms >= question.asked.deadline_ms:
                self._end(question, KohortTimeoutError("no answer about the topics of the cluster in time"))
            elif self._cluster.generation and not question.is_sent and now_ms >= question.due_ms:
                self._send(question)

    def fail_all(self, error: KohortError) -> None:
        """End every question with that error."""
        for question in list(self._questions):
            self._end(question, error)

    def _send(self, question: _Question) -> None:
        question.is_sent = True

        def then(answer: Answer, now_ms: int) -> None:
            if question not in self._questions:
                return
            response = message_of(answer, MetadataResponse)
            found = {} if response is None else _topics_of(response, is_named=names is not None)
            is_new = names is not None and now_ms < question.since_ms + UNKNOWN_TOPIC_GRACE_MS
            if response is None:
                self._cluster.refresh(now_ms)
            elif not is_new or all(name in found for name in names or ()):
                self._end(question, None, found)
                if self._is_news(found):
                    self._cluster.refresh(now_ms)
                return
            question.is_sent = False
            question.due_ms = now_ms + max(1, self._retry.delay_ms(question.attempts))
            question.attempts += 1

        names = question.asked.topics
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        # Version 0 reads an empty list as "all topics" and cannot ask for none. Up to version 3 a broker creates a
        # topic that is named.
        version = 1 if names is None else 4
        self._requests.send(self._cluster.any_endpoint(), Lane.CONTROL, request, then, min_version=version)

    def _is_news(self, found: Mapping[str, ListedTopic]) -> bool:
        """Return whether the client's metadata are older than these topics."""
        known = self._cluster.topics
        return (self._cluster.knows_all and not found.keys() <= known.keys()) or any(
            name in known and tuple(known[name].partitions) != topic.partitions for name, topic in found.items()
        )

    def _end(self, question: _Question, error: KohortError | None, found: dict[str, ListedTopic] | None = None) -> None:
        self._questions.remove(question)
        if error is None:
            self._requests.complete(question.asked.ticket, found)
        else:
            self._requests.fail(question.asked.ticket, error)


def _topics_of(response: MetadataResponse, *, is_named: bool) -> dict[str, ListedTopic]:
    return {
        topic.name: ListedTopic(
            format_topic_id(topic.topic_id) if any(topic.topic_id) else "",
            tuple(sorted(each.partition_index for each in topic.partitions)),
        )
        for topic in sorted(response.topics, key=lambda topic: topic.name or "")
        if topic.name is not None and (is_named or not topic.is_internal) and topic.error_code == ErrorCode.NONE
    }
