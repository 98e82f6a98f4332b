"""Changes of committed offsets by records: live decisions and recovery both come here.

Laws: the order of the log decides. A commit of a transaction takes effect with its marker, unless a later commit in the
log is in effect already.
Source: Apache Kafka's `OffsetMetadataManager.replay` and `replayEndTransactionMarker`.
"""

from __future__ import annotations

from kohort.coordinator.model import GroupsState, OpenTransaction
from kohort.coordinator.records import (
    OffsetCommitted,
    OffsetForgotten,
    TransactionalOffsetCommitted,
    TransactionCompleted,
)


def apply_offset_committed(groups: GroupsState, record: OffsetCommitted) -> None:
    """Set a committed offset (type 1)."""
    topics = groups.offsets.setdefault(record.group_id, {})
    topics.setdefault(record.topic, {})[record.partition] = record
    if groups.pending_offsets:
        _supersede(groups, record)


def apply_transactional_offset_committed(groups: GroupsState, record: TransactionalOffsetCommitted) -> None:
    """Keep a commit aside until its transaction's marker (type 1 in a transactional batch)."""
    commit, producer_id = record.commit, record.producer_id
    partitions = groups.pending_offsets.setdefault(record.group_id, {})
    claims = partitions.setdefault((commit.topic, commit.partition), {})
    claims.pop(producer_id, None)
    claims[producer_id] = commit
    transaction = groups.transactions.setdefault(producer_id, OpenTransaction(record.producer_epoch))
    transaction.producer_epoch = record.producer_epoch
    transaction.group_ids[record.group_id] = None


def apply_transaction_completed(groups: GroupsState, record: TransactionCompleted) -> None:
    """End a transaction by its marker; without effect if it is not open here."""
    transaction = groups.transactions.pop(record.producer_id, None)
    if transaction is None:
        return
    for group_id in transaction.group_ids:
        partitions = groups.pending_offsets.get(group_id, {})
        for place in [place for place, claims in partitions.items() if record.producer_id in claims]:
            _settle(groups, group_id, place, record)


def apply_offset_forgotten(groups: GroupsState, record: OffsetForgotten) -> None:
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
    """Cancel older commits that wait for their markers, as a newer one is in effect."""
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
