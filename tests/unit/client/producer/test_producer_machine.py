"""Dialogues with the producer's machine: what it asks of brokers, and how each answer ends the records."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.core.actions import Action, Complete, Fail, Stop
from kohort.client.core.requests import Failure
from kohort.client.producer.bulk_send import Bulk, ListColumns, ManyFuture
from kohort.client.producer.core.delivery_errors import LostRecords
from kohort.client.producer.core.producer_events import (
    ConnectAsked,
    FlushAsked,
    PartitionsAsked,
    ProducerCloseAsked,
    RecordsSubmitted,
)
from kohort.client.producer.record_future import RecordFuture
from kohort.client.records import RecordMetadata
from kohort.errors import (
    AdvertisedAddressError,
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokersUnreachableError,
    ConfigError,
    ErrorCode,
    KohortTimeoutError,
    UnknownTopicError,
)
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.messages.metadata import (
    MetadataRequest,
)
from kohort.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from support.dialogues.producer_dialogue import BROKER, Dialogue, sequence_of, values_of


def a_record() -> RecordFuture:
    return RecordFuture("orders", None, b"1", 5, 25)


def test_first_record_waits_for_metadata_and_identity() -> None:
    """Nothing can be sent before a leader and a producer id are known."""
    dialogue = Dialogue()
    future = dialogue.submit(b"one")
    assert not dialogue.unanswered(ProduceRequest)
    dialogue.answer_metadata()
    dialogue.answer_identity()
    produce = dialogue.next(ProduceRequest)
    assert (produce.to, values_of(produce), sequence_of(produce)) == (BROKER, [b"one"], 0)
    dialogue.answer_produce(produce, offset=41)
    assert future.result(0) == RecordMetadata("orders", 0, 41, 5)
    assert dialogue.released == len(b"one") + 24


def test_linger_gathers_records_into_one_batch() -> None:
    """`linger.ms`: an open batch waits; the application does not wake the machine for each record."""
    dialogue = Dialogue(linger_ms=10)
    dialogue.submit(b"a")
    dialogue.answer_metadata()
    dialogue.advance(10)
    dialogue.answer_identity()
    dialogue.answer_produce(dialogue.next(ProduceRequest))
    for value in (b"b", b"c", b"d"):
        dialogue.submit(value)
    assert not dialogue.unanswered(ProduceRequest)
    dialogue.advance(10)
    assert values_of(dialogue.next(ProduceRequest)) == [b"b", b"c", b"d"]


def test_full_batch_does_not_linger() -> None:
    """`batch.size` reached: sent at once."""
    dialogue = Dialogue(linger_ms=60_000, batch_bytes=400)
    futures = [dialogue.submit(bytes(100)) for _ in range(2)]
    dialogue.answer_metadata()
    dialogue.answer_identity()
    assert not dialogue.unanswered(ProduceRequest)
    futures += [dialogue.submit(bytes(100)) for _ in range(4)]
    assert len(values_of(dialogue.next(ProduceRequest))) == 6
    assert not any(future.done() for future in futures)


def test_batch_whose_leader_is_busy_goes_on_filling() -> None:
    """What cannot leave anyway is sent in one large piece, up to `max.request.size`."""
    dialogue = Dialogue(batch_bytes=400).ready()
    for _ in range(5):
        dialogue.submit(bytes(100))
    assert dialogue.unanswered(ProduceRequest) == 5
    waiting = [dialogue.submit(bytes(100)) for _ in range(50)]
    assert dialogue.unanswered(ProduceRequest) == 5
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=1)
    large = dialogue.sent[-1]
    assert len(values_of(large)) == 50
    dialogue.answer_produce(large, offset=6)
    assert [future.result(0).offset for future in waiting] == list(range(6, 56))


def test_batch_that_is_too_large_for_the_broker_is_cut() -> None:
    """Its pieces share its sequence numbers; what was sent behind it follows them. KIP-126."""
    dialogue = Dialogue().ready()
    dialogue.leaderless = True
    dialogue.submit(b"0")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    dialogue.answer_pending_metadata()
    futures = [dialogue.submit(b"%d" % number) for number in range(1, 5)]
    dialogue.take(FlushAsked(ticket="flush"))
    dialogue.leaderless = False
    dialogue.advance(500)
    dialogue.answer_pending_metadata()
    dialogue.advance(500)
    first = dialogue.next(ProduceRequest)
    assert sequence_of(first) == 1
    dialogue.answer_produce(first, offset=1)
    whole = dialogue.next(ProduceRequest)
    assert (values_of(whole), sequence_of(whole)) == ([b"1", b"2", b"3", b"4"], 2)

    dialogue.answer_produce(whole, error=ErrorCode.MESSAGE_TOO_LARGE)
    halves = [dialogue.next(ProduceRequest), dialogue.next(ProduceRequest)]
    assert [(values_of(half), sequence_of(half)) for half in halves] == [([b"1", b"2"], 2), ([b"3", b"4"], 4)]
    assert Complete(ticket="flush", value=0) not in dialogue.actions
    for half, offset in zip(halves, (2, 4), strict=True):
        dialogue.answer_produce(half, offset=offset)
    assert [future.result(0).offset for future in futures] == [2, 3, 4, 5]
    assert Complete(ticket="flush", value=0) in dialogue.actions
    assert dialogue.released == len(b"first01234") + 6 * 24


def test_retry_keeps_order_and_sequence() -> None:
    """KIP-98: a batch that is sent again carries its old sequence number; later ones that overtook it follow it."""
    dialogue = Dialogue().ready()
    first, second = dialogue.submit(b"1"), dialogue.submit(b"2")
    one, two = dialogue.next(ProduceRequest), dialogue.next(ProduceRequest)
    assert (sequence_of(one), sequence_of(two)) == (1, 2)
    dialogue.fail(one, Failure.DISCONNECTED)
    dialogue.answer_produce(two, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not first.done() and not second.done()
    dialogue.answer_metadata(partitions=3)
    dialogue.advance(400)
    again = dialogue.next(ProduceRequest)
    dialogue.answer_produce(again, offset=10)
    then = dialogue.next(ProduceRequest)
    assert [(values_of(send), sequence_of(send)) for send in (again, then)] == [([b"1"], 1), ([b"2"], 2)]
    dialogue.answer_produce(then, offset=11)
    assert (first.result(0).offset, second.result(0).offset) == (10, 11)


def test_duplicate_is_a_success() -> None:
    """The first attempt had arrived, only its answer was lost."""
    dialogue = Dialogue().ready()
    future = dialogue.submit(b"1")
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=-1, error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert future.result(0).offset == -1


def test_refused_batch_fails_its_records_and_numbering_begins_anew() -> None:
    """KIP-360: a sequence number that was used up in vain would block the partition; a new identity does not."""
    dialogue = Dialogue().ready()
    refused = dialogue.submit(b"1")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE .* bytes is above max\.message\.bytes of the topic"):
        refused.result(0)
    later = dialogue.submit(b"2")
    assert not dialogue.unanswered(ProduceRequest)
    dialogue.answer_identity(producer_id=8)
    produce = dialogue.next(ProduceRequest)
    assert sequence_of(produce) == 0
    dialogue.answer_produce(produce, offset=5)
    assert later.result(0).offset == 5


def test_batches_behind_a_refused_one_are_not_refused_with_it() -> None:
    """The gap that a refusal leaves is not theirs: they are sent again under the new identity."""
    dialogue = Dialogue().ready()
    refused, later = dialogue.submit(b"1"), dialogue.submit(b"2")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.MESSAGE_TOO_LARGE)
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert refused.done() and not later.done()
    dialogue.answer_identity(producer_id=8)
    dialogue.advance(400)
    produce = dialogue.next(ProduceRequest)
    assert (values_of(produce), sequence_of(produce)) == ([b"2"], 0)
    dialogue.answer_produce(produce, offset=5)
    assert later.result(0).offset == 5


def test_batch_that_may_be_stored_is_settled_before_numbering_begins_anew() -> None:
    """KIP-98: under a new identity the broker would not know it again, and store it twice."""
    dialogue = Dialogue()
    refused, unsure = dialogue.submit(b"1"), dialogue.submit(b"2", partition=1)
    dialogue.answer_metadata(partitions=2)
    dialogue.answer_identity()
    both = dialogue.next(ProduceRequest)
    dialogue.fail(both, Failure.DISCONNECTED)
    dialogue.answer_pending_metadata()
    dialogue.advance(400)
    again = dialogue.next(ProduceRequest)
    codes = {0: ErrorCode.MESSAGE_TOO_LARGE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    rows = [PartitionProduceResponse(index=index, error_code=code, base_offset=-1) for index, code in codes.items()]
    dialogue.answer(again, ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=rows)]))
    assert refused.done() and not unsure.done()
    assert not dialogue.unanswered(InitProducerIdRequest), "the first attempt of the second batch had no answer"

    dialogue.answer_pending_metadata()
    dialogue.advance(400)
    last = dialogue.next(ProduceRequest)
    assert (values_of(last), sequence_of(last)) == ([b"2"], 0)
    rows = [
        PartitionProduceResponse(index=1, error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=5),
    ]
    dialogue.answer(last, ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=rows)]))
    assert unsure.result(0).offset == 5
    dialogue.submit(b"3")
    dialogue.answer_identity(producer_id=8)
    assert sequence_of(dialogue.next(ProduceRequest)) == 0


def test_first_batch_of_a_partition_goes_alone() -> None:
    """A broker that has seen nothing of a producer would take its second batch without the first."""
    dialogue = Dialogue(batch_bytes=100)
    first, second = dialogue.submit(b"1"), dialogue.submit(b"2", partition=1)
    dialogue.answer_metadata(partitions=3)
    dialogue.answer_identity()
    one = dialogue.next(ProduceRequest)
    third = dialogue.submit(b"3")
    assert not dialogue.unanswered(ProduceRequest), "the third waits for the first"
    dialogue.answer_produce(one, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    dialogue.answer_metadata(partitions=3)
    dialogue.advance(400)
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=0)
    assert first.done() and second.done() and not third.done()
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=1)
    assert third.result(0).offset == 1


def test_leader_that_moved_is_looked_up_again() -> None:
    """NOT_LEADER_OR_FOLLOWER is nobody's error."""
    dialogue = Dialogue().ready()
    future = dialogue.submit(b"1")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    dialogue.answer_metadata(partitions=3)
    dialogue.advance(300)
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=3)
    assert future.result(0).offset == 3


