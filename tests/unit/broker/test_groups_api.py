"""Group requests as bytes on the wire: what each version carries, and that parked answers keep their place."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kohort.broker.embedded import Broker
from kohort.coordinator.offsets.delete import EXPIRED_AT_ONCE
from kohort.errors import ErrorCode
from kohort.wire.messages import leave_group, offset_commit, offset_delete, offset_fetch
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient
from support.waiting import until


@pytest.fixture
def broker_config() -> dict[str, object]:
    return {
        "group.min.session.timeout.ms": 100,
        "offsets.topic.num.partitions": 3,
        "group.consumer.assignment.window.ms": 0,
    }


def versions(key: ApiKey) -> range:
    return range(VERSIONS[key][0], VERSIONS[key][1] + 1)


def join_request(member_id: str = "", *, group: str = "g", protocol: bytes = b"meta") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=protocol)],
    )


def join(client: RawClient, version: int, *, group: str = "g") -> tuple[str, int]:
    """Member id and generation of a group of one."""
    answer = client.ask(ApiKey.JOIN_GROUP, version, join_request(group=group))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = client.ask(ApiKey.JOIN_GROUP, version, join_request(answer.member_id, group=group))
    assert answer.error_code == 0, answer
    assert answer.leader == answer.member_id
    assert [(member.member_id, bytes(member.metadata)) for member in answer.members] == [(answer.member_id, b"meta")]
    return answer.member_id, answer.generation_id


def sync(client: RawClient, version: int, member_id: str, generation: int, *, group: str = "g") -> bytes:
    """The assignment that the leader gave itself."""
    row = SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[row],
    )
    answer = client.ask(ApiKey.SYNC_GROUP, version, request)
    assert answer.error_code == 0, answer
    return bytes(answer.assignment)


def heartbeat_848(client: RawClient, *, epoch: int = 0, member_id: str = "m", version: int = 1) -> object:
    request = ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    return client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)


def commit(
    client: RawClient, version: int, *, offset: int, topic_id: bytes = bytes(16), topic: str = "t", partition: int = 0
) -> list[int]:
    """The codes of a commit by nobody in particular."""
    row = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note"
    )
    rows = [offset_commit.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[row])]
    request = offset_commit.OffsetCommitRequest(group_id="simple", topics=rows)
    answer = client.ask(ApiKey.OFFSET_COMMIT, version, request)
    return [part.error_code for each in answer.topics for part in each.partitions]


# ---- classic groups


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_joins_alone_in_every_version(client: RawClient, version: int) -> None:
    member_id, generation = join(client, version)
    assert member_id.startswith("raw-"), "a fresh id begins with what the client calls itself"
    assert generation == 1


def test_from_version_4_on_a_member_is_first_told_its_id(client: RawClient) -> None:
    """KIP-394."""
    answer = client.ask(ApiKey.JOIN_GROUP, 4, join_request())
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id


def test_a_refused_join_names_the_member_that_asked(client: RawClient) -> None:
    for version in versions(ApiKey.JOIN_GROUP):
        answer = client.ask(ApiKey.JOIN_GROUP, version, join_request("stranger"))
        assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_the_leader_syncs_in_every_version(client: RawClient, version: int) -> None:
    assert sync(client, version, *join(client, 5)) == b"mine"


def test_sync_without_its_protocol_is_inconsistent_from_version_5_on(client: RawClient) -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    assert client.ask(ApiKey.SYNC_GROUP, 5, request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_a_member_heartbeats_in_every_version(client: RawClient, version: int) -> None:
    member_id, generation = join(client, 5)
    sync(client, 3, member_id, generation)

    def beat(member_id: str, generation: int) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        code: int = client.ask(ApiKey.HEARTBEAT, version, request).error_code
        return code

    assert beat(member_id, generation) == 0
    assert beat(member_id, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert beat("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("version", "skips"), [(5, False), (8, False), (9, True)])
def test_leader_that_comes_back_is_told_to_assign_nothing_if_it_understands(
    client: RawClient, version: int, skips: bool
) -> None:
    """KIP-814: the answer has a field for that from version 9 on; before it the leader is told what it always was."""
    request = join_request()
    request.group_instance_id = "i"
    first = client.ask(ApiKey.JOIN_GROUP, version, request)
    row = SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"mine")
    is_named = {"group_instance_id": "i", "protocol_type": "consumer", "protocol_name": "range"}
    synced = SyncGroupRequest(group_id="g", generation_id=1, member_id=first.member_id, assignments=[row], **is_named)
    assert client.ask(ApiKey.SYNC_GROUP, 5, synced).error_code == 0

    back = client.ask(ApiKey.JOIN_GROUP, version, request)

    assert (back.error_code, back.generation_id, back.leader) == (0, 1, back.member_id)
    assert back.skip_assignment is skips


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_a_member_leaves_in_every_version(client: RawClient, version: int) -> None:
    member_id, _ = join(client, 5)
    request = leave_group.LeaveGroupRequest(
        group_id="g", member_id=member_id, members=[leave_group.MemberIdentity(member_id=member_id)]
    )
    left, gone = (client.ask(ApiKey.LEAVE_GROUP, version, request) for _ in range(2))
    if version < 3:
        assert (left.error_code, gone.error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        assert [(row.member_id, row.error_code) for row in left.members] == [(member_id, 0)]
        assert gone.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_joins_that_are_parked_are_answered_when_the_last_member_is_back(broker: Broker, client: RawClient) -> None:
    """And a request that was read behind the parked one is answered after it."""
    first, generation = join(client, 5)
    sync(client, 3, first, generation)
    with RawClient(broker.port) as other:
        told = other.ask(ApiKey.JOIN_GROUP, 5, join_request()).member_id
        parked = other.send(ApiKey.JOIN_GROUP, 5, join_request(told))
        behind = other.send(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())

        again = client.ask(ApiKey.JOIN_GROUP, 5, join_request(first))
        assert (again.error_code, again.generation_id, len(again.members)) == (0, generation + 1, 2)
        correlation_id, joined = other.receive(ApiKey.JOIN_GROUP, 5)
        assert (correlation_id, joined.generation_id, joined.members) == (parked, generation + 1, [])
        assert other.receive(ApiKey.LIST_GROUPS, 4)[0] == behind


def test_a_silent_member_is_removed_by_its_deadline(client: RawClient) -> None:
    """The session timeout of a classic member runs on the broker's clock."""
    request = join_request()
    request.session_timeout_ms = 150
    answer = client.ask(ApiKey.JOIN_GROUP, 3, request)
    assert answer.error_code == 0
    assert sync(client, 3, answer.member_id, answer.generation_id) == b"mine"

    def state() -> str:
        described = client.ask(ApiKey.DESCRIBE_GROUPS, 4, DescribeGroupsRequest(groups=["g"]))
        text: str = described.groups[0].group_state
        return text

    assert state() == "Stable"
    for _ in range(100_000):
        if state() == "Empty":
            break
    assert state() == "Empty"


