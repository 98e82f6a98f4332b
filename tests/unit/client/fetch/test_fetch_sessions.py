"""Fetch sessions (KIP-227): only what has changed travels, and any doubt ends in a fetch that names everything."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.consumer.application_events import Fence, PartitionsAssigned, Paused, Sought, Start
from kohort.client.consumer.fetch.fetch_session import FetchSession
from kohort.client.core.actions import Lane
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.fetch import FetchRequest, FetchResponse
from kohort.wire.messages.metadata import MetadataRequest
from support.dialogues.consumer_dialogue import ConsumerDialogue, batch, orders
from support.dialogues.fetch_sessions import SESSION_ID, SessionBroker


def reading(count: int, **options: object) -> tuple[ConsumerDialogue, SessionBroker]:
    """A consumer of so many partitions of orders, and a broker that has just given it a session."""
    consumer = ConsumerDialogue(**{"group_id": None, **options})
    assign(consumer, *range(count))
    broker = SessionBroker(consumer)
    assert session(broker.serve({})) == (0, 0)
    return consumer, broker


def assign(consumer: ConsumerDialogue, *indexes: int) -> None:
    starts = {each: Start(fence=consumer.new_fence(), offset=0) for each in orders(*indexes)}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()


def partition(index: int) -> TopicPartition:
    return orders(index)[0]


def session(request: FetchRequest) -> tuple[int, int]:
    return request.session_id, request.session_epoch


def named(request: FetchRequest) -> dict[int, int]:
    """Partition -> offset, of what a request names."""
    return {entry.partition: entry.fetch_offset for topic in request.topics for entry in topic.partitions}


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_only_what_has_changed_is_named() -> None:
    """The broker remembers the rest; each request counts on by one."""
    _, broker = reading(3)

    first = broker.serve({1: batch(0, 10)})
    second = broker.serve({})
    third = broker.serve({0: batch(0, 2), 2: batch(0, 3)})

    assert [session(each) for each in (first, second, third)] == [(SESSION_ID, epoch) for epoch in (1, 2, 3)]
    assert [named(each) for each in (first, second, third)] == [{}, {1: 10}, {}]
    assert named(broker.request()) == {0: 2, 2: 3}
    assert forgotten(broker.request()) == []


def test_epoch_begins_again_behind_the_last_one() -> None:
    """KIP-227: epoch 0 would begin a new session."""
    kept = FetchSession()
    kept.renew({})
    kept.on_answer(FetchResponse(session_id=SESSION_ID))
    kept._epoch = 2**31 - 1

    assert kept.renew({}).session_epoch == 2**31 - 1
    kept.on_answer(FetchResponse(session_id=SESSION_ID))

    assert kept.renew({}).session_epoch == 1


def test_paused_partition_leaves_the_session_and_comes_back() -> None:
    """The broker would send it otherwise."""
    consumer, broker = reading(2)
    consumer.take(Paused(partitions=(partition(0),), is_paused=True))
    broker.serve({})
    assert (named(broker.request()), forgotten(broker.request())) == ({}, [0])

    consumer.take(Paused(partitions=(partition(0),), is_paused=False))
    assert session(beside(consumer)) == (0, -1), "what does not wait needs no session"
    consumer.serve_one(beside(consumer), {})
    broker.serve({})

    assert (named(broker.request()), forgotten(broker.request())) == ({0: 0}, [])


def idle(**options: object) -> tuple[ConsumerDialogue, SessionBroker]:
    """A consumer of two partitions at a broker of kohort's, whose latest fetch has brought nothing."""
    consumer = ConsumerDialogue(**{"group_id": None, **options})
    consumer.is_kohort = True
    assign(consumer, 0, 1)
    broker = SessionBroker(consumer)
    assert broker.serve({}).max_wait_ms == options.get("fetch_max_wait_ms", 500)
    return consumer, broker


def test_fetch_that_follows_an_empty_one_waits_longer_at_a_broker_of_kohort() -> None:
    """As long as nothing comes and nothing is asked for anew; a busy one waits as the option says."""
    consumer, broker = idle()
    assert [broker.serve(data).max_wait_ms for data in ({}, {1: batch(0, 2)}, {}, {})] == [4_000, 4_000, 500, 4_000]
    consumer.take(Paused(partitions=(partition(0),), is_paused=True))
    assert [broker.serve({}).max_wait_ms for _ in range(3)] == [4_000, 500, 4_000], "a change is told with a short wait"
    consumer.fail(broker.request(), Failure.DISCONNECTED)
    consumer.advance(1_000)
    assert broker.serve({}).max_wait_ms == 500


