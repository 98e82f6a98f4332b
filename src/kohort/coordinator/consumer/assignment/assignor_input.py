"""Input of an assignor, choice of the assignor, and targets from its result.

The assignor is `group.assignor`, else the one that most members request, else the first of `group.consumer.assignors`.

Laws: members are sorted by id, topics by name: state that a restart forgets cannot influence an assignor. The choice
depends on the members' requests and on the settings alone. Of assignors with equal votes, the first in
`group.consumer.assignors` wins. A request for an assignor that the broker no longer offers is ignored.
Source: KIP-848 (server assignors); KAFKA-20434: the group's epoch rises when the choice changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace, changed_members, gather_owners, spread_owners
from kohort.assign.subscribers import subscribers_by_topic
from kohort.coordinator.consumer.assignment.volatile import TargetBalanceKept
from kohort.coordinator.consumer.subscription_metadata import NO_CHANGE, MembershipChange, subscriptions_of
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, ConsumerMember
from kohort.coordinator.records.types import MemberTargetSet, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused


def chosen_assignor(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> str:
    """Return the name of the group's assignor after the change."""
    if settings.group_assignor:
        return settings.group_assignor
    offered = settings.group_consumer_assignors
    votes = _votes_after(group, change)
    if not votes:
        return offered[0]
    # Of equal ones max keeps the first.
    best = max(offered, key=lambda name: votes.get(name, 0))
    return best if votes.get(best, 0) else offered[0]


def check_wish(
    group: ConsumerGroup, wish: str | None, settings: GroupSettings, *, member: ConsumerMember, gone: str
) -> None:
    """Refuse a member that newly requests another assignor than its group uses, if groups do not vote.

    A group without other members uses the assignor that this member requests, unless `group.assignor` is set. An
    unchanged request of a member stays valid. `gone`: the member whose former request no longer counts, this one or the
    one that it replaces.

    Raises:
        Refused: UNSUPPORTED_ASSIGNOR.
    """
    if settings.group_consumer_assignor_mismatch == "vote" or wish is None or wish == member.server_assignor:
        return
    is_alone = not group.members.keys() - {gone}
    used = settings.group_assignor
    if not used:
        # The member's own former vote does not bind the choice.
        used = wish if is_alone else chosen_assignor(group, settings, MembershipChange(gone=(gone,)))
    if wish != used:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"the group {group.group_id} uses the assignor {used}, not {wish}, and takes in no member that names "
            f"another (group.consumer.assignor.mismatch): set group.remote.assignor to {used}, or leave it out",
        )


def build_assignable(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    change: MembershipChange = NO_CHANGE,
    *,
    client_assignor: str = "",
) -> Assignable:
    """Build the assignor's input after the change; `client_assignor`: the client-side assignor, if any."""
    subscriptions = subscriptions_of(group, change)
    # By id, not by arrival: the order of arrival is not part of the durable state.
    member_ids = sorted(subscriptions)
    by_name = _subscribers(image, [subscriptions[member_id] for member_id in member_ids])
    topics = [image.by_name[name] for name in sorted(by_name)]
    space = PartitionSpace((topic.topic_id, topic.partition_count) for topic in topics)
    return Assignable(
        space=space,
        topic_names=tuple(topic.name for topic in topics),
        members=tuple(_assignable_member(group, change, member_id, client_assignor) for member_id in member_ids),
        subscribers=tuple(by_name[topic.name] for topic in topics),
        owner=gather_owners(space, [group.targets.get(member_id, NO_TARGET) for member_id in member_ids]),
        max_moves=settings.group_assignor_max_moves,
        imbalance=settings.group_assignor_imbalance,
    )


def build_target(group: ConsumerGroup, assignable: Assignable, owner: array[int]) -> list[Record]:
    """Build the changed targets from an assignor's `owner`."""
    space = assignable.space
    members = [member.member_id for member in assignable.members]
    changed = set(changed_members(assignable.owner, owner, len(members)))
    changed.update(
        number
        for number, member_id in enumerate(members)
        if any(space.topic(topic_id) is None for topic_id in group.targets.get(member_id, NO_TARGET))
    )
    # To follow so many changes would cost more than to build a balance anew when one is needed.
    records: list[Record] = [TargetBalanceKept(group_id=group.group_id, balance=None)] if group.balance else []
    records += (
        MemberTargetSet(group_id=group.group_id, member_id=members[number], partitions=partitions)
        for number, partitions in spread_owners(space, owner, sorted(changed)).items()
    )
    return records


def _assignable_member(
    group: ConsumerGroup, change: MembershipChange, member_id: str, client_assignor: str
) -> AssignableMember:
    found = change.subscribed.get(member_id) or group.members[member_id]
    member = AssignableMember(member_id=member_id, instance_id=found.instance_id, rack_id=found.rack_id)
    if not client_assignor:
        return member
    known = {} if group.client_assignors is None else group.client_assignors.assignors
    for each in change.assignors.get(member_id, known.get(member_id, ())):
        if each.name == client_assignor:
            return replace(member, metadata=each.metadata, metadata_version=each.version, reason=each.reason)
    return member


def _subscribers(image: TopicImage, subscriptions: list[tuple[str, ...]]) -> dict[str, Sequence[int]]:
    """Return name -> ascending numbers of its subscribers, of existing topics."""
    # `subscriptions` are in the order of the members' numbers.
    if len(set(subscriptions)) == 1:
        return {name: range(len(subscriptions)) for name in subscriptions[0] if name in image.by_name}
    return {name: members for name, members in subscribers_by_topic(subscriptions).items() if name in image.by_name}


def _votes_after(group: ConsumerGroup, change: MembershipChange) -> dict[str, int]:
    votes = group.assignor_votes
    if not change.subscribed and not change.gone:
        return votes
    after = dict(votes)
    for member_id in (*change.subscribed, *change.gone):
        member = group.members.get(member_id)
        if member is not None and member.server_assignor is not None:
            after[member.server_assignor] = after.get(member.server_assignor, 0) - 1
    for subscribed in change.subscribed.values():
        if subscribed.server_assignor is not None:
            after[subscribed.server_assignor] = after.get(subscribed.server_assignor, 0) + 1
    return after
