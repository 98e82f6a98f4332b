"""The events that the application's side of a producer posts to its machine."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from kohort.base.values import value
from kohort.client.producer.bulk_send import Bulk, Slice
from kohort.client.producer.record_future import RecordFuture
from kohort.client.records import Committable, GroupMetadata
from kohort.ids import TopicPartition


@value
class RecordsSubmitted:
    """A wake-up: there are new records in `Submissions`."""


@value
class FlushAsked:
    """The request to send without linger, and to end the ticket when every record so far is stored or has failed.

    At the deadline the ticket ends in any case, with the number of records left.
    """

    ticket: object
    #: `None` means never.
    deadline_ms: int | None = None


@value
class ProducerCloseAsked:
    """The request to flush and stop; at the deadline the remaining records fail. The ticket ends in either case."""

    ticket: object
    deadline_ms: int
    #: Whether lost records are not logged, because the application's `with` block has raised an error already.
    is_quiet: bool = False


@value
class PartitionsAsked:
    """A query for a topic's partition numbers; the ticket's result is ascending, empty if there is no such topic."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class ConnectAsked:
    """A request to connect; the ticket ends when a broker has responded, or with the error."""

    ticket: object
    deadline_ms: int


class TransactionStep(Enum):
    """The steps of a transaction that the application takes, by the names of the calls."""

    INITIALIZE = "init_transactions"
    BEGIN = "begin_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


@value
class TransactionAsked:
    """A request to take a step; the ticket ends when it is done, or with the error."""

    step: TransactionStep
    ticket: object
    deadline_ms: int


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer, by which other producers take part in its transaction."""

    producer_id: int
    epoch: int
    #: The finalized level of the feature `transaction.version`.
    transaction_version: int


@value
class TransactionShared:
    """A request to take part in a transaction that another producer has begun, or to leave it as it is (`None`)."""

    identity: ProducerIdAndEpoch | None
    ticket: object
    deadline_ms: int


@value
class TransactionOffsetsAsked:
    """A request to commit a group's offsets with the transaction; the ticket ends when the coordinators have them."""

    group: GroupMetadata
    offsets: Mapping[TopicPartition, Committable]
    ticket: object
    deadline_ms: int


ProducerEvent = (
    RecordsSubmitted
    | FlushAsked
    | ProducerCloseAsked
    | PartitionsAsked
    | ConnectAsked
    | TransactionAsked
    | TransactionShared
    | TransactionOffsetsAsked
)


#: One record, or the rows of one call.
Outgoing = RecordFuture | Bulk


def is_about(member: Outgoing | Slice, future: object) -> bool:
    """Return whether a future belongs to these records."""
    return (member.future if member.is_bulk else member) is future
