"""The application's half of fetching: the fetched data, and each partition's position.

Laws: while a partition is read, its position never skips or repeats a record. Data is decoded when it is returned.
Source: the consumer threading refactor (CTR): FetchHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from kohort.base.values import value
from kohort.client.consumer.application_events import Chunk, Fence, Start, Watermarks
from kohort.client.consumer.fetch.completed_fetch import CompletedFetch, CompletedFetches, Taken, committed_parts
from kohort.client.records import Committable, ConsumerRecord, OffsetAndMetadata
from kohort.errors import CorruptRecordError, DeserializationError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.records.arrays import Allocate, ArrayPool

Deserialize: TypeAlias = Callable[[list[ConsumerRecord]], tuple[list[ConsumerRecord], DeserializationError | None]]

#: Records that are decoded at once for calls that take them one by one.
_READY_ROWS: Final = 256
#: Memory for decoding that is kept for the next batch.
_POOL_BYTES: Final = 12 * 1024 * 1024


@value(frozen=False, eq=False)
class HeldPartition:
    """A partition of the application's assignment."""

    fence: Fence
    #: Offset of the next record to hand out; `None` until the first data, unless the application has chosen it.
    position: int | None
    #: Leader epoch of the records before the position (KIP-320); -1 means unknown.
    leader_epoch: int = -1
    #: The timestamp that leads to the position, as in `Start`; `None`: the application has not given one.
    timestamp: int | None = None
    #: Offset before which reading ends; `None`: it never ends.
    stop: int | None = None
    #: Id of the only topic whose records are handed out; zero: of whichever topic has the name.
    topic_id: TopicId = ZERO_TOPIC_ID
    is_paused: bool = False
    #: Whether nothing more of it is handed out, because its leader refuses the member.
    is_withheld: bool = False
    #: First and end offset of its log; `None` before the first answer.
    watermarks: Watermarks | None = None

    def with_epoch(self, offset: int) -> Committable:
        """Return an offset with its leader epoch, if that is known."""
        if self.position != offset or self.leader_epoch < 0:
            return offset
        return OffsetAndMetadata(offset, "", self.leader_epoch)

    def end_offset(self, is_read_committed: bool) -> int | None:
        """Return the end offset for an isolation level by the last fetch; `None` before the first response."""
        if self.watermarks is None:
            return None
        end = self.watermarks.last_stable_offset if is_read_committed else self.watermarks.high_watermark
        return None if end < 0 else end

    def lag(self, is_read_committed: bool) -> int | None:
        """Return the end offset minus the position; `None` if one of them is unknown."""
        end, position = self.end_offset(is_read_committed), self.position
        return None if end is None or position is None else max(0, end - position)


