"""Target assignment of a KIP-848 group: a change raises the epoch, and a target follows.

Laws: a target covers every partition of every subscribed topic exactly once. Only members whose target differs get
a record. A group whose target is older than its epoch has a deadline at which the target is computed.
Source: KIP-848 (target assignment); KIP-1263 (assignment interval). A delayed target is computed by a timer here, in
Apache Kafka by the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from kohort.assign import assignors, uniform
from kohort.coordinator import commands
from kohort.coordinator.consumer import regex, subscription_metadata
from kohort.coordinator.consumer.assignment import assignor_input, batching_window, volatile
from kohort.coordinator.consumer.assignment.async_assignor import decide_computation, is_own
from kohort.coordinator.consumer.assignment.balance import TargetBalance, build_balance, has_few_free, plan_targets
from kohort.coordinator.consumer.client_assignors.assignment_request import decide_asking, is_beside
from kohort.coordinator.consumer.reconciliation.move_throttle import hold_back
from kohort.coordinator.decision import Additions, Arm, Decision, Disarm, Effect
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.ids import TopicId


def hash_topics(image: TopicImage, names: Collection[str]) -> int:
    """Hash the topics `names` of `image` into one signed 64-bit number."""
    # Kafka compares such a hash, too, but never across brokers: the function is kohort's own.
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        topic = image.by_name.get(name)
        if topic is not None:
            digest.update(topic.topic_id)
            digest.update(f"{topic.partition_count} {name}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def decide_change(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    change: subscription_metadata.MembershipChange = subscription_metadata.NO_CHANGE,
    *,
    now_ms: int,
    is_urgent: bool = True,
    metadata_hash: int | None = None,
) -> Additions:
    """Raise the epoch of a changed group, and compute its target or arm the deadline for it.

    The caller places the records of `change` before the returned ones. `is_urgent`: compute the target in this decision
    if no window and no interval delays it; otherwise a timer does, after all other work that is due now.
    `metadata_hash`: hash of the group's topics after the change, if known already.
    """
    group_id = group.group_id
    epoch = group.epoch + 1
    if not subscription_metadata.count_members(group, change):
        # KAFKA-20442: the target of an empty group is as new as its epoch.
        return [
            facts.ConsumerGroupEpochSet(group_id=group_id, epoch=epoch, metadata_hash=hash_topics(image, ())),
            facts.TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch, assignment_timestamp_ms=0),
        ], [Disarm(batching_window.assignment_key(group_id))]
    if metadata_hash is None:
        metadata_hash = hash_after(group, image, change)
    waits = (
        not is_urgent
        or settings.group_consumer_assignment_window_ms > 0
        or batching_window.target_due_ms(group, settings, now_ms=now_ms) > now_ms
    )
    begun: list[facts.Record] = []
    if not group.target_epoch and (waits or is_beside(group, settings, change)):
        # KIP-848: a member's epoch is at most the target's, and the group's is above both while it waits.
        # A member's epoch is never 0: a group that waits for its first target begins with an empty one.
        begun.append(facts.TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch))
        epoch += 1
    if waits:
        records, effects = batching_window.decide_window(group, settings, now_ms=now_ms)
    else:
        records, effects = decide_target(group, image, settings, change, epoch=epoch, now_ms=now_ms)
    raised = facts.ConsumerGroupEpochSet(group_id=group_id, epoch=epoch, metadata_hash=metadata_hash)
    return [raised, *begun, *records], effects


def decide_forced(group: ConsumerGroup, image: TopicImage, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Rebalance the group without a batching window, e.g. after an expansion window."""
    settings = replace(settings, group_consumer_assignment_window_ms=0)
    return decide_change(group, image, settings, now_ms=now_ms)