@pytest.mark.parametrize(
    ("options", "waits_ms"),
    [
        ({"fetch_max_wait_ms": 200}, 200),
        ({"fetch_max_wait_ms": 9_000}, 9_000),
        ({"fetch_min_bytes": 1_000}, 500),
        ({"is_kohort": False}, 500),
        ({"login_ms": 40_000}, 1_600),
    ],
    ids=str,
)
def test_fetch_waits_no_longer_than_it_may(options: dict[str, Any], waits_ms: int) -> None:
    """Another broker, who asks for less, many bytes together, and a login that is renewed between two answers."""
    told = {name: options.pop(name) for name in ("is_kohort", "login_ms") if name in options}
    consumer, broker = idle(**options)
    for name, value in told.items():
        setattr(consumer, name, value)
    broker.serve({})
    assert broker.request().max_wait_ms == waits_ms


def test_partition_that_becomes_ready_ends_a_long_wait() -> None:
    """By the same connection, so that the broker sees one fetch behind the other; the next one is of all partitions."""
    consumer, broker = idle()
    long = broker.request()
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))
    consumer.settle()
    (short,) = [send for send in consumer.find(FetchRequest) if send.request is not long]
    assert isinstance(short.request, FetchRequest)
    assert (short.lane, short.request.max_wait_ms, named(short.request)) == (Lane.FETCH, 0, {0: 50})

    consumer.answer(long, FetchResponse(session_id=SESSION_ID), version=17)
    consumer.settle()
    assert [send.request for send in consumer.find(FetchRequest)] == [short.request], "its answer comes at once"
    consumer.serve_one(short.request, {})
    assert (named(broker.request()), broker.request().max_wait_ms) == ({0: 50}, 500)


def test_connection_that_breaks_with_two_fetches_under_way_is_asked_anew() -> None:
    consumer, broker = idle()
    long = broker.request()
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))
    consumer.settle()
    (short,) = [send.request for send in consumer.find(FetchRequest) if send.request is not long]
    for request in (long, short):
        consumer.fail(request, Failure.DISCONNECTED)
    consumer.advance(1_000)
    assert (session(broker.request())[1], named(broker.request())) == (0, {0: 50, 1: 0})


def beside(consumer: ConsumerDialogue) -> FetchRequest:
    """The open fetch that does not wait."""
    consumer.settle()
    (send,) = [send for send in consumer.find(FetchRequest) if send.lane is Lane.FETCH_AT_ONCE]
    assert isinstance(send.request, FetchRequest)
    return send.request


def test_partition_that_has_waited_once_does_not_wait_again() -> None:
    """It found nothing and waited with the others; resumed beside their next long fetch, it is asked for at once."""
    consumer, broker = reading(2)
    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))
    consumer.serve_one(beside(consumer), {})
    broker.serve({})
    assert named(broker.request()) == {0: 50}
    consumer.take(Paused(partitions=(partition(0),), is_paused=True))
    broker.serve({})
    assert forgotten(broker.request()) == [0]

    consumer.take(Paused(partitions=(partition(0),), is_paused=False))

    assert named(beside(consumer)) == {0: 50}


def test_partition_that_is_read_no_more_leaves_the_session() -> None:
    """Given up by hand here; a revocation is the same to the broker."""
    consumer, broker = reading(3)

    consumer.take(PartitionsAssigned(starts={partition(1): Start(fence=Fence(2), offset=0)}))
    broker.serve({})

    assert (named(broker.request()), sorted(forgotten(broker.request()))) == ({}, [0, 2])
    broker.serve({0: batch(0, 5), 1: batch(0, 5)})
    assert [chunk.partition for chunk in consumer.chunks()] == [partition(1)], "what comes late is nobody's"


