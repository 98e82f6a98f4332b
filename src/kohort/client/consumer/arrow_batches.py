"""What has been fetched as Arrow record batches; Arrow itself is imported on the first call only.

Laws: a column that nobody asked for is not decoded; damaged records behind good ones do not cost the good ones.
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


def choose_columns(columns: Sequence[str] | None, *, include_headers: bool) -> tuple[str, ...]:
    """The columns to build, checked; `None` means all but headers.

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
    handler: FetchHandler, include: tuple[str, ...], on_decoded: Callable[[], None]
) -> list[pyarrow.RecordBatch]:
    """Everything that has arrived; `on_decoded` is called after each piece, whose buffer is free from then on."""
    from kohort.columnar import to_record_batch

    batches: list[pyarrow.RecordBatch] = []
    pieces = handler.take_columns(
        with_keys="key" in include, with_values="value" in include, with_headers=_HEADERS in include
    )
    try:
        for (topic, partition), columns in pieces:
            # The next fetch need not wait for the last piece.
            on_decoded()
            batches.append(to_record_batch(columns, topic=topic, partition=partition, include=include))
    except CorruptRecordError:
        if not batches:
            raise
    return batches
