"""Targets computed by a custom assignor, outside of the coordinator's event loop.

One computation of a group runs at a time. Its result becomes the target of its epoch even if the group has changed
meanwhile, and the next computation begins with that result. So a group that changes faster than its assignor computes
still makes progress. Partitions for members that have left have no owner until then.

Laws: a result is accepted only if every partition goes to one subscriber of its topic. A failure changes only the
failure state: the target stays, members with a target keep working, and the pause before the next attempt grows.
A result that is no longer expected is dropped.
Source: KIP-848 (a computed assignment is installed although the epoch has moved on; an error keeps the former one);
requirement G5.
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign import assignors, moves
from kohort.coordinator import commands, model, topics
from kohort.coordinator.consumer.assignment import assignor_input, volatile
from kohort.coordinator.consumer.assignment.batching_window import assignment_key, decide_next_step, window_close_ms
from kohort.coordinator.consumer.reconciliation.move_throttle import hold_back
from kohort.coordinator.consumer.subscription_metadata import NO_CHANGE, MembershipChange
from kohort.coordinator.decision import Additions, Arm, ComputeTarget, Decision, Disarm
from kohort.coordinator.records.types import ConsumerGroupEpochSet, MemberTargetSet, TargetAssignmentEpochSet
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused

#: Pause before a failed assignor runs again, ms; it doubles with each failure up to the second number.
RETRY_MS: Final = 1_000
LONGEST_RETRY_MS: Final = 60_000
#: Most characters of an assignor's error that are kept and shown.
LONGEST_ERROR: Final = 500
#: Failures in a row after which new members are refused; clients take that as fatal, so one failure is not enough.
REFUSE_AFTER: Final = 3


def is_own(assignor: str) -> bool:
    """Return whether an assignor is a custom one, which does not run within a decision."""
    return assignors.built_in(assignor) is None


def decide_computation(
    group: model.ConsumerGroup,
    image: topics.TopicImage,
    settings: GroupSettings,
    change: MembershipChange = NO_CHANGE,
    *,
    assignor: str,
    epoch: int,
    now_ms: int,
    is_step: bool = False,
) -> Additions:
    """Start computing the target of `epoch`, unless a computation or the pause after a failure runs.

    `is_step`: the group itself is unchanged, so the epoch rises only if the result moves partitions.
    """
    key = assignment_key(group.group_id)
    if group.computing is not None:
        # The end of the running computation starts the next one.
        return [], [Disarm(key)]
    failure = group.failure
    # The pause after a failure is not over: the deadline is that of the next attempt.
    if failure is not None and failure.assignor == assignor and failure.retry_ms > now_ms:
        return [], [Arm(key, failure.retry_ms)]
    order = ComputeTarget(
        group_id=group.group_id,
        epoch=epoch,
        assignor=assignor,
        assignable=assignor_input.build_assignable(group, image, settings, change),
        is_step=is_step,
        timeout_ms=settings.group_consumer_assignor_timeout_ms,
        is_offloaded=settings.group_consumer_assignor_offload_enable,
    )
    # The running computation is remembered, so that its result can be told from a stale one.
    noted = volatile.ComputationNoted(group_id=group.group_id, computing=order, failure=failure)
    return [noted], [Disarm(key), order]


def decide_computed(
    groups: model.GroupsState, command: commands.TargetComputed, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Install a result, or note the failure."""
    group = groups.consumer.get(command.group_id)
    order = None if group is None else group.computing
    # The result of an earlier computation, whose group has changed or restarted since.
    if group is None or order is None or order.assignable is not command.assignable:
        return Decision()
    if is_overtaken(group, order):
        return throw_away(group, settings, now_ms=now_ms)
    error = command.error or moves.find_fault(order.assignable, command.owner)
    if command.owner is None or error:
        return _decide_failure(group, order.assignor, error, now_ms=now_ms)
    return take_over(group, groups.image, settings, order, command.owner, now_ms=now_ms)


