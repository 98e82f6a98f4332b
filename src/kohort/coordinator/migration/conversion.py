"""Conversion of a group id to the other type by the first member of the other protocol.

A group with members is converted by upgrade.py.

Laws: a group id is classic or KIP-848, never both; the tombstones of the one type and the records of the other are one
batch. Committed offsets belong to the id and stay.
Source: Apache Kafka: empty groups convert either way under every migration policy.
"""

from __future__ import annotations

from kohort.coordinator.migration.upgrade import Upgrade, decide_upgrade
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import ClassicGroupForgotten
from kohort.coordinator.settings import GroupSettings


def decide_convert_to_consumer(groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Upgrade:
    """Decide the removal of a classic group, if any, for a new KIP-848 group of its id.

    Raises:
        Refused: where the classic group has members and cannot be converted.
    """
    classic = groups.classic.get(group_id)
    if classic is None:
        return Upgrade(records=[], effects=[], group=ConsumerGroup(group_id))
    if not classic.members:
        return Upgrade(records=[ClassicGroupForgotten(group_id=group_id)], effects=[], group=ConsumerGroup(group_id))
    return decide_upgrade(groups, classic, settings, now_ms=now_ms)
