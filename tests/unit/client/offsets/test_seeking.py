"""Dialogues about seeking to the beginning, the end and a time: the background finds the offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kohort.client.consumer.application_events import (
    EARLIEST,
    LATEST,
    CallbackDone,
    CallbackKind,
    Chunk,
    Fence,
    PartitionsAssigned,
    Paused,
    PositionAsked,
    Sought,
    Start,
)
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.consumer.rebalancing import Progress
from kohort.client.core.actions import Complete
from kohort.client.records import Committable, OffsetAndMetadata
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.metadata import MetadataRequest
from support.dialogues.consumer_dialogue import ConsumerDialogue, batch, orders

FIRST, SECOND = orders(0, 1)


@pytest.fixture
def consumer() -> ConsumerDialogue:
    """Reads two partitions at offset 50 of [10, 100)."""
    return reading()


def reading(**options: Any) -> ConsumerDialogue:
    consumer = ConsumerDialogue(**options)
    consumer.log_starts |= {FIRST: 10, SECOND: 10}
    consumer.log_ends |= {FIRST: 100, SECOND: 100}
    starts = {each: Start(fence=consumer.new_fence(), offset=50) for each in (FIRST, SECOND)}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()
    return consumer


def seek(consumer: ConsumerDialogue, timestamp: int, partition: TopicPartition = FIRST) -> Fence:
    fence = consumer.new_fence()
    consumer.take(Sought(partition=partition, fence=fence, offset=None, timestamp=timestamp))
    consumer.settle()
    return fence


def answer(consumer: ConsumerDialogue, offsets: Mapping[int, int], error: ErrorCode = ErrorCode.NONE) -> list[int]:
    """Answer the open question about orders-0 with the offset of its timestamp; returns the timestamps."""
    request = consumer.expect(ListOffsetsRequest)
    asked = [entry.timestamp for topic in request.topics for entry in topic.partitions]
    found = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offsets.get(asked[0], -1))
    topic = ListOffsetsTopicResponse(name="orders", partitions=[found])
    consumer.answer(request, ListOffsetsResponse(topics=[topic]))
    consumer.settle()
    return asked


@pytest.mark.parametrize(("timestamp", "offset"), [(EARLIEST, 10), (LATEST, 100), (1_700_000_000_000, 100)])
def test_reading_goes_on_where_it_leads(consumer: ConsumerDialogue, timestamp: int, offset: int) -> None:
    """At once, and the application's side hears where: its position is right though nothing was fetched."""
    fence = seek(consumer, timestamp)

    assert consumer.fetching()[FIRST] == offset
    (chunk,) = consumer.chunks()
    assert (chunk.partition, chunk.fence, chunk.offset, chunk.next_offset) == (FIRST, fence, offset, offset)


def test_time_behind_the_last_record_leads_to_the_end(consumer: ConsumerDialogue) -> None:
    """What comes is younger; an answer without an offset is not offset 0."""
    consumer.by_hand.add(ListOffsetsRequest)
    seek(consumer, 1_700_000_000_000)

    assert answer(consumer, {}) == [1_700_000_000_000]
    assert answer(consumer, {LATEST: 100}) == [LATEST]
    assert consumer.fetching()[FIRST] == 100


def test_only_the_latest_seek_counts(consumer: ConsumerDialogue) -> None:
    """An answer for an earlier one changes nothing."""
    consumer.by_hand.add(ListOffsetsRequest)
    seek(consumer, EARLIEST)
    early = consumer.expect(ListOffsetsRequest)
    consumer.take(Sought(partition=FIRST, fence=consumer.new_fence(), offset=77))
    consumer.settle()
    consumer.answer(early, consumer.offsets(early))
    consumer.settle()

    assert consumer.fetching()[FIRST] == 77
    assert consumer.chunks() == []


