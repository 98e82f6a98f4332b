"""From where each partition is read: the table of readings, and finding a first offset for those that have none.

Laws: a reading is one of the topic id under which it began: when the topic is made again nothing more is read, until
the group gives the new one or the application's side begins anew. A reading has the fence that the application's side
gave it; an answer that was asked under another fence changes nothing; a partition without a first offset is not
fetched. A paused partition needs none, so none is looked for. A refusal is told once and the broker asked again, with
pauses that grow; that it has passed is one line. Who changes a reading touches it, so that nobody has to look at all of
them.
Source: Kafka's `auto.offset.reset`; KIP-848, offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kohort.client.exchange import EARLIEST, LATEST, Chunk, Fence, Sought, Start, Watermarks, empty_chunk
from kohort.client.offsets.committed import Committed, CommittedOffsets
from kohort.client.offsets.queries import Found, OffsetQueries, Result
from kohort.client.retry import Backoff
from kohort.errors import BrokerError, ErrorCode, KohortError, LogTruncationError, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

#: A look-up without an answer for so long starts again; it has no other limit.
_PATIENCE_MS: Final = 30_000


@dataclass(slots=True, kw_only=True, eq=False)
class Reading:
    """One partition that is being read."""

    partition: TopicPartition
    fence: Fence
    #: Next offset to fetch; `None` while that is being found.
    offset: int | None
    is_paused: bool
    #: Of the topic that is read, zero where brokers have none; `None` until the cluster's picture shows the topic.
    topic_id: TopicId | None = None
    #: The topic with that id is gone, and another one has its name.
    is_bygone: bool = False
    #: Find the offset by this, as in `Start`; `None` means by what is committed, or by the reset option.
    timestamp: int | None = None
    #: The committed offset counts no more: start where `auto.offset.reset` says.
    must_reset: bool = False
    #: `auto.offset.reset` has had it begin at the end of its log.
    began_at_end: bool = False
    #: It was read already when it was reset: the application has to hear of its new offset.
    is_sent_elsewhere: bool = False
    #: A group has given it: it is there, though the cluster's picture may not show it yet.
    is_given: bool = False
    #: It was given by the topic's id: when the topic is made again the group says what comes next.
    is_given_by_id: bool = False
    #: It cannot be read until the application seeks.
    is_stuck: bool = False
    #: Why brokers do not let it be read, which the application was told; they are asked again. `NONE` otherwise.
    refusal: ErrorCode = ErrorCode.NONE
    #: A look-up of its first offset is under way.
    is_asked: bool = False
    #: The application wants to know its offset, though it may be paused.
    is_wanted: bool = False
    #: No fetch, and no look-up of its first offset, before this instant: the last one failed.
    not_before_ms: int = 0
    attempts: int = 0
    #: Leader epoch of the record before `offset` (KIP-320); -1 means unknown.
    offset_epoch: int = -1
    #: Replica to read from (KIP-392), and until when; -1 means the leader.
    preferred_node: int = -1
    preferred_until_ms: int = 0
    #: A fetch that did not wait found nothing: it waits for data together with its broker's other partitions.
    is_waiting: bool = False
    #: Beginning and end of the log as the application's side knows them; `None` before the first answer.
    watermarks: Watermarks | None = None
    #: The application was told to drop what it holds of this paused partition.
    is_giving_way: bool = False
    #: The partition is not read any more, or under another fence.
    is_over: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether it can be fetched, now or after its pause."""
        return self.offset is not None and not (self.is_paused or self.is_stuck or self.is_over or self.is_bygone)


