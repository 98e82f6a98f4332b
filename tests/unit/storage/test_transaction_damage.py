"""Damage to a log with transactions: no record of an aborted or open one is ever given out as committed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import pytest

from kohort.errors import StorageError
from kohort.storage.log_state import capture, settle, write
from kohort.storage.segments.segment import SUFFIX
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory
from kohort.testing.disks import Crashed, Fault, FaultyFileSystem, MemoryFileSystem
from support.builders.left_directory import files_in, scrub_all
from support.builders.storage_logs import PAGE_CACHE, TOPIC_ID, empty_log
from support.builders.transactional_logs import (
    ABORTED,
    COMMITTED,
    STEPS,
    committed,
    transactional_directory,
)
from support.depth import IS_SOAK

STRIDE = 1 if IS_SOAK else 29
T = TypeVar("T")


def read(fs: MemoryFileSystem) -> dict[int, bytes | None]:
    """What a broker that starts on the directory gives out as committed, once its scrubber has passed."""
    store = Store.open("/data", fs=fs)
    (log,) = store.topics["orders"].partitions
    scrub_all(fs, log)
    found = dict(committed(log))
    store.close(clean=False)
    return found


@pytest.mark.parametrize("is_clean", [True, False])
def test_committed_records_alone_are_read_after_a_start(is_clean: bool) -> None:
    fs = transactional_directory(is_clean=is_clean)
    assert read(fs) == COMMITTED
    assert [damage for each in inspect_directory(fs, "/data") for damage in each.damages] == []


@pytest.mark.large
@pytest.mark.parametrize("is_clean", [True, False])
def test_flipped_bit_shows_no_record_that_does_not_count(is_clean: bool) -> None:
    origin = transactional_directory(is_clean=is_clean)
    tried = 0
    for path in files_in(origin):
        if path.endswith("meta.properties"):
            continue
        for at in range(tried % STRIDE, origin.open(path).size(), STRIDE):
            fs = origin.copy()
            file = fs.open(path)
            file.write(at, bytes([file.read(at, 1)[0] ^ 1 << at % 8]))
            found = read(fs)
            assert found.items() <= COMMITTED.items(), f"{path} byte {at}: {found}"
            if not path.endswith(SUFFIX):
                assert found == COMMITTED, f"{path} byte {at}: {COMMITTED.keys() - found.keys()} are gone"
            tried += 1


def test_end_is_cut_at_any_byte() -> None:
    """A power loss may leave any prefix of the last segment."""
    origin = transactional_directory(is_clean=False)
    path = max(each for each in files_in(origin) if each.endswith(SUFFIX))
    for size in range(0, origin.open(path).size(), STRIDE):
        fs = origin.copy()
        fs.open(path).truncate(size)
        found = read(fs)
        assert found.items() <= COMMITTED.items(), f"cut at {size}: {found}"
        assert not ABORTED & set(found.values())


# ---- faults of the disk at every operation


class History:
    """A broker whose disk has a fault while the history of `STEPS` is written; each step is synced."""

    def __init__(self, disk: FaultyFileSystem) -> None:
        self.disk = disk
        #: Steps that were durable, and so may have been answered.
        self.done = 0

    def run(self) -> None:
        """Write the history; a step that a full disk has refused is tried again, as clients and coordinators do."""
        store = Store.open("/data", fs=self.disk)
        configs = {**PAGE_CACHE, "segment.bytes": "400"}
        (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions
        for number, step in enumerate(STEPS):
            self._again(lambda step=step: step(log))
            self._again(lambda: log.mark_durable(log.sync()))
            self.done = number + 1
            if number % 5 == 4:
                captured = capture(log)
                settle(captured, self._again(lambda captured=captured: write(self.disk, captured)))

    def _again(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except StorageError as why:
            if why.fatal:
                raise
            return work()

    def outcome(self) -> dict[int, bytes | None]:
        """What the next start gives out as committed."""
        store = Store.open("/data", fs=self.disk)
        found = {} if "orders" not in store.topics else dict(committed(store.topics["orders"].partitions[0]))
        store.close(clean=False)
        return found


def shown_after_each_step() -> list[dict[int, bytes | None]]:
    """What readers of committed records have seen after so many steps."""
    log = empty_log(MemoryFileSystem(), "/orders-0", segment_bytes=400)
    shown: list[dict[int, bytes | None]] = [{}]
    for step in STEPS:
        step(log)
        log.mark_durable(log.sync())
        shown.append(dict(committed(log)))
    return shown


#: Survivors of a power loss: as many bytes of a file, of those durable and written, and changes of a folder.
SURVIVALS: Final[dict[str, Callable[[FaultyFileSystem], None]]] = {
    "durable": lambda disk: disk.crash(),
    "written": lambda disk: disk.crash(lambda _, __, written: written, changes_kept=lambda _, count: count),
    "half": lambda disk: disk.crash(
        lambda _, durable, written: (durable + written) // 2, changes_kept=lambda _, count: count
    ),
    "zeros": lambda disk: disk.crash(changes_kept=lambda _, count: count, zero_fill=True),
    "lists only": lambda disk: disk.crash(
        lambda path, durable, written: written if path.endswith(".txnindex") else durable,
        changes_kept=lambda _, count: count,
    ),
    "records only": lambda disk: disk.crash(
        lambda path, durable, written: written if path.endswith(SUFFIX) else durable,
        changes_kept=lambda _, count: count,
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("survival", SURVIVALS)
def test_power_loss_at_any_operation_takes_nothing_back_and_shows_nothing_aborted(survival: str) -> None:
    shown = shown_after_each_step()
    assert shown[-1] == COMMITTED
    healthy = History(FaultyFileSystem())
    healthy.run()
    first = len(survival) % STRIDE
    for at in range(1 + first, healthy.disk.operations + 1, STRIDE):
        history = History(FaultyFileSystem())
        history.disk.inject(Fault.POWER_LOSS, at=at)
        # Reading operations lose no power: the last ones of the history may be such.
        with suppress(Crashed):
            history.run()
        SURVIVALS[survival](history.disk)
        found = history.outcome()
        assert found.items() <= COMMITTED.items(), f"operation {at}: {found}"
        assert found.items() >= shown[history.done].items(), f"operation {at}, {history.done} steps: {found}"


@pytest.mark.large
@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.SHORT_WRITE, Fault.FAILING_WRITE, Fault.FAILING_SYNC])
def test_refusal_of_any_operation_is_retried_or_ends_the_broker_and_shows_nothing_aborted(fault: Fault) -> None:
    shown = shown_after_each_step()
    healthy = History(FaultyFileSystem())
    healthy.run()
    for at in range(1 + fault.number % STRIDE, healthy.disk.operations + 1, STRIDE):
        history = History(FaultyFileSystem())
        history.disk.inject(fault, at=at, times=1)
        with suppress(StorageError):
            history.run()
        history.disk.heal()
        history.disk.restart()
        found = history.outcome()
        assert found.items() <= COMMITTED.items(), f"operation {at}: {found}"
        assert found.items() >= shown[history.done].items(), f"operation {at}, {history.done} steps: {found}"
