"""Records that were not stored, and whose futures nobody has asked: their loss would go unsaid.

Laws: a future that somebody has looked at counts for nothing here, nor does one whose end is told to a callback; memory
is bounded, whatever fails.
Source: requirement: no record is lost without a word.
"""

from __future__ import annotations

from typing import Final

from kohort.client.producer.many import ManyFuture
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import KohortError

#: So many futures are kept to be looked at again; earlier ones that were not asked by then count as lost.
_KEPT: Final = 10_000


class Losses:
    """Counts the records that fail."""

    def __init__(self) -> None:
        self._futures: list[RecordFuture] = []
        #: Of those that are not kept any more.
        self._unseen = 0
        self._last_error: KohortError | None = None

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
        """One sentence about all of them; `None` if there are none."""
        count = self._unseen + self._count_kept()
        if not count:
            return None
        were = "record was" if count == 1 else "records were"
        return f"{count} {were} not stored, and nobody has asked what send returned for them: {self._last_error}"
