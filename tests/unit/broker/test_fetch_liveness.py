"""Fetches that count as heartbeats (`group.liveness=fetch`), as connections see them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from kohort.coordinator.commands.admin import AlterGroupConfigs
from kohort.errors import ErrorCode
from kohort.simulation.clients.network import run_virtually
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

GROUP = "g"
SESSION_S, INTERVAL_S = 9.0, 3.0
CONFIG: dict[str, object] = {
    "group.liveness": "fetch",
    "group.push.enable": False,
    "group.consumer.session.timeout.ms": int(SESSION_S * 1000),
    "group.consumer.heartbeat.interval.ms": int(INTERVAL_S * 1000),
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.assignment.window.ms": 0,
}


class Members:
    """Members of a group, each with a connection for its heartbeats and one for its fetches of the topic "t"."""

    def __init__(self, context: Any, topic_id: bytes) -> None:
        self.context = context
        self.topic_id = topic_id
        self.beats: dict[str, WiredConnection] = {}
        self.fetches: dict[str, WiredConnection] = {}

    @property
    def ids(self) -> set[str]:
        groups = [shard_log.shard.groups for shard_log in self.context.runtime._shard_logs]
        return {each for group in groups if GROUP in group.consumer for each in group.consumer[GROUP].members}

    async def connect(self, software: str = "kohort") -> WiredConnection:
        connection = WiredConnection(self.context)
        await connection.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name=software))
        return connection

    async def join(self, member_id: str, *, principal: str = "", **fields: Any) -> Any:
        self.beats[member_id] = await self.connect()
        self.fetches[member_id] = await self.connect()
        if principal:
            for each in (self.beats[member_id], self.fetches[member_id]):
                each.connection.principal = principal
        fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
        return await self.beat(member_id, 0, **fields)

    async def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        return await self.beats[member_id].ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)

    def send_fetch(self, member_id: str, epoch: int = 1, *, is_named: bool = True, **fields: Any) -> None:
        rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
        known = [TopicPartitions(topic_id=self.topic_id, partitions=[0, 1])]
        word = KnownMembership(group_id=GROUP, member_id=member_id, member_epoch=epoch, topic_partitions=known)
        values = {"session_epoch": -1, "max_wait_ms": 0, "min_bytes": 1, **fields}
        request = FetchRequest(
            topics=[FetchTopic(topic_id=self.topic_id, partitions=rows)], member=word if is_named else None, **values
        )
        self.fetches[member_id].feed(encode_request(ApiKey.FETCH, 17, request))

    async def fetch(self, member_id: str, epoch: int = 1, **fields: Any) -> Any:
        self.send_fetch(member_id, epoch, **fields)
        ((_, answer),) = await self.fetches[member_id].receive(ApiKey.FETCH, 17)
        return answer

    async def fetch_for(self, seconds: float, member_id: str, epoch: int = 1, **fields: Any) -> Any:
        """A fetch a second."""
        answer = None
        for _ in range(int(seconds)):
            answer = await self.fetch(member_id, epoch, **fields)
            await asyncio.sleep(1)
        return answer

    def alter(self, **configs: str) -> None:
        runtime = self.context.runtime
        token = runtime.next_token()
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        runtime.ask(AlterGroupConfigs(cause=token, request=token, group_id=GROUP, changes=changes), lambda _: None)


def virtually(dialogue: Callable[[Members], Awaitable[None]], **config: object) -> None:
    async def main(_: object) -> None:
        with wired_broker({**CONFIG, **config}) as context:
            row = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            created = await WiredConnection(context).ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[row]))
            await dialogue(Members(context, created.topics[0].topic_id))

    run_virtually(main, Random("fetch liveness"))


def test_member_that_fetches_and_sends_no_heartbeat_stays() -> None:
    async def dialogue(members: Members) -> None:
        joined = await members.join("a")
        assert joined.counts_fetches
        await members.fetch_for(5 * SESSION_S, "a")
        assert members.ids == {"a"}
        # Then it falls silent.
        await asyncio.sleep(SESSION_S + 1)
        assert not members.ids

    virtually(dialogue)


def test_fetches_are_no_sign_of_life_where_the_group_says_nothing() -> None:
    async def dialogue(members: Members) -> None:
        joined = await members.join("a")
        assert not joined.counts_fetches
        await members.fetch_for(SESSION_S + 1, "a")
        assert not members.ids

    virtually(dialogue, **{"group.liveness": "heartbeat"})


def test_fetch_that_names_no_member_counts_for_nothing() -> None:
    """The application has not polled for too long: the client leaves the member out of a new session."""

    async def dialogue(members: Members) -> None:
        await members.join("a")
        first = await members.fetch("a", session_epoch=0)
        # A fetch of a session that goes on is the member's as before.
        for epoch in range(1, int(SESSION_S) + 2):
            await members.fetch("a", is_named=False, session_id=first.session_id, session_epoch=epoch)
            await asyncio.sleep(1)
        assert members.ids == {"a"}
        first = await members.fetch("a", is_named=False, session_epoch=0)
        for epoch in range(1, int(SESSION_S) + 2):
            await members.fetch("a", is_named=False, session_id=first.session_id, session_epoch=epoch)
            await asyncio.sleep(1)
        assert not members.ids

    virtually(dialogue)


def test_waiting_fetch_counts_when_it_ends() -> None:
    async def dialogue(members: Members) -> None:
        await members.join("a")
        # One that waits for most of a session: it is answered, and the member has another session from then.
        await members.fetch("a", max_wait_ms=int((SESSION_S - 1) * 1000))
        await asyncio.sleep(SESSION_S - 2)
        assert members.ids == {"a"}
        await asyncio.sleep(4)
        assert not members.ids

    virtually(dialogue)


def test_waiting_fetch_of_a_process_that_dies_counts_until_then() -> None:
    async def dialogue(members: Members) -> None:
        await members.join("a")
        members.send_fetch("a", max_wait_ms=60_000)
        await asyncio.sleep(SESSION_S - 1)
        for connection in (members.beats["a"], members.fetches["a"]):
            connection.connection.connection_lost(None)
        await asyncio.sleep(SESSION_S - 2)
        assert members.ids == {"a"}
        await asyncio.sleep(4)
        assert not members.ids

    virtually(dialogue)


def test_session_is_renewed_four_times_in_an_interval_at_most() -> None:
    async def dialogue(members: Members) -> None:
        await members.join("a")
        shard = next(each.shard for each in members.context.runtime._shard_logs if GROUP in each.shard.groups.consumer)
        key = shard.groups.consumer[GROUP].members["a"].session_key
        seen = set()
        for _ in range(120):
            await members.fetch("a")
            seen.add(shard.timers.deadline(key))
            await asyncio.sleep(0.1)
        # These twelve seconds are four intervals.
        assert 12 <= len(seen) <= 17

    virtually(dialogue)


def test_false_claims_renew_nothing() -> None:
    """An epoch that the member does not have, a member that does not exist, and another group's."""

    async def dialogue(members: Members) -> None:
        await members.join("a")
        members.fetches["x"] = members.fetches["a"]
        for _ in range(int(SESSION_S) + 1):
            assert (await members.fetch("a", 7)).membership_update.error_code == ErrorCode.FENCED_MEMBER_EPOCH
            assert (await members.fetch("x", 1)).membership_update.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            await asyncio.sleep(1)
        assert not members.ids
        assert not members.context.member_connections.is_known(members.fetches["x"].connection, GROUP, "x")

    virtually(dialogue)


