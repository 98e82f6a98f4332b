"""An even target in steps: where the number of moves is limited, the rest of the imbalance is worked off later.

The limit says how many are on their way at once: the next step takes as many as have come to their end meanwhile, and
does not wait until all have. Each step has an epoch, as members only go to targets of newer epochs,
and is computed from what is so by then: with few moves an assignor reaches more balance than by the first of many.

Laws: a step is only taken if it moves something, never from a target that was changed by hand (`switch.py`), and takes
no more than the limit lets begin. A restart forgets that a step was due, and looks again.
Source: requirements H2 (`group.assignor.max.moves`) and H3 (no move waits for another).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.coordinator.consumer.targets.window import STEP_MS, assignment_key
from kohort.coordinator.decision import Arm, Effect
from kohort.coordinator.model import NO_TARGET, ConsumerGroup
from kohort.coordinator.records import MemberTargetSet, Record
from kohort.coordinator.settings import GroupSettings


def decide_next_step(
    group: ConsumerGroup, settings: GroupSettings, records: Iterable[Record], *, limit: int, now_ms: int
) -> list[Effect]:
    """See to the step after `records`, if they move as much as was allowed, which is `limit`."""
    if limit <= 0 or count_moves(group, records) < limit:
        return []
    return [build_step_timer(group, settings, now_ms=now_ms)]


def build_step_timer(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Arm:
    """The deadline at which it is looked at whether a step can be taken."""
    pause_ms = max(STEP_MS, settings.group_consumer_assignment_interval_ms)
    return Arm(assignment_key(group.group_id), now_ms + pause_ms)


def settings_of_step(group: ConsumerGroup, settings: GroupSettings) -> GroupSettings | None:
    """The settings by which the next step is computed; `None` while as much is on its way as may be."""
    limit = settings.group_assignor_max_moves
    if limit <= 0:
        return settings
    left = limit - count_open(group)
    return replace(settings, group_assignor_max_moves=left) if left > 0 else None


def can_step(group: ConsumerGroup) -> bool:
    """Whether a step may follow the target: it was computed, and not changed by hand."""
    return group.target_timestamp_ms > 0


def count_open(group: ConsumerGroup) -> int:
    """How many partitions are on their way to the members that shall have them, be it that they wait."""
    takers = {move.taker for move in group.waiting.values()} & group.members.keys()
    return sum(
        group.holders.get(topic_id, {}).get(partition) != member_id
        for member_id in group.behind | takers
        for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items()
        for partition in partitions
    )


def count_moves(group: ConsumerGroup, records: Iterable[Record]) -> int:
    """How many partitions members lose by new targets."""
    moves = 0
    for record in records:
        if isinstance(record, MemberTargetSet):
            for topic_id, partitions in group.targets.get(record.member_id, NO_TARGET).items():
                moves += len(set(partitions).difference(record.partitions.get(topic_id, ())))
    return moves
