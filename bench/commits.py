"""OffsetCommit over one connection, one partition each: 20 in flight and one at a time, not synced and synced.

Peer: Apache Kafka 4.3. It leaves syncing to the system unless `log.flush.interval.messages` is 1; we sync unless it is
higher. Both are measured both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

from generator import Line
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey
from load import RawConnection, frame, place_of_error
from pressure import Prepared, Pressure, under_pressure
from readiness import until, wait_for_coordinators
from report import Row, Table
from servers import start_both
from topics import create_topic

FLUSH = "log.flush.interval.messages"
NEVER = 2**63 - 1
PARTITIONS = 8
#: (what, in flight)
MODES = (("20 in flight", 20), ("one at a time", 1))


def commit(group: str, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
    """As an administrator or a simple consumer sends it: nobody's generation is checked on either side."""
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
    )


@contextmanager
def commits(server: Any) -> Iterator[Prepared]:
    """One commit for each partition of a new topic, seen to be accepted."""
    connection = RawConnection(server.port)
    name = f"bench-{uuid4().hex[:8]}"
    create_topic(connection, name, PARTITIONS)
    wait_for_coordinators(connection, [name])
    answers: list[Any] = []

    def is_accepted(partition: int) -> bool:
        answers.append(connection.ask(ApiKey.OFFSET_COMMIT, 9, commit(name, name, partition, 1)))
        return bool(answers[-1].topics[0].partitions[0].error_code == 0)

    for partition in range(PARTITIONS):
        until(lambda partition=partition: is_accepted(partition))
    place = place_of_error(ApiKey.OFFSET_COMMIT, 9, answers[-1], answers[-1].topics[0].partitions[0])
    requests = [frame(ApiKey.OFFSET_COMMIT, 9, commit(name, name, partition, 1_000)) for partition in range(PARTITIONS)]
    yield Prepared([Line(connection.descriptor, requests)], place)
    connection.close()


def rows_of(runs: int, *, is_synced: bool) -> tuple[list[Row], list[str]]:
    """The modes of one setting of both brokers, and why there is no peer if there is none."""
    with ExitStack() as stack:
        if is_synced:
            servers, left_out = start_both(stack, peer={FLUSH: 1})
        else:
            servers, left_out = start_both(stack, ours={FLUSH: NEVER})
        rows = []
        for what, in_flight in MODES:
            pressure = Pressure(
                what=f"{what}, {'synced' if is_synced else 'not synced'}",
                in_flight=in_flight,
                reach="report" if is_synced else ">= 1x",
                settings=f"theirs: {FLUSH}=1" if is_synced else f"ours: {FLUSH}=2^63-1",
            )
            rows.append(under_pressure(pressure, commits, servers, runs))
        return rows, left_out


def measure(runs: int) -> list[Table]:
    rows, left_out = rows_of(runs, is_synced=False)
    synced, _ = rows_of(runs, is_synced=True)
    return [Table("commits", "OffsetCommit", [*rows, *synced], left_out)]
