"""Members join a large group at rest, over sockets: the broker's processor time until everybody knows.

The same period is measured without a join, so that it can be seen what the heartbeats of the members cost anyhow. Both
brokers have their group at the same time; while one has a join, the other has a period without. Then a group of 10,000
on our broker alone, a connection for each: how long it takes to settle, and what one join costs it, several of them in
a period. To our broker they call themselves as librdkafka does, whose heartbeats it holds. Peer: Apache Kafka 4.3 with
the same members; it has no place for 10,000 of them beside the rest on one machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from groupload import GroupLoad, many_files
from load import RawConnection
from report import APACHE_KAFKA, NO_PEER, Row, Table, compare
from requests import settle_alone
from servers import KohortServer, client_of, exact_cpu_s, start_both
from topics import create_topic

#: (members, partitions)
SIZE, LARGE = (1_000, 4_000), (10_000, 20_000)
TOPICS = 4
CONNECTIONS = 100
#: Longer than the heartbeat interval of both brokers: everybody has learnt of the epoch.
PERIOD_S = 6.0
JOIN, REST = "in which one joins", "without a join"
#: In one period of the large group.
JOINS = 10
Periods = dict[str, list[float]]


def topics_of(size: tuple[int, int]) -> list[str]:
    return [f"members-{size[1]}-{number}" for number in range(TOPICS)]


async def periods(servers: Sequence[Any], runs: int) -> list[Periods]:
    """Processor time of each server in periods with and without a join, milliseconds."""
    members, partitions = SIZE
    groups = []
    for server in servers:
        group = GroupLoad(server.port, topics_of(SIZE), partitions, software=client_of(server))
        await group.connect(CONNECTIONS)
        for number in range(members):
            group.add(number % CONNECTIONS)
        await group.settle(within_s=300)
        groups.append(group)
    # One period to come to rest; then each has a join in turn, also the first one that does not count.
    await asyncio.sleep(PERIOD_S)
    found: list[Periods] = [{JOIN: [], REST: []} for _ in servers]
    for run in range(1 + runs):
        for joining in range(max(2, len(servers))):
            before = [exact_cpu_s(server.process.pid) for server in servers]
            if joining < len(groups):
                groups[joining].add(run % CONNECTIONS)
            await asyncio.sleep(PERIOD_S)
            for place, server in enumerate(servers):
                used = exact_cpu_s(server.process.pid) - before[place]
                found[place][JOIN if place == joining else REST].append(used * 1e3)
    for group in groups:
        await group.leave()
    return [{what: used[1:] for what, used in kept.items()} for kept in found]


async def large(server: Any, runs: int) -> tuple[float, list[float]]:
    """Seconds until 10,000 have their shares; processor time of one join then, of each run, milliseconds."""
    members, partitions = LARGE
    group = GroupLoad(server.port, topics_of(LARGE), partitions, software=client_of(server))
    await group.connect(members + JOINS * (1 + runs))
    for number in range(members):
        group.add(number)
    took = await group.settle(within_s=300)
    await asyncio.sleep(PERIOD_S)
    costs = []
    for run in range(1 + runs):
        used = []
        for joins in (0, JOINS):
            before = exact_cpu_s(server.process.pid)
            for number in range(joins):
                group.add(members + run * JOINS + number)
                await asyncio.sleep(PERIOD_S / 2 / JOINS)
            await asyncio.sleep(PERIOD_S if not joins else PERIOD_S / 2)
            used.append(exact_cpu_s(server.process.pid) - before)
        costs.append((used[1] - used[0]) / JOINS * 1e3)
    await group.leave()
    return took, costs[1:]


def prepare(server: Any, size: tuple[int, int]) -> None:
    connection = RawConnection(server.port)
    settle_alone(connection)
    for name in topics_of(size):
        create_topic(connection, name, size[1] // TOPICS)
    connection.close()


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            prepare(server, SIZE)
        found = asyncio.run(periods(servers, runs))
    rows = [
        compare(
            f"broker CPU of {PERIOD_S:g} s {what}, {SIZE[0]:,} x {SIZE[1]:,}",
            found[0][what],
            found[1][what] if len(found) > 1 else [],
            unit="ms",
            reach="report",
            peer_name=APACHE_KAFKA if len(found) > 1 else NO_PEER,
            how=f"{runs}, after 1 to warm up",
            less_is_better=True,
        )
        for what in (JOIN, REST)
    ]
    return [Table("joincpu", "Broker CPU of one join into a group at rest", [*rows, *large_rows(runs)], left_out)]


def large_rows(runs: int) -> list[Row]:
    with ExitStack() as stack:
        stack.enter_context(many_files())
        server = stack.enter_context(KohortServer({"max.connections": 2 * LARGE[0]}))
        prepare(server, LARGE)
        took, costs = asyncio.run(large(server, runs))
    size = f"{LARGE[0]:,} x {LARGE[1]:,}"
    return [
        _ours(f"all join, until each has its share, {size}", [took], "s", "<= 30 s", "1"),
        _ours(f"broker CPU of one of {JOINS} joins, {size}", costs, "ms", "<= 20 ms", f"{runs}, after 1 to warm up"),
    ]


def _ours(what: str, ours: Sequence[float], unit: str, reach: str, how: str) -> Row:
    return compare(what, ours, [], unit=unit, reach=reach, peer_name=NO_PEER, how=how, less_is_better=True)
