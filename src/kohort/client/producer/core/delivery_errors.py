"""The log lines of a producer: refusals that need an administrator, waiting records, and lost records.

Laws: a refusal is one line per cause, not per attempt or per partition; and one line when everything that had that
cause is stored again. Waiting records are a line after a second, another after twice that time and so on, and a line
when none waits any more.
Source: Kafka's `delivery.timeout.ms`: for two minutes a full disk, or no broker at all, looks like a slow broker;
requirement: no record is lost without a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kohort.client.core.requests import Requests
from kohort.client.producer.bulk_send import ManyFuture
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import BrokerError, ErrorCode, KohortError

#: Codes that seldom pass by themselves; other retriable codes occur while a cluster elects leaders.
_WORTH_A_LINE: Final = frozenset(
    {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
#: Failed futures that are kept to be checked again; with more, those not asked by then count as lost.
_KEPT: Final = 10_000
#: How long a program may take to ask a future after its record has failed.
_GRACE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000
#: Time after which waiting records are worth a line.
_FIRST_LINE_MS: Final = 1_000


class RefusalLog:
    """Logs refused operations that are retried, one line per error code, and another when they succeed again."""

    def __init__(self, requests: Requests, *, delivery_timeout_ms: int) -> None:
        self._requests = requests
        self.delivery_timeout_ms: Final = delivery_timeout_ms
        #: Refused operation -> its error code.
        self._open: dict[str, ErrorCode] = {}
        #: Each of these codes -> the operation that its line names.
        self._said: dict[ErrorCode, str] = {}

    def on_refused(self, doing: str, code: ErrorCode, message: str | None) -> None:
        """Log a refused operation that will be retried, once per error code."""
        if code in _WORTH_A_LINE:
            if code not in self._said:
                self._said[code] = doing
                reason = f"{message} ({code.name})" if message else code.name
                self._requests.warn(f"{doing}: {reason}, retrying for {self.delivery_timeout_ms / 1000:g} s")
            self._open[doing] = code

    def on_done(self, doing: str) -> None:
        """Note a success; log that the refusals of an error code have ended if it was the last such operation."""
        if not self._open:
            return
        code = self._open.pop(doing, None)
        if code is not None and code not in self._open.values():
            self._requests.warn(f"{self._said.pop(code)}: works again")


def is_logged(error: object) -> bool:
    """Return whether `RefusalLog` writes a line of its own for that error."""
    return isinstance(error, BrokerError) and error.code in _WORTH_A_LINE


class WaitingRecords(NamedTuple):
    """The records that wait for brokers."""

    record_count: int
    #: Since when the oldest of them waits.
    since_ms: int
    reason: str


class WaitLog:
    """Logs waiting records: their number, the reason, and how long they will wait.

    `find` returns the waiting records, or `None` if none wait.
    """

    def __init__(self, requests: Requests, refusals: RefusalLog, *, find: Callable[[], WaitingRecords | None]) -> None:
        self._requests = requests
        self._delivery_timeout_ms = refusals.delivery_timeout_ms
        self._find = find
        #: When to look next; `None` while no trouble is known.
        self._due_ms: int | None = None
        #: Pause until the line after the next one.
        self._pause_ms = _FIRST_LINE_MS

    def next_deadline(self) -> int | None:
        """Return when to look for waiting records next."""
        return self._due_ms

    def on_trouble(self, now_ms: int) -> None:
        """Begin to look for waiting records, because a request has failed."""
        if self._due_ms is None:
            self._due_ms = now_ms + _FIRST_LINE_MS

    def on_tick(self, now_ms: int) -> None:
        """Write the line about waiting records when it is due."""
        if self._due_ms is None or now_ms < self._due_ms:
            return
        wait = self._find()
        if wait is None:
            if self._pause_ms > _FIRST_LINE_MS:
                self._requests.warn("no record waits for a broker any more")
            self._due_ms, self._pause_ms = None, _FIRST_LINE_MS
        elif now_ms < wait.since_ms + _FIRST_LINE_MS:
            self._due_ms = wait.since_ms + _FIRST_LINE_MS
        else:
            left_s = max(0, wait.since_ms + self._delivery_timeout_ms - now_ms) / 1000
            records = "1 record waits" if wait.record_count == 1 else f"{wait.record_count} records wait"
            self._requests.warn(
                f"{records} for a broker, the oldest for another {left_s:.0f} s at most (delivery.timeout.ms): "
                f"{wait.reason}"
            )
            self._due_ms = now_ms + self._pause_ms
            self._pause_ms *= 2


class LostRecords:
    """Counts failed records whose futures the application never asks, for a log line about them.

    Laws: a future that is asked within a second of its failure does not count, nor does one with a callback. The others
    are counted in a line. While more fail, the pause before the next line doubles, up to a minute. Memory is bounded,
    however many fail.
    """

    def __init__(self) -> None:
        self._futures: list[RecordFuture] = []
        #: Failed records of futures that are not kept any more.
        self._unseen = 0
        self._last_error: KohortError | None = None
        #: When to write the line; `None`: no failure was noted.
        self._due_ms: int | None = None
        self._pause_ms = _GRACE_MS

    def next_deadline(self) -> int | None:
        """Return when `find_line` may return a line."""
        return self._due_ms

    def find_line(self, now_ms: int) -> str | None:
        """Return the log line that is due, or `None`."""
        if self._due_ms is None:
            if self._futures or self._unseen:
                self._due_ms = now_ms + self._pause_ms
            return None
        if now_ms < self._due_ms:
            return None
        self._due_ms = None
        line = self.summary()
        self._pause_ms = _GRACE_MS if line is None else min(2 * self._pause_ms, _LONGEST_PAUSE_MS)
        self._futures.clear()
        self._unseen = 0
        return line

    def note(self, record: RecordFuture, error: KohortError) -> None:
        """Note that a record was not stored."""
        if record.is_noticed:
            return
        self._futures.append(record)
        self._last_error = error
        if len(self._futures) > _KEPT:
            # These futures are dropped. The ones that were not asked by now count as lost.
            self._unseen += self._count_kept()
            self._futures.clear()

    def note_many(self, future: ManyFuture, count: int, error: KohortError) -> None:
        """Note that `count` records of one `send_many` or `send_arrow` were not stored."""
        if not future.is_watched:
            self._unseen += count
            self._last_error = error

    def _count_kept(self) -> int:
        return sum(not record.is_noticed for record in self._futures)

    def summary(self) -> str | None:
        """Return one sentence about all lost records that were not logged yet, or `None`."""
        count = self._unseen + self._count_kept()
        if not count:
            return None
        were = "record was" if count == 1 else "records were"
        return f"{count} {were} not stored, and the program has not asked their futures: {self._last_error}"
