"""Records that were not stored, and whose futures nobody has asked: their loss would go unsaid.

Laws: a future that is looked at within a second of its end counts for nothing here, nor does one whose end is told to a
callback. What is left is a line then; while more fail the pause before the next line doubles, up to a minute. Memory is
bounded, whatever fails.
Source: requirement: no record is lost without a word.
"""

from __future__ import annotations

from typing import Final

from kohort.client.producer.many import ManyFuture
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import KohortError

#: So many futures are kept to be looked at again; earlier ones that were not asked by then count as lost.
_KEPT: Final = 10_000
#: How long a program may take to look at a future that has its end.
_GRACE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000


class Losses:
    """Counts the records that fail."""

    def __init__(self) -> None:
        self._futures: list[RecordFuture] = []
        #: Of those that are not kept any more.
        self._unseen = 0
        self._last_error: KohortError | None = None
        #: When to say what was noted; `None` where nothing was.
        self._due_ms: int | None = None
        self._pause_ms = _GRACE_MS

    def next_deadline(self) -> int | None:
        """When `find_line` has something to tell."""
        return self._due_ms

    def find_line(self, now_ms: int) -> str | None:
        """The line that is due; `None` where there is none."""
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
        """That record was not stored."""
        if record.is_noticed:
            return
        self._futures.append(record)
        self._last_error = error
        if len(self._futures) > _KEPT:
            self._unseen += self._count_kept()
            self._futures.clear()

    def note_many(self, future: ManyFuture, count: int, error: KohortError) -> None:
        """So many records of one call were not stored."""
        if not future.is_watched:
            self._unseen += count
            self._last_error = error

    def _count_kept(self) -> int:
        return sum(not record.is_noticed for record in self._futures)

    def summary(self) -> str | None:
        """One sentence about all that were not told yet; `None` if there are none."""
        count = self._unseen + self._count_kept()
        if not count:
            return None
        were = "record was" if count == 1 else "records were"
        return f"{count} {were} not stored, and nobody has asked what send returned for them: {self._last_error}"
