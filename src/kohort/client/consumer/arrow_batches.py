"""Fetched data as Arrow record batches; Arrow itself is imported at the first call only.

Laws: only the chosen columns are decoded. Damaged records do not cost the good ones before them.
Source: architecture, `poll_arrow`; the columns are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kohort.client.fetch.fetch_handler import FetchHandler
from kohort.errors import CorruptRecordError, MissingDependencyError, UnknownOptionError

if TYPE_CHECKING:
    import pyarrow

_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_HEADERS: Final = "headers"
#: Bytes of records in one batch: enough to be quick, and within a processor's cache; a single record may be larger.
_BATCH_BYTES: Final = 1024 * 1024
#: Bytes of records that one call returns by default.
DEFAULT_MAX_BYTES: Final = 8 * 1024 * 1024


def choose_columns(columns: Sequence[str] | None, *, include_headers: bool) -> tuple[str, ...]:
    """Check the columns to build, and return them; `None` means all but headers.

    Raises:
        MissingDependencyError: pyarrow is not installed.
        UnknownOptionError: there is no such column.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingDependencyError("pyarrow", "arrow") from None
    chosen = tuple(_COLUMNS if columns is None else columns)
    for name in chosen:
        if name not in (*_COLUMNS, _HEADERS):
            raise UnknownOptionError(name, (*_COLUMNS, _HEADERS), what="column")
    return (*chosen, _HEADERS) if include_headers and _HEADERS not in chosen else chosen


def take_batches(
    handler: FetchHandler,
    include: tuple[str, ...],
    on_decoded: Callable[[], None],
    *,
    max_records: int,
    max_bytes: int,
) -> list[pyarrow.RecordBatch]:
    """Build record batches of the data that has arrived.

    Args:
        handler: holds the data.
        include: the columns, as `choose_columns` returns them.
        on_decoded: called after each batch was decoded: the bytes that it was made of are free then.
        max_records: rows of all batches; further ones stay for the next call.
        max_bytes: bytes of their records; one record is always taken, however large.
    """
    from kohort.columnar import to_record_batch
    from kohort.records.columns import gather_columns

    batches: list[pyarrow.RecordBatch] = []
    try:
        while slices := handler.take_slices(
            max_records=max_records, max_bytes=min(max_bytes, _BATCH_BYTES), at_least_one=not batches
        ):
            columns = gather_columns(
                [(taken.scanned, taken.start, taken.stop) for taken in slices],
                with_keys="key" in include,
                with_values="value" in include,
                with_headers=_HEADERS in include,
                allocate=handler.allocate,
            )
            runs = [(*taken.partition, taken.stop - taken.start) for taken in slices]
            max_records -= len(columns)
            max_bytes -= sum(taken.size_bytes for taken in slices)
            del slices
            # The next fetch need not wait for the last batch.
            on_decoded()
            batches.append(to_record_batch(columns, runs=runs, include=include))
    except CorruptRecordError:
        # The records before the damage are returned; the next call raises.
        if not batches:
            raise
    return batches
