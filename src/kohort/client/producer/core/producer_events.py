"""The events that the application's side of a producer posts to its machine."""

from __future__ import annotations

from collections import deque
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
    """What one producer tells others, so that they take part in its transaction."""

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


class Submissions:
    """The queue of records from the application's threads to the machine.

    A call wakes the machine only if no other event will: while a batch lingers, the machine reads this queue by itself
    when linger.ms is over.

    Laws: `append` is called by application threads, everything else by the machine. Each step is a single operation on
    a deque or a flag, so neither side ever waits for the other.
    """

    __slots__ = ("_is_open", "_queued_bytes", "_records", "is_watched", "wake_bytes")

    def __init__(self, *, wake_bytes: int) -> None:
        """Create an empty queue; `wake_bytes`: with so many queued bytes the machine is woken despite linger.ms."""
        self._records: deque[Outgoing] = deque()
        self._queued_bytes = 0
        #: Queued bytes that wake the machine though it is watching; the machine may change that.
        self.wake_bytes = wake_bytes
        self._is_open = True
        #: Whether the machine has been woken, or will look by itself in time.
        self.is_watched = False

    def append(self, record: Outgoing) -> bool:
        """Queue a record; return whether the caller has to wake the machine."""
        self._records.append(record)
        self._queued_bytes += record.size_bytes
        if self.is_watched and self._queued_bytes < self.wake_bytes and self._is_open:
            return False
        self.is_watched = True
        self._queued_bytes = 0
        return True

    def take(self) -> list[Outgoing]:
        """Return and remove all queued records; later ones wake the machine again unless it sets `is_watched`."""
        self.is_watched = False
        self._queued_bytes = 0
        # One by one, since other threads append meanwhile. A record behind these wakes the machine.
        pop = self._records.popleft
        return [pop() for _ in range(len(self._records))]

    def close(self) -> None:
        """Make every later record wake the machine, so that its caller gets the error of a closed producer."""
        self._is_open = False

    def holds(self, future: object) -> bool:
        """Return whether the record of a future is queued."""
        return any(is_about(record, future) for record in self._records.copy())
