"""What holding heartbeats costs: processor time of a settled group beside the same without it, memory of each hold.

Members call themselves as librdkafka does. Memory is what the process grows by when the heartbeats of members that were
there before are held for the first time, with what their connections remember for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from groupload import GroupLoad
from load import RawConnection
from report import NO_PEER, Row, compare, warmed
from requests import settle_alone
from servers import KohortServer, client_of, exact_cpu_s, resident_mb
from topics import create_topic

MEMBERS, PARTITIONS = 1_000, 4_000
#: Two heartbeat intervals.
PERIOD_S = 10.0
#: Those of the memory: on so many connections.
HELD, CONNECTIONS = 5_000, 500
TOPIC = "pushing"
#: All that were sent have come, and none has been answered yet.
ARRIVED_S = 2.0


def prepare(server: Any, partitions: int) -> None:
    connection = RawConnection(server.port)
    settle_alone(connection)
    create_topic(connection, TOPIC, partitions)
    connection.close()


async def settled_ms(servers: Sequence[Any], runs: int) -> list[list[float]]:
    """Processor time of each server for its settled group in `PERIOD_S`, in each run after one to warm up."""
    groups = []
    for server in servers:
        group = GroupLoad(server.port, [TOPIC], PARTITIONS, software=client_of(server))
        await group.connect(MEMBERS)
        for number in range(MEMBERS):
            group.add(number)
        await group.settle(within_s=120)
        groups.append(group)
    found: list[list[float]] = [[] for _ in servers]
    for _ in range(1 + runs):
        before = [exact_cpu_s(server.process.pid) for server in servers]
        await asyncio.sleep(PERIOD_S)
        for place, server in enumerate(servers):
            found[place].append((exact_cpu_s(server.process.pid) - before[place]) * 1e3)
    for group in groups:
        await group.leave()
    return [used[1:] for used in found]


async def hold_bytes(server: Any) -> float:
    """What the broker's process grows by for one hold."""
    group = GroupLoad(server.port, [TOPIC], HELD)
    await group.connect(CONNECTIONS)
    for number in range(HELD):
        group.add(number % CONNECTIONS)
    await group.settle(within_s=300)
    await group.rest()
    for connection in group.connections:
        connection.introduce(client_of(server))
    before = resident_mb(server.process.pid)
    # The first is answered, with the interval for which the next one is held.
    for _ in range(2):
        for member in group.members:
            member.heartbeat()
        await asyncio.sleep(ARRIVED_S)
    held = sum(len(connection.waiting) for connection in group.connections)
    grown = (resident_mb(server.process.pid) - before) * 1e6 / HELD
    assert held == HELD, f"{held} of {HELD} heartbeats are held"
    await group.leave()
    return grown


def rows(runs: int) -> list[Row]:
    with ExitStack() as stack:
        both = [stack.enter_context(KohortServer({"group.push.enable": each})) for each in ("true", "false")]
        for server in both:
            prepare(server, PARTITIONS)
        on, off = asyncio.run(settled_ms(both, runs))
    with KohortServer() as server:
        prepare(server, HELD)
        grown = asyncio.run(hold_bytes(server))
    return [
        compare(
            f"broker CPU of {PERIOD_S:g} s, {MEMBERS:,} settled members",
            on,
            off,
            unit="ms",
            reach=">= 0.77x",
            peer_name="ours, group.push.enable=false",
            how=warmed(runs),
            less_is_better=True,
        ),
        compare(
            "memory of a held heartbeat",
            [grown],
            [],
            unit="B",
            reach="<= 2,000 B",
            peer_name=NO_PEER,
            how=f"1, {HELD:,} of them",
            less_is_better=True,
        ),
    ]
