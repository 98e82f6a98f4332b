"""Dialogues with the background half of fetching: what is asked for, when, and what becomes of each answer."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.consumer.application_events import (
    Chunk,
    ChunkTaken,
    Fence,
    GiveWay,
    PartitionsAssigned,
    Paused,
    Sought,
    Start,
    Watermarks,
    WatermarksSeen,
)
from kohort.client.core.actions import Disconnect, Endpoint, Lane, Send
from kohort.client.core.requests import Failure
from kohort.errors import BrokerError, CorruptRecordError, ErrorCode, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from support.dialogues.consumer_dialogue import BROKER, ORDERS, ConsumerDialogue, batch, orders

KIB = 1024


def reading(*offsets: int, **options: object) -> ConsumerDialogue:
    """A consumer that reads partitions 0, 1, ... of orders from these offsets."""
    consumer = ConsumerDialogue(**{"group_id": None, **options})
    assign(consumer, dict(enumerate(offsets)))
    return consumer


def assign(consumer: ConsumerDialogue, offsets: dict[int, int | None]) -> None:
    starts = {orders(index)[0]: Start(fence=consumer.new_fence(), offset=offset) for index, offset in offsets.items()}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()


def partition(index: int) -> TopicPartition:
    return orders(index)[0]


def test_fetch_asks_for_all_partitions_of_a_broker() -> None:
    """One request per broker, with the leader epoch and the topic's id."""
    consumer = reading(5, 7)

    request = consumer.expect(FetchRequest)

    assert consumer.fetching() == {partition(0): 5, partition(1): 7}
    assert request.topics[0].topic_id == ORDERS
    assert {entry.current_leader_epoch for entry in request.topics[0].partitions} == {3}
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert consumer.find(FetchRequest)[0].max_version is None


def test_topic_without_an_id_is_asked_for_by_name() -> None:
    """KIP-516: from version 13 on there are only ids."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.topics["orders"] = (bytes(16), 1)
    assign(consumer, {0: 0})

    assert consumer.find(FetchRequest)[0].max_version == 12


def test_nothing_is_asked_for_behind_the_end_of_reading() -> None:
    """A partition with a stop leaves the session there; a seek back begins again, up to the same end."""
    consumer = ConsumerDialogue(group_id=None)
    first = Start(fence=consumer.new_fence(), offset=0, stop=10)
    starts = {partition(0): first, partition(1): Start(fence=consumer.new_fence(), offset=0, stop=30)}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()

    consumer.serve({0: batch(0, 12), 1: batch(0, 12)})

    assert consumer.fetching() == {partition(1): 12}
    assert {chunk.topic_id for chunk in consumer.chunks()} == {ORDERS}
    consumer.serve({1: batch(12, 18)})
    consumer.take(Sought(partition=partition(0), fence=consumer.new_fence(), offset=3))
    consumer.settle()
    assert consumer.fetching() == {partition(0): 3}


def test_next_fetch_goes_out_before_the_application_takes_anything() -> None:
    """CTR: the background is autonomous."""
    consumer = reading(0)

    consumer.serve({0: batch(0, 10)})

    assert consumer.fetching() == {partition(0): 10}
    assert [(chunk.offset, chunk.next_offset) for chunk in consumer.chunks()] == [(0, 10)]


def test_data_is_handed_on_without_a_copy() -> None:
    """The chunk is a view of the response's own buffer."""
    consumer = reading(0)
    data = bytearray(batch(0, 3))

    consumer.serve({0: data})
    data[0] = 0xAA

    assert consumer.chunks()[0].records[0] == 0xAA


def test_cut_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    """A broker cuts the answer where its limit is."""
    consumer = reading(0)
    whole, cut = batch(0, 10), batch(10, 10)

    consumer.serve({0: whole + cut[:-1]})

    assert consumer.fetching() == {partition(0): 10}
    assert bytes(consumer.chunks()[0].records) == whole


def test_answer_without_a_whole_batch_is_asked_for_again_after_a_pause() -> None:
    """Nothing is skipped, and the processor is not kept busy."""
    consumer = reading(0)

    consumer.serve({0: batch(0, 10)[:-1]})
    assert consumer.fetching() == {}
    consumer.advance(500)

    assert consumer.fetching() == {partition(0): 0}