# ---- KIP-848


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_member_of_a_new_group_gets_everything(client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t", partitions=2)
    answer = heartbeat_848(client, version=version)
    assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, "m", 5_000)  # type: ignore[attr-defined]
    rows = answer.assignment.topic_partitions  # type: ignore[attr-defined]
    assert [(row.topic_id, row.partitions) for row in rows] == [(topic_id, [0, 1])]
    settled = heartbeat_848(client, epoch=answer.member_epoch, version=version)  # type: ignore[attr-defined]
    assert (settled.error_code, settled.assignment) == (0, None)  # type: ignore[attr-defined]


def test_the_broker_makes_the_id_in_version_0_and_the_client_in_version_1(client: RawClient) -> None:
    """KIP-1082."""
    client.create_topic("t")
    made = heartbeat_848(client, member_id="", version=0)
    assert made.error_code == 0 and made.member_id.startswith("raw-")  # type: ignore[attr-defined]
    assert heartbeat_848(client, member_id="", version=1).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


def test_a_heartbeat_of_a_member_that_nobody_knows_is_not_fatal(client: RawClient) -> None:
    """GROUP_ID_NOT_FOUND would end Java clients and librdkafka for good."""
    answer = heartbeat_848(client, epoch=5)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID and answer.error_message  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_DESCRIBE))
def test_a_new_group_is_described(client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t")
    heartbeat_848(client)
    request = ConsumerGroupDescribeRequest(group_ids=["new", "unknown"], include_authorized_operations=True)
    known, unknown = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request).groups
    assert (known.error_code, known.group_state, known.authorized_operations > 0) == (0, "Stable", True)
    (member,) = known.members
    (row,) = member.assignment.topic_partitions
    assert (member.member_id, member.client_id, member.client_host) == ("m", "raw", "/127.0.0.1")
    assert (row.topic_id, row.topic_name, row.partitions) == (topic_id, "t", [0])
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    if version >= 1:
        assert member.member_type == 1


