"""Sets of a topic's partitions in few bytes: as runs that repeat, or as a bit for each partition.

Laws: a decoded set takes no more memory and time than its bytes, however many partitions it has. Only bytes that
`PartitionSet.of` could have written are accepted, except for the choice between runs and bits.
Source: run-length encoding; protocol buffers' varints, of which each number has one form here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

#: First and last partition.
Range: TypeAlias = tuple[int, int]

#: Kafka numbers partitions by an int32.
LAST_PARTITION: Final = (1 << 31) - 1
#: Ranges that a text shows.
_MOST_SHOWN: Final = 8
_RUNS, _BITS = 0, 1


class FormError(ValueError):
    """Bytes are malformed: this module would not have written them."""


def encode_number(value: int) -> bytes:
    """Encode a number from 0 on as a varint: groups of seven bits, the lowest first."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


class Reader:
    """A cursor over bytes; each method raises `FormError` where they end too early."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data: Final = data
        self.position = position

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes were read."""
        return self.position == len(self._data)

    def number(self, limit: int = (1 << 63) - 1) -> int:
        """Read what `encode_number` has written, up to a limit."""
        data, position = self._data, self.position
        value = shift = 0
        while position < len(data):
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                # A second form of the same number would be a second token of the same rights.
                if (byte == 0 and shift) or value > limit:
                    break
                self.position = position
                return value
            shift += 7
            if shift > 63:
                break
        raise FormError("a number that is cut off, too large or not in its shortest form")

    def take(self, count: int) -> bytes:
        """Read so many bytes."""
        end = self.position + count
        if end > len(self._data):
            raise FormError("bytes that are cut off")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def sized(self) -> bytes:
        """Read a length and so many bytes."""
        return self.take(self.number(len(self._data)))

    def text(self) -> str:
        """Read a length and so many bytes of UTF-8 text."""
        try:
            return self.sized().decode()
        except UnicodeDecodeError:
            raise FormError("text that is not UTF-8") from None


class PartitionSet:
    """A set of partition numbers, in its encoded form.

    >>> few = PartitionSet.of([0, 1, 2, 5])
    >>> 1 in few, 3 in few, str(few)
    (True, False, '0-2, 5')
    >>> len(PartitionSet.of(range(0, 20_000, 2)).written)
    6
    """

    __slots__ = ("_bits", "_blocks", "_starts", "written")

    def __init__(self, written: bytes) -> None:
        """Decode a whole set; raise `FormError` if the bytes are malformed."""
        self.written: Final = written
        reader = Reader(written)
        #: First partition of each block, ascending, and (run, period, end) of it: runs begin a period apart.
        self._starts: Final[list[int]] = []
        self._blocks: Final[list[tuple[int, int, int]]] = []
        self._bits = b""
        kind = reader.number(_BITS)
        if kind == _BITS:
            self._read_bits(reader)
        else:
            self._read_blocks(reader)

    @classmethod
    def of(cls, partitions: Iterable[int | Range]) -> PartitionSet:
        """Build a set of partitions and of ranges of them, in the shorter of both forms.

        Raises:
            ValueError: a number is none of a partition, or a range ends before it begins.
        """
        runs = _runs(partitions)
        written = _write_runs(runs)
        if runs:
            first, last = runs[0][0], runs[-1][1]
            if (last - first) // 8 < len(written):
                bits = 0
                for begin, end in runs:
                    bits |= ((1 << end - begin + 1) - 1) << begin - first
                dense = bytes([_BITS]) + encode_number(first) + bits.to_bytes((last - first) // 8 + 1, "little")
                written = min(written, dense, key=len)
        return cls(written)

    def _read_bits(self, reader: Reader) -> None:
        first = reader.number(LAST_PARTITION)
        self._bits = reader.take(len(self.written) - reader.position)
        bits = self._bits
        if (
            not bits
            or not bits[-1]
            or not bits[0] & 1
            or first + len(bits) * 8 - 9 + bits[-1].bit_length() > LAST_PARTITION
        ):
            raise FormError("partitions as bits that begin or end with none")
        self._starts.append(first)

    def _read_blocks(self, reader: Reader) -> None:
        position = 0
        while not reader.is_at_end:
            start = position + reader.number(LAST_PARTITION)
            shape = reader.number(1 << 33)
            run, count, period = shape >> 1, 1, 0
            if shape & 1:
                count = reader.number(LAST_PARTITION) + 2
                period = reader.number(LAST_PARTITION)
            if not run or (count > 1 and period <= run):
                raise FormError("a run of no partitions, or runs that overlap")
            position = start + (count - 1) * period + run
            if position - 1 > LAST_PARTITION:
                raise FormError("partitions beyond the last that can be")
            self._starts.append(start)
            self._blocks.append((run, period or run, position))

    def __contains__(self, partition: object) -> bool:
        if not isinstance(partition, int):
            return False
        if self._bits:
            offset = partition - self._starts[0]
            return 0 <= offset < len(self._bits) * 8 and self._bits[offset >> 3] >> (offset & 7) & 1 == 1
        index = bisect_right(self._starts, partition) - 1
        if index < 0:
            return False
        run, period, end = self._blocks[index]
        return partition < end and (partition - self._starts[index]) % period < run

    def ranges(self) -> Iterator[Range]:
        """Return the first and last of each run, ascending: as many as there are, which may be far more than bytes."""
        if self._bits:
            first, text = self._starts[0], bin(int.from_bytes(self._bits, "little"))[:1:-1]
            begin = 0
            while begin >= 0:
                end = text.find("0", begin)
                end = len(text) if end < 0 else end
                yield first + begin, first + end - 1
                begin = text.find("1", end)
            return
        for start, (run, period, end) in zip(self._starts, self._blocks, strict=True):
            for begin in range(start, end, period):
                yield begin, begin + run - 1

    def __str__(self) -> str:
        shown: list[str] = []
        for first, last in self.ranges():
            if len(shown) == _MOST_SHOWN:
                return ", ".join([*shown, "..."])
            shown.append(str(first) if first == last else f"{first}-{last}")
        return ", ".join(shown) or "none"

    def __repr__(self) -> str:
        return f"PartitionSet({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSet) and self.written == other.written

    def __hash__(self) -> int:
        return hash(self.written)


def _runs(partitions: Iterable[int | Range]) -> list[Range]:
    """Merge ranges into ascending ones that neither overlap nor touch."""
    pairs = sorted((each, each) if isinstance(each, int) else (each[0], each[1]) for each in partitions)
    runs: list[Range] = []
    for first, last in pairs:
        if not 0 <= first <= last <= LAST_PARTITION:
            raise ValueError(f"partitions {first} to {last}: 0 to {LAST_PARTITION} are expected, the lower one first")
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return runs


def _write_runs(runs: list[Range]) -> bytes:
    """Write each block as its distance, its run, and where it repeats how often and after how many."""
    parts = [bytes([_RUNS])]
    position = index = 0
    while index < len(runs):
        start, last = runs[index]
        run, count, period = last - start + 1, 1, 0
        following = index + 1
        while following < len(runs):
            begin, end = runs[following]
            step = begin - runs[following - 1][0]
            if end - begin + 1 != run or (period and step != period):
                break
            period = step
            count += 1
            following += 1
        # Two runs alone are as short without a repetition, and may begin a longer one.
        if count == 2:
            following, count = index + 1, 1
        parts.append(encode_number(start - position) + encode_number(run << 1 | (count > 1)))
        if count > 1:
            parts.append(encode_number(count - 2) + encode_number(period))
        position = runs[following - 1][1] + 1
        index = following
    return b"".join(parts)
