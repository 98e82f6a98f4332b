"""TxnOffsetCommit as bytes, and its log through a start of the broker."""

from __future__ import annotations

import asyncio

import pytest

from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID
from kohort.testing.memoryfs import MemoryFileSystem
from kohort.wire.messages import offset_fetch
from kohort.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kohort.wire.registry import VERSIONS, ApiKey
from support.broker_wire import RawClient
from support.running_coordinator import RunningCoordinator
from support.storage_logs import empty_log, open_log

FIRST, LAST = VERSIONS[ApiKey.TXN_OFFSET_COMMIT]


def commit_request(offset: int, *, topic: str = "t", producer_id: int = 7, **fields: object) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="note")
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **fields,  # type: ignore[arg-type]
    )


def error_of(client: RawClient, version: int, request: TxnOffsetCommitRequest) -> int:
    answer = client.ask(ApiKey.TXN_OFFSET_COMMIT, version, request)
    (row,) = answer.topics
    assert row.name == request.topics[0].name
    code: int = row.partitions[0].error_code
    return code


def fetched(client: RawClient, version: int, *, stable: bool) -> tuple[int, int]:
    """Offset and error of the partition."""
    topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=topics, require_stable=stable)
    if version >= 8:
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable)
    answer = client.ask(ApiKey.OFFSET_FETCH, version, request)
    rows = answer.groups[0].topics if version >= 8 else answer.topics
    partition = rows[0].partitions[0]
    return partition.committed_offset, partition.error_code


@pytest.mark.parametrize("version", range(FIRST, LAST + 1))
def test_every_version_keeps_the_offset_aside(client: RawClient, version: int) -> None:
    client.create_topic("t")
    assert error_of(client, version, commit_request(5)) == ErrorCode.NONE
    assert error_of(client, version, commit_request(5, topic="nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(client, version, commit_request(5, producer_id=-1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for fetch_version in (7, 9):
        assert fetched(client, fetch_version, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert fetched(client, fetch_version, stable=False) == (-1, ErrorCode.NONE)
    if version >= 3:
        request = commit_request(5, member_id="m", generation_id=3)
        assert error_of(client, version, request) == ErrorCode.ILLEGAL_GENERATION


def test_request_without_topics_is_answered(client: RawClient) -> None:
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=7, producer_epoch=0, topics=[])
    assert client.ask(ApiKey.TXN_OFFSET_COMMIT, 3, request).topics == []


class Coordinator(RunningCoordinator):
    """One that is asked about transactions of group "g"."""

    async def commit(self, offset: int, *, producer_id: int = 7) -> commands.ReplyBody:
        return await self.ask(
            commands.CommitTransactionOffsets(
                **self.ids(),
                group_id="g",
                member_id="",
                generation_or_member_epoch=-1,
                offsets=(commands.OffsetToCommit(topic="t", topic_id=ZERO_TOPIC_ID, partition=0, offset=offset),),
                producer_id=producer_id,
                producer_epoch=0,
            )
        )

    async def complete(self, *, is_commit: bool, producer_id: int = 7) -> commands.ReplyBody:
        """What a transaction coordinator says."""
        return await self.ask(
            commands.CompleteTransaction(**self.ids(), producer_id=producer_id, producer_epoch=0, is_commit=is_commit)
        )

    async def fetch(self) -> tuple[int, int]:
        reply = await self.ask(
            commands.FetchOffsets(**self.ids(), group_id="g", partitions=(("t", 0),), require_stable=True)
        )
        assert isinstance(reply, commands.FetchOffsetsReply)
        return reply.offsets[0].offset, reply.offsets[0].error


def test_transactions_are_found_again_after_a_start() -> None:
    """An open one is still open, and its marker can come; what a marker said stays said."""
    disk = MemoryFileSystem()
    log = empty_log(disk, "/__consumer_offsets-0")
    kept = commands.CommitOffsetsReply(errors=(ErrorCode.NONE,))

    async def before_the_marker() -> None:
        coordinator = Coordinator(log)
        assert await coordinator.commit(5) == kept
        await coordinator.stop()

    async def the_marker() -> None:
        coordinator = Coordinator(open_log(disk, "/__consumer_offsets-0"))
        assert await coordinator.fetch() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await coordinator.complete(is_commit=True) == commands.Done()
        assert await coordinator.commit(9, producer_id=8) == kept
        assert await coordinator.complete(producer_id=8, is_commit=False) == commands.Done()
        await coordinator.stop()

    async def after_it() -> None:
        coordinator = Coordinator(open_log(disk, "/__consumer_offsets-0"))
        assert await coordinator.fetch() == (5, ErrorCode.NONE)
        await coordinator.stop()

    for step in (before_the_marker, the_marker, after_it):
        asyncio.run(step())