def test_batch_that_never_comes_whole_is_said_where_it_is() -> None:
    """Its length is damaged: nothing would ever come, and nobody would know."""
    consumer = reading(7)

    for _ in range(5):
        assert consumer.fetching() == {partition(0): 7}
        assert consumer.troubles() == []
        consumer.serve({0: batch(7, 10)[:-1]})
        consumer.advance(1_500)

    (trouble,) = consumer.troubles()
    assert isinstance(trouble.error, CorruptRecordError)
    assert str(trouble.error).startswith("orders-0 cannot be read at offset 7: ")
    assert consumer.fetching() == {}


def test_partition_with_data_goes_to_the_back() -> None:
    """A broker fills its answer from the front: without turns the last partition would starve."""
    consumer = reading(0, 0, 0)

    consumer.serve({0: batch(0, 1)})

    request = consumer.expect(FetchRequest)
    assert [entry.partition for entry in request.topics[0].partitions] == [1, 2, 0]


def test_ends_of_logs_are_told_when_they_move() -> None:
    """With and without records, before these; what has not moved is not said again."""
    consumer = reading(0, 0)
    consumer.serve({0: batch(0, 10)}, watermarks={0: Watermarks(0, 10, 12), 1: Watermarks(2, 2, 2)})
    consumer.serve({0: batch(10, 2)}, watermarks={0: Watermarks(0, 12, 12), 1: Watermarks(2, 2, 2)})
    consumer.serve(watermarks={0: Watermarks(0, 12, 12), 1: Watermarks(2, 2, 2)})

    assert consumer.delivered(WatermarksSeen) == [
        WatermarksSeen(seen={partition(0): Watermarks(0, 10, 12), partition(1): Watermarks(2, 2, 2)}),
        WatermarksSeen(seen={partition(0): Watermarks(0, 12, 12)}),
    ]
    kinds = [type(item) for item in consumer.delivered(object)]
    assert kinds.index(WatermarksSeen) < kinds.index(Chunk)


def test_ends_of_logs_of_an_earlier_reading_or_an_error_are_not_told() -> None:
    """An error says nothing of them; who gets the partition back is told anew, whoever has heard it before."""
    consumer = reading(0, 0)
    consumer.serve(errors={0: ErrorCode.NOT_LEADER_OR_FOLLOWER}, watermarks={1: Watermarks(0, 5, 5)})
    assert consumer.delivered(WatermarksSeen) == [WatermarksSeen(seen={partition(1): Watermarks(0, 5, 5)})]

    consumer.advance(1_000)
    consumer.take(PartitionsAssigned(starts={partition(1): Start(fence=Fence(99), offset=0)}))
    consumer.settle()

    assert consumer.delivered(WatermarksSeen)[1:] == [WatermarksSeen(seen={partition(1): Watermarks(0, 5, 5)})]


# -- bounded ----------------------------------------------------------------------------------------------------------


def test_buffer_bounds_what_is_fetched_ahead() -> None:
    """C5: in bytes; the limit of the request is what is left, but for a quarter that is kept for who comes later."""
    consumer = reading(0, fetch_buffer_bytes=16 * KIB, fetch_max_bytes=64 * KIB)
    assert consumer.expect(FetchRequest).max_bytes == 12 * KIB
    big = batch(0, 1_200)
    assert 12 * KIB < len(big) < 16 * KIB

    consumer.serve({0: big})
    consumer.advance(5_000)
    assert consumer.find(FetchRequest) == [], "less than a quarter is free"

    consumer.take(ChunkTaken(sizes={partition(0): len(big)}))
    assert consumer.expect(FetchRequest).max_bytes == 12 * KIB


def brokers(count: int, **options: object) -> ConsumerDialogue:
    """A consumer of one partition on each of so many brokers."""
    consumer = ConsumerDialogue(group_id=None, **options)
    for index in range(count):
        consumer.brokers[1 + index] = Endpoint("127.0.0.1", 9092 + index)
        consumer.leaders[partition(index)] = 1 + index
    consumer.topics["orders"] = (ORDERS, count)
    assign(consumer, dict.fromkeys(range(count), 0))
    return consumer


def fetch_of(consumer: ConsumerDialogue, index: int) -> FetchRequest:
    """The open fetch of a partition of orders."""
    consumer.settle()
    found = [
        send.request
        for send in consumer.find(FetchRequest)
        if isinstance(send.request, FetchRequest)
        and any(entry.partition == index for topic in send.request.topics for entry in topic.partitions)
    ]
    assert len(found) == 1, f"{len(found)} open fetches of partition {index}"
    return found[0]


