"""Columns of record bytes in one call, with every row of what was scanned."""

from __future__ import annotations

from typing import Any

from kohort.records.columns import RecordColumns, gather_columns
from kohort.records.scan import scan_batches


def decode_columns(
    buffer: bytes | bytearray | memoryview,
    *,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = True,
    **scan: Any,
) -> RecordColumns:
    """Scan whole batches, `scan` being arguments of `scan_batches`, and gather all of their rows."""
    scanned = scan_batches(buffer, **scan)
    return gather_columns(
        [(scanned, 0, len(scanned))], with_keys=with_keys, with_values=with_values, with_headers=with_headers
    )
