"""The transaction of a micro-batch: begun before its tasks, ended behind them, and known again when Spark repeats it.

PySpark makes the stream's writer twice for each batch, in two processes. The first travels to the tasks: when it is
pickled it takes producer id and epoch, which ends the transaction that an earlier attempt has left. The tasks write
under that one id. The second gets the tasks' messages, and ends the transaction with the ids in them.

A source of kohort's that is a member of a group leaves a note of its open batch. The offsets behind that batch are
committed in the transaction, too: members that take over from a dead query begin where it has written to.

Laws: the number of the batch is committed in its transaction, as an offset of the group that is called like the
transactional id, and read only after the earlier attempt's transaction has ended. A batch whose number is there is not
written again. A task that is run again writes nothing. An aborted transaction's ids are fenced, so that no task of the
batch can go on under them. A checkpoint that was put back is refused, because its batches have other rows.
Source: KIP-98, KIP-360, KIP-447; Spark's StreamExecution, which logs a batch in `offsets/N` before its tasks run;
PySpark's worker processes of a data source, measured with 4.3.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from pickle import PicklingError
from typing import Final, Protocol, cast

from pyspark import TaskContext

from kohort.client.consumer.consumer import Consumer
from kohort.client.options import CONSUMER_OPTIONS
from kohort.client.producer.core.producer_events import ProducerIdAndEpoch
from kohort.client.producer.producer import Producer
from kohort.client.records import GroupMetadata, OffsetAndMetadata
from kohort.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    TransactionAbortableError,
    UnsupportedFeatureError,
)
from kohort.ids import TopicPartition
from kohort.spark.checkpoint import read_sources, to_local_path
from kohort.spark.driver_channel import OpenBatch, find_batch, fingerprint
from kohort.spark.member.batch_notes import from_offsets, to_offsets
from kohort.spark.member.lineage import Holder, Ledger, is_last_holder
from kohort.spark.offsets import from_json
from kohort.spark.options import SinkOptions
from kohort.spark.workers import keep_producer, take_producer

_log = logging.getLogger(__name__)

_TIMEOUT: Final = "transaction.timeout.ms"
#: Share of the timeout after which a batch is said to be long.
_LONG: Final = 0.5
#: Codes of a producer whose transaction was ended by the coordinator or by another producer.
_FENCED: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
#: Codes of a partition to which another task has written under the same ids.
_SHARED: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
#: Codes of a member whose epoch has changed since; the second one before KIP-1319.
_STALE: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
#: Tries to commit the offsets of a source whose group moves meanwhile; its reader looks every tenth of a second.
_MOST_ATTEMPTS: Final = 20
_NOTE_S: Final = 0.15
#: Longest wait for the abort of a failed batch, seconds; after it the next attempt, or the timeout, aborts it.
ABORT_S: Final = 10.0


class TransactionalWriteError(KohortError, PicklingError):
    """A batch that cannot be written exactly once; its transaction is aborted, or was not begun.

    PySpark reports an error of pickling as it is, and hides others behind a sentence of its own.
    """


@dataclass(frozen=True)
class Batch:
    """A micro-batch as Spark's checkpoint has it; `digest` differs where the same number stands for other rows."""

    number: int
    digest: str


@dataclass(frozen=True)
class Query:
    """The id and newest batch of a streaming query, from its checkpoint; `None` if unreadable."""

    query_id: str | None
    #: The batch that is running: the newest one of the offset log.
    newest: Batch | None


def read_query(location: str | None) -> Query:
    """Read a query's checkpointLocation; nothing is known of one that is not on this machine's file system."""
    folder = None if location is None else to_local_path(location)
    if folder is None:
        return Query(None, None)
    query_id, newest = None, None
    with suppress(OSError, ValueError, KeyError, TypeError):
        query_id = str(json.loads((folder / "metadata").read_text())["id"])
    with suppress(OSError, ValueError):
        number = max(int(path.name) for path in (folder / "offsets").iterdir() if path.name.isdigit())
        # It has the time of its plan, too, so that a batch that is planned anew differs with the same offsets.
        digest = sha256((folder / "offsets" / str(number)).read_bytes()).hexdigest()[:32]
        newest = Batch(number, digest)
    return Query(query_id, newest)