def test_every_broker_is_asked_at_once_with_default_options() -> None:
    """One fetch reserves what it can bring, not all of fetch.max.bytes: the second broker was never asked before."""
    consumer = brokers(3)

    for offset in range(0, 500, 10):
        assert consumer.fetching() == {partition(0): offset, partition(1): 0, partition(2): 0}
        consumer.serve_one(fetch_of(consumer, 0), {0: batch(offset, 10)})

    assert {fetch_of(consumer, index).max_bytes for index in range(3)} == {4 * KIB * KIB}


def test_brokers_have_equal_shares_of_the_buffer() -> None:
    """What all may bring together stays within the limit."""
    consumer = brokers(2, fetch_buffer_bytes=16 * KIB, fetch_max_bytes=10 * KIB)

    assert [fetch_of(consumer, index).max_bytes for index in range(2)] == [6 * KIB, 6 * KIB]


def test_broker_whose_data_nobody_takes_stands_in_nobodys_way() -> None:
    """C5: its own share is used up, not that of others."""
    consumer = brokers(2, fetch_buffer_bytes=16 * KIB)
    consumer.serve_one(fetch_of(consumer, 0), {0: batch(0, 550)})

    assert set(consumer.fetching()) == {partition(1)}
    for _ in range(3):
        small = batch(fetch_of(consumer, 1).topics[0].partitions[0].fetch_offset, 10)
        consumer.serve_one(fetch_of(consumer, 1), {1: small})
        consumer.take(ChunkTaken(sizes={partition(1): len(small)}))
    assert set(consumer.fetching()) == {partition(1)}


def test_broker_that_has_waited_longest_comes_first() -> None:
    """Where the buffer holds little more than one batch, brokers take turns."""
    consumer = brokers(3, fetch_buffer_bytes=1)
    asked: list[int] = []
    for _ in range(9):
        (chosen,) = consumer.fetching()
        asked.append(chosen.partition)
        offset = fetch_of(consumer, chosen.partition).topics[0].partitions[0].fetch_offset
        consumer.serve_one(fetch_of(consumer, chosen.partition), {chosen.partition: batch(offset, 5)})
        assert consumer.fetching() == {}, "the one batch fills the buffer"
        consumer.take(ChunkTaken(sizes={chosen: consumer.chunks()[-1].size_bytes}))

    assert sorted(asked) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(set(asked[:3])) == 3


def test_paused_data_gives_way_to_who_can_be_read() -> None:
    """What was fetched of a paused partition filled the buffer, and nothing else was read any more."""
    consumer = reading(0, fetch_buffer_bytes=16 * KIB, fetch_max_bytes=64 * KIB)
    big = batch(0, 1_200)
    consumer.serve({0: big})
    consumer.take(Paused(partitions=(partition(0),), is_paused=True))
    assert consumer.delivered(GiveWay) == [], "there is room, and nobody else"

    consumer.take(
        PartitionsAssigned(
            starts={
                partition(0): Start(fence=Fence(1), offset=0, is_paused=True),
                partition(1): Start(fence=Fence(9), offset=0),
            }
        )
    )
    consumer.settle()
    assert consumer.delivered(GiveWay) == [GiveWay(partition=partition(0), fence=Fence(1))]
    assert consumer.fetching() == {}
    consumer.advance(5_000)
    assert len(consumer.delivered(GiveWay)) == 1, "asked for once"

    consumer.take(Sought(partition=partition(0), fence=Fence(10), offset=0))
    consumer.take(ChunkTaken(sizes={partition(0): len(big)}))
    assert consumer.fetching() == {partition(1): 0}
    consumer.take(Paused(partitions=(partition(0),), is_paused=False))
    assert consumer.fetching() == {partition(0): 0, partition(1): 0}


def test_paused_data_is_kept_while_there_is_room() -> None:
    """C5: reading it again would cost the broker twice."""
    consumer = reading(0, 0)
    consumer.take(Paused(partitions=(partition(0),), is_paused=True))

    consumer.serve({0: batch(0, 1_000)})
    consumer.advance(5_000)

    assert consumer.fetching() == {partition(1): 0}
    assert consumer.delivered(GiveWay) == []


