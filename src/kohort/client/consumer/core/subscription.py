"""The subscription of a consumer, and those of its topics that do not exist.

Laws: a subscribed topic need not exist; one warning is logged. A topic whose partitions are assigned by hand has to
exist, after a moment of grace.
Source: Kafka's `allow.auto.create.topics`; "an unknown topic is one clear sentence" is a requirement of kohort's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.client.consumer.offsets.queries import UNKNOWN_TOPIC_GRACE_MS
from kohort.client.core.actions import Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.requests import Answer, Requests
from kohort.errors import ErrorCode
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

#: The first response shows that the topic is missing, and so does Apache Kafka's response to the creating request.
_ANSWERS_TO_CREATE: Final = 2


class Subscription:
    """The subscribed topics of one consumer."""

    def __init__(self, requests: Requests, cluster: Cluster, *, may_create: bool) -> None:
        self._requests = requests
        self._cluster = cluster
        self._may_create = may_create
        self._topics: frozenset[str] = frozenset()
        self.pattern: str | None = None
        #: topic -> time at which it was first found missing.
        self._missing_since: dict[str, int] = {}
        #: Topics that are being created by a request for them -> number of responses that have shown them missing.
        self._creating: dict[str, int] = {}
        #: Whether such a request is under way.
        self._is_asking = False
        #: Topics that have existed.
        self._seen: set[str] = set()

    def replace(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Replace topics and pattern by the application's new ones; without both, partitions are assigned by hand."""
        self._topics = frozenset(topics)
        self.pattern = pattern
        self._missing_since.clear()
        self._creating.clear()
        # A topic that is subscribed to again may be created again.
        self._seen &= self._topics

    def find_missing(self, assigned: Iterable[str], now_ms: int) -> list[str]:
        """Create missing subscribed topics, or warn of them; return the missing ones of those `assigned` by hand."""
        missing = []
        for name in sorted({*self._topics, *assigned}):
            topic = self._cluster.topics.get(name)
            if topic is not None and topic.partitions:
                self._note_seen(name, len(topic.partitions))
            if topic is None or topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            is_new = name not in self._missing_since
            since_ms = self._missing_since.setdefault(name, now_ms)
            if name not in self._topics:
                if now_ms >= since_ms + UNKNOWN_TOPIC_GRACE_MS:
                    missing.append(name)
            # A topic that was there before was deleted, and its name is free for others.
            elif self._may_create and name not in self._seen:
                # Only a topic that was seen to be missing is created, so that the log can say that it was.
                self._create(name)
            elif is_new:
                self._note_missing(name)
        return missing

    def _note_seen(self, name: str, count: int) -> None:
        if name in self._topics:
            self._seen.add(name)
        self._missing_since.pop(name, None)
        if self._creating.pop(name, None) is not None:
            partitions = "1 partition" if count == 1 else f"{count} partitions"
            self._requests.warn(
                f"created topic {name} ({partitions}) by subscribing to it; allow_auto_create_topics=False keeps "
                "a misspelt name from that"
            )

    def _create(self, name: str) -> None:
        asked = self._creating[name] = self._creating.get(name, 0) + 1
        if asked == _ANSWERS_TO_CREATE + 1:
            self._note_missing(name)
        if not self._is_asking:
            self._ask()

    def _ask(self) -> None:
        """Send a metadata request so that the broker creates the missing topics."""
        # A request of its own, since the broker creates whichever topic is named.

        def then(answer: Answer, now_ms: int) -> None:
            del answer
            self._is_asking = False
            if is_first:
                # Later requests go out with each answer that shows the topic missing, at the pace of these answers.
                self._cluster.refresh_now(now_ms)

        self._is_asking, is_first = True, 1 in self._creating.values()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in sorted(self._creating)], allow_auto_topic_creation=True
        )
        self._requests.send(self._cluster.any_endpoint(), Lane.CONTROL, request, then, min_version=1)

    def _note_missing(self, name: str) -> None:
        self._requests.warn(f"topic {name} does not exist (yet); it is read as soon as it does")
