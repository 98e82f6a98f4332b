"""Dialogues about the cluster's picture: bootstrap, brokers that come and go, topics that are missing."""

from __future__ import annotations

import pickle

import pytest

from kohort.client.consumer.application_events import (
    OffsetsAsked,
    PartitionsAsked,
    PartitionsAssigned,
    Recovered,
    Start,
    Subscribed,
)
from kohort.client.core.actions import Complete, Endpoint, Fail, Send
from kohort.client.core.requests import DeadlineReached, Failure
from kohort.errors import AdvertisedAddressError, BrokersUnreachableError, ErrorCode, NotKafkaError
from kohort.ids import TopicPartition
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.dialogues.consumer_dialogue import BROKER, ORDERS, ConsumerDialogue, orders

HOSTS = "10.0.0.1:9092,10.0.0.2:9092"


def ask_partitions(consumer: ConsumerDialogue, topic: str = "orders", timeout_ms: int = 60_000) -> None:
    deadline_ms = consumer.now_ms + timeout_ms
    consumer.take(PartitionsAsked(topic=topic, ticket="partitions", deadline_ms=deadline_ms))
    consumer.settle()


def asked(consumer: ConsumerDialogue) -> list[Endpoint]:
    """Where Metadata requests went, in order."""
    return [
        each.to for each in consumer.actions if isinstance(each, Send) and isinstance(each.request, MetadataRequest)
    ]


def test_every_address_is_tried_before_anything_is_said() -> None:
    """One that answers is enough."""
    consumer = ConsumerDialogue(bootstrap_servers=HOSTS)
    consumer.by_hand.add(MetadataRequest)
    ask_partitions(consumer)
    consumer.fail(consumer.expect(MetadataRequest), Failure.UNREACHABLE, "Connection refused")
    consumer.settle()
    assert consumer.troubles() == []

    request = consumer.expect(MetadataRequest)
    assert asked(consumer) == [Endpoint("10.0.0.1", 9092), Endpoint("10.0.0.2", 9092)]
    consumer.answer(request, consumer.metadata(request))

    assert consumer.ended("partitions") == Complete(ticket="partitions", value=[0, 1, 2, 3])


def test_round_of_refusals_ends_what_the_application_waits_for() -> None:
    """The error names every address and reason."""
    consumer = ConsumerDialogue(bootstrap_servers=HOSTS)
    consumer.by_hand.add(MetadataRequest)
    ask_partitions(consumer)
    for _ in range(2):
        consumer.fail(consumer.expect(MetadataRequest), Failure.UNREACHABLE, "Connection refused")
        consumer.settle()

    ended = consumer.ended("partitions")
    assert isinstance(ended, Fail)
    assert isinstance(ended.error, BrokersUnreachableError)
    assert ended.error.attempts == (("10.0.0.1:9092", "Connection refused"), ("10.0.0.2:9092", "Connection refused"))
    assert [type(trouble.error) for trouble in consumer.troubles()] == [BrokersUnreachableError]


def test_bootstrap_goes_on_quietly_in_the_background() -> None:
    """A broker that starts later is found, and the report is withdrawn."""
    consumer = ConsumerDialogue()
    consumer.by_hand.add(MetadataRequest)
    consumer.take(Subscribed(topics=("orders",)))
    for _ in range(5):
        consumer.settle()
        consumer.fail(consumer.expect(MetadataRequest), Failure.UNREACHABLE)
        consumer.advance(1_200)

    request = consumer.expect(MetadataRequest)
    consumer.answer(request, consumer.metadata(request))

    assert consumer.delivered(Recovered) == [Recovered()]


def test_broker_that_goes_away_later_is_nobodys_error() -> None:
    """It is retried, with pauses."""
    consumer = ConsumerDialogue()
    ask_partitions(consumer)
    consumer.by_hand.add(MetadataRequest)
    consumer.take(Subscribed(topics=("orders", "refunds")))
    rounds = 0
    for _ in range(100):
        if consumer.find(MetadataRequest):
            rounds += 1
            consumer.fail(consumer.expect(MetadataRequest), Failure.UNREACHABLE)
        consumer.advance(100)

    assert consumer.troubles() == []
    assert 8 <= rounds <= 40, "10 s of pauses between 0.1 and 1 s, two addresses a round"


