"""The application's half of fetching: what has arrived, how far each partition has been handed out.

Laws: positions of a reading never skip a record and never repeat one; data of an earlier reading of a partition, or of
one that was given up, is dropped unread; data of a paused partition waits, and gives way when it is in the way of
others. Nothing is decoded before it is wanted.
Source: the consumer threading refactor (CTR): FetchHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from kohort.client.exchange import Chunk, Fence, Start, Watermarks
from kohort.client.fetch.held import Held
from kohort.client.fetch.isolation import committed_parts
from kohort.client.fetch.pieces import Piece, PieceQueue, Taken
from kohort.client.records import Committable, ConsumerRecord
from kohort.errors import CorruptRecordError, DeserializationError
from kohort.ids import TopicPartition
from kohort.records.arrays import Allocate, ArrayPool

Deserialize: TypeAlias = Callable[[list[ConsumerRecord]], tuple[list[ConsumerRecord], DeserializationError | None]]

#: Records that are made at once for calls that take them one by one.
_READY_ROWS: Final = 256
#: Memory for decoding that is kept warm.
_POOL_BYTES: Final = 12 * 1024 * 1024


class FetchHandler:
    """Holds the assignment and the data of the application's side; used by the application's thread alone.

    Args:
        check_crcs: compare checksums when decoding.
        is_read_committed: leave out aborted transactions.
        skips_corrupt: go on behind records that cannot be read, instead of raising.
        deserialize: makes of records those that are handed out, up to the first that it refuses, and its error.
    """

    def __init__(
        self,
        *,
        check_crcs: bool = True,
        is_read_committed: bool = False,
        skips_corrupt: bool = False,
        deserialize: Deserialize | None = None,
    ) -> None:
        self._check_crcs: Final = check_crcs
        self._is_read_committed: Final = is_read_committed
        self._skips_corrupt: Final = skips_corrupt
        self._skipped: list[CorruptRecordError] = []
        self._deserialize: Final = deserialize
        #: Makes the arrays that fetched data is decoded to.
        self.allocate: Allocate = ArrayPool(limit_bytes=_POOL_BYTES).array
        self._held: dict[TopicPartition, Held] = {}
        #: Of partitions that are held, and of their latest fence.
        self._pieces: Final = PieceQueue()
        #: Records of `_ready_piece`, the first piece, the next one last: whoever pops one has been handed it.
        self.ready: list[ConsumerRecord] = []
        self._ready_piece: Piece | None = None
        #: So many they were: what is missing has been handed out.
        self._ready_count = 0
        self._next_fence = 1
        #: Bytes that have arrived, and records that were handed out, in all.
        self.fetched_bytes = 0
        self.handed_out = 0
        #: partition -> bytes that are not held any more, since `released_bytes` was last asked.
        self._released: dict[TopicPartition, int] = {}
        #: Partitions whose data was dropped, for others or since their topic was made again, with their new fences.
        self._given_way: dict[TopicPartition, Fence] = {}
        #: partition -> position, where it has moved since `consumed` was last asked.
        self._moved: dict[TopicPartition, int] = {}
        #: partition -> position before what the application was handed last.
        self._in_work: dict[TopicPartition, int] = {}

    # -- the assignment ---------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that the application holds."""
        return set(self._held)

    def holds(self, partition: TopicPartition) -> bool:
        """Whether the application holds that partition."""
        return partition in self._held

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are gained; those that are held already go on as they are."""
        for each in partitions:
            if each not in self._held:
                self._held[each] = Held(fence=self._new_fence(), position=None)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Start]:
        """How the background is to read these partitions."""
        self._settle()
        return {
            each: Start(
                fence=held.fence,
                offset=held.position,
                is_paused=held.is_paused,
                timestamp=held.timestamp if held.position is None else None,
            )
            for each in partitions
            if (held := self._held.get(each)) is not None
        }

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are given up."""
        self._settle()
        for each in partitions:
            self._held.pop(each, None)
            self._moved.pop(each, None)
        self._drop_outdated()
        if not self._held:
            self.allocate = ArrayPool(limit_bytes=_POOL_BYTES).array

    def seek(
        self, partition: TopicPartition, offset: int | None, timestamp: int | None = None, leader_epoch: int = -1
    ) -> Fence:
        """Go on elsewhere, at an offset or where a timestamp leads; returns the fence of the new reading."""
        self._settle()
        held = self._held[partition]
        held.fence, held.position, held.timestamp = self._new_fence(), offset, timestamp
        held.leader_epoch = leader_epoch
        if offset is None:
            # Where it goes on is known when the background has found it.
            self._moved.pop(partition, None)
        else:
            self._moved[partition] = offset
        self._drop_outdated()
        return held.fence

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Hand out nothing of these, or again."""
        self._settle()
        for each in partitions:
            self._held[each].is_paused = is_paused
        self._pieces.divide(self.paused())

    def give_way(self, partition: TopicPartition, fence: Fence) -> None:
        """Drop the data of a paused partition: it is to be read again from the application's position."""
        self._settle()
        held = self._held.get(partition)
        if held is None or held.fence != fence or not held.is_paused:
            return
        held.position = self.position(partition)
        if held.position is not None:
            held.fence = self._given_way[partition] = self._new_fence()
            self._drop_outdated()

    def begin_anew(self, partition: TopicPartition, fence: Fence) -> None:
        """Another topic has the name by now: drop what is held of the old one, and find where to begin."""
        self._settle()
        held = self._held.get(partition)
        if held is not None and held.fence == fence:
            self._given_way[partition] = self.seek(partition, None)

    def given_way(self) -> dict[TopicPartition, Start]:
        """How the background is to read what gave way since the last call, and was not changed otherwise."""
        given, self._given_way = self._given_way, {}
        return {each: start for each, start in self.starts(given).items() if start.fence == given[each]}

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {each for each, held in self._held.items() if held.is_paused}

    # -- positions --------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to be handed out; `None` if only the background can know."""
        self._settle()
        held = self._held[partition]
        if held.position is not None:
            return held.position
        first = self._pieces.of(partition)
        return None if first is None else first.position

    def positions(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The known positions of these partitions, or of all."""
        self._settle()
        chosen = self._held if partitions is None else partitions
        return {
            each: held.position
            for each in chosen
            if (held := self._held.get(each)) is not None and held.position is not None
        }

    def with_epoch(self, partition: TopicPartition, offset: int) -> Committable:
        """An offset of that partition with the leader epoch that belongs to it, if that is known."""
        return offset if (held := self._held.get(partition)) is None else held.with_epoch(offset)

    def note_watermarks(self, seen: Mapping[TopicPartition, Watermarks]) -> None:
        """Where logs begin and end by now."""
        for each, watermarks in seen.items():
            if each in self._held:
                self._held[each].watermarks = watermarks

    def watermarks(self, partition: TopicPartition) -> Watermarks | None:
        """Where the log begins and ends, as the last fetch has said; `None` before the first one."""
        return self._held[partition].watermarks

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Where this reader's log ends, as the last fetch has said; `None` if that is not known yet."""
        return self._held[partition].end_offset(self._is_read_committed)

    def lags(self) -> dict[TopicPartition, int]:
        """Offsets between what was handed out and the end, where both are known; may be called from any thread."""
        committed = self._is_read_committed
        return {each: lag for each, held in list(self._held.items()) if (lag := held.lag(committed)) is not None}

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived and are not used up; may be asked from any thread."""
        return self._pieces.size_bytes

    @property
    def has_moved(self) -> bool:
        """Whether `consumed` has something to tell."""
        self._settle()
        return bool(self._moved)

    def consumed(self, *, but_the_last: bool = False) -> Mapping[TopicPartition, int]:
        """Positions that have moved since the last call: the application has returned from what is below them.

        `but_the_last`: it has not returned from what it was handed last.
        """
        self._settle()
        moved, self._moved = self._moved, {}
        if but_the_last:
            moved |= {each: offset for each, offset in self._in_work.items() if each in moved}
        return moved

    def released_bytes(self) -> dict[TopicPartition, int]:
        """Bytes of each partition's data that are not held any more, since the last call."""
        self._settle()
        released, self._released = self._released, {}
        return released

    # -- data -------------------------------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Data has arrived."""
        self.fetched_bytes += chunk.size_bytes
        held = self._held.get(chunk.partition)
        if held is None or held.fence != chunk.fence:
            self._release(chunk)
            return
        parts = committed_parts(chunk.records, chunk.aborted) if self._is_read_committed else [chunk.records]
        self._pieces.add(Piece(chunk, parts), is_paused=held.is_paused)

    def begin(self) -> None:
        """The application is back for more, by a call that may take several times."""
        self._settle()
        self._in_work = {}

    @property
    def has_data(self) -> bool:
        """Whether `take` would find anything to look at."""
        return bool(self.ready) or self._pieces.first is not None

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to so many records, in the order in which they arrived.

        Raises:
            CorruptRecordError: the next record that would be handed out cannot be read.
            DeserializationError: a deserializer refuses it.
        """
        self._settle()
        records: list[ConsumerRecord] = []
        try:
            while len(records) < max_records and (piece := self._first()) is not None:
                rows = self._rows(piece, max_records - len(records))
                self._in_work.setdefault(piece.partition, piece.position)
                piece.advance(len(rows))
                self._advanced(piece)
                records += rows
        except (CorruptRecordError, DeserializationError):
            # What was taken before it is handed out first; a later call meets the damage again.
            if not records:
                raise
        self.handed_out += len(records)
        return records

    def take_one(self) -> ConsumerRecord | None:
        """The next record that has arrived; otherwise like `take`."""
        if not self.ready:
            self._settle()
            piece = self._first()
            if piece is None:
                return None
            ready = self._rows(piece, _READY_ROWS)
            ready.reverse()
            self.ready, self._ready_piece, self._ready_count = ready, piece, len(ready)
        return self.ready.pop()

    def take_slices(self, *, max_records: int, max_bytes: int, at_least_one: bool) -> list[Taken]:
        """Records to be made columns of, in the order in which they arrived; they count as handed out.

        What is taken refers to fetched data, whose memory is reported as free: copy it before that matters.

        Args:
            max_records, max_bytes: of all slices together.
            at_least_one: take the first record also if it is larger.

        Raises:
            CorruptRecordError: the next record that would be handed out cannot be read.
        """
        self._settle()
        slices: list[Taken] = []
        try:
            while max_records > 0 and (piece := self._first()) is not None:
                self._in_work.setdefault(piece.partition, piece.position)
                taken = piece.take_slice(max_records, max_bytes, at_least_one=at_least_one and not slices)
                if taken is None:
                    break
                self._advanced(piece)
                slices.append(taken)
                self.handed_out += taken.stop - taken.start
                max_records -= taken.stop - taken.start
                max_bytes -= taken.size_bytes
        except CorruptRecordError:
            if not slices:
                raise
        return slices

    def _rows(self, piece: Piece, count: int) -> list[ConsumerRecord]:
        """The next records of a piece, at least one; none counts as handed out yet."""
        rows = piece.peek_rows(count)
        if self._deserialize is not None:
            rows, error = self._deserialize(rows)
            if error is not None and not rows:
                self._pieces.set_back(piece.partition)
                raise error
        return rows

    def _first(self) -> Piece | None:
        """The piece whose records are next, ready to be taken; what is used up is removed on the way."""
        while (piece := self._pieces.first) is not None:
            held = self._held[piece.partition]
            before = piece.position
            if not piece.is_begun:
                piece.is_begun = True
                if held.position not in (None, before):
                    # Its offset did not exist: auto.offset.reset has sent it elsewhere, back perhaps.
                    self._move(piece.partition, before, -1)
            damage = piece.load(check_crcs=self._check_crcs, allocate=self.allocate)
            if piece.position != before:
                self._move(piece.partition, piece.position, piece.leader_epoch)
            if damage is not None:
                self._meet(piece.partition, damage)
            elif piece.is_used_up:
                self._finish(piece)
            else:
                return piece
        return None

    def _meet(self, partition: TopicPartition, damage: CorruptRecordError) -> None:
        """Raise it, or read anew from behind it: what has been fetched behind it may not be what it seems."""
        assert damage.next_offset is not None, "a piece says where to go on"
        if not self._skips_corrupt:
            self._pieces.set_back(partition)
            raise damage
        self._move(partition, damage.next_offset, -1)
        self._held[partition].fence = self._given_way[partition] = self._new_fence()
        self._drop_outdated()
        self._skipped.append(damage)

    def skipped(self) -> list[CorruptRecordError]:
        """What was skipped since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def _advanced(self, piece: Piece) -> None:
        self._move(piece.partition, piece.position, piece.leader_epoch)
        if piece.is_used_up:
            self._finish(piece)

    def _finish(self, piece: Piece) -> None:
        self._pieces.remove_first()
        self._release(piece)
        position = self._held[piece.partition].position
        if position is None or position < piece.next_offset:
            self._move(piece.partition, piece.next_offset, piece.leader_epoch)

    def _settle(self) -> None:
        """Count what `take_one` has handed out, and forget what it was about to."""
        piece, self._ready_piece = self._ready_piece, None
        if piece is not None:
            left = 0
            with suppress(IndexError):
                # One by one: what another thread pops at the same moment is either its own or counted here.
                while True:
                    self.ready.pop()
                    left += 1
            count = self._ready_count - left
            self.handed_out += count
            if count:
                # Each was a call's, and the last of them is that which the application may be at.
                piece.advance(count - 1)
                self._in_work = {piece.partition: piece.position}
                piece.advance(1)
            self._advanced(piece)

    def _move(self, partition: TopicPartition, position: int, leader_epoch: int) -> None:
        held = self._held[partition]
        held.position, held.leader_epoch = position, leader_epoch
        self._moved[partition] = position

    def _drop_outdated(self) -> None:
        for piece in self._pieces.drop(self._is_current):
            self._release(piece)

    def _is_current(self, piece: Piece) -> bool:
        held = self._held.get(piece.partition)
        return held is not None and held.fence == piece.fence

    def _release(self, data: Piece | Chunk) -> None:
        if data.size_bytes:
            self._released[data.partition] = self._released.get(data.partition, 0) + data.size_bytes

    def _new_fence(self) -> Fence:
        fence = Fence(self._next_fence)
        self._next_fence += 1
        return fence