class FetchHandler:
    """The assigned partitions with their positions and fetched data; used by the application's thread alone."""

    def __init__(
        self,
        *,
        check_crcs: bool = True,
        is_read_committed: bool = False,
        skips_corrupt: bool = False,
        deserialize: Deserialize | None = None,
    ) -> None:
        #: Compare checksums when decoding.
        self._check_crcs: Final = check_crcs
        #: Leave out aborted transactions.
        self._is_read_committed: Final = is_read_committed
        #: Go on behind records that cannot be read, instead of raising.
        self._skips_corrupt: Final = skips_corrupt
        self._skipped: list[CorruptRecordError] = []
        #: Converts records up to the first that a deserializer refuses; returns them, and that error.
        self._deserialize: Final = deserialize
        #: Allocates the arrays that fetched data is decoded to.
        self.allocate: Allocate = ArrayPool(limit_bytes=_POOL_BYTES).array
        self._held: dict[TopicPartition, HeldPartition] = {}
        #: Data of held partitions, under their latest fence.
        self._fetches: Final = CompletedFetches()
        #: Decoded records of `_ready_fetch`, the first fetch; the next record is the last element. Popping hands it
        #: out.
        self.ready: list[ConsumerRecord] = []
        self._ready_fetch: CompletedFetch | None = None
        #: Their number at first: the missing ones have been handed out.
        self._ready_count = 0
        self._next_fence = 1
        #: Bytes that have arrived, and records that were handed out, since the start.
        self.fetched_bytes = 0
        self.handed_out = 0
        #: Partitions that leaders have refused since the start.
        self.refused_rows = 0
        #: partition -> bytes given back since the last call of `released_bytes`.
        self._released: dict[TopicPartition, int] = {}
        #: Partitions held for another topic id than that of their data, which was dropped.
        self.foreign: Final[set[TopicPartition]] = set()
        #: Partitions of which data came without a topic id, though they are held for one.
        self.nameless: Final[set[TopicPartition]] = set()
        #: Partitions whose data was dropped, for room or because their topic was made again, with their new fences.
        self._given_way: dict[TopicPartition, Fence] = {}
        #: partition -> position, if it has moved since the last call of `consumed`.
        self._moved: dict[TopicPartition, int] = {}
        #: partition -> position before the records that were handed out last.
        self._in_work: dict[TopicPartition, int] = {}

    # -- the assignment ---------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that the application holds."""
        return set(self._held)

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the application holds that partition."""
        return partition in self._held

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the assignment; those in it stay as they are."""
        for each in partitions:
            if each not in self._held:
                self._held[each] = HeldPartition(fence=self._new_fence(), position=None)

    def hold_spans(self, spans: Mapping[TopicPartition, tuple[int, int]], topic_ids: Mapping[str, TopicId]) -> None:
        """Add partitions to the assignment, each to be read from its first offset to its second, not included.

        `topic_ids`: topic -> the id that it must have; its data under another id are dropped, see `foreign`.
        """
        self.foreign.clear()
        self.nameless.clear()
        for each, (start, stop) in spans.items():
            self._held[each] = HeldPartition(
                fence=self._new_fence(),
                position=start,
                stop=stop,
                topic_id=topic_ids.get(each.topic, ZERO_TOPIC_ID),
            )

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Start]:
        """Return how the background is to read these partitions."""
        self._settle()
        return {
            each: Start(
                fence=held.fence,
                offset=held.position,
                is_paused=held.is_paused,
                timestamp=held.timestamp if held.position is None else None,
                stop=held.stop,
            )
            for each in partitions
            if (held := self._held.get(each)) is not None
        }

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions and their data."""
        self._settle()
        for each in partitions:
            self._held.pop(each, None)
            self._moved.pop(each, None)
        self._drop_outdated()
        if not self._held:
            # A consumer without partitions keeps no memory for decoding.
            self.allocate = ArrayPool(limit_bytes=_POOL_BYTES).array

    def seek(
        self, partition: TopicPartition, offset: int | None, timestamp: int | None = None, leader_epoch: int = -1
    ) -> Fence:
        """Move a position to an offset or to a timestamp; return the fence of the new reading."""
        self._settle()
        held = self._held[partition]
        held.fence, held.position, held.timestamp = self._new_fence(), offset, timestamp
        held.leader_epoch = leader_epoch
        if offset is None:
            # The position is known when the background has found it.
            self._moved.pop(partition, None)
        else:
            self._moved[partition] = offset
        self._drop_outdated()
        return held.fence

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Stop handing out records of these partitions, or resume."""
        self._settle()
        for each in partitions:
            self._held[each].is_paused = is_paused
        self._divide()

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of partitions whose leader refuses the member, until they are assigned anew."""
        self._settle()
        for each in partitions:
            self.refused_rows += 1
            if (held := self._held.get(each)) is not None:
                held.is_withheld = True
        self._divide()

    def _divide(self) -> None:
        self._fetches.divide({each for each, held in self._held.items() if held.is_paused or held.is_withheld})

    def give_way(self, partition: TopicPartition, fence: Fence) -> None:
        """Drop the data of a paused partition, which will be fetched again from the application's position."""
        self._settle()
        held = self._held.get(partition)
        # The application may have resumed it, or have sought by now.
        if held is None or held.fence != fence or not held.is_paused:
            return
        held.position = self.position(partition)
        if held.position is not None:
            held.fence = self._given_way[partition] = self._new_fence()
            self._drop_outdated()

    def begin_anew(self, partition: TopicPartition, fence: Fence) -> None:
        """Drop the data of a topic that was deleted and created again, and look up a new first offset."""
        self._settle()
        held = self._held.get(partition)
        if held is not None and held.fence == fence:
            self._given_way[partition] = self.seek(partition, None)

    def given_way(self) -> dict[TopicPartition, Start]:
        """Return where to read the partitions whose data was dropped since the last call, unless changed since."""
        given, self._given_way = self._given_way, {}
        return {each: start for each, start in self.starts(given).items() if start.fence == given[each]}

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {each for each, held in self._held.items() if held.is_paused}

    # -- positions --------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to hand out; `None` if only the background may know it."""
        self._settle()
        held = self._held[partition]
        if held.position is not None:
            return held.position
        first = self._fetches.of(partition)
        return None if first is None else first.position

    def positions(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the known positions of these partitions, or of all."""
        self._settle()
        chosen = self._held if partitions is None else partitions
        return {
            each: held.position
            for each in chosen
            if (held := self._held.get(each)) is not None and held.position is not None
        }

    def with_epoch(self, partition: TopicPartition, offset: int) -> Committable:
        """Return an offset of a partition with its leader epoch, if that is known."""
        return offset if (held := self._held.get(partition)) is None else held.with_epoch(offset)

    def note_watermarks(self, seen: Mapping[TopicPartition, Watermarks]) -> None:
        """Note the log start and end offsets of a fetch response."""
        for each, watermarks in seen.items():
            if each in self._held:
                self._held[each].watermarks = watermarks

    def watermarks(self, partition: TopicPartition) -> Watermarks | None:
        """Return the log's start and end offsets by the last fetch; `None` before the first response."""
        return self._held[partition].watermarks

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Return the end offset for this isolation level by the last fetch; `None` before the first response."""
        return self._held[partition].end_offset(self._is_read_committed)

    def lags(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition whose position and end are known; may be called from any thread."""
        committed = self._is_read_committed
        return {each: lag for each, held in list(self._held.items()) if (lag := held.lag(committed)) is not None}

    @property
    def held_bytes(self) -> int:
        """Bytes that were fetched and are not used up; may be called from any thread."""
        return self._fetches.size_bytes

    @property
    def has_moved(self) -> bool:
        """Whether `consumed` returns anything."""
        self._settle()
        return bool(self._moved)

    def consumed(self, *, but_the_last: bool = False) -> Mapping[TopicPartition, int]:
        """Return the positions that have changed since the last call; all records below them were handed out.

        `but_the_last`: leave out the records that were handed out last, which may not be processed.
        """
        self._settle()
        moved, self._moved = self._moved, {}
        if but_the_last:
            moved |= {each: offset for each, offset in self._in_work.items() if each in moved}
        return moved

    def in_work(self) -> dict[TopicPartition, int]:
        """Return the position of each partition before the records that were handed out last."""
        self._settle()
        return {each: offset for each, offset in self._in_work.items() if each in self._held}

    def released_bytes(self) -> dict[TopicPartition, int]:
        """Return each partition's bytes that were freed since the last call."""
        self._settle()
        released, self._released = self._released, {}
        return released

    # -- data -------------------------------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Add fetched data, or free its bytes if it belongs to an earlier assignment or seek."""
        self.fetched_bytes += chunk.size_bytes
        held = self._held.get(chunk.partition)
        # Data of an earlier reading, or of a partition that was given up, is dropped unread.
        if held is None or held.fence != chunk.fence:
            self._release(chunk)
            return
        if held.topic_id not in (ZERO_TOPIC_ID, chunk.topic_id) and len(chunk.records):
            if chunk.topic_id != ZERO_TOPIC_ID:
                self.foreign.add(chunk.partition)
                self._release(chunk)
                return
            self.nameless.add(chunk.partition)
        parts = committed_parts(chunk.records, chunk.aborted) if self._is_read_committed else [chunk.records]
        self._fetches.add(CompletedFetch(chunk, parts, held.stop), is_paused=held.is_paused or held.is_withheld)

    def begin(self) -> None:
        """Note that the application asks for more: earlier records count as processed."""
        self._settle()
        self._in_work = {}

    @property
    def has_data(self) -> bool:
        """Whether `take` has data to look at."""
        return bool(self.ready) or self._fetches.first is not None

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Hand out up to so many records, in the order of arrival.

        Raises:
            CorruptRecordError: the next record cannot be read.
            DeserializationError: a deserializer fails for the next record.
        """
        self._settle()
        records: list[ConsumerRecord] = []
        try:
            while len(records) < max_records and (fetch := self._first()) is not None:
                rows = self._rows(fetch, max_records - len(records))
                self._in_work.setdefault(fetch.partition, fetch.position)
                fetch.advance(len(rows))
                self._advanced(fetch)
                records += rows
        except (CorruptRecordError, DeserializationError):
            # The records before it are handed out first. A later call meets the damage again.
            if not records:
                raise
        self.handed_out += len(records)
        return records

    def take_one(self) -> ConsumerRecord | None:
        """Hand out the next record that has arrived; otherwise like `take`."""
        if not self.ready:
            self._settle()
            fetch = self._first()
            if fetch is None:
                return None
            ready = self._rows(fetch, _READY_ROWS)
            ready.reverse()
            self.ready, self._ready_fetch, self._ready_count = ready, fetch, len(ready)
        return self.ready.pop()

    def take_slices(self, *, max_records: int, max_bytes: int, at_least_one: bool) -> list[Taken]:
        """Hand out records as slices, to be converted to columns, in the order of arrival.

        The slices are views of fetched data whose memory is reported as free: copy them before the next call.

        Args:
            max_records, max_bytes: limits for all slices together.
            at_least_one: include the first record even if it is larger.

        Raises:
            CorruptRecordError: the next record cannot be read.
        """
        self._settle()
        slices: list[Taken] = []
        try:
            while max_records > 0 and (fetch := self._first()) is not None:
                self._in_work.setdefault(fetch.partition, fetch.position)
                taken = fetch.take_slice(max_records, max_bytes, at_least_one=at_least_one and not slices)
                if taken is None:
                    break
                self._advanced(fetch)
                slices.append(taken)
                self.handed_out += taken.stop - taken.start
                max_records -= taken.stop - taken.start
                max_bytes -= taken.size_bytes
        except CorruptRecordError:
            if not slices:
                raise
        return slices

    def _rows(self, fetch: CompletedFetch, count: int) -> list[ConsumerRecord]:
        """Decode the next records of a fetch, at least one; they do not count as handed out yet."""
        rows = fetch.peek_rows(count)
        if self._deserialize is not None:
            rows, error = self._deserialize(rows)
            if error is not None and not rows:
                self._fetches.set_back(fetch.partition)
                raise error
        return rows

    def _first(self) -> CompletedFetch | None:
        """Return the fetch with the next records, decoded; remove fetches that are used up."""
        while (fetch := self._fetches.first) is not None:
            held = self._held[fetch.partition]
            before = fetch.position
            if not fetch.is_begun:
                fetch.is_begun = True
                if held.position not in (None, before):
                    # Its offset did not exist: auto.offset.reset has moved the position, perhaps backwards.
                    self._move(fetch.partition, before, -1)
            damage = fetch.load(check_crcs=self._check_crcs, allocate=self.allocate)
            if fetch.position != before:
                self._move(fetch.partition, fetch.position, fetch.leader_epoch)
            if damage is not None:
                self._meet(fetch.partition, damage)
            elif fetch.is_used_up:
                self._finish(fetch)
            else:
                return fetch
        return None

    def _meet(self, partition: TopicPartition, damage: CorruptRecordError) -> None:
        """Raise the error of a damaged record, or with on.corrupt.records=skip go on at the next offset."""
        assert damage.next_offset is not None, "a fetch says where to go on"
        if not self._skips_corrupt:
            self._fetches.set_back(partition)
            raise damage
        # The data behind it was located by a damaged length, so it is dropped, too.
        self._move(partition, damage.next_offset, -1)
        self._held[partition].fence = self._given_way[partition] = self._new_fence()
        self._drop_outdated()
        self._skipped.append(damage)

    def skipped(self) -> list[CorruptRecordError]:
        """Return the errors that were skipped since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def _advanced(self, fetch: CompletedFetch) -> None:
        self._move(fetch.partition, fetch.position, fetch.leader_epoch)
        if fetch.is_used_up:
            self._finish(fetch)

    def _finish(self, fetch: CompletedFetch) -> None:
        self._fetches.remove_first()
        self._release(fetch)
        position = self._held[fetch.partition].position
        if position is None or position < fetch.next_offset:
            self._move(fetch.partition, fetch.next_offset, fetch.leader_epoch)

    def _settle(self) -> None:
        """Count the records that `take_one` has handed out, and drop the rest of the decoded ones."""
        fetch, self._ready_fetch = self._ready_fetch, None
        if fetch is not None:
            left = 0
            with suppress(IndexError):
                # One by one: a record that another thread pops at the same moment is either handed out or counted here.
                while True:
                    self.ready.pop()
                    left += 1
            count = self._ready_count - left
            self.handed_out += count
            if count:
                # Each call took one record. The application may still be at the last of them.
                fetch.advance(count - 1)
                self._in_work = {fetch.partition: fetch.position}
                fetch.advance(1)
            self._advanced(fetch)

    def _move(self, partition: TopicPartition, position: int, leader_epoch: int) -> None:
        held = self._held[partition]
        held.position, held.leader_epoch = position, leader_epoch
        self._moved[partition] = position

    def _drop_outdated(self) -> None:
        for fetch in self._fetches.drop(self._is_current):
            self._release(fetch)

    def _is_current(self, fetch: CompletedFetch) -> bool:
        held = self._held.get(fetch.partition)
        return held is not None and held.fence == fetch.fence

    def _release(self, data: CompletedFetch | Chunk) -> None:
        if data.size_bytes:
            self._released[data.partition] = self._released.get(data.partition, 0) + data.size_bytes

    def _new_fence(self) -> Fence:
        fence = Fence(self._next_fence)
        self._next_fence += 1
        return fence