def test_ports_of_other_services_are_called_so() -> None:
    """One that only refuses may still be a broker's."""
    for failures, kind in ((("NO_BROKER", "NO_BROKER"), NotKafkaError), (("NO_BROKER", "UNREACHABLE"), None)):
        consumer = ConsumerDialogue(bootstrap_servers=HOSTS)
        consumer.by_hand.add(MetadataRequest)
        ask_partitions(consumer)
        for failure in failures:
            consumer.fail(consumer.expect(MetadataRequest), Failure[failure], "it looks like HTTP")
            consumer.settle()
        (trouble,) = consumer.troubles()
        assert type(trouble.error) is (kind or BrokersUnreachableError)
        assert "10.0.0.1:9092 (it looks like HTTP), 10.0.0.2:9092 (it looks like HTTP)" in str(trouble.error)


class TestAdvertisedAddress:
    """advertised.listeners: the address to start from answers, and names others."""

    NAMED = Endpoint("192.0.2.50", 9092)

    @pytest.fixture
    def consumer(self) -> ConsumerDialogue:
        consumer = ConsumerDialogue(bootstrap_servers="10.0.0.1:9092", group_id=None)
        consumer.brokers = {1: self.NAMED}
        consumer.by_hand |= {MetadataRequest, ListOffsetsRequest}
        self.ask(consumer, "end")
        return consumer

    def ask(self, consumer: ConsumerDialogue, ticket: str) -> None:
        """A question to the leader, and the looks at the cluster that come before it."""
        deadline_ms = consumer.now_ms + 60_000
        consumer.take(OffsetsAsked(timestamps={orders(0)[0]: -1}, ticket=ticket, deadline_ms=deadline_ms))
        self.look(consumer)

    def look(self, consumer: ConsumerDialogue) -> None:
        """Metadata is to be had at the address to start from only."""
        consumer.settle()
        for send in consumer.find(MetadataRequest):
            assert isinstance(send.request, MetadataRequest)
            if send.to == Endpoint("10.0.0.1", 9092):
                consumer.answer(send.request, consumer.metadata(send.request))
            else:
                consumer.fail(send.request, Failure.UNREACHABLE, "No route to host")
            self.look(consumer)

    def refuse(self, consumer: ConsumerDialogue) -> None:
        consumer.fail(consumer.expect(ListOffsetsRequest), Failure.UNREACHABLE, "No route to host")

    def test_one_that_cannot_be_reached_is_said_at_once(self, consumer: ConsumerDialogue) -> None:
        self.refuse(consumer)

        (trouble,) = consumer.troubles()
        assert isinstance(trouble.error, AdvertisedAddressError)
        assert str(trouble.error) == (
            "10.0.0.1:9092 answers but names itself 192.0.2.50:9092 (No route to host), which cannot be reached; "
            "set advertised.listeners of the broker to an address that clients reach"
        )
        assert consumer.ended("end") == Fail(ticket="end", error=trouble.error)

    def test_one_of_several_that_may_still_answer_is_enough(self) -> None:
        consumer = ConsumerDialogue(bootstrap_servers="10.0.0.1:9092", group_id=None)
        consumer.brokers = {1: self.NAMED, 2: Endpoint("192.0.2.51", 9092)}
        consumer.by_hand |= {MetadataRequest, ListOffsetsRequest}
        self.ask(consumer, "end")

        self.refuse(consumer)

        assert consumer.troubles() == []

    def test_answers_of_the_first_address_do_not_withdraw_it(self, consumer: ConsumerDialogue) -> None:
        self.refuse(consumer)
        consumer.take(PartitionsAsked(topic="refunds", ticket="partitions", deadline_ms=consumer.now_ms + 60_000))
        self.look(consumer)

        assert asked(consumer)[-1] == Endpoint("10.0.0.1", 9092)
        assert consumer.delivered(Recovered) == []

    def test_one_that_is_reached_later_withdraws_it(self, consumer: ConsumerDialogue) -> None:
        self.refuse(consumer)
        self.ask(consumer, "again")
        request = consumer.expect(ListOffsetsRequest)
        consumer.answer(request, consumer.offsets(request))

        assert consumer.delivered(Recovered) == [Recovered()]

    def test_one_that_was_reached_and_goes_away_is_nobodys_error(self, consumer: ConsumerDialogue) -> None:
        request = consumer.expect(ListOffsetsRequest)
        consumer.answer(request, consumer.offsets(request))
        self.ask(consumer, "again")

        self.refuse(consumer)

        assert consumer.troubles() == []


