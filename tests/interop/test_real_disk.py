"""The real process on a disk that refuses or fails: a small file system of its own, errors put into its system calls.

Each of what docs/explanation/durability.md promises of a disk; a machine where nobody may mount or trace skips it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kohort
from kohort.cli.main import main
from kohort.errors import KohortError
from kohort.storage.files.fs import DiskFileSystem
from support.peers.cli import Running, started_kohort

pytestmark = pytest.mark.interop

RECORD = bytes(1000)
EXIT_DISK_FAILED = 74
#: Producers give up after it.
PATIENCE_MS = 4_000


def _is_allowed(*words: str) -> bool:
    return (
        shutil.which(words[0]) is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0
    )


needs_trace = pytest.mark.skipif(
    not _is_allowed("strace", "-qq", "-e", "inject=fdatasync:error=EIO", "true"),
    reason="strace, and the right to trace, are needed",
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or not _is_allowed("mount", "-t", "tmpfs", "-o", "size=3m", "kohort", str(place)):
        pytest.skip("to mount a small file system takes root's rights")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def broker_on(directory: Path) -> Iterator[tuple[Running, str]]:
    with started_kohort("up", "--port", "0", "--data-dir", str(directory)) as running:
        yield running, running.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")


def send(bootstrap: str, count: int) -> tuple[list[int], list[str]]:
    """Offsets of records that were acknowledged, and why others were not; it ends with the first that is refused."""
    options = {"linger_ms": 0, "delivery_timeout_ms": PATIENCE_MS, "request_timeout_ms": PATIENCE_MS // 2}
    stored: list[int] = []
    with kohort.Producer(bootstrap_servers=bootstrap, **options) as producer:
        for _ in range(count):
            try:
                stored.append(producer.send("orders", RECORD, partition=0).result(30).offset)
            except KohortError as why:
                return stored, [str(why)]
    return stored, []


def read(bootstrap: str, count: int) -> list[int]:
    place = kohort.TopicPartition("orders", 0)
    found: list[int] = []
    with kohort.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        while len(found) < count and (records := consumer.poll(10.0)):
            found += [record.offset for record in records]
    return found


def commit(bootstrap: str, offset: int) -> KohortError | None:
    with kohort.Consumer(bootstrap_servers=bootstrap, group_id="g", enable_auto_commit=False) as consumer:
        try:
            consumer.commit({kohort.TopicPartition("orders", 0): offset}, timeout=3)
        except KohortError as why:
            return why
    return None


@contextmanager
def failing(running: Running, calls: str, error: str) -> Iterator[None]:
    """From here on these system calls of the process fail, until the end of the block."""
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", "/dev/null", "-p", str(running.process.pid), "-e", f"inject={calls}:error={error}"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    assert "attached" in tracer.stderr.readline()
    try:
        yield
    finally:
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=30)


def test_file_system_that_is_full_refuses_and_heals_and_keeps_what_was_acknowledged(small_disk: Path) -> None:
    with broker_on(small_disk) as (running, bootstrap):
        with kohort.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 1)
        assert commit(bootstrap, 1) is None
        filler = small_disk / "filler"
        filler.write_bytes(bytes(2_500_000))
        stored, (why,) = send(bootstrap, 5_000)
        assert "KAFKA_STORAGE_ERROR" in why and "no space left" in why
        rest = os.statvfs(small_disk)
        (small_disk / "rest").write_bytes(bytes(rest.f_bavail * rest.f_frsize))
        assert len(read(bootstrap, len(stored))) == len(stored), "reading goes on"
        # The first may still fit into the last page.
        answers = (commit(bootstrap, offset) for offset in range(2, 60))
        refused = next((each for each in answers if each is not None), None)
        assert refused is not None and refused.retriable
        filler.unlink()
        more, others = send(bootstrap, 20)
        assert (len(more), others) == (20, [])
        assert commit(bootstrap, 100) is None
        assert running.end() == 0
    with broker_on(small_disk) as (running, bootstrap):
        kept = read(bootstrap, len(stored) + 20)
        assert set(stored) | set(more) <= set(kept)
        with kohort.Consumer(bootstrap_servers=bootstrap, group_id="g") as consumer:
            place = kohort.TopicPartition("orders", 0)
            assert consumer.committed([place])[place] == 100
        assert running.end() == 0


@needs_trace
@pytest.mark.parametrize("calls", ["fdatasync", "pwrite64"])
def test_disk_that_fails_ends_the_process_with_74_and_keeps_what_was_acknowledged(calls: str, tmp_path: Path) -> None:
    with broker_on(tmp_path) as (running, bootstrap):
        with kohort.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 1)
        stored, _ = send(bootstrap, 20)
        with failing(running, calls, "EIO"):
            refused, (why,) = send(bootstrap, 1)
            assert refused == [] and why
            assert running.wait(timeout=30) == EXIT_DISK_FAILED
        assert any("Input/output error" in line for line in running.complaints)
    with broker_on(tmp_path) as (running, bootstrap):
        assert set(stored) <= set(read(bootstrap, len(stored)))
        assert running.end() == 0


@needs_trace
def test_write_that_finds_no_room_is_refused_and_heals(tmp_path: Path) -> None:
    with broker_on(tmp_path) as (running, bootstrap):
        with kohort.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 1)
        stored, _ = send(bootstrap, 5)
        with failing(running, "pwrite64", "ENOSPC"):
            refused, (why,) = send(bootstrap, 1)
            assert refused == [] and "no space left" in why
            assert len(read(bootstrap, 5)) == 5
        more, others = send(bootstrap, 5)
        assert (len(more), others) == (5, [])
        assert read(bootstrap, 10) == [*stored, *more]
        assert running.end() == 0


@needs_trace
def test_page_that_cannot_be_read_is_no_end_of_the_broker(tmp_path: Path) -> None:
    with broker_on(tmp_path) as (running, bootstrap):
        with kohort.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 1)
        stored, _ = send(bootstrap, 5)
        with failing(running, "preadv2,pread64,preadv", "EIO"):
            more, others = send(bootstrap, 5)
            assert (len(more), others) == (5, []), "it is written all the same"
            assert read_briefly(bootstrap) == 0
        assert read(bootstrap, 10) == [*stored, *more]
        assert running.end() == 0


def read_briefly(bootstrap: str) -> int:
    """Records that come within two seconds."""
    place = kohort.TopicPartition("orders", 0)
    with kohort.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        return len(consumer.poll(2.0))


def test_disk_that_became_read_only_can_be_checked(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Linux makes of a file system that failed; a broker's end by 74 says that one should look."""
    with broker_on(small_disk / "data") as (running, bootstrap):
        with kohort.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 1)
        assert len(send(bootstrap, 3)[0]) == 3
        assert running.end() == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    questions = (["check", "data"], ["repair", "data"], ["dump", "data/orders-0"])
    holder = DiskFileSystem(reads_only=True).lock(str(small_disk / "data" / ".lock"), "kohort")
    assert holder is not None
    for action, place in questions:
        assert main(["log", action, str(small_disk / place)]) == 1
        assert "broker (process" in capsys.readouterr().err
    holder.release()
    for action, place in questions:
        assert main(["log", action, str(small_disk / place)]) == 0, capsys.readouterr().err
    assert "offsets 2-2" in capsys.readouterr().out
