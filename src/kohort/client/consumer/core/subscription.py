"""Which topics the application wants, and which of them are missing.

Laws: a topic that is subscribed to may be missing and is warned of once; one whose partitions are assigned by hand may
not, after a moment of grace. Only topics that are subscribed to may be created by asking for them.
Source: Kafka's `allow.auto.create.topics`; "an unknown topic is one clear sentence" is a requirement of our own.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.client.cluster import Cluster
from kohort.client.offsets.queries import UNKNOWN_TOPIC_GRACE_MS
from kohort.client.requests import Requests
from kohort.errors import ErrorCode


class Subscription:
    """Follows the topics of one consumer."""

    def __init__(self, requests: Requests, cluster: Cluster, *, may_create: bool) -> None:
        self._requests = requests
        self._cluster = cluster
        self._may_create = may_create
        self._topics: frozenset[str] = frozenset()
        self._pattern: str | None = None
        #: topic -> instant at which it was first found missing.
        self._missing_since: dict[str, int] = {}

    def replace(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """The application subscribes to these topics or this pattern, or (none) reads partitions of its own choice."""
        self._topics = frozenset(topics)
        self._pattern = pattern
        self._missing_since.clear()

    def follow(self, wanted: set[str], now_ms: int) -> None:
        """Have the cluster's picture show these topics."""
        self._cluster.may_create = self._may_create and wanted <= self._topics
        self._cluster.want(wanted, now_ms, and_all=self._pattern is not None)

    def find_missing(self, assigned: Iterable[str], now_ms: int) -> list[str]:
        """The topics among `assigned` that do not exist; warns of those that are subscribed to."""
        missing = []
        for name in sorted({*self._topics, *assigned}):
            topic = self._cluster.topics.get(name)
            if topic is None or topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            is_new = name not in self._missing_since
            since_ms = self._missing_since.setdefault(name, now_ms)
            if name not in self._topics:
                if now_ms >= since_ms + UNKNOWN_TOPIC_GRACE_MS:
                    missing.append(name)
            elif is_new:
                self._requests.warn(f"topic {name} does not exist (yet); it is read as soon as it does")
        return missing
