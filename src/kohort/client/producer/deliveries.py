"""The ends of records on their way to the callbacks that were given with them.

Callbacks are called in the application's own calls `send`, `poll`, `flush` and `close`, as in confluent-kafka. They are
not called on the I/O thread, which a slow one would hold up, nor on any other thread that the application does not
know.

Laws: each callback is called once, in the order of the ends, by one thread at a time, and not from within another
callback. A callback that fails is logged, and the next one is called.
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
    """The ended records with a callback that was not called yet; may be shared by threads."""

    def __init__(self) -> None:
        #: Ended records with a callback, in the order of their ends; looked at without a lock.
        self.ended: deque[RecordFuture] = deque()
        self._some = threading.Condition()
        #: Held by `_caller`, the thread that calls callbacks.
        self._turn = threading.Lock()
        self._caller: int | None = None

    def put(self, records: Sequence[RecordFuture]) -> None:
        """Append ended records; called on the I/O thread."""
        self.ended.extend(records)
        with self._some:
            self._some.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until there are ended records, `seconds` at most."""
        if not self.ended and self._caller != threading.get_ident():
            with self._some:
                self._some.wait_for(lambda: bool(self.ended), seconds)

    def serve(self, *, patience_s: float = 0.0) -> int:
        """Call the callbacks, unless another thread does; return how many were called.

        Args:
            patience_s: seconds to wait for that other thread.
        """
        if not self.ended and not patience_s:
            return 0
        caller = threading.get_ident()
        if self._caller == caller or not self._turn.acquire(timeout=patience_s):
            return 0
        # A callback that calls `send` or `poll` must not call callbacks itself.
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
