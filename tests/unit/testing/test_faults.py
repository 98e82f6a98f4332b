"""Faults in the protocol: what is answered, whom they strike, and what a test is told that strikes nothing."""

from __future__ import annotations

import pytest

import kohort
from kohort.errors import ConfigError, ErrorCode
from kohort.testing import Broker, FaultNotStruckError
from kohort.testing.faults import refusal_of
from kohort.wire import registry
from kohort.wire.codec import decode, encode
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.scenarios.needed_rights import TOPICS, has_requests, requests_of

IDS = {name: bytes([number + 1] * 16) for number, name in enumerate(TOPICS)}


def _codes(message: Message) -> list[int]:
    """Every error code of an answer."""
    found = []
    for each in message._fields:
        value = getattr(message, each.name)
        if each.name in ("error_code", "partition_error_code"):
            found.append(value)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Message):
                found += _codes(one)
    return found


@pytest.mark.parametrize("key", [key for key in registry.SERVED if has_requests(key)], ids=lambda key: key.name)
def test_an_error_takes_every_place_of_an_answer(key: ApiKey) -> None:
    """For each API and form of its requests; the answer can be written in the version of the request."""
    tried = 0
    for version, request in requests_of(key, IDS):
        for each in request._fields:
            row = getattr(each.kind, "element", None)
            if isinstance(row, type) and getattr(request, each.name) == []:
                setattr(request, each.name, [row()])
        answer = refusal_of(registry.response_class(key), request, ErrorCode.NOT_COORDINATOR)
        again, _ = decode(registry.response_class(key), version, encode(answer, version))
        tried += ErrorCode.NOT_COORDINATOR in _codes(again)
        assert {*_codes(answer)} <= {ErrorCode.NOT_COORDINATOR, *([ErrorCode.NONE] if key is ApiKey.FETCH else ())}
    assert tried, "no form of this API's requests can be refused"


def test_a_commit_is_refused_as_often_as_the_test_says_and_then_taken() -> None:
    """Row by row: the client retries what may be retried."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        fault = broker.faults.answer("OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS", group="billing").times(2)
        with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
            consumer.assign([("orders", 0)])  # type: ignore[list-item]
            consumer.commit({kohort.TopicPartition("orders", 0): 7})
        assert (fault.matched, fault.struck) == (3, 2)
        broker.group("billing").assert_committed({("orders", 0): 7})
        broker.faults.check()


def test_another_group_and_another_client_are_not_struck() -> None:
    """What chooses requests is Kafka's: the group, the topic, the client id."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        plant = broker.faults.answer
        plant("OffsetCommit", error="NOT_COORDINATOR", group="other")
        plant("OffsetCommit", error=ErrorCode.NOT_COORDINATOR, client_id="somebody")
        plant("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="payments")
        with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
            consumer.assign([("orders", 0)])  # type: ignore[list-item]
            consumer.commit({kohort.TopicPartition("orders", 0): 7})
        assert [fault.struck for fault in broker.faults] == [0, 0, 0]
        with pytest.raises(FaultNotStruckError, match="OFFSET_COMMIT group='other', struck 0 times"):
            broker.faults.check()


@pytest.mark.parametrize("way", ["delay", "drop", "disconnect", "truncate"])
def test_a_producer_survives_what_the_network_and_a_slow_broker_do(way: str) -> None:
    """One request late, lost, cut off, or answered by half; the record is there once."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        plant = getattr(broker.faults, way)
        fault = (plant("Produce", 0.05) if way == "delay" else plant("Produce")).once()
        options = {"request_timeout_ms": 300, "retry_backoff_ms": 10, "delivery_timeout_ms": 20_000}
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            assert producer.send("orders", value="1").result(20).offset == 0
        assert fault.struck == 1
        assert [row.end_offset for row in broker.admin.describe_topics(["orders"])[0].partitions] == [1]


def test_metadata_that_refuses_a_topic_still_names_the_broker() -> None:
    """A client has to come back to ask again."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        broker.faults.answer("Metadata", error="LEADER_NOT_AVAILABLE").times(2)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert producer.send("orders", value="1").result(10).offset == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda faults: faults.answer("OffsetComit", error="NONE"), "OffsetCommit\\?"),
        (lambda faults: faults.answer("Fetch", error="NOT_LEADER"), "NOT_LEADER_OR_FOLLOWER\\?"),
        (lambda faults: faults.drop("nothing like it at all"), "Kafka's names are expected"),
        (lambda faults: faults.delay("Fetch", 0), "more than 0"),
        (lambda faults: faults.drop("Fetch", user="bob"), "group, topic, client_id"),
        (lambda faults: faults.drop("Fetch").times(0), "1 or more"),
        (lambda faults: faults.drop("Fetch").on_call(True), "1 or more"),
    ],
)
def test_a_wrong_argument_is_told_with_what_is_right(call: object, words: str) -> None:
    """Nothing is planted then."""
    with Broker() as broker, pytest.raises(ConfigError, match=words):
        call(broker.faults)  # type: ignore[operator]