def test_known_brokers_come_before_the_bootstrap_addresses() -> None:
    """The addresses to start from may be out of date by then."""
    consumer = ConsumerDialogue(bootstrap_servers=HOSTS, allow_auto_create_topics=False)
    consumer.brokers = {1: BROKER}
    ask_partitions(consumer)

    consumer.take(Subscribed(topics=("refunds",)))
    consumer.settle()

    assert asked(consumer) == [Endpoint("10.0.0.1", 9092), BROKER]


def test_who_has_answered_is_asked_again_before_an_address_that_is_dead() -> None:
    """The place in the list of addresses means another one once brokers are known."""
    consumer = ConsumerDialogue(bootstrap_servers="10.0.0.1:9092,10.0.0.2:9092")
    consumer.brokers = {1: Endpoint("10.0.0.2", 9092)}
    consumer.by_hand.add(MetadataRequest)
    ask_partitions(consumer)
    consumer.fail(consumer.expect(MetadataRequest), Failure.UNREACHABLE, "Connection refused")
    consumer.settle()
    request = consumer.expect(MetadataRequest)
    consumer.answer(request, consumer.metadata(request))

    assert consumer.machine._cluster.any_endpoint() == Endpoint("10.0.0.2", 9092)


def test_picture_is_renewed_when_it_grows_old() -> None:
    """metadata.max.age.ms."""
    consumer = ConsumerDialogue(metadata_max_age_ms=60_000)
    consumer.stable()
    before = len(asked(consumer))

    consumer.advance(61_000)

    assert len(asked(consumer)) == before + 1


def test_partition_without_a_leader_is_asked_for_again() -> None:
    """An election takes a moment."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.leaders[orders(0)[0]] = -1
    consumer.take(PartitionsAssigned(starts={orders(0)[0]: Start(fence=consumer.new_fence(), offset=0)}))
    consumer.advance(300)
    assert consumer.fetching() == {}

    consumer.leaders.clear()
    consumer.advance(1_000)

    assert consumer.fetching() == {orders(0)[0]: 0}


def test_former_topic_of_a_name_is_not_believed() -> None:
    """A broker that lags behind still shows it; what is read of its successor is not taken for a topic that is gone."""
    consumer = ConsumerDialogue()
    consumer.take(PartitionsAssigned(starts={orders(0)[0]: Start(fence=consumer.new_fence(), offset=0)}))
    consumer.settle()
    cluster = consumer.machine._cluster
    again, third = b"again".ljust(16, b"."), b"third".ljust(16, b".")
    seen = []
    for topic_id in (again, ORDERS, again, third):
        consumer.topics["orders"] = (topic_id, 4)
        cluster.refresh_now(consumer.now_ms)
        consumer.take(DeadlineReached())
        consumer.settle()
        seen.append(cluster.known_id("orders"))

    assert seen == [again, again, again, third]


def test_older_leader_epoch_is_not_believed() -> None:
    """KIP-320: a broker that lags behind must not send us back to the old leader."""
    consumer = ConsumerDialogue(metadata_max_age_ms=1_000, group_id=None)
    consumer.take(PartitionsAssigned(starts={orders(0)[0]: Start(fence=consumer.new_fence(), offset=0)}))
    consumer.settle()
    consumer.by_hand.add(MetadataRequest)
    consumer.advance(1_100)
    old = MetadataResponseTopic(
        name="orders",
        topic_id=ORDERS,
        partitions=[MetadataResponsePartition(partition_index=0, leader_id=2, leader_epoch=2)],
    )
    brokers = [
        MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in ((1, 9092), (2, 9093))
    ]
    consumer.answer(consumer.expect(MetadataRequest), MetadataResponse(brokers=brokers, topics=[old]))

    assert consumer.machine._cluster.leader_of(orders(0)[0]) == BROKER


def test_topic_that_was_made_anew_starts_its_epochs_anew() -> None:
    """Another id is another topic."""
    consumer = ConsumerDialogue(metadata_max_age_ms=1_000, group_id=None)
    consumer.take(PartitionsAssigned(starts={orders(0)[0]: Start(fence=consumer.new_fence(), offset=0)}))
    consumer.settle()
    consumer.by_hand.add(MetadataRequest)
    consumer.advance(1_100)
    young = MetadataResponseTopic(
        name="orders",
        topic_id=b"y" * 16,
        partitions=[MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)],
    )
    brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)]
    consumer.answer(consumer.expect(MetadataRequest), MetadataResponse(brokers=brokers, topics=[young]))

    info = consumer.machine._cluster.partition(orders(0)[0])
    assert info is not None
    assert info.leader_epoch == 0
    assert consumer.machine._cluster.topic_name(ORDERS) is None


def test_topic_that_does_not_exist_has_no_partitions() -> None:
    """After a moment of grace; nothing is created by asking."""
    consumer = ConsumerDialogue()
    ask_partitions(consumer, "nosuch")
    consumer.advance(1_500)

    assert consumer.ended("partitions") == Complete(ticket="partitions", value=[])
    requests = [each.request for each in consumer.actions if isinstance(each, Send)]
    asked = [each for each in requests if isinstance(each, MetadataRequest)]
    assert asked and not any(each.allow_auto_topic_creation for each in asked)


def test_subscribed_topic_may_be_created_by_asking() -> None:
    """allow.auto.create.topics, as Kafka's consumer has it."""
    consumer = ConsumerDialogue()
    consumer.by_hand.add(MetadataRequest)
    consumer.subscribe("nosuch")
    first = consumer.expect(MetadataRequest)
    assert not first.allow_auto_topic_creation, "it is looked at before"
    consumer.answer(first, consumer.metadata(first))
    consumer.settle()

    assert consumer.expect(MetadataRequest).allow_auto_topic_creation