def with_transactional_id(options: SinkOptions) -> SinkOptions:
    """Return the options with the transactional id of the query; `ConfigError` if it has none."""
    name = options.transactional_id
    if name is None:
        query_id = read_query(options.checkpoint_location).query_id
        if query_id is None:
            where = options.checkpoint_location
            why = "there is no checkpointLocation" if where is None else f"the checkpoint {where} is not readable here"
            raise ConfigError(
                f"kohort.exactlyOnce needs a name for the query's transactions, and {why}: give the option "
                "kohort.transactionalId a name that no other query has, and keep it as long as the checkpoint"
            )
        name = f"kohort-{query_id}"
    return replace(options, client={**options.client, "transactional.id": name})


@dataclass(frozen=True)
class BatchTransaction:
    """The transaction of one batch, as the tasks and the writer behind them know it."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    #: Clock of the driver, seconds; and the timeout after which the coordinator ends the transaction.
    begun_s: float
    timeout_s: float
    query: Query
    #: The number behind the last batch that was written; 0 for none, and the digest of that batch.
    written: int
    written_digest: str | None
    #: The id of the query that has written it; `None` if that is not known.
    owner: str | None = None

    def check_owner(self, query_id: str | None) -> None:
        """Raise `TransactionalWriteError` if another query has written under this transactional id."""
        if None not in (self.owner, query_id) and self.owner != query_id:
            name = self.transactional_id
            raise TransactionalWriteError(
                f"the transactional id {name} is that of another query ({self.owner}): give each query its own "
                f"kohort.transactionalId, or delete the group {name} if that query does not come back"
            )

    def is_written(self, number: int) -> bool:
        """Return whether the batch of this number is in the topic already.

        Raises:
            TransactionalWriteError: later batches are, or another one of the same number.
        """
        if self.written <= number:
            return False
        newest = self.query.newest
        digest = None if newest is None or newest.number != number else newest.digest
        is_same = self.written_digest is None or digest is None or digest == self.written_digest
        if self.written == number + 1 and is_same:
            return True
        raise TransactionalWriteError(
            f"batch {self.written - 1} of {self.transactional_id} is in the topic, and Spark runs "
            f"{'another batch of that number' if self.written == number + 1 else f'batch {number}'}: the checkpoint "
            "is an older copy, or another query's. To go on, give the query a new checkpointLocation and "
            "startingOffsets behind what is written; to write those rows again, delete the group "
            f"{self.transactional_id}, which has the number"
        )

    def marker(self, number: int, query_id: str | None) -> OffsetAndMetadata:
        """Return the offset that says that a batch is written."""
        newest = self.query.newest
        digest = newest.digest if newest is not None and newest.number == number else None
        known = {"query": query_id or self.query.query_id, "digest": digest}
        return OffsetAndMetadata(number + 1, json.dumps({name: value for name, value in known.items() if value}))

    @property
    def age_s(self) -> float:
        """Seconds since the transaction could begin, as far as the clocks agree."""
        return time.time() - self.begun_s


#: A process of Spark's that writes for many queries keeps no more consumers.
_READERS_AT_MOST: Final = 2
#: Consumers of this process that read offsets, by their settings.
_readers: Final[dict[tuple[tuple[str, object], ...], Consumer]] = {}


def begin(options: SinkOptions) -> BatchTransaction:
    """Take producer id and epoch for the next batch, and read which batch is written; runs in the driver.

    Raises:
        TransactionalWriteError: the broker has no transactions, or does not answer; or the checkpoint was put back.
    """
    name = options.client["transactional.id"]
    query = read_query(options.checkpoint_location)
    begun_s = time.time()
    try:
        producer = take_producer(options.client)
        try:
            identity = producer._initialize()
            producer._join(None)
        except BaseException:
            producer.close(timeout=0)
            raise
        keep_producer(options.client, producer)
        # Only now the transaction of an earlier attempt has ended, and what it has committed can be seen.
        written = _read_marker(options)
    except UnsupportedFeatureError as why:
        raise TransactionalWriteError(f"kohort.exactlyOnce needs a broker with transactions: {why}") from why
    except KohortError as why:
        raise TransactionalWriteError(f"the transaction of {name} cannot begin: {why}") from why
    told = _parse(written.metadata) if written is not None else {}
    transaction = BatchTransaction(
        transactional_id=name,
        identity=identity,
        begun_s=begun_s,
        timeout_s=int(options.client[_TIMEOUT]) / 1000,
        query=query,
        written=0 if written is None else written.offset,
        written_digest=told.get("digest"),
        owner=told.get("query"),
    )
    transaction.check_owner(query.query_id)
    if query.newest is not None:
        # The checkpoint is refused before a task begins.
        transaction.is_written(query.newest.number)
    return transaction


def marker_partition(options: SinkOptions) -> TopicPartition:
    """Return the partition of which the number of the last batch is an offset."""
    assert options.topic is not None, "checked with the options"
    return TopicPartition(options.topic, 0)


def _read_marker(options: SinkOptions) -> OffsetAndMetadata | None:
    with _open_reader(options, options.client["transactional.id"]) as reader:
        return reader.committed(marker_partition(options), metadata=True)


@contextmanager
def _open_reader(options: SinkOptions, group_id: str) -> Iterator[Consumer]:
    """Yield a consumer that reads offsets of a group, and keep it for the next batch."""
    shared = {name: value for name, value in options.client.items() if name in CONSUMER_OPTIONS}
    settings: dict[str, object] = {**shared, "group.id": group_id}
    key = tuple(sorted(settings.items()))
    reader = _readers.pop(key, None) or Consumer.from_config({**settings, "enable.auto.commit": False})
    try:
        yield reader
    except BaseException:
        reader.close(timeout=0)
        raise
    if _readers.setdefault(key, reader) is not reader:
        reader.close(timeout=0)
    while len(_readers) > _READERS_AT_MOST:
        _readers.pop(next(iter(_readers))).close(timeout=0)


def _parse(metadata: str) -> dict[str, str]:
    with suppress(ValueError):
        told = json.loads(metadata)
        if isinstance(told, dict):
            return {name: value for name, value in told.items() if isinstance(value, str)}
    return {}


# -- the tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The part of a task in its batch's transaction."""

    transaction: BatchTransaction
    query_id: str
    number: int