def test_nothing_new_is_sent_while_the_broker_may_have_what_was_not_answered() -> None:
    """It knows only its last five batches again: an older one would be stored twice, or refused for good. KIP-98."""
    dialogue = Dialogue().ready()
    for number in range(5):
        dialogue.submit(b"%d" % number)
    dialogue.submit(b"new")
    for _ in range(5):
        dialogue.fail(dialogue.next(ProduceRequest), Failure.DISCONNECTED)
    order: list[bytes | None] = []
    for _ in range(6):
        dialogue.advance(500)
        dialogue.answer_pending_metadata()
        again = [send for send in dialogue.sent if isinstance(send.request, ProduceRequest)]
        # Pauses differ: whichever is answered first, the new one waits for all.
        dialogue.sent.remove(again[-1])
        order += values_of(again[-1])
        dialogue.answer_produce(again[-1], offset=1)
    assert sorted(order[:5]) == [b"0", b"1", b"2", b"3", b"4"]
    assert order[5] == b"new"


def test_nothing_in_flight_beyond_the_limit() -> None:
    """`max.in.flight.requests.per.connection`: the sixth waits."""
    dialogue = Dialogue().ready()
    for number in range(8):
        dialogue.submit(b"%d" % number)
    assert dialogue.unanswered(ProduceRequest) == 5
    dialogue.answer_produce(dialogue.next(ProduceRequest))
    assert dialogue.unanswered(ProduceRequest) == 5


