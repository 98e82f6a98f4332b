"""Conversion of groups between the classic protocol and KIP-848, in both directions, with members or without."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Final

from kohort.base.values import from_row, value
from kohort.coordinator.classic import join, pending_decision, rebalance, subscriptions
from kohort.coordinator.classic.state import NOT_REBALANCED, ClassicGroup, ClassicMember, MemberPut, build_stored_member
from kohort.coordinator.commands import ClassicMemberFacts, JoinGroup, JoinGroupReply
from kohort.coordinator.consumer import apply, tombstones, validation
from kohort.coordinator.consumer.assignment import batching_window, target
from kohort.coordinator.decision import Additions, Arm, Decision, Disarm, Effect, Reply, TimerKey, TimerKind
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import offline_ids
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId

# Conversion of a classic group with members to a KIP-848 group, when a KIP-848 member joins.
#
# Laws: the members stay with their partitions, at an epoch that they know as their generation. The tombstone of the old
# group and the records of the new one are one batch. Parked requests are answered: a JoinGroup with the member's
# present generation, since some clients take an error there as fatal; a SyncGroup with REBALANCE_IN_PROGRESS. A group
# that cannot be converted stays as it is, and only the join that asked for it is refused.
# Source: KIP-848 (online migration); Apache Kafka's `validateOnlineUpgrade`, `ConsumerGroup.fromClassicGroup`.

#: Error for a KIP-848 member that cannot join a classic group. Kafka's GROUP_ID_NOT_FOUND sends its reader to look for
#: a group that exists. This one is fatal to Java's client and to librdkafka's just the same, names the problem, and is
#: the error for a classic member that cannot join a KIP-848 group.
UPGRADE_REFUSED: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


#: Assignors whose user data in an assignment only repeats the assignment: librdkafka's cooperative-sticky writes it,
#: and Kafka refuses to convert such a group. No information is lost with it.
STICKY_ASSIGNORS: Final = frozenset({"sticky", "cooperative-sticky"})


@value
class Upgrade:
    """The conversion of a group to the consumer protocol; `group` is the group after it."""

    records: list[facts.Record]
    effects: list[Effect]
    group: ConsumerGroup


@value
class _Moved:
    """A classic member with its decoded subscription and assignment.

    `gone`: assigned partitions that no longer exist. `said_owned`: owned partitions in its last JoinGroup.
    """

    member: ClassicMember
    topics: tuple[str, ...]
    rack_id: str | None
    assigned: dict[TopicId, tuple[int, ...]]
    gone: dict[TopicId, tuple[int, ...]]
    said_owned: dict[TopicId, tuple[int, ...]]
    said_in_generation: int


def decide_upgrade(groups: GroupsState, classic: ClassicGroup, settings: GroupSettings, *, now_ms: int) -> Upgrade:
    """Convert a classic group with members to the consumer protocol.

    Raises:
        Refused: `UPGRADE_REFUSED` where policy, protocol type, size or the members' metadata forbid it.
    """
    _check_group(classic, settings)
    # In the order of their ids: records of a decision must not depend on the order of joining.
    moved = [_read_member(classic, classic.members[member_id], groups.image) for member_id in sorted(classic.members)]
    _check_disjoint(classic, moved)
    # A group whose first rebalance is not over has generation 0, and an epoch starts at 1 (KAFKA-20268).
    epoch = max(classic.generation, 1)
    granted_at = min(max(_generation_of_assignment(classic), 1), epoch)
    records = _build_records(classic, moved, groups.image, epoch=epoch, granted_at=granted_at)
    # In a static group these members stay offline until their next request.
    offline = offline_ids(groups, classic.group_id)
    records.extend(
        facts.MemberConnectionSeen(group_id=classic.group_id, member_id=member_id, is_gone=True)
        for member_id in sorted(offline & classic.members.keys())
    )
    # The group after the conversion is what the records say: the same functions apply them on recovery.
    scratch = GroupsState()
    for record in records:
        handler = apply.CONSUMER_RECORDS.get(type(record))
        if handler is not None:
            handler(scratch, record)
    return Upgrade(
        records=records,
        effects=_build_effects(classic, offline, epoch=epoch, now_ms=now_ms),
        group=scratch.consumer[classic.group_id],
    )


def _generation_of_assignment(classic: ClassicGroup) -> int:
    """Return the oldest generation with which a member may commit offsets of its assignment."""
    if classic.was_consumer_group:
        return 0
    # Until the leader has sent the assignment, all members have that of the generation before.
    return classic.generation if classic.stored is None else classic.stored.generation


def _check_group(classic: ClassicGroup, settings: GroupSettings) -> None:
    if not settings.can_upgrade:
        raise _refusal(
            classic,
            f"group.consumer.migration.policy is {settings.group_consumer_migration_policy}: use "
            "group.protocol=classic, or stop its members first",
        )
    # Kafka Connect and others have no topics that a coordinator could assign.
    if classic.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE:
        raise _refusal(
            classic, f"its members are no consumers but of the type {classic.protocol_type}: use another group id"
        )
    if len(classic.members) > settings.group_consumer_max_size:
        raise _refusal(
            classic,
            f"it has {len(classic.members)} members, and group.consumer.max.size is {settings.group_consumer_max_size}",
        )


def _read_member(classic: ClassicGroup, member: ClassicMember, image: TopicImage) -> _Moved:
    metadata = member.metadata(classic.protocol_name) or member.protocols[0][1]
    # A classic client may list its protocols with different subscriptions; the elected one counts.
    subscription = subscriptions.read_subscription(metadata)
    assignment = subscriptions.read_assignment(member.assignment)
    if subscription is None:
        raise _refusal(classic, f"the subscription of its member {member.member_id} cannot be read")
    try:
        validation.check_topics(subscription.topics)
    except Refused as why:
        raise _refusal(classic, f"of its member {member.member_id}, {why.message}") from None
    if assignment is None:
        raise _refusal(classic, f"the assignment of its member {member.member_id} cannot be read")
    # Data that the members' own assignor keeps would be lost with the next target.
    if assignment.has_user_data and classic.protocol_name not in STICKY_ASSIGNORS:
        raise _refusal(
            classic,
            f"its assignor {classic.protocol_name} keeps data of its own in the assignment of the member "
            f"{member.member_id}, which only the members' assignor can: use a built-in assignor first",
        )
    assigned, gone = _by_id(assignment.partitions, image)
    said_owned, said_gone = _by_id(subscription.owned, image)
    return _Moved(
        member=member,
        topics=subscription.topics,
        rack_id=subscription.rack_id,
        assigned=assigned,
        gone=gone,
        said_owned=said_owned | said_gone,
        said_in_generation=subscription.generation,
    )


def _by_id(
    partitions: subscriptions.NamedPartitions, image: TopicImage
) -> tuple[dict[TopicId, tuple[int, ...]], dict[TopicId, tuple[int, ...]]]:
    """Return the partitions that exist, and those of deleted topics, both by topic id."""
    found: dict[TopicId, tuple[int, ...]] = {}
    gone: dict[TopicId, tuple[int, ...]] = {}
    for name, numbers in partitions.items():
        topic = image.by_name.get(name)
        count = 0 if topic is None else topic.partition_count
        # A partition number beyond the topic's count belongs to a deleted topic of the same name.
        existing = tuple(sorted({number for number in numbers if 0 <= number < count}))
        if topic is not None and existing:
            found[topic.topic_id] = existing
        if len(existing) < len(numbers):
            gone[_id_of_gone(name)] = tuple(sorted(set(numbers) - set(existing)))
    return found, gone


def _id_of_gone(name: str) -> TopicId:
    """Build an artificial id for a deleted topic, whose partitions members have to revoke."""
    return TopicId(blake2b(f"gone {name}".encode(), digest_size=16).digest())


def _giving_up(classic: ClassicGroup, moved: list[_Moved]) -> dict[str, dict[TopicId, list[int]]]:
    """Return member id -> partitions that the member may still process, and so has to revoke."""
    # Apache Kafka takes these partitions for free.
    taken = {(topic_id, number) for each in moved for topic_id, numbers in each.assigned.items() for number in numbers}
    found: dict[str, dict[TopicId, list[int]]] = {}
    # KIP-792: of two members that list one partition, the one with the newer generation has it.
    for each in sorted(moved, key=lambda each: each.said_in_generation, reverse=True):
        # A deleted partition would be taken by name for that of a re-created topic. A listed one without an owner was
        # taken by the leader and given to no other yet, in the middle of a cooperative rebalance (KIP-429).
        for topic_id, numbers in (*each.gone.items(), *each.said_owned.items()):
            for number in numbers:
                if (topic_id, number) not in taken:
                    taken.add((topic_id, number))
                    found.setdefault(each.member.member_id, {}).setdefault(topic_id, []).append(number)
    for each in moved if classic.was_consumer_group else ():
        member_id = each.member.member_id
        if member_id not in classic.awaiting_join and member_id not in found:
            # The group was converted back before the member has joined: of a topic deleted just before the downgrade
            # only the id was known, which is in no assignment. Whatever that topic was, it is none of the member's own
            # any more.
            found[member_id] = {_id_of_gone(f"member {member_id}"): [0]}
    return found


def _check_disjoint(classic: ClassicGroup, moved: list[_Moved]) -> None:
    """Refuse a classic group with a partition assigned to two members, as no KIP-848 group may have."""
    owners: dict[tuple[TopicId, int], str] = {}
    for each in moved:
        for topic_id, partitions in each.assigned.items():
            for partition in partitions:
                other = owners.setdefault((topic_id, partition), each.member.member_id)
                if other != each.member.member_id:
                    raise _refusal(
                        classic,
                        f"its assignor {classic.protocol_name} gave one partition to both {other} and "
                        f"{each.member.member_id}",
                    )


def _refusal(classic: ClassicGroup, why: str) -> Refused:
    return Refused(
        UPGRADE_REFUSED,
        f"the group {classic.group_id} has members of the classic protocol and cannot be moved to the consumer "
        f"protocol: {why}",
    )


def _build_records(
    classic: ClassicGroup, moved: list[_Moved], image: TopicImage, *, epoch: int, granted_at: int
) -> list[facts.Record]:
    group_id = classic.group_id
    names = {name for each in moved for name in each.topics}
    records: list[facts.Record] = [
        facts.ClassicGroupForgotten(group_id=group_id),
        # A leader's assignment is not a target yet: one is computed even where the joining member changes nothing.
        facts.ConsumerGroupEpochSet(group_id=group_id, epoch=epoch + 1, metadata_hash=target.hash_topics(image, names)),
    ]
    # The conversion ends the open rebalance of a static group.
    if classic.due is not None:
        records.insert(0, facts.ClassicRebalanceDone(group_id=group_id))
    records.extend(_build_subscribed(group_id, each) for each in moved)
    records.extend(
        facts.MemberTargetSet(group_id=group_id, member_id=each.member.member_id, partitions=each.assigned)
        for each in moved
        if each.assigned
    )
    records.append(facts.TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch))
    pending = _giving_up(classic, moved)
    records.extend(
        facts.CurrentAssignmentSet(
            group_id=group_id,
            member_id=each.member.member_id,
            member_epoch=epoch,
            # Grants count from the generation of the assignment, so that a commit in its name is accepted.
            previous_member_epoch=granted_at,
            state=facts.MemberState.UNREVOKED_PARTITIONS
            if each.member.member_id in pending
            else facts.MemberState.STABLE,
            assigned={
                topic_id: dict.fromkeys(partitions, granted_at) for topic_id, partitions in each.assigned.items()
            },
            pending_revocation={
                topic_id: dict.fromkeys(partitions, granted_at)
                for topic_id, partitions in pending.get(each.member.member_id, {}).items()
            },
        )
        for each in moved
    )
    return records


def _build_subscribed(group_id: str, moved: _Moved) -> facts.ConsumerMemberSubscribed:
    member = moved.member
    return from_row(
        facts.ConsumerMemberSubscribed,
        member,
        group_id=group_id,
        rack_id=moved.rack_id,
        subscribed_topic_names=moved.topics,
        subscribed_topic_regex=None,
        server_assignor=None,
        classic=ClassicMemberFacts(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
    )


def _build_effects(classic: ClassicGroup, offline: frozenset[str], *, epoch: int, now_ms: int) -> list[Effect]:
    group_id = classic.group_id
    effects: list[Effect] = [
        # A target is due at once, as the leader's assignment is none (`_build_records`).
        Arm(batching_window.assignment_key(group_id), now_ms),
        Disarm(TimerKey("join", group_id)),
        Disarm(TimerKey("sync", group_id)),
        Disarm(TimerKey("initial_delay", group_id)),
    ]
    # A member that got an id joins with it, like any other.
    effects.extend(Disarm(TimerKey("pending", group_id, member_id)) for member_id in classic.pending)
    # A running session goes on, shortened if its connection was lost. An answered member has a whole one.
    answered = classic.awaiting_join.keys() | classic.awaiting_sync.keys()
    effects.extend(
        Arm(
            TimerKey("session", group_id, member.member_id),
            now_ms + member.session_timeout_ms,
            if_absent=member.member_id not in answered,
        )
        for member in classic.members.values()
        if member.member_id not in offline
    )
    effects.extend(rebalance.dismiss_pending_joins(classic))
    for member_id, request in classic.awaiting_join.items():
        member = classic.members[member_id]
        # Some clients take an error in a JoinGroup as fatal.
        effects.append(Reply(request, build_hosted_join_reply(member_id, member.protocols[0][0], generation_id=epoch)))
        effects.append(Arm(TimerKey("sync", group_id, member_id), now_ms + member.rebalance_timeout_ms))
    for member_id, request in classic.awaiting_sync.items():
        # The client joins again, and gets the KIP-848 group's assignment.
        effects.append(Reply(request, pending_decision.build_sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
        timeout_ms = classic.members[member_id].rebalance_timeout_ms
        effects.append(Arm(TimerKey("join", group_id, member_id), now_ms + timeout_ms))
    return effects


def build_hosted_join_reply(member_id: str, protocol_name: str, *, generation_id: int) -> JoinGroupReply:
    """Build the JoinGroup reply to a classic member of a KIP-848 group, which has no leader."""
    return JoinGroupReply(
        error=ErrorCode.NONE,
        generation_id=generation_id,
        protocol_type=subscriptions.CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol_name,
        member_id=member_id,
    )


# Conversion of a group id to the other type by the first member of the other protocol.
#
# A group with members is converted by upgrade.py.
#
# Laws: a group id is classic or KIP-848, never both; the tombstones of the one type and the records of the other are
# one batch. Committed offsets belong to the id and stay.
# Source: Apache Kafka: empty groups convert either way under every migration policy.


def decide_convert_to_consumer(groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Upgrade:
    """Decide the replacement of a classic group, if there is one, by a KIP-848 group.

    Raises:
        Refused: the classic group has members and cannot be converted.
    """
    classic = groups.classic.get(group_id)
    if classic is None:
        return Upgrade(records=[], effects=[], group=ConsumerGroup(group_id))
    if not classic.members:
        return Upgrade(
            records=[facts.ClassicGroupForgotten(group_id=group_id)], effects=[], group=ConsumerGroup(group_id)
        )
    return decide_upgrade(groups, classic, settings, now_ms=now_ms)


# Conversion of a KIP-848 group with only classic members left to a classic group.
#
# Laws: the tombstones of the old group and the record of the new one are one batch. The members stay. A rebalance
# begins at once, because the partitions of the others have to be assigned; after a restart in its midst it begins
# again. Until the members rejoin, they commit with the epochs that they know, so that a clean hand-over loses no
# commit.
# Source: KIP-848 (online migration); Apache Kafka's `validateOnlineDowngrade`, `ClassicGroup.fromConsumerGroup`.

_MEMBER_TIMERS: Final[tuple[TimerKind, ...]] = ("session", "rebalance", "join", "sync")


def can_downgrade(group: ConsumerGroup, gone: Collection[str], settings: GroupSettings) -> bool:
    """Return whether the group has to become classic once the members in `gone` are removed."""
    left = len(group.members) - len(gone)
    gone_classic = sum(group.members[member_id].classic is not None for member_id in gone)
    return (
        left > 0
        and group.classic_count - gone_classic == left
        and settings.can_downgrade
        and left <= settings.group_max_size
    )


def decide_downgrade(
    groups: GroupsState, group: ConsumerGroup, gone: Sequence[str], settings: GroupSettings, *, now_ms: int, reason: str
) -> tuple[Decision, ClassicGroup] | None:
    """Make the group classic, without the members in `gone`.

    Returns:
        The decision, and the classic group after it; `None` if the remaining members have no common protocol, which
        the checks at their joins rule out.
    """
    assert can_downgrade(group, gone, settings)
    pending = pending_decision.PendingDecision(None, group.group_id, now_ms=now_ms, known=groups)
    members = [
        _build_member(left, left.classic, groups.image)
        for member_id in sorted(group.members.keys() - set(gone))
        if (left := group.members[member_id]).classic is not None
    ]
    protocol_name = _elect(group.group_id, members, now_ms=now_ms)
    if protocol_name is None:
        return None
    pending.record(_build_stored(group, members, protocol_name))
    for member in members:
        # The record keeps one protocol of each member; the coming vote needs them all.
        pending.record(
            MemberPut(group_id=group.group_id, protocol_type=subscriptions.CONSUMER_PROTOCOL_TYPE, member=member)
        )
        if not pending.is_offline(member.member_id):
            pending.arm("session", member.session_timeout_ms, member.member_id)
    rebalance.begin_rebalance(pending, settings, reason=reason)
    begun = pending.decision()
    records, effects = build_end(group)
    return Decision((*records, *begun.records), (*effects, *begun.effects)), pending.group


def is_last_of_its_kind(group: ConsumerGroup, member: ConsumerMember, settings: GroupSettings) -> bool:
    """Return whether the group has to become classic once a classic member replaces `member`."""
    others = len(group.members) - 1
    return (
        member.classic is None
        and group.classic_count == others
        and settings.can_downgrade
        and len(group.members) <= settings.group_max_size
    )


def decide_succession(
    groups: GroupsState,
    group: ConsumerGroup,
    former: ConsumerMember,
    command: JoinGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
) -> Decision:
    """Let a classic member replace the last static member of the consumer protocol.

    Raises:
        Refused: the refusals of a classic group.
    """
    gone = [former.member_id]
    if can_downgrade(group, gone, settings):
        reason = f"the member {former.member_id} was replaced by one of the classic protocol"
        found = decide_downgrade(groups, group, gone, settings, now_ms=now_ms, reason=reason)
        assert found is not None, "who joins has a protocol in common with all others"
        ended, classic = found
        joined = join.decide_join(classic, command, settings, now_ms=now_ms, image=groups.image, groups=groups)
    else:
        records, effects = build_end(group)
        ended = Decision(tuple(records), tuple(effects))
        joined = join.decide_join(None, command, settings, now_ms=now_ms, groups=groups)
    return Decision((*ended.records, *joined.records), (*ended.effects, *joined.effects))


def build_end(group: ConsumerGroup) -> Additions:
    """Build the tombstones of a KIP-848 group and its members, and remove their timers."""
    group_id = group.group_id
    effects: list[Effect] = [Disarm(batching_window.assignment_key(group_id))]
    for member_id in sorted(group.members):
        effects.extend(Disarm(TimerKey(kind, group_id, member_id)) for kind in _MEMBER_TIMERS)
    return tombstones.build_group_tombstones(group), effects


def _build_member(member: ConsumerMember, classic: ClassicMemberFacts, image: TopicImage) -> ClassicMember:
    # A member owns its pending revocations, too.
    held: dict[str, list[int]] = {}
    for grants in (member.assigned, member.pending_revocation):
        for topic_id, partitions in grants.items():
            topic = image.by_id.get(topic_id)
            if topic is not None:
                held.setdefault(topic.name, []).extend(partitions)
    return from_row(
        ClassicMember,
        member,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
        assignment=subscriptions.write_assignment(
            {name: sorted(held[name]) for name in sorted(held)}, subscription=classic.protocols[0][1]
        ),
    )


def _elect(group_id: str, members: Sequence[ClassicMember], *, now_ms: int) -> str | None:
    """Elect the protocol by the members' votes; `None` if they have no common one."""
    common = set.intersection(*(set(member.protocol_names) for member in members))
    if not common:
        return None
    ballot = ClassicGroup(group_id)
    pending = pending_decision.PendingDecision(ballot, group_id, now_ms=now_ms)
    for member in members:
        pending.record(MemberPut(group_id=group_id, protocol_type=subscriptions.CONSUMER_PROTOCOL_TYPE, member=member))
    return pending.group.elect_protocol()


def _build_stored(
    group: ConsumerGroup, members: Sequence[ClassicMember], protocol_name: str
) -> facts.ClassicGroupStored:
    return facts.ClassicGroupStored(
        group_id=group.group_id,
        protocol_type=subscriptions.CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol_name=protocol_name,
        leader=members[0].member_id,
        state_timestamp_ms=NOT_REBALANCED,
        members=tuple(build_stored_member(member, protocol_name) for member in members),
    )
