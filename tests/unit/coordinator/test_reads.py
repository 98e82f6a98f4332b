"""From a partition's last reader to its next: what is seen of fetches, and what is said where they are not."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.commands import MemberDisconnected
from kohort.coordinator.journal_events import open_rebalances as kept
from kohort.coordinator.journal_events.open_rebalances import LastRead, Reads
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.explained import last
from support.dialogues.mixed_dialogue import MixedDialogue


def two_members(**settings: Any) -> MixedDialogue:
    """Two members of a group at rest, each with two partitions; a test says what they fetch."""
    group = MixedDialogue({"t": 4}, **settings)
    for name in ("a", "b"):
        group.heartbeat(name, epoch=0, client_id=name, client_host="/10.0.0.1")
        group.settle()
    group.reads_at_once = False
    return group


def disconnect(group: GroupDialogue, member_id: str) -> None:
    """The connection of a member ends without a word."""
    command = MemberDisconnected(cause=group.cause(), group_id="g", member_id=member_id)
    group._commit(command, group.shard.handle(command, now_ms=group.now_ms))


def reads_of(group: GroupDialogue, *, set_up: int = 1) -> list[dict[str, str]]:
    """What was told of partitions that are read again, without the first rows, which are of the set-up."""
    entries = [row.entry for row in group.journal.history("g").rows if row.entry.event == "partitions_read"]
    return [{"by": entry.member_id, **dict(entry.details)} for entry in entries][set_up:]


def silence(group: MixedDialogue, member_id: str, other: str) -> None:
    """A member is silent until it is given up, while another is not."""
    while member_id in group.group.members:
        group.advance(1_000)
        if other in group.group.members:
            group.report(group.member(other))


def test_a_killed_member_s_partitions_are_unread_from_its_last_fetch() -> None:
    """Two members, a session of 8 s: unread for 7.8 s, told as 118 ms."""
    group = two_members(group_consumer_session_timeout_ms=8_000)
    group.fetch("b", [2, 3])
    group.advance(200)
    killed_ms = group.now_ms
    group.fetch("b", [2, 3])
    disconnect(group, "b")
    silence(group, "b", "a")
    group.settle()
    taken_ms = group.now_ms
    group.advance(30)
    group.fetch("a", [0, 1])
    assert reads_of(group) == []
    group.advance(30)
    group.fetch("a", [0, 1, 2, 3])
    (told,) = reads_of(group)
    assert told == {
        "by": "a",
        "from": "b",
        "partitions": "t-2 t-3",
        "read_ms": str(killed_ms),
        "unread_ms": str(taken_ms + 60 - killed_ms),
    }
    found = last(group)
    assert found.unread_ms == taken_ms + 60 - killed_ms
    assert [(phase.name, phase.member) for phase in found.phases] == [
        ("unnoticed", "b"), ("gathered", None), ("computed", None), ("taken", None),
    ]  # fmt: skip
    assert found.phases[0].began_ms == killed_ms and found.phases[-1].ended_ms == taken_ms + 60
    assert "the connection of b had ended 7.8 s before it was missed: group.disconnect.grace.ms" in found.sentence


def test_the_hint_is_the_session_where_no_connection_was_seen_to_end() -> None:
    group = two_members()
    group.fetch("b", [2, 3])
    silence(group, "b", "a")
    group.settle()
    group.fetch("a", [2, 3])
    assert "group.disconnect.grace.ms" not in last(group).sentence
    assert last(group).sentence.endswith("a member may be silent for 45 s, its session timeout, before it is missed")


def test_a_connection_that_ended_before_the_member_was_heard_of_again_says_nothing() -> None:
    group = two_members()
    disconnect(group, "b")
    group.advance(5_000)
    group.report(group.member("b"))
    heard_ms = group.now_ms
    silence(group, "b", "a")
    group.settle()
    group.fetch("a", [2, 3])
    (told,) = reads_of(group)
    assert (told["read_ms"], told["at_most"]) == (str(heard_ms), "true")
    assert "group.disconnect.grace.ms" not in last(group).sentence


def test_a_member_that_is_asked_reads_until_then() -> None:
    """What it fetches meanwhile is what it keeps."""
    group = GroupDialogue({"t": 4})
    group.stable(a=[0, 1, 2, 3])
    group.reads_at_once = False
    group.fetch("a", [0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.advance(50)
    group.heartbeat("a", epoch=1)
    asked_ms = group.now_ms
    group.advance(100)
    group.fetch("a", [0, 1])
    group.heartbeat("a", epoch=1, owned=[0, 1])
    group.heartbeat("b", epoch=2)
    group.advance(20)
    group.fetch("b", [2])
    group.advance(20)
    group.fetch("b", [3])
    first, second = reads_of(group, set_up=0)
    assert (first["by"], first["from"], first["partitions"]) == ("b", "a", "t-2")
    assert [(told["read_ms"], told["unread_ms"]) for told in (first, second)] == [
        (str(asked_ms), "120"), (str(asked_ms), "140"),
    ]  # fmt: skip
    assert "at_most" not in first


def test_what_its_taker_never_read_is_unread_since_the_one_before() -> None:
    group = two_members()
    group.fetch("b", [2, 3])
    read_ms = group.now_ms
    group.leave("b")
    group.settle()
    group.advance(5_000)
    group.leave("a")
    group.heartbeat("c", epoch=0, client_id="c")
    group.settle()
    group.fetch("c", [2, 3])
    (told,) = reads_of(group)
    assert (told["by"], told["from"], told["read_ms"]) == ("c", "b", str(read_ms))


def test_a_fetch_that_does_not_say_whose_it_is_belongs_to_that_client() -> None:
    group = two_members()
    group.leave("b")
    group.settle()
    reads = group.reporter.reads
    assert not reads.of_client(("a", "/10.0.0.2")) and not reads.of_client(("b", "/10.0.0.1"))
    assert list(reads.of_client(("a", "/10.0.0.1"))) == [("g", "a")]
    # A session that goes on names nothing: it is looked at once by each connection.
    assert [reads.is_new(("g", "a"), number) for number in (1, 2, 1, 2)] == [True, True, False, False]
    group.fetch("a", [2, 3])
    assert [told["partitions"] for told in reads_of(group)] == ["t-2 t-3"]
    assert not reads.of_client(("a", "/10.0.0.1"))


def test_a_commit_shows_that_its_member_reads_by_then() -> None:
    group = two_members()
    group.leave("b")
    group.settle()
    group.advance(4_000)
    group.commit({2: 5}, member_id="a", epoch=group.member("a").member_epoch)
    (told,) = reads_of(group)
    assert (told["partitions"], told["at_most"]) == ("t-2", "true")
    assert int(told["unread_ms"]) >= 4_000


def test_a_classic_member_reads_until_the_rebalance_that_takes_its_partitions() -> None:
    group = MixedDialogue({"t": 4})
    x, y = group.classic_group(x=[0, 1], y=[2, 3]).values()
    group.advance(2_000)
    group.reads_at_once = False
    disconnect(group, y.member_id)
    ended_ms = group.now_ms
    while group.beat(x.member_id, x.generation) == 0:
        group.advance(1_000)
    group.rebalance(x, shares={"x": [0, 1, 2, 3]})
    group.fetch(x.member_id, [2, 3])
    (told,) = reads_of(group, set_up=0)
    assert (told["read_ms"], told["unread_ms"]) == (str(ended_ms), str(group.now_ms - ended_ms))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MEMBERS_LIMIT", 10)
    monkeypatch.setattr(kept, "_AWAITED_LIMIT", 10)
    reads, read = Reads(), LastRead(reader="a", read_ms=1, is_seen=True)
    for number in range(50):
        reads.note(("g", str(number)), 1)
        reads.expect(("g", str(number)), ("c", "h"), {("t", number): read, ("t", number + 100): read})
    assert len(reads.fetched) == 10
    assert [key for _, key in reads.awaited] == [str(number) for number in range(45, 50)]
    assert len(list(reads.of_client(("c", "h")))) == 5
    for key in list(reads.awaited):
        assert len(list(reads.begin(key, [("t", int(key[1])), ("t", int(key[1]) + 100)]))) == 1
    assert not reads.awaited and not list(reads.of_client(("c", "h")))
