"""The topic `__group_journal`: the rows of the journal on disk, written in the background.

Laws: no request waits for it, and its failures fail no request. Rows that a full disk refuses are counted, and a row
says so once the disk takes rows again. The rows that wait to be written are bounded. After a crash the first row says
what may be missing. Old rows go by whole segments, by age and by size. The numbers of rows and causes rise from one run
to the next.
Source: requirement J1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from kohort.base import values
from kohort.base.clock import Clock
from kohort.broker.durability import Durability
from kohort.broker.topics.metadata import Cluster
from kohort.broker.topics.topic_operations import Outcome
from kohort.errors import CorruptRecordError, Refused, StorageError
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.ring import OF_NO_GROUP, Journal
from kohort.journal.rows import Entry, Row, RowKind, decode_row, encode_key, encode_row
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import split_batches
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.quarantine import behind_hole

log = logging.getLogger("kohort.broker.groups")

#: Seconds for which rows gather before they are written together.
GATHER_SECONDS: Final = 0.1
#: Rows that wait to be written; beyond that the oldest are lost.
WAITING_LIMIT: Final = 10_000
#: Rows of one batch.
BATCH_ROWS: Final = 1_000
#: Rows of the topic through which one request looks, and about as many more as a batch has.
PAGE_ROWS: Final = 1_000
#: Bytes that are read at once; a batch is there as a whole.
_READ_BYTES: Final = 64 * 1024
#: Numbers that are skipped after a crash, because rows that were never written have numbers, too.
CRASH_GAP: Final = 100_000
#: Rows so shortly before the last one may describe changes that the groups' own logs lost, milliseconds.
LATEST_MS: Final = 10_000
#: Events that the groups' own logs have too, with the same time.
_LOGGED: Final = frozenset(
    {
        "assignment_changed", "assignment_released", "epoch_bumped", "group_at_rest", "group_forgotten", "member_away",
        "member_joined", "member_removed", "subscription_changed", "target_computed",
    }
)  # fmt: skip
#: Events of rows that belong to no group.
STARTED: Final = "broker_started"
STOPPED: Final = "broker_stopped"


class JournalLog:
    """The writer of the journal's rows to its topic, a moment later."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster: Cluster,
        durability: Durability,
        clock: Clock,
        journal: Journal,
        *,
        retention_ms: int,
        retention_bytes: int,
    ) -> None:
        self._loop: Final = loop
        self._cluster: Final = cluster
        self._durability: Final = durability
        self._clock: Final = clock
        self._journal: Final = journal
        self._retention_ms: Final = retention_ms
        self._retention_bytes: Final = retention_bytes
        self._waiting: Final[deque[Row]] = deque()
        #: Rows that were lost since the last row that was written.
        self._lost = 0
        self._is_stuck = False
        #: Whether the topic is being made.
        self._is_asked = False
        self._timer: asyncio.TimerHandle | None = None
        #: The input with the largest number in the topic.
        self.last_cause = 0
        #: Since when a crash may have taken rows, so that groups are checked, ms; `None` if there was no crash.
        self.look_since_ms: int | None = None
        #: Group -> time of its last row that its own log confirms, ms.
        self.told_ms: dict[str, int] = {}

    def start(self) -> None:
        """Continue after the topic's last row; the first new row says how the previous run ended."""
        last = self._newest()
        if last is not None:
            is_clean = last.entry.event == STOPPED
            self.last_cause = last.cause + (0 if is_clean else CRASH_GAP)
            # Numbers of rows rise over all runs of the broker.
            self._journal.resume(last.sequence + (0 if is_clean else CRASH_GAP))
            if not is_clean:
                self.look_since_ms = last.time_ms - LATEST_MS
                self.told_ms = self._find_told(self.look_since_ms)
        self._journal.on_row = self._on_row
        if last is not None:
            details = (("before", "stopped"),) if is_clean else (("before", "crashed"), ("last_ms", str(last.time_ms)))
            self._tell(STARTED, *details)

    def stop(self) -> None:
        """Write the remaining rows; no rows follow."""
        if self._log() is not None or self._waiting:
            self._tell(STOPPED)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.flush()

    def flush(self) -> None:
        """Write all waiting rows, as far as the disk takes them."""
        while self._waiting and self._write_some():
            pass

    def _tell(self, event: str, *details: tuple[str, str]) -> None:
        self.last_cause += 1
        entry = Entry(kind=RowKind.TRANSITION, event=event, group_id=OF_NO_GROUP, details=details)
        self._journal.record([entry], cause=self.last_cause, now_ms=self._clock.now_ms())

    def _log(self) -> PartitionLog | None:
        topic = self._cluster.topic(JOURNAL_TOPIC)
        return None if topic is None else topic.partitions[0]

    def _on_row(self, row: Row) -> None:
        self._waiting.append(row)
        self.last_cause = max(self.last_cause, row.cause)
        if len(self._waiting) > WAITING_LIMIT:
            self._waiting.popleft()
            self._lost += 1
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._waiting and not self._write_some():
            self._timer = self._loop.call_later(GATHER_SECONDS * 10, self._write)
        elif self._waiting and self._timer is None:
            self._timer = self._loop.call_later(0, self._write)

    def _write_some(self) -> bool:
        """Write one batch; return whether the disk took it."""
        now_ms = self._clock.now_ms()
        rows = [self._waiting[index] for index in range(min(BATCH_ROWS, len(self._waiting)))]
        target = self._log() or self._create_topic()
        if target is None:
            return False
        try:
            batch = build_batch([(*encode_row(row), row.time_ms, ()) for row in rows])
            self._durability.append(target, batch, now_ms=now_ms, validate=False)
        except (StorageError, Refused, OSError) as why:
            self._note_stuck(why)
            return False
        for _ in rows:
            self._waiting.popleft()
        self._is_stuck = False
        # The gap is told once the disk takes rows again.
        if self._lost:
            lost, self._lost = self._lost, 0
            self._tell("journal_gap", ("rows", str(lost)))
        self._drop_old(target, now_ms)
        return True

    def _create_topic(self) -> PartitionLog | None:
        """Ask for the topic; return its log if that exists at once, else rows wait for it."""
        if not self._is_asked:
            self._is_asked = True
            wanted = self._cluster.journal_creation(
                retention_ms=self._retention_ms, retention_bytes=self._retention_bytes, done=self._on_created
            )
            self._cluster.work.ask([wanted])
        return self._log()

    def _on_created(self, why: Outcome) -> None:
        self._is_asked = False
        if why is not None:
            self._note_stuck(why)
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._write)

    def _note_stuck(self, why: Exception) -> None:
        if not self._is_stuck:
            log.warning("event=journal_not_written reason=%r action=rows_wait", str(why))
        self._is_stuck = True

    def _drop_old(self, target: PartitionLog, now_ms: int) -> None:
        while len(target.segments) > 1:
            oldest = target.segments[0]
            is_old = self._retention_ms >= 0 and oldest.max_timestamp < now_ms - self._retention_ms
            if not is_old and not 0 <= self._retention_bytes < target.size_bytes:
                return
            try:
                target.drop_oldest()
            except (StorageError, OSError) as why:
                log.warning("event=journal_not_dropped reason=%r", str(why))
                return

    def _find_told(self, since_ms: int) -> dict[str, int]:
        target = self._log()
        assert target is not None, "it has a row"
        start = max(target.log_start_offset, target.log_end_offset - PAGE_ROWS)
        rows = [decode_row(value) for *_, value in _records(target, start)]
        told = [row for row in rows if row is not None and row.entry.event in _LOGGED and row.time_ms >= since_ms]
        return {row.entry.group_id: row.time_ms for row in told}

    def _newest(self) -> Row | None:
        """Return the last row that can be read."""
        target = self._log()
        if target is None or target.log_end_offset <= target.log_start_offset:
            return None
        start = max(target.log_start_offset, target.log_end_offset - 1)
        rows = [row for *_, value in _records(target, start) if (row := decode_row(value)) is not None]
        return rows[-1] if rows else None