def take_over(
    group: model.ConsumerGroup,
    image: topics.TopicImage,
    settings: GroupSettings,
    order: ComputeTarget,
    owner: array[int],
    *,
    now_ms: int,
) -> Decision:
    """Make a valid result the group's target, even if the group epoch is newer."""
    # Removed members have lost their targets, and get none.
    targets = [
        record
        for record in assignor_input.build_target(group, order.assignable, owner)
        if not isinstance(record, MemberTargetSet) or record.member_id in group.members
    ]
    noted = volatile.ComputationNoted(group_id=group.group_id, computing=None, failure=None)
    # A step that moves no partition needs no epoch.
    if order.is_step and not any(isinstance(record, MemberTargetSet) for record in targets):
        return Decision((noted,))
    held_back, paced = hold_back(group, image, settings, targets, now_ms=now_ms)
    epoch = TargetAssignmentEpochSet(
        group_id=group.group_id, assignment_epoch=order.epoch, assignment_timestamp_ms=now_ms
    )
    records = [*targets, *held_back, epoch, noted]
    if order.is_step:
        raised = ConsumerGroupEpochSet(group_id=group.group_id, epoch=order.epoch, metadata_hash=group.metadata_hash)
        records.insert(0, raised)
    # The group has changed meanwhile: the next computation follows, after window and interval.
    elif order.epoch < group.epoch:
        close_ms = window_close_ms(group, settings, now_ms=now_ms)
        due_ms = max(close_ms, now_ms + settings.group_consumer_assignment_interval_ms)
        return Decision(tuple(records), (*paced, Arm(assignment_key(group.group_id), due_ms)))
    limit = order.assignable.max_moves
    return Decision(tuple(records), (*paced, *decide_next_step(group, settings, targets, limit=limit, now_ms=now_ms)))


def throw_away(group: model.ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Drop a result that cannot be used, and schedule the next computation."""
    noted = volatile.ComputationNoted(group_id=group.group_id, computing=None, failure=group.failure)
    due_ms = window_close_ms(group, settings, now_ms=now_ms)
    return Decision((noted,), (Arm(assignment_key(group.group_id), due_ms),))


def refuse_joins(group: model.ConsumerGroup, settings: GroupSettings, change: MembershipChange) -> None:
    """Refuse new members while the assignor fails repeatedly: they would wait for a target in vain.

    Raises:
        Refused: UNKNOWN_SERVER_ERROR, as in Apache Kafka.
    """
    failure = group.failure
    # One failure may be an accident, and clients take the refusal as fatal.
    if failure is None or failure.count < REFUSE_AFTER:
        return
    if failure.assignor == assignor_input.chosen_assignor(group, settings, change):
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the assignor {failure.assignor} fails for the group {group.group_id}: {failure.error}",
        )


def is_overtaken(group: model.ConsumerGroup, order: ComputeTarget) -> bool:
    """Return whether the group has changed so that no result of this computation can be used."""
    if order.is_step and group.epoch >= order.epoch:
        # The group has changed, and the next target needs an epoch of its own.
        return True
    # A static member replaced one that the assignor knew under another id. Its target would be lost, or the result
    # would go to an id that is gone, which no other computation would mend.
    known = {member.member_id for member in order.assignable.members}
    return not group.targets.keys() <= known or (order.epoch >= group.epoch and not known <= group.members.keys())


def _decide_failure(group: model.ConsumerGroup, assignor: str, error: str, *, now_ms: int) -> Decision:
    before = group.failure
    count = 1 if before is None or before.assignor != assignor else before.count + 1
    failure = model.AssignorFailure(
        assignor=assignor,
        error=error[:LONGEST_ERROR],
        count=count,
        # The pause doubles with each failure.
        retry_ms=now_ms + min(RETRY_MS << min(count - 1, 16), LONGEST_RETRY_MS),
    )
    noted = volatile.ComputationNoted(group_id=group.group_id, computing=None, failure=failure)
    return Decision((noted,), (Arm(assignment_key(group.group_id), failure.retry_ms),))
