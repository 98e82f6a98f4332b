"""The table of readings: the position of each partition that is read, and the look-up of first offsets.

Laws: a `Reading` belongs to the topic id under which it began, and has the fence that the application's side gave it. A
response to a request of another fence changes nothing. A partition without a first offset is not fetched. Code that
changes a reading calls `touch`, so that other code need not look at all readings.
Source: Kafka's `auto.offset.reset`; KIP-848, offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kohort.base.values import value
from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import EARLIEST, LATEST, Fence, Sought, Start, Watermarks
from kohort.client.consumer.offsets.committed import Committed, CommittedOffsets
from kohort.client.consumer.offsets.queries import Found, OffsetQueries, Result
from kohort.client.core.cluster import Cluster
from kohort.client.core.requests import Requests
from kohort.errors import BrokerError, ErrorCode, KohortError, LogTruncationError, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition

#: A look-up without an answer for so long is started again.
_PATIENCE_MS: Final = 30_000


@value(frozen=False, eq=False)
class Reading:
    """One partition that is being read, from an assignment or seek until the next."""

    partition: TopicPartition
    fence: Fence
    #: Offset of the next fetch; `None` while it is being looked up.
    offset: int | None
    is_paused: bool
    #: Id of the topic that is read, zero where brokers have none; `None` until the metadata show the topic.
    topic_id: TopicId | None = None
    #: Offset before which reading ends; `None`: it never ends.
    stop: int | None = None
    #: Whether the topic with that id was deleted, and another topic has its name.
    is_bygone: bool = False
    #: The timestamp to look up, as in `Start`; `None`: the committed offset, or else `auto.offset.reset`.
    timestamp: int | None = None
    #: Whether the committed offset is not used: start where `auto.offset.reset` says.
    must_reset: bool = False
    #: Whether `auto.offset.reset` has chosen the end of its log.
    began_at_end: bool = False
    #: Whether it was being read when it was reset: then the new offset is delivered to the application's side.
    is_sent_elsewhere: bool = False
    #: Whether a group has assigned it: the partition exists, even if the metadata do not show it yet.
    is_given: bool = False
    #: Whether it was assigned by topic id: when the topic is made again the group decides.
    is_given_by_id: bool = False
    #: Whether it cannot be read until the application seeks.
    is_stuck: bool = False
    #: The brokers' refusal that was reported to the application; they are asked again. `NONE` otherwise.
    refusal: ErrorCode = ErrorCode.NONE
    #: Whether its first offset is being looked up.
    is_asked: bool = False
    #: Whether the application has asked for its offset, though it may be paused.
    is_wanted: bool = False
    #: No fetch and no look-up before this time: the last one failed.
    not_before_ms: int = 0
    attempts: int = 0
    #: Leader epoch of the record before `offset` (KIP-320); -1 means unknown.
    offset_epoch: int = -1
    #: Replica to read from (KIP-392), and until when; -1 means the leader.
    preferred_node: int = -1
    preferred_until_ms: int = 0
    #: A short fetch found nothing: it waits for data in its broker's long fetch.
    is_waiting: bool = False
    #: First and end offset of the log as the application's side knows them; `None` before the first answer.
    watermarks: Watermarks | None = None
    #: The application's side was told to drop the data of this paused partition.
    is_giving_way: bool = False
    #: Whether the partition is not read any more, or under another fence.
    is_over: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether the partition can be fetched, now or when its `not_before_ms` has passed."""
        if self.offset is None or self.is_paused or self.is_stuck or self.is_over or self.is_bygone:
            return False
        return self.stop is None or self.offset < self.stop


