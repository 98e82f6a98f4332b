"""OffsetCommit: validation of commits, and their records.

Laws: while one member of a KIP-848 group has a partition, no other member's commit of it is accepted, whatever its
epoch. Refused partitions do not hold up the others of the request.
Source: KIP-848 and KIP-1251 (commits are fenced by the epoch at which a partition was granted); Apache Kafka's
`ConsumerGroup.validateOffsetCommit`. Kafka refuses the whole request for one old partition, and does not check the
owner of a partition where the epoch is current: the old owner of a partition released on its own could overwrite the
new owner's commit.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.classic.commits import check_commit, decide_sign, former_share
from kohort.coordinator.commands.offsets import CommitOffsets, CommitOffsetsReply, OffsetToCommit
from kohort.coordinator.consumer.classicmembers import check_generation
from kohort.coordinator.consumer.static import bearer_of
from kohort.coordinator.decision import Arm, Decision, Reply
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import OffsetCommitted
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

_INT64_MAX: Final = 2**63 - 1


def decide_commit(groups: GroupsState, command: CommitOffsets, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Store offsets, with one code per partition; raises `Refused` for the whole request."""
    group = groups.consumer.get(command.group_id)
    member = None if group is None else check_consumer_member(group, command)
    sign = Decision()
    if member is not None and member.classic is not None:
        # A commit is a sign of life of a classic member.
        sign = Decision(effects=(Arm(member.session_key, now_ms + member.classic.session_timeout_ms),))
    if group is None:
        sign = _check_other_group(groups, command, now_ms=now_ms)
    records, errors = examine_partitions(groups, command, settings, member=member, now_ms=now_ms)
    reply = Reply(command.request, CommitOffsetsReply(errors=tuple(errors)))
    return Decision((*sign.records, *records), (reply, *sign.effects))


def examine_partitions(
    groups: GroupsState, command: CommitOffsets, settings: GroupSettings, *, member: ConsumerMember | None, now_ms: int
) -> tuple[list[OffsetCommitted], list[ErrorCode]]:
    """Build the records to store, and one code per partition; `member`: the owner to check."""
    group, classic = groups.consumer.get(command.group_id), groups.classic.get(command.group_id)
    # A former KIP-848 group's members commit with its epochs until they have rejoined.
    share = None if classic is None else former_share(classic, command)
    expire_ms = _expire_timestamp_ms(command, now_ms=now_ms)
    records: list[OffsetCommitted] = []
    errors: list[ErrorCode] = []
    for offset in command.offsets:
        # The API layer found no name for the id.
        if not offset.topic and offset.topic_id != ZERO_TOPIC_ID:
            errors.append(_unknown_id(group, offset.topic_id))
            continue
        topic_id, error = _check_partition(groups.image, offset, settings)
        if error == ErrorCode.NONE and group is not None and member is not None:
            place = topic_id, TopicPartition(offset.topic, offset.partition)
            error = _check_grant(group, member, place, command.generation_or_member_epoch)
        # The member had revoked the partition in the former KIP-848 group: another member may have committed since.
        elif error == ErrorCode.NONE and share is not None and offset.partition not in share.get(offset.topic, ()):
            error = ErrorCode.REBALANCE_IN_PROGRESS
        errors.append(error)
        if error == ErrorCode.NONE:
            records.append(
                _build_record(command.group_id, offset, topic_id=topic_id, now_ms=now_ms, expire_ms=expire_ms)
            )
    return records, errors


def _unknown_id(group: ConsumerGroup | None, topic_id: TopicId) -> ErrorCode:
    """Return the code for an unknown topic id: a topic deleted while the group consumed it, or none ever.

    Kafka returns UNKNOWN_TOPIC_ID for both. The Java consumer takes that for outdated metadata, and repeats the commit
    before it revokes the partition until its max.poll.interval is over; it accepts at once that a topic is deleted.
    """
    is_deleted = group is not None and topic_id in group.holders
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.UNKNOWN_TOPIC_ID


def check_consumer_member(group: ConsumerGroup, command: CommitOffsets) -> ConsumerMember | None:
    """Return the member that commits, `None` for an administrator's commit to an empty group."""
    epoch = command.generation_or_member_epoch
    # An empty group has no owner that a commit could harm.
    if epoch < 0 and not group.members:
        return None
    # KIP-345: a member that lost its instance id to another process is fenced, and does not merely join again.
    bearer_of(group, command.instance_id, command.member_id)
    member = group.members.get(command.member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the member {command.member_id} is not in the group")
    if member.classic is not None:
        # A classic member knows generations, each an epoch that it was told.
        check_generation(member, epoch)
        return member
    # An older version could not tell the member a stale epoch.
    if not command.is_member_epoch_aware:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION, "a member of the consumer protocol commits with OffsetCommit 9 or above"
        )
    if epoch < 0 or epoch > member.member_epoch:
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH, f"the commit's epoch is {epoch}, and the member's is {member.member_epoch}"
        )
    return member


