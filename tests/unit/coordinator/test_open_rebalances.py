"""What rows say of the way of partitions and of those who are waited for: moves with their times, durations, holds."""

from __future__ import annotations

import pytest

from kohort.coordinator.journal_events import entries, open_rebalances
from kohort.coordinator.journal_events.open_rebalances import OpenRebalances
from kohort.journal.rows import Entry
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.hold_dialogue import HoldDialogue
from support.dialogues.moves import answers, statuses, submit
from support.scenarios.situations import again, classic


def told(group: GroupDialogue, event: str) -> list[Entry]:
    return [entry for entry in group.told if entry.event == event]


def details(entry: Entry) -> dict[str, str]:
    return dict(entry.details)


def asked_to_share() -> GroupDialogue:
    """ "b" comes, "a" has heard of it and has two partitions to give up."""
    group = GroupDialogue({"t": 4})
    group.stable(a=[0, 1, 2, 3])
    group.told.clear()
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    return group


def test_a_moved_partition_is_told_with_whose_it_was_and_when_each_step_was_done() -> None:
    """H3: fence the old owner, wait for its commit, grant the new owner."""
    group = asked_to_share()
    asked_ms = group.now_ms
    group.advance(300)
    group.commit({2: 5, 0: 7}, member_id="a", epoch=1)
    group.advance(200)
    group.heartbeat("a", epoch=1, owned=[0, 1])
    group.advance(100)
    group.heartbeat("b", epoch=2)

    committed, other = told(group, "partitions_moved")
    assert committed.member_id == "b"
    assert details(committed) == {
        "from": "a",
        "partitions": "t-2",
        "granted_epoch": "1",
        "asked_ms": str(asked_ms),
        "committed_ms": str(asked_ms + 300),
        "released_ms": str(asked_ms + 500),
        "read_ms": str(asked_ms + 300),
        "at_most": "true",
        "trigger": "member joined",
    }
    assert "committed_ms" not in details(other) and details(other)["partitions"] == "t-3"


def test_the_end_of_a_rebalance_says_what_it_took() -> None:
    group = asked_to_share()
    group.advance(500)
    group.heartbeat("a", epoch=1, owned=[0, 1])
    group.advance(90)
    group.heartbeat("b", epoch=2)

    (at_rest,) = told(group, "group_at_rest")
    assert details(at_rest) == {"epoch": "2", "took_ms": "590", "moved": "2", "unowned_ms": "90"}


def test_a_partition_whose_member_left_is_told_with_whose_it_was_however_late() -> None:
    group = GroupDialogue({"t": 1})
    group.stable(a=[0])
    group.leave("a")
    left_ms = group.now_ms
    group.advance(9_000)
    group.told.clear()
    group.heartbeat("b", epoch=0)

    (moved,) = told(group, "partitions_moved")
    assert details(moved) == {
        "from": "a",
        "partitions": "t-0",
        "granted_epoch": "1",
        "released_ms": str(left_ms),
        "read_ms": str(left_ms),
        "at_most": "true",
        "trigger": "member joined",
    }
    assert details(told(group, "group_at_rest")[0])["unowned_ms"] == "9000"


def test_a_row_of_what_moved_has_the_name_of_the_move() -> None:
    group = GroupDialogue({"t": 2})
    group.stable(a=[0], b=[1])
    group.told.clear()
    (taken,) = answers(submit(group, {0: "b"}))
    group.settle()
    submit(group, {0: "a", 1: "a"})
    group.settle()

    moved = [details(entry) for entry in told(group, "partitions_moved")]
    names = [f"{name}@{each['granted_epoch']}" for each in moved for name in each["partitions"].split()]
    assert names[0] == taken[2]
    assert set(names[1:]) == {move.move_id for move in statuses(group)}


def test_a_partition_that_nobody_had_has_not_moved() -> None:
    group = GroupDialogue({"t": 2})
    group.stable(a=[0, 1])
    assert told(group, "partitions_moved") == []


def test_what_the_leader_of_a_classic_group_has_changed_has_moved() -> None:
    group, clients = classic(x=[0, 1, 2, 3])
    group.told.clear()
    y = group.client("y")
    y.send_join()
    group.advance(2_000)
    again(group, clients["x"], y, shares={"x": [0, 1], "y": [2, 3]})

    (moved,) = told(group, "partitions_moved")
    assert (moved.member_id, details(moved)["from"], details(moved)["partitions"]) == ("y", "x", "t-2 t-3")
    (at_rest,) = told(group, "group_at_rest")
    assert (details(at_rest)["took_ms"], details(at_rest)["moved"]) == ("2000", "2")


def test_who_shall_give_up_is_named_before_it_has_heard_of_it() -> None:
    group = GroupDialogue({"t": 4})
    group.stable(a=[0, 1, 2, 3])
    group.told.clear()
    group.heartbeat("b", epoch=0)

    (planned,) = told(group, "revocation_planned")
    assert (planned.member_id, details(planned)) == ("a", {"partitions": "t-2 t-3", "heartbeat": "awaited"})


def test_whose_heartbeat_is_held_is_told_with_for_how_long() -> None:
    group = HoldDialogue({"t": 4})
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("a")
    group.advance(ms=700)
    group.told.clear()
    group.heartbeat("b", epoch=0)
    group.advance(ms=30)

    (planned,) = told(group, "revocation_planned")
    assert details(planned) == {"partitions": "t-2 t-3", "heartbeat": "held", "held_ms": "700"}
    (answered,) = [entry for entry in told(group, "ConsumerGroupHeartbeat") if entry.member_id == "a"]
    assert details(answered) == {"member_epoch": "1", "answer": "held", "held_ms": "730"}


