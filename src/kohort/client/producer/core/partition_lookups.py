"""Whoever wants to know the partitions of a topic, until the cluster has told or time is over.

Laws: every question ends once; asking creates no topic.
Source: Kafka's `partitionsFor`.
"""

from __future__ import annotations

from kohort.client.cluster import Cluster
from kohort.client.producer.core.producer_events import PartitionsAsked
from kohort.client.refusals import refused
from kohort.client.requests import Requests
from kohort.errors import ErrorCode, KohortTimeoutError


class PartitionLookups:
    """Those of one producer that were not answered."""

    def __init__(self, requests: Requests, cluster: Cluster) -> None:
        self._requests = requests
        self._cluster = cluster
        self._open: list[PartitionsAsked] = []

    def ask(self, asked: PartitionsAsked, now_ms: int) -> None:
        """One more."""
        self._open.append(asked)
        self._cluster.also_want([asked.topic], now_ms)

    def topics(self) -> set[str]:
        """What is asked about."""
        return {asked.topic for asked in self._open}

    def deadlines(self) -> list[int]:
        """When they are too late."""
        return [asked.deadline_ms for asked in self._open]

    def on_tick(self, now_ms: int) -> None:
        """Answer what can be answered."""
        self._open = [asked for asked in self._open if not self._answer(asked, now_ms)]

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
    """What was not done in time, and why, if that is known."""
    return KohortTimeoutError(text if cluster.trouble is None else f"{text}: {cluster.trouble}")
