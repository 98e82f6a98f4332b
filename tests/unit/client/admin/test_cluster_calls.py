"""Clusters, replicas and transactions as the admin client asks for them: of scripted brokers, and of none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort import Admin, TopicPartition
from kohort.client.core.actions import Endpoint
from kohort.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    KohortTimeoutError,
    PartlyDoneError,
    UnsupportedFeatureError,
)
from kohort.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kohort.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from kohort.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kohort.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.registry import VERSIONS, ApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import Answer, ScriptedBroker
from support.ports import quiet_port

T0 = TopicPartition("t", 0)


class Broker:
    """A broker that leads and coordinates everything, as soon as it has refused as often as a test says."""

    def __init__(self, partitions: int = 1) -> None:
        self.at: Endpoint | None = None
        self.partitions = partitions
        self.refusals: list[ErrorCode] = []
        self.asked: list[Message] = []

    def answer(self, api: ApiKey, version: int, request: Message) -> Answer:
        """What is asked of it."""
        del api, version
        assert self.at is not None
        self.asked.append(request)
        code = 0 if isinstance(request, MetadataRequest) or not self.refusals else self.refusals.pop(0)
        match request:
            case MetadataRequest():
                return self._metadata(self.at)
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(
                    coordinators=[
                        Coordinator(key=key, node_id=1, host=self.at.host, port=self.at.port, error_code=code)
                        for key in request.coordinator_keys
                    ]
                )
            case DescribeTransactionsRequest():
                rows = [TransactionState(error_code=code, transactional_id=each) for each in request.transactional_ids]
                return DescribeTransactionsResponse(transaction_states=rows)
            case DescribeProducersRequest():
                topics = [
                    TopicResponse(
                        name=topic.name,
                        partitions=[
                            PartitionResponse(partition_index=number, error_code=code)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in request.topics
                ]
                return DescribeProducersResponse(topics=topics)
            case ElectLeadersRequest():
                return ElectLeadersResponse(error_code=code)
        raise AssertionError(request)

    def _metadata(self, at: Endpoint) -> MetadataResponse:
        rows = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(self.partitions)]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=at.host, port=at.port)],
            topics=[MetadataResponseTopic(name="t", partitions=rows)],
        )

    def count(self, kind: type[Message]) -> int:
        """How often it was asked that."""
        return sum(isinstance(each, kind) for each in self.asked)


def admin_at(scripted: ScriptedBroker, broker: Broker, **options: int) -> Admin:
    broker.at = scripted.endpoint
    return Admin(bootstrap_servers=str(scripted.endpoint), retry_backoff_ms=1, **options)


def test_transactions_are_described_by_whoever_coordinates_them_now() -> None:
    broker = Broker()
    broker.refusals = [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]
    with ScriptedBroker(broker.answer) as scripted, admin_at(scripted, broker) as admin:
        (row,) = admin.describe_transactions(["a"])
    assert row.transactional_id == "a"
    assert (broker.count(FindCoordinatorRequest), broker.count(DescribeTransactionsRequest)) == (4, 3)


@pytest.mark.large
def test_three_thousand_things_are_one_question_to_each_broker() -> None:
    """And a thing that is named three thousand times is one thing."""
    broker = Broker(partitions=3_000)
    with ScriptedBroker(broker.answer) as scripted, admin_at(scripted, broker) as admin:
        assert admin.describe_producers(TopicPartition("t", number) for number in range(3_000)) == []
        assert admin.describe_producers([T0] * 3_000) == []
        rows = admin.describe_transactions([f"x-{number}" for number in range(3_000)])
        assert [row.transactional_id for row in rows] == [f"x-{number}" for number in range(3_000)]
    assert (broker.count(DescribeProducersRequest), broker.count(DescribeTransactionsRequest)) == (2, 1)


def test_leader_that_does_not_lead_yet_is_asked_again() -> None:
    broker = Broker()
    broker.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with ScriptedBroker(broker.answer) as scripted, admin_at(scripted, broker) as admin:
        assert admin.describe_producers([T0]) == []
    assert broker.count(DescribeProducersRequest) == 2


def test_leader_that_stays_another_is_said() -> None:
    broker = Broker()
    broker.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000
    with (
        ScriptedBroker(broker.answer) as scripted,
        admin_at(scripted, broker, default_api_timeout_ms=300) as admin,
        pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER while describing producers"),
    ):
        admin.describe_producers([T0])


@pytest.mark.parametrize(
    ("api", "newest", "ask"),
    [
        (ApiKey.ELECT_LEADERS, 0, lambda admin: admin.elect_leaders(unclean=True)),
        (ApiKey.UPDATE_FEATURES, 0, lambda admin: admin.update_features({"a": 1}, validate_only=True)),
        (ApiKey.LIST_TRANSACTIONS, 0, lambda admin: admin.list_transactions(running_longer_than_ms=1)),
        (ApiKey.LIST_TRANSACTIONS, 1, lambda admin: admin.list_transactions(pattern="a.*")),
        (ApiKey.DESCRIBE_CLUSTER, 1, lambda admin: admin.describe_cluster(include_fenced=True)),
        (
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            lambda admin: admin.alter_partition_reassignments({T0: [1]}, allow_replication_factor_change=False),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else None,
)
def test_older_broker_is_not_asked_for_less_than_was_meant(
    api: ApiKey, newest: int, ask: Callable[[Admin], object]
) -> None:
    """A version that cannot say it would have it done in another way."""
    broker = Broker()
    with ScriptedBroker(broker.answer, versions={**VERSIONS, api: (0, newest)}) as scripted:
        saying = rf"{scripted.endpoint} is a broker .* and has versions 0 to {newest} of \w+, not what this needs"
        with admin_at(scripted, broker) as admin, pytest.raises(UnsupportedFeatureError, match=saying):
            ask(admin)
    assert broker.count(ElectLeadersRequest) == 0


def test_election_of_the_preferred_is_held_by_an_old_broker_too() -> None:
    broker = Broker()
    versions = {**VERSIONS, ApiKey.ELECT_LEADERS: (0, 0)}
    with ScriptedBroker(broker.answer, versions=versions) as scripted, admin_at(scripted, broker) as admin:
        assert admin.elect_leaders() == []
    assert broker.count(ElectLeadersRequest) == 1


def test_broker_that_goes_away_in_the_middle_is_said_beside_what_the_others_told() -> None:
    """It was there when the call began, nobody listens at its address, and in time nobody names it."""
    gone = quiet_port()

    def answer(api: ApiKey, version: int, request: Message) -> Answer:
        del api, version
        if isinstance(request, DescribeLogDirsRequest):
            return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data")])
        assert isinstance(request, MetadataRequest)
        pictures.append(request)
        rows = [(1, scripted.endpoint.port), *([(2, gone)] if len(pictures) <= 4 else [])]
        brokers = [MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in rows]
        return MetadataResponse(brokers=brokers)

    pictures: list[Message] = []
    with (
        ScriptedBroker(answer) as scripted,
        Admin(bootstrap_servers=str(scripted.endpoint), retry_backoff_ms=1) as admin,
        pytest.raises(PartlyDoneError, match="looking for broker 2: the brokers now are 1") as partly,
    ):
        admin.describe_log_dirs()
    assert [row.path for row in partly.value.done[1]] == ["/data"]


def test_broker_that_says_nothing_is_named() -> None:
    """Nobody knows what became of what it was asked for."""
    broker = Broker()

    def answer(api: ApiKey, version: int, request: Message) -> Answer:
        return None if isinstance(request, ElectLeadersRequest) else broker.answer(api, version, request)

    with ScriptedBroker(answer) as scripted, admin_at(scripted, broker, default_api_timeout_ms=300) as admin:
        saying = f"electing leaders took too long: {scripted.endpoint} has not answered, and may still do"
        with pytest.raises(KohortTimeoutError, match=saying):
            admin.elect_leaders([T0])


WRONG: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda admin: admin.describe_log_dirs("12"), TypeError, "a list of ids is expected"),
    (lambda admin: admin.describe_log_dirs([-1]), ConfigError, "a broker cannot be -1"),
    (lambda admin: admin.describe_log_dirs([True]), ConfigError, "a broker cannot be True"),
    (lambda admin: admin.describe_log_dirs(partitions="t"), TypeError, "a list of them is expected"),
    (lambda admin: admin.describe_replica_log_dirs(("t", 0, 1)), TypeError, "a list is expected"),
    (lambda admin: admin.describe_replica_log_dirs([("t", 0)]), TypeError, "topic, partition and broker are expected"),
    (lambda admin: admin.alter_replica_log_dirs([("t", 0, 1)]), TypeError, "a mapping is expected"),
    (lambda admin: admin.alter_replica_log_dirs({("t", 0, 1): 5}), TypeError, "a mapping is expected"),
    (lambda admin: admin.update_features("group.version"), TypeError, "a mapping is expected"),
    (lambda admin: admin.update_features({"group.version": "1"}), ConfigError, "0 is off"),
    (lambda admin: admin.update_features({"a": 1}, downgrade="yes"), ConfigError, "'safe' loses nothing"),
    (lambda admin: admin.elect_leaders("t"), TypeError, "a list of them is expected"),
    (lambda admin: admin.elect_leaders(T0), TypeError, "a list of them is expected"),
    (lambda admin: admin.alter_partition_reassignments([T0]), TypeError, "a mapping is expected"),
    (lambda admin: admin.alter_partition_reassignments({T0: 1}), TypeError, "a list of ids is expected"),
    (lambda admin: admin.alter_partition_reassignments({T0: "12"}), TypeError, "a list of ids is expected"),
    (lambda admin: admin.alter_partition_reassignments({T0: []}), ConfigError, "one or more are expected"),
    (lambda admin: admin.alter_partition_reassignments({T0: [1, 1]}), ConfigError, "none twice"),
    (lambda admin: admin.alter_partition_reassignments({"t": [1]}), TypeError, "is no partition"),
    (lambda admin: admin.list_transactions("Ongoing"), TypeError, "a list of names is expected"),
    (lambda admin: admin.list_transactions(producer_ids="1"), TypeError, "a list of numbers is expected"),
    (lambda admin: admin.list_transactions(running_longer_than_ms=-1), ConfigError, "milliseconds, 0 or more"),
    (lambda admin: admin.list_transactions(pattern=5), TypeError, "pattern must be text"),
    (lambda admin: admin.describe_transactions("abc"), TypeError, "a list of names is expected"),
    (lambda admin: admin.fence_producers([1]), TypeError, "a name is text"),
    (lambda admin: admin.describe_producers("t"), TypeError, "a list of them is expected"),
    (lambda admin: admin.find_hanging_transactions([T0], older_than_ms=1.5), ConfigError, "milliseconds, 0 or more"),
    (lambda admin: admin.abort_transaction("t", 0), TypeError, "is no partition"),
    (lambda admin: admin.abort_transaction(T0, -1), ConfigError, "offset cannot be -1"),
]


@pytest.mark.parametrize(("ask", "kind", "says"), WRONG, ids=[says for _, _, says in WRONG])
def test_what_cannot_be_asked_is_refused_before_anybody_is(
    ask: Callable[[Admin], object], kind: type[Exception], says: str
) -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(kind, match=says):
        ask(admin)


def test_nothing_is_asked_about_nothing() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        assert admin.elect_leaders([]) == []
        assert admin.list_partition_reassignments([]) == []
        assert admin.describe_replica_log_dirs([]) == []
        assert admin.describe_producers([]) == []
        assert admin.describe_transactions([]) == []
        admin.alter_partition_reassignments({})
        admin.alter_replica_log_dirs({})
