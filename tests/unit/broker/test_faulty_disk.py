"""A broker's disk fails at any operation of a day, in any way: it refuses or ends, and nothing acknowledged is lost.

`make soak ONLY=faulty-disk` strikes every operation; here it is one of many, other ones for each fault.
"""

from __future__ import annotations

import asyncio

import pytest

from kohort.broker.apis import produce
from kohort.errors import Refused, StorageError
from kohort.testing import Fault, FaultyFileSystem, Operation
from kohort.testing.disks import FaultyFile, MemoryFileSystem
from kohort.wire.messages.produce import PartitionProduceResponse
from support.depth import IS_SOAK
from support.scenarios.faulty_day import Day

pytestmark = pytest.mark.large

#: Every so many operations one is struck.
STRIDE = 1 if IS_SOAK else 18
FAULTS = [fault for fault in Fault if fault is not Fault.POWER_LOSS]


@pytest.fixture(scope="module")
def operations() -> list[Operation]:
    """Those of a day without a fault."""
    disk = FaultyFileSystem()
    operations: list[Operation] = []
    disk.on_operation = operations.append
    day = Day(disk)
    asyncio.run(day.live())
    assert (day.refusals, day.ends) == ([], 0)
    return operations[: day.operations]


@pytest.mark.parametrize("times", [1, None], ids=["once", "until-healed"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_at_any_operation_of_a_day(fault: Fault, times: int | None, operations: list[Operation]) -> None:
    possible = [operation for operation in operations if operation.name in fault.strikes]
    stride = min(STRIDE, len(possible) // 4)
    # A fault that stays strikes halfway between two that pass.
    first = FAULTS.index(fault) + (stride // 2 if times is None else 0)
    missed = 0
    for operation in possible[first % stride :: stride]:
        disk = FaultyFileSystem()
        disk.inject(fault, at=operation.number, times=times)
        day = Day(disk)
        try:
            asyncio.run(day.live())
        except Exception as why:
            raise AssertionError(f"{fault} at {operation}: {day.refusals}") from why
        missed += not disk.struck
        if disk.struck and fault in (Fault.FAILING_WRITE, Fault.FAILING_SYNC):
            assert day.ends == 1, "a disk that fails ends the broker, whoever met it"
        else:
            assert day.ends <= 1, "a start may be refused; a broker that runs goes on"
    assert missed <= 3, "the last operations of a day are fewer now and then, as its threads take turns"


class LyingFile(FaultyFile):
    """Says that it has synced."""

    def sync(self) -> None:
        """Nothing."""


class LyingDisk(FaultyFileSystem):
    """Its files have synced whenever they are asked to."""

    def __init__(self) -> None:
        self.memory = MemoryFileSystem()
        super().__init__(self.memory)

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        return LyingFile(self, path, self.memory.open(path, create=create))


def test_a_disk_that_lies_about_its_syncs_is_found_out() -> None:
    """The day can fail: in its end the power goes."""
    disk = LyingDisk()
    with pytest.raises((AssertionError, StorageError)):
        asyncio.run(Day(disk).live())


def test_an_answer_that_is_no_promise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that a full disk has refused are acknowledged all the same."""
    monkeypatch.setattr(produce, "_refuse", _take_all_the_same)
    disk = FaultyFileSystem()
    disk.inject(Fault.NO_SPACE, where=lambda operation: operation.name == "write" and "logs-0/0" in operation.path)
    with pytest.raises(AssertionError):
        asyncio.run(Day(disk).live())


def _take_all_the_same(answer: PartitionProduceResponse, refused: Refused) -> None:
    del refused
    answer.base_offset = 1_000
