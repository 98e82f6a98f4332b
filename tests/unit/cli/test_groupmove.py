"""`kohort group move`: partitions given to members by the command line, and what it refuses in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kohort import Admin
from kohort.broker.embedded import Broker
from kohort.cli.main import main
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.registry import ApiKey
from support.dialogues.beating_members import BeatingMembers
from support.dialogues.broker_wire import RawClient


class Ended(NamedTuple):
    """How a command ended, with its lines."""

    code: int
    out: list[str]
    err: list[str]


Move = Callable[..., Ended]
#: No two tests have one topic.
NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"group.consumer.assignment.window.ms": 0}) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def members(client: RawClient) -> BeatingMembers:
    """a, b and the static worker-3 in a group of the test's own, with two of its topic's six partitions each."""
    topic = f"t{next(NUMBERS)}"
    client.create_topic(topic, partitions=6)
    group = BeatingMembers(client, f"group-of-{topic}")
    group.join("a", "b", topics=(topic,))
    group.join("c", topics=(topic,), instance_id="worker-3")
    return group


@pytest.fixture
def topic(members: BeatingMembers) -> str:
    return members.group_id.removeprefix("group-of-")


@pytest.fixture
def move(broker: Broker, members: BeatingMembers, capsys: pytest.CaptureFixture[str]) -> Move:
    """Runs `kohort group move` in the group; `group` names another one."""

    def run(*words: str, group: str | None = None) -> Ended:
        named = members.group_id if group is None else group
        try:
            code = main(["group", "move", named, "--bootstrap", broker.bootstrap_servers, *words])
        except SystemExit as why:
            # The parser has ended it.
            code = int(str(why.code))
        shown = capsys.readouterr()
        return Ended(code, shown.out.splitlines(), shown.err.splitlines())

    return run


@pytest.fixture
def own_configs(broker: Broker, members: BeatingMembers) -> Iterator[Callable[[], list[str]]]:
    """What the group is set to by itself."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield lambda: [row.name for row in admin.describe_group_configs(members.group_id) if row.is_own]


def data(ended: Ended) -> Any:
    assert (ended.code, ended.err) == (0, [])
    (line,) = ended.out
    return json.loads(line)


def on_their_way(move: Move) -> list[dict[str, Any]]:
    """What has not been granted yet."""
    return [row for row in data(move("--list", "--json")) if row["granted_ms"] is None]


def test_a_partition_is_moved_and_seen_on_its_way(move: Move, members: BeatingMembers, topic: str) -> None:
    number = members.partitions("a")[0]
    assert move(f"{topic}-{number}", "--to", "b").out[1].split() == [f"{topic}-{number}", "a", "b", "moves"]
    header, first, *_ = move("--list").out
    assert header.split() == ["PARTITION", "FROM", "TO", "PHASE", "SUBMITTED", "TOOK", "CAUSE"]
    assert first.split()[:4] == [f"{topic}-{number}", "a", "b", "revoking"]
    members.settle()
    assert number in members.partitions("b")
    assert move(f"{topic}-{number}", "--to", "b").out[1].split()[1:] == ["b", "b", "has", "it"]


def test_members_may_be_called_by_their_instance_id(move: Move, members: BeatingMembers, topic: str) -> None:
    number = members.partitions("a")[0]
    (row,) = data(move(f"{topic}-{number}", "--to", "worker-3", "--json"))["moves"]
    assert (row["from_member_id"], row["to_member_id"], bool(row["move_id"])) == ("a", "c", True)
    assert [each["to_member_id"] for each in on_their_way(move)] == ["c"]


def test_a_command_that_waits_ends_with_the_grant(move: Move, members: BeatingMembers, topic: str) -> None:
    wanted = [f"{topic}-{number}" for number in range(6)]
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(move, *wanted, "--to", "b", "--wait")
        while not waiting.done():
            members.settle()
        ended = waiting.result()
    assert (ended.code, ended.err) == (0, [])
    assert {line.split()[3] for line in ended.out[1:]} == {"granted", "has"}
    assert members.partitions("b") == list(range(6))


def test_a_command_that_waits_in_vain_says_for_whom(move: Move, members: BeatingMembers, topic: str) -> None:
    number = members.partitions("a")[0]
    ended = move(f"{topic}-{number}", "--to", "b", "--wait", "--timeout", "0")
    (said,) = ended.err
    assert (ended.code, ended.out) == (1, [])
    assert said.endswith(f"took too long: {topic}-{number} is to go to b from a, and is revoking")


def test_a_schedule_is_carried_out(move: Move, members: BeatingMembers, topic: str, tmp_path: Path) -> None:
    schedule = tmp_path / "moves.csv"
    rows = [f"{topic},{number},{'worker-3' if number < 3 else 'a'}" for number in range(6)]
    schedule.write_text("\n".join(["topic,partition,to", *rows]))
    assert len(move("--schedule", str(schedule)).out) == 1 + 6
    members.settle()
    assert [members.partitions(name) for name in "abc"] == [[3, 4, 5], [], [0, 1, 2]]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(move: Move, members: BeatingMembers, topic: str) -> None:
    number = members.partitions("a")[0]
    assert move(f"{topic}-{number}", "--to", "b", "--dry-run").out[1].split()[1:] == ["a", "b", "would", "move"]
    assert data(move(f"{topic}-{number}", "--to", "b", "--dry-run", "--json"))["is_dry_run"]
    assert on_their_way(move) == []


