"""Which topics the members of a classic group read, and whether they have shared out what there is.

Laws: `None` is "anything": bytes that cannot be read, or of another protocol type, are never taken for "nothing".
Source: Apache Kafka's `ClassicGroup.isSubscribedToTopic`.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.embeddedcodec import read_assignment, read_subscription
from kohort.coordinator.topics import TopicImage

#: The protocol type of consumers, whose metadata says what they read; Kafka Connect and others have their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def topics_of(group: ClassicGroup) -> set[str] | None:
    """Every topic that some member subscribes to by any of its protocols; `None` if that cannot be told."""
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
    """Whether the member leads, and topics changed while nobody did: by its next look they are what they always were.

    That somebody reads what is there shows in the assignments. A leader whose assignor leaves partitions out on purpose
    has its group rebalance each time it comes back, and each time it asks again for what it was given.
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
