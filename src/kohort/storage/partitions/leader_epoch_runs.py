"""The leader epochs in a log's batches, and the correction of wrong ones: no checksum covers them.

Laws: epochs never fall from batch to batch. What is known of them from elsewhere goes first; of those that do not fit
the fewest batches are taken to be wrong, and theirs to be the epoch behind them, or else in front of them: too large an
epoch has a reader look at what it has already, too small a one may hide that records went.
Source: Apache Kafka's batch format (partitionLeaderEpoch lies in front of the CRC); KIP-101.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from kohort.storage.partitions.leader_epochs import LeaderEpochs
from kohort.storage.segments.segment import Segment

#: The field partitionLeaderEpoch of a batch, and its position.
_EPOCH: Final = Struct(">i")
_EPOCH_POSITION: Final = 12
_NO_LIMIT: Final = 1 << 31


class EpochRun(NamedTuple):
    """Consecutive batches of one epoch."""

    first_offset: int
    next_offset: int
    epoch: int
    batches: int

    def __str__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1} are of leader epoch {self.epoch}"


class EpochRuns:
    """The epochs of a log's batches, in order, each with the epoch that it claims.

    Args:
        known: (epoch, first offset) pairs, ascending.
        known_before: the offset before which these pairs are complete.
        highest: no epoch is above it; `None` if that is unknown.

    >>> runs = EpochRuns()
    >>> for offset, epoch in enumerate([0, 0, 4, 0, 2, 2]):
    ...     runs.note(offset, offset + 1, epoch)
    >>> runs.wrong()
    [EpochRun(first_offset=2, next_offset=3, epoch=0, batches=1)]
    >>> runs.epochs().starts
    ((0, 0), (2, 4))
    """

    __slots__ = ("_batches", "_highest", "_known", "_known_before", "_last", "_misfits", "_runs")

    def __init__(
        self, known: Iterable[tuple[int, int]] = (), known_before: int = 0, *, highest: int | None = None
    ) -> None:
        self._known = LeaderEpochs(known)
        self._known_before = known_before
        self._highest = _NO_LIMIT if highest is None else max(highest, self._known.latest)
        #: Before `known_before`: batches that differ from the known epochs, with the right epoch.
        self._misfits: list[EpochRun] = []
        #: The runs behind `known_before`, without the batches of the last run.
        self._runs: list[EpochRun] = []
        self._last = (0, 0, -1)
        self._batches = 0

    def note(self, first_offset: int, next_offset: int, epoch: int) -> None:
        """Note a batch that claims to be of `epoch`."""
        if first_offset < self._known_before:
            # A batch that compaction made of several ones may cover offsets of batches that are gone.
            low, high = max(self._known.of(first_offset), 0), self._known.of(next_offset - 1)
            if high >= 0 and not low <= epoch <= high:
                self._misfits.append(EpochRun(first_offset, next_offset, high, 1))
        elif self._batches and self._last[2] == epoch:
            self._batches += 1
            self._last = (self._last[0], next_offset, epoch)
        else:
            self._close()
            self._last, self._batches = (first_offset, next_offset, epoch), 1

    def wrong(self) -> list[EpochRun]:
        """Return the batches with impossible epochs, ascending, each with the right epoch."""
        runs = zip(self._close(), self._righted(), strict=True)
        return [*self._misfits, *(right for said, right in runs if said != right)]

    def epochs(self) -> LeaderEpochs:
        """Return the beginnings of the epochs."""
        epochs = LeaderEpochs(self._known.starts)
        for run in self._righted():
            epochs.note(run.epoch, run.first_offset)
        return epochs

    def _righted(self) -> list[EpochRun]:
        """Return the runs with the right epochs."""
        runs = self._close()
        kept = self._fitting()
        # Wrong batches get the epoch behind them: too large an epoch does no harm, too small a one may hide losses.
        epoch = max([self._known.latest, 0, *(runs[at].epoch for at in kept)])
        found = []
        for at in reversed(range(len(runs))):
            epoch = runs[at].epoch if at in kept else epoch
            found.append(runs[at]._replace(epoch=epoch))
        return found[::-1]

    def _close(self) -> list[EpochRun]:
        if self._batches:
            self._runs.append(EpochRun(*self._last, self._batches))
            self._batches = 0
        return self._runs

    def _fitting(self) -> set[int]:
        """Choose runs with rising epochs that have the most batches; usually all of them."""
        # -1: the writer of the batch knew no epoch.
        runs, floor, highest = self._runs, self._known.latest, self._highest
        possible = [at for at, run in enumerate(runs) if floor <= run.epoch <= highest]
        if all(runs[one].epoch <= runs[after].epoch for one, after in pairwise(possible)):
            return set(possible)
        #: Run -> batches of the best way that ends with it, and the run before it on that way.
        ways: dict[int, tuple[int, int]] = {}
        for at in possible:
            before = [(ways[other][0], other) for other in ways if runs[other].epoch <= runs[at].epoch]
            weight, other = max(before, default=(0, -1))
            ways[at] = weight + runs[at].batches, other
        kept: set[int] = set()
        step = max(ways, key=lambda at: ways[at][0])
        while step >= 0:
            kept.add(step)
            step = ways[step][1]
        return kept


def mend_epochs(segments: Iterable[Segment], wrong: Iterable[EpochRun]) -> list[Segment]:
    """Write the right epochs into the batches; return the changed segments, which are not synced yet.

    Raises:
        StorageError: the disk refuses; what was written until then is right.
    """
    runs, changed = list(wrong), []
    for segment in segments:
        ours = [run for run in runs if run.first_offset < segment.next_offset and run.next_offset > segment.base_offset]
        for run in ours:
            position = segment.position_of(max(run.first_offset, segment.base_offset))
            while position < segment.size:
                header = segment.header_at(position)
                if header.base_offset >= run.next_offset:
                    break
                segment.file.write(position + _EPOCH_POSITION, _EPOCH.pack(run.epoch))
                position += header.size_bytes
        if ours:
            changed.append(segment)
    return changed
