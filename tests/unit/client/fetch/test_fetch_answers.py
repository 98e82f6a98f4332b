"""What brokers say beside records: logs that were cut, other replicas, and that they want to be left alone."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import Fence, OffsetsAsked, PartitionsAssigned, Sought, Start
from kohort.client.core.actions import Endpoint
from kohort.errors import ErrorCode, LogTruncationError
from kohort.ids import TopicPartition
from kohort.records.batch import build_batch
from kohort.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from support.dialogues.consumer_dialogue import BROKER, ORDERS, ConsumerDialogue, batch, orders

NEAR = Endpoint("127.0.0.1", 9093)


def reading(*offsets: int, **options: object) -> ConsumerDialogue:
    """A consumer that reads partitions 0, 1, ... of orders from these offsets; broker 2 is near it."""
    consumer = ConsumerDialogue(**{"group_id": None, **options})
    consumer.brokers[2] = NEAR
    starts = {
        orders(index)[0]: Start(fence=consumer.new_fence(), offset=offset) for index, offset in enumerate(offsets)
    }
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()
    return consumer


def partition(index: int) -> TopicPartition:
    return orders(index)[0]


def answer(consumer: ConsumerDialogue, *rows: PartitionData, throttle_time_ms: int = 0) -> None:
    """Answer the open fetch with these rows."""
    response = FetchResponse(
        throttle_time_ms=throttle_time_ms,
        responses=[FetchableTopicResponse(topic_id=ORDERS, partitions=list(rows))] if rows else [],
    )
    consumer.answer(consumer.expect(FetchRequest), response, version=17)


def entry(consumer: ConsumerDialogue, index: int = 0) -> FetchPartition:
    """What the open fetch asks of a partition."""
    consumer.settle()
    rows = [row for topic in consumer.expect(FetchRequest).topics for row in topic.partitions]
    return next(row for row in rows if row.partition == index)


def asked(consumer: ConsumerDialogue) -> Endpoint:
    """Whom the open fetch has gone to."""
    consumer.settle()
    (send,) = consumer.find(FetchRequest)
    return send.to


# -- logs that were cut (KIP-320) -------------------------------------------------------------------------------------


def test_fetch_names_the_epoch_of_the_last_record() -> None:
    """So that the leader itself sees whether its log has that record; unknown before the first one."""
    consumer = reading(5)
    assert entry(consumer).last_fetched_epoch == -1

    data = bytearray(build_batch([(None, b"v", 1, ())], base_offset=5))
    data[12:16] = (7).to_bytes(4, "big")
    answer(consumer, PartitionData(partition_index=0, records=memoryview(bytes(data))))

    assert (entry(consumer).fetch_offset, entry(consumer).last_fetched_epoch) == (6, 7)


def test_committed_epoch_is_held_against_the_log() -> None:
    """KIP-320: an offset that was committed before the log was cut is noticed, too."""
    consumer = ConsumerDialogue()
    consumer.committed[partition(0)] = 42
    consumer.committed_epochs[partition(0)] = 6

    consumer.stable(0)

    assert (entry(consumer).fetch_offset, entry(consumer).last_fetched_epoch) == (42, 6)


def diverging(end_offset: int, epoch: int) -> PartitionData:
    return PartitionData(
        partition_index=0, diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset), records=memoryview(b"")
    )


def test_reading_goes_on_where_the_log_was_cut() -> None:
    """As Java does where there is an auto.offset.reset: what was written there since then is not skipped."""
    consumer = reading(50)

    answer(consumer, diverging(40, epoch=2))

    assert (entry(consumer).fetch_offset, entry(consumer).last_fetched_epoch) == (40, 2)
    assert consumer.chunks()[-1].offset == 40, "the application's side is told"
    assert consumer.warnings()[-1] == (
        "the log of orders-0 was cut at offset 40, before the position 50: reading goes on there"
    )


def test_log_that_was_cut_is_an_error_if_the_application_wants_to_know() -> None:
    """With auto.offset.reset none: it names everything, once; a seek helps."""
    consumer = reading(50, auto_offset_reset="none")

    answer(consumer, diverging(40, epoch=2))
    consumer.advance(5_000)

    (trouble,) = consumer.troubles()
    assert isinstance(trouble.error, LogTruncationError)
    error = trouble.error
    assert (error.topic, error.partition, error.offset, error.diverging_offset) == ("orders", 0, 50, 40)
    assert consumer.find(FetchRequest) == []
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=40))
    assert consumer.fetching() == {partition(0): 40}


def test_epoch_that_was_lost_without_a_record_changes_nothing() -> None:
    """The leader does not know the epoch, but its log reaches as far: the position is good."""
    consumer = reading(50)

    answer(consumer, diverging(60, epoch=2))

    assert (entry(consumer).fetch_offset, entry(consumer).last_fetched_epoch) == (50, 2)
    assert (consumer.warnings(), consumer.troubles()) == ([], [])


# -- the replica to read from (KIP-392) -------------------------------------------------------------------------------


def pointer() -> PartitionData:
    return PartitionData(partition_index=0, preferred_read_replica=2, records=memoryview(b""))


def test_preferred_replica_is_read_from() -> None:
    """KIP-392: the leader may point to a replica in the reader's rack."""
    consumer = reading(0, client_rack="r2")
    assert (consumer.expect(FetchRequest).rack_id, asked(consumer)) == ("r2", BROKER)

    answer(consumer, pointer())

    assert asked(consumer) == NEAR


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE])
def test_error_of_the_preferred_replica_leads_back_to_the_leader(code: ErrorCode) -> None:
    """KIP-392."""
    consumer = reading(0, client_rack="r2")
    answer(consumer, pointer())

    consumer.serve(errors={0: code})
    consumer.advance(500)

    assert asked(consumer) == BROKER