def test_partition_that_becomes_ready_does_not_wait_for_its_neighbours() -> None:
    """The others' long fetch is under way for fetch.max.wait.ms: one that does not wait goes beside it."""
    consumer = reading(0, 0)
    long = consumer.expect(FetchRequest)

    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))

    beside = next(send for send in consumer.find(FetchRequest) if send.request is not long)
    assert beside.lane is Lane.FETCH_AT_ONCE
    assert (beside.request.max_wait_ms, fetch_of(consumer, 1)) == (0, long)  # type: ignore[attr-defined]
    consumer.serve_one(beside.request, {0: batch(50, 5)})  # type: ignore[arg-type]
    assert [(chunk.partition, chunk.offset) for chunk in consumer.chunks()] == [(partition(0), 50)]


def test_fetch_that_does_not_wait_is_not_repeated_without_data() -> None:
    """A partition at its end waits with the others: from the next long fetch on."""
    consumer = reading(0, 0)
    long = consumer.expect(FetchRequest)
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))
    beside = next(send.request for send in consumer.find(FetchRequest) if send.request is not long)
    assert isinstance(beside, FetchRequest)

    consumer.serve_one(beside, {})
    assert [send.request for send in consumer.find(FetchRequest)] == [long]
    consumer.serve_one(long, {})

    assert consumer.fetching() == {partition(0): 50, partition(1): 0}
    assert consumer.expect(FetchRequest).max_wait_ms > 0


def test_share_of_a_broker_that_is_read_no_more_falls_to_the_others() -> None:
    """Brokers share by who is read from now."""
    consumer = brokers(2, fetch_buffer_bytes=16 * KIB, fetch_max_bytes=64 * KIB)

    consumer.take(PartitionsAssigned(starts={partition(1): Start(fence=Fence(2), offset=0)}))
    consumer.serve()

    assert consumer.expect(FetchRequest).max_bytes == 12 * KIB


def test_buffer_of_nothing_fetches_nothing() -> None:
    """A member that only holds partitions."""
    consumer = reading(0, fetch_buffer_bytes=0)

    consumer.advance(10_000)

    assert consumer.find(FetchRequest) == []


def test_failed_fetch_gives_its_room_back() -> None:
    """Otherwise a few broken connections would stop the consumer."""
    consumer = reading(0, fetch_buffer_bytes=16 * KIB)
    for _ in range(5):
        consumer.fail(consumer.expect(FetchRequest), Failure.DISCONNECTED)
        consumer.advance(2_000)

    assert consumer.expect(FetchRequest).max_bytes == 12 * KIB


# -- readings that change ---------------------------------------------------------------------------------------------


def test_data_for_an_earlier_seek_is_dropped() -> None:
    """Positions never skip: what was on its way belongs to the reading before."""
    consumer = reading(0, 0)
    stale = consumer.expect(FetchRequest)
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))

    consumer.serve_one(stale, {0: batch(0, 10), 1: batch(0, 10)})

    assert [chunk.partition for chunk in consumer.chunks()] == [partition(1)]
    assert consumer.fetching() == {partition(0): 50, partition(1): 10}


def test_fetch_that_serves_nobody_is_broken_off() -> None:
    """The broker would hold it for fetch.max.wait.ms, and the next one behind it."""
    consumer = reading(0)

    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))

    assert Disconnect(to=BROKER, lane=consumer.find(FetchRequest)[0].lane) in consumer.actions
    assert consumer.fetching() == {partition(0): 50}


def test_paused_partition_is_not_fetched() -> None:
    """Its reading stays: what is under way is still good."""
    consumer = reading(0, 0)
    consumer.take(Paused(partitions=(partition(0),), is_paused=True))
    consumer.serve({0: batch(0, 10)})
    assert consumer.fetching() == {partition(1): 0}
    assert [chunk.partition for chunk in consumer.chunks()] == [partition(0)]

    consumer.take(Paused(partitions=(partition(0),), is_paused=False))
    consumer.serve()

    assert consumer.fetching() == {partition(0): 10, partition(1): 0}


def test_paused_partition_needs_no_first_offset() -> None:
    """A member that only holds a partition must not fail for want of one."""
    consumer = ConsumerDialogue(auto_offset_reset="none")
    starts = {partition(0): Start(fence=Fence(1), is_paused=True)}

    consumer.take(PartitionsAssigned(starts=starts))
    consumer.advance(10_000)

    assert consumer.troubles() == []