class Readings:
    """The partitions that are being read."""

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        queries: OffsetQueries,
        committed: CommittedOffsets | None,
        *,
        reset: str,
        on_trouble: Callable[[TopicPartition, KohortError], None],
        on_back: Callable[[TopicPartition], None],
        on_remade: Callable[[TopicPartition, Fence], None],
        on_skipped: Callable[[int], None] | None = None,
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._queries = queries
        #: Looks up committed offsets; `None` without a group.
        self._committed = committed
        #: `earliest`, `latest` or `none`.
        self._reset: Final = reset
        #: Called for a partition that cannot be read.
        self._on_trouble = on_trouble
        #: Called for a partition whose refusal has passed.
        self._on_back = on_back
        #: Called for a partition whose topic was made again, unless a group assigned it by topic id.
        self._on_remade = on_remade
        #: Called with the number of records before the ends at which partitions without a committed offset start;
        #: `None`: they are not counted.
        self._on_skipped = on_skipped
        #: Partitions whose skipped records were told already: each rebalance starts there anew until an offset is
        #: committed.
        self._told: set[TopicPartition] = set()
        #: partition -> how often in a row its leader has refused the member, and when it may be read again.
        self._refused: dict[TopicPartition, tuple[int, int]] = {}
        self._table: dict[TopicPartition, Reading] = {}
        #: Returns the reading of a partition, if there is one.
        self.get: Final[Callable[[TopicPartition], Reading | None]] = self._table.get
        #: topic -> number of its partitions that are read.
        self._topics: dict[str, int] = {}
        self._topic_names: frozenset[str] | None = frozenset()
        #: Readings touched since the last call of `take_touched`, in order.
        self._touched: dict[Reading, None] = {}
        #: Readings without an offset, touched since the last call of `work`.
        self._without_offset: dict[Reading, None] = {}
        #: Readings without an offset that pause after a refusal.
        self._resting: dict[Reading, None] = {}
        #: Wake this part of the machine, the fetches, and the parts that follow the topics.
        self.wake: Callable[[], None] = lambda: None
        self.wake_fetches: Callable[[], None] = lambda: None
        self.wake_followers: Callable[[], None] = lambda: None

    def all(self) -> list[Reading]:
        """Return every reading."""
        return list(self._table.values())

    @property
    def topics(self) -> frozenset[str]:
        """The topics of all readings; the same object until they change."""
        if self._topic_names is None:
            self._topic_names = frozenset(self._topics)
        return self._topic_names

    def touch(self, reading: Reading) -> None:
        """Mark a reading as changed, for the fetches and for the look-up of first offsets."""
        self._touched[reading] = None
        self.wake_fetches()
        if reading.offset is None:
            self._without_offset[reading] = None
            self.wake()

    def take_touched(self) -> Iterable[Reading]:
        """Return the readings touched since the last call, in order, including those that are over."""
        touched, self._touched = self._touched, {}
        return touched

    @property
    def has_touched(self) -> bool:
        """Whether a reading was touched and not dealt with yet."""
        return bool(self._touched or self._without_offset)

    def start(
        self,
        starts: Mapping[TopicPartition, Start],
        *,
        are_given: bool = False,
        ids: Mapping[str, TopicId] = MappingProxyType({}),
    ) -> None:
        """Start reading these partitions; one with an unchanged fence goes on as it is.

        Args:
            starts: partition -> position at which to start.
            are_given: whether a group has assigned them, rather than the application.
            ids: topic -> topic id in the group's assignment, if it has ids.
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
                    stop=start.stop,
                )
            )

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            reading = self._table.pop(partition, None)
            if reading is not None:
                self._end(reading)

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Pause or resume partitions; one that is not read is skipped."""
        for partition in partitions:
            reading = self._table.get(partition)
            if reading is not None:
                reading.is_paused, reading.is_giving_way = is_paused, False
                self.touch(reading)

    def seek(self, sought: Sought) -> None:
        """Start a new reading at another offset; a partition that is not read is skipped."""
        old = self._table.get(sought.partition)
        if old is not None:
            # An offset that was chosen before the application's side heard of the new topic belongs to the old one.
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
                    stop=old.stop,
                )
            )

    def want(self, reading: Reading) -> None:
        """Look up the offset of a reading for the application, even if the partition is paused."""
        if not reading.is_wanted:
            reading.is_wanted = True
            self.touch(reading)

    def stick(self, reading: Reading, error: KohortError) -> None:
        """Stop a reading until the application seeks, and report the error to the application."""
        reading.is_stuck = True
        self.touch(reading)
        self._on_trouble(reading.partition, error)

    def rest(self, reading: Reading, now_ms: int) -> None:
        """Pause look-ups and fetches of a reading; the pause grows with each failure."""
        reading.not_before_ms = now_ms + max(1, self._requests.retry.delay_ms(reading.attempts))
        reading.attempts += 1
        if reading.offset is None:
            self._resting[reading] = None
            self.wake()
        else:
            self.touch(reading)

    def refuse(self, reading: Reading, error: BrokerError) -> None:
        """Report to the application, once, that brokers do not let it read a partition."""
        # The broker is asked again after growing pauses, and `accept` says that the refusal has passed.
        if reading.refusal is not error.code:
            reading.refusal = error.code
            self._on_trouble(reading.partition, error)

    def accept(self, reading: Reading) -> None:
        """End a refusal: brokers allow the partition to be read again."""
        if self._refused:
            self._refused.pop(reading.partition, None)
        if reading.refusal is not ErrorCode.NONE:
            reading.refusal, reading.attempts = ErrorCode.NONE, 0
            self._on_back(reading.partition)

    def note_fenced(self, partition: TopicPartition, now_ms: int) -> None:
        """Delay the next reading of an assigned partition whose leader refuses this member; longer each time."""
        count, _ = self._refused.get(partition, (0, 0))
        self._refused[partition] = count + 1, now_ms + self._requests.retry.delay_ms(count)

    def next_deadline(self) -> int | None:
        """Return when a pause after a refusal ends."""
        return min((reading.not_before_ms for reading in self._resting), default=None)

    def _put(self, reading: Reading) -> None:
        old = self._table.get(reading.partition)
        self._table[reading.partition] = reading
        if self._refused:
            _, reading.not_before_ms = self._refused.get(reading.partition, (0, 0))
        self._count(reading.partition.topic, 1)
        if old is not None:
            self._end(old)
        self.touch(reading)
        self._compare(reading)

    def on_cluster_change(self) -> None:
        """Compare the topic of each reading with new metadata: the topic may have appeared, or been created again."""
        for reading in self._table.values():
            self._compare(reading)

    def _compare(self, reading: Reading) -> None:
        """Compare a reading's topic id with the id in the metadata."""
        known = self._cluster.known_id(reading.partition.topic)
        if known is None or known == reading.topic_id:
            return
        if reading.topic_id in (None, ZERO_TOPIC_ID):
            reading.topic_id = known
            self.touch(reading)
        elif not reading.is_bygone and ZERO_TOPIC_ID not in (known, reading.topic_id):
            # Nothing more is read until the group assigns the new topic or the application's side begins anew.
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
            self.wake_followers()

    def reset(self, reading: Reading, why: str) -> None:
        """Start where auto.offset.reset says, because the offset is out of range."""
        if self._reset == "none":
            self._give_up(reading, f"{why}, and auto.offset.reset is none: seek to an offset that exists")
        else:
            reading.is_sent_elsewhere = reading.is_sent_elsewhere or reading.offset is not None
            reading.offset, reading.offset_epoch = None, -1
            reading.must_reset = True
            self.touch(reading)

    def truncate(self, reading: Reading, offset: int, epoch: int) -> bool:
        """Continue at the offset where the leader's log diverges from the fetched one; return whether that is allowed.

        Args:
            reading: of the partition.
            offset: the first offset that differs.
            epoch: leader epoch of the record before that offset.

        Source: KIP-320.
        """
        assert reading.offset is not None
        if self._reset == "none":
            partition = reading.partition
            self.stick(reading, LogTruncationError(partition.topic, partition.partition, reading.offset, offset))
            return False
        reading.offset, reading.offset_epoch = offset, epoch
        self._requests.deliver(events.empty_chunk(reading.partition, reading.fence, offset))
        self.touch(reading)
        return True

    def work(self, now_ms: int) -> None:
        """Look up first offsets for readings that have none."""
        if self._resting:
            for reading in [each for each in self._resting if each.is_over or each.not_before_ms <= now_ms]:
                del self._resting[reading]
                self._without_offset[reading] = None
        if not self._without_offset:
            return
        touched, self._without_offset = self._without_offset, {}
        # A paused partition needs no first offset, so none is looked up.
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
            # A reading without a topic id is touched when it has one: an offset is committed for a topic id.
            uncommitted = [reading for reading in idle if not reading.must_reset and reading.topic_id is not None]
            if uncommitted:
                self._ask_committed(self._committed, uncommitted, now_ms)
            # The committed offsets of the others are on their way, or wait for the topic's id.
            idle = [reading for reading in idle if reading.must_reset]
        if idle and self._reset != "none":
            self._look_up(idle, now_ms)
            return
        for reading in idle:
            self._give_up(reading, f"{reading.partition} has no offset to start from, and auto.offset.reset is none")

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
        """Start at the offset that was found; return whether the application chose it, or has been notified of it."""
        if found is None and reading.timestamp is not None and reading.timestamp >= 0:
            # No record is that young: reading starts with the next one.
            reading.timestamp = LATEST
            return True
        # No offset is below 0. An answer without an offset means an empty log.
        reading.offset = 0 if found is None else found[0]
        is_told = reading.is_sent_elsewhere or reading.timestamp is not None
        reading.must_reset, reading.is_sent_elsewhere, reading.timestamp = False, False, None
        if is_told:
            self._requests.deliver(events.empty_chunk(reading.partition, reading.fence, reading.offset))
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
        # The group has assigned it, so the broker's metadata are late.
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
