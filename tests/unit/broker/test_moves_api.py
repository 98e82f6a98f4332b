"""Moves of partitions on the wire and through Admin: submitted, described, waited for; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kohort import Admin, TopicPartition
from kohort.broker.embedded import Broker
from kohort.broker.limits.requests import MOST_BYTES_OF
from kohort.client.admin.results.moves import MOST_MOVES, GroupMove
from kohort.errors import BrokerError, ConfigError, ErrorCode, KohortError, KohortTimeoutError
from kohort.wire.messages.describe_moves import DescribeMovesRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.submit_moves import MoveToSubmit, SubmitMovesRequest
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.dialogues.beating_members import BeatingMembers
from support.dialogues.broker_wire import RawClient
from support.ports import quiet_port
from support.waiting import until


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=5_000) as admin:
        yield admin


@pytest.fixture
def members(client: RawClient) -> BeatingMembers:
    """a and b, who share t-0 to t-3 two and two; and "other", a topic that nobody reads."""
    client.create_topic("t", partitions=4)
    client.create_topic("other")
    group = BeatingMembers(client, "g")
    group.join("a", "b", topics=("t",))
    assert [len(group.partitions(name)) for name in "ab"] == [2, 2]
    return group


def first_of(members: BeatingMembers, name: str) -> TopicPartition:
    return TopicPartition("t", members.partitions(name)[0])


def open_moves(admin: Admin, group: str = "g") -> list[GroupMove]:
    """What has not ended."""
    return [move for move in admin.moves(group) if move.granted_ms is None]


def test_a_move_is_seen_from_the_request_to_the_grant(admin: Admin, members: BeatingMembers) -> None:
    """Requirement H9: the old owner gives up, commits and acknowledges before the new one has it."""
    partition = first_of(members, "a")
    move = admin.switch_partition("g", partition, "b")
    assert (move.topic, move.partition, move.to_member_id, move.is_taken) == (*partition, "b", True)
    (seen,) = open_moves(admin)
    assert (seen.move_id, seen.from_member_id, seen.to_member_id) == (move.move_id, "a", "b")
    assert (seen.topic, seen.partition, seen.granted_ms) == (*partition, None)

    members.settle()

    admin.wait_for_moves("g", [move])
    assert partition.partition in members.partitions("b")
    assert open_moves(admin) == []


def test_who_waits_for_moves_returns_with_the_grant(admin: Admin, members: BeatingMembers) -> None:
    moves = admin.submit_moves("g", {TopicPartition("t", number): "b" for number in range(4)})
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(admin.wait_for_moves, "g", moves)
        members.settle()
        waiting.result(10)
    assert members.partitions("b") == [0, 1, 2, 3]


def test_who_waits_in_vain_is_told_for_whom(admin: Admin, members: BeatingMembers) -> None:
    partition = first_of(members, "a")
    move = admin.switch_partition("g", partition, "b")
    with pytest.raises(KohortTimeoutError, match=f"{partition} is to go to b from a, and is revoking"):
        admin.wait_for_moves("g", [move], timeout_s=0)


def test_who_waits_for_what_the_group_does_not_want_any_more_is_told_so(admin: Admin, members: BeatingMembers) -> None:
    """A member that comes lets the assignor decide anew; one that goes gets nothing any more."""
    moves = admin.submit_moves("g", {TopicPartition("t", number): "b" for number in range(4)})
    members.join("c", topics=("t",))
    with pytest.raises(KohortError, match=r"t-\d is not to go to b any more: group g has changed"):
        admin.wait_for_moves("g", moves)
    members.leave("b")
    with pytest.raises(KohortError, match=r"b has left group g before it got t-\d"):
        admin.wait_for_moves("g", moves)


@pytest.mark.process
def test_who_waits_hears_of_the_grant_though_the_broker_is_killed_meanwhile(tmp_path: Path) -> None:
    """Requirement H9: a schedule is carried out, and each move confirmed, whatever becomes of the process."""
    config = {"group.consumer.assignment.window.ms": 0}
    with (
        Broker(data_dir=tmp_path, process=True, port=quiet_port(), config=config) as broker,
        RawClient(broker.port) as client,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ThreadPoolExecutor(1) as beside,
    ):
        client.create_topic("t", partitions=4)
        members = BeatingMembers(client, "g")
        members.join("a", "b", topics=("t",))
        moves = admin.submit_moves("g", {TopicPartition("t", number): "b" for number in range(4)})
        members.beat("a")
        before = open_moves(admin)
        assert {move.phase for move in before} == {"fenced"}
        waiting = beside.submit(admin.wait_for_moves, "g", moves, timeout_s=30)
        broker.kill()
        with Broker(data_dir=tmp_path, port=broker.port), RawClient(broker.port) as again:
            assert open_moves(admin) == before
            members.go_on(again)
            members.settle()
            waiting.result(30)
            ended = {move.move_id: move.granted_ms for move in admin.moves("g")}
    assert ended.keys() == {move.move_id for move in moves if move.move_id}
    assert None not in ended.values()


def test_each_move_of_a_schedule_stands_by_itself(admin: Admin, members: BeatingMembers) -> None:
    kept, given = members.partitions("b")[0], members.partitions("a")[0]
    wanted = {("t", given): "b", ("t", kept): "b", ("t", 9): "b", ("other", 0): "b", ("none", 0): "b"}
    wanted[("t", members.partitions("a")[1])] = "nobody"

    found = admin.submit_moves("g", {TopicPartition(*place): member for place, member in wanted.items()})

    assert [(move.topic, move.partition) for move in found] == list(wanted)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [ErrorCode.NONE, ErrorCode.NONE, unknown, ErrorCode.INVALID_REQUEST, unknown, ErrorCode.UNKNOWN_MEMBER_ID]
    assert [move.code for move in found] == codes
    assert [bool(move.message) for move in found] == [not move.is_taken for move in found]
    assert found[0].move_id and not found[1].move_id
    members.settle()
    assert sorted(len(members.partitions(name)) for name in "ab") == [1, 3]


@pytest.mark.parametrize(("order", "first"), [("lag", 2), ("size", 1)])
def test_what_has_most_records_or_most_bytes_begins_first(
    admin: Admin, client: RawClient, order: str, first: int
) -> None:
    """Requirement H4; the broker looks into its logs."""
    client.create_topic("t", partitions=4)
    client.produce("t", b"." * 1_000, b"." * 1_000, partition=1)
    client.produce("t", b"1", b"2", b"3", partition=2)
    members = BeatingMembers(client, "g")
    members.join("a", topics=("t",))
    slowly = {"group.moves.per.second": "0.001", "group.moves.order": order}
    admin.alter_group_configs("g", {**slowly, "group.moves.paused": "true"})
    members.join("b", topics=("t",))
    moves = admin.submit_moves("g", {TopicPartition("t", number): "b" for number in range(4)})
    assert all(move.is_taken for move in moves)
    admin.alter_group_configs("g", {"group.moves.paused": None})

    until(lambda: members.settle() or members.partitions("b"), what="the first move")

    assert members.partitions("b") == [first]


def test_what_is_only_validated_changes_nothing(admin: Admin, members: BeatingMembers) -> None:
    epoch = admin.describe_group("g").group_epoch
    (move,) = admin.submit_moves("g", {first_of(members, "a"): "b"}, validate_only=True)
    assert move.is_taken
    assert admin.submit_moves("g", {}) == []
    assert (admin.describe_group("g").group_epoch, open_moves(admin)) == (epoch, [])


@pytest.mark.usefixtures("members")
@pytest.mark.parametrize(
    ("place", "member_id", "code", "saying"),
    [
        ("t:4", "b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t-4"),
        ("t:-1", "b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t--1"),
        ("other:0", "b", ErrorCode.INVALID_REQUEST, "the member b does not subscribe to other"),
        ("t:0", "", ErrorCode.UNKNOWN_MEMBER_ID, "is not in the group g"),
    ],
)
def test_a_switch_that_cannot_be_is_an_error_with_a_sentence(
    admin: Admin, place: str, member_id: str, code: ErrorCode, saying: str
) -> None:
    topic, number = place.split(":")
    with pytest.raises(BrokerError, match=saying) as refused:
        admin.switch_partition("g", TopicPartition(topic, int(number)), member_id)
    assert refused.value.code is code
    assert refused.value.during.startswith("moving ")
    assert open_moves(admin) == []


@pytest.mark.parametrize(
    ("group", "saying"),
    [
        ("nobody", "GROUP_ID_NOT_FOUND.*the group nobody does not exist"),
        ("old", "INCONSISTENT_GROUP_PROTOCOL.*the group old is a classic one: its leader shares the partitions out"),
        ("", "INVALID_GROUP_ID"),
    ],
    ids=["unknown", "classic", "nameless"],
)
def test_groups_that_have_no_moves_are_refused(admin: Admin, client: RawClient, group: str, saying: str) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"any")
    joining = JoinGroupRequest(
        group_id="old", session_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol]
    )
    assert client.ask(ApiKey.JOIN_GROUP, 1, joining).error_code == 0
    with pytest.raises(BrokerError, match=saying):
        admin.moves(group)
    with pytest.raises(BrokerError, match=saying):
        admin.switch_partition(group, TopicPartition("t", 0), "b")
    with pytest.raises(BrokerError, match=saying):
        admin.submit_moves(group, {}, validate_only=True)


@pytest.mark.parametrize(
    "moves",
    [
        [("t", 0)],
        {"t-0": "b"},
        {("t", "0"): "b"},
        {("t", True): "b"},
        {("t", 0, 1): "b"},
        {("t", 0): 7},
        {("t", 0): None},
    ],
    ids=repr,
)
def test_wrong_types_are_type_errors(admin: Admin, moves: object) -> None:
    with pytest.raises(TypeError, match="expected"):
        admin.submit_moves("g", moves)  # type: ignore[arg-type]


@pytest.mark.parametrize("moves", [None, 7, [("t", 0)], [TopicPartition("t", 0)]], ids=repr)
def test_what_nobody_has_submitted_is_not_waited_for(admin: Admin, moves: object) -> None:
    with pytest.raises(TypeError, match="expected what submit_moves"):
        admin.wait_for_moves("g", moves)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_s", ["7", True])
def test_a_wait_of_no_seconds_is_a_type_error(admin: Admin, timeout_s: object) -> None:
    with pytest.raises(TypeError, match="expected seconds"):
        admin.wait_for_moves("g", [], timeout_s=timeout_s)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "error"), [(7, TypeError), (None, TypeError), ("x" * 32_768, ConfigError), ("\ud800", ConfigError)]
)
def test_what_is_no_group_id_is_said_at_once(admin: Admin, group: str, error: type[Exception]) -> None:
    """Nobody is asked who coordinates it: there is no request that could say it."""
    for ask in (admin.moves, admin.describe_group, admin.group_history, admin.explain_group, admin.group_offsets):
        with pytest.raises(error, match="group id"):
            ask(group)
    with pytest.raises(error, match="group id"):
        admin.submit_moves(group, {})


def test_more_than_can_be_are_not_sent(admin: Admin) -> None:
    with pytest.raises(ConfigError, match="10001 moves cannot be submitted at once: at most 10000"):
        admin.submit_moves("g", {TopicPartition("t", number): "b" for number in range(MOST_MOVES + 1)})
    with pytest.raises(ConfigError, match="no number is that large"):
        admin.submit_moves("g", {TopicPartition("t", 2**31): "b"})


@pytest.mark.large
def test_a_schedule_as_long_as_may_be_is_carried_out(admin: Admin, client: RawClient) -> None:
    client.create_topic("wide", partitions=MOST_MOVES)
    members = BeatingMembers(client, "wide")
    members.join("a", "b", topics=("wide",))

    found = admin.submit_moves("wide", {TopicPartition("wide", number): "b" for number in range(MOST_MOVES)})

    assert all(move.is_taken for move in found)
    assert len(open_moves(admin, "wide")) == MOST_MOVES // 2
    members.settle()
    assert len(members.partitions("b")) == MOST_MOVES


def test_one_partition_named_three_thousand_times_is_not_moved(client: RawClient, members: BeatingMembers) -> None:
    (number, _) = members.partitions("a")
    moves = [MoveToSubmit(topic="t", partition=number, to_member_id="b")] * 3_000
    answer = client.ask(PrivateApiKey.SUBMIT_MOVES, 0, SubmitMovesRequest(group_id="g", moves=moves))
    assert {row.error_code for row in answer.results} == {ErrorCode.INVALID_REQUEST}
    assert len(answer.results) == 3_000


@pytest.mark.large
def test_too_many_moves_are_refused_and_too_many_bytes_end_the_connection(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    BeatingMembers(client, "g").join("a", topics=("t",))
    many = SubmitMovesRequest(group_id="g", moves=[MoveToSubmit()] * (MOST_MOVES + 1))
    answer = client.ask(PrivateApiKey.SUBMIT_MOVES, 0, many)
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_REQUEST, [])
    assert "10000 are possible" in answer.error_message

    most = MOST_BYTES_OF[PrivateApiKey.SUBMIT_MOVES]
    client.send(PrivateApiKey.SUBMIT_MOVES, 0, SubmitMovesRequest(moves=[MoveToSubmit()] * (most // 7)))
    assert client.is_closed_by_broker()
    with RawClient(broker.port) as other:
        assert other.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).error_code == 0


def test_as_many_moves_are_described_as_were_asked_for(
    admin: Admin, client: RawClient, members: BeatingMembers
) -> None:
    admin.submit_moves("g", {TopicPartition("t", number): "b" for number in range(4)})
    answer = client.ask(PrivateApiKey.DESCRIBE_MOVES, 0, DescribeMovesRequest(group_id="g", max_moves=1))
    assert (len(answer.moves), answer.total) == (1, 2)
    for number in (0, -1):
        refused = client.ask(PrivateApiKey.DESCRIBE_MOVES, 0, DescribeMovesRequest(group_id="g", max_moves=number))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
