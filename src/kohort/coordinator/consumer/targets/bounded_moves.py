"""Steps to an even target: with a limit of moves, the rest of the imbalance is worked off later.

The limit is that of open moves: the next step takes as many as have ended meanwhile, and does not wait for all. Each
step has an epoch, as members only go to targets of newer epochs. It is computed from the state at its time: with few
moves an assignor reaches more balance than by the first of many.

Laws: a step is only taken if it moves a partition, never from a submitted target (`submit_moves.py`), and begins no
more moves than the limit allows. A restart forgets that a step was due, and checks again.
Source: requirements H2 (`group.assignor.max.moves`) and H3 (no move waits for another).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.coordinator.consumer.targets.batching_window import STEP_MS, assignment_key
from kohort.coordinator.decision import Arm, Effect
from kohort.coordinator.model import NO_TARGET, ConsumerGroup
from kohort.coordinator.records import MemberTargetSet, Record
from kohort.coordinator.settings import GroupSettings


def decide_next_step(
    group: ConsumerGroup, settings: GroupSettings, records: Iterable[Record], *, limit: int, now_ms: int
) -> list[Effect]:
    """Arm the deadline of the next step if `records` move as many partitions as `limit` allows."""
    if limit <= 0 or count_moves(group, records) < limit:
        return []
    return [build_step_timer(group, settings, now_ms=now_ms)]


def build_step_timer(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Arm:
    """Build the deadline of the next check for a step."""
    pause_ms = max(STEP_MS, settings.group_consumer_assignment_interval_ms)
    return Arm(assignment_key(group.group_id), now_ms + pause_ms)


def settings_of_step(group: ConsumerGroup, settings: GroupSettings) -> GroupSettings | None:
    """Return the settings of the next step; `None` while as many moves are open as the limit allows."""
    limit = settings.group_assignor_max_moves
    if limit <= 0:
        return settings
    left = limit - count_open(group)
    return replace(settings, group_assignor_max_moves=left) if left > 0 else None


def can_step(group: ConsumerGroup) -> bool:
    """Whether a step may follow the target: an assignor computed it."""
    return group.target_timestamp_ms > 0


def count_open(group: ConsumerGroup) -> int:
    """Return the number of open moves, also of waiting ones."""
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
