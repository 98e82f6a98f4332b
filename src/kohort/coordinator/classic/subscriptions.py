"""Subscriptions of the members of a classic group, and whether its assignment covers all topics.

Laws: `None` is "unknown": unreadable bytes, or bytes of another protocol type, are never taken for "no topics".
Source: Apache Kafka's `ClassicGroup.isSubscribedToTopic`.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.embeddedcodec import read_assignment, read_subscription
from kohort.coordinator.topics import TopicImage

#: Protocol type of consumers, whose metadata names their topics; Kafka Connect and others have their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def topics_of(group: ClassicGroup) -> set[str] | None:
    """Return every topic that a member subscribes to by any protocol; `None` if that is unknown."""
    if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            found = read_subscription(metadata)
            if found is None:
                return None
            topics.update(found.topics)
    return topics


def leads_unaware(group: ClassicGroup, member_id: str, image: TopicImage | None) -> bool:
    """Whether a returned leader may miss a change of topics that happened in its absence.

    It compares topics only from now on, so the coordinator looks whether the assignments cover the existing partitions.
    A leader whose assignor leaves partitions out on purpose has its group rebalance each time it comes back, and each
    time it sends SyncGroup again.
    """
    if group.leader != member_id or image is None or not image.version:
        return False
    topics = topics_of(group)
    given = [read_assignment(each.assignment) for each in group.members.values()]
    if topics is None:
        return False
    owned: set[tuple[str, int]] = set()
    for found in given:
        if found is None:
            return False
        owned.update((topic, number) for topic, numbers in found.partitions.items() for number in numbers)
    there = {
        (name, number)
        for name in topics
        if (facts := image.by_name.get(name)) is not None
        for number in range(facts.partition_count)
    }
    return owned != there
