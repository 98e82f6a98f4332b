"""One reader of data that is not in memory, on a disk of 50 MB/s: what the others wait meanwhile.

The broker's process is put under a limit of reads (blkio of Linux's control groups, so it takes root), its files are
taken out of the page cache, and one connection reads them from their begin. Three others fetch what was just written
to another topic, again and again; as many as Apache Kafka has threads for its connections. Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from kohort.wire.codec import decode
from kohort.wire.messages.fetch import FetchResponse
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from logs import directory_of
from report import APACHE_KAFKA, Row, Table, compare
from servers import start_both
from topics import fetch_request, fill

CGROUP = Path("/sys/fs/cgroup/blkio")
READ_LIMIT = 50 << 20
COLD, HOT = "cold", "hot"
#: Of 1 KB.
COLD_RECORDS, HOT_RECORDS = 800_000, 100
VALUE = b"x" * 1000
READ_BYTES = 1 << 20
SECONDS, OTHERS = 8.0, 3
FETCH_VERSION = 11


def why_not() -> list[str]:
    """A sentence why this machine cannot slow a disk down; none if it can."""
    try:
        with slowed(os.getpid(), Path.cwd()):
            return []
    except OSError as why:
        return [f"left out: cold data on a slow disk ({why.strerror}; it takes root and blkio control groups)"]


@contextmanager
def slowed(pid: int, directory: Path) -> Iterator[None]:
    """A process that reads `READ_LIMIT` bytes a second at most from the disk of a directory."""
    group = CGROUP / f"kohort-bench-{pid}"
    group.mkdir()
    try:
        device = os.stat(directory).st_dev
        limit = f"{os.major(device)}:{os.minor(device)} {READ_LIMIT}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
        (group / "cgroup.procs").write_text(str(pid))
        yield
        (CGROUP / "cgroup.procs").write_text(str(pid))
    finally:
        group.rmdir()


def take_out_of_memory(folder: Path) -> None:
    """Have the pages of all files written and let go."""
    os.sync()
    for path in folder.glob("*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_from_begin(port: int, is_over: threading.Event, sizes: list[int]) -> None:
    """Fetch by fetch."""
    connection, offset = RawConnection(port), 0
    while not is_over.is_set():
        connection.send(frame(ApiKey.FETCH, FETCH_VERSION, fetch_request(COLD, 0, offset, READ_BYTES)))
        body = connection.receive()
        sizes.append(len(body))
        row = decode(FetchResponse, FETCH_VERSION, body, 4)[0].responses[0].partitions[0]
        assert row.error_code == 0, row
        records = memoryview(row.records)
        assert records, "the cold data does not last"
        offset += records_in(records)
    connection.close()


def records_in(batches: memoryview) -> int:
    """What an answer is long in offsets; batches that are cut count as far as they came."""
    from kohort.records.header import parse_header

    position = count = 0
    while len(batches) - position > 61:
        header = parse_header(batches, position)
        position += header.size_bytes
        count += header.last_offset_delta + 1 if position <= len(batches) else 0
    return count


def wait_again_and_again(port: int, is_over: threading.Event, waits: list[float]) -> None:
    """Fetch what is in memory; milliseconds of each."""
    connection = RawConnection(port)
    request = frame(ApiKey.FETCH, FETCH_VERSION, fetch_request(HOT, 0, 0, 64 << 10))
    while not is_over.is_set():
        began = time.perf_counter()
        connection.send(request)
        connection.receive()
        waits.append((time.perf_counter() - began) * 1000)
        time.sleep(0.001)
    connection.close()


def beside_cold(server: Any) -> tuple[float, float]:
    """(p99 of the others in milliseconds, MB/s of the one that reads cold data)."""
    is_over, waits, sizes = threading.Event(), [], []
    with slowed(server.process.pid, directory_of(server)):
        take_out_of_memory(directory_of(server) / f"{COLD}-0")
        threads = [threading.Thread(target=read_from_begin, args=(server.port, is_over, sizes))]
        threads += [
            threading.Thread(target=wait_again_and_again, args=(server.port, is_over, waits)) for _ in range(OTHERS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        is_over.set()
        for thread in threads:
            thread.join()
    return quantiles(waits, n=100)[98], sum(sizes) / SECONDS / 1e6


def measure(runs: int) -> list[Table]:
    if left_out := why_not():
        return [Table("cold", "Beside a reader of cold data", [], left_out)]
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            for topic, records in ((COLD, COLD_RECORDS), (HOT, HOT_RECORDS)):
                fill(server, topic, partitions=1, records=records, value=VALUE)
        rounds = [[beside_cold(server) for server in servers] for _ in range(runs)]
    found = [list(side) for side in zip(*rounds, strict=True)]
    row = partial(_row, found, runs)
    return [
        Table(
            "cold",
            "Beside a reader of cold data",
            [
                row("others fetch what is in memory: p99", 0, unit="ms", reach="<= 20 ms", less_is_better=True),
                row("the reader", 1, unit="MB/s", reach="report", less_is_better=False),
            ],
            left_out,
        )
    ]


def _row(
    found: list[list[tuple[float, float]]],
    runs: int,
    what: str,
    place: int,
    *,
    unit: str,
    reach: str,
    less_is_better: bool,
) -> Row:
    ours, *peers = [[run[place] for run in side] for side in found]
    return compare(
        what,
        ours,
        peers[0] if peers else [],
        unit=unit,
        reach=reach,
        peer_name=APACHE_KAFKA,
        how=f"{runs}",
        settings="both: 50 MB/s from the disk",
        less_is_better=less_is_better,
    )
