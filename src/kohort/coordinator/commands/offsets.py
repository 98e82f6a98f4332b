"""Commands about offsets from clients and the broker, and replies.

Laws: those of `commands`.
Source: Apache Kafka's OffsetCommit and OffsetFetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kohort.coordinator.commands.base import Command, GroupCommand
from kohort.errors import ErrorCode
from kohort.ids import RequestToken, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """One partition of a commit; `leader_epoch` -1: unknown, `topic_id` zero: the client did not know it."""

    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets(GroupCommand):
    """Commit offsets (OffsetCommit).

    `generation_or_member_epoch`: generation (classic), member epoch (848), -1 (no member: simple consumer, admin).

    `is_member_epoch_aware`: OffsetCommit version 9 on; a KIP-848 member that speaks an older one is refused.
    `retention_ms`: how long the offsets are kept (OffsetCommit up to version 4), -1 leaves it to the coordinator.
    """

    member_id: str
    generation_or_member_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    instance_id: str | None = None
    is_member_epoch_aware: bool = True
    retention_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactionOffsets(CommitOffsets):
    """Commit offsets within a producer's transaction (TxnOffsetCommit).

    Answered with `CommitOffsetsReply`. Without member id, instance id and generation (the producer does not know its
    consumer's) the membership is not checked.
    `is_stale_epoch_aware`: version 6 on; before it a stale member epoch is refused as ILLEGAL_GENERATION.
    """

    producer_id: int
    producer_epoch: int
    is_stale_epoch_aware: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteTransaction(Command):
    """End a producer's transaction in every group of the shard; answered with `Done` or a `Refusal`."""

    request: RequestToken
    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsetsReply:
    """Reply to a commit: one code per partition of the request, in its order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets(GroupCommand):
    """Fetch committed offsets (OffsetFetch).

    `partitions` `None`: every committed partition. `member_id` `None` and epoch -1 are not checked.
    """

    partitions: tuple[tuple[str, int], ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


class CommittedOffset(NamedTuple):
    """One committed offset; `offset` -1: none is committed.

    `error` is UNSTABLE_OFFSET_COMMIT while a transaction is open.

    A tuple: an administrator asks for tens of thousands at once, and a frozen dataclass takes three times as long.
    """

    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsetsReply:
    """Reply to `FetchOffsets`, in the order of the request; by topic and partition if it asked for all."""

    offsets: tuple[CommittedOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets(Command):
    """Forget the expired offsets of the named groups; the broker's upkeep sends this, no client."""

    request: RequestToken
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsetsReply:
    """Reply to `ExpireOffsets`; `unfinished`: groups to look at again.

    One decision forgets only so much.

    `expired` and `removed`: how many offsets and groups were forgotten.
    """

    unfinished: tuple[str, ...]
    expired: int
    removed: int