# ---- offsets


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offsets_are_committed_in_every_version(client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t")
    assert commit(client, version, offset=7, topic_id=topic_id) == [0]
    if version >= 10:
        assert commit(client, version, offset=7, topic_id=b"1" * 16) == [ErrorCode.UNKNOWN_TOPIC_ID]
    else:
        assert commit(client, version, offset=7, topic="unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(client, version, offset=7, topic_id=topic_id, partition=9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_partitions_that_do_not_exist_do_not_hold_up_the_others_and_keep_their_place(client: RawClient) -> None:
    topic_id = client.create_topic("t")
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata=None)
    rows = [offset_commit.OffsetCommitRequestTopic(topic_id=each, partitions=[part]) for each in (b"1" * 16, topic_id)]
    answer = client.ask(ApiKey.OFFSET_COMMIT, 10, offset_commit.OffsetCommitRequest(group_id="simple", topics=rows))
    codes = [(row.topic_id, row.partitions[0].error_code) for row in answer.topics]
    assert codes == [(b"1" * 16, ErrorCode.UNKNOWN_TOPIC_ID), (topic_id, 0)]


@pytest.mark.parametrize("version", range(1, 8))
def test_committed_offsets_are_found_in_old_versions(client: RawClient, version: int) -> None:
    client.create_topic("t", partitions=2)
    commit(client, 9, offset=7)
    asked = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    request = offset_fetch.OffsetFetchRequest(group_id="simple", topics=asked)
    (row,) = client.ask(ApiKey.OFFSET_FETCH, version, request).topics
    assert [(part.committed_offset, part.metadata, part.error_code) for part in row.partitions] == [
        (7, "note", 0),
        (-1, "", 0),
    ]
    if version >= 2:
        everything = offset_fetch.OffsetFetchRequest(group_id="simple", topics=None)
        (row,) = client.ask(ApiKey.OFFSET_FETCH, version, everything).topics
        assert [part.partition_index for part in row.partitions] == [0]


@pytest.mark.parametrize("version", range(8, 11))
@pytest.mark.parametrize("asks_for_all", [False, True])
def test_committed_offsets_of_several_groups_are_found(client: RawClient, version: int, asks_for_all: bool) -> None:
    topic_id = client.create_topic("t")
    commit(client, 9, offset=7)
    topics = [offset_fetch.OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
    groups = [
        offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None if asks_for_all else topics)
        for name in ("simple", "other")
    ]
    answer = client.ask(ApiKey.OFFSET_FETCH, version, offset_fetch.OffsetFetchRequest(groups=groups))
    found = {
        group.group_id: [part.committed_offset for row in group.topics for part in row.partitions]
        for group in answer.groups
    }
    assert found == {"simple": [7], "other": [] if asks_for_all else [-1]}


def test_topic_ids_that_nobody_knows_are_told_apart_from_nothing_committed(client: RawClient) -> None:
    rows = [offset_fetch.OffsetFetchRequestTopics(topic_id=b"1" * 16, partition_indexes=[0])]
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=rows)
    answer = client.ask(ApiKey.OFFSET_FETCH, 10, offset_fetch.OffsetFetchRequest(groups=[group]))
    (part,) = answer.groups[0].topics[0].partitions
    assert (part.committed_offset, part.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_member_that_nobody_knows_is_not_told_that_nothing_is_committed(client: RawClient) -> None:
    """A client would go to auto.offset.reset, and records would be lost."""
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3, topics=None)
    answer = client.ask(ApiKey.OFFSET_FETCH, 9, offset_fetch.OffsetFetchRequest(groups=[group]))
    assert answer.groups[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_are_deleted(client: RawClient) -> None:
    client.create_topic("t")
    commit(client, 9, offset=7)
    part = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    rows = [offset_delete.OffsetDeleteRequestTopic(name="t", partitions=[part])]

    def delete(group: str) -> object:
        return client.ask(ApiKey.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest(group_id=group, topics=rows))

    answer = delete("simple")
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)  # type: ignore[attr-defined]
    assert delete("unknown").error_code == ErrorCode.GROUP_ID_NOT_FOUND  # type: ignore[attr-defined]