def enter(transaction: BatchTransaction) -> Part:
    """Return the part of the task that runs in this process.

    Raises:
        TransactionalWriteError: this task was run before, so that the transaction may have its records; or the
            transactional id is another query's.
    """
    context = TaskContext.get()
    query_id = context and context.getLocalProperty("sql.streaming.queryId")
    number = context and context.getLocalProperty("streaming.sql.batchId")
    if context is None or query_id is None or number is None:
        raise ConfigError("kohort.exactlyOnce is for streaming queries, and this task belongs to none")
    if context.attemptNumber():
        raise TransactionalWriteError(
            f"task {context.partitionId()} of batch {number} is run again, and the transaction of "
            f"{transaction.transactional_id} may have records of its first attempt, whose error is the one to look at: "
            "the batch fails, and is written whole when the query is started again. spark.speculation has to be off"
        )
    # The driver knows the query's id only by its checkpoint, which may be elsewhere.
    transaction.check_owner(str(query_id))
    return Part(transaction, str(query_id), int(str(number)))


def explain(why: BaseException, part: Part) -> TransactionalWriteError:
    """Build the error of a task or of a commit."""
    transaction, codes = part.transaction, set(_codes_of(why))
    if codes.intersection(_SHARED):
        return shared_partition(part.number)
    begin = f"batch {part.number} of {transaction.transactional_id} is not written"
    if not codes.intersection(_FENCED):
        return TransactionalWriteError(f"{begin}, its transaction is aborted: {why}")
    if transaction.age_s >= transaction.timeout_s:
        return TransactionalWriteError(
            f"{begin}: it took {transaction.age_s:.0f} s, and the coordinator has aborted its transaction after "
            f"{transaction.timeout_s:g} s. Raise kafka.transaction.timeout.ms, which the broker's "
            "transaction.max.timeout.ms bounds, or make batches smaller by maxOffsetsPerTrigger"
        )
    return TransactionalWriteError(
        f"{begin}: its transaction was ended by another task of this batch that has failed, whose error is the one to "
        f"look at; or by another query of the same transactional id, which a copy of the checkpoint has, too ({why})"
    )