def test_what_may_help_is_asked_again(consumer: ConsumerDialogue) -> None:
    """A leader that has moved."""
    consumer.by_hand.add(ListOffsetsRequest)
    seek(consumer, EARLIEST)
    answer(consumer, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    consumer.advance(1_000)
    answer(consumer, {EARLIEST: 12})

    assert consumer.fetching()[FIRST] == 12


def test_it_needs_no_reset_policy() -> None:
    """auto.offset.reset none is about offsets that are lost, not about being sent."""
    consumer = reading(auto_offset_reset="none")
    seek(consumer, EARLIEST)

    assert consumer.fetching()[FIRST] == 10
    assert consumer.troubles() == []


def test_neighbours_go_on(consumer: ConsumerDialogue) -> None:
    """Nothing of them is asked anew or handed out twice."""
    seek(consumer, EARLIEST)
    consumer.serve({0: batch(10, 2), 1: batch(50, 2)})

    chunks = {chunk.partition: chunk.offset for chunk in consumer.chunks() if chunk.size_bytes}
    assert chunks == {FIRST: 10, SECOND: 50}


def test_paused_partition_is_looked_up_when_somebody_wants_to_know(consumer: ConsumerDialogue) -> None:
    """Lazily, as in Kafka."""
    consumer.take(Paused(partitions=(FIRST,), is_paused=True))
    consumer.by_hand.add(ListOffsetsRequest)
    seek(consumer, EARLIEST)
    assert consumer.find(ListOffsetsRequest) == []

    consumer.take(PositionAsked(partition=FIRST, ticket="where", deadline_ms=consumer.now_ms + 5_000))
    consumer.settle()
    answer(consumer, {EARLIEST: 10})

    assert consumer.ended("where") == Complete(ticket="where", value=10)


def test_seek_in_the_assigned_callback_decides_the_start() -> None:
    """Not the committed offset."""
    member = ConsumerDialogue()
    member.committed[FIRST] = 50
    member.log_starts[FIRST] = 10
    member.subscribe()
    member.reply(assigned=[0])
    question = member.questions.pop(0)
    assert question.kind is CallbackKind.ASSIGNED
    starts = {FIRST: Start(fence=member.new_fence(), timestamp=EARLIEST)}
    member.take(CallbackDone(number=question.number, consumed={}, starts=starts))

    assert member.fetching() == {FIRST: 10}


def test_leader_epoch_of_a_seek_goes_with_the_fetch(consumer: ConsumerDialogue) -> None:
    """KIP-320: the broker says if its log was cut off before that offset."""
    consumer.take(Sought(partition=FIRST, fence=consumer.new_fence(), offset=60, leader_epoch=2))
    consumer.settle()

    requests = [send.request for send in consumer.find(FetchRequest)]
    entries = [
        entry
        for request in requests
        if isinstance(request, FetchRequest)
        for topic in request.topics
        for entry in topic.partitions
        if entry.fetch_offset == 60
    ]
    assert [entry.last_fetched_epoch for entry in entries] == [2]


# -- the application's half -------------------------------------------------------------------------------------------


@pytest.fixture
def handler() -> FetchHandler:
    handler = FetchHandler()
    handler.hold([FIRST])
    handler.seek(FIRST, 50)
    return handler


def chunk(handler: FetchHandler, offset: int, records: bytes = b"", leader_epoch: int = -1) -> Chunk:
    return Chunk(
        partition=FIRST,
        fence=handler.starts([FIRST])[FIRST].fence,
        offset=offset,
        next_offset=offset + 2 if records else offset,
        records=memoryview(records),
        size_bytes=len(records),
        aborted=(),
        leader_epoch=leader_epoch,
    )


def test_position_is_unknown_until_it_is_found(handler: FetchHandler) -> None:
    """Nothing of before is reported as done, neither the old position nor the old data."""
    handler.add(chunk(handler, 50, batch(50, 2)))
    handler.seek(FIRST, None, EARLIEST)

    assert not handler.has_data
    assert handler.position(FIRST) is None
    assert (handler.positions(), handler.consumed()) == ({}, {})
    assert handler.starts([FIRST])[FIRST].timestamp == EARLIEST


def test_position_is_where_the_background_says(handler: FetchHandler) -> None:
    """And counts as reached when the application comes by."""
    handler.seek(FIRST, None, EARLIEST)
    handler.add(chunk(handler, 10))
    assert handler.position(FIRST) == 10
    handler.add(chunk(handler, 10, batch(10, 2)))

    assert [record.offset for record in handler.take(10)] == [10, 11]
    assert handler.consumed() == {FIRST: 12}
    start = handler.starts([FIRST])[FIRST]
    assert (start.offset, start.timestamp) == (12, None)


def test_offset_takes_the_place_of_a_time(handler: FetchHandler) -> None:
    """The last seek counts."""
    handler.seek(FIRST, None, LATEST)
    handler.seek(FIRST, 5)

    start = handler.starts([FIRST])[FIRST]
    assert (start.offset, start.timestamp) == (5, None)
    assert handler.consumed() == {FIRST: 5}


def test_position_has_the_epoch_of_what_lies_before_it(handler: FetchHandler) -> None:
    """KIP-320: it is committed with it, so that whoever goes on there notices a log that was cut."""
    progress = Progress(handler, is_stored=False)
    handler.add(chunk(handler, 50, batch(50, 2), leader_epoch=4))
    assert len(handler.take(1)) == 1
    assert progress.done() == {FIRST: OffsetAndMetadata(51, "", 4)}
    handler.take(1)
    told: list[Mapping[TopicPartition, Committable]] = []
    progress.tell(told.append)
    assert told == [{FIRST: OffsetAndMetadata(52, "", 4)}]

    # Sent elsewhere, by the application or since its offset is gone, nobody knows what lies before.
    handler.add(chunk(handler, 90))
    handler.take(1)
    assert progress.done() == {FIRST: 90}
    handler.seek(FIRST, 5)
    assert progress.done() == {FIRST: 5}
    handler.seek(FIRST, 5, leader_epoch=3)
    assert progress.done() == {FIRST: OffsetAndMetadata(5, "", 3)}


def test_epoch_of_the_last_batch_comes_with_the_data(consumer: ConsumerDialogue) -> None:
    """Out of its header; the checksum does not cover it, since leaders write it."""
    records = bytearray(batch(50, 2))
    records[12:16] = (7).to_bytes(4, "big")
    consumer.serve({0: bytes(records)})

    assert [each.leader_epoch for each in consumer.chunks()] == [7]


def test_beginning_of_one_partition_does_not_wait_for_the_leader_of_another() -> None:
    """Law: a partition that is ready is asked for, whatever other partitions and brokers do with theirs."""
    consumer = ConsumerDialogue()
    consumer.leaders = {SECOND: 9}
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence()) for each in (FIRST, SECOND)}))
    consumer.advance(500)

    assert consumer.fetching() == {FIRST: 0}


def test_leader_epoch_that_the_broker_does_not_know_is_looked_up_again() -> None:
    """Kafka's OffsetFetcher: every error that passes asks for metadata; the topic may have been made anew."""
    consumer = ConsumerDialogue()
    consumer.by_hand |= {ListOffsetsRequest, MetadataRequest}
    consumer.take(PartitionsAssigned(starts={FIRST: Start(fence=consumer.new_fence())}))
    consumer.settle()
    consumer.answer(consumer.expect(MetadataRequest), consumer.metadata(consumer.expect(MetadataRequest)))
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])])
    consumer.answer(consumer.expect(ListOffsetsRequest), answer)
    consumer.advance(1_000)

    assert consumer.find(MetadataRequest)
