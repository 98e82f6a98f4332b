"""What the machine has delivered to the application's side, sorted by what is to be done with it.

Laws: `deliver` is the only thing here that the I/O thread calls; everything else belongs to the application's thread.
A wait that begins after a drain ends with the first delivery behind that drain: none is slept through.
Source: the consumer threading refactor (CTR): the background event queue.
"""

from __future__ import annotations

import threading
from collections import deque

from kohort.client.consumer.core.exchange import (
    CallbackWanted,
    Chunk,
    Fence,
    GiveWay,
    Identity,
    Recovered,
    Trouble,
    WatermarksSeen,
)
from kohort.client.fetch.fetch_handler import FetchHandler
from kohort.errors import BrokersUnreachableError, KohortError
from kohort.ids import TopicPartition


class Deliveries:
    """Between the I/O thread and the application's.

    Args:
        handler: takes the fetched data.
        member_id: who the consumer is before any group has said so.
    """

    def __init__(self, handler: FetchHandler, *, member_id: str) -> None:
        self._handler = handler
        self._delivered: deque[object] = deque()
        self._has_arrived = threading.Event()
        #: Callbacks that the machine waits for, in order.
        self.asked: deque[CallbackWanted] = deque()
        self._trouble: deque[Trouble] = deque()
        self._fatal: KohortError | None = None
        #: Who the member is; replaced as a whole by the I/O thread.
        self.identity = Identity(member_id=member_id, epoch=-1, has_assignment=False)

    def deliver(self, item: object) -> None:
        """Take what the machine delivers."""
        if isinstance(item, Identity):
            self.identity = item
            return
        self._delivered.append(item)
        self._has_arrived.set()

    def wake(self) -> None:
        """End a wait."""
        self._has_arrived.set()

    def wait(self, seconds: float) -> None:
        """Wait for something to arrive behind the last `drain`."""
        self._has_arrived.wait(seconds)

    def drain(self) -> None:
        """Sort what has been delivered; runs no callback."""
        self._has_arrived.clear()
        while self._delivered:
            item = self._delivered.popleft()
            match item:
                case Chunk():
                    self._handler.add(item)
                case WatermarksSeen(seen=seen):
                    self._handler.note_watermarks(seen)
                case GiveWay(partition=partition, fence=fence):
                    self._handler.give_way(partition, fence)
                case CallbackWanted():
                    self.asked.append(item)
                case Trouble():
                    self._note(item)
                case Recovered():
                    self._drop(BrokersUnreachableError)
                case _:
                    raise AssertionError(f"a consumer's machine does not deliver {type(item).__name__}")

    def raise_trouble(self) -> None:
        """Raise what the machine reported, oldest first; a fatal error again and again."""
        if self._fatal is not None:
            raise self._fatal
        if self._trouble:
            raise self._trouble.popleft().error

    def forget_trouble(self, partition: TopicPartition | None = None) -> None:
        """Errors of that partition, or all of them, are out of date."""
        if partition is None:
            self._fatal = None
            self._trouble.clear()
        else:
            self._trouble = deque(each for each in self._trouble if each.partition != partition)

    def _note(self, trouble: Trouble) -> None:
        if trouble.is_fatal:
            self._fatal = trouble.error
        elif isinstance(trouble.error, BrokersUnreachableError):
            # Each round of addresses reports anew; the last report is enough.
            self._drop(BrokersUnreachableError)
            self._trouble.append(trouble)
        elif trouble.partition is None or self._is_current(trouble.partition, trouble.fence):
            self._trouble.append(trouble)

    def _is_current(self, partition: TopicPartition, fence: Fence | None) -> bool:
        # A seek that came after the failed reading has made good what was wrong with it.
        if partition not in self._handler.assignment:
            return False
        return fence is None or self._handler.starts([partition])[partition].fence == fence

    def _drop(self, kind: type[KohortError]) -> None:
        self._trouble = deque(each for each in self._trouble if not isinstance(each.error, kind))
