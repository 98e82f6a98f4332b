"""TxnOffsetCommit is refused; what a log has of transactions, through a start of the coordinator and of the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kohort.broker.embedded import Broker
from kohort.coordinator import commands
from kohort.coordinator.commands import Done
from kohort.coordinator.decision import ReplyBody
from kohort.coordinator.records.codec import build_log_batch
from kohort.coordinator.records.types import OffsetCommitted, TransactionalOffsetCommitted
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC, ZERO_TOPIC_ID, coordinator_partition
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages import offset_fetch
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kohort.wire.registry import VERSIONS, ApiKey
from support.builders.storage_logs import empty_log, open_log
from support.dialogues.broker_wire import RawClient
from support.dialogues.running_coordinator import RunningCoordinator

FIRST, LAST = VERSIONS[ApiKey.TXN_OFFSET_COMMIT]


def commit_request(offset: int) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="note")
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


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
def test_offset_in_a_transaction_is_refused_and_hides_none(broker: Broker, client: RawClient, version: int) -> None:
    """Nothing would end the transaction: as any API that is not served, it closes the connection."""
    client.create_topic("t")
    commit(client, 3)
    with RawClient(broker.port) as producer:
        producer.send(ApiKey.TXN_OFFSET_COMMIT, version, commit_request(5))
        assert producer.is_closed_by_broker()
    for fetch_version in (7, 9):
        assert fetched(client, fetch_version, stable=True) == (3, ErrorCode.NONE)


def commit(client: RawClient, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    assert client.ask(ApiKey.OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code == ErrorCode.NONE


def leave_open(directory: Path) -> None:
    """Two producers' transactions with an offset of "g" each, as a coordinator's log may have them."""
    store = Store.open(str(directory))
    logs = store.topics[OFFSETS_TOPIC].partitions
    home = logs[coordinator_partition("g", len(logs))]
    for producer_id in (7, 8):
        offset = OffsetCommitted(
            group_id="g", topic="t", partition=0, offset=5, leader_epoch=-1, metadata="", commit_timestamp_ms=1_000
        )
        record = TransactionalOffsetCommitted(group_id="g", producer_id=producer_id, producer_epoch=0, commit=offset)
        batch = build_log_batch([record], now_ms=1_000)
        assert batch is not None
        home.append(bytearray(batch), now_ms=1_000, validate=False)
    store.close()


def test_transaction_that_nothing_can_end_is_aborted_by_a_start_which_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        commit(client, 3)
    leave_open(tmp_path)
    for start in range(2):
        caplog.clear()
        with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
            assert fetched(client, 9, stable=True) == (3, ErrorCode.NONE)
        told = [line for line in caplog.messages if line.startswith("event=transactions_aborted")]
        # The markers are in the log: the next start finds no open one.
        assert len(told) == (1 if start == 0 else 0)
        assert all("transactions=2 groups=g" in line for line in told)


class Coordinator(RunningCoordinator):
    """One that is asked about transactions of group "g"."""

    async def commit(self, offset: int, *, producer_id: int = 7) -> ReplyBody:
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

    async def complete(self, *, is_commit: bool, producer_id: int = 7) -> ReplyBody:
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
        assert await coordinator.complete(is_commit=True) == Done()
        assert await coordinator.commit(9, producer_id=8) == kept
        assert await coordinator.complete(producer_id=8, is_commit=False) == Done()
        await coordinator.stop()

    async def after_it() -> None:
        coordinator = Coordinator(open_log(disk, "/__consumer_offsets-0"))
        assert await coordinator.fetch() == (5, ErrorCode.NONE)
        await coordinator.stop()

    for step in (before_the_marker, the_marker, after_it):
        asyncio.run(step())
