"""One shard of the coordinator and the log in which it is kept: its loading, and its limit of groups.

Laws: of a log that is not known whole no group is served, since an answer out of what is left would be wrong: a commit
that is not known begins a group anew, perhaps behind unread records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from kohort.base import values
from kohort.base.clock import Clock
from kohort.coordinator import commands
from kohort.coordinator.decision import ComputeTarget, Decision, Reply
from kohort.coordinator.model import AssignorFailure, GroupsState
from kohort.coordinator.records.codec import read_in_batch, read_marker
from kohort.coordinator.records.reader import RecordReader
from kohort.coordinator.records.types import OffsetCommitted, OffsetForgotten
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import CorruptRecordError, ErrorCode, StorageError
from kohort.records.choice import active_kernels
from kohort.records.columns import gather_columns
from kohort.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, split_batches
from kohort.records.layout import ATTRIBUTES, MAX_TIMESTAMP
from kohort.records.scan import read_table, scan_batches, table_field
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.quarantine import behind_hole

log = logging.getLogger("kohort.broker.groups")


class UnservedShard(Shard):
    """The shard of a log that could not be read whole: refuses every command about a group."""

    def __init__(self, settings: GroupSettings, text: str) -> None:
        super().__init__(settings)
        self._refusal: Final = commands.Refusal(code=ErrorCode.NOT_COORDINATOR, message=text)

    def handle(self, command: commands.Command, *, now_ms: int) -> Decision:
        """Decide on one command; refuse a command on a group."""
        if isinstance(command, commands.GroupCommand):
            return Decision(effects=(Reply(command.request, self._refusal),))
        return super().handle(command, now_ms=now_ms)


class ShardLog:
    """The shard of one partition of `__consumer_offsets`, with its log."""

    __slots__ = ("counted", "log", "shard", "tells_news")

    def __init__(self, shard: Shard, partition: PartitionLog) -> None:
        self.shard: Final = shard
        self.log: Final = partition
        #: Whether held heartbeats are about to be answered.
        self.tells_news = False
        #: How many entries of each kind the shard had when its groups were counted last, and the groups they were.
        self.counted: tuple[tuple[int, ...], int] = (), 0

    def failure_of(self, group_id: str) -> AssignorFailure | None:
        """Return the present failure of a group's assignor; `None` if it works."""
        group = self.shard.groups.consumer.get(group_id)
        return None if group is None else group.failure

    def log_failure(self, order: ComputeTarget, before: AssignorFailure | None) -> None:
        """Log that an assignor has failed or recovered; `before` is its failure before this order."""
        after = self.failure_of(order.group_id)
        if after is not None and after != before:
            told = after.assignor, order.group_id, after.count, after.error
            log.warning("event=assignor_failed assignor=%s group=%r failures=%d why=%r action=target_kept", *told)
        elif before is not None and after is None:
            log.info("event=assignor_recovered assignor=%s group=%r", order.assignor, order.group_id)


# The loader of the coordinator's log: at the start, reads every record of a partition into its shard.
#
# Laws: records are applied in the order of the log, by the same `apply` as when they were decided; those of a
# transaction that was open stay pending until its marker comes. Where a partition cannot be read, or has an
# unsettled hole, none of its groups is served: they would be half known, and one whose commits are missing would
# begin anew. The log is left as it is. Behind a settled hole all remaining records count. Records of
# unknown types are counted.
# Source: architecture rule 2 and the journey of a restart; Apache Kafka's coordinator loader, which fails likewise.

#: Bytes of the log that are read at a time. Keys and values of that much are alive at once, and what they leave behind
#: in the heap stays the process's: with four times as much, 50,000 members took 8 MB more.
READ_BYTES: Final = 1024 * 1024
#: Bytes that one batch may decompress to: a decision is never split, so a batch is as large as the largest decision.
BATCH_LIMIT_BYTES: Final = 1 << 30

#: Records that change no member.
_OF_OFFSETS: Final = (OffsetCommitted, OffsetForgotten)

Entries = list[tuple[bytes | None, bytes | None]]


