"""The sink of `format("kohort")`: its writers in the driver and in the executors, and their producers.

Laws: a writer is a plain value without connections, made for every batch and pickled to the tasks. Without
`kohort.exactlyOnce` rows are written at least once: those that a failed or repeated attempt has stored stay stored, and
the driver logs where. A task ends when its last record is acknowledged, or with an error that says which records are
stored; after an error no more records of the task are sent. No Python object per record.
Source: PySpark's data sources, measured with 4.3; Spark's Kafka sink (KafkaWriter, KafkaRowWriter); P1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import pyspark
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kohort.client.producer.producer import Producer
from kohort.client.records import SentMany
from kohort.errors import ConfigError, KohortError, PartlySentError
from kohort.ids import TopicPartition
from kohort.spark.options import SinkOptions
from kohort.spark.workers import keep_producer, spare_collections, take_producer

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from kohort.spark.exactly_once import BatchTransaction, Part

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _SPARK_IS_TOO_OLD = False
except ImportError:
    _SPARK_IS_TOO_OLD = True
    DataSourceStreamArrowWriter = object  # type: ignore[assignment,misc]

_log = logging.getLogger(__name__)

#: Remarks on options that this process has logged already: Spark makes two writers for every micro-batch.
_told: Final[set[str]] = set()


class NoStreamSinkError(KohortError):
    """This PySpark can pass the rows of a stream to a sink only one by one."""

    def __str__(self) -> str:
        return (
            f'writeStream.format("kohort") needs PySpark 4.1 or newer, this is {pyspark.__version__}: older ones hand '
            'over row by row; upgrade PySpark, or write.format("kohort") inside foreachBatch, which works with 4.0'
        )


def require_stream_sink() -> None:
    """Raise `NoStreamSinkError` if the stream writer cannot work."""
    if _SPARK_IS_TOO_OLD:
        raise NoStreamSinkError


class _Writer:
    """The code that the writers of batches and of streams share."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema, options.topic)
        #: The transaction of the batch, once the writer has been pickled.
        self._transaction: BatchTransaction | None = None
        for remark in options.remarks:
            if remark not in _told:
                _told.add(remark)
                _log.warning("%s", remark)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write the rows of one task; runs in an executor."""
        return write_rows(self._options, self._columns, iterator, transaction=self._transaction)


class KohortBatchWriter(_Writer, DataSourceArrowWriter):
    """The writer that appends a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                'Save mode Overwrite not allowed for Kafka, whose topics are only appended to: mode("append") it is'
            )
        if options.is_exactly_once:
            raise ConfigError(
                "kohort.exactlyOnce is for writeStream: a batch has no number by which it is known again, and neither "
                "has a write inside foreachBatch; write the streaming DataFrame itself"
            )
        super().__init__(options, schema)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the stored rows, after all tasks have succeeded."""
        _tell_end("the batch is written", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the rows that other tasks have stored, after a task has failed for good."""
        _tell_failure("the batch has failed", messages)


class KohortStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer that appends the rows of a streaming query, micro-batch by micro-batch.

    In complete mode, which Spark calls overwriting, every micro-batch appends its whole result, as by Spark's sink.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.is_exactly_once:
            # Most queries have no transactions.
            from kohort.spark.exactly_once import with_transactional_id

            options = with_transactional_id(options)
        super().__init__(options, schema)

    def __getstate__(self) -> dict[str, object]:
        """Begin the batch's transaction before the writer travels.

        The writer behind the tasks, which is made anew, never does.
        """
        if self._options.is_exactly_once and self._transaction is None:
            from kohort.spark.exactly_once import begin

            # PySpark pickles the writer twice: another epoch would fence the first one's tasks.
            self._transaction = begin(self._options)
        return self.__dict__.copy()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch's transaction, or log the stored rows; Spark's commit log has no such batch yet."""
        if self._options.is_exactly_once:
            from kohort.spark.exactly_once import commit

            if not commit(self._options, _written(messages), batchId):
                _log.info("batch %d was written before, or has no rows", batchId)
                return
        _tell_end(f"batch {batchId} is written", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the batch's transaction, or log the rows stored before a task failed or the query was stopped.

        Spark repeats the batch.
        """
        if self._options.is_exactly_once:
            from kohort.spark.exactly_once import abort

            if abort(self._options, _written(messages)):
                _log.warning("batch %d has failed, and its transaction is aborted", batchId)
            else:
                _log.warning("batch %d has failed; its transaction has ended, or the next attempt ends it", batchId)
            return
        _tell_failure(f"batch {batchId} has failed", messages)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def stored_by(messages: Sequence[WriterCommitMessage | None]) -> Ledger:
    """Return the ledger of the rows that successful tasks have stored; a failed task sends `None`."""
    ledger = Ledger()
    for message in _written(messages):
        ledger.merge(message.stored)
    return ledger


