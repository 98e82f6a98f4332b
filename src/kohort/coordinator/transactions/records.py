"""Records about transactional ids, and their codec in Kafka's format of `__transaction_state`.

Laws: `decode(encode(record))` equals `as_stored(record)`. An unknown type of key is skipped: newer software may have
written it. A broken record, one of a newer version or in a state that is never stored is an error, since a transaction
must not be lost silently.
Source: Apache Kafka's TransactionLog, which writes value version 1 with the feature `transaction.version` (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from struct import Struct
from typing import Final

from kohort.base.values import value
from kohort.coordinator.transactions.commands import Partition
from kohort.coordinator.transactions.settings import EPOCH_BUMP_VERSION
from kohort.coordinator.transactions.states import COMPLETION, LAST_EPOCH, TransactionState
from kohort.errors import ProtocolError, RemoteProtocolError, StorageError
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import parse_header
from kohort.wire import codec
from kohort.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kohort.wire.schema import schema_of

_INT16: Final = Struct(">h")
#: The only type of key, and the version of values that are written.
_KEY_TYPE: Final = 0
VALUE_VERSION: Final = 1
#: States that are stored; an id that is dead has a tombstone.
_STORED: Final = {int(state): state for state in TransactionState if state is not TransactionState.DEAD}


@value
class Record:
    """One event of one transactional id."""

    transactional_id: str


@value
class TransactionStored(Record):
    """A transactional id's producer and its transaction, whole; as such it is the coordinator's state of the id.

    `previous_producer_id`: the producer id before the latest change. `next_producer_id`: the one after the transaction
    in a Prepare state, if the epochs of this one are used up; -1: none. `last_producer_epoch`: the epoch that the
    producer had before this one, -1 if another producer had it or it is not known any more. `partitions`: those of the
    open transaction, ascending. `last_update_ms`, `start_ms`: milliseconds since 1970; -1: no transaction yet.
    """

    producer_id: int
    previous_producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    next_producer_id: int = -1
    last_producer_epoch: int = -1
    partitions: tuple[Partition, ...] = ()
    start_ms: int = -1
    client_version: int = 0


@value
class TransactionForgotten(Record):
    """The transactional id has expired."""


def encode(record: Record, version: int = VALUE_VERSION) -> tuple[bytes, bytes | None]:
    """Encode key and value of a record; the value of a tombstone is `None`."""
    key = _INT16.pack(_KEY_TYPE) + codec.encode(TransactionLogKey(transactional_id=record.transactional_id), 0)
    if not isinstance(record, TransactionStored):
        return key, None
    topics: dict[str, list[int]] = {}
    for topic, partition in record.partitions:
        topics.setdefault(topic, []).append(partition)
    rows = [PartitionsSchema(topic=topic, partition_ids=partitions) for topic, partitions in topics.items()]
    message = TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=None if record.state is TransactionState.EMPTY else rows,
        transaction_last_update_timestamp_ms=record.last_update_ms,
        transaction_start_timestamp_ms=record.start_ms,
        client_transaction_version=record.client_version,
    )
    return key, _INT16.pack(version) + codec.encode(message, version)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Decode a key and a value; `None` if the type of the key is unknown.

    Raises:
        StorageError: the bytes do not match their type.
    """
    try:
        if len(key) < _INT16.size:
            raise RemoteProtocolError("the key is shorter than its type")
        if _INT16.unpack_from(key)[0] != _KEY_TYPE:
            return None
        transactional_id = codec.decode(TransactionLogKey, 0, key, _INT16.size)[0].transactional_id
        if value is None:
            return TransactionForgotten(transactional_id=transactional_id)
        return _read(transactional_id, value)
    except (ProtocolError, ValueError) as why:
        raise StorageError(
            f"the log __transaction_state has a record that cannot be read ({why}): the partition is damaged, or a "
            "newer kohort or Kafka wrote it; start that version, or move the data directory away"
        ) from why


def _read(transactional_id: str, value: bytes) -> TransactionStored:
    if len(value) < _INT16.size:
        raise RemoteProtocolError("the value is shorter than its version")
    (version,) = _INT16.unpack_from(value)
    newest = schema_of(TransactionLogValue).last_version
    if not 0 <= version <= newest:
        raise RemoteProtocolError(f"its version is {version}, and {newest} is the newest known")
    found = codec.decode(TransactionLogValue, version, value, _INT16.size)[0]
    state = _STORED.get(found.transaction_status)
    if state is None:
        raise RemoteProtocolError(f"its state is {found.transaction_status}, which is never stored")
    if found.producer_id < 0 or found.producer_epoch < 0 or found.transaction_timeout_ms <= 0:
        raise RemoteProtocolError("it has no producer or no timeout")
    stored = TransactionStored(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=state,
        partitions=tuple(
            sorted({(row.topic, each) for row in found.transaction_partitions or () for each in row.partition_ids})
        ),
        last_update_ms=found.transaction_last_update_timestamp_ms,
        start_ms=found.transaction_start_timestamp_ms,
        client_version=found.client_transaction_version,
    )
    return as_stored(stored)


def as_stored(record: TransactionStored) -> TransactionStored:
    """Return the record as it is read back: its last epoch is not stored, and known only behind an epoch bump."""
    is_ended = record.state in COMPLETION or record.state in COMPLETION.values()
    if not is_ended or record.client_version < EPOCH_BUMP_VERSION:
        # Apache Kafka forgets it in the other cases, too, and fences a producer that repeats an InitProducerId then.
        last_epoch = -1
    else:
        last_epoch = LAST_EPOCH if record.producer_id != record.previous_producer_id else record.producer_epoch - 1
    return record if record.last_producer_epoch == last_epoch else replace(record, last_producer_epoch=last_epoch)


def build_log_batch(records: Iterable[Record], *, now_ms: int) -> bytes | None:
    """Build the batch of the records of one decision, `None` if there are none."""
    rows = [(*encode(record), now_ms, ()) for record in records]
    return build_batch(rows) if rows else None


def read_log_batch(batch: bytes | memoryview) -> list[Record]:
    """Read the records of one batch, and skip records of unknown types."""
    if parse_header(batch).is_control:
        return []
    decoded = (decode(stored.key or b"", stored.value) for stored in iterate_records(batch))
    return [record for record in decoded if record is not None]