class Readings:
    """The partitions that are being read.

    Args:
        known_id: says the id of a topic that is there, as `Cluster.known_id`.
        committed: asked for committed offsets; `None` without a group.
        reset: `earliest`, `latest` or `none`.
        retry: pauses after a refusal.
        on_trouble: told of a partition for which no first offset can be found.
        on_back: told of a partition whose refusal has passed.
        on_remade: told of a partition whose topic was made again, unless a group says itself what is read of it.
        deliver: takes to the application's side where a reading goes on whose offset did not exist.
        on_skipped: told how many records lie before the ends at which partitions without a committed offset start;
            `None` if nobody wants to know.
    """

    def __init__(
        self,
        queries: OffsetQueries,
        *,
        known_id: Callable[[str], TopicId | None],
        committed: CommittedOffsets | None,
        reset: str,
        retry: Backoff,
        on_trouble: Callable[[TopicPartition, KohortError], None],
        on_back: Callable[[TopicPartition], None],
        on_remade: Callable[[TopicPartition, Fence], None],
        deliver: Callable[[Chunk], None],
        on_skipped: Callable[[int], None] | None = None,
    ) -> None:
        self._queries = queries
        self._known_id = known_id
        self._committed = committed
        self._reset: Final = reset
        self._retry: Final = retry
        self._on_trouble = on_trouble
        self._on_back = on_back
        self._on_remade = on_remade
        self._deliver = deliver
        self._on_skipped = on_skipped
        #: Partitions whose start at the end was told: each rebalance starts there anew until something is committed.
        self._told: set[TopicPartition] = set()
        self._table: dict[TopicPartition, Reading] = {}
        #: topic -> number of its partitions that are read.
        self._topics: dict[str, int] = {}
        self._topic_names: frozenset[str] | None = frozenset()
        #: Touched since `take_touched` was called last, in order.
        self._touched: dict[Reading, None] = {}
        #: Those of them that had no offset, since `on_tick` was called last.
        self._without_offset: dict[Reading, None] = {}
        #: Those without an offset that pause after a refusal.
        self._resting: dict[Reading, None] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._table

    def get(self, partition: TopicPartition) -> Reading | None:
        """The reading of a partition, if there is one."""
        return self._table.get(partition)

    def all(self) -> list[Reading]:
        """Every reading."""
        return list(self._table.values())

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are read from; the same object as long as they are the same."""
        if self._topic_names is None:
            self._topic_names = frozenset(self._topics)
        return self._topic_names

    def touch(self, reading: Reading) -> None:
        """Something about it has changed: whoever goes by it looks again."""
        self._touched[reading] = None
        if reading.offset is None:
            self._without_offset[reading] = None

    def take_touched(self) -> Iterable[Reading]:
        """What was touched since the last call, in order; those that are over among them."""
        touched, self._touched = self._touched, {}
        return touched

    @property
    def has_touched(self) -> bool:
        """Whether somebody has to look again."""
        return bool(self._touched or self._without_offset)

    def start(
        self,
        starts: Mapping[TopicPartition, Start],
        *,
        are_given: bool = False,
        ids: Mapping[str, TopicId] = MappingProxyType({}),
    ) -> None:
        """Read these partitions; one that is read under the same fence already goes on as it is.

        Args:
            starts: partition -> how it is read.
            are_given: by a group, not by the application.
            ids: topic -> id under which the group has given its partitions, where it has said so.
        """
        for partition, start in starts.items():
            old = self._table.get(partition)
            if old is not None and old.fence == start.fence:
                old.is_paused = start.is_paused
                self.touch(old)
                continue
            self._put(
                Reading(
                    partition=partition,
                    fence=start.fence,
                    offset=start.offset,
                    topic_id=ids.get(partition.topic),
                    is_given=are_given,
                    is_given_by_id=partition.topic in ids,
                    is_paused=start.is_paused,
                    timestamp=start.timestamp,
                )
            )

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        for partition in partitions:
            reading = self._table.pop(partition, None)
            if reading is not None:
                self._end(reading)

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Fetch nothing of these, or again; a partition that is not read is none of our business."""
        for partition in partitions:
            reading = self._table.get(partition)
            if reading is not None:
                reading.is_paused, reading.is_giving_way = is_paused, False
                self.touch(reading)

    def seek(self, sought: Sought) -> None:
        """Read on elsewhere; a partition that is not read is none of our business."""
        old = self._table.get(sought.partition)
        if old is not None:
            # An offset that was chosen before the application's side heard of the new topic is one of the old one.
            is_kept = old.is_given_by_id or (old.is_bygone and sought.offset is not None)
            self._put(
                Reading(
                    partition=sought.partition,
                    fence=sought.fence,
                    offset=sought.offset,
                    topic_id=old.topic_id if is_kept else None,
                    is_given=old.is_given,
                    is_given_by_id=old.is_given_by_id,
                    is_paused=old.is_paused,
                    timestamp=sought.timestamp,
                    offset_epoch=sought.leader_epoch,
                    watermarks=old.watermarks,
                )
            )

    def want(self, reading: Reading) -> None:
        """The application asks for its offset, though it may be paused."""
        if not reading.is_wanted:
            reading.is_wanted = True
            self.touch(reading)

    def stick(self, reading: Reading, error: KohortError) -> None:
        """It cannot be read until the application seeks; the error says why."""
        reading.is_stuck = True
        self.touch(reading)
        self._on_trouble(reading.partition, error)

    def rest(self, reading: Reading, now_ms: int) -> None:
        """Nothing is asked about it for a while, which grows with each failure."""
        reading.not_before_ms = now_ms + max(1, self._retry.delay_ms(reading.attempts))
        reading.attempts += 1
        if reading.offset is None:
            self._resting[reading] = None
        else:
            self.touch(reading)

    def refuse(self, reading: Reading, error: BrokerError) -> None:
        """A broker does not let it be read: the application hears of that once."""
        if reading.refusal is not error.code:
            reading.refusal = error.code
            self._on_trouble(reading.partition, error)

    def accept(self, reading: Reading) -> None:
        """A broker lets it be read."""
        if reading.refusal is not ErrorCode.NONE:
            reading.refusal, reading.attempts = ErrorCode.NONE, 0
            self._on_back(reading.partition)

    def next_deadline(self) -> int | None:
        """When a pause after a refusal is over."""
        return min((reading.not_before_ms for reading in self._resting), default=None)

    def _put(self, reading: Reading) -> None:
        old = self._table.get(reading.partition)
        self._table[reading.partition] = reading
        self._count(reading.partition.topic, 1)
        if old is not None:
            self._end(old)
        self.touch(reading)
        self._compare(reading)

    def on_cluster_change(self) -> None:
        """There is a new picture of the cluster: topics have appeared in it, or were made again."""
        for reading in self._table.values():
            self._compare(reading)

    def _compare(self, reading: Reading) -> None:
        """See whether its topic is the one that is there."""
        known = self._known_id(reading.partition.topic)
        if known is None or known == reading.topic_id:
            return
        if reading.topic_id in (None, ZERO_TOPIC_ID):
            reading.topic_id = known
            self.touch(reading)
        elif not reading.is_bygone and ZERO_TOPIC_ID not in (known, reading.topic_id):
            reading.is_bygone = True
            self.touch(reading)
            if not reading.is_given_by_id:
                self._on_remade(reading.partition, reading.fence)

    def _end(self, reading: Reading) -> None:
        reading.is_over = True
        self._count(reading.partition.topic, -1)
        self.touch(reading)

    def _count(self, topic: str, by: int) -> None:
        before = self._topics.get(topic, 0)
        if before + by:
            self._topics[topic] = before + by
        else:
            del self._topics[topic]
        if not (before and before + by):
            self._topic_names = None

    def reset(self, reading: Reading, why: str) -> None:
        """Its offset is out of range: start where the option says."""
        if self._reset == "none":
            self._give_up(reading, f"{why}, and auto.offset.reset is none: seek to an offset that exists")
        else:
            reading.is_sent_elsewhere = reading.is_sent_elsewhere or reading.offset is not None
            reading.offset, reading.offset_epoch = None, -1
            reading.must_reset = True
            self.touch(reading)

    def truncate(self, reading: Reading, offset: int, epoch: int) -> bool:
        """The leader's log parts from what was read at that offset, behind a record of that epoch; whether it goes on.

        Source: KIP-320.
        """
        assert reading.offset is not None
        if self._reset == "none":
            partition = reading.partition
            self.stick(reading, LogTruncationError(partition.topic, partition.partition, reading.offset, offset))
            return False
        reading.offset, reading.offset_epoch = offset, epoch
        self._deliver(empty_chunk(reading.partition, reading.fence, offset))
        self.touch(reading)
        return True

    def on_tick(self, now_ms: int) -> None:
        """Find first offsets for readings that have none."""
        if self._resting:
            for reading in [each for each in self._resting if each.is_over or each.not_before_ms <= now_ms]:
                del self._resting[reading]
                self._without_offset[reading] = None
        if not self._without_offset:
            return
        touched, self._without_offset = self._without_offset, {}
        idle = [
            reading
            for reading in touched
            if reading.offset is None
            and (reading.is_wanted or not reading.is_paused)
            and not (reading.is_asked or reading.is_stuck or reading.is_over or reading.is_bygone)
            and reading not in self._resting
        ]
        if not idle:
            return
        sought = [reading for reading in idle if reading.timestamp is not None]
        if sought:
            self._look_up(sought, now_ms)
            idle = [reading for reading in idle if reading.timestamp is None]
        if self._committed is not None:
            # One whose topic is not known yet is touched when it is: what is committed is so of an id.
            uncommitted = [reading for reading in idle if not reading.must_reset and reading.topic_id is not None]
            if uncommitted:
                self._ask_committed(self._committed, uncommitted, now_ms)
            idle = [reading for reading in idle if reading.must_reset]
        if idle:
            self._ask_reset(idle, now_ms)

    def _ask_committed(self, committed: CommittedOffsets, readings: list[Reading], now_ms: int) -> None:
        open_ = {reading.partition: reading for reading in readings}
        for reading in readings:
            reading.is_asked = True

        def then(result: Committed, now_ms: int) -> None:
            ended = list(open_) if isinstance(result, KohortError) else list(result)
            for reading in self._still_wanted([open_.pop(each) for each in ended]):
                if isinstance(result, KohortError):
                    self._on_error(reading, result, now_ms)
                elif (found := result[reading.partition]) is not None:
                    reading.offset, reading.offset_epoch = found.offset, found.leader_epoch
                else:
                    self.reset(reading, f"{reading.partition} has no committed offset")

        def is_wanted(partition: TopicPartition) -> bool:
            return not (open_[partition].is_over or open_[partition].is_bygone)

        ids = {reading.partition: reading.topic_id or ZERO_TOPIC_ID for reading in readings}
        committed.ask(ids, then, deadline_ms=now_ms + _PATIENCE_MS, now_ms=now_ms, is_wanted=is_wanted)

    def _ask_reset(self, readings: list[Reading], now_ms: int) -> None:
        if self._reset == "none":
            for reading in readings:
                self._give_up(
                    reading, f"{reading.partition} has no offset to start from, and auto.offset.reset is none"
                )
            return
        self._look_up(readings, now_ms)

    def _look_up(self, readings: list[Reading], now_ms: int) -> None:
        for reading in readings:
            reading.is_asked = True
        open_ = {reading.partition: reading for reading in readings}

        def then(result: Result, now_ms: int) -> None:
            begun: dict[TopicPartition, int] = {}
            ended = list(open_) if isinstance(result, KohortError) else list(result)
            for reading in self._still_wanted([open_.pop(each) for each in ended]):
                if isinstance(result, KohortError):
                    self._on_error(reading, result, now_ms)
                elif not self._begin(reading, result[reading.partition]):
                    begun[reading.partition] = reading.offset or 0
                    reading.began_at_end = reset == LATEST
            if begun and reset == LATEST:
                self._count_skipped(begun, now_ms)

        def on_error(partition: TopicPartition, error: KohortError, now_ms: int) -> None:
            for reading in self._still_wanted([open_.pop(partition)]):
                self._on_error(reading, error, now_ms)

        reset = EARLIEST if self._reset == "earliest" else LATEST
        wanted = {each.partition: reset if each.timestamp is None else each.timestamp for each in readings}
        self._queries.ask(wanted, then, deadline_ms=now_ms + _PATIENCE_MS, now_ms=now_ms, on_error=on_error)

    def _begin(self, reading: Reading, found: Found) -> bool:
        """Start where the answer says; whether the application has sent it there, or has to hear of it."""
        if found is None and reading.timestamp is not None and reading.timestamp >= 0:
            # No record is that young: those that come are.
            reading.timestamp = LATEST
            return True
        # Nothing is below 0; an answer without an offset can only mean an empty log.
        reading.offset = 0 if found is None else found[0]
        is_told = reading.is_sent_elsewhere or reading.timestamp is not None
        reading.must_reset, reading.is_sent_elsewhere, reading.timestamp = False, False, None
        if is_told:
            self._deliver(empty_chunk(reading.partition, reading.fence, reading.offset))
        return is_told

    def _count_skipped(self, begun: Mapping[TopicPartition, int], now_ms: int) -> None:
        ends = {partition: end for partition, end in begun.items() if partition not in self._told}
        if self._on_skipped is None or not ends:
            return
        self._told.update(ends)
        tell = self._on_skipped

        def then(result: Result, _: int) -> None:
            if isinstance(result, KohortError):
                return
            firsts = {partition: 0 if found is None else found[0] for partition, found in result.items()}
            count = sum(end - firsts[partition] for partition, end in ends.items())
            if count > 0:
                tell(count)

        wanted = dict.fromkeys(ends, EARLIEST)
        self._queries.ask(wanted, then, deadline_ms=now_ms + _PATIENCE_MS, now_ms=now_ms)

    def _still_wanted(self, readings: Iterable[Reading]) -> list[Reading]:
        wanted = []
        for reading in readings:
            reading.is_asked = False
            if reading.offset is None and not (reading.is_over or reading.is_stuck or reading.is_bygone):
                self.touch(reading)
                wanted.append(reading)
        return wanted

    def _on_error(self, reading: Reading, error: KohortError, now_ms: int) -> None:
        is_late = reading.is_given and isinstance(error, UnknownTopicError)
        if error.retriable or is_late:
            return
        if isinstance(error, BrokerError):
            self.rest(reading, now_ms)
            self.refuse(reading, error)
        else:
            self.stick(reading, error)

    def _give_up(self, reading: Reading, why: str) -> None:
        reading.offset = None
        self.stick(reading, BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, why))
