"""Start to the first Metadata answer, cold; resident memory while idle. Peer: Apache Kafka 4.3."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.registry import ApiKey
from load import RawConnection
from report import APACHE_KAFKA, Row, Table, alternate, compare
from servers import KohortServer, apache_left_out, apache_server, resident_mb


def seconds_to_metadata(server: Any) -> tuple[float, float]:
    """(seconds, resident megabytes two seconds later)."""
    with ExitStack() as stack:
        stack.push(server)
        began = time.monotonic()
        server.start()
        deadline = began + 60
        while True:
            try:
                connection = RawConnection(server.port)
                connection.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
        took = time.monotonic() - began
        time.sleep(2)
        memory = resident_mb(server.process.pid)
        connection.close()
    return took, memory


def measure(runs: int) -> list[Table]:
    memories: dict[str, list[float]] = {"ours": [], "peer": []}
    left_out = apache_left_out()

    def start(side: str, make: Callable[[], Any]) -> float:
        server = make()
        if side == "peer":
            # Formatting the directory is not part of a start.
            server.format()
        took, memory = seconds_to_metadata(server)
        memories[side].append(memory)
        return took

    second = None if left_out else lambda: start("peer", apache_server)
    ours, peers = alternate(runs, lambda: start("ours", KohortServer), second)

    how = f"{runs}, cold, after 1 to fill the file cache"

    def row(what: str, mine: list[float], theirs: list[float], unit: str, reach: str) -> Row:
        return compare(what, mine, theirs, unit=unit, reach=reach, peer_name=APACHE_KAFKA, how=how, less_is_better=True)

    rows = [
        row("first Metadata", ours, peers, "s", "<= 0.7 s"),
        row("resident, idle", memories["ours"][1:], memories["peer"][1:], "MB", "<= 60 MB"),
    ]
    return [Table("startup", "Start", rows, left_out)]
