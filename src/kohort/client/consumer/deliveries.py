"""The machine's deliveries to the application's side, sorted by their purpose.

Laws: `deliver` is the only function here that the I/O thread calls. Everything else belongs to the application's
thread. A wait that begins after a drain ends with the first delivery since that drain: no delivery is missed.
Source: the consumer threading refactor (CTR): the background event queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import Chunk, Identity, OwnedUntil, PublishedSeen, WatermarksSeen
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.errors import BrokersUnreachableError, KohortError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    import asyncio
    import threading


#: Ends a wait for deliveries: set with each delivery, cleared before they are sorted.
Signal: TypeAlias = "threading.Event | asyncio.Event"


class Deliveries:
    """The queues between the background and the application's side.

    Args:
        member_id: id of the member before a group has given one.
    """

    def __init__(self, handler: FetchHandler, *, member_id: str, signal: Signal) -> None:
        self._handler = handler
        self._delivered: deque[object] = deque()
        #: Set with each delivery, cleared by each drain.
        self._signal = signal
        #: Callbacks that the machine waits for, in order.
        self.asked: deque[events.CallbackWanted] = deque()
        #: Asynchronous commits whose callbacks are to be called, in order.
        self.ended: deque[events.CommitEnded] = deque()
        #: Work for the application's assignors, in order.
        self.assigning: deque[events.ComputationWanted | events.AssignmentSaid] = deque()
        self._trouble: deque[events.Trouble] = deque()
        self._fatal: KohortError | None = None
        #: Error for the next call: the call in which it occurred had records to return.
        self._put_off: Exception | None = None
        #: Nothing has been delivered since `is_quiet` was last true.
        self.is_still = False
        #: Member id and epoch; replaced as a whole by the I/O thread.
        self.identity = Identity(member_id=member_id, epoch=-1, has_assignment=False)
        #: Until when records of assigned partitions may be handed out, likewise: see `OwnedUntil`.
        self.owned_until_ms: int | None = None
        #: Grants that the coordinator has given.
        self.grants = 0
        #: Metadata of the group's members, likewise; and whether the application's callback for them is due.
        self.published: Mapping[str, bytes] = {}
        self.has_published = False

    def deliver(self, item: object) -> None:
        """Accept a delivery of the machine; called by the I/O thread."""
        if isinstance(item, Identity):
            self.identity = item
            return
        if isinstance(item, OwnedUntil):
            is_turn = 0 in (item.until_ms, self.owned_until_ms)
            self.owned_until_ms, self.grants = item.until_ms, item.grants
            if is_turn:
                self.wake()
            return
        if isinstance(item, PublishedSeen):
            self.published, self.has_published = item.published, True
            self.wake()
            return
        self._delivered.append(item)
        self.wake()

    def wake(self) -> None:
        """End a wait for deliveries."""
        self.is_still = False
        self._signal.set()

    @property
    def is_quiet(self) -> bool:
        """Whether every delivery is sorted, and no callback or error is due."""
        # Set before the queues are looked at: a delivery that arrives meanwhile clears it.
        self.is_still = True
        kept = self._delivered or self.asked or self.ended or self.assigning or self._trouble
        if kept or self._fatal or self._put_off:
            self.is_still = False
            return False
        if self.has_published or self.owned_until_ms == 0:
            self.is_still = False
            return False
        return True

    def fail(self, error: KohortError) -> None:
        """Make every `poll` raise this error from now on, because the machine has failed."""
        self.deliver(events.Trouble(error=error, is_fatal=True))

    def drain(self) -> None:
        """Sort the deliveries; run no callback."""
        self._signal.clear()
        while self._delivered:
            item = self._delivered.popleft()
            match item:
                case Chunk():
                    self._handler.add(item)
                case WatermarksSeen(seen=seen):
                    self._handler.note_watermarks(seen)
                case events.ReadsRefused(partitions=partitions):
                    self._handler.withhold(partitions)
                case events.GiveWay(partition=partition, fence=fence):
                    self._handler.give_way(partition, fence)
                case events.Remade(partition=partition, fence=fence):
                    self._handler.begin_anew(partition, fence)
                case events.CallbackWanted():
                    if item.kind is events.CallbackKind.LOST:
                        # It names all partitions that were held, so earlier callbacks are out of date.
                        self.asked.clear()
                    self.asked.append(item)
                case events.CommitEnded():
                    self.ended.append(item)
                case events.ComputationWanted() | events.AssignmentSaid():
                    self.assigning.append(item)
                case events.Trouble():
                    self._note(item)
                case events.Recovered():
                    self._drop(BrokersUnreachableError)
                case _:
                    raise AssertionError(f"a consumer's machine does not deliver {type(item).__name__}")

    def raise_trouble(self) -> None:
        """Raise the errors that the machine has reported, oldest first; a fatal one again and again."""
        if self._put_off is not None:
            error, self._put_off = self._put_off, None
            raise error
        if self._fatal is not None:
            raise self._fatal
        if self._trouble:
            raise self._trouble.popleft().error

    def raise_next(self, error: Exception) -> None:
        """Make the next call raise this error."""
        self.is_still = False
        self._put_off = error

    def forget_trouble(self, partition: TopicPartition | None = None) -> None:
        """Drop the errors of a partition, or all of them, because they are out of date."""
        if partition is None:
            self._fatal = self._put_off = None
            self._trouble.clear()
        else:
            self._trouble = deque(each for each in self._trouble if each.partition != partition)

    def _note(self, trouble: events.Trouble) -> None:
        if trouble.is_fatal:
            self._fatal = trouble.error
        elif isinstance(trouble.error, BrokersUnreachableError):
            # Each round of addresses reports anew; the last report is enough.
            self._drop(BrokersUnreachableError)
            self._trouble.append(trouble)
        elif trouble.partition is None or self._is_current(trouble.partition, trouble.fence):
            self._trouble.append(trouble)

    def _is_current(self, partition: TopicPartition, fence: events.Fence | None) -> bool:
        # A seek after the failed reading has made the error obsolete.
        if partition not in self._handler.assignment:
            return False
        return fence is None or self._handler.starts([partition])[partition].fence == fence

    def _drop(self, kind: type[KohortError]) -> None:
        self._trouble = deque(each for each in self._trouble if not isinstance(each.error, kind))