def test_the_pace_is_set_and_holds_for_what_is_asked_for_with_it(
    move: Move, members: BeatingMembers, topic: str
) -> None:
    """Requirement H4: a paused group begins no move; its owner keeps the partition until it goes on."""
    given = members.partitions("a")
    words = [f"{topic}-{number}" for number in given]
    ended = move("--pause", "--pace", "2.5", "--burst", "3", "--order", "lag", *words, "--to", "b")
    told = ["set group.moves.per.second=2.5", "set group.moves.burst=3", "set group.moves.paused=true"]
    told += ["set group.moves.order=lag"]
    assert (ended.code, ended.out[:4], len(ended.out)) == (0, told, 4 + 1 + len(given))
    members.settle()
    assert members.partitions("a") == given
    assert [row["phase"] for row in on_their_way(move)] == ["waiting"] * len(given)
    assert move("--resume").out == ["set group.moves.paused=false"]
    assert data(move("--pace", "0", "--dry-run", "--json")) == {
        "is_dry_run": True,
        "is_confirmed": False,
        "configs": {"group.moves.per.second": "0"},
        "moves": [],
    }
    members.settle()
    assert members.partitions("a") == []


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("@-0 --to nobody", (2, "has no member nobody; it has worker-3, a, b")),
        ("@-0 --to worker-4", (2, "has no member worker-4; did you mean worker-3?")),
        ("@-0 --to raw", (2, "are called raw; name one by its id: a, b, c")),
        ("@-6 --to b", (1, "1 of 1 moves cannot be made: UNKNOWN_TOPIC_OR_PARTITION: there is no partition @-6")),
        ("@-0 @-7 none-1 --to b", (1, "2 of 3 moves cannot be made: ")),
        ("@-0 --to", (2, "expected one argument")),
        ("@-0", (2, "no member for @-0: name one with --to")),
        ("--to b", (2, "which partitions is b to get? name them as TOPIC-N")),
        ("@ --to b", (2, "is no partition: TOPIC-N is expected")),
        ("@-99999999999 --to b", (2, "is no partition: TOPIC-N is expected")),
        ("", (2, "there is nothing to do: name partitions and --to, ")),
        ("--schedule x --to b", (2, "a schedule names its partitions and members: leave TOPIC-N and --to out")),
        ("--schedule x @-0", (2, "a schedule names its partitions and members")),
        ("--schedule /no/such/file", (1, "/no/such/file cannot be opened: No such file or directory")),
        ("--pace fast", (1, "INVALID_CONFIG")),
        ("--pace -1", (1, "INVALID_CONFIG")),
        ("--pace 1e9", (1, "INVALID_CONFIG")),
        ("--burst 0", (1, "INVALID_CONFIG")),
        ("--order alphabet", (1, "group.moves.order cannot be alphabet: one of name, lag, size is expected")),
        ("--pace 1 @-6 --to b", (1, "nothing was changed")),
        ("--pace fast @-0 --to b", (1, "INVALID_CONFIG")),
        ("--pause --resume", (2, "not allowed with argument")),
        ("--list --wait", (2, "--wait needs moves to wait for")),
        ("@-0 --to b --dry-run --wait", (2, "--wait needs moves to wait for")),
        ("--list --timeout 3", (2, "--timeout is for --wait")),
        ("@-0 --to b --wait --timeout never", (2, "'never' is no number of seconds from 0")),
        ("@-0 --to b --wait --timeout -1", (2, "--timeout")),
    ],
)
def test_what_cannot_be_is_one_sentence_and_changes_nothing(
    move: Move, own_configs: Callable[[], list[str]], topic: str, words: str, refused: tuple[int, str]
) -> None:
    """The topic is @."""
    code, saying = refused
    ended = move(*words.replace("@", topic).split())
    (said,) = ended.err
    assert (ended.code, ended.out) == (code, [])
    assert saying.replace("@", topic) in said
    assert on_their_way(move) == []
    assert own_configs() == []


def test_groups_without_moves_are_refused(move: Move, client: RawClient, topic: str) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"any")
    joining = JoinGroupRequest(
        group_id="a-classic-one", session_timeout_ms=30_000, protocol_type="consumer", protocols=[protocol]
    )
    assert client.ask(ApiKey.JOIN_GROUP, 1, joining).error_code == 0
    refused = move(f"{topic}-0", "--to", "b", group="a-classic-one")
    assert (refused.code, len(refused.err)) == (1, 1)
    assert "group a-classic-one is a classic group, in which a member computes the assignment" in refused.err[0]
    refused = move(f"{topic}-0", "--to", "b", group="a-classic-two")
    assert (refused.code, refused.err) == (1, ["kohort: there is no group a-classic-two; did you mean a-classic-one?"])
