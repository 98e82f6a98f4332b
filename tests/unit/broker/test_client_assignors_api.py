"""Members that run an assignor themselves, on the wire: who is asked, what it is given, what it may bring."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace
from kohort.broker.apis.consumer_group_prepare_assignment import _subscriptions
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ClientAssignor, ConsumerGroupHeartbeatRequest
from kohort.wire.messages.consumer_group_install_assignment import (
    AssignmentToInstall,
    ConsumerGroupInstallAssignmentRequest,
)
from kohort.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.broker_wire import RawClient

PREPARE, INSTALL = PrivateApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT
MINE = ClientAssignor(
    name="mine", minimum_version=1, maximum_version=3, reason=0, metadata_version=2, metadata_bytes=b"lag"
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"group.consumer.assignment.window.ms": 0}) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        client.create_topic("t", partitions=4)
        yield client


def beat(client: RawClient, member_id: str, epoch: int, **fields: Any) -> Any:
    """A heartbeat; one that joins says everything, and has "mine"."""
    if epoch == 0:
        joins = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 60_000, "client_assignors": [MINE]}
        fields = {"topic_partitions": [], **joins, **fields}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


def prepare(client: RawClient, member_id: str, epoch: int, group_id: str = "g") -> Any:
    request = ConsumerGroupPrepareAssignmentRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
    return client.ask(PREPARE, 0, request)


def install(client: RawClient, member_id: str, epoch: int, *owners: int, **fields: Any) -> Any:
    request = ConsumerGroupInstallAssignmentRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, owners=list(owners), **fields
    )
    return client.ask(INSTALL, 0, request)


def test_a_member_is_asked_prepares_and_installs(client: RawClient) -> None:
    """KIP-848 as drafted: ConsumerGroupPrepareAssignment, ConsumerGroupInstallAssignment."""
    joined = beat(client, "a", 0)
    assert joined.should_compute_assignment
    given = prepare(client, "a", joined.member_epoch)
    assert (given.error_code, given.assignor_name, given.assignor_version) == (0, "mine", 3)
    assert [(topic.topic_name, topic.partitions) for topic in given.topics] == [("t", 4)]
    assert [row.topics for row in given.subscriptions] == [[0]]
    (member,) = given.members
    assert (member.member_id, member.member_epoch, member.subscription) == ("a", joined.member_epoch, 0)
    assert (member.metadata_version, member.metadata_bytes, member.reason) == (2, b"lag", 0)
    assert (given.owners, given.max_moves) == ([-1] * 4, -1)
    told = AssignmentToInstall(member_id="a", metadata_version=1, metadata_bytes=b"yours")
    answer = install(client, "a", joined.member_epoch, 0, 0, 0, 0, group_epoch=given.group_epoch, members=[told])
    assert (answer.error_code, answer.error_message) == (0, None)
    after = beat(client, "a", joined.member_epoch)
    assert after.member_epoch == given.group_epoch
    assert [row.partitions for row in after.assignment.topic_partitions] == [[0, 1, 2, 3]]
    said = after.client_assignment
    assert (said.error, said.metadata_version, said.metadata_bytes) == (0, 1, b"yours")
    assert beat(client, "a", after.member_epoch).client_assignment is None


def test_who_was_not_asked_is_told_so(client: RawClient) -> None:
    first, second = beat(client, "a", 0), beat(client, "b", 0)
    assert (first.should_compute_assignment, second.should_compute_assignment) == (True, False)
    refused = prepare(client, "b", second.member_epoch)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "is not the one that computes" in refused.error_message
    assert install(client, "b", second.member_epoch, 0, 0, 1, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert prepare(client, "c", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert prepare(client, "a", 17).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert prepare(client, "a", 1, group_id="other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("owners", "why"),
    [
        ([0, 0, 0], "gave 3 owners for 4 partitions"),
        ([0, 0, 0, 0, 0], "gave 5 owners for 4 partitions"),
        ([0, 0, 1, 0], "left partition t-2 without an owner"),
        ([0, 0, -1, 0], "left partition t-2 without an owner"),
    ],
)
def test_owners_that_are_foreign_double_or_missing_are_refused(client: RawClient, owners: list[int], why: str) -> None:
    joined = beat(client, "a", 0)
    given = prepare(client, "a", joined.member_epoch)
    answer = install(client, "a", joined.member_epoch, *owners, group_epoch=given.group_epoch)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert why in answer.error_message


def test_a_heartbeat_with_impossible_versions_names_both(client: RawClient) -> None:
    wrong = ClientAssignor(
        name="mine", minimum_version=4, maximum_version=3, reason=0, metadata_version=4, metadata_bytes=b""
    )
    refused = beat(client, "a", 0, client_assignors=[wrong])
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "MinimumVersion 4 and MaximumVersion 3" in refused.error_message


def test_only_clients_of_ours_are_told_of_the_apis(broker: Broker) -> None:
    """docs/private-protocol.md: keys of ours are announced to clients that name their software "kohort"."""
    for software, is_ours in (("kohort", True), ("librdkafka", False)):
        with RawClient(broker.port) as client:
            request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
            keys = {row.api_key for row in client.ask(ApiKey.API_VERSIONS, 3, request).api_keys}
            assert ({PREPARE, INSTALL} <= keys) is is_ours


def test_what_members_want_alike_is_said_once() -> None:
    topics = PartitionSpace([(bytes([number]) * 16, 1) for number in range(3)])
    members = tuple(AssignableMember(member_id=name) for name in "abcd")
    group = Assignable(
        space=topics,
        topic_names=("t", "u", "v"),
        members=members,
        subscribers=((0, 1, 3), (0, 1), (2, 3)),
        owner=array("i", [-1] * 3),
    )
    assert _subscriptions(group) == ([0, 0, 1, 2], [(0, 1), (2,), (0, 2)])
