"""Records on their way from the application's thread to the machine.

Laws: `append` is called by application threads, everything else by the machine; each step is a single operation on a
deque or a flag, so neither side ever waits for the other. The application wakes the machine only when nothing else
will: a machine whose linger is running looks here by itself when that ends.
"""

from __future__ import annotations

from collections import deque

from kohort.client.producer.many import Bulk, Slice
from kohort.client.producer.record_future import RecordFuture

#: One record, or many that are sent by one call.
Outgoing = RecordFuture | Bulk


def is_about(member: Outgoing | Slice, future: object) -> bool:
    """Whether that is the future of these records."""
    return (member.future if member.is_bulk else member) is future


class Submissions:
    """A queue that knows whether anybody will look into it soon."""

    __slots__ = ("_is_open", "_queued_bytes", "_records", "is_watched", "wake_bytes")

    def __init__(self, *, wake_bytes: int) -> None:
        """`wake_bytes`: so much waits at most for a linger to end."""
        self._records: deque[Outgoing] = deque()
        self._queued_bytes = 0
        #: So much waits at most for what the machine watches for; it may change that.
        self.wake_bytes = wake_bytes
        self._is_open = True
        #: The machine has been woken, or will look by itself in time.
        self.is_watched = False

    def append(self, record: Outgoing) -> bool:
        """Queue a record; whether the caller has to wake the machine."""
        self._records.append(record)
        self._queued_bytes += record.size_bytes
        if self.is_watched and self._queued_bytes < self.wake_bytes and self._is_open:
            return False
        self.is_watched = True
        self._queued_bytes = 0
        return True

    def take(self) -> list[Outgoing]:
        """Everything queued; records that come from now on wake the machine again, unless it says that it watches."""
        self.is_watched = False
        self._queued_bytes = 0
        # One by one, since others append meanwhile; what comes behind these wakes the machine.
        pop = self._records.popleft
        return [pop() for _ in range(len(self._records))]

    def close(self) -> None:
        """Nobody takes records any more: from now on each has its caller wake the machine, and learn why."""
        self._is_open = False

    def holds(self, future: object) -> bool:
        """Whether the record of that future is queued."""
        return any(is_about(record, future) for record in self._records.copy())
