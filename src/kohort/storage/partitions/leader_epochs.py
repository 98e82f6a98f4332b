"""The leader epochs of a partition, by which readers notice that records they have read are gone.

Laws: epochs rise, and so do the offsets at which they begin. An epoch in which nothing was written has no entry. The
epochs stand in the batches, so the file is a short way to them and no more.
Source: KIP-101, KIP-320; Apache Kafka's `LeaderEpochFileCache`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

#: The keys by which (epoch, first offset) pairs are searched.
_EPOCH: Final = itemgetter(0)
_OFFSET: Final = itemgetter(1)
#: The answer for an unknown epoch.
UNKNOWN: Final = (-1, -1)


class LeaderEpochs:
    """The leader epochs in which records of one partition were written.

    >>> epochs = LeaderEpochs([(0, 0), (3, 120)])
    >>> epochs.end_of(2, current=3, end_offset=500)
    (0, 120)
    """

    __slots__ = ("_starts", "latest")

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        #: (epoch, first offset), ascending.
        self._starts = list(starts)
        #: The last epoch in which something was written; -1 if nothing ever was.
        self.latest = self._starts[-1][0] if self._starts else -1

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """The (epoch, first offset) pairs, ascending."""
        return tuple(self._starts)

    def note(self, epoch: int, offset: int) -> None:
        """Note a batch of `epoch` at `offset`, behind all noted ones."""
        # KIP-101: an epoch is noted with its first record.
        if epoch > self.latest:
            self._starts.append((epoch, offset))
            self.latest = epoch

    def of(self, offset: int) -> int:
        """Return the epoch in which the record at `offset` was written; -1 if it is unknown."""
        at = bisect_right(self._starts, offset, key=_OFFSET)
        return self._starts[at - 1][0] if at else -1

    def end_of(self, epoch: int, *, current: int, end_offset: int) -> tuple[int, int]:
        """Return the last epoch up to `epoch` with records, and its end offset; `UNKNOWN` if there is none.

        `current`: the epoch of the present leader, in which there may be no records yet.
        """
        # KIP-320: a leader knows nothing of epochs after its own.
        if epoch < 0 or epoch > current:
            return UNKNOWN
        if epoch == current:
            return epoch, end_offset
        at = bisect_right(self._starts, epoch, key=_EPOCH)
        return (self._starts[at - 1][0] if at else epoch), (
            self._starts[at][1] if at < len(self._starts) else end_offset
        )

    def cut(self, end_offset: int) -> None:
        """Drop the epochs at or behind `end_offset`; the log was truncated there."""
        while self._starts and self._starts[-1][1] >= end_offset:
            self._starts.pop()
        self.latest = self._starts[-1][0] if self._starts else -1
