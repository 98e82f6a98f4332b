"""Answers that are made in parts are those that would be made at once, and nobody waits for all of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker import chunked_responses
from kohort.broker.apis import describe_producers
from kohort.broker.apis.metadata import ROWS_AT_ONCE
from kohort.broker.chunked_responses import ROWS_PER_TURN
from kohort.broker.context import BrokerContext
from kohort.broker.transactions import coordination
from kohort.errors import ErrorCode
from kohort.storage.partitions.producers import ProducerRow, StoredBatch
from kohort.wire.messages import alter_configs
from kohort.wire.messages.alter_configs import AlterConfigsRequest
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.list_transactions import ListTransactionsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kohort.wire.registry import SERVED, ApiKey
from kohort.wire.schema import Message
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

TOPIC, GROUP = 2, 32
#: What an answer of parts is asked for: so many names, not all of one kind.
COUNT = 3 * ROWS_PER_TURN + 7
NAMES = [f"name-{number}" for number in range(COUNT)]


def configs_of(names: list[str]) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(
            resource_type=GROUP if number % 3 else TOPIC, resource_name=name, configuration_keys=None
        )
        for number, name in enumerate(["t", *names])
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True)


def changes_of(names: list[str]) -> IncrementalAlterConfigsRequest:
    resources = [
        AlterConfigsResource(resource_type=GROUP if number % 3 else TOPIC, resource_name=name, configs=[])
        for number, name in enumerate(names)
    ]
    return IncrementalAlterConfigsRequest(resources=resources)


def all_configs_of(names: list[str]) -> AlterConfigsRequest:
    resources = [
        alter_configs.AlterConfigsResource(resource_type=GROUP if number % 3 else TOPIC, resource_name=name, configs=[])
        for number, name in enumerate([*names, names[0]])
    ]
    return AlterConfigsRequest(resources=resources)


def growths_of(names: list[str]) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ["t", *names, names[0]]]
    return CreatePartitionsRequest(timeout_ms=30_000, topics=topics)


def offsets_of(names: list[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])


def coordinators_of(names: list[str]) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=names)


def topics_of(names: list[str]) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ["t", *names]]
    return CreateTopicsRequest(topics=topics, validate_only=True)


def commit_of(group: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)


#: API -> (first version with rows, a request for some names).
APIS: dict[ApiKey, tuple[int, Callable[[list[str]], Any]]] = {
    ApiKey.DESCRIBE_GROUPS: (0, lambda names: DescribeGroupsRequest(groups=names)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, lambda names: ConsumerGroupDescribeRequest(group_ids=names)),
    ApiKey.LIST_GROUPS: (0, lambda _: ListGroupsRequest()),
    ApiKey.DELETE_GROUPS: (0, lambda names: DeleteGroupsRequest(groups_names=names)),
    ApiKey.OFFSET_FETCH: (8, offsets_of),
    ApiKey.CREATE_TOPICS: (2, topics_of),
    ApiKey.FIND_COORDINATOR: (4, coordinators_of),
    ApiKey.DESCRIBE_CONFIGS: (1, configs_of),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, changes_of),
    ApiKey.ALTER_CONFIGS: (0, all_configs_of),
    ApiKey.CREATE_PARTITIONS: (0, growths_of),
}
VERSIONS = [
    (key, version)
    for key, (first, _) in APIS.items()
    for version in range(max(first, SERVED[key][0]), SERVED[key][1] + 1)
]


def written_for(key: ApiKey, version: int, names: list[str]) -> tuple[bytes, int]:
    """The bytes of the answer, and how many turns of the loop it took."""

    async def play() -> tuple[bytes, int]:
        with wired_broker({}) as context:
            connection = await connected(context)
            if key is ApiKey.LIST_GROUPS:
                connection.feed(*(encode_request(ApiKey.OFFSET_COMMIT, 8, commit_of(name)) for name in names))
                answers = 0
                while answers < len(names):
                    answers += len(await connection.receive(ApiKey.OFFSET_COMMIT, 8))
            connection.feed(encode_request(key, version, APIS[key][1](names)))
            turns = 0
            while not (written := connection.take_written()):
                turns += 1
                await asyncio.sleep(0)
            return written, turns

    return asyncio.run(play())


async def connected(context: BrokerContext) -> WiredConnection:
    context.cluster.create_topic("t", 1, {})
    return WiredConnection(context)


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value)))
def test_an_answer_of_parts_is_the_answer(monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int) -> None:
    parts, turns = written_for(key, version, NAMES)
    assert turns >= COUNT // ROWS_PER_TURN, "no turn makes more than its rows"
    monkeypatch.setattr(chunked_responses, "ROWS_PER_TURN", 10 * COUNT)
    whole, _ = written_for(key, version, NAMES)
    assert parts == whole


def test_a_connection_that_closes_ends_the_work() -> None:
    async def play() -> int:
        with wired_broker({}) as context:
            connection = await connected(context)
            connection.feed(encode_request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=NAMES)))
            begun = connection.requests_carried_out()
            connection.connection.connection_lost(None)
            for _ in range(COUNT):
                await asyncio.sleep(0)
            return connection.requests_carried_out() - begun - 1

    assert asyncio.run(play()) == 0


def test_a_resource_that_is_named_again_is_described_once_with_all_that_is_asked_of_it() -> None:
    def asked(keys: list[str] | None) -> DescribeConfigsResource:
        return DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=keys)

    async def play(*resources: DescribeConfigsResource) -> list[list[str]]:
        with wired_broker({}) as context:
            connection = await connected(context)
            request = DescribeConfigsRequest(resources=list(resources))
            answer = await connection.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
            return [[config.name for config in row.configs] for row in answer.results]

    (both,) = asyncio.run(play(asked(["retention.ms"]), asked(["segment.bytes"]), asked(["retention.ms"])))
    assert sorted(both) == ["retention.ms", "segment.bytes"]
    (everything,) = asyncio.run(play(asked(["retention.ms"]), asked(None)))
    assert len(everything) > 20


@pytest.mark.large
def test_metadata_of_many_partitions_is_put_together_in_several_turns() -> None:
    async def play() -> tuple[int, list[int]]:
        with wired_broker({}) as context:
            for name in "ab":
                context.cluster.create_topic(name, ROWS_AT_ONCE, {})
            connection = WiredConnection(context)
            connection.feed(encode_request(ApiKey.METADATA, 12, MetadataRequest(topics=None)))
            turns = 0
            while not connection.has_written:
                turns += 1
                await asyncio.sleep(0)
            ((_, answer),) = connection.take_answers(ApiKey.METADATA, 12)
            return turns, [len(topic.partitions) for topic in answer.topics if not topic.is_internal]

    turns, partitions = asyncio.run(play())
    assert turns >= 2
    assert partitions == [ROWS_AT_ONCE, ROWS_AT_ONCE]


def test_more_new_topics_than_a_minute_may_have_are_not_tried() -> None:
    """Names that are none are told so, wherever they stand."""

    async def play() -> list[tuple[str, int]]:
        with wired_broker({"auto.create.topics.per.minute": 2}) as context:
            names = ["a", "b", "c", "no name?"]
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
            answer = await WiredConnection(context).ask(ApiKey.METADATA, 9, request)
            return [(topic.name, topic.error_code) for topic in answer.topics]

    refused = ErrorCode.POLICY_VIOLATION
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert asyncio.run(play()) == [("a", 0), ("b", 0), ("c", refused), ("no name?", invalid)]


@pytest.mark.parametrize("per_turn", [7, 10_000])
def test_producers_of_one_partition_and_ids_of_one_shard_are_listed_in_several_turns(
    monkeypatch: pytest.MonkeyPatch, per_turn: int
) -> None:
    monkeypatch.setattr(describe_producers, "PRODUCERS_PER_TURN", per_turn)
    monkeypatch.setattr(coordination, "IDS_AT_ONCE", per_turn)
    rows = [
        ProducerRow(number, 1, (StoredBatch(0, number, 0, number, 5),), coordinator_epoch=2, written_ms=5)
        for number in range(100)
    ]

    async def play(key: ApiKey, version: int, request: Message) -> tuple[int, Any]:
        with wired_broker({"transaction.state.log.num.partitions": 1}) as context:
            context.transactions.start(context.producer_ids.take)
            connection = await connected(context)
            for number in range(100):
                asked = InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=1_000)
                if key is ApiKey.LIST_TRANSACTIONS:
                    await connection.ask(ApiKey.INIT_PRODUCER_ID, 5, asked)
            context.cluster.topics["t"].partitions[0].producers.restore(rows)
            connection.feed(encode_request(key, version, request))
            turns = 0
            while not connection.has_written:
                turns += 1
                await asyncio.sleep(0)
            return turns, connection.take_answers(key, version)[0][1]

    topics = [TopicRequest(name="t", partition_indexes=[0, 1, 0]), TopicRequest(name="no", partition_indexes=[0])]
    turns, answer = asyncio.run(play(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=topics)))
    assert (turns >= 2 * 100 // 7) == (per_turn == 7)
    found = [(row.name, each.partition_index, each.error_code) for row in answer.topics for each in row.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [("t", 0, 0), ("t", 1, unknown), ("t", 0, 0), ("no", 0, unknown)]
    for at in (0, 2):
        producers = answer.topics[at].partitions[0].active_producers
        assert [(each.producer_id, each.last_sequence) for each in producers] == [(n, n) for n in range(100)]
    turns, answer = asyncio.run(
        play(
            ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest(transactional_id_pattern="id-.*", state_filters=["No"])
        )
    )
    assert (answer.unknown_state_filters, answer.transaction_states) == (["No"], [])
    turns, answer = asyncio.run(
        play(ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest(transactional_id_pattern="id-.*"))
    )
    assert sorted(each.transactional_id for each in answer.transaction_states) == sorted(f"id-{n}" for n in range(100))
    assert (turns >= 100 // 7) == (per_turn == 7)
