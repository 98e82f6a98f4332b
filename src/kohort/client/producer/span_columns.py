"""The rows of memory columns, as `Columns`: the machine's batches are written straight out of them.

Laws: no Python object is made of a row, except for an application's own partitioner.
Source: the Arrow columnar format; C9.
Apart: it is loaded, with the kernels of spans, by the first table that a producer sends.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kohort.client.producer.bulk_send import Columns
from kohort.records.span_kernels import SpanColumn, measure_spans, spread_spans, write_spans


class SpanColumns(Columns):
    """Columns that are in memory as Arrow has them: `SpanColumn`s, times and partitions (-1: none) as int64[count]."""

    _measured = staticmethod(measure_spans)
    _written = staticmethod(write_spans)

    @staticmethod
    def _part_of(column: SpanColumn, start: int, stop: int) -> SpanColumn:  # noqa: ARG004  # the count of rows ends it
        return column.part(start)

    def spread(self, count: int, turn: int) -> list[Sequence[int]]:
        """See `Columns`."""
        partitions = memoryview(bytearray(4 * self.count)).cast("i")
        bounds = memoryview(bytearray(8 * (count + 2))).cast("q")
        order = memoryview(bytearray(8 * self.count)).cast("q")
        if not spread_spans(self._keys, self._partitions, count, turn, partitions, bounds, order):
            return []
        return [order[bounds[number] : bounds[number + 1]] for number in range(count)]

    def chosen(self, rows: list[int]) -> memoryview:
        """See `Columns`."""
        return memoryview(array("q", rows))

    def key_of(self, row: int) -> bytes | None:
        """See `Columns`."""
        return None if self._keys is None else self._keys.cut(row)

    def partition_of(self, row: int) -> int | None:
        """See `Columns`."""
        partition = -1 if self._partitions is None else self._partitions[row]
        return None if partition < 0 else partition
