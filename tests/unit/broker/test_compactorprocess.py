"""The process that compacts: what it makes is what a thread would, and whatever becomes of it, the log is whole."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.processes.compactorprocess import CompactorProcess
from kohort.errors import StorageError
from kohort.records.batch import build_batch
from kohort.storage.compaction import CompactionPlan, CompactionStopped, compact, plan_compaction
from kohort.storage.files.fs import DiskFileSystem, DiskHealth
from support.builders.assignor_package import wait_until_gone
from support.builders.storage_logs import empty_log

pytestmark = pytest.mark.process

NOW_MS = 5_000


@pytest.fixture
def process() -> Iterator[CompactorProcess]:
    process = CompactorProcess(DiskHealth())
    yield process
    process.stop()
    process.end()


@pytest.fixture
def plan(tmp_path: Path) -> CompactionPlan:
    """Of a log with 3 keys, each written 20 times, in several segments."""
    log = empty_log(DiskFileSystem(), str(tmp_path / "orders-0"), is_compacted=True, segment_bytes=1_000)
    for number in range(60):
        log.append(build_batch([(b"key-%d" % (number % 3), bytes(50), 1_000, ())]), now_ms=1, validate=False)
    log.mark_durable(log.sync())
    found = plan_compaction(log, 0, now_ms=NOW_MS, dedupe_buffer_bytes=1 << 20)
    assert found is not None
    return found[0]


def files(plan: CompactionPlan, suffix: str = "") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(plan.directory).iterdir() if path.name.endswith(suffix)}


def test_what_it_makes_is_what_a_thread_makes(process: CompactorProcess, plan: CompactionPlan) -> None:
    made = process.compact(plan, now_ms=NOW_MS)
    written = files(plan, ".cleaned")
    assert made.records_before > 50 and made.records_after == 3
    assert written and made == compact(DiskFileSystem(), plan, now_ms=NOW_MS)
    assert files(plan, ".cleaned") == written


def test_it_lives_on_between_orders_and_is_started_again_after_its_end(
    process: CompactorProcess, plan: CompactionPlan
) -> None:
    assert process.process_id is None, "nothing is started before it is needed"
    made = process.compact(plan, now_ms=NOW_MS)
    first = process.process_id
    process.compact(plan, now_ms=NOW_MS)
    assert first is not None and process.process_id == first
    process.end()
    assert process.process_id is None
    wait_until_gone(first)
    assert process.compact(plan, now_ms=NOW_MS) == made


def test_one_that_is_killed_leaves_the_log_as_it_was(process: CompactorProcess, plan: CompactionPlan) -> None:
    before = files(plan, ".log")
    process.compact(plan, now_ms=NOW_MS)
    assert process.process_id is not None
    os.kill(process.process_id, signal.SIGKILL)
    with pytest.raises(StorageError, match="its process was ended by signal 9 before the log was compacted"):
        process.compact(plan, now_ms=NOW_MS)
    assert files(plan, ".log") == before
    assert process.compact(plan, now_ms=NOW_MS).records_after == 3


def test_stop_is_for_good(process: CompactorProcess, plan: CompactionPlan) -> None:
    process.compact(plan, now_ms=NOW_MS)
    process.stop()
    for _ in range(2):
        with pytest.raises(CompactionStopped):
            process.compact(plan, now_ms=NOW_MS)


def test_file_that_was_cut_from_outside_is_told_and_ends_no_process(
    process: CompactorProcess, plan: CompactionPlan
) -> None:
    os.truncate(f"{plan.directory}/{0:020d}.log", 100)
    with pytest.raises(StorageError, match="ends in the middle of a batch"):
        process.compact(plan, now_ms=NOW_MS)
    assert process.process_id is not None


BROKER = """
import os, pickle, signal, sys
from kohort.broker.processes.compactorprocess import CompactorProcess
from kohort.storage.files.fs import DiskHealth
process = CompactorProcess(DiskHealth())
process.compact(pickle.load(sys.stdin.buffer), now_ms=5000)
print(process.process_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_a_broker_that_is_killed(plan: CompactionPlan) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKER], input=pickle.dumps(plan), stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    wait_until_gone(int(done.stdout))
