"""Appends wait for the disk together, and nobody sees what a crash could take back."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from kohort.base.clock import SystemClock
from kohort.broker import durability
from kohort.broker.durability import DiskFull, Durability, is_durable
from kohort.storage.files.fs import DiskDirectory, DiskFile, DiskFileSystem, NoRoomError, SyncFailedError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topicconfig import LONG_MAX
from support.builders.storage_logs import batch, empty_log

PATIENCE_SECONDS = 10.0


class SlowFile(DiskFile):
    """A file whose sync takes until its disk allows it to end."""

    __slots__ = ("disk",)

    disk: SlowDisk

    def sync(self) -> None:
        self.disk.begun.set()
        assert self.disk.gate.wait(PATIENCE_SECONDS)
        if self.disk.lets_one_pass:
            self.disk.gate.clear()
        self.disk.syncs += 1
        if self.disk.is_broken:
            raise SyncFailedError("the disk is broken")
        super().sync()


class SlowDisk(DiskFileSystem):
    """The disk, on which a sync takes until `gate` is open, and fails if `is_broken`.

    `begun`: a sync waits at the gate, or has. `lets_one_pass`: the gate closes behind each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.lets_one_pass = False
        self.is_broken = False
        self.has_descriptors = True
        self.refused = 0
        self.on_refusal: Callable[[], None] = lambda: None
        self.syncs = 0

    def open(self, path: str, *, create: bool = False) -> SlowFile:
        file = SlowFile(path, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0)), self)
        file.disk = self
        return file

    def open_directory(self, path: str) -> DiskDirectory:
        if not self.has_descriptors:
            self.refused += 1
            self.on_refusal()
            raise NoRoomError(f"cannot open directory {path}: Too many open files")
        return super().open_directory(path)


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    disk = SlowDisk()
    yield disk
    disk.gate.set()


def _wake(loop: asyncio.AbstractEventLoop, something: asyncio.Event) -> None:
    loop.call_soon_threadsafe(something.set)


class Bench:
    """A durability on the running loop, and what it called."""

    def __init__(self, disk: SlowDisk, directory: Path) -> None:
        self.disk = disk
        self.readable: list[tuple[PartitionLog, int]] = []
        self.failures: list[Exception] = []
        self.released: list[str] = []
        self._something = asyncio.Event()
        loop = asyncio.get_running_loop()
        disk.on_refusal = partial(_wake, loop, self._something)
        self._directory = directory
        self.durability = Durability(
            asyncio.get_running_loop(),
            on_readable=self._on_readable,
            on_failure=self._on_failure,
            disk_full=DiskFull(SystemClock()),
        )

    def log(self, name: str = "t", **configs: int) -> PartitionLog:
        return empty_log(self.disk, str(self._directory / name), **configs)

    def append(self, log: PartitionLog, name: str) -> None:
        self.durability.append(log, batch(), now_ms=1)
        self.durability.when_durable(log, lambda: self._release(name))

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not happened():
                self._something.clear()
                await self._something.wait()

    def _release(self, name: str) -> None:
        self.released.append(name)
        self._something.set()

    def _on_readable(self, log: PartitionLog) -> None:
        self.readable.append((log, log.high_watermark))
        self._something.set()

    def _on_failure(self, error: Exception) -> None:
        self.failures.append(error)
        self._something.set()


@pytest.fixture
def run(disk: SlowDisk, tmp_path: Path) -> Callable[[Callable[[Bench], Awaitable[None]]], None]:
    """Run a dialogue with a bench on a loop of its own."""

    @asynccontextmanager
    async def bench() -> AsyncIterator[Bench]:
        made = Bench(disk, tmp_path)
        try:
            yield made
        finally:
            disk.gate.set()
            made.durability.stop()

    def run(dialogue: Callable[[Bench], Awaitable[None]]) -> None:
        async def main() -> None:
            async with bench() as made:
                await dialogue(made)

        asyncio.run(main())

    return run


Run = Callable[[Callable[[Bench], Awaitable[None]]], None]


