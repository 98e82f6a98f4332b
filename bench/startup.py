"""Start to the first Metadata answer, cold; resident memory while idle. Peer: Apache Kafka 4.3."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.registry import ApiKey
from load import RawConnection
from report import alternate, compare, show
from servers import KohortServer, apache_server, resident_mb


def seconds_to_metadata(server: Any) -> tuple[float, float]:
    """(seconds, resident megabytes two seconds later)."""
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
    server.stop()
    return took, memory


def main(runs: int) -> None:
    memories: dict[str, list[float]] = {"ours": [], "peer": []}
    peer = apache_server()

    def measure(side: str, make: Callable[[], Any]) -> float:
        server = make()
        if side == "peer":
            # Formatting the directory is not part of a start.
            server.format()
        took, memory = seconds_to_metadata(server)
        memories[side].append(memory)
        return took

    left_out = [peer] if isinstance(peer, str) else []
    second = None if left_out else lambda: measure("peer", apache_server)
    ours, peers = alternate(runs, lambda: measure("ours", KohortServer), second)
    name = "Apache Kafka 4.3"
    rows = [
        compare("first Metadata", ours, peers, unit="s", reach="<= 0.7 s", peer_name=name, less_is_better=True),
        compare(
            "resident, idle",
            memories["ours"],
            memories["peer"],
            unit="MB",
            reach="<= 60 MB",
            peer_name=name,
            less_is_better=True,
        ),
    ]
    show("Start", rows, left_out=left_out)