def test_flush_waits_for_every_record_before_it() -> None:
    """Good or bad ends count alike; linger does not hold a flush up."""
    dialogue = Dialogue(linger_ms=60_000)
    dialogue.submit(b"1")
    dialogue.take(FlushAsked(ticket="flush"))
    assert Complete(ticket="flush", value=0) not in dialogue.actions
    dialogue.answer_metadata()
    dialogue.answer_identity()
    dialogue.answer_produce(dialogue.next(ProduceRequest))
    assert Complete(ticket="flush", value=0) in dialogue.actions


def test_record_not_sent_in_time_fails() -> None:
    """`delivery.timeout.ms` counts from the send."""
    dialogue = Dialogue().ready()
    future = dialogue.submit(b"1")
    for _ in range(200):
        if future.done():
            break
        if dialogue.unanswered(ProduceRequest):
            dialogue.fail(dialogue.next(ProduceRequest), Failure.TIMED_OUT)
        if dialogue.unanswered(MetadataRequest):
            dialogue.answer_metadata(partitions=3)
        dialogue.advance(1_000)
    with pytest.raises(KohortTimeoutError):
        future.result(0)


def test_refusal_that_somebody_has_to_mend_is_said_once_until_it_is_over() -> None:
    """A disk is full for every partition, and for every attempt; the next time it is full is another one."""
    dialogue = Dialogue().ready()
    for _ in range(2):
        for partition in (0, 1):
            dialogue.submit(b"1", partition=partition)
        for _ in range(6):
            dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.KAFKA_STORAGE_ERROR)
            dialogue.answer_pending_metadata()
            dialogue.advance(700)
        while dialogue.unanswered(ProduceRequest):
            dialogue.answer_produce(dialogue.next(ProduceRequest), offset=1)

    said = "producing to orders-0: KAFKA_STORAGE_ERROR, retrying for 120 s"
    assert dialogue.warnings() == [said, "producing to orders-0: works again"] * 2


def test_what_passes_by_itself_is_not_worth_a_line() -> None:
    """A leader that moves."""
    dialogue = Dialogue().ready()
    dialogue.submit(b"1")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    dialogue.answer_metadata(partitions=3)
    dialogue.advance(200)
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=1)

    assert dialogue.warnings() == []


def test_refused_producer_id_is_said_and_named_in_the_end() -> None:
    """The broker writes down which ids it has given out; InitProducerId has no room for more than the code."""
    dialogue = Dialogue()
    stored = dialogue.submit(b"1")
    dialogue.answer_metadata()
    for _ in range(3):
        refusal = InitProducerIdResponse(error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))
        dialogue.answer(dialogue.next(InitProducerIdRequest), refusal)
        dialogue.advance(1_000)
    dialogue.advance(120_000)

    assert dialogue.warnings()[:-1] == ["asking for a producer id: KAFKA_STORAGE_ERROR, retrying for 120 s"]
    with pytest.raises(KohortTimeoutError, match="KAFKA_STORAGE_ERROR while asking for a producer id"):
        stored.result(0)