def test_nothing_is_released_or_readable_before_the_sync(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.disk.gate.clear()
        bench.append(log, "a")
        await asyncio.sleep(0)
        assert (bench.released, log.high_watermark, is_durable(log)) == ([], 0, False)

        bench.disk.gate.set()
        await bench.until(lambda: bench.released == ["a"])
        assert (log.high_watermark, is_durable(log)) == (1, True)
        assert (log, 1) in bench.readable

    run(dialogue)


def test_what_is_appended_during_a_sync_is_not_released_by_it(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        log, disk = bench.log(), bench.disk
        disk.gate.clear()
        disk.lets_one_pass = True
        bench.append(log, "before")
        assert await asyncio.to_thread(disk.begun.wait, PATIENCE_SECONDS)
        bench.append(log, "during")

        disk.gate.set()
        await bench.until(lambda: bool(bench.released))
        assert bench.released == ["before"]
        assert (log.high_watermark, is_durable(log)) == (1, False)

        disk.gate.set()
        await bench.until(lambda: len(bench.released) == 2)
        assert is_durable(log)

    run(dialogue)


def test_appends_during_a_sync_share_the_next_one(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.append(log, "0")
        await bench.until(lambda: bench.released == ["0"])
        before = bench.disk.syncs
        bench.disk.gate.clear()
        for number in range(1, 11):
            bench.append(log, str(number))
        bench.disk.gate.set()
        await bench.until(lambda: len(bench.released) == 11)
        assert bench.released == [str(number) for number in range(11)]
        # The first of them began a sync; the other nine went with the next.
        assert bench.disk.syncs - before <= 2

    run(dialogue)


def test_logs_do_not_wait_for_each_other(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        synced, cached = bench.log("a"), bench.log("b", flush_messages=LONG_MAX)
        bench.disk.gate.clear()
        bench.append(synced, "synced")
        bench.append(cached, "cached")
        assert bench.released == ["cached"]
        assert (cached, 1) in bench.readable
        bench.disk.gate.set()
        await bench.until(lambda: "synced" in bench.released)

    run(dialogue)


def test_records_that_may_wait_are_synced_when_their_time_is_over(run: Run) -> None:
    """`flush.ms`: by one sync for all that came meanwhile, and no other while nothing comes."""

    async def dialogue(bench: Bench) -> None:
        log = bench.log(flush_messages=LONG_MAX, flush_ms=1)
        for name in "abc":
            bench.append(log, name)
        assert bench.released == ["a", "b", "c"], "nobody waits for it"
        await bench.until(lambda: log.durable_offset == 3)
        assert bench.disk.syncs == 1
        bench.append(log, "d")
        await bench.until(lambda: log.durable_offset == 4)
        assert bench.disk.syncs == 2

    run(dialogue)


def test_log_that_goes_takes_its_time_with_it(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        gone, left = (bench.log(name, flush_messages=LONG_MAX, flush_ms=1) for name in "ab")
        bench.append(gone, "gone")
        gone.close()
        bench.durability.forget(gone)
        bench.append(left, "left")
        await bench.until(lambda: left.durable_offset == 1)
        assert gone.durable_offset == 0
        assert bench.disk.syncs == 1

    run(dialogue)


def test_a_reader_waits_for_what_was_appended_before_it(run: Run) -> None:
    """An answer that only reads must not tell what a crash would take back."""

    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.disk.gate.clear()
        bench.append(log, "write")
        bench.durability.when_durable(log, lambda: bench._release("read"))
        assert bench.released == []
        bench.disk.gate.set()
        await bench.until(lambda: bench.released == ["write", "read"])

    run(dialogue)


def test_a_failed_sync_is_reported_and_releases_nobody(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.disk.is_broken = True
        bench.append(log, "a")
        await bench.until(lambda: bool(bench.failures))
        assert isinstance(bench.failures[0], SyncFailedError)
        assert bench.released == []
        assert log.high_watermark == 0

    run(dialogue)


def test_a_sync_that_cannot_begin_comes_again_and_releases_nobody_before(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new segment's directory is to be synced and there is no descriptor: that is no failed sync."""
    monkeypatch.setattr(durability, "RETRY_SECONDS", 0.001)

    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.disk.has_descriptors = False
        bench.append(log, "a")
        await bench.until(lambda: bench.disk.refused >= 3)
        assert (bench.released, bench.failures, log.high_watermark, log.is_failed) == ([], [], 0, False)
        bench.append(log, "b")
        bench.disk.has_descriptors = True
        await bench.until(lambda: bench.released == ["a", "b"])

    run(dialogue)
    told = [record.getMessage().split()[0] for record in caplog.records]
    assert told == ["event=sync_postponed", "event=sync_done_again"], "once each, however often it was tried"


def test_a_stop_does_not_wait_for_a_sync_that_cannot_begin(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.disk.has_descriptors = False
        bench.append(log, "a")
        await bench.until(lambda: bench.disk.refused >= 1)
        await bench.durability.drain()
        assert bench.released == []

    run(dialogue)


def test_a_deleted_log_releases_those_who_wait_for_it(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        log = bench.log()
        bench.disk.gate.clear()
        bench.append(log, "a")
        log.close()
        bench.durability.forget(log)
        assert bench.released == ["a"]
        bench.disk.gate.set()
        await bench.durability.drain()
        assert bench.failures == []

    run(dialogue)


def test_drain_waits_for_every_sync(run: Run) -> None:
    async def dialogue(bench: Bench) -> None:
        await bench.durability.drain()
        logs = [bench.log(str(number)) for number in range(6)]
        for log in logs:
            bench.append(log, log.directory)
        await bench.durability.drain()
        assert all(is_durable(log) for log in logs)
        assert len(bench.released) == 6

    run(dialogue)
