"""What an idle group of five settled KIP-848 members takes in the broker's memory: as it grew, and after a restart.

Looked at on the way of `restart.py`, in which 10,000 such groups come. Resident memory of the process: what 8,000
groups add to 2,000 that are there before, which have filled what is bounded (the journal's ring, caches, the members
that one connection is watched for); and what a restarted broker takes for all of them more than an empty one. Peer:
what lives on the heap of Apache Kafka 4.3 after a full collection (jcmd), which leaves out the rest of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from report import Row, compare
from servers import KohortServer, resident_mb

GROUPS, EARLIER, MEMBERS = 10_000, 2_000, 5


def live_mb(server: Any) -> float:
    """Megabytes in use: resident for kohort, live objects for a JVM."""
    if isinstance(server, KohortServer):
        return resident_mb(server.process.pid)
    histogram = subprocess.run(
        ["jcmd", str(server.process.pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    return int(histogram.strip().splitlines()[-1].split()[2]) / 1e6


def rows_of_memory(megabytes: Sequence[Sequence[float]], restarted_mb: float, *, settings: str) -> list[Row]:
    """Rows of what was in use of each server, ours first: empty, with `EARLIER` groups, with all; and restarted."""
    grown = [(everything - earlier) * 1e6 / (GROUPS - EARLIER) for _, earlier, everything in megabytes]
    restarted = (restarted_mb - megabytes[0][0]) * 1e6 / GROUPS

    def row(what: str, ours: float, peers: list[float], reach: str) -> Row:
        return compare(
            what,
            [ours],
            peers,
            unit="B",
            reach=reach,
            peer_name="Apache Kafka 4.3, heap after a collection" if peers else "no peer",
            how="1",
            settings=settings,
            less_is_better=True,
        )

    return [
        row("an idle member", grown[0] / MEMBERS, [group / MEMBERS for group in grown[1:]], "<= 1,500 B"),
        row("an idle group of five", grown[0], grown[1:], "<= 6 KB"),
        row("an idle member and its 2 committed offsets, restarted", restarted / MEMBERS, [], "report"),
        row("an idle group of five and its 10 committed offsets, restarted", restarted, [], "report"),
    ]
