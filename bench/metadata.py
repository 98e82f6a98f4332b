"""What members publish to each other: what a change costs the broker, and how long it takes until a watcher has it.

1,000 members have published 100 bytes each; then one publishes again, time after time, and one member watches, or all
do. Members are raw, each on a connection of its own, and bear that their heartbeats are held. What is taken is the time
from the publisher's request to the watcher's answer, of every watcher. No other system has this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from groupload import VERSION, GroupLoad, Member, many_files
from kohort.wire.codec import decoder
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.private import SOFTWARE_NAME
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import NO_PEER, Row, Table, compare
from requests import settle_alone
from servers import KohortServer, exact_cpu_s
from topics import create_topic

MEMBERS, PARTITIONS, BYTES = 1_000, 1_000, 100
TOPIC = "metadata"
#: How often one publishes, and what lies between.
CHANGES, EVERY_S = 12, 0.7
#: Members of which most say nothing while others are measured live on.
SETTINGS = {"group.consumer.session.timeout.ms": 600_000, "group.consumer.heartbeat.interval.ms": 5_000}
PATIENCE_S = 60.0
_decode = decoder(ConsumerGroupHeartbeatResponse, VERSION)


class Change(NamedTuple):
    """Of one run: milliseconds until the median watcher and the last one had it, and of the broker's CPU for each."""

    median_ms: float
    last_ms: float
    cpu_ms: float


class Watcher:
    """Asks what others publish, again and again; one whose answer is held waits."""

    def __init__(self, group: GroupLoad, member: Member, on_news: Callable[[], None]) -> None:
        self._group = group
        self._member = member
        self._on_news = on_news
        self._version = 0
        self.known = 0

    def ask(self) -> None:
        data = heartbeat_frame(self._group, self._member, watched_version=self._version)
        self._member.connection.send(data, self._take)

    def _take(self, body: memoryview) -> None:
        answer = _decode(body, 5)[0]
        assert not answer.error_code, answer
        if answer.metadata_news is not None:
            self._version = answer.metadata_news.version
            self.known += len(answer.metadata_news.members)
            self._on_news()
        self.ask()


def heartbeat_frame(group: GroupLoad, member: Member, **fields: Any) -> bytes:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group.group,
        member_id=member.member_id,
        member_epoch=member.epoch,
        rebalance_timeout_ms=-1,
        **fields,
    )
    return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, request)


async def publish(group: GroupLoad, member: Member, metadata: bytes) -> None:
    """Until it is taken."""
    taken: asyncio.Future[None] = group.loop.create_future()

    def take(body: memoryview) -> None:
        assert not _decode(body, 5)[0].error_code
        taken.set_result(None)

    member.connection.send(heartbeat_frame(group, member, metadata=metadata), take)
    await asyncio.wait_for(taken, PATIENCE_S)


async def change_one(server: Any, watchers: int) -> Change:
    """One of all members publishes, and so many watch."""
    group = GroupLoad(server.port, [TOPIC], PARTITIONS)
    await group.connect(MEMBERS)
    for number in range(MEMBERS):
        group.add(number)
    await group.settle(within_s=120)
    await group.rest()
    # From now on their heartbeats are held.
    for connection in group.connections:
        connection.introduce(SOFTWARE_NAME)
    for member in group.members:
        await publish(group, member, b"x" * BYTES)
    told: list[float] = []
    all_told = asyncio.Event()

    def note() -> None:
        told.append(time.perf_counter())
        if len(told) >= watchers:
            all_told.set()

    watching = [Watcher(group, member, note) for member in group.members[1 : watchers + 1]]
    for each in watching:
        each.ask()
    while sum(each.known for each in watching) < watchers * MEMBERS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    # What was published last has been told by then, and every watcher is held.
    await asyncio.sleep(3.0)
    taken: list[float] = []
    last: list[float] = []
    idle_began, idle_cpu = time.perf_counter(), exact_cpu_s(server.process.pid)
    await asyncio.sleep(3.0)
    idle = (exact_cpu_s(server.process.pid) - idle_cpu) / (time.perf_counter() - idle_began)
    began, before = time.perf_counter(), exact_cpu_s(server.process.pid)
    for number in range(CHANGES):
        told.clear()
        all_told.clear()
        sent = time.perf_counter()
        group.members[0].connection.send(
            heartbeat_frame(group, group.members[0], metadata=b"%100d" % number), lambda _: None
        )
        await asyncio.wait_for(all_told.wait(), PATIENCE_S)
        taken += [(each - sent) * 1e3 for each in told[:watchers]]
        last.append((told[watchers - 1] - sent) * 1e3)
        await asyncio.sleep(EVERY_S)
    busy_s = exact_cpu_s(server.process.pid) - before - idle * (time.perf_counter() - began)
    for connection in group.connections:
        assert connection.transport is not None
        connection.transport.abort()
    return Change(sorted(taken)[len(taken) // 2], max(last), busy_s * 1e3 / CHANGES)


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    with many_files():
        for watchers in (1, MEMBERS - 1):
            found: list[Change] = []
            for _ in range(runs):
                with KohortServer(SETTINGS) as server:
                    connection = RawConnection(server.port)
                    settle_alone(connection)
                    create_topic(connection, TOPIC, PARTITIONS)
                    connection.close()
                    found.append(asyncio.run(change_one(server, watchers)))
            rows += rows_of(found, watchers)
    return [Table("metadata", "Metadata that members publish", rows, [])]


def rows_of(found: list[Change], watchers: int) -> list[Row]:
    who = "one watcher has" if watchers == 1 else f"{watchers:,} watchers have"
    how = f"{len(found)}, {CHANGES} changes each"
    shared = {"unit": "ms", "peer_name": NO_PEER, "how": how, "less_is_better": True}
    return [
        compare(f"time until {who} it, median", [each.median_ms for each in found], [], reach="<= 200 ms", **shared),
        compare(f"time until {who} it, the last", [each.last_ms for each in found], [], reach="<= 200 ms", **shared),
        compare(f"broker CPU of a change until {who} it", [each.cpu_ms for each in found], [], reach="", **shared),
    ]
