"""Incremental target of a large group: only members that give or take partitions are looked at.

Laws: the use of this way and its result depend on durable state alone; a kept balance only saves time. Changes that
move much, and members with different topics, are left to the assignor.
Source: requirement G7; the figure of issue 4 for a join into a group at rest.
"""

from __future__ import annotations

from typing import Final

from kohort.assign.external import External
from kohort.assign.uniform import Uniform
from kohort.coordinator.balance import TargetBalance, build_balance, has_few_free, plan_targets
from kohort.coordinator.consumer.subscription_metadata import MembershipChange
from kohort.coordinator.consumer.targets.volatile import TargetBalanceKept
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records import MemberTargetSet, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.ids import TopicId

#: The assignors that make these moves; the second one makes none.
_ASSIGNORS: Final = (Uniform.name, External.name)


def plan_few_moves(
    group: ConsumerGroup, image: TopicImage, settings: GroupSettings, change: MembershipChange, *, assignor: str
) -> list[Record] | None:
    """Plan the records of the changed targets, `None` where the assignor has to compute them.

    Args:
        group: its state before the change.
        image: the present topics.
        settings: of the group.
        change: of its members.
        assignor: name of the group's assignor.
    """
    names = _shared_topics(group, change)
    if assignor not in _ASSIGNORS or names is None or not image.version:
        return None
    topics = [(facts.topic_id, facts.partition_count) for name in names if (facts := image.by_name.get(name))]
    if sum(count for _, count in topics) < settings.incremental_from_partitions:
        return None
    balance = _balance_after(group, change, topics)
    if balance is None:
        return None
    planned = plan_targets(
        balance,
        group.targets,
        max_moves=0 if assignor == External.name else settings.group_assignor_max_moves,
        imbalance=settings.group_assignor_imbalance,
    )
    if planned is None:
        return None
    records: list[Record] = []
    if group.balance is None:
        # From now on `apply` keeps it up to date; until then it belongs to this decision alone.
        records.append(TargetBalanceKept(group_id=group.group_id, balance=balance))
    records += (
        MemberTargetSet(group_id=group.group_id, member_id=member_id, partitions=target)
        for member_id, target in planned.items()
    )
    return records


def _shared_topics(group: ConsumerGroup, change: MembershipChange) -> tuple[str, ...] | None:
    """Return the common topics of all members after the change; `None` if they differ now or then."""
    if len(group.subscriptions) != 1:
        return None
    names = next(iter(group.subscriptions))
    return names if all(topics == names for topics in change.topics.values()) else None


def _balance_after(
    group: ConsumerGroup, change: MembershipChange, topics: list[tuple[TopicId, int]]
) -> TargetBalance | None:
    """Return the balance after the change, as a copy; `None` if it is not worth building."""
    balance = group.balance
    joined = [member_id for member_id in change.topics if member_id not in group.members]
    gone = [member_id for member_id in change.gone if member_id in group.members]
    if balance is None:
        staying = group.members.keys() - gone
        if not has_few_free(staying, group.targets, topics):
            return None
        balance = build_balance(group.members, group.targets, topics, group.metadata_hash)
        if balance is None:
            return None
    elif joined or gone:
        balance = balance.copy()
    for member_id in joined:
        balance.add_member(member_id)
    for member_id in gone:
        is_known = balance.remove_member(member_id, group.targets.get(member_id))
        assert is_known, "a balance knows every member"
    return balance
