"""The batches without those of aborted transactions, for `isolation.level` read_committed.

Laws: a batch is left out if its producer's transaction began at or before it and was aborted behind it. Everything else
stays, in order and without a copy.
Source: Kafka's `isolation.level` read_committed: the Fetch answer lists aborted transactions by producer and first
offset, and a control batch ends each.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from kohort.records.batch import iterate_records
from kohort.records.header import split_batches

#: Key of a control record: its version and type; type 0 ends a transaction by aborting it.
_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


def committed_parts(records: memoryview, aborted: Sequence[tuple[int, int]]) -> list[memoryview]:
    """Return the stretches of `records` without the batches of aborted transactions.

    Args:
        records: whole batches.
        aborted: (producer id, first offset) of each aborted transaction, in any order.
    """
    if not aborted:
        return [records]
    waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
    active: set[int] = set()
    parts: list[memoryview] = []
    start = 0
    for position, header in split_batches(records):
        while waiting and waiting[-1][1] <= header.last_offset:
            active.add(waiting.pop()[0])
        end = position + header.size_bytes
        if header.is_control:
            if _is_abort(records[position:end]):
                active.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in active:
            if position > start:
                parts.append(records[start:position])
            start = end
    if start < len(records):
        parts.append(records[start:])
    return parts


def _is_abort(batch: memoryview) -> bool:
    for record in iterate_records(batch, include_control=True):
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            return bool(_CONTROL_KEY.unpack_from(record.key)[1] == _ABORT)
    return False