def test_record_that_was_refused_until_its_time_was_over_says_why() -> None:
    """And so do those that waited behind it."""
    dialogue = Dialogue(batch_bytes=100).ready()
    first, second = dialogue.submit(bytes(90)), dialogue.submit(bytes(90))
    while dialogue.unanswered(ProduceRequest):
        dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    dialogue.leaderless = True
    dialogue.answer_pending_metadata()
    dialogue.advance(121_000)

    for future in (first, second):
        with pytest.raises(KohortTimeoutError, match="NOT_LEADER_OR_FOLLOWER while producing to orders-0"):
            future.result(0)


def test_identity_is_asked_of_another_broker_where_one_is_dead() -> None:
    """The first of two addresses: records waited for it until their time was over."""
    dialogue = Dialogue(bootstrap="10.0.0.1:9092,127.0.0.1:9092")
    dialogue.submit(b"1")
    dialogue.fail(dialogue.next(MetadataRequest), Failure.UNREACHABLE)
    dialogue.advance(1_000)
    dialogue.answer_metadata()

    assert dialogue.next(InitProducerIdRequest).to == BROKER


def test_missing_topic_is_named() -> None:
    """A topic that does not appear although the broker was asked to create it."""
    dialogue = Dialogue()
    future = dialogue.submit(b"1", topic="ordres")
    for _ in range(20):
        if dialogue.unanswered(MetadataRequest):
            dialogue.answer_metadata(topic="ordres", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        dialogue.advance(250)
    with pytest.raises(UnknownTopicError, match="ordres"):
        future.result(0)


def test_topic_that_was_missing_is_said_to_be_created() -> None:
    """A misspelt name must not look like one that was meant; so the first look at it creates nothing."""
    dialogue = Dialogue()
    stored = dialogue.submit(b"1", topic="ordres")
    allowed = []
    for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE):
        request = next(send.request for send in dialogue.sent if isinstance(send.request, MetadataRequest))
        allowed.append(request.allow_auto_topic_creation)
        dialogue.answer_metadata(topic="ordres", error=error, partitions=3)
        dialogue.advance(500)
    assert allowed == [False, True, True]
    dialogue.answer_identity()
    assert dialogue.unanswered(ProduceRequest) == 1 and not stored.done()
    assert dialogue.warnings() == ["created topic ordres (3 partitions)"]

    dialogue.submit(b"2", topic="orders")
    request = next(send.request for send in dialogue.sent if isinstance(send.request, MetadataRequest))
    assert not request.allow_auto_topic_creation
    dialogue.answer_metadata()
    assert len(dialogue.warnings()) == 1


def test_topic_that_the_broker_cannot_make_says_why() -> None:
    """Not that it does not exist, which the person knows."""
    dialogue = Dialogue()
    stored = dialogue.submit(b"1")
    dialogue.answer_metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for _ in range(20):
        if dialogue.unanswered(MetadataRequest):
            dialogue.answer_metadata(error=ErrorCode.KAFKA_STORAGE_ERROR)
        dialogue.advance(200)

    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR while looking up topic orders"):
        stored.result(0)
    assert dialogue.warnings()[:-1] == ["looking up topic orders: KAFKA_STORAGE_ERROR, retrying for 120 s"]


def test_topic_that_was_refused_is_looked_up_again() -> None:
    """An administrator gives rights while the application goes on."""
    dialogue = Dialogue()
    refused = dialogue.submit(b"1").exception
    dialogue.answer_metadata(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = refused(0)
    assert isinstance(error, AuthorizationError)
    assert (error.operation, error.resource_type, error.name) == ("write", "topic", "orders")

    dialogue.advance(1_000)
    stored = dialogue.submit(b"2")
    dialogue.answer_metadata()
    dialogue.answer_identity()
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=3)
    assert stored.result(0).offset == 3