def test_assigning_again_keeps_what_is_read_already() -> None:
    """The same fence is the same reading."""
    consumer = reading(0)
    consumer.serve({0: batch(0, 10)})

    consumer.take(
        PartitionsAssigned(
            starts={partition(0): Start(fence=Fence(1), offset=3), partition(1): Start(fence=Fence(9), offset=4)}
        )
    )
    consumer.serve()

    assert consumer.fetching() == {partition(0): 10, partition(1): 4}


def test_assigning_under_another_fence_reads_from_where_that_says() -> None:
    """The partition was somebody else's meanwhile: what was read before does not count."""
    consumer = reading(0)
    consumer.serve({0: batch(0, 10)})

    consumer.take(PartitionsAssigned(starts={partition(0): Start(fence=Fence(9), offset=3)}))
    consumer.serve()

    assert consumer.fetching() == {partition(0): 3}


# -- first offsets ----------------------------------------------------------------------------------------------------


def test_committed_offset_comes_first() -> None:
    """KIP-848: asked of the coordinator, in the name of the member."""
    consumer = ConsumerDialogue()
    consumer.committed[partition(0)] = 42
    consumer.stable(0)

    assert consumer.fetching() == {partition(0): 42}


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 3), ("latest", 9)])
def test_without_a_committed_offset_the_option_decides(reset: str, offset: int) -> None:
    """`auto.offset.reset`."""
    consumer = ConsumerDialogue(auto_offset_reset=reset)
    consumer.log_starts[partition(0)], consumer.log_ends[partition(0)] = 3, 9

    consumer.stable(0)

    assert consumer.fetching() == {partition(0): offset}


def test_without_a_committed_offset_none_is_an_error() -> None:
    """`auto.offset.reset` none: the application decides."""
    consumer = ConsumerDialogue(auto_offset_reset="none")
    consumer.stable(0)

    trouble = consumer.troubles()[-1]
    assert isinstance(trouble.error, BrokerError)
    assert trouble.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "auto.offset.reset is none" in str(trouble.error)
    assert consumer.fetching() == {}


def test_stale_epoch_on_offset_fetch_is_not_the_absence_of_an_offset() -> None:
    """platformatic/kafka #267 jumped to the end and lost records; KAFKA-20765 span."""
    consumer = ConsumerDialogue(auto_offset_reset="latest")
    consumer.committed[partition(0)] = 42
    consumer.by_hand.add(OffsetFetchRequest)
    consumer.subscribe()
    consumer.reply(epoch=1, assigned=[0])
    consumer.acknowledge(consumer.questions[0].kind, 0)

    asked = 0
    for _ in range(40):
        if consumer.find(OffsetFetchRequest):
            asked += 1
            request = consumer.expect(OffsetFetchRequest)
            stale = consumer.committed_offsets(request, ErrorCode.STALE_MEMBER_EPOCH)
            consumer.answer(request, stale)
        consumer.advance(25)
    assert 2 <= asked <= 10, "asked again, but after pauses"
    assert consumer.fetching() == {}

    consumer.reply(epoch=2)
    consumer.advance(1_500)
    request = consumer.expect(OffsetFetchRequest)
    assert request.groups[0].member_epoch == 2
    consumer.answer(request, consumer.committed_offsets(request))

    assert consumer.fetching() == {partition(0): 42}


def test_look_up_of_a_first_offset_survives_a_leader_that_is_gone() -> None:
    """Asked again of whoever leads then."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.by_hand.add(ListOffsetsRequest)
    assign(consumer, {0: None})
    consumer.fail(consumer.expect(ListOffsetsRequest), Failure.DISCONNECTED)
    consumer.by_hand.clear()

    consumer.advance(1_000)

    assert consumer.fetching() == {partition(0): 0}


def test_answer_about_a_reading_that_was_replaced_is_nobodys_trouble() -> None:
    """The application has named an offset meanwhile; that nobody may ask for others does not concern it."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.by_hand.add(ListOffsetsRequest)
    assign(consumer, {0: None})
    asked = consumer.expect(ListOffsetsRequest)
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))

    answer = consumer.offsets(asked)
    answer.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    consumer.answer(asked, answer)

    assert consumer.troubles() == []
    assert consumer.fetching() == {partition(0): 50}


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_moved_leader_is_looked_up(code: ErrorCode) -> None:
    """The picture of the cluster is out of date; the position is not."""
    consumer = reading(5, 0)
    before = sum(isinstance(getattr(each, "request", None), MetadataRequest) for each in consumer.actions)

    consumer.serve({1: batch(0, 4)}, errors={0: code})
    after = sum(isinstance(getattr(each, "request", None), MetadataRequest) for each in consumer.actions)
    assert after > before
    consumer.advance(500)
    consumer.serve()

    assert consumer.fetching() == {partition(0): 5, partition(1): 4}
    assert consumer.troubles() == []