def test_replica_that_lags_behind_does_not_send_the_reader_elsewhere() -> None:
    """KIP-392: what it has not got yet the leader may have; only the leader's word counts."""
    consumer = reading(70, client_rack="r2")
    answer(consumer, pointer())

    consumer.serve(errors={0: ErrorCode.OFFSET_OUT_OF_RANGE})
    consumer.advance(500)

    assert (asked(consumer), consumer.fetching()) == (BROKER, {partition(0): 70})


def test_leader_is_asked_again_once_in_a_while() -> None:
    """It names the nearest replica anew; after metadata.max.age.ms, as in Java."""
    consumer = reading(0, client_rack="r2", metadata_max_age_ms=60_000)
    answer(consumer, pointer())

    for _ in range(59):
        consumer.advance(1_000)
        consumer.serve()
    assert asked(consumer) == NEAR
    consumer.advance(1_000)
    consumer.serve(errors={})

    assert asked(consumer) == BROKER


def test_replica_that_is_gone_is_not_asked() -> None:
    """The picture of the cluster does not name it: the leader is there."""
    consumer = reading(0, client_rack="r2")
    del consumer.brokers[2]
    consumer.advance(300_001)

    answer(consumer, pointer())

    assert asked(consumer) == BROKER


def test_answer_from_where_the_partition_was_before_is_left_out() -> None:
    """Its new leader was quicker: the position has moved on, and nothing is wrong."""
    consumer = reading(0)
    before = consumer.expect(FetchRequest)
    consumer.leaders[partition(0)] = 2
    consumer.advance(300_001)
    (after,) = [send for send in consumer.find(FetchRequest) if send.to == NEAR]
    assert isinstance(after.request, FetchRequest)

    consumer.serve_one(after.request, {0: batch(0, 10)})
    consumer.serve_one(before, {0: batch(0, 14)})

    assert [(chunk.offset, chunk.next_offset) for chunk in consumer.chunks()] == [(0, 10)]
    assert (asked(consumer), consumer.fetching()) == (NEAR, {partition(0): 10})


# -- patience ---------------------------------------------------------------------------------------------------------


def test_broker_that_asks_for_patience_is_not_asked_before() -> None:
    """KIP-219: it answers at once and says how long it wants to be left alone."""
    consumer = reading(0, 0)

    answer(consumer, PartitionData(partition_index=0, records=memoryview(batch(0, 10))), throttle_time_ms=700)
    consumer.take(Sought(partition=partition(1), fence=Fence(99), offset=5))
    consumer.advance(690)
    assert consumer.find(FetchRequest) == []
    consumer.advance(20)

    assert consumer.fetching() == {partition(0): 10, partition(1): 5}


def test_patience_with_one_broker_is_not_asked_of_others() -> None:
    """Each speaks for itself."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.brokers[2] = NEAR
    consumer.leaders[partition(1)] = 2
    starts = {each: Start(fence=consumer.new_fence(), offset=0) for each in orders(0, 1)}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()
    first = next(send for send in consumer.find(FetchRequest) if send.to == BROKER)

    consumer.answer(first.request, FetchResponse(throttle_time_ms=5_000), version=17)

    assert [send.to for send in consumer.find(FetchRequest)] == [NEAR]


def test_patience_that_another_answer_asks_for_counts() -> None:
    """KIP-219: it is the broker that wants to be left alone, not one of the connections to it."""
    consumer = reading(0, 0)
    consumer.by_hand.add(ListOffsetsRequest)
    consumer.take(OffsetsAsked(timestamps={partition(2): -1}, ticket="ends", deadline_ms=consumer.now_ms + 10_000))
    asked_for = consumer.expect(ListOffsetsRequest)
    found = consumer.offsets(asked_for)
    found.throttle_time_ms = 700

    consumer.answer(asked_for, found)
    consumer.serve()
    consumer.advance(690)
    assert consumer.find(FetchRequest) == []
    consumer.advance(20)

    assert consumer.fetching() == {partition(0): 0, partition(1): 0}
