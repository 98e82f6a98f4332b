"""Heartbeats of one large settled group, a connection for each member and one in flight on each; none is held.

Peer: Apache Kafka 4.3. And what it costs to hold them (`pushing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pushing
from generator import Line
from groupload import GroupLoad, many_files
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.registry import ApiKey
from load import RawConnection, place_of_error
from pressure import Prepared, Pressure, under_pressure
from report import Row, Table
from requests import settle_alone
from servers import start_both
from topics import create_topic

#: Members, and what is reached for.
GROUPS = ((50, ">= 1x"), (1_000, ">= 1x"))
PARTITIONS_PER_MEMBER = 4
NOT_HELD = {"group.push.enable": "false"}


async def row_of(servers: Sequence[Any], members: int, reach: str, runs: int) -> Row:
    """A group of that size on each server; the generator plays its members once they have their shares."""
    topic = f"heartbeats-{members}"
    for server in servers:
        connection = RawConnection(server.port)
        settle_alone(connection)
        create_topic(connection, topic, members * PARTITIONS_PER_MEMBER)
        connection.close()
    groups: dict[int, GroupLoad] = {}
    for server in servers:
        group = groups[server.port] = GroupLoad(server.port, [topic], members * PARTITIONS_PER_MEMBER)
        await group.connect(members)
        for number in range(members):
            group.add(number)
    for group in groups.values():
        await group.settle()
    for group in groups.values():
        await group.rest()

    @contextmanager
    def settled_members(server: Any) -> Iterator[Prepared]:
        answer = ConsumerGroupHeartbeatResponse()
        place = place_of_error(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, answer, answer)
        members = groups[server.port].members
        yield Prepared([Line(member.connection.descriptor, [member.heartbeat_frame()]) for member in members], place)

    settings = "ours: group.push.enable=false"
    pressure = Pressure(what=f"{members:,} members", in_flight=1, reach=reach, settings=settings)
    # No member is silent for longer than two warm-ups, half of what either broker allows.
    row = under_pressure(pressure, settled_members, servers, runs)
    for group in groups.values():
        await group.leave()
    return row


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        stack.enter_context(many_files())
        servers, left_out = start_both(stack, ours=NOT_HELD)
        rows = [asyncio.run(row_of(servers, members, reach, runs)) for members, reach in GROUPS]
        held = Table("pushing", "Heartbeats that are held", pushing.rows(runs))
    return [Table("heartbeats", "Heartbeats of a settled group", rows, left_out), held]
