"""Offsets committed within transactions: pending until the marker, fenced like any commit, the same after a restart."""

from __future__ import annotations

import random

import pytest

from kohort.coordinator import commands
from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.commands import JoinGroup, JoinGroupReply
from kohort.coordinator.commands.admin import DescribeClassicGroupReply
from kohort.coordinator.records.codec import build_log_batch, read_log_batch
from kohort.coordinator.records.types import OffsetForgotten, TransactionCompleted
from kohort.errors import ErrorCode
from kohort.records.header import parse_header
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT


def stable_errors(group: GroupDialogue, partitions: list[int] | None = None) -> dict[int, tuple[int, ErrorCode]]:
    """What a fetch of stable offsets says: partition -> (offset, error)."""
    reply = group.fetch_offsets(partitions, require_stable=True).body_as(commands.FetchOffsetsReply)
    return {found.partition: (found.offset, found.error) for found in reply.offsets}


def test_offsets_count_from_the_commit_marker_on(group: GroupDialogue) -> None:
    group.commit({0: 1})
    assert group.commit_in_transaction({0: 5, 1: 6}).errors() == (NONE, NONE)
    assert group.committed([0, 1]) == {0: 1, 1: -1}
    group.restart()
    assert group.committed([0, 1]) == {0: 1, 1: -1}

    group.complete().is_done()

    assert group.committed() == {0: 5, 1: 6}
    group.restart()
    assert group.committed() == {0: 5, 1: 6}


def test_offsets_of_an_aborted_transaction_never_were(group: GroupDialogue) -> None:
    group.commit({0: 1})
    group.commit_in_transaction({0: 5, 1: 6})
    group.complete(is_commit=False).is_done()
    group.restart()
    assert group.committed() == {0: 1}
    assert stable_errors(group) == {0: (1, NONE)}


def test_who_asks_for_stable_offsets_waits_for_the_marker(group: GroupDialogue) -> None:
    """KIP-447: a partition at a time; others, and who does not ask for it, get what is committed."""
    group.commit({0: 1, 1: 2})
    group.commit_in_transaction({0: 5})
    for _ in range(2):
        assert stable_errors(group, [0, 1]) == {0: (-1, UNSTABLE), 1: (2, NONE)}
        assert stable_errors(group) == {0: (-1, UNSTABLE), 1: (2, NONE)}
        assert group.committed() == {0: 1, 1: 2}
        group.restart()
    group.complete()
    assert stable_errors(group) == {0: (5, NONE), 1: (2, NONE)}


def test_the_order_of_the_log_decides_between_a_transaction_and_an_ordinary_commit(group: GroupDialogue) -> None:
    """Kafka compares the places of the two commits; the marker's place says nothing."""
    group.commit_in_transaction({0: 5})
    group.commit({0: 7})
    assert stable_errors(group) == {0: (-1, UNSTABLE)}
    group.complete()
    assert group.committed() == {0: 7}
    group.restart()
    assert group.committed() == {0: 7}


def test_the_order_of_the_log_decides_between_two_transactions(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 5}, producer=1)
    group.commit_in_transaction({0: 6}, producer=2)
    group.complete(2)
    assert group.committed() == {0: 6}
    assert stable_errors(group) == {0: (-1, UNSTABLE)}
    group.restart()
    group.complete(1)
    assert group.committed() == {0: 6}
    assert stable_errors(group) == {0: (6, NONE)}


def test_a_transaction_that_writes_again_is_as_new_as_its_last_word(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 5}, producer=1)
    group.commit_in_transaction({0: 6}, producer=2)
    group.commit_in_transaction({0: 8}, producer=1)
    group.complete(1)
    group.complete(2)
    assert group.committed() == {0: 8}


def test_an_incarnation_that_was_replaced_writes_nothing_more(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 5}, producer_epoch=3)
    group.commit_in_transaction({0: 9}, producer_epoch=2).is_refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    group.complete(producer_epoch=2, is_commit=False).is_refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    group.restart()
    group.complete(producer_epoch=2, is_commit=False).is_refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    group.complete(producer_epoch=4, is_commit=False).is_done()
    assert group.committed() == {}


