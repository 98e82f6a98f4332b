"""The rows of memory columns, as `Columns`: the machine's batches are written straight out of them.

Laws: no Python object is made of a row, except for an application's own partitioner.
Source: the Arrow columnar format; C9.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import cast

from kohort.client.producer.core.accumulator import RECORD_OVERHEAD_BYTES
from kohort.records.building import Writer
from kohort.records.span_kernels import SpanColumn, measure_spans, spread_spans, write_spans


class SpanColumns:
    """Columns that are in memory as Arrow has them.

    Args:
        count: number of rows.
        keys: `None` if no row has one.
        values: of the rows.
        times: int64[count], milliseconds; `None` means `time_ms` for all.
        time_ms: time of all rows, without `times`.
        tails: encoded headers of each row; `None` means `tail` for all.
        tail: encoded headers of all rows, without `tails`.
        partitions: int64[count], the rows' own partitions, -1 for none; `None` if no row has one.
    """

    def __init__(
        self,
        count: int,
        keys: SpanColumn | None,
        values: SpanColumn,
        *,
        times: memoryview | None,
        time_ms: int,
        tails: SpanColumn | None,
        tail: bytes,
        partitions: memoryview | None,
    ) -> None:
        self.count = count
        self._keys = keys
        self._values = values
        self._times = times
        self._time_ms = time_ms
        self._tails = tails
        self._tail = tail
        self._partitions = partitions
        self.overhead_bytes = RECORD_OVERHEAD_BYTES + (len(tail) if tails is None else 0)
        self.is_free = keys is None and partitions is None

    def part(self, start: int, stop: int) -> SpanColumns:
        """Return the rows from `start` to `stop`."""
        return SpanColumns(
            stop - start,
            None if self._keys is None else self._keys.part(start),
            self._values.part(start),
            times=None if self._times is None else self._times[start:stop],
            time_ms=self._time_ms,
            tails=None if self._tails is None else self._tails.part(start),
            tail=self._tail,
            partitions=None if self._partitions is None else self._partitions[start:stop],
        )

    def spread(self, count: int, turn: int) -> list[Sequence[int]]:
        """See `Columns`."""
        homes = memoryview(bytearray(4 * self.count)).cast("i")
        bounds = memoryview(bytearray(8 * (count + 2))).cast("q")
        order = memoryview(bytearray(8 * self.count)).cast("q")
        if not spread_spans(self._keys, self._partitions, count, turn, homes, bounds, order):
            return []
        return [order[bounds[number] : bounds[number + 1]] for number in range(count)]

    def chosen(self, rows: list[int]) -> memoryview:
        """See `Columns`."""
        return memoryview(array("q", rows))

    def measure(self, rows: Sequence[int] | None, position: int, stop: int, limit_bytes: int) -> tuple[int, int]:
        """See `Columns`."""
        return measure_spans(
            self._keys,
            self._values,
            self._tails,
            cast("memoryview | None", rows),
            position,
            stop,
            self.overhead_bytes,
            limit_bytes,
        )

    def writer(self, rows: Sequence[int] | None, position: int, stop: int) -> Writer:
        """See `Columns`."""
        spans = cast("memoryview | None", rows)
        return lambda out, at, base_time: write_spans(
            self._keys, self._values, self._times, self._tails, self._tail, spans, position, stop, base_time, out, at
        )

    def time_of(self, row: int) -> int:
        """See `Columns`."""
        return self._time_ms if self._times is None else self._times[row]

    def key_of(self, row: int) -> bytes | None:
        """See `Columns`."""
        return None if self._keys is None else self._keys.cut(row)

    def partition_of(self, row: int) -> int | None:
        """See `Columns`."""
        partition = -1 if self._partitions is None else self._partitions[row]
        return None if partition < 0 else partition
