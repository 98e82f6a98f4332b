"""The application's half of fetching: what has arrived, how far each partition has been handed out.

Laws: positions of a reading never skip a record and never repeat one; data of an earlier reading of a partition, or of
one that was given up, is dropped unread; data of a paused partition waits, and gives way when it is in the way of
others. Nothing is decoded before it is wanted.
Source: the consumer threading refactor (CTR): FetchHandler.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Final

from kohort.client.consumer.core.exchange import Chunk, Fence, Start, Watermarks
from kohort.client.fetch.isolation import committed_parts
from kohort.client.records import ConsumerRecord
from kohort.errors import CorruptRecordError
from kohort.ids import TopicPartition
from kohort.records.binary import BinaryColumn
from kohort.records.columns import RecordColumns, decode_columns


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    """A partition of the application's assignment."""

    fence: Fence
    #: Next offset to hand out; `None` until the first data, unless the application chose it.
    position: int | None
    is_paused: bool = False
    #: Beginning and end of its log; `None` before the first answer.
    watermarks: Watermarks | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Piece:
    """One chunk on its way to the application."""

    partition: TopicPartition
    fence: Fence
    offset: int
    next_offset: int
    #: What is not handed out yet; `columns` belong to the first one.
    parts: deque[memoryview]
    size_bytes: int
    columns: RecordColumns | None = None
    #: First row of `columns` that is not handed out.
    row: int = 0
    #: The application's position has come to it.
    is_begun: bool = False