def test_member_is_connected_as_long_as_it_fetches() -> None:
    """Its connection for heartbeats is closed: within the grace nothing is lost, since it fetches by another one."""

    async def dialogue(members: Members) -> None:
        await members.join("a")
        await members.fetch("a")
        members.beats["a"].connection.connection_lost(None)
        await members.fetch_for(SESSION_S, "a")
        assert members.ids == {"a"}
        members.fetches["a"].connection.connection_lost(None)
        await asyncio.sleep(INTERVAL_S + 2)
        assert not members.ids

    virtually(dialogue, **{"group.disconnect.grace.ms": 500})


def test_member_whose_connections_were_closed_is_back_by_a_fetch() -> None:
    async def dialogue(members: Members) -> None:
        await members.join("a")
        for connection in (members.beats["a"], members.fetches["a"]):
            connection.connection.connection_lost(None)
        members.fetches["a"] = await members.connect()
        await members.fetch_for(2 * SESSION_S, "a")
        assert members.ids == {"a"}

    virtually(dialogue, **{"group.disconnect.grace.ms": 4_000})


def test_offline_member_of_a_static_group_is_back_by_a_fetch() -> None:
    """Its registration ends as late as that of a member that heartbeats, and it is told what it missed."""

    async def dialogue(members: Members) -> None:
        await members.join("a", instance_id="one", registration_timeout_ms=20_000, expansion_timeout_ms=1_000)
        for connection in (members.beats["a"], members.fetches["a"]):
            connection.connection.connection_lost(None)
        await asyncio.sleep(5)
        members.fetches["a"] = await members.connect()
        await members.fetch_for(40, "a")
        assert members.ids == {"a"}
        await asyncio.sleep(SESSION_S + 21)
        assert not members.ids

    virtually(dialogue)