def test_who_shall_give_up_is_named_when_the_pace_lets_the_move_begin() -> None:
    group = GroupDialogue({"t": 4}, group_moves_per_second=2.0)
    group.stable(a=[0, 1, 2, 3])
    group.told.clear()
    group.heartbeat("b", epoch=0)
    assert details(told(group, "moves_waiting")[0]) == {"moves": "2", "partitions": "t-2 t-3", "pace": "2 per second"}
    assert told(group, "revocation_planned") == []

    for _ in range(2):
        group.advance(ms=500)

    begun = [details(entry) for entry in told(group, "moves_begun")]
    assert [(each["partitions"], each["left"]) for each in begun] == [("t-2", "1"), ("t-3", "0")]
    assert [details(entry)["partitions"] for entry in told(group, "revocation_planned")] == ["t-2", "t-3"]


def test_of_very_many_who_shall_give_up_only_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "GIVERS_SHOWN", 2)
    group = GroupDialogue({"t": 12})
    for member_id in ("a", "b", "c"):
        group.heartbeat(member_id, epoch=0)
    group.settle()
    group.told.clear()
    group.heartbeat("d", epoch=0)

    assert len(told(group, "revocation_planned")) == 2


def test_what_a_member_does_while_others_wait_for_it_is_told_after_a_while() -> None:
    group = asked_to_share()
    group.heartbeat("a", epoch=1)
    assert told(group, "meanwhile") == [], "at once that is no news"
    group.advance(1_000)
    group.heartbeat("a", epoch=1)
    group.commit({2: 1}, member_id="a", epoch=1)
    group.heartbeat("b", epoch=2)

    assert [(entry.member_id, details(entry)) for entry in told(group, "meanwhile")] == [
        ("a", {"did": "heartbeats"}),
        ("a", {"did": "commits"}),
    ]
    group.settle()
    group.told.clear()
    group.advance(1_000)
    group.heartbeat("a", epoch=2)
    assert told(group, "meanwhile") == [], "nobody waits for it any more"


def test_what_a_slow_member_does_again_and_again_is_two_rows() -> None:
    group = asked_to_share()
    for _ in range(60):
        group.advance(900)
        group.heartbeat("a", epoch=1)
        group.commit({2: 1}, member_id="a", epoch=1)

    rows = [row for row in group.journal.history("g").rows if row.entry.event == "meanwhile"]
    assert [(dict(row.entry.details)["did"], row.times) for row in rows] == [("heartbeats", 60), ("commits", 60)]


def test_a_classic_member_that_is_waited_for_is_told_of_too() -> None:
    group, clients = classic(x=[0, 1], y=[2, 3])
    clients["x"].send_join()
    group.advance(1_000)
    group.commit({2: 1}, member_id="y", epoch=clients["y"].generation)
    group.told.clear()
    group.commit({2: 2}, member_id="y", epoch=clients["y"].generation)

    assert [(entry.member_id, details(entry)) for entry in told(group, "meanwhile")] == [("y", {"did": "commits"})]


def test_news_that_a_held_heartbeat_brings_say_so() -> None:
    """H1: what the heartbeat said was carried out when it came; its answer is what is new."""
    group = HoldDialogue({"t": 2})
    group.stable(a=[0, 1])
    group.at_rest(a=[0, 1])
    group.beat("a")
    assert group.held() == {"a"}
    group.told.clear()
    group.heartbeat("b", epoch=0)
    group.tell_news()

    (answered,) = [entry for entry in told(group, "ConsumerGroupHeartbeat") if entry.member_id == "a"]
    assert details(answered)["answer"] == "held"
    (asked,) = [entry for entry in told(group, "assignment_changed") if entry.member_id == "a"]
    assert details(asked)["asked_back"] == "t-1"


def test_what_is_remembered_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_rebalances, "_GROUPS_LIMIT", 3)
    monkeypatch.setattr(open_rebalances, "_PARTITIONS_LIMIT", 10)
    remembered = OpenRebalances()
    for group_id in ("a", "b", "c", "d"):
        remembered.of(group_id).begin("member joined", now_ms=1)
        remembered.tidy(group_id)
    assert [group_id for group_id in "abcd" if group_id in remembered.by_group] == ["b", "c", "d"]
    for group_id, count in (("b", 6), ("c", 5)):
        remembered.of(group_id).release("m", {("t", number): 1 for number in range(count)}, now_ms=2)
        remembered.tidy(group_id)
    assert [group_id for group_id in "abcd" if group_id in remembered.by_group] == ["c", "d"]


def test_a_group_at_rest_that_lacks_nothing_is_forgotten() -> None:
    remembered = OpenRebalances()
    course = remembered.of("g")
    course.begin("member left", now_ms=1)
    course.release("m", {("t", 0): None}, now_ms=1)
    course.rest(now_ms=1)
    remembered.tidy("g")
    assert remembered.by_group["g"] is course, "somebody will get t-0"
    course.grant("n", [("t", 0)], now_ms=2)
    remembered.tidy("g")
    assert "g" not in remembered.by_group