def decide_pending(group: ConsumerGroup, image: TopicImage, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Compute an outdated target in the decision of a heartbeat, if no batching window is configured."""
    # With a window, its deadline computes the target for all changes at once.
    if group.target_epoch >= group.epoch or settings.group_consumer_assignment_window_ms:
        return [], []
    due_ms = batching_window.target_due_ms(group, settings, now_ms=now_ms)
    if due_ms > now_ms:
        return [], [Arm(batching_window.assignment_key(group.group_id), due_ms)]
    return decide_target(group, image, settings, epoch=group.epoch, now_ms=now_ms)


def decide_due(group: ConsumerGroup, image: TopicImage, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Compute the target at the end of the group's window, or take the next step to an even target."""
    if not group.members:
        return [], []
    if group.target_epoch < group.epoch:
        return decide_target(group, image, settings, epoch=group.epoch, now_ms=now_ms)
    # Only a target that an assignor computed has a time, and may be followed by a step.
    if group.target_timestamp_ms <= 0:
        return [], []
    limited = batching_window.settings_of_step(group, settings)
    if limited is None:
        return [], [batching_window.build_step_timer(group, settings, now_ms=now_ms)]
    # A member only goes to a target of a newer epoch: each step has one.
    epoch = group.epoch + 1
    stepped = decide_asking(group, image, limited, epoch=epoch, is_step=True)
    if stepped is not None:
        return stepped
    name = assignor_input.chosen_assignor(group, settings)
    if is_own(name):
        return decide_computation(group, image, limited, assignor=name, epoch=epoch, now_ms=now_ms, is_step=True)
    records, effects = decide_target(group, image, limited, epoch=epoch, now_ms=now_ms)
    # A step that moves no partition needs no epoch: the group is even, or as even as its limits allow.
    if not any(isinstance(record, facts.MemberTargetSet) for record in records):
        return [], []
    raised = facts.ConsumerGroupEpochSet(group_id=group.group_id, epoch=epoch, metadata_hash=group.metadata_hash)
    return [raised, *records], effects


def decide_target(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    change: subscription_metadata.MembershipChange = subscription_metadata.NO_CHANGE,
    *,
    epoch: int,
    now_ms: int,
) -> Additions:
    """Build the records of the target of `epoch`; the group has members after `change`."""
    asked = decide_asking(group, image, settings, change, epoch=epoch)
    if asked is not None:
        return asked
    name = assignor_input.chosen_assignor(group, settings, change)
    # The cheap way first: a join into a large group at rest concerns few members.
    records = plan_few_moves(group, image, settings, change, assignor=name)
    if records is None:
        assignor = assignors.built_in(name)
        if assignor is None:
            return decide_computation(group, image, settings, change, assignor=name, epoch=epoch, now_ms=now_ms)
        assignable = assignor_input.build_assignable(group, image, settings, change)
        records = assignor_input.build_target(group, assignable, assignor.assign(assignable))
    limit = settings.group_assignor_max_moves
    # A target that used up the limit of moves leaves imbalance: the next step continues.
    more = batching_window.decide_next_step(group, settings, records, limit=limit, now_ms=now_ms)
    # With a pace, the owners keep the partitions until their moves begin.
    held_back, paced = hold_back(group, image, settings, records, change.gone, now_ms=now_ms)
    records += held_back
    records.append(
        facts.TargetAssignmentEpochSet(group_id=group.group_id, assignment_epoch=epoch, assignment_timestamp_ms=now_ms)
    )
    # A new target answers the deadline; a further step sets its own.
    return records, [*paced, *(more or [Disarm(batching_window.assignment_key(group.group_id))])]


def target_epoch_in(records: Collection[facts.Record], group: ConsumerGroup) -> int:
    """Return the epoch of the group's target after `records`."""
    for record in records:
        if isinstance(record, facts.TargetAssignmentEpochSet):
            return record.assignment_epoch
    return group.target_epoch


def hash_after(group: ConsumerGroup, image: TopicImage, change: subscription_metadata.MembershipChange) -> int:
    """Return the hash of the subscribed topics after the change."""
    names = subscription_metadata.subscribed_names(group, change)
    # Before the first topic image, the hash is that of an image before the restart.
    if names is None and image.version and group.epoch:
        return group.metadata_hash
    return hash_topics(image, group.topic_subscribers if names is None else names)


# Incremental target of a large group: only members that give or take partitions are looked at.
#
# Laws: the use of this way and its result depend on durable state alone; a kept balance only saves time. Changes that
# move much, and members with different topics, are left to the assignor.
# Source: requirement G7; the figure of issue 4 for a join into a group at rest.

#: The assignors that make these moves; the second one makes none.
_ASSIGNORS: Final = (uniform.Uniform.name, assignors.External.name)


def plan_few_moves(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    change: subscription_metadata.MembershipChange,
    *,
    assignor: str,
) -> list[facts.Record] | None:
    """Compute changed targets incrementally; `None` if the assignor has to compute the whole target."""
    names = _shared_topics(group, change)
    if assignor not in _ASSIGNORS or names is None or not image.version:
        return None
    topics = [(topic.topic_id, topic.partition_count) for name in names if (topic := image.by_name.get(name))]
    if sum(count for _, count in topics) < settings.incremental_from_partitions:
        return None
    balance = _balance_after(group, change, topics)
    if balance is None:
        return None
    planned = plan_targets(
        balance,
        group.targets,
        max_moves=0 if assignor == assignors.External.name else settings.group_assignor_max_moves,
        imbalance=settings.group_assignor_imbalance,
    )
    if planned is None:
        return None
    records: list[facts.Record] = []
    if group.balance is None:
        # From now on `apply` keeps it up to date; until then it belongs to this decision alone.
        records.append(volatile.TargetBalanceKept(group_id=group.group_id, balance=balance))
    records += (
        facts.MemberTargetSet(group_id=group.group_id, member_id=member_id, partitions=target)
        for member_id, target in planned.items()
    )
    return records


def _shared_topics(group: ConsumerGroup, change: subscription_metadata.MembershipChange) -> tuple[str, ...] | None:
    """Return the topics of each member if all members' topics are equal, also before the change."""
    if len(group.subscriptions) != 1:
        return None
    names = next(iter(group.subscriptions))
    return names if all(topics == names for topics in change.topics.values()) else None


def _balance_after(
    group: ConsumerGroup, change: subscription_metadata.MembershipChange, topics: list[tuple[TopicId, int]]
) -> TargetBalance | None:
    """Return a copy of the balance after the change; `None` if it is not worth building."""
    balance = group.balance
    joined = [member_id for member_id in change.topics if member_id not in group.members]
    gone = [member_id for member_id in change.gone if member_id in group.members]
    if balance is None:
        staying = group.members.keys() - gone
        if not has_few_free(staying, group.targets, topics):
            return None
        balance = build_balance(group.members, group.targets, topics, group.metadata_hash)
        if balance is None:
            return None
    elif joined or gone:
        balance = balance.copy()
    for member_id in joined:
        balance.add_member(member_id)
    for member_id in gone:
        is_known = balance.remove_member(member_id, group.targets.get(member_id))
        assert is_known, "a balance knows every member"
    return balance


# Reaction of groups to changed topics: new group epochs. Patterns are resolved first, against the changed topics.
#
# Laws: a group whose subscribed topics are the same as when its epoch was set does not notice.
# Source: KIP-848 (metadata changes); Apache Kafka notices at a member's next heartbeat, kohort at once.


def decide_topics_changed(
    groups: GroupsState, command: commands.TopicsChanged, settings_for: Callable[[str], GroupSettings], *, now_ms: int
) -> Decision:
    """Raise the epochs of the groups that a change of topics concerns."""
    # Timers that are due now compute the targets, one timer per group, so that a change for many groups does not keep
    # other requests waiting.
    image = command.image
    records: list[facts.Record] = [facts.TopicImageReplaced(group_id="", image=image)]
    effects: list[Effect] = []
    changed = _changed_names(groups.image, image)
    # After a restart there is no older image to compare with: a topic that vanished meanwhile shows in the hash alone.
    is_first = not groups.image.version
    for group_id, group in groups.consumer.items():
        if not group.members:
            continue
        resolved = regex.resolve_again(group, image, changed, hides_unseen=command.hides_unseen, now_ms=now_ms)
        if group.sights:
            records += regex.find_outdated(group)
        if not is_first and not resolved and changed.isdisjoint(group.topic_subscribers):
            continue
        metadata_hash = hash_topics(image, regex.names_after(group, resolved) if resolved else group.topic_subscribers)
        if metadata_hash == group.metadata_hash and not resolved:
            # The first image after a restart: every topic looks new, few are.
            continue
        settings = settings_for(group_id)
        changed_records, armed = decide_change(
            group, image, settings, now_ms=now_ms, is_urgent=False, metadata_hash=metadata_hash
        )
        records += resolved
        records += changed_records
        effects += armed
    return Decision(tuple(records), tuple(effects))


def decide_pattern_sent(
    groups: GroupsState, command: commands.PatternSent, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Resolve a pattern to the topics that the member which has just sent it is allowed to see."""
    group = groups.consumer.get(command.group_id)
    found = None if group is None else regex.resolve_sent(group, command, groups.image, now_ms=now_ms)
    if group is None or found is None:
        return Decision((), ())
    note, resolved = found
    if resolved is None:
        return Decision((note,), ())
    metadata_hash = hash_topics(groups.image, regex.names_after(group, [resolved]))
    records, armed = decide_change(
        group, groups.image, settings, now_ms=now_ms, is_urgent=False, metadata_hash=metadata_hash
    )
    return Decision((note, resolved, *records), tuple(armed))


def _changed_names(before: TopicImage, after: TopicImage) -> set[str]:
    old, new = before.by_name, after.by_name
    # Nearly all are the same objects as before, which their comparison would find out field by field.
    changed = {name for name, topic in new.items() if (was := old.get(name)) is not topic and was != topic}
    changed.update(name for name in old if name not in new)
    return changed
