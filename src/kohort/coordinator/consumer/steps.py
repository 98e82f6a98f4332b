"""An even target in steps: where the number of moves is limited, the rest of the imbalance is worked off later.

The next step comes when the one before is done: every member has what the target gives it. Then a new epoch has the
next target, because members only go to targets of newer epochs; Apache Kafka's tools show each step as a rebalance.

Laws: a step is only taken if it moves something, and never from a target that was changed by hand (`switch.py`). A
restart forgets that a step was due, and looks again.
Source: requirement H2 (`group.assignor.max.moves`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.consumer.window import STEP_MS, assignment_key
from kohort.coordinator.decision import Arm, Effect
from kohort.coordinator.model import NO_TARGET, ConsumerGroup
from kohort.coordinator.records import MemberTargetSet, Record
from kohort.coordinator.settings import GroupSettings


def decide_next_step(
    group: ConsumerGroup, settings: GroupSettings, records: Iterable[Record], *, now_ms: int
) -> list[Effect]:
    """See to the step after `records`, if they move as much as is allowed."""
    limit = settings.group_assignor_max_moves
    if limit <= 0 or count_moves(group, records) < limit:
        return []
    return [build_step_timer(group, settings, now_ms=now_ms)]


def build_step_timer(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Arm:
    """The deadline at which it is looked at whether a step can be taken."""
    pause_ms = max(STEP_MS, settings.group_consumer_assignment_interval_ms)
    return Arm(assignment_key(group.group_id), now_ms + pause_ms)


def is_ready_for_step(group: ConsumerGroup) -> bool:
    """Whether every member has what the target gives it."""
    return not group.behind and not group.waiting


def can_step(group: ConsumerGroup) -> bool:
    """Whether a step may follow the target: it was computed, and not changed by hand."""
    return group.target_timestamp_ms > 0


def count_moves(group: ConsumerGroup, records: Iterable[Record]) -> int:
    """How many partitions members lose by new targets."""
    moves = 0
    for record in records:
        if isinstance(record, MemberTargetSet):
            for topic_id, partitions in group.targets.get(record.member_id, NO_TARGET).items():
                moves += len(set(partitions).difference(record.partitions.get(topic_id, ())))
    return moves
