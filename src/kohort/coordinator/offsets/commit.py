"""Committed offsets: OffsetCommit, commits in a transaction, OffsetFetch, and their records.

Laws: while a member of a KIP-848 group owns a partition, no other member's commit of it is accepted, with any epoch.
Refused partitions do not affect the other partitions of the request.
Source: KIP-848 and KIP-1251 (commits are fenced by the epoch at which a partition was assigned); Apache Kafka's
`ConsumerGroup.validateOffsetCommit`. Kafka refuses the whole request for one old partition, and with a current epoch
it does not check the owner: the old owner of a released partition could overwrite the new owner's commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kohort.coordinator import commands
from kohort.coordinator.classic.validation import check_commit, decide_sign, former_share
from kohort.coordinator.commands import (
    CommitOffsetsReply,
    CommittedOffset,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    Done,
    FetchOffsetsReply,
    Partitions,
    Refusal,
)
from kohort.coordinator.consumer.classicmembers import check_generation
from kohort.coordinator.consumer.heartbeat import decide_member
from kohort.coordinator.consumer.static import bearer_of
from kohort.coordinator.decision import Arm, Decision, Effect, Reply
from kohort.coordinator.delayed_heartbeats import MemberHeard, without_life
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState, OpenTransaction
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import OffsetCommitted, TransactionalOffsetCommitted, TransactionCompleted
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import is_offline
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

_INT64_MAX: Final = 2**63 - 1


def decide_commit(
    groups: GroupsState, command: commands.CommitOffsets, settings: GroupSettings, *, now_ms: int
) -> Decision:
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
    released: Partitions = {}
    if command.released is not None and member is not None:
        released = _find_released(groups, command, member, errors)
    if not released:
        reply = Reply(command.request, CommitOffsetsReply(errors=tuple(errors)))
        return Decision((*sign.records, *records), (reply, *sign.effects))
    assert member is not None, "a member has released them"
    # The commit comes first: the next owner begins behind it.
    step, news = _decide_release(groups, command, settings, member=member, released=released, now_ms=now_ms)
    reply = Reply(command.request, CommitOffsetsReply(errors=tuple(errors), news=news))
    return Decision((*records, *step.records), (reply, *step.effects))


def examine_partitions(
    groups: GroupsState,
    command: commands.CommitOffsets,
    settings: GroupSettings,
    *,
    member: ConsumerMember | None,
    now_ms: int,
) -> tuple[list[OffsetCommitted], list[ErrorCode]]:
    """Build the records to store, and one code per partition; `member`: the owner to check."""
    group, classic = groups.consumer.get(command.group_id), groups.classic.get(command.group_id)
    # A former KIP-848 group's members commit with its epochs until they have rejoined.
    share = None if classic is None else former_share(classic, command)
    # Offsets without a retention of their own have no time of expiry.
    expire_ms = -1 if command.retention_ms < 0 else min(now_ms + command.retention_ms, _INT64_MAX)
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
            error = _check_grant(group, member, place, command)
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
    """Return the error code for an unknown topic id: for a deleted topic of the group, or any other."""
    # Kafka returns UNKNOWN_TOPIC_ID for both. The Java consumer takes that for outdated metadata, and repeats the
    # commit before it revokes the partition until its max.poll.interval is over; it accepts at once that a topic is
    # deleted.
    is_deleted = group is not None and topic_id in group.holders
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.UNKNOWN_TOPIC_ID


def check_consumer_member(group: ConsumerGroup, command: commands.CommitOffsets) -> ConsumerMember | None:
    """Return the member that commits, `None` for an administrator's commit to an empty group."""
    epoch = command.generation_or_member_epoch
    # An empty group has no owner that a commit could harm.
    if epoch < 0 and not group.members:
        return None
    # KIP-345: a member that lost its instance id to another process is fenced, and does not merely join again.
    if command.instance_id is not None:
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


def _check_other_group(groups: GroupsState, command: commands.CommitOffsets, *, now_ms: int) -> Decision:
    """Check a commit to a classic group, to one without members, or to one that does not exist yet."""
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


