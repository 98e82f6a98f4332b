"""Questions about many groups: how many requests they are, and what becomes of groups whose coordinator is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kohort import Admin, OffsetAndMetadata, TopicPartition
from kohort.errors import (
    AdvertisedAddressError,
    BrokerError,
    ConfigError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    PartlyDoneError,
)
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from kohort.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.wire.registry import VERSIONS, AnyApiKey, ApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import Answer, ScriptedBroker
from support.ports import quiet_port

#: As brokers of Kafka 2.3 announce it: one group at a time, and no groups of the new protocol.
OLD = {**VERSIONS, ApiKey.FIND_COORDINATOR: (0, 2), ApiKey.OFFSET_FETCH: (1, 5)}
del OLD[ApiKey.CONSUMER_GROUP_DESCRIBE]
FIRST = TopicPartition("t", 0)


class Coordinating:
    """Brokers that share the groups by the number at the end of their ids; what each row says can be told."""

    def __init__(self, stack: ExitStack, versions: list[dict[AnyApiKey, tuple[int, int]]]) -> None:
        self.brokers = [
            stack.enter_context(ScriptedBroker(self._of(number), versions=known))
            for number, known in enumerate(versions)
        ]
        #: group -> the codes that its rows carry at first.
        self.refusals: dict[str, list[ErrorCode]] = {}
        #: Where the coordinator of a group is said to be, if not there.
        self.said: dict[str, int] = {}
        self.is_silent: set[int] = set()

    def asked(self, api: ApiKey) -> list[Any]:
        """The requests of all brokers."""
        return [request for broker in self.brokers for _, key, _, request in broker.requests if key is api]

    def home(self, group: str) -> int:
        return int(group.rpartition("-")[2]) % len(self.brokers)

    def _of(self, number: int) -> Callable[[ApiKey, int, Message], Answer]:
        return lambda _, version, request: self._answer(number, version, request)

    def _answer(self, number: int, version: int, request: Message) -> Answer:
        match request:
            case MetadataRequest():
                rows = [(node, each.endpoint) for node, each in enumerate(self.brokers) if node not in self.is_silent]
                found = [MetadataResponseBroker(node_id=node, host=at.host, port=at.port) for node, at in rows]
                return MetadataResponse(brokers=found)
            case FindCoordinatorRequest():
                return self._find(version, request)
        if number in self.is_silent:
            self.brokers[number].drop_connections()
            return None
        match request:
            case ConsumerGroupDescribeRequest():
                return ConsumerGroupDescribeResponse(
                    groups=[
                        ConsumerGroup(group_id=group, group_state="Stable", error_code=self._code(number, group))
                        for group in request.group_ids
                    ]
                )
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(
                    groups=[DescribedGroup(group_id=group, group_state="Empty") for group in request.groups]
                )
            case DeleteGroupsRequest():
                rows = [(group, self._code(number, group)) for group in request.groups_names]
                return DeleteGroupsResponse(
                    results=[DeletableGroupResult(group_id=group, error_code=code) for group, code in rows]
                )
            case OffsetFetchRequest():
                return self._offsets(number, version, request)
        raise AssertionError(request)

    def _code(self, number: int, group: str) -> int:
        if self.home(group) != number:
            return ErrorCode.NOT_COORDINATOR
        codes = self.refusals.get(group)
        return codes.pop(0) if codes else 0

    def _find(self, version: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        rows = []
        for group in request.coordinator_keys if version >= 4 else [request.key]:
            at = self.brokers[self.said.pop(group, self.home(group))].endpoint
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED if group.startswith("secret") else 0
            rows.append(Coordinator(key=group, host=at.host, port=at.port, error_code=code))
        return FindCoordinatorResponse(coordinators=rows, host=rows[0].host, port=rows[0].port)

    def _offsets(self, number: int, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if version < 8:
            row = OffsetFetchResponsePartition(partition_index=0, committed_offset=7, metadata=request.group_id)
            topics = [OffsetFetchResponseTopic(name="t", partitions=[row])]
            return OffsetFetchResponse(topics=topics, error_code=self._code(number, request.group_id))
        groups = []
        for group in request.groups:
            one = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata=group.group_id)
            of_topic = [OffsetFetchResponseTopics(name="t", partitions=[one])]
            code = self._code(number, group.group_id)
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=of_topic, error_code=code))
        return OffsetFetchResponse(groups=groups)


@pytest.fixture
def cluster() -> Iterator[Coordinating]:
    """Three of them."""
    with ExitStack() as stack:
        yield Coordinating(stack, [dict(VERSIONS)] * 3)


def admin_of(cluster: Coordinating, timeout_ms: int = 20_000) -> Admin:
    return Admin(
        bootstrap_servers=str(cluster.brokers[0].endpoint), default_api_timeout_ms=timeout_ms, retry_backoff_ms=1
    )


def groups(count: int) -> list[str]:
    return [f"g-{number}" for number in range(count)]


def offsets_of(group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    return {FIRST: OffsetAndMetadata(7, group, -1)}


def test_each_coordinator_is_asked_once_about_its_groups(cluster: Coordinating) -> None:
    """KIP-699, KIP-709."""
    with admin_of(cluster) as admin:
        found = admin.list_group_offsets(groups(300))
    assert found == {group: offsets_of(group) for group in groups(300)}
    assert list(found) == groups(300), "in the order asked"
    assert len(cluster.asked(ApiKey.FIND_COORDINATOR)) == 1
    assert sorted(len(request.groups) for request in cluster.asked(ApiKey.OFFSET_FETCH)) == [100] * 3


def test_three_thousand_groups_and_one_named_so_often(cluster: Coordinating) -> None:
    with admin_of(cluster) as admin:
        assert len(admin.describe_groups(groups(3_000))) == 3_000
        assert len(cluster.asked(ApiKey.CONSUMER_GROUP_DESCRIBE)) == 30
        assert list(admin.describe_groups(["g-0"] * 3_000)) == ["g-0"]
        assert admin.describe_groups(group for group in ()) == {}
    assert len(cluster.asked(ApiKey.CONSUMER_GROUP_DESCRIBE)) == 31


def test_what_is_wrong_with_one_is_said_of_that_one(cluster: Coordinating) -> None:
    cluster.refusals["g-5"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with admin_of(cluster) as admin:
        found = admin.list_group_offsets([*groups(9), "secret-1"])
    wrong = {group: str(each) for group, each in found.items() if isinstance(each, KohortError)}
    assert wrong == {
        "g-5": "GROUP_AUTHORIZATION_FAILED while looking up the offsets of group g-5",
        "secret-1": "GROUP_AUTHORIZATION_FAILED while looking for the coordinator of group secret-1",
    }


def test_coordinator_that_moves_in_the_middle_is_followed(cluster: Coordinating) -> None:
    """Some groups are said to be where they are no more, and one is not loaded yet."""
    cluster.said = {"g-1": 2, "g-4": 0}
    cluster.refusals["g-0"] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with admin_of(cluster) as admin:
        assert admin.list_group_offsets(groups(6)) == {group: offsets_of(group) for group in groups(6)}
    asked = Counter(row.group_id for request in cluster.asked(ApiKey.OFFSET_FETCH) for row in request.groups)
    assert asked == {"g-0": 3, "g-1": 2, "g-2": 1, "g-3": 1, "g-4": 2, "g-5": 1}


def test_groups_of_a_coordinator_that_stays_away_are_named_and_the_others_known(cluster: Coordinating) -> None:
    cluster.is_silent = {2}
    with admin_of(cluster, timeout_ms=400) as admin:
        found = admin.list_group_offsets(groups(6))
    assert [group for group, each in found.items() if isinstance(each, KohortTimeoutError)] == ["g-2", "g-5"]
    assert "looking up the offsets of 2 groups failed" in str(found["g-2"])
    assert found["g-4"] == offsets_of("g-4")


def test_coordinator_that_comes_back_is_asked_again(cluster: Coordinating) -> None:
    cluster.is_silent = {2}
    cluster.said = Returning(cluster)
    with admin_of(cluster) as admin:
        assert admin.describe_group("g-2").state == "Stable"
    assert len(cluster.asked(ApiKey.CONSUMER_GROUP_DESCRIBE)) == 2


class Returning(dict[str, int]):
    """Lets the silent ones speak with the second question for a coordinator."""

    def __init__(self, cluster: Coordinating) -> None:
        super().__init__()
        self._cluster = cluster
        self._asked = 0

    def pop(self, group: str, home: Any = None) -> Any:
        del group
        self._asked += 1
        if self._asked > 1:
            self._cluster.is_silent = set()
        return home


@pytest.mark.parametrize("versions", [[OLD] * 3, [OLD, dict(VERSIONS), dict(VERSIONS)]], ids=["all", "one of three"])
def test_old_brokers_are_asked_about_one_group_at_a_time(versions: list[Any]) -> None:
    """Also while a cluster is being upgraded, and they are not all of one kind."""
    with ExitStack() as stack:
        cluster = Coordinating(stack, versions)
        with admin_of(cluster) as admin:
            assert admin.list_group_offsets(groups(120)) == {group: offsets_of(group) for group in groups(120)}
            described = admin.describe_groups(groups(120))
        assert {each.group_type for each in described.values() if not isinstance(each, KohortError)} >= {"classic"}
        assert len(described) == 120
        single = [request for request in cluster.brokers[0].requests if request[1] is ApiKey.OFFSET_FETCH]
        assert len(single) == 40


@pytest.mark.large
def test_old_brokers_are_asked_about_more_than_one_request_could_look_up() -> None:
    """All requests for many are refused, not only the first."""
    with ExitStack() as stack:
        cluster = Coordinating(stack, [OLD])
        with admin_of(cluster) as admin:
            assert admin.list_group_offsets(groups(1_100)) == {group: offsets_of(group) for group in groups(1_100)}


def test_deleting_says_what_is_deleted_and_what_is_not(cluster: Coordinating) -> None:
    cluster.refusals = {"g-1": [ErrorCode.NON_EMPTY_GROUP], "g-3": [ErrorCode.GROUP_ID_NOT_FOUND]}
    with admin_of(cluster) as admin, pytest.raises(PartlyDoneError) as why:
        admin.delete_groups(groups(5))
    assert list(why.value.done) == ["g-0", "g-2", "g-4"]
    assert {group: str(error) for group, error in why.value.failed.items()} == {
        "g-1": "NON_EMPTY_GROUP while deleting group g-1: it still has members; stop them first",
        "g-3": "GROUP_ID_NOT_FOUND while deleting group g-3: there is no group g-3",
    }


def test_the_only_one_that_is_not_deleted_is_its_own_error(cluster: Coordinating) -> None:
    cluster.refusals = {"g-1": [ErrorCode.NON_EMPTY_GROUP]}
    with admin_of(cluster) as admin, pytest.raises(BrokerError, match="stop them first"):
        admin.delete_groups(["g-1", "g-1"])


def test_group_that_is_gone_when_the_coordinator_is_back_was_deleted(cluster: Coordinating) -> None:
    """The first request was carried out, and its answer was lost."""
    cluster.is_silent = {2}
    cluster.said = Returning(cluster)
    cluster.refusals = {"g-2": [ErrorCode.GROUP_ID_NOT_FOUND]}
    with admin_of(cluster) as admin:
        admin.delete_groups(["g-2"])


def test_coordinators_that_cannot_be_reached_are_said_at_once() -> None:
    """They are named by an address that leads nowhere."""

    def answer(api: ApiKey, version: int, request: Message) -> Answer:
        nowhere = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)
        if isinstance(request, MetadataRequest):
            return MetadataResponse(brokers=[nowhere])
        assert isinstance(request, FindCoordinatorRequest), (api, version)
        rows = [Coordinator(key=key, host=nowhere.host, port=port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)

    port = quiet_port()
    with (
        ScriptedBroker(answer) as broker,
        Admin(bootstrap_servers=str(broker.endpoint)) as admin,
        pytest.raises(AdvertisedAddressError),
    ):
        admin.list_group_offsets(groups(6))


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ("billing", TypeError, r"like \['billing'\]"),
        (None, TypeError, "groups cannot be None"),
        (["billing", 7], TypeError, "groups cannot have 7"),
        (["\ud800"], ConfigError, "is no group id"),
        (["x" * 40_000], ConfigError, "has 40000 bytes"),
    ],
    ids=["text", "none", "number", "no text that has bytes", "long"],
)
def test_what_are_no_groups_is_refused_before_anybody_is_asked(given: Any, kind: type[Exception], says: str) -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        for ask in (
            admin.describe_groups,
            admin.list_group_offsets,
            admin.groups_offsets,
            admin.delete_groups,
        ):
            with pytest.raises(kind, match=says):
                ask(given)
