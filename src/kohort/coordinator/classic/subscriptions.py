"""Which topics the members of a classic group read, as far as the coordinator can know.

Laws: `None` is "anything": bytes that cannot be read, or of another protocol type, are never taken for "nothing".
Source: Apache Kafka's `ClassicGroup.isSubscribedToTopic`.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.recordcodec import subscribed_topics

#: The protocol type of consumers, whose metadata says what they read; Kafka Connect and others have their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def topics_of(group: ClassicGroup) -> set[str] | None:
    """Every topic that some member subscribes to by any of its protocols; `None` if that cannot be told."""
    if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            found = subscribed_topics(metadata)
            if found is None:
                return None
            topics.update(found)
    return topics
