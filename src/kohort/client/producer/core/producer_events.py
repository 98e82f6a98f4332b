"""The events by which the application's side addresses a producer's machine."""

from __future__ import annotations

from collections import deque

from kohort.base.values import value
from kohort.client.producer.bulk_send import Bulk, Slice
from kohort.client.producer.record_future import RecordFuture


@value
class RecordsSubmitted:
    """The news that there are records among the submissions."""


@value
class FlushAsked:
    """The request to send at once, and to end the ticket when every record so far has its end.

    At the deadline the ticket ends, too; with the number of records without an end.
    """

    ticket: object
    #: `None` means never.
    deadline_ms: int | None = None


@value
class ProducerCloseAsked:
    """The request to flush and end; at the deadline the rest fails. The ticket ends in either case."""

    ticket: object
    deadline_ms: int
    #: Whether the log says nothing of lost records: the closing call is ended by another error already.
    is_quiet: bool = False


@value
class PartitionsAsked:
    """The question for a topic's partitions; the answer is ascending, empty without such a topic."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class ConnectAsked:
    """The question whether a broker answers; the ticket ends when one has, or with the error."""

    ticket: object
    deadline_ms: int


ProducerEvent = RecordsSubmitted | FlushAsked | ProducerCloseAsked | PartitionsAsked | ConnectAsked


#: One record, or the rows of one call.
Outgoing = RecordFuture | Bulk


def is_about(member: Outgoing | Slice, future: object) -> bool:
    """Return whether a future is that of these records."""
    return (member.future if member.is_bulk else member) is future


class Submissions:
    """The queue of records from the application's threads to the machine.

    The application wakes the machine only if no other event will: a machine whose linger is running looks here by
    itself when that ends.

    Laws: `append` is called by application threads, everything else by the machine. Each step is a single operation on
    a deque or a flag, so neither side ever waits for the other.
    """

    __slots__ = ("_is_open", "_queued_bytes", "_records", "is_watched", "wake_bytes")

    def __init__(self, *, wake_bytes: int) -> None:
        """Create an empty queue; `wake_bytes`: bytes that wait at most for a linger to end."""
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
        """Take all queued records; later ones wake the machine again, unless it says that it watches."""
        self.is_watched = False
        self._queued_bytes = 0
        # One by one, since other threads append meanwhile. A record behind these wakes the machine.
        pop = self._records.popleft
        return [pop() for _ in range(len(self._records))]

    def close(self) -> None:
        """Have every later record wake the machine, so that its caller learns of the end."""
        self._is_open = False

    def holds(self, future: object) -> bool:
        """Return whether the record of a future is queued."""
        return any(is_about(record, future) for record in self._records.copy())