def test_group_that_counts_fetches_no_more_asks_for_a_heartbeat_once() -> None:
    async def dialogue(members: Members) -> None:
        await members.join("a")
        assert (await members.fetch("a")).membership_update is None
        members.alter(group_liveness="heartbeat")
        asked = (await members.fetch("a")).membership_update
        assert asked.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await members.fetch("a")).membership_update is None
        assert not (await members.beat("a", 1)).counts_fetches
        members.alter(group_liveness="fetch")
        assert (await members.beat("a", 1)).counts_fetches

    virtually(dialogue)


def test_member_that_names_itself_with_each_fetch_is_watched_once() -> None:
    """The coordinator is asked for news when the member knows something else, not with each of its fetches."""

    async def dialogue(members: Members) -> None:
        await members.join("a")
        await members.fetch("a")
        runtime = members.context.runtime
        before = runtime.next_token()
        for _ in range(10):
            await members.fetch("a")
        assert runtime.next_token() == before + 1
        assert len(members.context.membership_updates) == 1

    virtually(dialogue)


def test_history_says_that_the_member_was_last_heard_of_by_a_fetch() -> None:
    async def dialogue(members: Members) -> None:
        await members.join("a")
        await members.fetch_for(2 * SESSION_S, "a")
        await asyncio.sleep(SESSION_S + 1)
        rows = members.context.runtime.journal.history(GROUP).rows
        (removed,) = [row for row in rows if row.entry.event == "member_removed"]
        details = dict(removed.entry.details)
        assert (details["reason"], details["heard_by"]) == ("session timeout", "fetch")

    virtually(dialogue)


def test_stock_client_with_a_token_lives_by_its_fetches() -> None:
    """Its background thread is starved: what it fetches shows by its login whose it is."""

    async def dialogue(members: Members) -> None:
        await members.join("a", principal="Token:0123")
        await members.join("b")
        await members.fetch_for(2 * SESSION_S, "a", is_named=False)
        assert members.ids == {"a"}
        assert members.context.member_connections.member_of_token("Token:0123") == (GROUP, "a")
        # A second member of that token: the fetches are no member's.
        await members.join("c", principal="Token:0123")
        assert members.context.member_connections.member_of_token("Token:0123") is None
        await members.fetch_for(SESSION_S + 1, "a", is_named=False)
        assert not members.ids

    virtually(dialogue)
