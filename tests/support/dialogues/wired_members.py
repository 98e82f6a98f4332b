"""Members of a group on connections of a broker in virtual time: heartbeats by one, fetches by another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from kohort.broker.access.capabilities import CapabilityRights
from kohort.coordinator.commands.admin import AlterGroupConfigs
from kohort.simulation.clients.network import run_virtually
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

GROUP = "g"
SESSION_S, INTERVAL_S = 9.0, 3.0
CONFIG: dict[str, object] = {
    "group.push.enable": False,
    "group.consumer.session.timeout.ms": int(SESSION_S * 1000),
    "group.consumer.heartbeat.interval.ms": int(INTERVAL_S * 1000),
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.assignment.window.ms": 0,
}


class WiredMembers:
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

    @property
    def now_s(self) -> float:
        """The time of the loop, which is virtual."""
        return asyncio.get_running_loop().time()

    async def connect(self, software: str = "kohort") -> WiredConnection:
        connection = WiredConnection(self.context)
        await connection.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name=software))
        return connection

    async def join(self, member_id: str, *, tokens: Sequence[str] = (), **fields: Any) -> Any:
        """`tokens`: those that its connections of heartbeats and of fetches have logged in with."""
        self.beats[member_id] = await self.connect()
        self.fetches[member_id] = await self.connect()
        for each, token in zip((self.beats[member_id], self.fetches[member_id]), tokens, strict=False):
            capability = self.context.capabilities.verify(token)
            each.connection.principal = f"Token:{capability.id}"
            each.connection.rights = CapabilityRights(capability, "127.0.0.1", None, self.context.clock.now_ms)
        fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
        return await self.beat(member_id, 0, **fields)

    async def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        return await self.beats[member_id].ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)

    def word(self, member_id: str, epoch: int, *known: int) -> KnownMembership:
        rows = [TopicPartitions(topic_id=self.topic_id, partitions=list(known))] if known else []
        return KnownMembership(group_id=GROUP, member_id=member_id, member_epoch=epoch, topic_partitions=rows)

    def send_fetch(
        self, member_id: str, epoch: int = 1, *, is_named: bool = True, known: Sequence[int] = (0, 1), **fields: Any
    ) -> None:
        rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
        values = {"session_epoch": -1, "max_wait_ms": 0, "min_bytes": 1, **fields}
        word = self.word(member_id, epoch, *known) if is_named else None
        # A member fetches what it has.
        topics = [FetchTopic(topic_id=self.topic_id, partitions=rows)] if known else []
        request = FetchRequest(topics=topics, member=word, **values)
        self.fetches[member_id].feed(encode_request(ApiKey.FETCH, 17, request))

    async def next_fetch(self, member_id: str) -> Any:
        """The next answer to a fetch."""
        ((_, answer),) = await self.fetches[member_id].receive(ApiKey.FETCH, 17)
        return answer

    async def fetch(self, member_id: str, epoch: int = 1, **fields: Any) -> Any:
        self.send_fetch(member_id, epoch, **fields)
        return await self.next_fetch(member_id)

    async def fetch_for(self, seconds: float, member_id: str, epoch: int = 1, **fields: Any) -> Any:
        """A fetch a second."""
        answer = None
        for _ in range(int(seconds)):
            answer = await self.fetch(member_id, epoch, **fields)
            await asyncio.sleep(1)
        return answer

    async def commit(self, member_id: str, epoch: int, *partitions: int, **fields: Any) -> Any:
        """A commit by the connection for heartbeats; its first error, and the answer."""
        rows = [OffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in partitions]
        topic = OffsetCommitRequestTopic(name="t", topic_id=self.topic_id, partitions=rows)
        fields = {"group_id": GROUP, "member_id": member_id, "topics": [topic], **fields}
        request = OffsetCommitRequest(generation_id_or_member_epoch=epoch, **fields)
        answer = await self.beats[member_id].ask(ApiKey.OFFSET_COMMIT, 9, request)
        return answer.topics[0].partitions[0].error_code, answer

    def alter(self, **configs: str) -> None:
        runtime = self.context.runtime
        token = runtime.next_token()
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        runtime.ask(AlterGroupConfigs(cause=token, request=token, group_id=GROUP, changes=changes), lambda _: None)


def virtually(dialogue: Callable[[WiredMembers], Awaitable[None]], **config: object) -> None:
    async def main(_: object) -> None:
        with wired_broker({**CONFIG, **config}) as context:
            row = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            created = await WiredConnection(context).ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[row]))
            await dialogue(WiredMembers(context, created.topics[0].topic_id))

    run_virtually(main, Random("fetch liveness"))
