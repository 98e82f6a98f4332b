"""One large KIP-848 group, a connection per member: all join, also while they connect; one joins; one leaves.

To our broker the members call themselves as librdkafka does, whose heartbeats it holds. Peer: Apache Kafka 4.3, each
broker with its own defaults and the same members.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

from groupload import GroupLoad, many_files
from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare, warmed
from requests import settle_alone
from servers import client_of, cpu_s, start_both
from topics import create_topic

MEMBERS = 1_000
PARTITIONS = 4_000
TOPIC = "members"
#: Joins and leaves of a single member in one run. Where heartbeats are not held, how long one takes depends on when in
#: the five seconds between them it happens: over all runs these moments are spread evenly.
JOINS, LEAVES = 1, 2
INTERVAL_S = 5.0
#: Over so long members come that do not come at once.
SPREAD_S = 1.0
AT_ONCE = "all connect and join at once, until each has its share"
SPREAD = f"all connect and join over {SPREAD_S:g} s, until each has its share"
#: (row, reach)
REACHES = {
    "all join, until each has its share": "<= 3 s",
    "all join, broker CPU": ">= 1x",
    AT_ONCE: "report",
    SPREAD: "<= 1.5 s",
    "one joins": "<= 0.3 s",
    "one leaves": "<= 0.3 s",
}
Figures = dict[str, list[float]]


async def measure_joins(server: Any, found: Figures) -> GroupLoad:
    """All members, over fresh connections at once and spread, then at once over connections that are there."""
    for what, over_s in ((AT_ONCE, 0.0), (SPREAD, SPREAD_S)):
        load = group_on(server)
        found[what].append(await load.connect_and_join(MEMBERS, over_s=over_s))
        await load.leave()
    load = group_on(server)
    await load.connect(MEMBERS + JOINS)
    cpu = cpu_s(server.process.pid)
    for number in range(MEMBERS):
        load.add(number)
    found["all join, until each has its share"].append(await load.settle())
    found["all join, broker CPU"].append(cpu_s(server.process.pid) - cpu)
    return load


def group_on(server: Any) -> GroupLoad:
    return GroupLoad(server.port, [TOPIC], PARTITIONS, software=client_of(server))


async def warm(server: Any) -> None:
    load = await measure_joins(server, {what: [] for what in REACHES})
    await load.leave()


async def measure_run(server: Any, found: Figures, *, run: int, runs: int) -> None:
    """One group from its first join to its last leave."""
    load = await measure_joins(server, found)
    for number in range(JOINS):
        await asyncio.sleep(moment_s(run * JOINS + number, runs * JOINS))
        load.add(MEMBERS + number)
        found["one joins"].append(await load.settle())
    for number in range(LEAVES):
        await asyncio.sleep(moment_s(run * LEAVES + number, runs * LEAVES))
        load.members[-1].leave()
        found["one leaves"].append(await load.settle())
    await load.leave()


def moment_s(number: int, count: int) -> float:
    """The middle of one of `count` equal parts of the heartbeat interval, seconds."""
    return (number + 0.5) / count * INTERVAL_S


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        stack.enter_context(many_files())
        servers, left_out = start_both(stack)
        found: list[Figures] = [{what: [] for what in REACHES} for _ in range(2)]
        for server in servers:
            connection = RawConnection(server.port)
            settle_alone(connection)
            create_topic(connection, TOPIC, PARTITIONS)
            connection.close()
            asyncio.run(warm(server))
        for run in range(runs):
            for place, server in enumerate(servers):
                asyncio.run(measure_run(server, found[place], run=run, runs=runs))
    return [Table("members", "One large group", _rows(found, runs), left_out)]


def _rows(found: list[Figures], runs: int) -> list[Row]:
    return [
        compare(
            what,
            found[0][what],
            found[1][what],
            unit="s",
            reach=reach,
            peer_name=APACHE_KAFKA,
            how=f"{len(found[0][what])}, at different moments" if what.startswith("one ") else warmed(runs),
            less_is_better=True,
        )
        for what, reach in REACHES.items()
    ]
