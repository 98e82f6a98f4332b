"""What a group's members subscribe to, what a decision is about to do to them, and the group as it is after that.

A member subscribes to the topics that it names and to those that its pattern was resolved to.

Laws: a change is a value; the group that it is laid over stays as it is. Everything here gives the same answer before
the change is applied (with the change) and after it (without).
Whoever wants to know a member's topics asks here; `subscribed_topic_names` is only what the member said. A topic counts
once, however often it is subscribed to, and the order is by name.
Source: KIP-848 (subscriptions by regular expression); Apache Kafka's union of both. Architecture rule 2: a decision
that changes members computes their target before anything is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.coordinator.assigncommands import ClientAssignor
from kohort.coordinator.model import ConsumerGroup, ConsumerMember
from kohort.coordinator.records import ConsumerMemberSubscribed


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """Members that join, change or go.

    `subscribed`: member id -> its new record, of members that join or say something new. `topics`: member id -> what it
    subscribes to then, ascending, of members for which that changes. `gone`: members that are no more. `assignors`:
    member id -> those that it runs itself, of members that say so anew.
    """

    subscribed: Mapping[str, ConsumerMemberSubscribed] = field(default_factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gone: Collection[str] = ()
    assignors: Mapping[str, tuple[ClientAssignor, ...]] = field(default_factory=dict)


#: The group as it is.
NO_CHANGE: Final = MembershipChange()


def joining(subscribed: ConsumerMemberSubscribed, topics: tuple[str, ...]) -> MembershipChange:
    """One member joins or subscribes anew; `topics` is what it subscribes to then."""
    member_id = subscribed.member_id
    return MembershipChange(subscribed={member_id: subscribed}, topics={member_id: topics})


def subscriptions_of(group: ConsumerGroup, change: MembershipChange = NO_CHANGE) -> dict[str, tuple[str, ...]]:
    """member id -> the topics that it subscribes to, once the change is applied."""
    found = {member.member_id: topics_of(group, member) for member in group.members.values()}
    found.update(change.topics)
    for gone in change.gone:
        found.pop(gone, None)
    return found


def count_members(group: ConsumerGroup, change: MembershipChange) -> int:
    """How many members the group has once the change is applied."""
    return (
        len(group.members)
        + sum(member_id not in group.members for member_id in change.topics)
        - sum(member_id in group.members for member_id in change.gone)
    )


def subscribed_names(group: ConsumerGroup, change: MembershipChange) -> Collection[str] | None:
    """Every name that somebody subscribes to once the change is applied; `None` if they are the same as before."""
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


def _take_away(group: ConsumerGroup, member_id: str, by_name: dict[str, int]) -> None:
    member = group.members.get(member_id)
    for name in () if member is None else topics_of(group, member):
        by_name[name] = by_name.get(name, 0) - 1
