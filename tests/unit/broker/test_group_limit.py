"""How many groups a broker takes on: what would make one more is refused, and nobody else notices."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.testing.cluster import Cluster
from kohort.wire.messages import offset_commit
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient

Protocol = Literal["classic", "consumer"]
REFUSED = ErrorCode.POLICY_VIOLATION
SAYING = "this broker has 3 groups, as many as max.groups allows; delete some, or allow more"


def commit(client: RawClient, group: str, partition: int = 0) -> int:
    row = offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    topics = [offset_commit.OffsetCommitRequestTopic(name="t", partitions=[row])]
    request = offset_commit.OffsetCommitRequest(group_id=group, topics=topics)
    code: int = client.ask(ApiKey.OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code
    return code


def beat(client: RawClient, group: str, *, epoch: int = 0) -> tuple[int, str | None]:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    return answer.error_code, answer.error_message


def join(client: RawClient, group: str, member_id: str = "") -> tuple[int, str]:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    answer = client.ask(ApiKey.JOIN_GROUP, 3, request)
    return answer.error_code, answer.member_id


def names(client: RawClient) -> list[str]:
    return sorted(row.group_id for row in client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups)


class TestLimit:
    @pytest.fixture
    def broker_config(self, broker_config: dict[str, object]) -> dict[str, object]:
        return broker_config | {"max.groups": 3}

    @pytest.fixture(autouse=True)
    def topic(self, broker: Broker) -> None:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 2)

    def test_what_would_make_one_more_is_refused_and_the_others_go_on(
        self, client: RawClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A group that has members and offsets is one."""
        code, member_id = join(client, "classic")
        assert (code, commit(client, "simple"), beat(client, "new")[0]) == (0, 0, 0)
        assert commit(client, "new") == ErrorCode.UNKNOWN_MEMBER_ID
        with caplog.at_level(logging.WARNING, "kohort.broker"):
            for _ in range(2):
                assert join(client, "further")[0] == REFUSED
                assert beat(client, "further") == (REFUSED, SAYING)
                assert commit(client, "further") == REFUSED
        assert names(client) == ["classic", "new", "simple"]
        assert [record.message.count(SAYING) for record in caplog.records] == [1], "told once, not again and again"

        # Those that are there have more members, more offsets, and go on.
        assert commit(client, "simple", partition=1) == 0
        still = HeartbeatRequest(group_id="classic", generation_id=1, member_id=member_id)
        assert client.ask(ApiKey.HEARTBEAT, 4, still).error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
        assert join(client, "simple")[0] == 0, "it has offsets, and gets its first member"
        assert names(client) == ["classic", "new", "simple"]

    def test_a_group_that_is_deleted_makes_room(self, client: RawClient) -> None:
        assert [commit(client, group) for group in ("a", "b", "c", "d")] == [0, 0, 0, REFUSED]
        client.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["b"]))
        assert [commit(client, group) for group in ("d", "b", "a")] == [0, REFUSED, 0]

    @pytest.mark.large
    def test_who_is_refused_for_another_reason_is_told_that(self, client: RawClient) -> None:
        assert [commit(client, group) for group in ("a", "b", "c")] == [0, 0, 0]
        assert beat(client, "further", epoch=5)[0] == ErrorCode.UNKNOWN_MEMBER_ID
        assert join(client, "further", "stranger")[0] == ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_consumer_says_why(
        self, broker: Broker, client: RawClient, protocol: Literal["classic", "consumer"]
    ) -> None:
        for group in ("a", "b", "c"):
            assert commit(client, group) == 0
        with kohort.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="further", group_protocol=protocol
        ) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(kohort.errors.KohortError, match=r"POLICY_VIOLATION|max\.groups"):
                for _ in range(100):
                    consumer.poll(0.1)


def test_brokers_of_a_cluster_count_together() -> None:
    place = kohort.TopicPartition("t", 0)
    with (
        Cluster(brokers=3, config={"max.groups": 4}) as cluster,
        kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topic("t", 1)
        for number in range(4):
            admin.alter_group_offsets(f"g{number}", {place: 1})
        with pytest.raises(kohort.errors.KohortError, match=r"POLICY_VIOLATION|max\.groups"):
            admin.alter_group_offsets("g4", {place: 1})
        admin.alter_group_offsets("g3", {place: 2})


def test_groups_of_the_log_are_all_there_though_fewer_are_allowed_by_now(tmp_path: Path) -> None:
    """Who allows fewer than there are loses none."""
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        assert [commit(client, group) for group in ("a", "b", "c")] == [0, 0, 0]
    with Broker(data_dir=tmp_path, config={"max.groups": 2}) as broker, RawClient(broker.port) as client:
        assert names(client) == ["a", "b", "c"]
        assert [commit(client, group) for group in ("a", "d")] == [0, REFUSED]
