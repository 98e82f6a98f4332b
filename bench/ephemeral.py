"""Members that come for seconds beside members that stay (G7): what the stable ones have to give away.

A wave of ephemeral members joins, some of them are replaced by others, and all vanish. What balance needs is known:
a stable member gives what it has above its share when the wave comes, and nothing at any other time. Peer: Apache
Kafka 4.3, each broker with its own defaults and the same members.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from groupload import GroupLoad, Member, many_files
from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare, warmed
from requests import settle_alone
from servers import start_both
from topics import create_topic

STABLE, WAVE = 10, 200
#: Two for each member while a wave is there, 42 for a stable one when it is alone.
PARTITIONS = 2 * (STABLE + WAVE)
NEEDED = PARTITIONS - 2 * STABLE
#: Ephemeral members that are replaced in a wave, all at once.
REPLACED = 20
TOPIC = "ephemeral"


async def wave_of_members(port: int) -> dict[str, float]:
    """One wave in a group of its own."""
    load = GroupLoad(port, [TOPIC], PARTITIONS)
    await load.connect(STABLE + WAVE)
    stable = [load.add(number) for number in range(STABLE)]
    await load.settle()
    figures: dict[str, float] = {}
    before = revoked(stable)
    wave = [load.add(STABLE + number) for number in range(WAVE)]
    figures["wave comes: until all have their shares"] = await load.settle()
    figures["wave comes"] = revoked(stable) - before
    before = revoked(stable)
    for member in wave[:REPLACED]:
        connection = load.connections.index(member.connection)
        member.leave()
        load.add(connection)
    figures[f"{REPLACED} are replaced: until all have their shares"] = await load.settle()
    figures[f"{REPLACED} are replaced"] = revoked(stable) - before
    before = revoked(stable)
    for member in [member for member in load.members if member not in stable]:
        member.leave()
    figures["wave vanishes: until the stable ones have all"] = await load.settle()
    figures["wave vanishes"] = revoked(stable) - before
    await load.leave()
    return figures


def revoked(members: list[Member]) -> int:
    """How many partitions members had to give away so far."""
    return sum(member.revoked for member in members)


def measure(runs: int) -> list[Table]:
    found: list[list[dict[str, float]]] = [[], []]
    with ExitStack() as stack:
        stack.enter_context(many_files())
        servers, left_out = start_both(stack)
        for server in servers:
            connection = RawConnection(server.port)
            settle_alone(connection)
            create_topic(connection, TOPIC, PARTITIONS)
            connection.close()
        for _ in range(1 + runs):
            for place, server in enumerate(servers):
                found[place].append(asyncio.run(wave_of_members(server.port)))
    return [Table("ephemeral", "Ephemeral members", _rows([kept[1:] for kept in found], runs), left_out)]


def _rows(found: list[list[dict[str, float]]], runs: int) -> list[Row]:
    rows = []
    for what in found[0][0]:
        is_time = "until" in what
        reach = "report" if is_time else f"{NEEDED if what == 'wave comes' else 0} moves"
        rows.append(
            compare(
                what if is_time else f"{what}: the stable ones give away",
                [figures[what] for figures in found[0]],
                [figures[what] for figures in found[1]],
                unit="s" if is_time else "moves",
                reach=reach,
                peer_name=APACHE_KAFKA,
                how=warmed(runs),
                less_is_better=True,
            )
        )
    return rows