@values.value(frozen=False)
class Loaded:
    """The counts of one loaded log."""

    #: Records that were applied.
    records: int = 0
    #: Records of types that are not known here; they stay in the log.
    unknown: int = 0


@values.value(kw_only=False, frozen=False)
class GroupLogLoader:
    """Loads logs one after the other; equal parts of their records are kept once for all of them."""

    #: Groups with records written since then are noted, ms; `None`: none are.
    since_ms: int | None = None
    #: Group -> when a record of it, other than of offsets, was last written since then, ms.
    changed: dict[str, int] = field(default_factory=dict)
    _reader: RecordReader = field(default_factory=RecordReader)

    def load_shard_log(self, settings: GroupSettings, partition: PartitionLog, clock: Clock) -> ShardLog:
        """Load the shard of a log; one that refuses all groups if the log cannot be read whole."""
        # Groups of a log with missing records would be half known: none of them is served.
        reason = partition.offline or next((str(hole) for hole in partition.holes if not hole.is_settled), "")
        try:
            if not reason:
                return ShardLog(self._load_shard(settings, partition, clock), partition)
        except (StorageError, CorruptRecordError) as why:
            reason = str(why)
        advice = (
            "stop the broker, see kohort log check, restore the files or give up what is damaged (kohort log repair)"
        )
        log.error("event=groups_not_served partition=%s %s; %s", partition.name, reason, advice)
        text = f"the groups of {partition.name} are not served, since it cannot be read whole; see the broker's log"
        return ShardLog(UnservedShard(settings, text), partition)

    def _load_shard(self, settings: GroupSettings, partition: PartitionLog, clock: Clock) -> Shard:
        shard, began_ms = Shard(settings), clock.now_ms()
        found = self.load(shard, partition)
        if found.records or found.unknown:
            numbers = partition.partition, found.records, found.unknown, clock.now_ms() - began_ms
            log.info("event=groups_loaded partition=%d records=%d unknown=%d ms=%d", *numbers)
        return shard

    def load(self, shard: Shard, partition: PartitionLog) -> Loaded:
        """Apply every record of the shard's log."""
        offset, loaded = partition.log_start_offset, Loaded()
        while offset < partition.log_end_offset:
            offset = behind_hole(partition.holes, offset)
            views = partition.read(offset, READ_BYTES)
            assert views, "a log has no batch before its end"
            for view in views:
                if self._is_special(view):
                    offset = self._load_one_by_one(shard, view, loaded)
                    continue
                entries, offset, is_whole = _entries(view, offset)
                self._apply(shard, entries, loaded)
                if not is_whole:
                    # Compressed batches decompress to more than is taken at a time; go on with the rest of this view.
                    break
        return loaded

    def _apply(self, shard: Shard, entries: Entries, loaded: Loaded, header: BatchHeader | None = None) -> None:
        """Apply entries; `header` is that of their batch where it may belong to a transaction."""
        read, apply, applied = self._reader.read, shard.apply, 0
        written_ms = None if header is None or self.since_ms is None else header.max_timestamp
        for key, value in entries:
            record = read(key or b"", value)
            if record is not None:
                if written_ms is not None and not isinstance(record, _OF_OFFSETS):
                    self.changed[record.group_id] = written_ms
                apply(record if header is None else read_in_batch(header, record))
                applied += 1
        loaded.records += applied
        loaded.unknown += len(entries) - applied

    def _is_special(self, view: memoryview) -> bool:
        """Whether a view has batches of transactions, or batches that were written lately."""
        table, count, _ = read_table(view, active_kernels())
        if any(bits & (TRANSACTIONAL_BIT | CONTROL_BIT) for bits in set(table_field(table, ATTRIBUTES, 0, count))):
            return True
        return self.since_ms is not None and max(table_field(table, MAX_TIMESTAMP, 0, count)) >= self.since_ms

    def _load_one_by_one(self, shard: Shard, view: memoryview, loaded: Loaded) -> int:
        """Load a special view batch by batch; return the offset to read on from."""
        offset = 0
        for position, header in split_batches(view):
            batch = view[position : position + header.size_bytes]
            offset = header.next_offset
            if header.is_control:
                # Offsets of a transaction stay pending until its marker.
                marker = read_marker(header, batch)
                if marker is not None:
                    shard.apply(marker)
                continue
            entries, _, _ = _entries(batch, header.base_offset)
            self._apply(shard, entries, loaded, header)
        return offset


