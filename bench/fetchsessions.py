"""Memory of fetch sessions: what one partition takes in the broker, and what is left when the clients are gone.

200 connections begin a session (KIP-227) over 5,000 partitions each. Resident memory, before, with them and after.
Peer: what lives on the heap of Apache Kafka 4.3 after a full collection.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.registry import ApiKey
from load import RawConnection
from memory import live_mb
from report import APACHE_KAFKA, Row, Table, compare
from servers import KohortServer, start_both
from topics import create_topic

SESSIONS, TOPICS, PARTITIONS = 200, 5, 1_000
ROWS = SESSIONS * TOPICS * PARTITIONS
FETCH_VERSION = 12
SLOTS = "max.incremental.fetch.session.cache.slots"


def begin(port: int) -> RawConnection:
    """A connection with a session over all partitions."""
    connection = RawConnection(port)
    rows = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(PARTITIONS)
    ]
    topics = [FetchTopic(topic=f"session-{number}", partitions=rows) for number in range(TOPICS)]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=0, topics=topics)
    answer = connection.ask(ApiKey.FETCH, FETCH_VERSION, request)
    assert answer.session_id, "no session was begun"
    return connection


def bytes_a_row(server: Any) -> tuple[float, float]:
    """(with the sessions, after them), above what there was before."""
    # What one session leaves for good, such as byte code and arenas, is none of the rows'.
    begin(server.port).close()
    before = live_mb(server)
    connections = [begin(server.port) for _ in range(SESSIONS)]
    during = live_mb(server)
    for connection in connections:
        connection.close()
    begin(server.port).close()
    after = live_mb(server)
    return (during - before) * 1e6 / ROWS, (after - before) * 1e6 / ROWS


def measure(runs: int) -> list[Table]:
    found: list[list[tuple[float, float]]] = [[], []]
    left_out: list[str] = []
    for _ in range(runs):
        with ExitStack() as stack:
            # Apache Kafka divides its slots among eight caches, of which each session goes to one by chance.
            servers, left_out = start_both(stack, ours={SLOTS: SESSIONS + 2}, peer={SLOTS: 8 * SESSIONS})
            for server in servers:
                connection = RawConnection(server.port)
                for number in range(TOPICS):
                    create_topic(connection, f"session-{number}", PARTITIONS)
                connection.close()
                found[not isinstance(server, KohortServer)].append(bytes_a_row(server))

    def row(what: str, at: int, reach: str) -> Row:
        return compare(
            what,
            [each[at] for each in found[0]],
            [each[at] for each in found[1]],
            unit="B",
            reach=reach,
            peer_name=f"{APACHE_KAFKA}, heap after a collection",
            how=str(runs),
            less_is_better=True,
        )

    rows = [row("a partition of a fetch session", 0, "<= 150 B"), row("the same once its client is gone", 1, "report")]
    return [Table("fetchsessions", f"{SESSIONS} fetch sessions of {TOPICS * PARTITIONS:,} partitions", rows, left_out)]
