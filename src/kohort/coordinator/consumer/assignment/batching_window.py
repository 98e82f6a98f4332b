"""Time of a group's next target: changes within a window, or an interval, share one computation.

Laws: while the target is older than the group epoch, there is either one deadline for its computation or a running
computation. The window closes `group.consumer.assignment.window.ms` after the last change, or sooner, a maximal time
after the first. The interval since the last computation must also be over: the later of the two counts.
Source: KIP-1263 (assignment interval); the window is kohort's own: Kafka computes for each join.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kohort.coordinator.consumer.assignment.volatile import AssignmentWindowOpened
from kohort.coordinator.decision import Additions, Arm, Effect, TimerKey
from kohort.coordinator.model import NO_TARGET, ConsumerGroup
from kohort.coordinator.records.types import MemberTargetSet, Record
from kohort.coordinator.settings import GroupSettings

#: Time between two checks for a step of limited moves, ms, unless the assignment interval is longer.
STEP_MS: Final = 1_000


def assignment_key(group_id: str) -> TimerKey:
    """Return the timer key of the deadline at which a group's target is computed."""
    return TimerKey("assignment", group_id)


def target_due_ms(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> int:
    """Return the earliest time of the next computation by the interval; 0: at once.

    A previous computation in the future, by a clock that was ahead before a restart, is ignored.
    """
    interval_ms, computed_ms = settings.group_consumer_assignment_interval_ms, group.target_timestamp_ms
    return computed_ms + interval_ms if interval_ms and 0 < computed_ms <= now_ms else 0


def window_close_ms(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> int:
    """Return the time at which the target is computed if no further change follows."""
    opened_ms = group.window_opened_ms or now_ms
    # A process that stood still shifts its deadlines, not this time: such a window only closes sooner.
    close_ms = min(
        now_ms + settings.group_consumer_assignment_window_ms,
        opened_ms + settings.group_consumer_assignment_window_max_ms,
    )
    return max(now_ms, close_ms, target_due_ms(group, settings, now_ms=now_ms))


def decide_window(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Arm the deadline for the computation of the target, so that further changes share it."""
    records: list[Record] = []
    if settings.group_consumer_assignment_window_ms and not group.window_opened_ms:
        records.append(AssignmentWindowOpened(group_id=group.group_id, opened_ms=now_ms))
    return records, [Arm(assignment_key(group.group_id), window_close_ms(group, settings, now_ms=now_ms))]


def loaded_due_ms(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> int | None:
    """Return the time of the next computation after a restart; `None` if none is needed."""
    if not group.members:
        return None
    if group.target_epoch >= group.epoch:
        # There may be a step left to an even target.
        may_step = settings.group_assignor_max_moves > 0 and group.target_timestamp_ms > 0
        return now_ms + STEP_MS if may_step else None
    return window_close_ms(group, settings, now_ms=now_ms)


# Steps to an even target: with a limit of moves, the rest of the imbalance is worked off later.
#
# The limit is that of open moves: the next step takes as many as have ended meanwhile, and does not wait for all. Each
# step has an epoch, as members only go to targets of newer epochs. It is computed from the state at its time: with few
# moves an assignor reaches more balance than by the first of many.
#
# Laws: a step is only taken if it moves a partition, never from a submitted target (`submit_moves.py`), and begins no
# more moves than the limit allows. A restart forgets that a step was due, and checks again.
# Source: requirements H2 (`group.assignor.max.moves`) and H3 (no move waits for another).


def decide_next_step(
    group: ConsumerGroup, settings: GroupSettings, records: Iterable[Record], *, limit: int, now_ms: int
) -> list[Effect]:
    """Arm the deadline of the next step to an even target if `records` move as many as `limit` allows."""
    if limit <= 0 or count_moves(group, records) < limit:
        return []
    return [build_step_timer(group, settings, now_ms=now_ms)]


def build_step_timer(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Arm:
    """Build the deadline of the next check for a step to an even target."""
    pause_ms = max(STEP_MS, settings.group_consumer_assignment_interval_ms)
    return Arm(assignment_key(group.group_id), now_ms + pause_ms)


def settings_of_step(group: ConsumerGroup, settings: GroupSettings) -> GroupSettings | None:
    """Return settings with the moves left for the next step; `None` while `max.moves` moves are open."""
    limit = settings.group_assignor_max_moves
    if limit <= 0:
        return settings
    left = limit - count_open(group)
    return replace(settings, group_assignor_max_moves=left) if left > 0 else None


def count_open(group: ConsumerGroup) -> int:
    """Return the number of open moves, deferred ones included."""
    takers = {move.taker for move in group.waiting.values()} & group.members.keys()
    return sum(
        group.holders.get(topic_id, {}).get(partition) != member_id
        for member_id in group.behind | takers
        for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items()
        for partition in partitions
    )


def count_moves(group: ConsumerGroup, records: Iterable[Record]) -> int:
    """Return the number of partitions that members lose by new targets."""
    moves = 0
    for record in records:
        if isinstance(record, MemberTargetSet):
            for topic_id, partitions in group.targets.get(record.member_id, NO_TARGET).items():
                moves += len(set(partitions).difference(record.partitions.get(topic_id, ())))
    return moves
