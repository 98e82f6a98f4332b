"""One large KIP-848 group, a connection per member: all join, one joins, one leaves; the broker's CPU; heartbeats.

Peer: Apache Kafka 4.3, each broker with its own defaults and the same members.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from groupload import GroupLoad
from load import RawConnection
from report import Row, compare, show
from requests import settled_heartbeat
from servers import start_both
from topics import create_topic

MEMBERS = 1_000
PARTITIONS = 4_000
#: Joins after the group has settled, over which the CPU is averaged.
SINGLE_JOINS = 4
HEARTBEATS_S = 4.0


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(port: int, pid: int, topic: str) -> dict[str, float]:
    """One group from its first join to its last leave."""
    load = GroupLoad(port, [topic], PARTITIONS)
    await load.connect(MEMBERS + SINGLE_JOINS)
    figures: dict[str, float] = {}
    cpu = cpu_s(pid)
    for number in range(MEMBERS):
        load.add(number)
    figures["all join"] = await load.settle()
    figures["all join, broker CPU"] = cpu_s(pid) - cpu
    joins, used = [], cpu_s(pid)
    for number in range(SINGLE_JOINS):
        load.add(MEMBERS + number)
        joins.append(await load.settle())
    figures["one joins"] = sorted(joins)[len(joins) // 2]
    figures["one joins, broker CPU"] = (cpu_s(pid) - used) / SINGLE_JOINS
    leaves = []
    for _ in range(SINGLE_JOINS):
        load.members[-1].leave()
        leaves.append(await load.settle())
    figures["one leaves"] = sorted(leaves)[len(leaves) // 2]
    assert not load.errors, f"members were refused: {load.errors}"
    load.close()
    return figures


async def heartbeat_rate(port: int, topic: str) -> float:
    """Settled heartbeats per second with one in flight on each of `MEMBERS` connections."""
    load = GroupLoad(port, [topic], PARTITIONS)
    await load.connect(MEMBERS)
    for number in range(MEMBERS):
        load.add(number)
    await load.settle()
    count = 0
    end = time.perf_counter() + HEARTBEATS_S

    def again(member: Any) -> Callable[[memoryview], None]:
        data = member.heartbeat_frame()

        def then(_: memoryview) -> None:
            nonlocal count
            count += 1
            if time.perf_counter() < end:
                member.connection.send(data, then)

        return then

    began = time.perf_counter()
    for member in load.members:
        member.pause()
        member.connection.send(member.heartbeat_frame(), again(member))
    await asyncio.sleep(HEARTBEATS_S)
    rate = count / (time.perf_counter() - began)
    load.close()
    return rate


def main(runs: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    found: list[list[dict[str, float]]] = [[], []]
    with ExitStack() as stack:
        mine, peer, left_out = start_both(stack, peer={"num.network.threads": 3})
        servers = [server for server in (mine, peer) if server]
        for server in servers:
            connection = RawConnection(server.port)
            settled_heartbeat(connection)
            create_topic(connection, "members", PARTITIONS)
        for _ in range(runs):
            for place, server in enumerate(servers):
                figures = asyncio.run(measure(server.port, server.process.pid, "members"))
                figures["heartbeats over 1,000 connections"] = asyncio.run(heartbeat_rate(server.port, "members"))
                found[place].append(figures)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    show("One large group", list(_rows(found)), left_out=left_out)


def _rows(found: list[list[dict[str, float]]]) -> list[Row]:
    reaches = {"all join": "<= 3 s", "all join, broker CPU": ">= 1x", "heartbeats over 1,000 connections": ">= 1x"}
    rows = []
    for what in found[0][0]:
        is_rate = what.startswith("heartbeats")
        rows.append(
            compare(
                what,
                [figures[what] for figures in found[0]],
                [figures[what] for figures in found[1]],
                unit="req/s" if is_rate else "s",
                reach=reaches.get(what, "report"),
                peer_name="Apache Kafka 4.3",
                less_is_better=not is_rate,
            )
        )
    return rows
