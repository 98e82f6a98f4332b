"""The topic image of a coordinator: immutable, replaced as a whole by `TopicsChanged`.

Source: architecture (TopicImage); a re-created topic has another id, by which it differs from its predecessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from kohort.base.values import value
from kohort.ids import TopicId


@value
class TopicFacts:
    """One topic, with partitions 0 to `partition_count` - 1."""

    name: str
    topic_id: TopicId
    partition_count: int


@value(kw_only=False)
class TopicImage:
    """All topics at one moment; `version` rises with each change."""

    version: int = 0
    by_name: dict[str, TopicFacts] = field(default_factory=dict)
    by_id: dict[TopicId, TopicFacts] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Iterable[TopicFacts], *, version: int) -> TopicImage:
        """Build an image; names and ids are unique."""
        by_name = {topic.name: topic for topic in topics}
        by_id = {topic.topic_id: topic for topic in by_name.values()}
        assert len(by_id) == len(by_name), "two topics share an id"
        return cls(version, by_name, by_id)