def test_offsets_of_several_leaders_come_back_together() -> None:
    """One ticket, one request per leader."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.brokers[2] = Endpoint("127.0.0.1", 9093)
    consumer.leaders[orders(1)[0]] = 2
    consumer.log_ends = {orders(0)[0]: 5, orders(1)[0]: 6}
    deadline_ms = consumer.now_ms + 10_000
    consumer.take(OffsetsAsked(timestamps=dict.fromkeys(orders(0, 1), -1), ticket="ends", deadline_ms=deadline_ms))
    consumer.settle()

    ended = consumer.ended("ends")

    assert isinstance(ended, Complete)
    assert ended.value == {orders(0)[0]: (5, -1), orders(1)[0]: (6, -1)}


def test_offsets_of_a_partition_that_does_not_exist_are_an_error() -> None:
    """The topic is there, the partition is not."""
    consumer = ConsumerDialogue(group_id=None)
    deadline_ms = consumer.now_ms + 10_000
    consumer.take(OffsetsAsked(timestamps={TopicPartition("orders", 9): -1}, ticket="ends", deadline_ms=deadline_ms))
    consumer.advance(3_000)

    ended = consumer.ended("ends")

    assert isinstance(ended, Fail)
    assert str(ended.error) == "orders has no partition 9: it has 4, counted from 0"
    assert str(pickle.loads(pickle.dumps(ended.error))) == str(ended.error)


def test_that_a_partition_does_not_exist_is_said_by_who_was_asked_since() -> None:
    """The topic may have grown, and the broker that is asked may stand still."""
    consumer = ConsumerDialogue(group_id=None)
    consumer.take(OffsetsAsked(timestamps={orders(3)[0]: -1}, ticket="before", deadline_ms=consumer.now_ms + 10_000))
    consumer.settle()
    consumer.by_hand.add(MetadataRequest)
    consumer.take(OffsetsAsked(timestamps={orders(4)[0]: -1}, ticket="ends", deadline_ms=consumer.now_ms + 10_000))
    consumer.advance(3_000)
    assert consumer.ended("ends") is None

    consumer.topics["orders"] = (ORDERS, 5)
    request = consumer.expect(MetadataRequest)
    consumer.answer(request, consumer.metadata(request))
    consumer.settle()

    assert isinstance(consumer.ended("ends"), Complete)


def test_metadata_error_of_a_topic_is_kept_apart() -> None:
    """One topic that may not be seen does not hide the others."""
    consumer = ConsumerDialogue()
    consumer.by_hand.add(MetadataRequest)
    consumer.subscribe("orders", "secret")
    request = consumer.expect(MetadataRequest)
    response = consumer.metadata(request)
    response.topics[1] = MetadataResponseTopic(name="secret", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    consumer.answer(request, response)

    assert len(consumer.machine._cluster.partitions_of("orders")) == 4
    assert consumer.machine._cluster.partitions_of("secret") == []