@values.value
class OlderRows:
    """A page of the topic: rows of one group and of the broker, oldest first, possibly none.

    `older_offset`: the page before ends there; `None`: there is none. `is_complete`: the topic has all that was ever
    written to it, and the page is its first.
    """

    rows: tuple[Row, ...]
    older_offset: int | None
    is_complete: bool


def read_older(target: PartitionLog, group_id: str, *, before: int) -> OlderRows:
    """Read the rows of a group from the page of the topic that ends at an offset.

    A row that was repeated stands there more than once: the later says more.
    """
    start = max(target.log_start_offset, min(before, target.log_end_offset) - PAGE_ROWS)
    first = start
    keys = (encode_key(group_id), encode_key(OF_NO_GROUP))
    found: dict[int, Row] = {}
    for base_offset, offset, key, value in _records(target, start):
        if base_offset >= before:
            break
        first = min(first, base_offset)
        row = decode_row(value) if key in keys and offset < before else None
        if row is not None:
            found[row.sequence] = row
    # Rows that were deleted meanwhile do not come back.
    first = max(first, target.log_start_offset)
    is_first = first <= target.log_start_offset
    return OlderRows(
        rows=tuple(found[number] for number in sorted(found)),
        older_offset=None if is_first else first,
        is_complete=is_first and target.log_start_offset == 0,
    )


def _records(target: PartitionLog, offset: int) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield records from the batch of `offset` on; skip damaged batches.

    Yields:
        Base offset of the batch, offset, key and value.
    """
    while offset < target.log_end_offset:
        before = offset
        offset = behind_hole(target.holes, offset)
        for view in target.read(offset, _READ_BYTES):
            for position, header in split_batches(view):
                offset = header.next_offset
                with contextlib.suppress(CorruptRecordError):
                    for record in iterate_records(view[position : position + header.size_bytes]):
                        yield header.base_offset, record.offset, record.key, record.value
        if offset <= before:
            return
