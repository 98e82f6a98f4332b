"""The application's questions about the cluster: a topic's partitions, and whether a broker answers.

Laws: every question ends once. No question creates a topic. Only events after the question tell whether a broker
answers. None does once each address has been tried in vain.
Source: Kafka's `partitionsFor`; aiokafka's `start`.
"""

from __future__ import annotations

from kohort.client.core.cluster import Cluster
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Requests
from kohort.client.producer.core.producer_events import ConnectAsked, PartitionsAsked
from kohort.errors import BrokersUnreachableError, ErrorCode, KohortTimeoutError


class Lookups:
    """The unanswered questions of one producer."""

    def __init__(self, requests: Requests, cluster: Cluster) -> None:
        self._requests = requests
        self._cluster = cluster
        self._open: list[PartitionsAsked] = []
        #: (generation of the metadata that answers, question).
        self._connects: list[tuple[int, ConnectAsked]] = []

    def ask(self, asked: PartitionsAsked, now_ms: int) -> None:
        """Add a question for a topic's partitions."""
        self._open.append(asked)
        self._cluster.also_want([asked.topic], now_ms)

    def connect(self, asked: ConnectAsked, now_ms: int) -> None:
        """Add the question whether a broker answers."""
        self._connects.append((self._cluster.next_generation, asked))
        self._cluster.forget_absent()
        self._cluster.refresh_now(now_ms)

    def fail_connects(self, error: BrokersUnreachableError) -> None:
        """End the questions for a broker with an error: none answers, or none lets this client in."""
        for _, asked in self._connects:
            self._requests.fail(asked.ticket, error)
        self._connects.clear()

    def topics(self) -> set[str]:
        """Return the topics of the questions."""
        return {asked.topic for asked in self._open}

    def deadlines(self) -> list[int]:
        """Return the deadlines of the questions."""
        return [asked.deadline_ms for asked in self._open] + [asked.deadline_ms for _, asked in self._connects]

    def on_tick(self, now_ms: int) -> None:
        """Answer the questions that can be answered by now."""
        self._open = [asked for asked in self._open if not self._answer(asked, now_ms)]
        if self._connects and (desertion := self._cluster.find_desertion()):
            self.fail_connects(desertion)
        self._connects = [entry for entry in self._connects if not self._answer_connect(*entry, now_ms)]

    def _answer_connect(self, generation: int, asked: ConnectAsked, now_ms: int) -> bool:
        is_answered = self._cluster.generation >= generation
        if is_answered and self._cluster.is_reached:
            self._requests.complete(asked.ticket)
        elif now_ms >= asked.deadline_ms:
            self._requests.fail(asked.ticket, lateness("no broker has answered in time", self._cluster))
        else:
            if is_answered:
                # A bootstrap address has answered. A broker that it names has to answer, too.
                self._cluster.refresh_soon(now_ms)
            return False
        return True

    def _answer(self, asked: PartitionsAsked, now_ms: int) -> bool:
        topic = self._cluster.topics.get(asked.topic)
        if topic is not None and (topic.partitions or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._requests.complete(asked.ticket, list(topic.partitions))
        elif topic is not None and not topic.error.retriable and topic.error is not ErrorCode.NONE:
            during = f"looking up topic {asked.topic}"
            error = refused(topic.error, during=during, operation="write", name=asked.topic)
            self._requests.fail(asked.ticket, error)
        elif now_ms >= asked.deadline_ms:
            text = f"the partitions of {asked.topic} are not known in time"
            self._requests.fail(asked.ticket, lateness(text, self._cluster))
        else:
            return False
        return True


def lateness(text: str, cluster: Cluster) -> KohortTimeoutError:
    """Build a timeout error, with the cluster's trouble as the reason if there is one."""
    return KohortTimeoutError(text if cluster.trouble is None else f"{text}: {cluster.trouble}")
