"""The power goes at every operation of a broker's files: what was acknowledged by then is there after the next start.

`make soak ONLY=power-loss` tries 200 seeds at each moment of two scenarios; here it is one of one. Planted faults show
that the test can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.apis import produce
from kohort.broker.durability import Durability
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.disks import MemoryFile, MemoryFileSystem
from support.depth import at_depth
from support.scenarios.power_loss import PromiseBroken, Run, check_moment, play

pytestmark = pytest.mark.large

SEEDS = at_depth(1, 200)
SCENARIOS = at_depth(1, 2)
#: Within so many runs a planted fault is found; the first one mostly does.
RUNS = 20
#: Enough of it at each copy that a collector which is on comes by.
GARBAGE = 10


def lose_power_everywhere(run: Run, seeds: int) -> None:
    """At each moment, as many times."""
    for place, moment in enumerate(run.moments):
        for seed in range(seeds):
            try:
                check_moment(run, moment, seed * 100_000 + place)
            except PromiseBroken as why:
                raise PromiseBroken(f"moment {place} of {len(run.moments)}, seed {seed}: {why}") from why


@pytest.mark.parametrize("seed", range(1, SCENARIOS + 1))
def test_what_is_acknowledged_survives_a_power_loss_at_any_operation(seed: int) -> None:
    run = play(seed)
    kinds = [type(promise).__name__ for promise in run.promises]
    assert {*kinds} == {"Stored", "Committed", "Exists", "Doomed", "Gone"}
    assert len(run.moments) > 200
    lose_power_everywhere(run, SEEDS)


class _Litter:
    """Garbage that lets other threads run when it is collected, as a socket does that nobody has closed."""

    def __init__(self, noted: list[str]) -> None:
        self._noted = noted
        self._itself = self

    def __del__(self) -> None:
        self._noted.append("collected")


def test_no_garbage_is_collected_while_a_disk_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise made meanwhile would be looked for in a copy that is older."""
    noted: list[str] = []
    collected: list[int] = []
    whole = MemoryFileSystem.copy

    def copy(self: MemoryFileSystem) -> MemoryFileSystem:
        for _ in range(GARBAGE):
            _Litter(noted)
        twin = whole(self)
        # Counted here: behind the scenario the collector may be at work before anybody has looked.
        collected.append(len(noted))
        return twin

    monkeypatch.setattr(MemoryFileSystem, "copy", copy)
    assert play(1).moments
    assert collected and not any(collected)


def released_by_any_sync(patch: pytest.MonkeyPatch) -> None:
    """Who waits for an offset is answered after the next sync, whatever that covered."""
    whole = Durability._on_synced

    def release_all(self: Durability, log: PartitionLog, durable_offset: int, seconds: float) -> None:
        whole(self, log, durable_offset, seconds)
        for _, callback in self._waiting.pop(log, ()):
            callback()

    patch.setattr(Durability, "_on_synced", release_all)


def end_after_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A sync claims what was appended while it ran."""
    whole = PartitionLog.sync

    def claim(self: PartitionLog) -> int:
        whole(self)
        return self.log_end_offset

    patch.setattr(PartitionLog, "sync", claim)


def one_partition_for_all(patch: pytest.MonkeyPatch) -> None:
    """acks=all over two partitions waits for the first of them."""

    def after_one(calls: int, callback: Callable[[], None]) -> Callable[[], None]:
        callbacks = [callback]
        return lambda: callbacks.pop()() if callbacks else None

    patch.setattr(produce, "_after", after_one)


def sync_of_nothing(patch: pytest.MonkeyPatch) -> None:
    """A file is as it was before the sync."""
    patch.setattr(MemoryFile, "sync", lambda _: None)


def names_left_out(patch: pytest.MonkeyPatch) -> None:
    """A file's bytes are made durable, and its name is not."""
    whole: Any = MemoryFileSystem.open_directory

    def forgetful(self: MemoryFileSystem, path: str) -> Any:
        directory = whole(self, path)
        patch.setattr(type(directory), "sync", lambda _: None)
        return directory

    patch.setattr(MemoryFileSystem, "open_directory", forgetful)


@pytest.mark.parametrize(
    "plant", [released_by_any_sync, end_after_the_sync, one_partition_for_all, sync_of_nothing, names_left_out]
)
def test_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(PromiseBroken):
        for seed in range(RUNS):
            lose_power_everywhere(play(seed), 1)
