"""What an idle group of five settled KIP-848 members takes in the broker's memory: as it grew, and after a restart.

Resident memory of the process: what 8,000 groups add to 2,000 that are there before, which have filled what is bounded
(the journal's ring, caches, the members that one connection is watched for); and what a restarted broker takes for all
of them more than an empty one. Peer: what lives on the heap of Apache Kafka 4.3 after a full collection (jcmd), which
leaves out the rest of it.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from load import RawConnection
from report import Row, compare, show
from restart import (
    GROUPS,
    MEMBERS,
    OURS,
    PROPERTIES,
    THEIRS,
    TOPIC,
    await_groups,
    settle_members,
)
from servers import KohortServer, apache_server, resident_mb
from topics import create_topic

#: Groups that are there before, so that the journal's ring and the other bounded tables are full.
EARLIER = 2_000


def live_mb(server: Any) -> float:
    """Megabytes in use: resident for kohort, live objects for a JVM."""
    if isinstance(server, KohortServer):
        return resident_mb(server.process.pid)
    histogram = subprocess.run(
        ["jcmd", str(server.process.pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    return int(histogram.strip().splitlines()[-1].split()[2]) / 1e6


def measure(server: Any) -> list[float]:
    """Bytes per member: as the groups came, and after a restart (kohort only)."""
    server.start()
    try:
        connection = RawConnection(server.port)
        create_topic(connection, TOPIC, 10)
        await_groups(server, connection)
        fresh = live_mb(server)
        settle_members(connection, end=EARLIER)
        before = live_mb(server)
        settle_members(connection, first=EARLIER)
        took = [(live_mb(server) - before) / (GROUPS - EARLIER)]
        connection.close()
        if isinstance(server, KohortServer):
            server.process.kill()
            server.process.wait(30)
            server.start()
            connection = RawConnection(server.port)
            create_topic(connection, "ready", 1)
            took.append((live_mb(server) - fresh) / GROUPS)
        return [megabytes * 1e6 / MEMBERS for megabytes in took]
    finally:
        server.stop()


def main(runs: int) -> None:
    del runs
    left_out = []
    grown, restarted = measure(KohortServer(PROPERTIES | OURS))
    peers = []
    peer: Any = apache_server(PROPERTIES | THEIRS)
    if isinstance(peer, str) or shutil.which("jcmd") is None:
        left_out.append(peer if isinstance(peer, str) else "left out: jcmd is needed to look into Apache Kafka's heap")
    else:
        peers = measure(peer)

    def row(what: str, ours: float, times: int, reach: str) -> Row:
        theirs = [bytes_per_member * times for bytes_per_member in peers]
        name = "Apache Kafka 4.3, heap"
        return compare(what, [ours * times], theirs, unit="B", reach=reach, peer_name=name, less_is_better=True)

    rows = [
        row("bytes per idle member", grown, 1, "<= 1500"),
        row("the same, restarted", restarted, 1, "<= 1500"),
        row("per group of five", grown, MEMBERS, "<= 6144"),
        row("the same, restarted", restarted, MEMBERS, "<= 6144"),
    ]
    show("Memory of idle groups", rows, left_out=left_out)
