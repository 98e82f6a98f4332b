"""What a member of a KIP-848 group subscribes to: the topics that it names and those that its pattern was resolved to.

Laws: whoever wants to know a member's topics asks here; `subscribed_topic_names` is only what the member said. A topic
counts once, however often it is subscribed to, and the order is by name.
Source: KIP-848 (subscriptions by regular expression); Apache Kafka's union of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kohort.coordinator.model import ConsumerGroup, ConsumerMember


def topics_of(group: ConsumerGroup, member: ConsumerMember) -> tuple[str, ...]:
    """Names of the topics that the member subscribes to now, ascending, each once; they need not exist."""
    return topics_for(group, names=member.subscribed_topic_names, regex=member.subscribed_topic_regex)


def topics_for(group: ConsumerGroup, *, names: tuple[str, ...], regex: str | None) -> tuple[str, ...]:
    """What a subscription to `names` and to the pattern `regex` means in this group; an unresolved one is nothing."""
    resolved = None if regex is None else group.regexes.get(regex)
    return names if resolved is None else unite_topics(names, resolved.topics)


def unite_topics(names: tuple[str, ...], resolved: tuple[str, ...]) -> tuple[str, ...]:
    """Both as one; where one side says nothing new the other is returned as it is, so that members share it."""
    if not names or names == resolved:
        return resolved
    if not resolved:
        return names
    united = tuple(sorted({*names, *resolved}))
    return resolved if united == resolved else united


def names_in(subscriptions: Iterable[Collection[str]]) -> set[str]:
    """Every topic that occurs in some subscription."""
    return {name for distinct in subscriptions for name in distinct}
