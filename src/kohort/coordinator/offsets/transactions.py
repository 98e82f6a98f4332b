"""Offset commits within a producer's transaction, kept aside until its marker.

Laws: no offset of a transaction is served before it is committed, and none of an aborted one ever. The membership is
checked when the request comes, as with any commit; the marker is not checked. A replaced epoch of a producer writes
nothing more.
Source: KIP-98, KIP-447 (the consumer's identity fences it), KIP-1251, KIP-1319; Apache Kafka's
`OffsetMetadataManager.validateTransactionalOffsetCommit`.
"""

from __future__ import annotations

from kohort.coordinator.classic.commits import check_commit, decide_sign
from kohort.coordinator.commands.base import Done, Refusal
from kohort.coordinator.commands.offsets import CommitOffsetsReply, CommitTransactionOffsets, CompleteTransaction
from kohort.coordinator.decision import Decision, Effect, Reply
from kohort.coordinator.model import ConsumerMember, GroupsState
from kohort.coordinator.offsets.commit import check_consumer_member, examine_partitions
from kohort.coordinator.records import TransactionalOffsetCommitted, TransactionCompleted
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def decide_commit_in_transaction(
    groups: GroupsState, command: CommitTransactionOffsets, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Keep offsets aside for a producer's transaction, with one code per partition.

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


def decide_complete(groups: GroupsState, command: CompleteTransaction) -> Decision:
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
    )
    return Decision((marker,), (Reply(command.request, Done()),))


def _check_producer(groups: GroupsState, command: CommitTransactionOffsets) -> None:
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
    groups: GroupsState, command: CommitTransactionOffsets, *, now_ms: int
) -> tuple[ConsumerMember | None, tuple[Effect, ...]]:
    """Return the KIP-848 member to check grants of, and the effects on a classic one's session."""
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


def _code(code: ErrorCode, command: CommitTransactionOffsets) -> ErrorCode:
    """Translate the code for producers before KIP-1319, which do not know member epochs."""
    is_translated = code == ErrorCode.STALE_MEMBER_EPOCH and not command.is_stale_epoch_aware
    return ErrorCode.ILLEGAL_GENERATION if is_translated else code
