"""Time of a group's next target: changes within a window, or an interval, share one computation.

Laws: a target older than its group always has one deadline for its computation, or a running computation. The window
closes a while after the last change, and at the latest some time after the first. The interval since the last
computation has to be over, too: the later of the two counts.
Source: KIP-1263 (assignment interval); the window is kohort's own: Kafka computes for each join.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.consumer.targets.volatile import AssignmentWindowOpened
from kohort.coordinator.decision import Arm, Effect, TimerKey
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records import Record
from kohort.coordinator.settings import GroupSettings

#: Time between two checks for a step of limited moves, ms, unless the assignment interval is longer.
STEP_MS: Final = 1_000


def assignment_key(group_id: str) -> TimerKey:
    """Return the key of the deadline at which a group's target is computed."""
    return TimerKey("assignment", group_id)


def target_due_ms(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> int:
    """Return the earliest time of the next computation; 0 is at once, as in a group that was empty.

    A target with a time in the future was computed before a restart, by a clock that was ahead: it does not count.
    """
    interval_ms, computed_ms = settings.group_consumer_assignment_interval_ms, group.target_timestamp_ms
    return computed_ms + interval_ms if interval_ms and 0 < computed_ms <= now_ms else 0


def window_close_ms(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> int:
    """Return the time at which the target is computed if this is the last change."""
    opened_ms = group.window_opened_ms or now_ms
    # A process that stood still shifts its deadlines, not this time: such a window only closes sooner.
    close_ms = min(
        now_ms + settings.group_consumer_assignment_window_ms,
        opened_ms + settings.group_consumer_assignment_window_max_ms,
    )
    return max(now_ms, close_ms, target_due_ms(group, settings, now_ms=now_ms))


def decide_window(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> tuple[list[Record], list[Effect]]:
    """Arm the deadline of the target, so that further changes can join it."""
    records: list[Record] = []
    if settings.group_consumer_assignment_window_ms and not group.window_opened_ms:
        records.append(AssignmentWindowOpened(group_id=group.group_id, opened_ms=now_ms))
    return records, [Arm(assignment_key(group.group_id), window_close_ms(group, settings, now_ms=now_ms))]


def loaded_due_ms(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> int | None:
    """Return the time for an outdated target after a restart; `None` if there is none to compute."""
    if not group.members:
        return None
    if group.target_epoch >= group.epoch:
        # There may be a step left to an even target.
        may_step = settings.group_assignor_max_moves > 0 and group.target_timestamp_ms > 0
        return now_ms + STEP_MS if may_step else None
    return window_close_ms(group, settings, now_ms=now_ms)