def _check_partition(
    image: TopicImage, offset: commands.OffsetToCommit, settings: GroupSettings
) -> tuple[TopicId, ErrorCode]:
    """Return the topic's id if known, and an error code if partition or metadata are invalid."""
    topic_id = offset.topic_id
    # Before the first topic image nothing is known of topics, and a commit must not fail for that.
    if image.version:
        topic = image.by_name.get(offset.topic)
        if topic is None or not 0 <= offset.partition < topic.partition_count:
            return topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_id not in (ZERO_TOPIC_ID, topic.topic_id):
            return topic_id, ErrorCode.UNKNOWN_TOPIC_ID
        # An older client sends no topic id; the record keeps the present one.
        topic_id = topic.topic_id
    if len(offset.metadata.encode("utf-8", "surrogatepass")) > settings.offset_metadata_max_bytes:
        return topic_id, ErrorCode.OFFSET_METADATA_TOO_LARGE
    return topic_id, ErrorCode.NONE


def _check_grant(
    group: ConsumerGroup, member: ConsumerMember, place: tuple[TopicId, TopicPartition], command: commands.CommitOffsets
) -> ErrorCode:
    """Check whether a member may commit a partition with the commit's epoch."""
    topic_id, (topic, partition) = place
    epoch = command.generation_or_member_epoch
    # A member that newer epochs did not concern may have revoked a partition before them, and others are about to take
    # it.
    is_left_alone = member.member_epoch != group.target_epoch and member.member_id not in group.behind
    if epoch == member.member_epoch and not (is_left_alone and any(topic in each for each in group.subscriptions)):
        # KIP-848: with the current epoch the member knows its assignment, so only another owner forbids the commit.
        # users@kafka 2014-07: commits are taken to the acknowledgement, and not until the next owner comes.
        unheld = None if command.shows_grant else member.member_id
        is_allowed = group.holders.get(topic_id, {}).get(partition, unheld) == member.member_id
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
    """Return the epoch at which a member was assigned a partition, maybe now pending revocation, or `None`."""
    for grants in (member.assigned, member.pending_revocation):
        granted_at = grants.get(topic_id, {}).get(partition)
        if granted_at is not None:
            return granted_at
    return None


