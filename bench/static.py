"""Static groups: what a restart of each of 1,000 named members costs and moves, and how soon newcomers have a share.

Members are raw, of the consumer protocol, each on a connection of its own. A restart is what a stock client sends: it
leaves for a while (-2), its connection closes, and another process of its name joins on a new one. Beside it is what a
heartbeat of the settled group costs that is not held, sent one after the other as well, before and after in the same
run. Newcomers come to 1,000 members whose heartbeats are held. No other system has static groups.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple
from uuid import uuid4

from groupload import VERSION, Connection, GroupLoad, Member, many_files
from kohort import Admin
from kohort.wire.codec import decoder
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import NO_PEER, Row, Table, compare
from requests import settle_alone
from servers import KohortServer, client_of, exact_cpu_s
from topics import create_topic

MEMBERS, NEWCOMERS, PARTITIONS = 1_000, 100, 4_000
TOPIC = "static"
WINDOW_S = 5.0
#: Newcomers come in this part of the window, so that all are there when it ends.
COMING_S = 3.0
#: Of the group; whoever waits for the broker to be ready has no name.
CONFIGS = {"group.membership": "static", "group.expansion.timeout.ms": int(WINDOW_S * 1e3)}
SETTINGS = {
    "group.consumer.session.timeout.ms": 600_000,
    "group.consumer.heartbeat.interval.ms": 5_000,
}
NOT_HELD = {"group.push.enable": "false"}
PATIENCE_S = 120.0
_decode = decoder(ConsumerGroupHeartbeatResponse, VERSION)


class Restarts(NamedTuple):
    """Of one run: partitions that somebody else has after a restart, and microseconds of the broker's CPU."""

    moves: int
    restart_us: float
    heartbeat_us: float


class Window(NamedTuple):
    """Of one run: how far the group's epoch rose, and seconds from the window's end to the last assignment."""

    rebalances: int
    last_s: float


