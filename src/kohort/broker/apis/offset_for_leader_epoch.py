"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, by which readers detect truncation.

Epochs rise when a broker starts after a stop that was not clean (`storage/partitions/leader_epochs.py`).
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.leadership import Leadership
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.partitions.partition import PartitionLog
from kohort.wire.messages import offset_for_leader_epoch as wire


def handle(
    context: BrokerContext, request: Request, message: wire.OffsetForLeaderEpochRequest
) -> wire.OffsetForLeaderEpochResponse:
    """Look up each partition independently; a repeated question is answered once."""
    cluster, rights = context.cluster, request.rights
    # Followers ask this, too (KIP-320): the right to act as one is asked first.
    is_free = rights.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    rows, denied = [], []
    for asked in message.topics:
        if not is_free and not rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topic):
            denied.append(_deny(asked))
            continue
        topic, _ = cluster.find(asked.topic, ZERO_TOPIC_ID)
        once = {(row.partition, row.current_leader_epoch, row.leader_epoch): row for row in asked.partitions}
        answers = [_answer(context.leadership, cluster.partition(topic, row.partition), row) for row in once.values()]
        rows.append(wire.OffsetForLeaderTopicResult(topic=asked.topic, partitions=answers))
    return wire.OffsetForLeaderEpochResponse(topics=[*rows, *denied])


def _deny(asked: wire.OffsetForLeaderTopic) -> wire.OffsetForLeaderTopicResult:
    code, numbers = ErrorCode.TOPIC_AUTHORIZATION_FAILED, dict.fromkeys(row.partition for row in asked.partitions)
    rows = [wire.EpochEndOffset(partition=number, error_code=code) for number in numbers]
    return wire.OffsetForLeaderTopicResult(topic=asked.topic, partitions=rows)


def _answer(
    leadership: Leadership, log: PartitionLog | None, asked: wire.OffsetForLeaderPartition
) -> wire.EpochEndOffset:
    if log is None:
        return wire.EpochEndOffset(partition=asked.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refusal = leadership.refusal(log, asked.current_leader_epoch)
    if refusal is not ErrorCode.NONE:
        return wire.EpochEndOffset(partition=asked.partition, error_code=refusal)
    epoch, end_offset = leadership.end_of_epoch(log, asked.leader_epoch)
    return wire.EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