def _check_other_group(groups: GroupsState, command: CommitOffsets, *, now_ms: int) -> Decision:
    """Check a commit to a classic group, a simple one or one that does not exist yet."""
    classic = groups.classic.get(command.group_id)
    if classic is not None:
        check_commit(classic, command)
        return decide_sign(classic, command, now_ms=now_ms, groups=groups)
    if command.generation_or_member_epoch < 0:
        # A simple consumer or an administrator; its offsets make the group.
        return Decision()
    if command.is_member_epoch_aware:
        # Kafka returns GROUP_ID_NOT_FOUND; a member whose group was lost has to rejoin, not to give up.
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the group {command.group_id} has no members")
    raise Refused(ErrorCode.ILLEGAL_GENERATION, f"the group {command.group_id} has no members")


def _check_partition(image: TopicImage, offset: OffsetToCommit, settings: GroupSettings) -> tuple[TopicId, ErrorCode]:
    """Return the topic's id if known, and whether the partition exists and the metadata is short enough."""
    topic_id = offset.topic_id
    # Before the first topic image nothing is known of topics, and a commit must not fail for that.
    if image.version:
        facts = image.by_name.get(offset.topic)
        if facts is None or not 0 <= offset.partition < facts.partition_count:
            return topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_id not in (ZERO_TOPIC_ID, facts.topic_id):
            return topic_id, ErrorCode.UNKNOWN_TOPIC_ID
        # An older client sends no topic id; the record keeps the present one.
        topic_id = facts.topic_id
    if len(offset.metadata.encode("utf-8", "surrogatepass")) > settings.offset_metadata_max_bytes:
        return topic_id, ErrorCode.OFFSET_METADATA_TOO_LARGE
    return topic_id, ErrorCode.NONE


def _check_grant(
    group: ConsumerGroup, member: ConsumerMember, place: tuple[TopicId, TopicPartition], epoch: int
) -> ErrorCode:
    """Check whether a member may commit a partition with an epoch."""
    topic_id, (topic, partition) = place
    # A member that newer epochs did not concern may have revoked a partition before them, and others are about to take
    # it.
    is_left_alone = member.member_epoch != group.target_epoch and member.member_id not in group.behind
    if epoch == member.member_epoch and not (is_left_alone and any(topic in each for each in group.subscriptions)):
        # KIP-848: with the current epoch the member knows its assignment, so only another owner forbids the commit.
        holder = group.holders.get(topic_id, {}).get(partition, member.member_id)
        is_allowed = holder == member.member_id
    else:
        # KIP-1251: an older epoch is enough for a partition that was granted at it or before.
        granted_at = _granted_at(member, topic_id, partition)
        is_allowed = granted_at is not None and epoch >= granted_at
    if is_allowed:
        return ErrorCode.NONE
    # ILLEGAL_GENERATION would cost a classic member all its partitions; this code makes it rejoin and learn its lost
    # ones.
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.REBALANCE_IN_PROGRESS


def _granted_at(member: ConsumerMember, topic_id: TopicId, partition: int) -> int | None:
    """Return the epoch of a partition's grant to the member, also if it is to be revoked; `None`: none."""
    for grants in (member.assigned, member.pending_revocation):
        granted_at = grants.get(topic_id, {}).get(partition)
        if granted_at is not None:
            return granted_at
    return None


def _expire_timestamp_ms(command: CommitOffsets, *, now_ms: int) -> int:
    """Return the expiry time of offsets with a retention of their own, ms; -1 without one."""
    return -1 if command.retention_ms < 0 else min(now_ms + command.retention_ms, _INT64_MAX)


def _build_record(
    group_id: str, offset: OffsetToCommit, *, topic_id: TopicId, now_ms: int, expire_ms: int
) -> OffsetCommitted:
    return OffsetCommitted(
        group_id=group_id,
        topic=offset.topic,
        partition=offset.partition,
        offset=offset.offset,
        # Kafka's format of an offset with an expiry has no field for the two.
        leader_epoch=offset.leader_epoch if expire_ms == -1 else -1,
        metadata=offset.metadata,
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id if expire_ms == -1 else ZERO_TOPIC_ID,
    )