def shared_partition(number: int, partition: TopicPartition | None = None) -> TransactionalWriteError:
    """Build the error of a batch in which two tasks write to one partition."""
    return TransactionalWriteError(
        f"two tasks of batch {number} write to {'one partition' if partition is None else partition}, and in a "
        "transaction only one can: write by kohort.spark.write_stream(frame, topic, exactly_once=True), which parts "
        "the rows by their partition, or repartition the frame so that each partition of the topic is in one task"
    )


def _codes_of(why: BaseException | None) -> Iterable[ErrorCode]:
    while why is not None:
        if isinstance(why, BrokerError):
            yield why.code
        why = why.__cause__


def say_if_long(part: Part) -> None:
    """Log a warning if the batch comes near to the timeout of its transaction."""
    transaction = part.transaction
    if transaction.age_s >= _LONG * transaction.timeout_s:
        _log.warning(
            "batch %d of %s has taken %.0f s of the %g s of kafka.transaction.timeout.ms, after which the coordinator "
            "aborts it: raise that option, or make batches smaller by maxOffsetsPerTrigger",
            part.number,
            transaction.transactional_id,
            transaction.age_s,
            transaction.timeout_s,
        )


# -- the end ----------------------------------------------------------------------------------------------------------


class Message(Protocol):
    """The message of a task: its part, whether the batch was written before, and the partitions that have its rows."""

    @property
    def part(self) -> Part | None: ...
    @property
    def is_repeated(self) -> bool: ...
    @property
    def partitions(self) -> Sequence[TopicPartition]: ...


def commit(options: SinkOptions, messages: Sequence[Message], number: int) -> bool:
    """Commit the transaction in which the tasks of a batch have written; return whether it was not there before.

    Raises:
        TransactionalWriteError: two tasks have written to one partition, or the transaction was aborted.
    """
    parts = {each.part for each in messages}
    if not parts:
        return False
    (part,) = parts
    assert part is not None and part.number == number, "all tasks of a batch get the same writer"
    if any(each.is_repeated for each in messages):
        return False
    writers = Counter(partition for each in messages for partition in each.partitions)
    if not writers:
        # Nothing was written, so nothing is to be known again.
        return False
    partition, most = max(writers.items(), key=lambda entry: entry[1])
    if most > 1:
        raise shared_partition(number, partition)
    say_if_long(part)
    for attempt in range(_MOST_ATTEMPTS):
        producer = take_producer(options.client)
        try:
            producer._join(part.transaction.identity)
            _end(producer, options, part)
            producer._join(None)
        except BaseException as why:
            producer.close(timeout=0)
            if set(_codes_of(why)).intersection(_STALE) and attempt + 1 < _MOST_ATTEMPTS:
                # The group has moved others since the note; the next one has the new epoch.
                time.sleep(_NOTE_S)
                continue
            if isinstance(why, TransactionalWriteError) or not isinstance(why, KohortError):
                raise
            raise explain(why, part) from why
        keep_producer(options.client, producer)
        break
    return True