class TestBeforeTheFirstBroker:
    """`delivery.timeout.ms` means the same before the first connection and after it."""

    def refuse(self, dialogue: Dialogue, ms: int, *, failure: Failure = Failure.UNREACHABLE) -> None:
        """Nobody listens for so long, whatever is tried."""
        until = dialogue.now_ms + ms
        while dialogue.now_ms < until:
            for send in list(dialogue.sent):
                dialogue.sent.remove(send)
                dialogue.fail(send, failure)
            deadline = dialogue.machine.next_deadline()
            dialogue.advance(min(until, until if deadline is None else deadline) - dialogue.now_ms)

    def start(self, dialogue: Dialogue) -> None:
        """A broker listens, and is asked."""
        while not dialogue.unanswered(MetadataRequest):
            dialogue.advance(100)

    def test_record_waits_for_a_broker_that_starts_later(self) -> None:
        """By then the topic is not there either: the time that it may take to be made begins with the first answer."""
        dialogue = Dialogue()
        stored = dialogue.submit(b"1")
        self.refuse(dialogue, 10_000)
        for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE):
            self.start(dialogue)
            dialogue.answer_metadata(error=error)
        dialogue.answer_identity()
        dialogue.answer_produce(dialogue.next(ProduceRequest), offset=4)

        assert stored.result(0).offset == 4

    @pytest.mark.parametrize("failure", [Failure.UNREACHABLE, Failure.NO_BROKER])
    def test_each_record_waits_for_a_time_of_its_own(self, failure: Failure) -> None:
        """A port that is mapped to a broker that has not started hangs up."""
        dialogue = Dialogue()
        first = dialogue.submit(b"1")
        self.refuse(dialogue, 100_000, failure=failure)
        second = dialogue.submit(b"2")
        self.refuse(dialogue, 20_001, failure=failure)

        with pytest.raises(KohortTimeoutError, match=r"within 120000 ms: 127\.0\.0\.1:9092: said the system"):
            first.result(0)
        assert not second.done()
        self.refuse(dialogue, 100_000, failure=failure)
        assert isinstance(second.exception(0), KohortTimeoutError)

    def test_time_before_the_first_answer_counts(self) -> None:
        dialogue = Dialogue()
        stored = dialogue.submit(b"1")
        self.refuse(dialogue, 100_000)
        self.start(dialogue)
        dialogue.leaderless = True
        dialogue.answer_metadata()
        dialogue.answer_identity()
        dialogue.advance(1_120_000 - dialogue.now_ms)

        with pytest.raises(KohortTimeoutError, match="LEADER_NOT_AVAILABLE while producing to orders-0"):
            stored.result(0)

    def test_record_that_joins_those_that_wait_for_long_has_most_of_its_time(self) -> None:
        """It would share the end of a batch that was begun two minutes earlier."""
        dialogue = Dialogue().ready()
        dialogue.leaderless = True
        sent: list[tuple[int, RecordFuture]] = []
        ended: dict[int, int] = {}
        for _ in range(250):
            sent.append((dialogue.now_ms, dialogue.submit(b"1")))
            for send in list(dialogue.sent):
                dialogue.sent.remove(send)
                dialogue.fail(send, Failure.UNREACHABLE)
            dialogue.advance(1_000)
            ended |= {ms: dialogue.now_ms - ms for ms, each in sent if each.done() and ms not in ended}

        assert len(ended) >= 100
        assert min(ended.values()) >= 120_000 * 7 // 8 - 1_000
        assert max(ended.values()) <= 121_000

    def test_log_says_how_many_wait_and_for_how_long(self) -> None:
        """After a second, then after twice that time; and that they wait no more."""
        dialogue = Dialogue()
        stored = dialogue.submit(b"1")
        heard = []
        for _ in range(5_000):
            self.refuse(dialogue, 1)
            heard += [dialogue.now_ms - 1_000_000] * (len(dialogue.warnings()) - len(heard))
        dialogue.submit(b"2")
        self.refuse(dialogue, 4_000)
        heard += [dialogue.now_ms - 1_000_000] * (len(dialogue.warnings()) - len(heard))

        assert heard == [1_000, 2_000, 4_000, 9_000]
        waits, why = "for a broker, the oldest for another", "(delivery.timeout.ms): 127.0.0.1:9092: said the system"
        assert dialogue.warnings() == [
            f"1 record waits {waits} 119 s at most {why}",
            f"1 record waits {waits} 118 s at most {why}",
            f"1 record waits {waits} 116 s at most {why}",
            f"2 records wait {waits} 112 s at most {why}",
        ]
        self.start(dialogue)
        dialogue.answer_metadata()
        dialogue.answer_identity()
        dialogue.answer_produce(dialogue.next(ProduceRequest), offset=0)
        assert stored.done()
        dialogue.advance(10_000)
        assert dialogue.warnings()[4:] == ["no record waits for a broker any more"]

    def test_records_that_wait_for_a_broker_that_went_away_are_told_alike(self) -> None:
        dialogue = Dialogue().ready()
        dialogue.submit(b"1")
        dialogue.submit(b"2")
        self.refuse(dialogue, 1_500)

        (line,) = dialogue.warnings()
        assert line.startswith("2 records wait for a broker, the oldest for another 119 s at most")

    def test_linger_is_no_wait(self) -> None:
        dialogue = Dialogue(linger_ms=60_000)
        dialogue.submit(b"1")
        dialogue.answer_metadata()
        dialogue.advance(30_000)

        assert dialogue.warnings() == []

    def test_advertised_address_that_nobody_reaches_is_named(self) -> None:
        """advertised.listeners: while the record waits, and in its error."""
        dialogue = Dialogue(bootstrap="10.0.0.1:9092")
        stored = dialogue.submit(b"1")
        dialogue.answer_metadata(partitions=3)
        named = r"10.0.0.1:9092 answers but names itself 127.0.0.1:9092"
        while dialogue.now_ms < 1_121_000:
            for send in list(dialogue.sent):
                if send.to == BROKER:
                    dialogue.sent.remove(send)
                    dialogue.fail(send, Failure.UNREACHABLE)
                elif isinstance(send.request, MetadataRequest):
                    dialogue.answer_metadata(partitions=3)
            dialogue.advance(100)

        assert named in dialogue.warnings()[0]
        with pytest.raises(KohortTimeoutError, match=named):
            stored.result(0)

    def test_login_that_is_refused_ends_what_waits(self) -> None:
        """Which does not pass by itself."""
        dialogue = Dialogue()
        stored = dialogue.submit(b"1")
        dialogue.fail(dialogue.next(MetadataRequest), Failure.NOT_AUTHENTICATED)

        with pytest.raises(AuthenticationError, match="said the system"):
            stored.result(0)

    def test_flush_ends_in_time_with_the_number_of_records_that_are_left(self) -> None:
        dialogue = Dialogue()
        dialogue.submit(b"1")
        dialogue.submit(b"2")
        dialogue.take(FlushAsked(ticket="flush", deadline_ms=dialogue.now_ms + 3_000))
        self.refuse(dialogue, 3_000)
        assert Complete(ticket="flush", value=2) in dialogue.actions

        dialogue.answer_pending_metadata()
        dialogue.take(FlushAsked(ticket="again", deadline_ms=dialogue.now_ms))
        assert Complete(ticket="again", value=2) in dialogue.actions


