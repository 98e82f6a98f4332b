"""Members that come for seconds beside members that stay (G7): what the stable ones have to give away.

A wave of ephemeral members joins, some of them are replaced by others, and all vanish. What balance needs is known:
a stable member gives what it has above its share when the wave comes, and nothing at any other time. Peer: Apache
Kafka 4.3, each broker with its own defaults and the same members.
"""

from __future__ import annotations

import asyncio
import resource
from contextlib import ExitStack

from groupload import GroupLoad, Member
from load import RawConnection
from report import Row, compare, show
from requests import settled_heartbeat
from servers import start_both
from topics import create_topic

STABLE, WAVE = 10, 200
#: Two for each member while a wave is there, 42 for a stable one when it is alone.
PARTITIONS = 2 * (STABLE + WAVE)
NEEDED = PARTITIONS - 2 * STABLE
#: Ephemeral members that are replaced in a wave, all at once.
REPLACED = 20
TOPIC = "ephemeral"


async def measure(port: int) -> dict[str, float]:
    """One wave in a group of its own."""
    load = GroupLoad(port, [TOPIC], PARTITIONS)
    await load.connect(STABLE + WAVE)
    stable = [load.add(number) for number in range(STABLE)]
    await load.settle()
    figures: dict[str, float] = {}
    before = revoked(stable)
    wave = [load.add(STABLE + number) for number in range(WAVE)]
    figures["wave comes, all have their shares"] = await load.settle()
    figures["wave comes"] = revoked(stable) - before
    before = revoked(stable)
    for member in wave[:REPLACED]:
        connection = load.connections.index(member.connection)
        member.leave()
        load.add(connection)
    figures[f"{REPLACED} are replaced, all have their shares"] = await load.settle()
    figures[f"{REPLACED} are replaced"] = revoked(stable) - before
    before = revoked(stable)
    for member in [member for member in load.members if member not in stable]:
        member.leave()
    figures["wave vanishes, stable ones have all"] = await load.settle()
    figures["wave vanishes"] = revoked(stable) - before
    assert not load.errors, f"members were refused: {load.errors}"
    load.close()
    return figures


def revoked(members: list[Member]) -> int:
    """How many partitions members had to give away so far."""
    return sum(member.revoked for member in members)


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
            create_topic(connection, TOPIC, PARTITIONS)
        for _ in range(runs):
            for place, server in enumerate(servers):
                found[place].append(asyncio.run(measure(server.port)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    left_out.append(f"{runs * (WAVE + REPLACED):,} ephemeral members in all; balance needs {NEEDED} moves per wave")
    show("Ephemeral members", _rows(found), left_out=left_out)


def _rows(found: list[list[dict[str, float]]]) -> list[Row]:
    rows = []
    for what in found[0][0]:
        is_time = "have" in what
        reach = "report" if is_time else f"{NEEDED if what == 'wave comes' else 0} moves"
        rows.append(
            compare(
                what if is_time else f"{what}: {STABLE} stable members give away",
                [figures[what] for figures in found[0]],
                [figures[what] for figures in found[1]],
                unit="s" if is_time else "moves",
                reach=reach,
                peer_name="Apache Kafka 4.3",
                less_is_better=True,
            )
        )
    return rows