class FetchHandler:
    """Holds the assignment and the data of the application's side; used by the application's thread alone.

    Args:
        check_crcs: compare checksums when decoding.
        is_read_committed: leave out aborted transactions.
    """

    def __init__(self, *, check_crcs: bool = True, is_read_committed: bool = False) -> None:
        self._check_crcs: Final = check_crcs
        self._is_read_committed: Final = is_read_committed
        self._held: dict[TopicPartition, _Held] = {}
        self._pieces: deque[_Piece] = deque()
        self._next_fence = 1
        #: partition -> bytes that are not held any more, since `released_bytes` was last asked.
        self._released: dict[TopicPartition, int] = {}
        #: Paused partitions whose data was dropped for others, and the fences that they got for it.
        self._given_way: dict[TopicPartition, Fence] = {}
        #: partition -> position, where it has moved since `consumed` was last asked.
        self._moved: dict[TopicPartition, int] = {}

    # -- the assignment ---------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that the application holds."""
        return set(self._held)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are gained; those that are held already go on as they are."""
        for each in partitions:
            if each not in self._held:
                self._held[each] = _Held(fence=self._new_fence(), position=None)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Start]:
        """How the background is to read these partitions."""
        return {
            each: Start(fence=held.fence, offset=held.position, is_paused=held.is_paused)
            for each in partitions
            if (held := self._held.get(each)) is not None
        }

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are given up."""
        for each in partitions:
            self._held.pop(each, None)
            self._moved.pop(each, None)
        self._drop_outdated()

    def seek(self, partition: TopicPartition, offset: int) -> Fence:
        """Go on elsewhere; returns the fence of the new reading."""
        held = self._held[partition]
        held.fence, held.position = self._new_fence(), offset
        self._moved[partition] = offset
        self._drop_outdated()
        return held.fence

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Hand out nothing of these, or again."""
        for each in partitions:
            self._held[each].is_paused = is_paused

    def give_way(self, partition: TopicPartition, fence: Fence) -> None:
        """Drop the data of a paused partition: it is to be read again from the application's position."""
        held = self._held.get(partition)
        if held is None or held.fence != fence or not held.is_paused:
            return
        held.position = self.position(partition)
        if held.position is not None:
            held.fence = self._given_way[partition] = self._new_fence()
            self._drop_outdated()

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
        held = self._held[partition]
        if held.position is not None:
            return held.position
        first = next((each for each in self._pieces if each.partition == partition), None)
        return None if first is None else first.offset

    def positions(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The known positions of these partitions, or of all."""
        chosen = self._held if partitions is None else partitions
        return {
            each: held.position
            for each in chosen
            if (held := self._held.get(each)) is not None and held.position is not None
        }

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
        watermarks = self._held[partition].watermarks
        if watermarks is None:
            return None
        end = watermarks.last_stable_offset if self._is_read_committed else watermarks.high_watermark
        return None if end < 0 else end

    @property
    def has_moved(self) -> bool:
        """Whether `consumed` has something to tell."""
        return bool(self._moved)

    def consumed(self) -> Mapping[TopicPartition, int]:
        """Positions that have moved since the last call: the application has returned from what is below them."""
        moved, self._moved = self._moved, {}
        return moved

    def released_bytes(self) -> dict[TopicPartition, int]:
        """Bytes of each partition's data that are not held any more, since the last call."""
        released, self._released = self._released, {}
        return released

    # -- data -------------------------------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Data has arrived."""
        held = self._held.get(chunk.partition)
        if held is None or held.fence != chunk.fence:
            self._release(chunk)
            return
        parts = committed_parts(chunk.records, chunk.aborted) if self._is_read_committed else [chunk.records]
        self._pieces.append(
            _Piece(
                partition=chunk.partition,
                fence=chunk.fence,
                offset=chunk.offset,
                next_offset=chunk.next_offset,
                parts=deque(part for part in parts if len(part)),
                size_bytes=chunk.size_bytes,
            )
        )

    @property
    def has_data(self) -> bool:
        """Whether `take` would find anything to look at."""
        return any(not self._held[piece.partition].is_paused for piece in self._pieces)

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to so many records, in the order in which they arrived."""
        records: list[ConsumerRecord] = []
        for piece in self._available():
            try:
                while len(records) < max_records and self._load(piece):
                    records += self._next_records(piece, max_records - len(records))
            except CorruptRecordError:
                # What was taken before it is handed out first; the next call meets the damage again.
                if not records:
                    raise
                break
            if len(records) >= max_records:
                break
        return records

    def take_one(self) -> ConsumerRecord | None:
        """The next record that has arrived."""
        records = self.take(1)
        return records[0] if records else None

    def take_columns(
        self, *, with_keys: bool, with_values: bool, with_headers: bool
    ) -> Iterator[tuple[TopicPartition, RecordColumns]]:
        """Everything that has arrived, one after the other; what was yielded counts as handed out."""
        for piece in self._available():
            # Columns that `take` has begun were decoded whole, for other fields perhaps.
            piece.columns = None
            while self._load(piece, with_keys=with_keys, with_values=with_values, with_headers=with_headers):
                columns = piece.columns
                assert columns is not None
                self._finish_columns(piece)
                yield piece.partition, columns

    def _available(self) -> Iterator[_Piece]:
        for piece in list(self._pieces):
            held = self._held.get(piece.partition)
            # A caller of `take_columns` may change the assignment between two results.
            if held is not None and held.fence == piece.fence and not held.is_paused:
                yield piece

    def _load(
        self, piece: _Piece, *, with_keys: bool = True, with_values: bool = True, with_headers: bool = True
    ) -> bool:
        """Have rows ready in `piece.columns`; `False` if the piece is used up, and removed."""
        held = self._held[piece.partition]
        if not piece.is_begun:
            piece.is_begun = True
            if held.position not in (None, piece.offset):
                # Its offset did not exist: auto.offset.reset has sent it elsewhere, back perhaps.
                self._move(piece.partition, piece.offset)
        while piece.columns is None:
            if not piece.parts:
                self._finish(piece, held)
                return False
            start = piece.offset if held.position is None else held.position
            piece.row = 0
            piece.columns = self._decode(piece, start, (with_keys, with_values, with_headers))
            if len(piece.columns) == 0:
                self._finish_columns(piece)
        return True

    def _decode(self, piece: _Piece, start: int, wanted: tuple[bool, bool, bool]) -> RecordColumns:
        try:
            return decode_columns(
                piece.parts[0],
                start_offset=start,
                check_crcs=self._check_crcs,
                with_keys=wanted[0],
                with_values=wanted[1],
                with_headers=wanted[2],
            )
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"{piece.partition} cannot be read at offset {start}: {error}; seek behind it to go on"
            ) from error

    def _next_records(self, piece: _Piece, count: int) -> list[ConsumerRecord]:
        columns = piece.columns
        assert columns is not None
        start = piece.row
        stop = min(start + count, len(columns))
        records = build_records(piece.partition, columns, start, stop)
        piece.row = stop
        if stop == len(columns):
            self._finish_columns(piece)
        else:
            self._move(piece.partition, columns.offsets[stop - 1] + 1)
        return records

    def _finish_columns(self, piece: _Piece) -> None:
        columns, piece.columns = piece.columns, None
        assert columns is not None
        rest = piece.parts.popleft()[columns.consumed_bytes :]
        if len(rest) and columns.consumed_bytes:
            piece.parts.appendleft(rest)
        # Behind control batches and compacted offsets too, which no record shows.
        self._move(piece.partition, max(columns.next_offset, self._held[piece.partition].position or 0))

    def _finish(self, piece: _Piece, held: _Held) -> None:
        self._pieces.remove(piece)
        self._release(piece)
        if held.position is None or held.position < piece.next_offset:
            self._move(piece.partition, piece.next_offset)

    def _move(self, partition: TopicPartition, position: int) -> None:
        self._held[partition].position = position
        self._moved[partition] = position

    def _drop_outdated(self) -> None:
        kept: deque[_Piece] = deque()
        for piece in self._pieces:
            held = self._held.get(piece.partition)
            if held is not None and held.fence == piece.fence:
                kept.append(piece)
            else:
                self._release(piece)
        self._pieces = kept

    def _release(self, data: _Piece | Chunk) -> None:
        if data.size_bytes:
            self._released[data.partition] = self._released.get(data.partition, 0) + data.size_bytes

    def _new_fence(self) -> Fence:
        fence = Fence(self._next_fence)
        self._next_fence += 1
        return fence


def build_records(partition: TopicPartition, columns: RecordColumns, start: int, stop: int) -> list[ConsumerRecord]:
    """The rows [start, stop) as records."""
    keys, values = _strings(columns.keys, start, stop), _strings(columns.values, start, stop)
    headers: Iterable[tuple[tuple[str, bytes | None], ...]] = (
        columns.headers.to_list(start, stop) if columns.headers is not None else repeat(())
    )
    types, epochs = _batch_fields(columns, start, stop)
    rows = zip(
        repeat(partition.topic),
        repeat(partition.partition),
        columns.offsets[start:stop].tolist(),
        columns.timestamps[start:stop].tolist(),
        types,
        keys,
        values,
        headers,
        epochs,
        strict=False,
    )
    # Skips the check of a length that cannot be wrong here; this is the hot loop of `poll`.
    return list(map(partial(tuple.__new__, ConsumerRecord), rows))


def _strings(column: BinaryColumn | None, start: int, stop: int) -> Iterable[bytes | None]:
    if column is None or column.null_count == len(column):
        return repeat(None)
    return column.to_list(start, stop)


def _batch_fields(columns: RecordColumns, start: int, stop: int) -> tuple[Iterable[int], Iterable[int]]:
    """Timestamp type and leader epoch of each row; mostly the rows of one poll are of one batch."""
    first = bisect_left(columns.batches, start + 1, key=itemgetter(0))
    if first < len(columns.batches) and columns.batches[first][0] >= stop:
        _, epoch, kind = columns.batches[first]
        return repeat(kind), repeat(epoch)
    return columns.timestamp_types(start, stop), columns.leader_epochs(start, stop)
