"""The lost records of futures that were not asked: without a line their loss would go unsaid.

Laws: a future that is looked at within a second of its end does not count, nor does one whose end a callback gets. The
rest is counted in a line. While more fail, the pause before the next line doubles, up to a minute. Memory is bounded,
however many fail.
Source: requirement: no record is lost without a word.
"""

from __future__ import annotations

from typing import Final

from kohort.client.producer.bulk_send import ManyFuture
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import KohortError

#: Failed futures that are kept to be looked at again; with more, the earlier unasked ones count as lost.
_KEPT: Final = 10_000
#: How long a program may take to look at a future that has its end.
_GRACE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000


class Losses:
    """The count of failed records."""

    def __init__(self) -> None:
        self._futures: list[RecordFuture] = []
        #: Failed records of futures that are not kept any more.
        self._unseen = 0
        self._last_error: KohortError | None = None
        #: When to write the line; `None`: no failure was noted.
        self._due_ms: int | None = None
        self._pause_ms = _GRACE_MS

    def next_deadline(self) -> int | None:
        """Return when `find_line` has a line."""
        return self._due_ms

    def find_line(self, now_ms: int) -> str | None:
        """Return the line that is due; `None`: none is."""
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
        """Note that so many records of one call were not stored."""
        if not future.is_watched:
            self._unseen += count
            self._last_error = error

    def _count_kept(self) -> int:
        return sum(not record.is_noticed for record in self._futures)

    def summary(self) -> str | None:
        """Return one sentence about all losses that were not told yet; `None`: there are none."""
        count = self._unseen + self._count_kept()
        if not count:
            return None
        were = "record was" if count == 1 else "records were"
        return f"{count} {were} not stored, and nobody has asked what send returned for them: {self._last_error}"
