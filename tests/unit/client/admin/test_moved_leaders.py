"""The admin client asks leaders by their addresses: one that has moved meanwhile is looked up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kohort import Admin
from kohort.client.core.actions import Endpoint
from kohort.errors import BrokerError, KohortTimeoutError
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kohort.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import Answer, ScriptedBroker
from support.ports import quiet_port

NOT_LEADER = 6
#: How many pictures of the cluster show the older leader: the machine's, the call's, and one after a failure.
OLD_PICTURES = 3


class Moving:
    """A broker that answers everything, and the address of another one that leads a partition by older pictures."""

    def __init__(self) -> None:
        self.staying: Endpoint | None = None
        self.leader: Endpoint | None = None
        self.pictures = 0
        self.moves_after = OLD_PICTURES

    def answer(self, api: ApiKey, version: int, request: Message) -> Answer:
        """As the broker that stays; it leads when the other one does no more."""
        match request:
            case MetadataRequest():
                self.pictures += 1
                return self._picture()
            case ListOffsetsRequest():
                return offset(0)
            case ListGroupsRequest():
                return ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])
            case DescribeConfigsRequest():
                return DescribeConfigsResponse()
        raise AssertionError(request)

    def _picture(self) -> MetadataResponse:
        assert self.staying is not None and self.leader is not None
        known = {2: self.staying, **({1: self.leader} if self.pictures <= self.moves_after else {})}
        leads = MetadataResponsePartition(partition_index=0, leader_id=min(known), leader_epoch=3 - min(known))
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=node, host=at.host, port=at.port) for node, at in known.items()],
            topics=[MetadataResponseTopic(name="t", topic_id=bytes(15) + b"t", partitions=[leads])],
        )


def offset(code: int) -> ListOffsetsResponse:
    """The answer to a question for one partition."""
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=7)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


@pytest.fixture
def cluster() -> Iterator[Moving]:
    moving = Moving()
    with ScriptedBroker(moving.answer) as staying:
        moving.staying = staying.endpoint
        moving.leader = Endpoint("127.0.0.1", quiet_port())
        yield moving


def admin_of(cluster: Moving, timeout_ms: int = 20_000) -> Admin:
    return Admin(bootstrap_servers=str(cluster.staying), default_api_timeout_ms=timeout_ms, retry_backoff_ms=10)


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.describe_topics(["t"])[0].partitions[0].end_offset == 7,
        lambda admin: [group.group_id for group in admin.list_groups()] == ["g"],
    ],
    ids=["describe_topics", "list_groups"],
)
def test_broker_that_is_gone_is_asked_no_more(cluster: Moving, ask: Callable[[Admin], bool]) -> None:
    """Nobody listens where it was, and in time nobody names it."""
    with admin_of(cluster) as admin:
        assert ask(admin)


def test_broker_that_leads_no_more_is_asked_no_more(cluster: Moving) -> None:
    """It still is there, and says so."""
    with ScriptedBroker(lambda *_: offset(NOT_LEADER)) as former, admin_of(cluster) as admin:
        cluster.leader = former.endpoint
        assert admin.describe_topics(["t"])[0].partitions[0].end_offset == 7


def test_leader_that_stays_away_is_said(cluster: Moving) -> None:
    """As long as it is named it may come back."""
    cluster.moves_after = 1_000_000
    with admin_of(cluster, 300) as admin, pytest.raises(KohortTimeoutError, match="looking up offsets failed"):
        admin.describe_topics(["t"])


def test_leader_that_nobody_else_is_is_said(cluster: Moving) -> None:
    """Everybody names it, and it denies it."""
    cluster.moves_after = 1_000_000
    with ScriptedBroker(lambda *_: offset(NOT_LEADER)) as former, admin_of(cluster, 300) as admin:
        cluster.leader = former.endpoint
        with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
            admin.describe_topics(["t"])