@pytest.mark.parametrize(("producer", "producer_epoch"), [(-1, 0), (7, -1)])
def test_who_is_no_producer_is_refused(group: GroupDialogue, producer: int, producer_epoch: int) -> None:
    answer = group.commit_in_transaction({0: 5}, producer=producer, producer_epoch=producer_epoch)
    answer.is_refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, saying="InitProducerId")


def test_group_without_a_name_is_refused(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 5}, group_id="").is_refused(ErrorCode.INVALID_GROUP_ID)


def test_bad_partitions_do_not_hold_up_good_ones(group: GroupDialogue) -> None:
    answer = group.commit_in_transaction({0: 1, ("nowhere", 0): 2})
    assert answer.errors() == (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    group.complete()
    assert group.committed() == {0: 1}


def test_marker_of_a_transaction_that_never_came_here_writes_nothing(group: GroupDialogue) -> None:
    group.new_records()
    group.complete().is_done()
    group.commit_in_transaction({0: 1})
    group.complete().is_done()
    group.complete().is_done()
    markers = [record for record in group.new_records() if isinstance(record, TransactionCompleted)]
    assert len(markers) == 1


def test_one_marker_ends_the_transaction_in_every_group(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 1}, group_id="x")
    group.commit_in_transaction({0: 2}, group_id="y")
    group.complete()
    assert [group.committed(group_id=name) for name in "xy"] == [{0: 1}, {0: 2}]


# Who may commit: KIP-447.


def test_member_of_the_new_protocol_is_fenced_by_its_epoch(group: GroupDialogue) -> None:
    """KIP-1319: before version 6 a stale epoch is called an illegal generation."""
    group.stable(a=[0, 1])
    assert group.commit_in_transaction({0: 1}, member_id="a", epoch=1).errors() == (NONE,)
    stale = {"member_id": "a", "epoch": 9}
    group.commit_in_transaction({0: 1}, **stale).is_refused(ErrorCode.ILLEGAL_GENERATION)
    group.commit_in_transaction({0: 1}, is_stale_epoch_aware=True, **stale).is_refused(ErrorCode.STALE_MEMBER_EPOCH)
    group.commit_in_transaction({0: 1}, member_id="b", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.commit_in_transaction({0: 3}).errors() == (NONE,), "a producer that knows no consumer is not checked"


def test_partition_that_was_given_up_is_not_committed_for(group: GroupDialogue) -> None:
    """KIP-1251: the old epoch does for what the member still has, and for that only."""
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.settle()
    answer = group.commit_in_transaction({0: 1, 1: 1}, member_id="a", epoch=1)
    kept = {partition for _, partition in group.holders()["a"]}
    assert answer.errors() == tuple(NONE if p in kept else ErrorCode.ILLEGAL_GENERATION for p in (0, 1))
    assert len(kept) == 1


def join(group: GroupDialogue, instance_id: str | None = None) -> Answer:
    return group.ask(
        JoinGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            member_id="",
            fresh_member_id=f"m{group.request()}",
            client_id="c",
            client_host="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            instance_id=instance_id,
        )
    )


def test_classic_member_is_fenced_by_generation_id_and_instance(group: GroupDialogue) -> None:
    """In every state of the group, as with ordinary commits; a producer that knows no consumer is not checked."""
    first = join(group, "i").body_as(JoinGroupReply)
    assert group.shard.groups.classic["g"].state is ClassicGroupState.COMPLETING_REBALANCE
    me = {"member_id": first.member_id, "instance_id": "i"}
    assert group.commit_in_transaction({0: 1}, epoch=1, **me).errors() == (NONE,)
    group.commit_in_transaction({0: 1}, epoch=2, **me).is_refused(ErrorCode.ILLEGAL_GENERATION)
    group.commit_in_transaction({0: 1}, epoch=1, member_id="x").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.commit_in_transaction({0: 1}).errors() == (NONE,)
    join(group, "i")
    group.commit_in_transaction({0: 1}, epoch=1, **me).is_refused(ErrorCode.FENCED_INSTANCE_ID)