class Named(Member):
    """A member with a name, which the next process of it bears as well."""

    def __init__(self, load: GroupLoad, connection: Connection, name: str) -> None:
        super().__init__(load, connection)
        self.name = name

    def join(self) -> None:
        self._sent_s = self._load.loop.time()
        self.connection.send(self.frame(0), self._take)

    def frame(self, epoch: int) -> bytes:
        """A heartbeat of that epoch: 0 joins, -2 leaves for a while."""
        is_full = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._load.group,
            member_id=self.member_id,
            instance_id=self.name,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if is_full else -1,
            subscribed_topic_names=list(self._load.topics) if is_full else None,
            topic_partitions=[] if is_full else None,
        )
        return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, request)

    async def ask(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        """Send it and wait for the answer, which has no error."""
        taken: asyncio.Future[ConsumerGroupHeartbeatResponse] = self._load.loop.create_future()
        self.connection.send(self.frame(epoch), lambda body: taken.set_result(_decode(body, 5)[0]))
        answer = await asyncio.wait_for(taken, PATIENCE_S)
        assert not answer.error_code, answer
        return answer


class NamedGroup(GroupLoad):
    """Members m0, m1, ..., each on a connection of its own."""

    async def start(self) -> None:
        """One more joins."""
        self.add_named(await self._open())

    def add_named(self, connection: Connection) -> None:
        """A new member that joins now."""
        member = Named(self, connection, f"m{len(self.members)}")
        self.members.append(member)
        member.join()

    async def restart(self, member: Named) -> int:
        """It goes for a while, and another process takes its place; how many of its partitions are others then."""
        await member.ask(-2)
        assert member.connection.transport is not None
        member.connection.transport.abort()
        member.connection = await self._open()
        member.member_id = str(uuid4())
        answer = await member.ask(0)
        assert answer.assignment is not None
        # Who had nothing to gain or lose by the last epoch was not taken to it; who joins is.
        member.epoch = answer.member_epoch
        rows = answer.assignment.topic_partitions
        return len(member.owned ^ {(row.topic_id, number) for row in rows for number in row.partitions})


async def settled(server: KohortServer, software: str = "") -> NamedGroup:
    """1,000 members with their shares: those who come after the first wait for the window."""
    group = NamedGroup(server.port, [TOPIC], PARTITIONS, software=software)
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.alter_group_configs(group.group, CONFIGS)
    for _ in range(MEMBERS):
        await group.start()
    await group.settle(within_s=PATIENCE_S)
    return group


async def restart_all(server: KohortServer) -> Restarts:
    """One after the other, between two rounds of heartbeats."""
    group = await settled(server)
    await group.rest()
    before_us = await cost_of_heartbeats(server, group)
    moves, before_s = 0, exact_cpu_s(server.process.pid)
    for member in group.members:
        moves += await group.restart(member)
    restart_us = (exact_cpu_s(server.process.pid) - before_s) * 1e6 / MEMBERS
    after_us = await cost_of_heartbeats(server, group)
    abort(group)
    return Restarts(moves, restart_us, (before_us + after_us) / 2)


async def cost_of_heartbeats(server: KohortServer, group: NamedGroup) -> float:
    """Of one that says nothing new, microseconds; each member sends one and waits for its answer, which is none."""
    before_s = exact_cpu_s(server.process.pid)
    for member in group.members:
        answer = await member.ask(member.epoch)
        assert (answer.member_epoch, answer.assignment) == (member.epoch, None)
    return (exact_cpu_s(server.process.pid) - before_s) * 1e6 / MEMBERS


async def expand(server: KohortServer) -> Window:
    """100 newcomers come to a settled group within one window."""
    group = await settled(server, client_of(server))
    await asyncio.sleep(1.0)
    epoch, opened_s = max(member.epoch for member in group.members), time.perf_counter()
    for number in range(NEWCOMERS):
        await group.start()
        await asyncio.sleep(opened_s + COMING_S * (number + 1) / NEWCOMERS - time.perf_counter())
    await group.settle(within_s=PATIENCE_S)
    last_s = time.perf_counter() - opened_s - WINDOW_S
    await asyncio.sleep(1.0)
    assert not group.errors, group.errors
    rebalances = max(member.epoch for member in group.members) - epoch
    abort(group)
    return Window(rebalances, last_s)


def abort(group: NamedGroup) -> None:
    """The broker is stopped after this, and need not hear of it."""
    for connection in group.connections:
        assert connection.transport is not None
        connection.transport.abort()


def measure(runs: int) -> list[Table]:
    restarts, windows = [], []
    with many_files():
        for _ in range(runs):
            with KohortServer({**SETTINGS, **NOT_HELD}) as server:
                make_topic(server)
                restarts.append(asyncio.run(restart_all(server)))
            with KohortServer(SETTINGS) as server:
                make_topic(server)
                windows.append(asyncio.run(expand(server)))
    return [Table("static", "Static groups", rows_of(restarts, windows), [])]


def make_topic(server: KohortServer) -> None:
    connection = RawConnection(server.port)
    settle_alone(connection)
    create_topic(connection, TOPIC, PARTITIONS)
    connection.close()


def rows_of(restarts: list[Restarts], windows: list[Window]) -> list[Row]:
    how = str(len(restarts))
    shared = {"how": how, "less_is_better": True}
    restarted = f"{MEMBERS:,} named members restarted one after the other (raw)"
    came = f"{NEWCOMERS} newcomers over an expansion window of {WINDOW_S:.0f} s"
    return [
        compare(
            f"{restarted}: moves",
            [each.moves for each in restarts],
            [],
            unit="",
            reach="0",
            peer_name=NO_PEER,
            **shared,
        ),
        compare(
            f"{restarted}: broker CPU per restart",
            [each.restart_us for each in restarts],
            [each.heartbeat_us for each in restarts],
            unit="us",
            reach="<= 2x",
            peer_name="a settled heartbeat",
            settings="group.push.enable=false",
            **shared,
        ),
        compare(
            f"{came}: rebalances",
            [each.rebalances for each in windows],
            [],
            unit="",
            reach="1",
            peer_name=NO_PEER,
            **shared,
        ),
        compare(
            f"{came}: from the window's end to the last assignment",
            [each.last_s for each in windows],
            [],
            unit="s",
            reach="<= 0.5 s",
            peer_name=NO_PEER,
            **shared,
        ),
    ]
