"""Settled members that fetch: what their heartbeats cost, and what is left where their fetches count as heartbeats.

Members call themselves as kohort's consumer does, and say with their fetches which member they are. Each has a
connection for heartbeats, which are held, and one for its fetches in a session; nothing is produced. Where fetches
count they heartbeat no more once they are settled, as kohort's consumer does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from groupload import Connection, GroupLoad, Member, many_files
from kohort.wire.codec import decoder
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.private import SOFTWARE_NAME
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import Row, Table, compare
from requests import settle_alone
from servers import KohortServer, exact_cpu_s
from topics import create_topic

MEMBERS = 1_000
#: Whole numbers of heartbeat intervals and of waits.
PERIOD_S = 20.0
#: Wait of a fetch, ms, and what is reached for: the default of other consumers, and what kohort's ask for at kohort's
#: broker while nothing comes.
WAITS = ((500, ""), (3_500, ">= 1.25x"))
FETCH_VERSION = 17
_decode = decoder(FetchResponse, FETCH_VERSION)


class Use(NamedTuple):
    """What one server did in a period: processor time in ms, heartbeats and fetches that it was sent."""

    cpu_ms: float
    heartbeats: float
    fetches: float


class Fetcher:
    """The fetches of one member, one after the other in a session."""

    def __init__(self, group: str, member: Member, connection: Connection, wait_ms: int) -> None:
        self._connection = connection
        self._wait_ms = wait_ms
        ((topic_id, _), *_) = member.owned
        self._partitions = sorted(partition for _, partition in member.owned)
        known = TopicPartitions(topic_id=topic_id, partitions=self._partitions)
        self._word = KnownMembership(
            group_id=group, member_id=member.member_id, member_epoch=member.epoch, topic_partitions=[known]
        )
        self._topic_id = topic_id
        self._session_id = self._session_epoch = 0
        self.sent = 0
        self.is_over = False

    def fetch(self) -> None:
        """Send the next one."""
        rows = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in self._partitions]
        is_first = self._session_epoch == 0
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=rows)] if is_first else [],
            member=self._word if is_first else None,
        )
        self.sent += 1
        self._connection.send(frame(ApiKey.FETCH, FETCH_VERSION, request), self._take)

    def end(self) -> None:
        """Close the connection."""
        self.is_over = True
        assert self._connection.transport is not None
        self._connection.transport.abort()

    def _take(self, body: memoryview) -> None:
        if self.is_over:
            return
        answer = _decode(body, 5)[0]
        assert answer.error_code == 0, f"a fetch is refused: {answer.error_code}"
        update = answer.membership_update
        assert update is None or update.error_code == 0, f"the member is refused: {update.error_code}"
        self._session_id, self._session_epoch = answer.session_id, self._session_epoch + 1
        self.fetch()


class FetchingGroup:
    """The group of one server, whose members fetch and, unless that counts, heartbeat."""

    def __init__(self, server: Any, topic: str, wait_ms: int, *, counts_fetches: bool) -> None:
        self._server = server
        self._wait_ms = wait_ms
        self._counts_fetches = counts_fetches
        self._load = GroupLoad(server.port, [topic], MEMBERS, software=SOFTWARE_NAME)
        self._fetchers: list[Fetcher] = []
        self._heartbeats = 0

    async def start(self) -> None:
        """Bring the members in, and let them fetch."""
        load = self._load
        await load.connect(MEMBERS)
        for number in range(MEMBERS):
            self._follow(load.add(number))
        await load.settle(within_s=120)
        for member in load.members:
            _, connection = await load.loop.create_connection(
                partial(Connection, SOFTWARE_NAME), "127.0.0.1", load.port
            )
            fetcher = Fetcher(load.group, member, connection, self._wait_ms)
            self._fetchers.append(fetcher)
            fetcher.fetch()

    def _follow(self, member: Member) -> None:
        """Count the member's heartbeats, and end them where fetches count."""
        heartbeat = member.heartbeat

        def beat() -> None:
            if self._counts_fetches and self._fetchers:
                return
            self._heartbeats += 1
            heartbeat()

        member.heartbeat = beat  # type: ignore[method-assign]

    async def use(self) -> tuple[float, float, float]:
        """Return what was used so far."""
        cpu_ms = exact_cpu_s(self._server.process.pid) * 1e3
        return cpu_ms, float(self._heartbeats), float(sum(each.sent for each in self._fetchers))

    async def leave(self) -> None:
        """Let all members go; each has to be one still."""
        for fetcher in self._fetchers:
            fetcher.end()
        assert len(self._load.members) == MEMBERS
        for member in list(self._load.members):
            member.pause()
        await self._load.leave()


async def uses_of(servers: Sequence[Any], topic: str, wait_ms: int, runs: int) -> list[list[Use]]:
    """What each server used in each run, after a session of all members to warm up."""
    groups = [FetchingGroup(server, topic, wait_ms, counts_fetches=place == 0) for place, server in enumerate(servers)]
    for group in groups:
        await group.start()
    found: list[list[Use]] = [[] for _ in servers]
    # Longer than a session: who is not heard of is out by then, and leaving is refused.
    await asyncio.sleep(SESSION_S + 2)
    for _ in range(runs):
        before = [await group.use() for group in groups]
        await asyncio.sleep(PERIOD_S)
        after = [await group.use() for group in groups]
        for place, used in enumerate(found):
            used.append(Use(*(late - early for early, late in zip(before[place], after[place], strict=True))))
    for group in groups:
        await group.leave()
    return found


SESSION_S = 15
_GROUPS = {
    "max.incremental.fetch.session.cache.slots": 2 * MEMBERS,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_S * 1000,
}


def rows_of(servers: Sequence[Any], wait_ms: int, reach: str, runs: int) -> list[Row]:
    topic = f"liveness-{wait_ms}"
    for server in servers:
        connection = RawConnection(server.port)
        settle_alone(connection)
        create_topic(connection, topic, MEMBERS)
        connection.close()
    by_fetch, by_heartbeat = asyncio.run(uses_of(servers, topic, wait_ms, runs))
    common = {
        "peer_name": "ours, group.liveness=heartbeat",
        "how": f"{runs}, after a session to warm up",
        "settings": f"ours: group.liveness=fetch, fetches wait {wait_ms:,} ms",
        "less_is_better": True,
    }
    what = f"{MEMBERS:,} settled members whose fetches wait {wait_ms / 1000:g} s"
    return [
        compare(
            f"{what}: {name}",
            [getattr(each, attribute) * scale for each in by_fetch],
            [getattr(each, attribute) * scale for each in by_heartbeat],
            unit=unit,
            reach=wanted,
            **common,  # type: ignore[arg-type]
        )
        for name, attribute, unit, scale, wanted in (
            ("heartbeats", "heartbeats", "req/s", 1 / PERIOD_S, "<= 0 req/s"),
            ("fetches", "fetches", "req/s", 1 / PERIOD_S, ""),
            (f"broker CPU of {PERIOD_S:g} s", "cpu_ms", "ms", 1, reach),
        )
    ]


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        stack.enter_context(many_files())
        servers = [
            stack.enter_context(KohortServer({**_GROUPS, "group.liveness": liveness}))
            for liveness in ("fetch", "heartbeat")
        ]
        rows = [row for wait_ms, reach in WAITS for row in rows_of(servers, wait_ms, reach, runs)]
    return [Table("liveness", "Members that live by their fetches", rows)]