def test_broker_that_lags_behind_is_asked_again() -> None:
    """UNKNOWN_LEADER_EPOCH: our picture is the newer one."""
    consumer = reading(5)

    consumer.serve(errors={0: ErrorCode.UNKNOWN_LEADER_EPOCH})
    assert consumer.fetching() == {}
    consumer.advance(500)

    assert consumer.fetching() == {partition(0): 5}


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 3), ("latest", 9)])
def test_offset_out_of_range_is_reset(reset: str, offset: int) -> None:
    """`auto.offset.reset`, not the committed offset, which is out of range as well."""
    consumer = ConsumerDialogue(auto_offset_reset=reset)
    consumer.committed[partition(0)] = 1
    consumer.log_starts[partition(0)], consumer.log_ends[partition(0)] = 3, 9
    consumer.stable(0)

    consumer.serve(errors={0: ErrorCode.OFFSET_OUT_OF_RANGE})
    consumer.advance(500)

    assert consumer.fetching() == {partition(0): offset}
    assert consumer.chunks()[-1].offset == offset, "the application's side is told"


def test_offset_out_of_range_is_an_error_if_the_application_wants_to_know() -> None:
    """Once; a seek helps."""
    consumer = reading(5, auto_offset_reset="none")
    consumer.serve(errors={0: ErrorCode.OFFSET_OUT_OF_RANGE})
    consumer.advance(5_000)

    assert len(consumer.troubles()) == 1
    assert "offset 5 of orders-0 does not exist" in str(consumer.troubles()[0].error)
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=0))
    assert consumer.fetching() == {partition(0): 0}


def test_partition_that_may_not_be_read_is_an_error() -> None:
    """Others go on."""
    consumer = reading(0, 0)

    consumer.serve(errors={0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})

    assert [trouble.partition for trouble in consumer.troubles()] == [partition(0)]
    assert consumer.fetching() == {partition(1): 0}


