"""OffsetCommit over one connection, one partition each: 20 in flight and one at a time, not synced and synced.

Peer: Apache Kafka 4.3. It leaves syncing to the system unless `log.flush.interval.messages` is 1; we sync unless it is
higher. Both are measured both ways.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import uuid4

from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from readiness import until, wait_for_coordinators
from report import Row, alternate, compare, show
from servers import start_both
from topics import create_topic

FLUSH = "log.flush.interval.messages"
NEVER = 2**63 - 1
PARTITIONS = 8
#: (what, whether it is synced, in flight, requests of one run).
MODES = (
    ("20 in flight, not synced", False, 20, 20_000),
    ("one at a time, not synced", False, 1, 5_000),
    ("20 in flight, synced", True, 20, 4_000),
    ("one at a time, synced", True, 1, 500),
)


def commit(group: str, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
    """As an administrator or a simple consumer sends it: nobody's generation is checked on either side."""
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
    )


def prepare(connection: RawConnection) -> list[bytes]:
    """One commit for each partition of a new topic, seen to be accepted."""
    name = f"bench-{uuid4().hex[:8]}"
    create_topic(connection, name, PARTITIONS)
    wait_for_coordinators(connection, [name])

    def is_accepted(partition: int) -> bool:
        answer: Any = connection.ask(ApiKey.OFFSET_COMMIT, 9, commit(name, name, partition, 1))
        return bool(answer.topics[0].partitions[0].error_code == 0)

    for partition in range(PARTITIONS):
        until(lambda partition=partition: is_accepted(partition))
    return [frame(ApiKey.OFFSET_COMMIT, 9, commit(name, name, partition, 1_000)) for partition in range(PARTITIONS)]


def rate(connection: RawConnection, requests: list[bytes], in_flight: int, count: int) -> float:
    seconds, _ = connection.run(requests * (count // len(requests)), in_flight=in_flight)
    return count / seconds


def measure(runs: int, *, is_synced: bool) -> tuple[list[Row], list[str]]:
    """The modes of one setting of both brokers, and why there is no peer if there is none."""
    with ExitStack() as stack:
        mine, peer, left_out = start_both(stack, {FLUSH: 1 if is_synced else NEVER})
        connections = [RawConnection(server.port) for server in (mine, peer) if server]
        prepared = [prepare(connection) for connection in connections]

        def once(at: int, in_flight: int, count: int) -> float:
            return rate(connections[at], prepared[at], in_flight, count)

        rows = []
        for what, synced, *shape in MODES:
            if synced is is_synced:
                ours, peers = alternate(runs, partial(once, 0, *shape), None if left_out else partial(once, 1, *shape))
                reach = "report" if synced else ">= 1x"
                rows.append(compare(what, ours, peers, unit="req/s", reach=reach, peer_name="Apache Kafka 4.3"))
        return rows, left_out


def main(runs: int) -> None:
    rows, left_out = measure(runs, is_synced=False)
    synced, _ = measure(runs, is_synced=True)
    show("OffsetCommit", [*rows, *synced], left_out=left_out)
