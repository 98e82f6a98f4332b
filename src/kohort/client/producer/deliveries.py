"""The ends of records on their way to the callbacks that were given with them.

Callbacks are called in the application's own calls, `send`, `poll`, `flush` and `close`, as confluent-kafka does: never
on the I/O thread, which one that takes its time would hold up, and by no thread that the application does not know.

Laws: each callback is called once, in the order of the ends, by one thread at a time, and not from within another; one
that fails is logged and holds up nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from kohort.client.producer.record_future import RecordFuture
from kohort.errors import StateError

_LOG: Final = logging.getLogger("kohort.client")


class Deliveries:
    """Ends that were not told yet. May be shared by threads."""

    def __init__(self) -> None:
        #: Records with a callback that have their end, in that order; looked at without a lock.
        self.ended: deque[RecordFuture] = deque()
        self._some = threading.Condition()
        #: Held by the thread that calls, `_caller`.
        self._turn = threading.Lock()
        self._caller: int | None = None

    def put(self, records: Sequence[RecordFuture]) -> None:
        """More of them; called on the I/O thread."""
        self.ended.extend(records)
        with self._some:
            self._some.notify_all()

    def wait(self, seconds: float) -> None:
        """Until there are some, but not longer."""
        if not self.ended and self._caller != threading.get_ident():
            with self._some:
                self._some.wait_for(lambda: bool(self.ended), seconds)

    def serve(self, *, patience_s: float = 0.0) -> int:
        """Call what there is to be called, unless another thread does; returns how many were.

        Args:
            patience_s: how long the other thread may take to come to an end.
        """
        if not self.ended and not patience_s:
            return 0
        caller = threading.get_ident()
        if self._caller == caller or not self._turn.acquire(timeout=patience_s):
            return 0
        self._caller = caller
        count = 0
        try:
            while self.ended:
                self._call(self.ended.popleft())
                count += 1
        finally:
            self._caller = None
            self._turn.release()
        return count

    def check_outside(self, call: str) -> None:
        """Refuse a call that would wait for the callback that makes it."""
        if self._caller == threading.get_ident():
            raise StateError(f"{call} waits for callbacks to return, so none of them can call it: call it behind")

    @staticmethod
    def _call(record: RecordFuture) -> None:
        on_delivery, record.on_delivery = record.on_delivery, None
        assert on_delivery is not None
        error = record.end.error
        try:
            on_delivery(error, record.metadata())
        except Exception:
            _LOG.exception("on_delivery has failed for a record of %s", record.topic)
