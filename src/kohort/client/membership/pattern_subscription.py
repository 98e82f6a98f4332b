"""The topics that a classic member's pattern matches.

The client matches anew whenever the cluster's metadata changes.

Laws: nothing matches before a broker has listed all topics. Internal topics and those with an error never match.
Source: Kafka's subscriptions by pattern, which the classic protocol leaves to the client.
"""

from __future__ import annotations

import re

from kohort.client.cluster import Cluster
from kohort.errors import ErrorCode


class Matching:
    """The topics that the pattern of one member matches."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Generation of the cluster's metadata that was matched last; 0 before the first time.
        self._seen_generation = 0

    @property
    def is_known(self) -> bool:
        """Whether a broker has listed all topics."""
        return self._seen_generation > 0

    def restart(self) -> None:
        """Match from the beginning: the pattern is another one."""
        self._seen_generation = 0

    def look(self, pattern: str) -> tuple[str, ...] | None:
        """Return the matching topics, sorted; `None`: nothing has changed since the last match."""
        if not self._cluster.knows_all or self._seen_generation == self._cluster.generation:
            return None
        self._seen_generation = self._cluster.generation
        matches = re.compile(pattern).fullmatch
        return tuple(
            sorted(
                topic.name
                for topic in self._cluster.topics.values()
                if topic.error is ErrorCode.NONE and not topic.is_internal and matches(topic.name)
            )
        )
