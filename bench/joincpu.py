"""One member joins a large group at rest, over sockets: the broker's processor time until everybody knows.

The same period is measured without a join, so that it can be seen what the heartbeats of the members cost anyhow. Both
brokers have their group at the same time; while one has a join, the other has a period without. Peer: Apache Kafka 4.3
with the same members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from groupload import GroupLoad
from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare
from requests import settle_alone
from servers import cpu_s, start_both
from topics import create_topic

#: (members, partitions)
SIZES = ((1_000, 4_000), (4_000, 8_000))
TOPICS = 4
CONNECTIONS = 100
#: Longer than the heartbeat interval of both brokers: everybody has learnt of the epoch.
PERIOD_S = 6.0
JOIN, REST = "in which one joins", "without a join"


async def periods(servers: Sequence[Any], size: tuple[int, int], runs: int) -> list[dict[str, list[float]]]:
    """Processor time of each server in periods with and without a join, milliseconds."""
    members, partitions = size
    topics = [f"members-{partitions}-{number}" for number in range(TOPICS)]
    groups = []
    for server in servers:
        group = GroupLoad(server.port, topics, partitions)
        await group.connect(CONNECTIONS)
        for number in range(members):
            group.add(number % CONNECTIONS)
        await group.settle(within_s=300)
        groups.append(group)
    # One period to come to rest; then each has a join in turn, also the first one that does not count.
    await asyncio.sleep(PERIOD_S)
    found: list[dict[str, list[float]]] = [{JOIN: [], REST: []} for _ in servers]
    for run in range(1 + runs):
        for joining in range(max(2, len(servers))):
            before = [cpu_s(server.process.pid) for server in servers]
            if joining < len(groups):
                groups[joining].add(run % CONNECTIONS)
            await asyncio.sleep(PERIOD_S)
            for place, server in enumerate(servers):
                used = cpu_s(server.process.pid) - before[place]
                found[place][JOIN if place == joining else REST].append(used * 1e3)
    for group in groups:
        await group.leave()
    return [{what: used[1:] for what, used in kept.items()} for kept in found]


def measure(runs: int) -> list[Table]:
    rows = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for size in SIZES:
            rows += rows_of(servers, size, runs)
    return [Table("joincpu", "Broker CPU of one join into a group at rest", rows, left_out)]


def rows_of(servers: Sequence[Any], size: tuple[int, int], runs: int) -> list[Row]:
    for server in servers:
        connection = RawConnection(server.port)
        settle_alone(connection)
        for number in range(TOPICS):
            create_topic(connection, f"members-{size[1]}-{number}", size[1] // TOPICS)
        connection.close()
    found = asyncio.run(periods(servers, size, runs))
    return [
        compare(
            f"broker CPU of {PERIOD_S:g} s {what}, {size[0]:,} x {size[1]:,}",
            found[0][what],
            found[1][what] if len(found) > 1 else [],
            unit="ms",
            reach="report",
            peer_name=APACHE_KAFKA if len(found) > 1 else "no peer",
            how=f"{runs}, after 1 to warm up",
            less_is_better=True,
        )
        for what in (JOIN, REST)
    ]
