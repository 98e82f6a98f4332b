"""KIP-848 requests as bytes on the wire: every field there and back, hostile ones, names and patterns."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.wire.messages import offset_commit
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient

#: The wire has no longer strings.
LONGEST = 32_767


def beat(client: RawClient, member_id: str, epoch: int, *, version: int = 1, **fields: object) -> Any:
    """A heartbeat in group "g"; who joins subscribes to "t" unless told otherwise."""
    if epoch == 0:
        joining: dict[str, object] = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        fields = {**joining, **fields}
    request = ConsumerGroupHeartbeatRequest(
        group_id=str(fields.pop("group_id", "g")),
        member_id=member_id,
        member_epoch=epoch,
        **fields,  # type: ignore[arg-type]
    )
    return client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)


def describe(client: RawClient, *group_ids: str, version: int = 1) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids))
    return list(client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request).groups)


@pytest.mark.parametrize("version", [0, 1])
def test_every_field_of_a_member_is_described(client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t", partitions=2)
    fields: dict[str, object] = {"instance_id": "one", "rack_id": "r1", "server_assignor": "range"}
    if version == 1:
        pytest.importorskip("re2")
        fields["subscribed_topic_regex"] = "[tu]"
    joined = beat(client, "a", 0, version=version, **fields)
    assert (joined.error_code, joined.error_message, joined.member_id) == (0, None, "a")
    (group,) = describe(client, "g", version=version)
    assert (group.group_state, group.assignor_name) == ("Stable", "range")
    assert group.group_epoch == group.assignment_epoch == joined.member_epoch
    (member,) = group.members
    assert (member.instance_id, member.rack_id, member.member_epoch) == ("one", "r1", joined.member_epoch)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "[tu]" if version == 1 else None)
    for assignment in (member.assignment, member.target_assignment):
        assert [(row.topic_id, row.topic_name, row.partitions) for row in assignment.topic_partitions] == [
            (topic_id, "t", [0, 1])
        ]
    assert member.member_type == (1 if version == 1 else -1)


def test_a_group_without_a_name_and_one_asked_for_twice(client: RawClient) -> None:
    client.create_topic("t")
    beat(client, "a", 0)
    rows = describe(client, "", "g", "g", "x" * LONGEST)
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_GROUP_ID, 0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_the_longest_name_of_a_group_is_served(client: RawClient) -> None:
    client.create_topic("t")
    assert beat(client, "a", 0, group_id="x" * LONGEST).error_code == 0
    assert describe(client, "x" * LONGEST)[0].error_code == 0


def test_a_static_member_goes_comes_back_and_is_removed_by_its_name(client: RawClient) -> None:
    client.create_topic("t", partitions=2)
    epoch = beat(client, "a", 0, instance_id="one").member_epoch
    refused = beat(client, "b", 0, instance_id="one")
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID and "in use" in refused.error_message
    gone = beat(client, "a", -2, instance_id="one")
    assert (gone.error_code, gone.member_epoch, gone.assignment) == (0, -2, None)
    back = beat(client, "b", 0, instance_id="one")
    assert (back.member_epoch, [row.partitions for row in back.assignment.topic_partitions]) == (epoch, [[0, 1]])
    assert beat(client, "a", epoch, instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = offset_commit.OffsetCommitRequest(
        group_id="g",
        member_id="a",
        generation_id_or_member_epoch=epoch,
        group_instance_id="one",
        topics=[offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    answer = client.ask(ApiKey.OFFSET_COMMIT, 9, commit)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    rows = [MemberIdentity(member_id="", group_instance_id="one"), MemberIdentity(member_id="", group_instance_id="x")]
    left = client.ask(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=rows))
    assert [row.error_code for row in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert describe(client, "g")[0].group_state == "Empty"


def test_what_is_said_twice_counts_once(client: RawClient) -> None:
    """Rows of one topic are one list: a second row does not take back what the first one says is owned."""
    topic_id = client.create_topic("t", partitions=3)
    epoch = beat(client, "a", 0, subscribed_topic_names=["t", "t", "t"]).member_epoch
    beat(client, "b", 0)
    rows = [
        TopicPartitions(topic_id=topic_id, partitions=[2, 2, 1]),
        TopicPartitions(topic_id=topic_id, partitions=[0]),
    ]
    answer = beat(client, "a", epoch, topic_partitions=rows)
    assert (answer.error_code, answer.member_epoch) == (0, epoch)
    (group,) = describe(client, "g")
    held = {member.member_id: member.assignment.topic_partitions for member in group.members}
    assert [sorted(row.partitions) for row in held["a"]] == [[0, 1, 2]]
    assert group.members[0].subscribed_topic_names == ["t"]


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"subscribed_topic_names": [f"topic-{number}" for number in range(100_000)]}, ErrorCode.INVALID_REQUEST),
        (0, {"subscribed_topic_names": ["x" * LONGEST]}, ErrorCode.INVALID_REQUEST),
        (0, {"subscribed_topic_regex": "(a|b){900}" * 1_000}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (0, {"subscribed_topic_regex": "x" * LONGEST}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (0, {"server_assignor": "x" * LONGEST}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (0, {"instance_id": "x" * LONGEST}, ErrorCode.INVALID_REQUEST),
        (0, {"rack_id": "x" * LONGEST}, ErrorCode.INVALID_REQUEST),
        (0, {"rebalance_timeout_ms": -(2**31)}, ErrorCode.INVALID_REQUEST),
        (-(2**31), {}, ErrorCode.INVALID_REQUEST),
        (
            1,
            {"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=list(range(300_000)))]},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            1,
            {
                "topic_partitions": [
                    TopicPartitions(topic_id=number.to_bytes(16, "big"), partitions=list(range(10_001)))
                    for number in range(20)
                ]
            },
            ErrorCode.INVALID_REQUEST,
        ),
    ],
    ids=lambda value: next(iter(value), "none") if isinstance(value, dict) else str(value),
)
def test_hostile_fields_get_the_fields_error_and_change_nothing(
    client: RawClient, epoch: int, fields: dict[str, object], code: ErrorCode
) -> None:
    client.create_topic("t")
    answer = beat(client, "a", epoch, **fields)
    assert answer.error_code == code
    assert 0 < len(answer.error_message) < 1_500
    assert describe(client, "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat(client, "a", 0).error_code == 0
