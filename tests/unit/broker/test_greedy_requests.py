"""Requests about groups that name more than any client needs: the broker closes the connection and goes on."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.broker.embedded import Broker
from kohort.broker.limits.requests import MOST_NAMED, MOST_ORDINARY_BYTES, MOST_PARTITIONS, MOST_ROWS, MOST_ROWS_OF
from kohort.wire.codec import encode
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.primitives import encode_uvarint
from kohort.wire.registry import ApiKey, RequestHeader
from support.dialogues.broker_wire import RawClient

NAMES = [str(number) for number in range(MOST_NAMED + 1)]
NUMBERS = list(range(MOST_PARTITIONS + 1))


def fetch_of(topics: list[OffsetFetchRequestTopics]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


GREEDY: dict[str, tuple[ApiKey, int, Any]] = {
    "describe": (ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=NAMES)),
    "describe of the new kind": (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=NAMES)),
    "delete": (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=NAMES)),
    "list": (ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states_filter=NAMES)),
    "leave": (
        ApiKey.LEAVE_GROUP,
        5,
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="x")] * (MOST_NAMED + 1)),
    ),
    "sync": (
        ApiKey.SYNC_GROUP,
        4,
        SyncGroupRequest(group_id="g", assignments=[SyncGroupRequestAssignment(member_id="x")] * (MOST_NAMED + 1)),
    ),
    "commit": (
        ApiKey.OFFSET_COMMIT,
        9,
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[OffsetCommitRequestPartition(committed_metadata="")] * (MOST_PARTITIONS + 1),
                )
            ],
        ),
    ),
    "fetch of groups": (
        ApiKey.OFFSET_FETCH,
        9,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[])] * (MOST_NAMED + 1)),
    ),
    "fetch of partitions": (
        ApiKey.OFFSET_FETCH,
        9,
        fetch_of([OffsetFetchRequestTopics(name="t", partition_indexes=NUMBERS)]),
    ),
    "fetch of partitions, before version 8": (
        ApiKey.OFFSET_FETCH,
        7,
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=NUMBERS)]),
    ),
    "produce": (
        ApiKey.PRODUCE,
        9,
        ProduceRequest(
            acks=1,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(records=None)] * MOST_ROWS_OF[ApiKey.PRODUCE]
                )
            ],
        ),
    ),
    "metadata": (
        ApiKey.METADATA,
        9,
        MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (MOST_ROWS + 1)),
    ),
    "offsets": (
        ApiKey.LIST_OFFSETS,
        7,
        ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition()] * MOST_ROWS)]),
    ),
    "deletion of offsets": (
        ApiKey.OFFSET_DELETE,
        0,
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()] * (MOST_PARTITIONS + 1))
            ],
        ),
    ),
}


@pytest.mark.parametrize(("key", "version", "message"), GREEDY.values(), ids=GREEDY)
def test_too_many_rows_close_the_connection(
    broker: Broker, client: RawClient, key: ApiKey, version: int, message: Any
) -> None:
    client.send(key, version, message)
    assert client.is_closed_by_broker()
    with RawClient(broker.port) as other:
        assert other.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).error_code == 0


def test_long_request_that_carries_no_records_is_refused_before_it_is_read(client: RawClient) -> None:
    size = MOST_ORDINARY_BYTES + 1
    header = size.to_bytes(4, "big") + int(ApiKey.LIST_GROUPS).to_bytes(2, "big") + bytes(100)
    client.socket.sendall(header)
    assert client.is_closed_by_broker()


def test_long_request_that_carries_records_is_waited_for(client: RawClient) -> None:
    size = MOST_ORDINARY_BYTES + 1
    client.socket.sendall(size.to_bytes(4, "big") + int(ApiKey.PRODUCE).to_bytes(2, "big") + bytes(100))
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)


def test_group_that_is_asked_for_again_and_again_is_answered_once(client: RawClient) -> None:
    """A large group times a long list of its name would be more than the broker can write."""
    groups = ["g"] * 50_000
    assert len(client.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=groups)).groups) == 1
    described = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=groups))
    assert len(described.groups) == 1
    assert len(client.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=groups)).results) == 1


def test_offsets_that_are_asked_for_again_and_again_are_answered_once(client: RawClient) -> None:
    """A text of 4 KB may be committed with each: a few bytes must not become gigabytes."""
    client.create_topic("t")
    row = OffsetCommitRequestPartition(committed_offset=3, committed_metadata="x" * 4096)
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[row])])
    client.ask(ApiKey.OFFSET_COMMIT, 9, commit)
    again = fetch_of([OffsetFetchRequestTopics(name="t", partition_indexes=[0] * 1_000)] * 20)
    (group,) = client.ask(ApiKey.OFFSET_FETCH, 9, again).groups
    assert [[cell.committed_offset for cell in topic.partitions] for topic in group.topics] == [[3]]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 1_000)
    assert len(client.ask(ApiKey.OFFSET_FETCH, 9, everything).groups) == 1
    old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 1_000)])
    (topic,) = client.ask(ApiKey.OFFSET_FETCH, 7, old).topics
    assert len(topic.partitions) == 1


def test_group_id_of_a_megabyte_closes_the_connection(client: RawClient) -> None:
    """No string on the wire is longer than Kafka's; here it is the compact form, whose length could say so."""
    body = encode_uvarint((1 << 20) + 1) + b"x" * (1 << 20) + bytes(40)
    header = RequestHeader(
        request_api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, request_api_version=1, correlation_id=1, client_id="raw"
    )
    frame = encode(header, 2) + body
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    assert client.is_closed_by_broker()
