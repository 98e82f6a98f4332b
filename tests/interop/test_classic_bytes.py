"""Groups whose members are no consumers: what they say to each other passes through as bytes that nobody reads.

Kafka Connect's workers, schema registries and others use the group protocol to elect a leader and to share work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient

pytestmark = pytest.mark.interop

#: Every byte there is, and what a reader of subscriptions would take for a huge length.
WORKER_1 = b"\x00\x01" + bytes(range(256)) + b"\x7f\xff\xff\xff"
WORKER_2 = b"http://worker-2:8083/" + b"\x00" * 1_000
TASKS = {1: b"\xff\xfe" + bytes(reversed(range(256))), 2: b'{"tasks": ["sink-0"]}'}


def join_request(metadata: bytes, member_id: str = "", *, kind: str = "connect") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="workers",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type=kind,
        protocols=[
            JoinGroupRequestProtocol(name="sessioned", metadata=metadata),
            JoinGroupRequestProtocol(name="compatible", metadata=b"\x00\x01" + metadata),
        ],
    )


def sync_request(member_id: str, assignments: dict[str, bytes]) -> SyncGroupRequest:
    rows = [SyncGroupRequestAssignment(member_id=name, assignment=found) for name, found in assignments.items()]
    return SyncGroupRequest(
        group_id="workers",
        generation_id=2,
        member_id=member_id,
        protocol_type="connect",
        protocol_name="sessioned",
        assignments=rows,
    )


def known_id(client: RawClient, metadata: bytes) -> str:
    answer = client.ask(ApiKey.JOIN_GROUP, 9, join_request(metadata))
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    name: str = answer.member_id
    return name


def test_workers_of_another_protocol_type_share_bytes(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as one, RawClient(broker.port) as two:
        one.create_topic("t")
        first = known_id(one, WORKER_1)
        assert one.ask(ApiKey.JOIN_GROUP, 9, join_request(WORKER_1, first)).generation_id == 1
        second = known_id(two, WORKER_2)
        two.send(ApiKey.JOIN_GROUP, 9, join_request(WORKER_2, second))
        leader = one.ask(ApiKey.JOIN_GROUP, 9, join_request(WORKER_1, first))
        follower = two.receive(ApiKey.JOIN_GROUP, 9)[1]

        assert {member.member_id: bytes(member.metadata) for member in leader.members} == {
            first: WORKER_1,
            second: WORKER_2,
        }
        assert (leader.protocol_type, leader.protocol_name, follower.leader) == ("connect", "sessioned", first)

        two.send(ApiKey.SYNC_GROUP, 5, sync_request(second, {}))
        mine = one.ask(ApiKey.SYNC_GROUP, 5, sync_request(first, {first: TASKS[1], second: TASKS[2]}))
        assert bytes(mine.assignment) == TASKS[1]
        assert bytes(two.receive(ApiKey.SYNC_GROUP, 5)[1].assignment) == TASKS[2]

        refused = one.ask(ApiKey.JOIN_GROUP, 9, join_request(b"", kind="consumer"))
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        partition = OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequestTopic(name="t", partitions=[partition])
        delete = OffsetDeleteRequest(group_id="workers", topics=[topic])
        assert one.ask(ApiKey.OFFSET_DELETE, 0, delete).error_code == ErrorCode.NON_EMPTY_GROUP

    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as one:
        for member_id in (first, second):
            beat = HeartbeatRequest(group_id="workers", generation_id=2, member_id=member_id)
            assert one.ask(ApiKey.HEARTBEAT, 4, beat).error_code == ErrorCode.NONE, "a restart is no rebalance"
        (group,) = one.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["workers"])).groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "connect", "sessioned")
        assert [(bytes(m.member_metadata), bytes(m.member_assignment)) for m in group.members] == [
            (WORKER_1, TASKS[1]),
            (WORKER_2, TASKS[2]),
        ]
        listed = one.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(types_filter=["CLASSIC"], states_filter=["stable"]))
        assert [(row.group_id, row.protocol_type, row.group_type) for row in listed.groups] == [
            ("workers", "connect", "classic")
        ]
        assert one.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(types_filter=["consumer"])).groups == []

        leave = LeaveGroupRequest(
            group_id="workers", members=[MemberIdentity(member_id=first), MemberIdentity(member_id=second)]
        )
        assert [row.error_code for row in one.ask(ApiKey.LEAVE_GROUP, 5, leave).members] == [0, 0]
        deleted = one.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["workers", "nobody's"]))
        assert [row.error_code for row in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