def test_generation_of_a_group_that_is_not_there_is_illegal(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 1}, member_id="m", epoch=3).is_refused(ErrorCode.ILLEGAL_GENERATION)
    group.commit_in_transaction({0: 1}, member_id="m").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


# What else happens to offsets.


def test_group_that_only_a_transaction_knows_is_listed_described_and_deleted(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 5})
    assert group.list_groups() == [("g", "", "Empty", "classic")]
    assert group.describe_classic().body_as(DescribeClassicGroupReply).state == "Empty"
    group.new_records()
    group.delete_group().is_done()
    assert group.new_records() == [OffsetForgotten(group_id="g", topic="t", partition=0)]
    assert group.list_groups() == []
    group.complete().is_done()
    assert group.committed() == {}, "what was deleted does not come back with the marker"


def test_offsets_that_are_deleted_do_not_come_back_with_the_marker(group: GroupDialogue) -> None:
    group.commit({0: 1, 1: 1})
    group.commit_in_transaction({0: 5, 1: 5})
    assert group.delete_offsets([0]).errors() == (NONE,)
    group.restart()
    group.complete()
    assert group.committed() == {1: 5}


def test_topic_that_is_deleted_takes_pending_offsets_with_it() -> None:
    group = GroupDialogue({"t": 2, "u": 1})
    group.commit_in_transaction({0: 5, ("u", 0): 5})
    group.set_topics({"u": 1})
    group.set_topics({"t": 2, "u": 1})
    group.complete()
    assert group.committed() == {("u", 0): 5}


def test_what_is_about_to_be_replaced_does_not_expire() -> None:
    """Kafka: never with a pending transactional commit on the partition; the group stays, too."""
    group = GroupDialogue(offsets_retention_minutes=1)
    group.commit({0: 1, 1: 1})
    group.commit_in_transaction({0: 5})
    group.advance(60_000)
    assert group.expire_offsets() == commands.ExpireOffsetsReply(unfinished=(), expired=1, removed=0)
    group.complete(is_commit=False)
    assert group.expire_offsets().expired == 1
    assert group.list_groups() == []


# The log.


def test_transaction_is_a_batch_of_its_producer_and_the_marker_a_control_batch(group: GroupDialogue) -> None:
    """As Apache Kafka's tools and its coordinator read them."""
    group.commit_in_transaction({0: 5, 1: 6}, producer=7, producer_epoch=2)
    group.complete(7, producer_epoch=2)
    written, marker = (parse_header(batch) for batch in group.batches)
    assert (written.producer_id, written.producer_epoch, written.base_sequence) == (7, 2, -1)
    assert (written.is_transactional, written.is_control, written.record_count) == (True, False, 2)
    assert (marker.producer_id, marker.producer_epoch, marker.is_control, marker.is_transactional) == (7, 2, True, True)


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_reads_back(is_commit: bool) -> None:
    marker = TransactionCompleted(group_id="", producer_id=1 << 40, producer_epoch=32_767, is_commit=is_commit)
    batch = build_log_batch([marker], now_ms=1)
    assert batch is not None
    assert read_log_batch(batch) == [marker]


@pytest.mark.parametrize("seed", range(30))
def test_any_sequence_folds_to_the_same(seed: int) -> None:
    """The dialogue compares after each step; at the end nothing of a transaction is left."""
    chance = random.Random(seed)
    group = GroupDialogue({"t": 3})
    for _ in range(60):
        partitions = {chance.randrange(3): chance.randrange(100)}
        match chance.randrange(7):
            case 0:
                group.commit(partitions)
            case 1 | 2 | 3:
                group.commit_in_transaction(partitions, producer=chance.randrange(4), group_id=chance.choice("gh"))
            case 4:
                group.complete(chance.randrange(4), is_commit=chance.random() < 0.5)
            case 5:
                group.delete_offsets(list(partitions))
            case _:
                group.restart()
    for producer in range(4):
        group.complete(producer)
    assert not group.shard.groups.pending_offsets
    assert not group.shard.groups.transactions