def _tell_end(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    _log.info("%s: %s", what, as_text(stored_by(messages).stored()))


def _tell_failure(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    stored = stored_by(messages).stored()
    if stored:
        _log.warning("%s; other tasks have stored %s: a repetition stores that again", what, as_text(stored))


#: column -> its possible types, in Spark's notation; other columns are not written, as by Spark's sink.
_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}

#: Header -> the local property of a task in which Spark has its value.
_BATCH_HEADERS: Final = {"kohort.query": "sql.streaming.queryId", "kohort.batch": "streaming.sql.batchId"}


class Stored(NamedTuple):
    """The rows that one task has stored in a partition: a count between two offsets.

    Other producers may have written between the same offsets.
    """

    topic: str
    partition: int
    #: The offset of the first row; -1 if the broker sends no response (acks=0).
    first_offset: int
    #: The offset after the last row; -1 likewise.
    end_offset: int
    record_count: int

    def __str__(self) -> str:
        where = TopicPartition(self.topic, self.partition)
        offsets = "" if self.first_offset < 0 else f" in [{self.first_offset}, {self.end_offset})"
        return f"{self.record_count} to {where}{offsets}"


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver: the rows that it has stored, by partition."""

    stored: tuple[Stored, ...]
    #: Its part in the transaction of the batch, if there is one.
    part: Part | None = None
    #: Whether the batch was in the topic already, so that the task has written nothing.
    is_repeated: bool = False

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have rows of the task."""
        return [TopicPartition(each.topic, each.partition) for each in self.stored]


class RowsNotAcknowledgedError(KohortError):
    """A task could not store all of its rows, or cannot know whether it did.

    Args:
        failed_count: rows that no broker has acknowledged; the rest of the task was not tried.
        stored: rows that are stored, and will be stored again when Spark repeats the task.
        reason: the error of the first failed row, as text; the error itself is the `__cause__`.
    """

    def __init__(self, failed_count: int, stored: tuple[Stored, ...], reason: str, retriable: bool = False) -> None:
        super().__init__(failed_count, stored, reason, retriable)
        self.failed_count = failed_count
        self.stored = stored
        self.reason = reason
        self.retriable = retriable

    def __str__(self) -> str:
        rows = "1 row was" if self.failed_count == 1 else f"{self.failed_count} rows were"
        return f"{rows} not acknowledged: {self.reason}; stored: {as_text(self.stored)}"


class NullTopicError(KohortError):
    """A row names no topic, and the option `topic` is not given."""

    def __str__(self) -> str:
        return (
            "[KAFKA_NULL_TOPIC_IN_DATA] The Kafka message data sent to the producer contains a null topic. "
            "Use the `topic` option for setting a default topic."
        )


def check_schema(schema: StructType, topic: str | None) -> tuple[int, ...]:
    """Return the indexes of the columns to write; raise `ConfigError` with the text of Spark's sink.

    Args:
        topic: the option; if it is given a column of that name is ignored.
    """
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        if field.name in _TYPES and not (field.name == "topic" and topic is not None):
            places.setdefault(field.name, place)
    if topic is None and "topic" not in places:
        raise ConfigError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in places:
        raise ConfigError("Required attribute 'value' not found")
    for name, place in places.items():
        kind = schema.fields[place].dataType.simpleString()
        if kind not in _TYPES[name]:
            raise ConfigError(
                f"{name} attribute unsupported type {kind}. {name} must be a(n) {' or '.join(_TYPES[name])}"
            )
    return tuple(places.values())


class Ledger:
    """The rows that tasks have stored, summed up by partition."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], Stored] = {}

    def add(self, sent: Iterable[SentMany]) -> None:
        """Add the rows that one call of the producer has stored."""
        for each in sent:
            for part in each.ranges:
                end = -1 if part.base_offset < 0 else part.base_offset + part.record_count
                self.merge([Stored(each.topic, part.partition, part.base_offset, end, part.record_count)])

    def merge(self, stored: Iterable[Stored]) -> None:
        """Add the rows of another ledger."""
        for more in stored:
            place = (more.topic, more.partition)
            known = self._parts.get(place, more._replace(record_count=0))
            self._parts[place] = Stored(
                *place,
                min(known.first_offset, more.first_offset),
                max(known.end_offset, more.end_offset),
                known.record_count + more.record_count,
            )

    def stored(self) -> tuple[Stored, ...]:
        """Return the stored rows by topic and partition."""
        return tuple(sorted(self._parts.values()))


def as_text(stored: Sequence[Stored]) -> str:
    """Format stored rows for a message."""
    return ", ".join(map(str, stored)) or "nothing"


def batch_headers() -> dict[str, str]:
    """Return headers of query and micro-batch, which are the same when Spark repeats the batch.

    Raises:
        ConfigError: the task belongs to no streaming query.
    """
    context = TaskContext.get()
    found = {name: context and context.getLocalProperty(place) for name, place in _BATCH_HEADERS.items()}
    if None in found.values():
        raise ConfigError(
            "kohort.batchHeaders=true is for streaming queries, foreachBatch included: a batch has no query and number"
        )
    return cast("dict[str, str]", found)


def write_rows(
    options: SinkOptions,
    columns: Sequence[int],
    batches: Iterable[pyarrow.RecordBatch],
    *,
    transaction: BatchTransaction | None = None,
) -> Written:
    """Send the rows of one task, and wait until the last is acknowledged; runs in an executor.

    Raises:
        NullTopicError: a row names no topic.
        RowsNotAcknowledgedError: not all rows could be stored; no more records of this task are sent.
        TransactionalWriteError: the same, or the task must not write; the batch's transaction is aborted.
    """
    spare_collections()
    headers = batch_headers() if options.adds_batch_headers else {}
    if transaction is not None:
        return _write_in_transaction(options, columns, batches, transaction, headers)
    producer = take_producer(options.client)
    task = _Task(producer, options.topic, columns, headers)
    try:
        task.send(batches)
    except BaseException as error:
        # All records that the producer still has are of this failed task.
        producer.close(timeout=0)
        if isinstance(error, NullTopicError) or not isinstance(error, KohortError):
            raise
        raise task.failure(error) from error
    keep_producer(options.client, producer)
    return Written(task.ledger.stored())


def _write_in_transaction(
    options: SinkOptions,
    columns: Sequence[int],
    batches: Iterable[pyarrow.RecordBatch],
    transaction: BatchTransaction,
    headers: Mapping[str, str],
) -> Written:
    from kohort.spark.exactly_once import enter, explain, leave_aborted, say_if_long

    part = enter(transaction)
    if transaction.is_written(part.number):
        return Written((), part, is_repeated=True)
    producer = take_producer(options.client)
    task = _Task(producer, options.topic, columns, headers)
    try:
        producer._join(transaction.identity)
        task.send(batches)
        producer._join(None)
    except BaseException as error:
        leave_aborted(producer)
        producer.close(timeout=0)
        if not isinstance(error, KohortError):
            raise
        raise explain(error, part) from error
    say_if_long(part)
    keep_producer(options.client, producer)
    return Written(task.ledger.stored(), part)


class _Task:
    """The rows sent for one task, and their outcome."""

    def __init__(
        self, producer: Producer, topic: str | None, columns: Sequence[int], headers: Mapping[str, str]
    ) -> None:
        self.ledger = Ledger()
        self._producer = producer
        self._topic = topic
        self._columns = list(columns)
        self._headers = headers
        #: Results of sent batches that are not in the ledger, in order.
        self._waiting: deque[Future[tuple[SentMany, ...]]] = deque()
        #: Rows that the producer has not accepted.
        self._refused = 0

    def send(self, batches: Iterable[pyarrow.RecordBatch]) -> None:
        """Send the batches and wait for the result of every row; raise the first error."""
        for batch in batches:
            self._refused = batch.num_rows
            rows = batch.select(self._columns)
            if self._topic is None and rows.column("topic").null_count:
                raise NullTopicError
            self._waiting.append(self._producer.send_arrow(rows, self._topic, headers=self._headers))
            self._refused = 0
            while self._waiting and self._waiting[0].done():
                self._settle_next()
        self._producer.flush()
        while self._waiting:
            self._settle_next()

    def _settle_next(self) -> None:
        self.ledger.add(self._waiting[0].result())
        del self._waiting[0]

    def failure(self, why: KohortError) -> RowsNotAcknowledgedError:
        """Build the error of this task, after its producer is closed and every row has its outcome."""
        failed_count = self._refused
        for future in self._waiting:
            error = future.exception(timeout=0)
            if isinstance(error, PartlySentError):
                failed_count += error.failed_count
                self.ledger.add(cast("tuple[SentMany, ...]", error.stored))
            else:
                self.ledger.add(future.result())
        cause = why.__cause__ if isinstance(why, PartlySentError) else why
        return RowsNotAcknowledgedError(failed_count, self.ledger.stored(), str(cause), why.retriable)
