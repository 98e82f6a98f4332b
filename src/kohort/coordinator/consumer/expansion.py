"""New members of a static KIP-848 group, without partitions until the expansion window is over.

Laws: neither the group's epoch nor a member's target changes by such a member. An empty group's first member does not
wait, and a member that joins while a target is about to be computed is part of it.
Source: KIP-345's draft (expansion timeout); S1.
"""

from __future__ import annotations

from kohort.coordinator.consumer.subscription_metadata import MembershipChange
from kohort.coordinator.consumer.targets.target import hash_after
from kohort.coordinator.decision import Effect
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import ConsumerGroupEpochSet, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import open_window


def decide_waiting(
    groups: GroupsState, group: ConsumerGroup, settings: GroupSettings, change: MembershipChange, *, now_ms: int
) -> tuple[list[Record], list[Effect]] | None:
    """Decide the effects of a new member that has to wait; `None` if it need not."""
    if not settings.is_static or not group.members or group.target_epoch < group.epoch:
        return None
    records, effects = open_window(groups, group.group_id, settings, now_ms=now_ms)
    metadata_hash = hash_after(group, groups.image, change)
    if metadata_hash != group.metadata_hash:
        # Otherwise the new member's topics would count as changed topics.
        epoch = ConsumerGroupEpochSet(group_id=group.group_id, epoch=group.epoch, metadata_hash=metadata_hash)
        return [epoch, *records], effects
    return records, effects
