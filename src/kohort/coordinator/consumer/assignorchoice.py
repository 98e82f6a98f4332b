"""Which assignor computes a group's target: `group.assignor`, else what most members ask for, else the broker's first.

Laws: the choice depends on the members' wishes and on the settings alone; where two assignors have as many votes, the
one that comes first in `group.consumer.assignors` wins. A wish that the broker no longer offers counts as none.
Source: KIP-848 (server assignors); KAFKA-20434: the group's epoch rises when the choice changes.
"""

from __future__ import annotations

from kohort.coordinator.consumer.change import NO_CHANGE, MembershipChange
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.settings import GroupSettings


def chosen_assignor(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> str:
    """The name of the assignor that the group has once the change is applied."""
    if settings.group_assignor:
        return settings.group_assignor
    offered = settings.group_consumer_assignors
    votes = _votes_after(group, change)
    if not votes:
        return offered[0]
    # The first of equals: max keeps it.
    best = max(offered, key=lambda name: votes.get(name, 0))
    return best if votes.get(best, 0) else offered[0]


def _votes_after(group: ConsumerGroup, change: MembershipChange) -> dict[str, int]:
    votes = group.assignor_votes
    if not change.subscribed and not change.gone:
        return votes
    after = dict(votes)
    for member_id, subscribed in change.subscribed.items():
        _withdraw(group, member_id, after)
        if subscribed.server_assignor is not None:
            after[subscribed.server_assignor] = after.get(subscribed.server_assignor, 0) + 1
    for member_id in change.gone:
        _withdraw(group, member_id, after)
    return after


def _withdraw(group: ConsumerGroup, member_id: str, votes: dict[str, int]) -> None:
    member = group.members.get(member_id)
    if member is not None and member.server_assignor is not None:
        votes[member.server_assignor] = votes.get(member.server_assignor, 0) - 1