# ---- administration


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_of_all_shards_are_listed(client: RawClient, version: int) -> None:
    client.create_topic("t")
    for name in ("a", "b", "c", "d"):
        join(client, 5, group=name)
    heartbeat_848(client)
    rows = client.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest()).groups
    assert [row.group_id for row in rows] == ["a", "b", "c", "d", "new"]
    if version >= 5:
        assert {row.group_type.lower() for row in rows} == {"classic", "consumer"}
        (row,) = client.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(types_filter=["Consumer"])).groups
        assert (row.group_id, row.group_state) == ("new", "Stable")


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_classic_groups_are_described(client: RawClient, version: int) -> None:
    member_id, generation = join(client, 5)
    sync(client, 3, member_id, generation)
    request = DescribeGroupsRequest(groups=["g", "unknown"], include_authorized_operations=version >= 3)
    known, unknown = client.ask(ApiKey.DESCRIBE_GROUPS, version, request).groups
    assert (known.error_code, known.group_state, known.protocol_type, known.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = known.members
    assert (member.member_id, bytes(member.member_metadata), bytes(member.member_assignment)) == (
        member_id,
        b"meta",
        b"mine",
    )
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (unknown.error_code, unknown.group_state) == (expected, "Dead")


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_only_empty_groups_are_deleted(client: RawClient, version: int) -> None:
    client.create_topic("t")
    join(client, 5)
    commit(client, 9, offset=7)
    request = DeleteGroupsRequest(groups_names=["g", "simple", "unknown"])
    rows = client.ask(ApiKey.DELETE_GROUPS, version, request).results
    assert [(row.group_id, row.error_code) for row in rows] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", 0),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


@pytest.mark.process
@pytest.mark.parametrize("is_clean", [True, False])
def test_groups_survive_a_restart(tmp_path: Path, is_clean: bool) -> None:
    """Members, epochs and offsets are read back from the log; nobody is fenced for the broker's absence."""
    with Broker(data_dir=tmp_path, process=not is_clean) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        epoch = heartbeat_848(client).member_epoch  # type: ignore[attr-defined]
        assert commit(client, 9, offset=7) == [0]
        member_id, generation = join(client, 5)
        sync(client, 3, member_id, generation)
        if not is_clean:
            broker.kill()
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert heartbeat_848(client, epoch=epoch).error_code == 0  # type: ignore[attr-defined]
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        assert client.ask(ApiKey.HEARTBEAT, 3, request).error_code == 0
        asked = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        found = client.ask(ApiKey.OFFSET_FETCH, 7, offset_fetch.OffsetFetchRequest(group_id="simple", topics=asked))
        assert found.topics[0].partitions[0].committed_offset == 7


def test_offsets_are_forgotten_when_their_time_is_over() -> None:
    """Their own time here (version 2), of many groups in many steps; what has none is kept for a week."""
    config = {"offsets.retention.check.interval.ms": 20, "offsets.topic.num.partitions": 2}
    with Broker(config=config) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topics = [offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        for number in range(150):
            request = offset_commit.OffsetCommitRequest(group_id=f"g{number}", retention_time_ms=1, topics=topics)
            assert client.ask(ApiKey.OFFSET_COMMIT, 2, request).topics[0].partitions[0].error_code == 0
        client.ask(ApiKey.OFFSET_COMMIT, 5, offset_commit.OffsetCommitRequest(group_id="kept", topics=topics))

        def listed() -> list[str]:
            return [group.group_id for group in client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups]

        until(lambda: listed() == ["kept"], what="150 groups are forgotten", step=listed)


def test_round_of_retention_ends_with_what_one_step_has_left(caplog: pytest.LogCaptureFixture) -> None:
    """A step forgets a thousand offsets; the others of its groups go with the next step, not with the next round."""
    count = EXPIRED_AT_ONCE + 10
    rows = [offset_commit.OffsetCommitRequestPartition(partition_index=n, committed_offset=7) for n in range(count)]
    topics = [offset_commit.OffsetCommitRequestTopic(name="t", partitions=rows)]
    with (
        caplog.at_level(logging.INFO, logger="kohort"),
        Broker(config={"offsets.retention.check.interval.ms": 20}) as broker,
        RawClient(broker.port) as client,
    ):
        client.create_topic("t", count)
        client.ask(
            ApiKey.OFFSET_COMMIT, 2, offset_commit.OffsetCommitRequest(group_id="g", retention_time_ms=1, topics=topics)
        )

        def told() -> list[str]:
            return [line for line in caplog.messages if line.startswith("event=offsets_expired")]

        until(told, what="a round is over", step=lambda: client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()))
        assert told() == [f"event=offsets_expired offsets={count} groups=0"], "a group of offsets alone is none"
