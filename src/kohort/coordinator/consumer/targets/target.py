"""Target assignment of a KIP-848 group: a change raises the epoch, and a target follows.

Laws: a target covers every partition of every topic that a member subscribes to, each exactly once. Only members whose
target differs get a record. A group whose target is older than its epoch has a deadline at which it is computed.
Source: KIP-848 (target assignment); KIP-1263 (assignment interval). Unlike in Apache Kafka, a timer computes a target
that has to wait, not the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b

from kohort.assign.registry import built_in
from kohort.coordinator.consumer.client_assignors.assignment_request import decide_asking, is_beside
from kohort.coordinator.consumer.reconciliation.move_throttle import hold_back
from kohort.coordinator.consumer.subscription_metadata import (
    NO_CHANGE,
    MembershipChange,
    count_members,
    subscribed_names,
)
from kohort.coordinator.consumer.targets.assignor_input import build_assignable, build_target, chosen_assignor
from kohort.coordinator.consumer.targets.async_assignor import decide_computation, is_own
from kohort.coordinator.consumer.targets.batching_window import assignment_key, decide_window, target_due_ms
from kohort.coordinator.consumer.targets.bounded_moves import (
    build_step_timer,
    can_step,
    decide_next_step,
    settings_of_step,
)
from kohort.coordinator.consumer.targets.incremental import plan_few_moves
from kohort.coordinator.decision import Arm, Disarm, Effect
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records import ConsumerGroupEpochSet, MemberTargetSet, Record, TargetAssignmentEpochSet
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage


def hash_topics(image: TopicImage, names: Collection[str]) -> int:
    """Hash the topics `names` of `image` into one signed 64-bit number.

    Kafka compares such a hash, too, but never across brokers: the function is kohort's own.
    """
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        facts = image.by_name.get(name)
        if facts is not None:
            digest.update(facts.topic_id)
            digest.update(f"{facts.partition_count} {name}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def decide_change(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    change: MembershipChange = NO_CHANGE,
    *,
    now_ms: int,
    is_urgent: bool = True,
    metadata_hash: int | None = None,
) -> tuple[list[Record], list[Effect]]:
    """Raise the epoch of a changed group, and compute its target or arm the deadline for it.

    Args:
        group: its state before the change.
        image: the topics after it.
        settings: of the group.
        change: of its members; its own records come before those that are returned.
        now_ms: coordinator time.
        is_urgent: compute the target in this decision if there is no window and no interval to wait for. Otherwise a
            timer does, after all other work that is due now.
        metadata_hash: hash of the group's topics after the change, if that is known.
    """
    group_id = group.group_id
    epoch = group.epoch + 1
    if not count_members(group, change):
        # KAFKA-20442: the target of an empty group is as new as its epoch.
        return [
            ConsumerGroupEpochSet(group_id=group_id, epoch=epoch, metadata_hash=hash_topics(image, ())),
            TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch, assignment_timestamp_ms=0),
        ], [Disarm(assignment_key(group_id))]
    if metadata_hash is None:
        metadata_hash = hash_after(group, image, change)
    waits = (
        not is_urgent
        or settings.group_consumer_assignment_window_ms > 0
        or target_due_ms(group, settings, now_ms=now_ms) > now_ms
    )
    begun: list[Record] = []
    if not group.target_epoch and (waits or is_beside(group, settings, change)):
        # KIP-848: a member's epoch is at most the target's, and the group's is above both while it waits.
        # A member's epoch is never 0: a group that waits for its first target begins with an empty one.
        begun.append(TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch))
        epoch += 1
    if waits:
        records, effects = decide_window(group, settings, now_ms=now_ms)
    else:
        records, effects = decide_target(group, image, settings, change, epoch=epoch, now_ms=now_ms)
    raised = ConsumerGroupEpochSet(group_id=group_id, epoch=epoch, metadata_hash=metadata_hash)
    return [raised, *begun, *records], effects


def decide_forced(
    group: ConsumerGroup, image: TopicImage, settings: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """Rebalance the group without a window: further members were waited for already."""
    settings = replace(settings, group_consumer_assignment_window_ms=0)
    return decide_change(group, image, settings, now_ms=now_ms)


def decide_pending(
    group: ConsumerGroup, image: TopicImage, settings: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """Compute an outdated target with a member's heartbeat, where there is no window to wait for."""
    # With a window, its deadline computes the target for all changes at once.
    if group.target_epoch >= group.epoch or settings.group_consumer_assignment_window_ms:
        return [], []
    due_ms = target_due_ms(group, settings, now_ms=now_ms)
    if due_ms > now_ms:
        return [], [Arm(assignment_key(group.group_id), due_ms)]
    return decide_target(group, image, settings, epoch=group.epoch, now_ms=now_ms)