class TestRefusal:
    """Of what is not in our hands: told once, asked again with pauses that grow, and a line when it has passed."""

    BACK = "orders-0 can be read again"

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ],
    )
    def test_partition_is_read_on_when_a_refusal_has_passed(self, code: ErrorCode) -> None:
        """As in Java, kafka-python and aiokafka."""
        consumer = reading(5, 0)
        consumer.serve({0: batch(5, 5)})
        asked = 0
        began_ms = consumer.now_ms
        while consumer.now_ms < began_ms + 6_000:
            if partition(0) in consumer.fetching():
                asked += 1
                consumer.serve(errors={0: code})
            consumer.advance(50)

        (trouble,) = consumer.troubles()
        assert isinstance(trouble.error, BrokerError)
        assert trouble.error.code is code
        assert 6 <= asked <= 14, "6 s of pauses between 0.1 and 1 s"
        assert consumer.warnings() == []
        consumer.advance(1_200)
        consumer.serve({0: batch(10, 5)})
        consumer.advance(1_200)
        assert consumer.fetching()[partition(0)] == 15
        assert consumer.chunks()[-1].offset == 10
        assert consumer.warnings() == [self.BACK]

    def test_next_refusal_is_told_anew(self) -> None:
        consumer = reading(0)
        for _ in range(2):
            consumer.serve(errors={0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
            consumer.advance(1_200)
            consumer.serve()

        assert (len(consumer.troubles()), consumer.warnings()) == (2, [self.BACK] * 2)

    def test_partitions_that_come_back_together_are_one_line(self) -> None:
        consumer = reading(0, 0, 0)
        consumer.serve(errors=dict.fromkeys(range(3), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        consumer.advance(1_200)
        consumer.serve()

        assert consumer.warnings() == ["orders-0 and 2 more can be read again"]

    @pytest.mark.parametrize("kind", [ListOffsetsRequest, OffsetFetchRequest])
    def test_first_offset_that_may_not_be_asked_for_is_asked_for_again(self, kind: type[Any]) -> None:
        consumer = ConsumerDialogue()
        consumer.by_hand.add(kind)
        assign(consumer, {0: None})
        asked = 0
        began_ms = consumer.now_ms
        while consumer.now_ms < began_ms + 6_000:
            if consumer.find(kind):
                asked += 1
                request: Any = consumer.expect(kind)
                answer: Any = consumer.offsets(request) if kind is ListOffsetsRequest else None
                if answer is None:
                    answer = consumer.committed_offsets(request)
                    answer.groups[0].error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                else:
                    answer.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                consumer.answer(request, answer)
            consumer.advance(50)

        assert [trouble.partition for trouble in consumer.troubles()] == [partition(0)]
        assert 6 <= asked <= 14, "6 s of pauses between 0.1 and 1 s"
        consumer.by_hand.clear()
        consumer.settle()
        consumer.advance(2_500)
        consumer.serve({0: batch(0, 5)})
        assert (consumer.chunks()[-1].offset, consumer.warnings()[-1]) == (0, self.BACK)

    @pytest.mark.parametrize("offset", [None, 5])
    def test_topic_that_is_hidden_for_a_while_is_looked_up_again(self, offset: int | None) -> None:
        """DESCRIBE was taken away: metadata does not even say who leads."""
        consumer = ConsumerDialogue(group_id=None, metadata_max_age_ms=1_000)
        assign(consumer, {0: 5})
        consumer.hidden = {"orders"}
        consumer.advance(1_500)
        assign(consumer, {0: offset})
        before = sum(isinstance(each, Send) and isinstance(each.request, MetadataRequest) for each in consumer.actions)
        consumer.advance(6_000)
        looks = sum(isinstance(each, Send) and isinstance(each.request, MetadataRequest) for each in consumer.actions)

        (error,) = {str(trouble.error) for trouble in consumer.troubles()}
        assert error.startswith("TOPIC_AUTHORIZATION_FAILED while looking up topic orders")
        assert looks - before <= 20, "6 s of pauses that grow"
        consumer.hidden.clear()
        consumer.advance(2_500)
        consumer.serve()
        assert partition(0) in consumer.fetching()
        assert consumer.warnings() == [self.BACK]


def test_topic_that_does_not_exist_is_an_error_for_who_assigns_it() -> None:
    """After a moment: a topic that was just created may not have reached every broker."""
    consumer = ConsumerDialogue(group_id=None)
    starts = {TopicPartition("nosuch", 0): Start(fence=Fence(1))}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.advance(900)
    assert consumer.troubles() == []

    consumer.advance(1_500)

    assert [type(trouble.error) for trouble in consumer.troubles()] == [UnknownTopicError]


def test_partition_that_a_group_gives_is_read_however_late_metadata_shows_it() -> None:
    """Brokers hear of new partitions one after the other, and the coordinator may be the first."""
    consumer = ConsumerDialogue()
    consumer.stable(4)
    consumer.advance(5_000)
    assert consumer.fetching() == {}

    consumer.topics["orders"] = (ORDERS, 5)
    consumer.advance(2_000)

    assert consumer.troubles() == [] and consumer.fetching() == {partition(4): 0}


def test_partition_that_does_not_exist_is_no_error_of_others() -> None:
    """Whose leader takes longer to answer."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.by_hand.add(ListOffsetsRequest)
    assign(consumer, {0: None, 9: None})
    consumer.advance(2_500)
    assert [(trouble.partition, type(trouble.error)) for trouble in consumer.troubles()] == [
        (partition(9), UnknownTopicError)
    ]

    request = consumer.expect(ListOffsetsRequest)
    consumer.answer(request, consumer.offsets(request))

    assert consumer.fetching() == {partition(0): 0}


def test_partition_whose_first_offset_may_not_be_asked_for_is_no_error_of_others() -> None:
    """In one answer of one broker."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.by_hand.add(ListOffsetsRequest)
    assign(consumer, {0: None, 1: None})
    request = consumer.expect(ListOffsetsRequest)
    response = consumer.offsets(request)
    response.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    consumer.answer(request, response)

    assert [trouble.partition for trouble in consumer.troubles()] == [partition(0)]
    assert consumer.fetching() == {partition(1): 0}


def test_broker_that_cannot_be_reached_is_left_alone_for_a_while() -> None:
    """Pauses that grow, not a storm."""
    consumer = reading(0)
    fetches = 0
    for _ in range(200):
        if consumer.find(FetchRequest):
            fetches += 1
            consumer.fail(consumer.expect(FetchRequest), Failure.UNREACHABLE)
        consumer.advance(50)

    assert 8 <= fetches <= 25, "10 s of pauses between 0.1 and 1 s"