def _end(producer: Producer, options: SinkOptions, part: Part) -> None:
    name = part.transaction.transactional_id
    marker = part.transaction.marker(part.number, part.query_id)
    producer.send_offsets_to_transaction({marker_partition(options): marker}, name)
    for group, offsets in _offsets_of_sources(options, part):
        producer.send_offsets_to_transaction(offsets, group)
    try:
        producer.commit_transaction()
    except KohortTimeoutError as why:
        # The coordinator may have taken EndTxn, whose answer is missing.
        raise TransactionalWriteError(
            f"it is not known whether batch {part.number} of {name} is written; the next start of the query finds out, "
            f"and writes it if it is not: {why}"
        ) from why


def _offsets_of_sources(
    options: SinkOptions, part: Part
) -> Iterator[tuple[GroupMetadata, dict[TopicPartition, OffsetAndMetadata]]]:
    """Yield the offsets at the end of the batch, for each source of the query that is a member of a group."""
    folder = None if options.checkpoint_location is None else to_local_path(options.checkpoint_location)
    if folder is None:
        return
    sources, before = (_read_offsets(folder, number) for number in (part.number, part.number - 1))
    for source in sources:
        # A source whose offset stands still reads nothing in this batch.
        if not isinstance(source, dict) or "kohort" not in source or source in before:
            continue
        given = cast("dict[str, object]", source)
        offset = from_json(given)
        if offset.name is None or not any(span.size for span in offset.spans.values()):
            continue
        batch = find_batch(offset.name)
        if batch is None or batch.end != fingerprint(given):
            # Others could read the batch again, whose rows would then be in the topic twice.
            raise TransactionAbortableError(
                offset.name,
                f"its reader has left no note of batch {part.number} on this machine, so that its group's offsets "
                "cannot be committed with the rows; start the query again, with the kafka.group.id that it had",
            )
        if batch.spans:
            yield (
                GroupMetadata(batch.group_id, batch.epoch, batch.member_id, batch.instance_id),
                to_offsets(_finished(options, offset.name, batch, offset.topic_ids), offset.topic_ids),
            )


def _read_offsets(folder: Path, number: int) -> list[object]:
    with suppress(OSError):
        return read_sources(folder / "offsets" / str(number))
    return []


def _finished(
    options: SinkOptions, name: str, batch: OpenBatch, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Ledger]:
    """Return the ledgers of a source's partitions once the batch is finished."""
    if lost := batch.spans.keys() - batch.owned:
        raise _taken_over(batch.group_id, lost)
    with _open_reader(options, batch.group_id) as reader:
        ledgers = from_offsets(reader.committed(list(batch.spans), metadata=True), topic_ids)
    claimed = {each: Holder(name, since, orders) for each, (_, _, since, orders) in batch.spans.items()}
    if lost := {each for each, holder in claimed.items() if not is_last_holder(ledgers.get(each), holder)}:
        raise _taken_over(batch.group_id, lost)
    # The end stands as planned, too, by which a query that repeats the batch knows that it is written.
    return {each: replace(ledgers[each], offset=end, planned=end) for each, (_, end, *_) in batch.spans.items()}


def _taken_over(group_id: str, partitions: Iterable[TopicPartition]) -> TransactionAbortableError:
    places = ", ".join(map(str, sorted(partitions)))
    return TransactionAbortableError(f"group {group_id}", f"another member has taken {places} over")


def abort(options: SinkOptions, messages: Sequence[Message | None]) -> bool:
    """Abort the transaction of a failed batch, if a task has told its ids; return whether that succeeded."""
    part = next((each.part for each in messages if each is not None and each.part is not None), None)
    if part is None:
        return False
    producer = take_producer(options.client)
    try:
        producer._join(part.transaction.identity)
        return leave_aborted(producer)
    finally:
        producer.close(timeout=0)


def leave_aborted(producer: Producer) -> bool:
    """Abort the transaction in which a producer takes part, and fence all that do; return whether that succeeded."""
    # Where that fails, it has ended already, or the next attempt or the timeout ends it.
    with suppress(KohortError):
        producer.abort_transaction(ABORT_S)
        return True
    return False
