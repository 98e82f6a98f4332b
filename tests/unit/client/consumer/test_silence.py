"""Dialogues with a consumer that gets nothing: after ten seconds one line says why, once until records come again."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import (
    CallbackKind,
    ChunkTaken,
    PartitionsAssigned,
    Paused,
    Sought,
    Start,
    Subscribed,
    Unsubscribed,
    Watermarks,
)
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from support.dialogues.consumer_dialogue import ConsumerDialogue, batch, orders

SAID = "no records for 10 s: "


def reading(*partitions: int, offset: int | None = None, **options: object) -> ConsumerDialogue:
    """Partitions are assigned by hand; nothing has been fetched."""
    consumer = ConsumerDialogue(**options)
    starts = {each: Start(fence=consumer.new_fence(), offset=offset) for each in orders(*partitions)}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()
    return consumer


def ends(**ends: int) -> dict[int, Watermarks]:
    """p0=7: the log of partition 0 begins at 0, and 7 is the offset of the next record."""
    return {int(name[1:]): Watermarks(0, end, end) for name, end in ends.items()}


def test_end_of_the_log_is_said_once() -> None:
    consumer = reading(0, 1, offset=7)
    consumer.serve(watermarks=ends(p0=7, p1=7))
    consumer.advance(9_000)
    assert consumer.warnings() == []

    consumer.advance(60_000)
    assert consumer.warnings() == [f"{SAID}orders-0 and 1 more are read to the end"]


def test_end_of_the_log_is_no_warning_to_those_who_have_read_it() -> None:
    """A topic that is seldom written to would have a warning after each record."""
    consumer = reading(0, offset=0)
    for offset in (0, 1):
        consumer.serve({0: batch(offset, 1)}, watermarks=ends(p0=offset + 1))
        consumer.take(ChunkTaken(sizes={TopicPartition("orders", 0): len(batch(offset, 1))}))
        consumer.advance(25_000)

    assert consumer.warnings() == []
    assert consumer.news() == [f"{SAID}orders-0 is read to the end"] * 2


def test_records_before_the_end_are_counted_for_those_who_start_there() -> None:
    consumer = ConsumerDialogue(auto_offset_reset="latest", given=["auto.offset.reset"])
    consumer.log_ends = dict.fromkeys(orders(0, 1), 40)
    consumer.stable(0, 1)
    consumer.serve(watermarks=ends(p0=40, p1=40))
    consumer.advance(10_000)

    assert consumer.warnings() == [
        f"{SAID}orders-0 and 1 more are read to the end; 80 older records are read with auto_offset_reset='earliest'"
    ]


def test_records_that_were_committed_are_not_older_ones() -> None:
    consumer = ConsumerDialogue(auto_offset_reset="latest")
    consumer.committed = dict.fromkeys(orders(0), 40)
    consumer.stable(0)
    consumer.serve(watermarks=ends(p0=40))
    consumer.advance(10_000)

    assert consumer.warnings() == [f"{SAID}orders-0 is read to the end"]


def test_paused_partitions_are_named_as_the_reason() -> None:
    consumer = reading(0, 1, offset=0)
    consumer.take(Paused(partitions=tuple(orders(0, 1)), is_paused=True))
    consumer.advance(30_000)

    assert consumer.warnings() == [f"{SAID}every partition is paused; resume() goes on with them"]


def test_leader_that_is_missing() -> None:
    consumer = ConsumerDialogue()
    consumer.leaders = dict.fromkeys(orders(0, 1, 2, 3), 9)
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence(), offset=0) for each in orders(2)}))
    consumer.advance(30_000)

    assert consumer.warnings() == [f"{SAID}orders-2 is without a leader at present"]


def test_beginning_that_is_not_found() -> None:
    consumer = ConsumerDialogue()
    consumer.by_hand.add(ListOffsetsRequest)
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence()) for each in orders(0)}))
    consumer.advance(12_000)

    assert consumer.warnings() == [f"{SAID}orders-0 is without an answer as to where reading begins"]


def test_transaction_that_is_open() -> None:
    consumer = reading(0, offset=5, isolation_level="read_committed")
    consumer.serve(watermarks={0: Watermarks(0, 5, 9)})
    consumer.advance(12_000)

    assert consumer.warnings() == [f"{SAID}orders-0 is read up to a transaction that is still open (read_committed)"]


def test_broker_that_hands_nothing_out() -> None:
    consumer = reading(0, offset=5)
    consumer.serve(watermarks={0: Watermarks(0, 9, 9)})
    consumer.advance(12_000)

    assert consumer.warnings() == [f"{SAID}orders-0 is not read to the end, and no broker hands out more"]


def test_records_that_wait_for_the_application_are_no_silence() -> None:
    """It is slow, or still at work on what it was handed."""
    consumer = reading(0, offset=0)
    consumer.serve({0: batch(0, 10)}, watermarks=ends(p0=10))
    consumer.advance(60_000)

    assert consumer.warnings() + consumer.news() == []


def test_buffer_that_is_full_of_paused_records() -> None:
    """They give way when they are told to; until the application has done that, nothing is asked for."""
    size = len(batch(0, 10))
    consumer = reading(0, 1, offset=0, fetch_buffer_bytes=size, max_partition_fetch_bytes=size)
    consumer.take(Paused(partitions=tuple(orders(1)), is_paused=True))
    consumer.serve({0: batch(0, 10)}, watermarks=ends(p0=20))
    consumer.take(Paused(partitions=tuple(orders(0)), is_paused=True))
    consumer.take(Paused(partitions=tuple(orders(1)), is_paused=False))
    consumer.machine._readings.get(orders(1)[0]).watermarks = Watermarks(0, 9, 9)  # type: ignore[union-attr]
    consumer.advance(30_000)

    assert consumer.warnings() == [
        f"{SAID}fetch.buffer.bytes ({size}) is full of records that the application has not taken"
    ]


@pytest.mark.parametrize("times", [1, 2])
def test_each_reason_is_said_once_until_records_come(times: int) -> None:
    consumer = reading(0, offset=0)
    for turn in range(times):
        consumer.take(Paused(partitions=tuple(orders(0)), is_paused=True))
        consumer.advance(25_000)
        consumer.take(Paused(partitions=tuple(orders(0)), is_paused=False))
        consumer.serve({0: batch(turn, 1)}, watermarks=ends(p0=turn + 2))
        consumer.take(ChunkTaken(sizes={TopicPartition("orders", 0): len(batch(turn, 1))}))
        consumer.advance(25_000)

    paused = f"{SAID}every partition is paused; resume() goes on with them"
    behind = f"{SAID}orders-0 is not read to the end, and no broker hands out more"
    assert consumer.warnings() == [paused, behind] * times


def test_seek_begins_anew_with_what_is_said() -> None:
    """What was read to the end is not any more."""
    consumer = reading(0, offset=7)
    consumer.serve(watermarks=ends(p0=7))
    consumer.advance(12_000)
    consumer.take(Sought(partition=orders(0)[0], fence=consumer.new_fence(), offset=3))
    consumer.advance(12_000)

    assert consumer.warnings() == [
        f"{SAID}orders-0 is read to the end",
        f"{SAID}orders-0 is not read to the end, and no broker hands out more",
    ]


# ---- in a group


def test_coordinator_that_nobody_names() -> None:
    consumer = ConsumerDialogue()
    consumer.by_hand.add(FindCoordinatorRequest)
    consumer.take(Subscribed(topics=("orders",)))
    consumer.advance(12_000)

    assert consumer.warnings() == [f"{SAID}no broker says where the coordinator of group billing is"]


def test_coordinator_that_lets_nobody_in() -> None:
    consumer = ConsumerDialogue()
    consumer.subscribe()
    assert consumer.find(ConsumerGroupHeartbeatRequest)
    consumer.advance(30_000)

    assert consumer.warnings() == [f"{SAID}group billing: the coordinator has not let this member in yet"]


def test_application_that_does_not_come_for_its_partitions() -> None:
    consumer = ConsumerDialogue()
    consumer.subscribe()
    consumer.reply(epoch=1, assigned=[0])
    consumer.advance(12_000)

    assert [question.kind for question in consumer.questions] == [CallbackKind.ASSIGNED]
    assert consumer.warnings() == [
        f"{SAID}group billing: it waits for this application to poll, and for the end of its callback"
    ]


def test_topic_that_may_not_be_read() -> None:
    consumer = ConsumerDialogue()
    consumer.by_hand.add(MetadataRequest)
    consumer.take(Subscribed(topics=("orders",)))
    for _ in range(30):
        consumer.advance(400)
        for send in consumer.find(MetadataRequest):
            refused = MetadataResponseTopic(name="orders", error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            answer = consumer.metadata(MetadataRequest(topics=[]))
            consumer.answer(send.request, MetadataResponse(brokers=answer.brokers, controller_id=1, topics=[refused]))

    assert consumer.warnings() == [f"{SAID}the broker answers TOPIC_AUTHORIZATION_FAILED for topic orders"]


def test_pattern_that_nothing_matches() -> None:
    consumer = ConsumerDialogue()
    consumer.take(Subscribed(topics=(), pattern="^nothing.*"))
    consumer.settle()
    consumer.reply(epoch=1, assigned=[])
    consumer.advance(12_000)

    assert consumer.warnings() == [f"{SAID}group billing gives this member nothing that matches ^nothing.*"]


def test_member_beyond_the_partitions_is_told_by_its_group_alone() -> None:
    """That line comes earlier and knows more."""
    consumer = ConsumerDialogue()
    consumer.stable()
    consumer.advance(30_000)

    assert [line for line in consumer.warnings() if line.startswith(SAID)] == []


def test_consumer_that_reads_nothing_is_silent_for_no_reason() -> None:
    """Neither before it begins nor when it is over."""
    consumer = ConsumerDialogue()
    consumer.advance(30_000)
    consumer.stable(0)
    consumer.take(Unsubscribed(ticket="end", deadline_ms=consumer.now_ms + 1_000))
    consumer.settle()
    consumer.acknowledge(CallbackKind.REVOKED, 0)
    consumer.advance(60_000)

    assert [line for line in consumer.warnings() if line.startswith(SAID)] == []


def test_consumer_that_only_holds_partitions_wants_no_records() -> None:
    """fetch.buffer.bytes=0."""
    consumer = ConsumerDialogue(fetch_buffer_bytes=0)
    consumer.stable(0)
    consumer.advance(30_000)

    assert consumer.find(FetchRequest) == []
    assert consumer.warnings() == []