def decide_due(
    group: ConsumerGroup, image: TopicImage, settings: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """Compute the target at the end of the group's window, or take the next step to an even target."""
    if not group.members:
        return [], []
    if group.target_epoch < group.epoch:
        return decide_target(group, image, settings, epoch=group.epoch, now_ms=now_ms)
    if not can_step(group):
        return [], []
    limited = settings_of_step(group, settings)
    if limited is None:
        return [], [build_step_timer(group, settings, now_ms=now_ms)]
    # A member only goes to a target of a newer epoch: each step has one.
    epoch = group.epoch + 1
    stepped = decide_asking(group, image, limited, epoch=epoch, is_step=True)
    if stepped is not None:
        return stepped
    name = chosen_assignor(group, settings)
    if is_own(name):
        return decide_computation(group, image, limited, assignor=name, epoch=epoch, now_ms=now_ms, is_step=True)
    records, effects = decide_target(group, image, limited, epoch=epoch, now_ms=now_ms)
    # A step that moves no partition needs no epoch: the group is even, or as even as its limits allow.
    if not any(isinstance(record, MemberTargetSet) for record in records):
        return [], []
    raised = ConsumerGroupEpochSet(group_id=group.group_id, epoch=epoch, metadata_hash=group.metadata_hash)
    return [raised, *records], effects


def decide_target(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    change: MembershipChange = NO_CHANGE,
    *,
    epoch: int,
    now_ms: int,
) -> tuple[list[Record], list[Effect]]:
    """Build the records of the target of `epoch`; the group has members after `change`."""
    asked = decide_asking(group, image, settings, change, epoch=epoch)
    if asked is not None:
        return asked
    name = chosen_assignor(group, settings, change)
    # The cheap way first: a join into a large group at rest concerns few members.
    records = plan_few_moves(group, image, settings, change, assignor=name)
    if records is None:
        assignor = built_in(name)
        if assignor is None:
            return decide_computation(group, image, settings, change, assignor=name, epoch=epoch, now_ms=now_ms)
        assignable = build_assignable(group, image, settings, change)
        records = build_target(group, assignable, assignor.assign(assignable))
    limit = settings.group_assignor_max_moves
    # A target that used up the limit of moves leaves imbalance: the next step continues.
    more = decide_next_step(group, settings, records, limit=limit, now_ms=now_ms)
    # With a pace, the owners keep the partitions until their moves begin.
    held_back, paced = hold_back(group, image, settings, records, change.gone, now_ms=now_ms)
    records += held_back
    records.append(
        TargetAssignmentEpochSet(group_id=group.group_id, assignment_epoch=epoch, assignment_timestamp_ms=now_ms)
    )
    # A new target answers the deadline; a further step sets its own.
    return records, [*paced, *(more or [Disarm(assignment_key(group.group_id))])]


def target_epoch_in(records: Collection[Record], group: ConsumerGroup) -> int:
    """Return the epoch of the group's target after `records`."""
    for record in records:
        if isinstance(record, TargetAssignmentEpochSet):
            return record.assignment_epoch
    return group.target_epoch


def hash_after(group: ConsumerGroup, image: TopicImage, change: MembershipChange) -> int:
    """Return the hash of the subscribed topics after the change."""
    names = subscribed_names(group, change)
    # Before the first topic image, the hash is that of an image before the restart.
    if names is None and image.version and group.epoch:
        return group.metadata_hash
    return hash_topics(image, group.topic_subscribers if names is None else names)
