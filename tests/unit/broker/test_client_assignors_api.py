"""Members that run an assignor themselves, on the wire: who is asked, what it is given, what it may bring."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin
from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace
from kohort.broker.apis.consumer_group_prepare_assignment import _subscriptions
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.testing import Cluster
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ClientAssignor, ConsumerGroupHeartbeatRequest
from kohort.wire.messages.consumer_group_install_assignment import (
    AssignmentToInstall,
    ConsumerGroupInstallAssignmentRequest,
)
from kohort.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.waiting import until

PREPARE, INSTALL = PrivateApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT
MINE = ClientAssignor(
    name="mine", minimum_version=1, maximum_version=3, reason=0, metadata_version=2, metadata_bytes=b"lag"
)


def named(name: str, metadata: bytes = b"") -> ClientAssignor:
    """An assignor that a member has."""
    return ClientAssignor(
        name=name, minimum_version=0, maximum_version=0, reason=0, metadata_version=0, metadata_bytes=metadata
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


@pytest.mark.parametrize(
    ("assignors", "why"),
    [
        ([named(f"a{number}") for number in range(17)], "17 assignors, more than 16"),
        ([named("a", b"!" * 65_537)], "65537 bytes, more than 65536"),
        ([named("a", b"!" * 40_000), named("b", b"!" * 40_000)], "80000 bytes, more than 65536"),
        ([named("a"), named("a")], "has a more than once"),
    ],
)
def test_what_a_member_says_of_its_assignors_is_bounded(
    client: RawClient, assignors: list[ClientAssignor], why: str
) -> None:
    refused = beat(client, "a", 0, client_assignors=assignors)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert why in refused.error_message
    assert beat(client, "a", 0).error_code == 0


def test_the_longest_metadata_of_sixteen_assignors_are_kept_and_given(client: RawClient) -> None:
    assignors = [named(f"a{number}", bytes([number]) * 4_096) for number in range(16)]
    joined = beat(client, "a", 0, client_assignors=assignors)
    (member,) = prepare(client, "a", joined.member_epoch).members
    assert member.metadata_bytes == bytes(4_096)


def test_who_is_asked_hears_it_at_once_by_the_heartbeat_that_is_held() -> None:
    """Requirement H1: the next heartbeat would be half a minute away."""
    slow = {"group.consumer.heartbeat.interval.ms": 30_000, "group.consumer.max.heartbeat.interval.ms": 30_000}
    config = {"group.consumer.session.timeout.ms": 120_000, "group.consumer.max.session.timeout.ms": 120_000, **slow}
    with Broker(config=config) as broker, RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.ask(
            ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="kohort", client_software_version="1")
        )
        client.create_topic("t", partitions=4)
        asked = beat(client, "a", 0)
        assert asked.should_compute_assignment, "who joins and is asked is not held"
        given = prepare(client, "a", asked.member_epoch)
        install(client, "a", asked.member_epoch, 0, 0, 0, 0, group_epoch=given.group_epoch)
        told = beat(client, "a", asked.member_epoch)
        has = told.assignment.topic_partitions
        held = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="a", member_epoch=told.member_epoch, topic_partitions=has
        )
        client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, held)
        assert beat(other, "b", 0).error_code == 0
        _, answer = client.receive(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
        assert answer.should_compute_assignment
        given = prepare(client, "a", told.member_epoch)
        assert [member.member_id for member in given.members] == ["a", "b"]


@pytest.mark.process
def test_a_broker_that_is_killed_in_the_middle_asks_anew(tmp_path: Path) -> None:
    """What members said is in the log, and so is what was said to them; the computation is not."""
    config = {"group.consumer.assignment.window.ms": 0}
    with Broker(data_dir=tmp_path, process=True, config=config) as broker, RawClient(broker.port) as client:
        client.create_topic("t", partitions=4)
        joined = beat(client, "a", 0)
        given = prepare(client, "a", joined.member_epoch)
        told = AssignmentToInstall(member_id="a", metadata_version=1, metadata_bytes=b"yours")
        install(client, "a", 1, 0, 0, 0, 0, group_epoch=given.group_epoch, members=[told])
        epoch = beat(client, "a", 1).member_epoch
        assert beat(client, "b", 0).error_code == 0
        stale = prepare(client, "a", epoch).group_epoch
        broker.kill()
        with Broker(data_dir=tmp_path, port=broker.port, config=config), RawClient(broker.port) as again:
            answers = [beat(again, "a", epoch)]
            assert answers[0].client_assignment.metadata_bytes == b"yours"
            until(
                lambda: answers[-1].should_compute_assignment,
                step=lambda: answers.append(beat(again, "a", epoch)),
                what="a is not asked",
            )
            refused = install(again, "a", epoch, 0, 0, 1, 1, group_epoch=stale)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            given = prepare(again, "a", epoch)
            assert [member.metadata_bytes for member in given.members] == [b"lag", b"lag"]
            assert install(again, "a", epoch, 0, 0, 1, 1, group_epoch=given.group_epoch).error_code == 0


def port_of(cluster: Cluster, broker: int | None) -> int:
    assert broker is not None
    return int(cluster.address(broker).rpartition(":")[2])


def test_a_coordinator_that_moves_to_another_broker_asks_anew() -> None:
    with Cluster(3, config={"group.consumer.assignment.window.ms": 0}) as cluster:
        here = cluster.coordinator("g")
        there = next(number for number in cluster.brokers if number != here)
        with RawClient(port_of(cluster, here)) as first, RawClient(port_of(cluster, there)) as second:
            first.create_topic("t", partitions=4)
            joined = beat(first, "a", 0)
            given = prepare(first, "a", joined.member_epoch)
            cluster.move_coordinator("g", there)
            gone = install(first, "a", joined.member_epoch, 0, 0, 0, 0, group_epoch=given.group_epoch)
            assert gone.error_code == ErrorCode.NOT_COORDINATOR
            refused = install(second, "a", joined.member_epoch, 0, 0, 0, 0, group_epoch=given.group_epoch)
            assert refused.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_MEMBER_ID)
            until(
                lambda: beat(second, "a", joined.member_epoch).should_compute_assignment,
                what="a is not asked by the new coordinator",
            )
            given = prepare(second, "a", joined.member_epoch)
            assert [member.metadata_bytes for member in given.members] == [b"lag"]
            answer = install(second, "a", joined.member_epoch, 0, 0, 0, 0, group_epoch=given.group_epoch)
            assert answer.error_code == 0


@pytest.mark.large
def test_many_members_of_many_partitions_are_assigned_in_one_request_each(client: RawClient) -> None:
    client.create_topic("wide", partitions=5_000)
    wide = [client.create_topic(f"topic-{number}", partitions=2) for number in range(40)]
    names = [f"m{number:03}" for number in range(100)]
    topics = ["wide", *(f"topic-{number}" for number in range(40))]
    epochs = {
        name: beat(client, name, 0, subscribed_topic_names=topics if number % 2 else ["wide"]).member_epoch
        for number, name in enumerate(names)
    }
    given = prepare(client, "m000", epochs["m000"])
    assert (len(given.topics), len(given.subscriptions), len(given.members)) == (1 + len(wide), 2, 100)
    owners = [1] * len(given.owners)
    answer = install(client, "m000", epochs["m000"], *owners, group_epoch=given.group_epoch)
    assert (answer.error_code, answer.error_message) == (0, None)
    after = beat(client, "m001", epochs["m001"], topic_partitions=[])
    assert sum(len(row.partitions) for row in after.assignment.topic_partitions) == 5_080


def test_an_administrator_sees_which_assignor_is_used_and_how_it_fails(broker: Broker, client: RawClient) -> None:
    joined = beat(client, "a", 0)
    given = prepare(client, "a", joined.member_epoch)
    assert beat(client, "b", 0).error_code == 0
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert (admin.describe_group("g").assignor, admin.describe_group("g").assignor_failure) == ("mine", None)
        assert install(client, "a", joined.member_epoch, group_epoch=given.group_epoch, error=9).error_code == 0
        assert admin.describe_group("g").assignor_failure == "mine of a failed with error 9"


def test_only_clients_of_ours_are_told_of_the_apis(broker: Broker) -> None:
    """docs/reference/private-protocol.md: keys of ours are announced to clients that name their software "kohort"."""
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