class TestConnecting:
    """For programs that are to end where no broker is."""

    def ask(self, dialogue: Dialogue) -> None:
        dialogue.take(ConnectAsked(ticket="connect", deadline_ms=dialogue.now_ms + 10_000))

    def ends(self, dialogue: Dialogue) -> list[Action]:
        return [action for action in dialogue.actions if isinstance(action, Complete | Fail)]

    def failure(self, dialogue: Dialogue) -> Exception:
        (end,) = self.ends(dialogue)
        assert isinstance(end, Fail)
        assert end.ticket == "connect"
        return end.error

    def test_answer_ends_it(self) -> None:
        dialogue = Dialogue()
        self.ask(dialogue)
        assert self.ends(dialogue) == []
        dialogue.answer_metadata()

        assert self.ends(dialogue) == [Complete(ticket="connect", value=None)]

    def test_round_of_refusals_ends_it_and_nothing_else(self) -> None:
        dialogue = Dialogue(bootstrap="10.0.0.1:9092,127.0.0.1:9092")
        record = dialogue.submit(b"1")
        self.ask(dialogue)
        dialogue.fail(dialogue.next(MetadataRequest), Failure.UNREACHABLE)
        assert self.ends(dialogue) == []
        dialogue.fail(dialogue.next(MetadataRequest), Failure.UNREACHABLE)

        error = self.failure(dialogue)
        assert isinstance(error, BrokersUnreachableError)
        assert [address for address, _ in error.attempts] == ["10.0.0.1:9092", "127.0.0.1:9092"]
        assert not record.done()

    def test_round_of_refusals_ends_it_after_an_answer_too(self) -> None:
        dialogue = Dialogue().ready()
        self.ask(dialogue)
        dialogue.fail(dialogue.next(MetadataRequest), Failure.UNREACHABLE)

        assert isinstance(self.failure(dialogue), BrokersUnreachableError)

    def test_login_that_is_refused_ends_it(self) -> None:
        dialogue = Dialogue()
        self.ask(dialogue)
        dialogue.fail(dialogue.next(MetadataRequest), Failure.NOT_AUTHENTICATED)

        assert isinstance(self.failure(dialogue), AuthenticationError)

    def test_address_that_the_broker_names_has_to_answer(self) -> None:
        dialogue = Dialogue(bootstrap="10.0.0.1:9092")
        self.ask(dialogue)
        dialogue.answer_metadata()
        dialogue.advance(500)
        asked = dialogue.next(MetadataRequest)
        assert (asked.to, self.ends(dialogue)) == (BROKER, [])
        dialogue.fail(asked, Failure.UNREACHABLE)

        assert isinstance(self.failure(dialogue), AdvertisedAddressError)

    def test_silence_ends_it_at_its_deadline(self) -> None:
        dialogue = Dialogue()
        self.ask(dialogue)
        dialogue.advance(10_000)

        assert isinstance(self.failure(dialogue), KohortTimeoutError)


def test_acks_0_ends_with_the_send() -> None:
    """No answer is expected; the offset is not known."""
    dialogue = Dialogue(acks=0, idempotent=False)
    future = dialogue.submit(b"1")
    dialogue.answer_metadata()
    send = dialogue.next(ProduceRequest)
    assert not send.has_response
    dialogue.answer(send, send.request)
    assert future.result(0).offset == -1


