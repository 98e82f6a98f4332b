"""Each kind of mistake that a sink of transactions may make, planted: some world of the first 300 finds it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from kohort.errors import ErrorCode, InvariantViolation
from kohort.simulation.transactions.producer import Ask, Attempt, Told
from kohort.simulation.transactions.sink_world import Batch, SimulatedSink, SinkWorld, Step
from support.scenarios.finding_seeds import note_seed, seeds_to_play

#: So many worlds are played at most.
SEEDS = 300


class IdOfTheSecondWriter(SimulatedSink):
    """Takes producer id and epoch in `streamWriter()`, and so again when the batch is committed: fences its tasks."""

    def _commit(self, number: int, batch: Batch) -> Step:
        yield from self._init(is_new=True)
        return (yield from super()._commit(number, batch))


class MarkerBehindTheTransaction(SimulatedSink):
    """Writes the marker in a transaction of its own."""

    def _commit(self, number: int, batch: Batch) -> Step:
        if not (yield from self._end(is_commit=True)) or not (yield from self._init(is_new=True)):
            return False
        return (yield from super()._commit(number, batch))


class MarkerBeforeTheFence(SimulatedSink):
    """Reads the marker while an earlier attempt may still commit."""

    def _begin(self) -> Generator[int | Ask, Told | None, tuple[int, int] | None]:
        found = yield from self._read_marker()
        return found if (yield from self._init(is_new=True)) else None


class UnstableMarker(SimulatedSink):
    """Takes an undecided marker for none, as OffsetFetch without `require_stable` does, before the fence."""

    def _begin(self) -> Generator[int | Ask, Told | None, tuple[int, int] | None]:
        told = yield Ask(api="read")
        found = (0, -1) if told is None or told.code is not ErrorCode.NONE else (told.producer_id, told.epoch)
        return found if (yield from self._init(is_new=True)) else None


class SecondAttemptOfATask(SimulatedSink):
    """Runs a task again under the sequences of its first attempt; a shuffle gives the rows in another order."""

    def _fail_task(self, batch: Batch, added: set[int]) -> Step:
        self._sequences.clear()
        for row in reversed(range(batch.start, batch.end)):
            attempt = Attempt(self.world.note(self.query, row=row), self.name)
            if (yield from self._send(attempt, row % (self._partitions - 1), added)) != "sent":
                return False
        return True


class NumberAlone(SimulatedSink):
    """Takes each batch of a number for the one that is written, though the checkpoint was put back."""

    def _begin(self) -> Generator[int | Ask, Told | None, tuple[int, int] | None]:
        found = yield from super()._begin()
        number = self.query.commits
        if found is None or found[0] <= number or number >= len(self.query.offsets):
            return found
        return number + 1, self.query.offsets[number].digest


@pytest.mark.parametrize(
    ("bug", "laws"),
    [
        (IdOfTheSecondWriter, {"Whole"}),
        (MarkerBehindTheTransaction, {"Once"}),
        (MarkerBeforeTheFence, {"Once"}),
        (UnstableMarker, {"Once"}),
        (SecondAttemptOfATask, {"Once", "Whole"}),
        (NumberAlone, {"Once", "Whole", "NothingMissing"}),
    ],
)
def test_a_planted_bug_is_found(bug: type[SimulatedSink], laws: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkWorld, "sink_type", bug)
    assert law_that_finds() in laws


def law_that_finds() -> str:
    """The law that the first world that finds a bug is broken by."""
    for seed in seeds_to_play(SEEDS):
        try:
            SinkWorld(seed).run()
        except InvariantViolation as broken:
            assert f"make seed WORLD=sinks SEED={seed}" in str(broken)
            note_seed(seed)
            return broken.law.partition(":")[0]
    return "none"


def test_checkpoints_that_are_put_back_are_refused() -> None:
    """Not all: one that was put back to its last batch goes on."""
    queries: list[Any] = []
    for seed in range(0, 60, 3):
        world = SinkWorld(seed)
        world.run()
        queries += world.queries.values()
    assert 0 < sum(query.is_refused for query in queries) < len(queries)
