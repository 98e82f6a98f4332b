"""Which topics the application wants, and which of them are missing.

Laws: a topic that is subscribed to may be missing and is warned of once; one whose partitions are assigned by hand may
not, after a moment of grace. Only topics that are subscribed to may be created by asking for them.
Source: Kafka's `allow.auto.create.topics`; "an unknown topic is one clear sentence" is a requirement of our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.client.cluster import Cluster
from kohort.client.offsets.queries import UNKNOWN_TOPIC_GRACE_MS
from kohort.client.requests import Requests
from kohort.errors import ErrorCode

#: The first answer shows that it is missing; Apache Kafka's answer to the question that creates it does so, too.
_ANSWERS_TO_CREATE: Final = 2


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
        #: Topics that are asked for so that the broker creates them -> answers that have shown them missing.
        self._creating: dict[str, int] = {}
        #: Nothing but what is subscribed to is asked for, so asking may create.
        self._wants_only_own = False

    def replace(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """The application subscribes to these topics or this pattern, or (none) reads partitions of its own choice."""
        self._topics = frozenset(topics)
        self._pattern = pattern
        self._missing_since.clear()
        self._creating.clear()

    def follow(self, wanted: set[str], now_ms: int) -> None:
        """Have the cluster's picture show these topics."""
        self._wants_only_own = wanted <= self._topics
        self._cluster.may_create = self._wants_only_own and not wanted.isdisjoint(self._creating)
        self._cluster.want(wanted, now_ms, and_all=self._pattern is not None)

    def find_missing(self, assigned: Iterable[str], now_ms: int) -> list[str]:
        """The topics among `assigned` that do not exist; those that are subscribed to are created, or warned of."""
        missing = []
        for name in sorted({*self._topics, *assigned}):
            topic = self._cluster.topics.get(name)
            if topic is not None and topic.partitions and name in self._creating:
                del self._creating[name]
                partitions = "1 partition" if len(topic.partitions) == 1 else f"{len(topic.partitions)} partitions"
                self._requests.warn(
                    f"created topic {name} ({partitions}) by subscribing to it; allow_auto_create_topics=False keeps "
                    "a misspelt name from that"
                )
            if topic is None or topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            is_new = name not in self._missing_since
            since_ms = self._missing_since.setdefault(name, now_ms)
            if name not in self._topics:
                if now_ms >= since_ms + UNKNOWN_TOPIC_GRACE_MS:
                    missing.append(name)
            elif is_new and self._may_create and self._wants_only_own:
                # Only what was seen to be missing is created, so that it can be said that it was.
                del self._missing_since[name]
                self._create(name, now_ms)
            elif is_new:
                self._note_missing(name, now_ms)
        return missing

    def _create(self, name: str, now_ms: int) -> None:
        asked = self._creating[name] = self._creating.get(name, 0) + 1
        if asked == 1:
            self._cluster.may_create = True
            self._cluster.refresh_now(now_ms)
        elif asked > _ANSWERS_TO_CREATE:
            self._note_missing(name, now_ms)

    def _note_missing(self, name: str, now_ms: int) -> None:
        self._missing_since[name] = now_ms
        self._requests.warn(f"topic {name} does not exist (yet); it is read as soon as it does")
