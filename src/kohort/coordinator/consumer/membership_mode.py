"""Effects of changed configs on a static KIP-848 group: dynamic mode, timeouts, forced rebalance.

Laws: back in dynamic mode every member keeps its instance id and has its whole session; waiting members get partitions.
Source: KIP-345's draft (enableDynamicMembership, forceRebalance); S3, S4.
"""

from __future__ import annotations

from kohort.coordinator.consumer.targets.target import decide_forced
from kohort.coordinator.decision import Arm, Effect
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import build_dynamic, clock_key, forces_rebalance, has_window


def decide_mode(
    groups: GroupsState, group: ConsumerGroup, old: GroupSettings, new: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """Decide the effects of a change from `old` to `new` settings on offline and waiting members."""
    group_id, clock = group.group_id, groups.clocks.get(group.group_id)
    records: list[Record] = []
    effects: list[Effect] = []
    is_left = old.is_static and not new.is_static
    if is_left:
        records, effects = build_dynamic(groups, group_id, new, now_ms=now_ms)
    elif clock is not None:
        effects.append(Arm(clock_key(group_id), max(now_ms, clock.due_ms(new))))
    if group.members and (forces_rebalance(old, new) or (is_left and has_window(groups, group_id))):
        more, armed = decide_forced(group, groups.image, new, now_ms=now_ms)
        records, effects = records + more, effects + armed
    return records, effects
