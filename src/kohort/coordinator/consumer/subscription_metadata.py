"""Subscriptions of a group's members, before and after the changes of a decision.

A member subscribes to the topics that it names and to those that its pattern was resolved to.

Laws: a change is a value, and the group is not modified. Every function here returns the same with the change, before
it is applied, as without it afterwards.
All code reads a member's topics through this module; `subscribed_topic_names` has only the named topics. A member's
topics are sorted by name, each once.
Source: KIP-848 (subscriptions by regular expression); Apache Kafka's union of both. Architecture rule 2: a decision
that changes members computes their target before anything is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Final

from kohort.base.values import value
from kohort.coordinator import commands, model
from kohort.coordinator.records.types import ConsumerMemberSubscribed


@value
class MembershipChange:
    """Joining, changed and leaving members of a decision.

    `subscribed`: joining or changed member id -> its new record. `topics`: member id -> its new topics, ascending; only
    members whose topics change. `gone`: leaving members. `assignors`: member id -> its client-side assignors; only
    members that set them.
    """

    subscribed: Mapping[str, ConsumerMemberSubscribed] = field(default_factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gone: Collection[str] = ()
    assignors: Mapping[str, tuple[commands.ClientAssignor, ...]] = field(default_factory=dict)


#: The change of a decision without changed members.
NO_CHANGE: Final = MembershipChange()


def joining(subscribed: ConsumerMemberSubscribed, topics: tuple[str, ...]) -> MembershipChange:
    """Build the change of one member that joins or changes its subscription to `topics`."""
    member_id = subscribed.member_id
    return MembershipChange(subscribed={member_id: subscribed}, topics={member_id: topics})


def subscriptions_of(group: model.ConsumerGroup, change: MembershipChange = NO_CHANGE) -> dict[str, tuple[str, ...]]:
    """Return member id -> its topics, after the change."""
    found = {member.member_id: topics_of(group, member) for member in group.members.values()}
    found.update(change.topics)
    for gone in change.gone:
        found.pop(gone, None)
    return found


def count_members(group: model.ConsumerGroup, change: MembershipChange) -> int:
    """Return the number of members after the change."""
    return (
        len(group.members)
        + sum(member_id not in group.members for member_id in change.topics)
        - sum(member_id in group.members for member_id in change.gone)
    )


def subscribed_names(group: model.ConsumerGroup, change: MembershipChange) -> Collection[str] | None:
    """Return all subscribed topics after the change; `None` if the change leaves them as they are."""
    counts = group.topic_subscribers
    by_name: dict[str, int] = {}
    for member_id, names in change.topics.items():
        for name in names:
            by_name[name] = by_name.get(name, 0) + 1
        _take_away(group, member_id, by_name)
    for member_id in change.gone:
        _take_away(group, member_id, by_name)
    if all((counts.get(name, 0) > 0) == (counts.get(name, 0) + by > 0) for name, by in by_name.items()):
        return None
    return {name for name in counts.keys() | by_name.keys() if counts.get(name, 0) + by_name.get(name, 0) > 0}


def topics_of(group: model.ConsumerGroup, member: model.ConsumerMember) -> tuple[str, ...]:
    """Return the topics that a member subscribes to, ascending, each once; they need not exist."""
    return topics_for(group, names=member.subscribed_topic_names, regex=member.subscribed_topic_regex)


def topics_for(group: model.ConsumerGroup, *, names: tuple[str, ...], regex: str | None) -> tuple[str, ...]:
    """Return `names` united with the topics of pattern `regex`; an unresolved pattern has none."""
    resolved = None if regex is None else group.regexes.get(regex)
    return names if resolved is None else unite_topics(names, resolved.topics)


def unite_topics(names: tuple[str, ...], resolved: tuple[str, ...]) -> tuple[str, ...]:
    """Unite two sorted tuples; return an argument itself if it contains the other, so members share it."""
    if not names or names == resolved:
        return resolved
    if not resolved:
        return names
    united = tuple(sorted({*names, *resolved}))
    return resolved if united == resolved else united


def names_in(subscriptions: Iterable[Collection[str]]) -> set[str]:
    """Return the union of the given subscriptions."""
    return {name for distinct in subscriptions for name in distinct}


def _take_away(group: model.ConsumerGroup, member_id: str, by_name: dict[str, int]) -> None:
    member = group.members.get(member_id)
    for name in () if member is None else topics_of(group, member):
        by_name[name] = by_name.get(name, 0) - 1