def _build_record(
    group_id: str, offset: commands.OffsetToCommit, *, topic_id: TopicId, now_ms: int, expire_ms: int
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


# Partitions that a member releases with its last commit of them: the commit and the release are one decision.
#
# Laws: what is not committed is not released: a refused commit leaves its partitions with the member. A release counts
# for the grant that the member knows, so that a commit that comes late, or twice, takes nothing of a later grant.
# Source: users@kafka 2014-07-16 (PartitionCommittedNotification); requirement H10.


def _find_released(
    groups: GroupsState, command: commands.CommitOffsets, member: ConsumerMember, errors: list[ErrorCode]
) -> Partitions:
    """Return the member's partitions that the commit releases, without those whose commit is refused."""
    assert command.released is not None, "only such a commit releases any"
    # A classic member gives up its partitions when it rejoins; an offline one is back with its next heartbeat.
    is_away = bool(groups.clocks) and is_offline(groups, command.group_id, member.member_id)
    if member.classic is not None or is_away:
        return {}
    refused: set[tuple[TopicId, int]] = set()
    for offset, error in zip(command.offsets, errors, strict=True):
        if error != ErrorCode.NONE:
            topic = groups.image.by_name.get(offset.topic)
            refused.add((offset.topic_id, offset.partition))
            if topic is not None:
                refused.add((topic.topic_id, offset.partition))
    found: Partitions = {}
    for topic_id, partitions in command.released.items():
        given_up = []
        for partition in partitions:
            granted_at = _granted_at(member, topic_id, partition)
            is_meant = granted_at is not None and granted_at <= command.generation_or_member_epoch
            if is_meant and (topic_id, partition) not in refused:
                given_up.append(partition)
        if given_up:
            found[topic_id] = tuple(given_up)
    return found


def _decide_release(
    groups: GroupsState,
    command: commands.CommitOffsets,
    settings: GroupSettings,
    *,
    member: ConsumerMember,
    released: Partitions,
    now_ms: int,
) -> tuple[Decision, ConsumerGroupHeartbeatReply | None]:
    """Reconcile the member after it has released partitions; return also the news for it, if any."""
    heartbeat = ConsumerGroupHeartbeat(
        cause=command.cause,
        request=command.request,
        group_id=command.group_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        tells_all=True,
        is_aside=True,
        released=released,
    )
    try:
        decision = decide_member(groups, heartbeat, settings, now_ms=now_ms)
    except Refused:
        # The commit stands by itself: the refusal is for the member's next heartbeat.
        return Decision(), None
    # As with all that is no heartbeat: it tells nothing of their connection, and prolongs no session.
    records = [each for each in decision.records if not isinstance(each, facts.MemberConnectionSeen)]
    body = next(each.body for each in decision.effects if isinstance(each, Reply) and each.request == command.request)
    assert isinstance(body, ConsumerGroupHeartbeatReply), "a refusal is raised"
    assigned = {topic_id: tuple(sorted(grants)) for topic_id, grants in member.assigned.items()}
    has_news = (body.member_epoch, body.assignment) != (command.generation_or_member_epoch, assigned)
    if has_news:
        # The answer to the commit may be lost: a heartbeat at the former epoch is told the same.
        epoch = command.generation_or_member_epoch
        records.append(MemberHeard(group_id=command.group_id, member_id=member.member_id, epoch=epoch, is_behind=True))
    others = (each for each in decision.effects if not (isinstance(each, Reply) and each.request == command.request))
    return Decision(tuple(records), without_life(tuple(others))), body if has_news else None


# Offset commits within a producer's transaction, kept aside until its marker.
#
# Laws: no offset of a transaction is served before it is committed, and none of an aborted one ever. The membership is
# checked when the request comes, as with any commit; the marker is not checked. A replaced epoch of a producer writes
# nothing more.
# Source: KIP-98, KIP-447 (the consumer's identity fences it), KIP-1251, KIP-1319; Apache Kafka's
# `OffsetMetadataManager.validateTransactionalOffsetCommit`.


def decide_commit_in_transaction(
    groups: GroupsState, command: commands.CommitTransactionOffsets, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Store pending offsets of a producer's transaction, with one code per partition.

    Raises:
        Refused: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH; UNKNOWN_MEMBER_ID,
            FENCED_INSTANCE_ID, ILLEGAL_GENERATION and, from version 6 on, STALE_MEMBER_EPOCH.
    """
    _check_producer(groups, command)
    try:
        member, effects = _check_consumer(groups, command, now_ms=now_ms)
    except Refused as refused:
        raise Refused(_code(refused.code, command), refused.message) from None
    commits, errors = examine_partitions(groups, command, settings, member=member, now_ms=now_ms)
    records = tuple(
        TransactionalOffsetCommitted(
            group_id=command.group_id,
            producer_id=command.producer_id,
            producer_epoch=command.producer_epoch,
            commit=commit,
        )
        for commit in commits
    )
    reply = CommitOffsetsReply(errors=tuple(_code(error, command) for error in errors))
    return Decision(records, (Reply(command.request, reply), *effects))


def decide_complete(groups: GroupsState, command: commands.CompleteTransaction) -> Decision:
    """Write the marker of a transaction that is open here."""
    # A transaction that is not open was completed before, or has no offsets here.
    transaction = groups.transactions.get(command.producer_id)
    if transaction is None:
        return Decision(effects=(Reply(command.request, Done()),))
    if command.producer_epoch < transaction.producer_epoch:
        message = f"producer {command.producer_id} is at epoch {transaction.producer_epoch}"
        refusal = Refusal(code=ErrorCode.INVALID_PRODUCER_EPOCH, message=message)
        return Decision(effects=(Reply(command.request, refusal),))
    marker = TransactionCompleted(
        group_id="",
        producer_id=command.producer_id,
        producer_epoch=command.producer_epoch,
        is_commit=command.is_commit,
        coordinator_epoch=command.coordinator_epoch,
    )
    return Decision((marker,), (Reply(command.request, Done()),))


def _check_producer(groups: GroupsState, command: commands.CommitTransactionOffsets) -> None:
    if command.producer_id < 0 or command.producer_epoch < 0:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"there is no producer {command.producer_id} at epoch {command.producer_epoch}: InitProducerId gives one",
        )
    transaction = groups.transactions.get(command.producer_id)
    if transaction is not None and command.producer_epoch < transaction.producer_epoch:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {command.producer_id} is at epoch {transaction.producer_epoch}: it was started elsewhere",
        )


def _check_consumer(
    groups: GroupsState, command: commands.CommitTransactionOffsets, *, now_ms: int
) -> tuple[ConsumerMember | None, tuple[Effect, ...]]:
    """Return the KIP-848 member that commits, if any, and the effects on a classic member's session."""
    generation = command.generation_or_member_epoch
    if generation < 0 and not command.member_id and command.instance_id is None:
        return None, ()
    consumer, classic = groups.consumer.get(command.group_id), groups.classic.get(command.group_id)
    if consumer is not None:
        return check_consumer_member(consumer, command), ()
    if classic is None and generation < 0:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the group {command.group_id} has no members")
    check_commit(classic, command)
    # A batch of a transaction has no other records: an offline member is back with its next heartbeat.
    return None, decide_sign(classic, command, now_ms=now_ms).effects


def _code(code: ErrorCode, command: commands.CommitTransactionOffsets) -> ErrorCode:
    """Return the code for the client; producers before KIP-1319 get ILLEGAL_GENERATION for a stale epoch."""
    is_translated = code == ErrorCode.STALE_MEMBER_EPOCH and not command.is_stale_epoch_aware
    return ErrorCode.ILLEGAL_GENERATION if is_translated else code


# OffsetFetch: committed offsets.
#
# Laws: a member whose group or membership is gone gets an error; "nothing committed" would send it to
# auto.offset.reset. A request for stable offsets gets none that an open transaction may replace (KIP-447).
# Source: KIP-848; Apache Kafka's `OffsetMetadataManager.fetchOffsets`. The previous epoch is accepted, too: the
# response with the current one may still be on its way (KAFKA-20765).


def decide_fetch(groups: GroupsState, command: commands.FetchOffsets) -> Decision:
    """Look up committed offsets; raises `Refused` if the membership does not match."""
    _check_member(groups, command)
    topics = groups.offsets.get(command.group_id, {})
    pending = groups.pending_offsets.get(command.group_id, {}) if command.require_stable else {}
    if command.partitions is None and not pending:
        offsets = tuple(_everything(topics, groups.image))
    else:
        wanted = command.partitions
        if wanted is None:
            known = {(topic, partition) for topic, partitions in topics.items() for partition in partitions}
            wanted = tuple(sorted(known.union(pending)))
        offsets = tuple(
            _unstable(topic, partition, groups.image)
            if (topic, partition) in pending
            else _committed(topic, partition, topics.get(topic, {}).get(partition), _known_id(topic, groups.image))
            for topic, partition in wanted
        )
    return Decision(effects=(Reply(command.request, FetchOffsetsReply(offsets=offsets)),))


def _check_member(groups: GroupsState, command: commands.FetchOffsets) -> None:
    member_id, epoch = command.member_id, command.member_epoch
    if (not member_id and epoch < 0) or command.group_id in groups.classic:
        return
    group = groups.consumer.get(command.group_id)
    member = None if group is None or member_id is None else group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the member {member_id} is not in the group {command.group_id}")
    if epoch not in (member.member_epoch, member.previous_member_epoch):
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH, f"the request's epoch is {epoch}, and the member's is {member.member_epoch}"
        )


def _everything(topics: Mapping[str, Mapping[int, OffsetCommitted]], image: TopicImage) -> Iterator[CommittedOffset]:
    for topic, partitions in sorted(topics.items()):
        topic_id = _known_id(topic, image)
        for partition in sorted(partitions):
            yield _committed(topic, partition, partitions[partition], topic_id)


def _unstable(topic: str, partition: int, image: TopicImage) -> CommittedOffset:
    """Build the row of an offset with a pending transactional commit; the client repeats the request."""
    nothing = _committed(topic, partition, None, _known_id(topic, image))
    return nothing._replace(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _known_id(topic: str, image: TopicImage) -> TopicId:
    known_topic = image.by_name.get(topic)
    return ZERO_TOPIC_ID if known_topic is None else known_topic.topic_id


def _committed(topic: str, partition: int, found: OffsetCommitted | None, known_id: TopicId) -> CommittedOffset:
    """Build the row of a committed offset; `known_id`: id of the topic that now has this name."""
    if found is None:
        return CommittedOffset(topic, known_id, partition, -1, -1, "")
    topic_id = known_id if found.topic_id == ZERO_TOPIC_ID else found.topic_id
    return CommittedOffset(topic, topic_id, partition, found.offset, found.leader_epoch, found.metadata)


# Changes of committed offsets by records: live decisions and recovery both come here.
#
# Laws: the order of the log decides. A commit of a transaction takes effect with its marker, unless a later commit in
# the log is in effect already.
# Source: Apache Kafka's `OffsetMetadataManager.replay` and `replayEndTransactionMarker`.


def apply_offset_committed(groups: GroupsState, record: OffsetCommitted) -> None:
    """Set a committed offset (type 1)."""
    topics = groups.offsets.setdefault(record.group_id, {})
    topics.setdefault(record.topic, {})[record.partition] = record
    if groups.pending_offsets:
        _supersede(groups, record)


def apply_transactional_offset_committed(groups: GroupsState, record: TransactionalOffsetCommitted) -> None:
    """Store a pending commit until its transaction's marker (type 1 in a transactional batch)."""
    commit, producer_id = record.commit, record.producer_id
    partitions = groups.pending_offsets.setdefault(record.group_id, {})
    claims = partitions.setdefault((commit.topic, commit.partition), {})
    claims.pop(producer_id, None)
    claims[producer_id] = commit
    transaction = groups.transactions.setdefault(producer_id, OpenTransaction(record.producer_epoch))
    transaction.producer_epoch = record.producer_epoch
    transaction.group_ids[record.group_id] = None


def apply_transaction_completed(groups: GroupsState, record: TransactionCompleted) -> None:
    """End a transaction by its marker; no effect if the transaction is not open in this shard."""
    transaction = groups.transactions.pop(record.producer_id, None)
    if transaction is None:
        return
    for group_id in transaction.group_ids:
        partitions = groups.pending_offsets.get(group_id, {})
        for place in [place for place, claims in partitions.items() if record.producer_id in claims]:
            _settle(groups, group_id, place, record)


def apply_offset_forgotten(groups: GroupsState, record: facts.OffsetForgotten) -> None:
    """Remove a committed offset, and earlier commits of open transactions (tombstone of type 1)."""
    _drop_claims(groups, record.group_id, (record.topic, record.partition))
    topics = groups.offsets.get(record.group_id)
    partitions = None if topics is None else topics.get(record.topic)
    if topics is None or partitions is None:
        return
    partitions.pop(record.partition, None)
    if not partitions:
        del topics[record.topic]
    if not topics:
        del groups.offsets[record.group_id]


def _supersede(groups: GroupsState, record: OffsetCommitted) -> None:
    """Cancel older pending transactional commits of a partition, because a newer commit is in effect."""
    claims = groups.pending_offsets.get(record.group_id, {}).get((record.topic, record.partition))
    for producer_id in claims or ():
        assert claims is not None
        claims[producer_id] = None


def _settle(groups: GroupsState, group_id: str, place: tuple[str, int], record: TransactionCompleted) -> None:
    claims = groups.pending_offsets[group_id][place]
    commit = claims[record.producer_id]
    if record.is_commit and commit is not None:
        groups.offsets.setdefault(group_id, {}).setdefault(commit.topic, {})[commit.partition] = commit
        for producer_id in claims:
            if producer_id == record.producer_id:
                break
            # The commit came earlier in the log than the one in effect.
            claims[producer_id] = None
    del claims[record.producer_id]
    if not claims:
        _drop_claims(groups, group_id, place)


def _drop_claims(groups: GroupsState, group_id: str, place: tuple[str, int]) -> None:
    partitions = groups.pending_offsets.get(group_id)
    if partitions is not None:
        partitions.pop(place, None)
        if not partitions:
            del groups.pending_offsets[group_id]
