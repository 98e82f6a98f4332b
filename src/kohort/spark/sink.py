"""The sink, as Spark calls it in the driver and in the executors.

Laws: a writer is a plain value, made anew for every batch and pickled to the tasks; nothing is live in it. Rows are
written at least once: rows that a failed or repeated attempt has stored stay stored, and the driver logs where.
Source: PySpark's data sources, measured with 4.3; P1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kohort.errors import ConfigError, KohortError
from kohort.spark.sinkoptions import SinkOptions
from kohort.spark.writing import Ledger, Written, as_text, check_schema, write_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _SPARK_IS_TOO_OLD = False
except ImportError:
    _SPARK_IS_TOO_OLD = True
    DataSourceStreamArrowWriter = object  # type: ignore[assignment,misc]

_log = logging.getLogger(__name__)

#: Remarks on options that this process has logged: Spark makes a writer for every micro-batch, twice.
_told: Final[set[str]] = set()


class NoStreamSinkError(KohortError):
    """This PySpark hands streams to a sink row by row only."""

    def __str__(self) -> str:
        return (
            f'writeStream.format("kohort") needs PySpark 4.1 or newer, this is {pyspark.__version__}: older ones hand '
            'over row by row; upgrade PySpark, or write.format("kohort") inside foreachBatch, which works with 4.0'
        )


def require_stream_sink() -> None:
    """Raise `NoStreamSinkError` if the stream writer cannot work."""
    if _SPARK_IS_TOO_OLD:
        raise NoStreamSinkError


class KohortBatchWriter(DataSourceArrowWriter):
    """The writer that appends a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                'Save mode Overwrite not allowed for Kafka, whose topics are only appended to: mode("append") it is'
            )
        self._options = options
        self._columns = check_schema(schema, options.topic)
        _tell_remarks(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write the rows of one task; runs in an executor."""
        return write_rows(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Note that all tasks have succeeded."""
        _tell_end("the batch is written", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report a task that has failed for good."""
        _tell_failure("the batch has failed", messages)


class KohortStreamWriter(DataSourceStreamArrowWriter):
    """The writer that appends the rows of a streaming query, micro-batch by micro-batch.

    In complete mode, which Spark calls overwriting, every micro-batch appends its whole result, as by Spark's sink.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema, options.topic)
        _tell_remarks(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write the rows of one task; runs in an executor."""
        return write_rows(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Note that all tasks have succeeded; Spark's commit log does not have the batch yet."""
        _tell_end(f"batch {batchId} is written", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report a failed task or a stopped query; Spark will repeat the batch."""
        _tell_failure(f"batch {batchId} has failed", messages)


def stored_by(messages: Sequence[WriterCommitMessage | None]) -> Ledger:
    """Return the ledger of the rows that successful tasks have stored; a failed task sends `None`."""
    ledger = Ledger()
    for message in messages:
        if isinstance(message, Written):
            ledger.merge(message.stored)
    return ledger


def _tell_remarks(options: SinkOptions) -> None:
    for remark in options.remarks:
        if remark not in _told:
            _told.add(remark)
            _log.warning("%s", remark)


def _tell_end(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    _log.info("%s: %s", what, as_text(stored_by(messages).stored()))


def _tell_failure(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    stored = stored_by(messages).stored()
    if stored:
        _log.warning("%s; other tasks have stored %s: a repetition stores that again", what, as_text(stored))