def read_entries(partition: PartitionLog) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the key and value of every record of a log, in order; of damaged parts that were given up, none."""
    offset = partition.log_start_offset
    while offset < partition.log_end_offset:
        offset = behind_hole(partition.holes, offset)
        for view in partition.read(offset, READ_BYTES):
            entries, offset, is_whole = _entries(view, offset)
            yield from entries
            if not is_whole:
                break


def _entries(view: memoryview, offset: int) -> tuple[Entries, int, bool]:
    """Return keys and values from `offset` on, the next offset, and whether the view ends there."""
    most = max(len(view), 1)
    scanned = scan_batches(view, start_offset=offset, max_batch_bytes=BATCH_LIMIT_BYTES, max_total_bytes=most)
    columns = gather_columns([(scanned, 0, len(scanned))], with_headers=False)
    assert columns.keys is not None and columns.values is not None, "both were asked for"
    entries = list(zip(columns.keys.to_list(), columns.values.to_list(), strict=True))
    return entries, columns.next_offset, columns.consumed_bytes == len(view)


# The limit of groups on one broker.
#
# Laws: what would make a group beyond `max.groups` is refused with POLICY_VIOLATION and a sentence that names the
# option, and leaves nothing behind; groups that are there never notice. A group has members or offsets.
# Source: requirement B4. Clients take that code for final, as they do for topics. Apache Kafka has no such limit.

#: Commands that may make a group.
_Founding = (
    commands.JoinGroup | commands.ConsumerGroupHeartbeat | commands.CommitOffsets | commands.CommitTransactionOffsets
)


class GroupLimit:
    """Counts the groups of one broker when a command would make one more."""

    def __init__(self, shard_logs: Sequence[ShardLog]) -> None:
        self._shard_logs: Final = shard_logs
        #: `max.groups`; `None`: as many as come.
        self.most: int | None = None
        #: Refusals since the start.
        self.refused = 0
        #: Whether the latest new group was refused, which is logged once.
        self._is_full = False

    def count(self) -> int:
        """Return the number of groups."""
        return sum(map(_count, self._shard_logs))

    def let_in(self, shard_log: ShardLog, command: commands.Command, decision: Decision) -> Decision:
        """Return the decision, or a refusal if it would make one group too many."""
        if self.most is None or not decision.records or not isinstance(command, _Founding):
            return decision
        # Existing groups are never refused.
        if _knows(shard_log.shard.groups, command.group_id):
            return decision
        # Groups that have both members and offsets are seen twice at first, which costs no look at each.
        if sum(sum(_sizes(each.shard.groups)) for each in self._shard_logs) < self.most or self.count() < self.most:
            self._is_full = False
            return decision
        self.refused += 1
        text = f"this broker has {self.most} groups, as many as max.groups allows; delete some, or allow more"
        if not self._is_full:
            self._is_full = True
            log.warning("event=group_refused group=%r reason=%r", command.group_id, text)
        return Decision(
            effects=(Reply(command.request, commands.Refusal(code=ErrorCode.POLICY_VIOLATION, message=text)),)
        )


def _count(shard_log: ShardLog) -> int:
    """Count the groups of one shard; recount only if the number of entries of some kind has changed."""
    groups = shard_log.shard.groups
    sizes = _sizes(groups)
    if shard_log.counted[0] != sizes:
        shard_log.counted = sizes, len({*groups.consumer, *groups.classic, *groups.offsets, *groups.pending_offsets})
    return shard_log.counted[1]


def _knows(groups: GroupsState, group_id: str) -> bool:
    return group_id in groups.consumer or group_id in groups.classic or groups.has_offsets(group_id)


def _sizes(groups: GroupsState) -> tuple[int, ...]:
    return len(groups.consumer), len(groups.classic), len(groups.offsets), len(groups.pending_offsets)