def test_new_leader_epoch_is_named() -> None:
    """KIP-320: the broker compares what it was told last."""
    consumer, broker = reading(2)
    consumer.leader_epochs[partition(1)] = 4
    broker.serve({}, errors={0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    consumer.advance(500)

    broker.serve({})
    request = broker.request()

    epochs = {entry.partition: entry.current_leader_epoch for topic in request.topics for entry in topic.partitions}
    assert epochs[1] == 4


@pytest.mark.parametrize(
    ("code", "named_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION_ID)],
)
def test_lost_session_is_begun_again_at_once(code: ErrorCode, named_id: int) -> None:
    """The broker needed the place, or has missed a request; one that is still there is closed on the way."""
    _, broker = reading(2)

    broker.refuse(code)

    assert session(broker.request()) == (named_id, 0)
    assert named(broker.request()) == {0: 0, 1: 0}


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_TOPIC_ID])
def test_session_over_topics_that_changed_is_begun_again_with_a_new_picture(code: ErrorCode) -> None:
    """KIP-516: ids and names do not mix, and an id that the broker does not know is out of date."""
    consumer, broker = reading(2)
    before = len(consumer.sent(MetadataRequest))

    broker.refuse(code)
    assert len(consumer.sent(MetadataRequest)) > before
    assert consumer.find(FetchRequest) == [], "after a pause"
    consumer.advance(500)

    assert session(broker.request()) == (SESSION_ID, 0)
    assert named(broker.request()) == {0: 0, 1: 0}


def test_broken_connection_ends_the_session() -> None:
    """Nobody knows whether the request has arrived."""
    consumer, broker = reading(2)

    consumer.fail(broker.request(), Failure.DISCONNECTED)
    consumer.advance(500)

    assert session(broker.request()) == (SESSION_ID, 0)
    assert named(broker.request()) == {0: 0, 1: 0}


def test_fetch_that_is_broken_off_ends_the_session() -> None:
    """As a broken connection does."""
    consumer, broker = reading(1)

    consumer.take(Sought(partition=partition(0), fence=Fence(99), offset=50))

    assert session(broker.request()) == (SESSION_ID, 0)
    assert named(broker.request()) == {0: 50}


def test_broker_without_sessions_is_asked_for_everything() -> None:
    """Session 0 in the answer; each fetch offers one."""
    consumer = ConsumerDialogue(group_id=None)
    assign(consumer, 0, 1)

    consumer.serve({0: batch(0, 10)})
    consumer.serve()

    request = consumer.expect(FetchRequest)
    assert (session(request), named(request)) == ((0, 0), {0: 10, 1: 0})


def test_session_that_the_broker_ends_in_an_answer_is_begun_again() -> None:
    """Its place was needed for others: another id, or none."""
    _, broker = reading(2)

    broker.serve({0: batch(0, 10)}, session_id=0)

    assert (session(broker.request()), named(broker.request())) == ((0, 0), {0: 10, 1: 0})


def test_topic_that_was_made_anew_is_another_one() -> None:
    """KIP-516: the old id is forgotten, the new one is named."""
    consumer, broker = reading(1)
    consumer.topics["orders"] = (b"again".ljust(16, b"."), 1)
    broker.serve({}, errors={0: ErrorCode.UNKNOWN_TOPIC_ID})
    consumer.advance(500)

    request = broker.request()

    assert [(bytes(topic.topic_id)[:5], len(topic.partitions)) for topic in request.topics] == [(b"again", 1)]
    assert [bytes(topic.topic_id)[:6] for topic in request.forgotten_topics_data] == [b"orders"]


def test_topic_whose_id_gets_lost_begins_a_session_by_name() -> None:
    """KIP-516: from version 13 on there are only ids."""
    consumer, broker = reading(1)
    consumer.topics["orders"] = (bytes(16), 1)
    broker.serve({}, errors={0: ErrorCode.UNKNOWN_TOPIC_ID})
    consumer.advance(500)

    request = broker.request()

    assert (session(request), named(request), request.forgotten_topics_data) == ((SESSION_ID, 0), {0: 0}, [])
    assert consumer.find(FetchRequest)[0].max_version == 12


def test_close_ends_the_sessions() -> None:
    """KIP-227: epoch -1; over the lane that no long fetch holds up, and nobody waits for the answer."""
    consumer, broker = reading(2)
    broker.serve({})
    consumer.close()

    (end,) = [send for send in consumer.sent(FetchRequest) if send.lane is Lane.CONTROL]
    assert isinstance(end.request, FetchRequest)
    assert (session(end.request), end.request.max_wait_ms, named(end.request)) == ((SESSION_ID, -1), 0, {})
    assert end.min_version == 7
    assert consumer.is_stopped


def test_close_says_nothing_where_there_is_no_session() -> None:
    """Not every broker keeps one."""
    consumer = ConsumerDialogue(group_id=None)
    assign(consumer, 0)
    consumer.serve({0: batch(0, 10)})
    consumer.close()

    assert Lane.CONTROL not in {send.lane for send in consumer.sent(FetchRequest)}
    assert consumer.is_stopped
