"""One member joins a large group at rest, over sockets: the broker's processor time for it.

What the heartbeats of the members cost anyhow is measured over the same time without a join, and taken away. What is
left is the join, its assignment, and that each member learns of the new epoch by its next heartbeat. Peer: Apache
Kafka 4.3 with the same members; it holds a file open per partition, so the largest group is ours alone.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

from groupload import GroupLoad
from load import RawConnection
from members import cpu_s
from report import Row, compare, show
from requests import settled_heartbeat
from servers import start_both
from topics import create_topic

#: (members, partitions)
SHARED_SIZES = ((1_000, 4_000), (4_000, 8_000))
OWN_SIZES = ((10_000, 40_000),)
TOPICS = 4
CONNECTIONS = 100
#: Longer than the heartbeat interval of both brokers: everybody has learnt of the epoch.
PERIOD_S = 7.0


async def join_cost(port: int, pid: int, topics: list[str], size: tuple[int, int], joins: int) -> list[float]:
    """Processor time of each of `joins` joins, milliseconds."""
    members, partitions = size
    load = GroupLoad(port, topics, partitions)
    await load.connect(CONNECTIONS)
    for number in range(members):
        load.add(number % CONNECTIONS)
    await load.settle(within_s=300)
    await asyncio.sleep(PERIOD_S)
    costs = []
    for number in range(joins):
        before = cpu_s(pid)
        await asyncio.sleep(PERIOD_S)
        between = cpu_s(pid)
        load.add(number % CONNECTIONS)
        await asyncio.sleep(PERIOD_S)
        costs.append((cpu_s(pid) - between - (between - before)) * 1e3)
    assert not load.errors, f"members were refused: {load.errors}"
    load.close()
    return costs


def measure(server: Any, size: tuple[int, int], joins: int) -> list[float]:
    connection = RawConnection(server.port)
    settled_heartbeat(connection)
    topics = [f"members-{size[1]}-{number}" for number in range(TOPICS)]
    for topic in topics:
        create_topic(connection, topic, size[1] // TOPICS)
    return asyncio.run(join_cost(server.port, server.process.pid, topics, size, joins))


def main(runs: int) -> None:
    with ExitStack() as stack:
        mine, peer, left_out = start_both(stack)
        rows = [_row(mine, peer if size in SHARED_SIZES else None, size, runs) for size in SHARED_SIZES + OWN_SIZES]
    show("Broker CPU of one join into a group at rest", rows, left_out=left_out)


def _row(ours: Any, peer: Any, size: tuple[int, int], runs: int) -> Row:
    return compare(
        f"{size[0]:,} members x {size[1]:,}",
        measure(ours, size, runs),
        measure(peer, size, runs) if peer is not None else [],
        unit="ms",
        reach="report",
        peer_name="Apache Kafka 4.3",
        less_is_better=True,
    )
