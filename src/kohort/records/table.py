"""The table of a buffer's batches, as kernels fill it.

Laws: the table holds only batches whose headers do not contradict each other; what is wrong with the one behind
them is kept and raised by the reader that comes to it.
"""

from __future__ import annotations

from kohort.errors import CorruptRecordError
from kohort.records.arrays import zeros
from kohort.records.choice import KernelSet
from kohort.records.header import check_counts, parse_header, split_batches
from kohort.records.layout import TABLE_WIDTH


def read_table(view: memoryview, kernels: KernelSet) -> tuple[memoryview, int, CorruptRecordError | None]:
    """Return the batch table, its number of batches, and the fault of the batch behind them."""
    count = kernels.count_batches(view)
    table = zeros("q", count * TABLE_WIDTH)
    end = kernels.index_batches(view, table, count)
    if end < 0:
        position = -1 - end
        header = parse_header(view, position)
        fault = CorruptRecordError(
            f"the batch at offset {header.base_offset} lies in front of the end of the one before it"
        )
        try:
            check_counts(header)
        except CorruptRecordError as error:
            fault = error
        fault.byte = position
        return table, kernels.count_batches(view[:position]), fault
    try:
        split_batches(view[end:])
    except CorruptRecordError as error:
        error.byte = end
        return table, count, error
    return table, count, None


def table_field(table: memoryview, field: int, first: int, stop: int) -> list[int]:
    """Return one column of the table, for the batches [first, stop)."""
    return table[first * TABLE_WIDTH + field : stop * TABLE_WIDTH : TABLE_WIDTH].tolist()