def test_close_flushes_then_stops() -> None:
    """The ticket ends before the driver does."""
    dialogue = Dialogue(linger_ms=60_000)
    future = dialogue.submit(b"1")
    dialogue.take(ProducerCloseAsked(ticket="close", deadline_ms=dialogue.now_ms + 10_000))
    dialogue.answer_metadata()
    dialogue.answer_identity()
    dialogue.answer_produce(dialogue.next(ProduceRequest), offset=0)
    assert future.result(0).offset == 0
    assert dialogue.actions[-2:] == [Complete(ticket="close", value=None), Stop()]


def test_close_gives_up_at_its_deadline() -> None:
    """What is not acknowledged by then fails; the application gets its thread back."""
    dialogue = Dialogue()
    future = dialogue.submit(b"1")
    dialogue.take(ProducerCloseAsked(ticket="close", deadline_ms=dialogue.now_ms + 500))
    dialogue.advance(500)
    with pytest.raises(KohortTimeoutError):
        future.result(0)
    assert dialogue.actions[-1] == Stop()


class TestLossesAtTheEnd:
    """Records that were not stored are counted, unless somebody knows of them."""

    LOST = "not stored, and the program has not asked their futures: the producer was closed before this record"

    def end(self, records: list[RecordFuture], **options: Any) -> list[str]:
        dialogue = Dialogue()
        for record in records:
            dialogue.submissions.append(record)
        dialogue.take(RecordsSubmitted())
        dialogue.take(ProducerCloseAsked(ticket="bye", deadline_ms=dialogue.now_ms + 50, **options))
        dialogue.advance(100)
        assert any(isinstance(action, Stop) for action in dialogue.actions)
        return dialogue.warnings()

    def test_what_nobody_has_asked_for_is_counted(self) -> None:
        (line,) = self.end([a_record() for _ in range(3)])
        assert line.startswith(f"3 records were {self.LOST}")
        (line,) = self.end([a_record()])
        assert line.startswith(f"1 record was {self.LOST}")

    def test_what_somebody_waits_for_is_theirs(self) -> None:
        waited = a_record()
        waited.add_done_callback(lambda _: None)
        (line,) = self.end([waited, a_record()])
        assert line.startswith("1 record was ")

    def test_what_somebody_has_cancelled_is_not_lost(self) -> None:
        cancelled = a_record()
        cancelled.cancel()
        assert self.end([cancelled]) == []

    def test_what_nobody_has_asked_for_within_a_second_is_said_then(self) -> None:
        """While more fail the pause until the next line doubles."""
        dialogue = Dialogue()
        heard = []
        for _ in range(80):
            dialogue.submit(b"1", topic="secret")
            asked = dialogue.submit(b"2", topic="secret")
            dialogue.answer_metadata(topic="secret", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            assert asked.exception(0) is not None
            dialogue.advance(100)
            heard += [dialogue.now_ms - 1_000_000] * (len(dialogue.warnings()) - len(heard))

        assert [round(each, -3) for each in heard] == [1_000, 3_000, 7_000]
        lost = "records were not stored, and the program has not asked their futures: TOPIC_AUTHORIZATION_FAILED"
        assert [line.split()[0] for line in dialogue.warnings()] == ["10", "20", "40"]
        assert all(lost in line for line in dialogue.warnings())

    def test_nothing_is_said_after_an_error_of_the_application(self) -> None:
        assert self.end([a_record()], is_quiet=True) == []

    def test_counting_takes_no_more_memory_than_a_limit(self) -> None:
        lost_records = LostRecords()
        asked = a_record()
        lost_records.note(asked, KohortTimeoutError("late"))
        asked.add_done_callback(lambda _: None)
        for _ in range(25_000):
            lost_records.note(a_record(), KohortTimeoutError("late"))
        said = "25000 records were not stored, and the program has not asked their futures: late"
        assert lost_records.summary() == said
        assert len(lost_records._futures) <= 10_000


class TestPartitionThatIsNotKnown:
    """The topic may have grown since it was looked at: Kafka's producer asks for fresh metadata, too (KIP-195)."""

    def test_record_goes_there_when_the_topic_has_grown(self) -> None:
        """In the order in which they came; other partitions do not wait for it."""
        dialogue = Dialogue().ready()
        grown = [dialogue.submit(b"one", partition=4), dialogue.submit(b"two", partition=4)]
        dialogue.submit(b"else", partition=1)
        assert values_of(dialogue.next(ProduceRequest)) == [b"else"]
        dialogue.take(FlushAsked(ticket="flush"))
        dialogue.advance(200)
        dialogue.answer_metadata(partitions=5)
        produce = dialogue.next(ProduceRequest)
        assert values_of(produce) == [b"one", b"two"]
        assert not any(isinstance(action, Complete) for action in dialogue.actions), "the flush waits for them"
        dialogue.answer_produce(produce, offset=7)
        assert [(future.result(0).partition, future.result(0).offset) for future in grown] == [(4, 7), (4, 8)]

    def test_record_is_refused_when_it_has_not(self) -> None:
        """By one answer: nobody waits for a partition that is only mistyped."""
        dialogue = Dialogue().ready()
        future = dialogue.submit(b"one", partition=4)
        assert not future.done()
        dialogue.advance(200)
        dialogue.answer_metadata(partitions=3)
        with pytest.raises(ConfigError, match="orders has partitions 0 to 2, there is no 4"):
            future.result(0)
        assert dialogue.released == len(b"first") + len(b"one") + 48

    def test_answer_that_was_asked_for_before_the_record_came_refuses_nothing(self) -> None:
        """It may be older than the partition."""
        dialogue = Dialogue().ready()
        first = dialogue.submit(b"one", partition=3)
        dialogue.advance(200)
        second = dialogue.submit(b"two", partition=4)
        dialogue.answer_metadata(partitions=4)
        assert not first.done() and not second.done()
        assert values_of(dialogue.next(ProduceRequest)) == [b"one"]
        dialogue.advance(200)
        dialogue.answer_metadata(partitions=5)
        assert values_of(dialogue.next(ProduceRequest)) == [b"two"]

    def test_row_of_many_waits_too(self) -> None:
        dialogue = Dialogue().ready()
        columns = ListColumns(2, None, [b"one", b"two"], times=None, time_ms=5, partitions=[0, 4])
        many = ManyFuture("orders", 2)
        dialogue.submissions.append(Bulk("orders", None, columns, 50, many))
        dialogue.take(RecordsSubmitted())
        assert not many.done() and not dialogue.unanswered(ProduceRequest)
        dialogue.advance(200)
        dialogue.answer_metadata(partitions=5)
        request = dialogue.next(ProduceRequest).request
        assert isinstance(request, ProduceRequest)
        assert [data.index for data in request.topic_data[0].partition_data] == [0, 4]

    def test_record_is_late_when_nobody_answers(self) -> None:
        """With the cause."""
        dialogue = Dialogue().ready()
        future = dialogue.submit(b"one", partition=4)
        for _ in range(600):
            dialogue.advance(250)
            while dialogue.unanswered(MetadataRequest):
                dialogue.fail(dialogue.next(MetadataRequest), Failure.UNREACHABLE)
        with pytest.raises(
            KohortTimeoutError,
            match=r"partitions of orders could not be looked up within 120000 ms: .* said the system",
        ):
            future.result(0)

    def test_close_waits_no_longer_than_it_may(self) -> None:
        dialogue = Dialogue().ready()
        future = dialogue.submit(b"one", partition=4)
        dialogue.take(ProducerCloseAsked(ticket="bye", deadline_ms=dialogue.now_ms + 50))
        dialogue.advance(50)
        assert isinstance(future.exception(0), KohortTimeoutError)
        assert dialogue.actions[-1] == Stop()


class TestTopicThatIsMissing:
    """A producer that lives for years has sent to many topics."""

    def asked_for(self, dialogue: Dialogue) -> list[list[str | None]]:
        """The topics of the requests of an hour, each answered with what is known by now."""
        asked = []
        for _ in range(60 * 60):
            dialogue.advance(1_000)
            while dialogue.unanswered(MetadataRequest):
                request = next(send.request for send in dialogue.sent if isinstance(send.request, MetadataRequest))
                asked.append([topic.name for topic in request.topics or []])
                dialogue.answer_metadata(topic="ordres", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return asked

    def test_is_asked_for_no_longer_than_somebody_waits(self) -> None:
        dialogue = Dialogue()
        future = dialogue.submit(b"1", topic="ordres")
        asked = self.asked_for(dialogue)
        assert isinstance(future.exception(0), UnknownTopicError)
        assert 1 < sum("ordres" in topics for topics in asked) < 10
        assert len(asked) < 60, "not every second"

    def test_is_not_given_up_while_nobody_answers(self) -> None:
        """It was missing once; whether it is by now nobody says, and the record has all of its time."""
        dialogue = Dialogue()
        future = dialogue.submit(b"1", topic="ordres")
        dialogue.answer_metadata(topic="ordres", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for _ in range(20):
            while dialogue.unanswered(MetadataRequest):
                dialogue.fail(dialogue.next(MetadataRequest), Failure.UNREACHABLE)
            dialogue.advance(1_000)
        assert not future.done()

    def test_is_asked_for_again_with_the_next_record(self) -> None:
        dialogue = Dialogue()
        dialogue.submit(b"1", topic="ordres")
        self.asked_for(dialogue)
        again = dialogue.submit(b"2", topic="ordres")
        dialogue.answer_metadata(topic="ordres", partitions=1)
        dialogue.answer_identity()
        assert values_of(dialogue.next(ProduceRequest)) == [b"2"] and not again.done()

    def test_question_for_its_partitions_is_answered_once(self) -> None:
        dialogue = Dialogue()
        dialogue.take(PartitionsAsked(topic="ordres", ticket="how many", deadline_ms=dialogue.now_ms + 60_000))
        asked = self.asked_for(dialogue)
        assert Complete(ticket="how many", value=[]) in dialogue.actions
        assert sum("ordres" in topics for topics in asked) < 4
