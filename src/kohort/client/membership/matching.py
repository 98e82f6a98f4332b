"""Which topics a classic member's pattern means: its client looks, whenever the cluster's picture changes.

Laws: nothing is said before somebody has listed all topics; internal topics and those with an error never match.
Source: Kafka's subscriptions by pattern, which the classic protocol leaves to the client.
"""

from __future__ import annotations

import re

from kohort.client.cluster import Cluster
from kohort.errors import ErrorCode


class Matching:
    """The pattern of one member."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The cluster's picture in which it was last looked for; 0 before the first time.
        self._seen_generation = 0

    @property
    def is_known(self) -> bool:
        """Whether anybody has said which topics there are."""
        return self._seen_generation > 0

    def restart(self) -> None:
        """Another pattern."""
        self._seen_generation = 0

    def look(self, pattern: str) -> tuple[str, ...] | None:
        """The topics that match, in order; `None` if there is nothing new to look at."""
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
