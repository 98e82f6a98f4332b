"""`kohort group history`: members with short names, every row one sentence that leaves nothing out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kohort.cli.verbs.grouphistory import _SENTENCES, fold, print_rows, sentence
from kohort.client.admin.results.groups import HistoryEvent
from kohort.journal.words import MemberNames

SOURCE = Path(__file__).resolve().parents[3] / "src" / "kohort" / "coordinator"
ONE, TWO, THREE = "1111-aaaa", "1112-bbbb", "2222-cccc"


def row(event: str, member_id: str = "", *, kind: str = "transition", times: int = 1, **details: str) -> HistoryEvent:
    return HistoryEvent(
        sequence=1,
        time_ms=0,
        last_time_ms=0,
        times=times,
        cause=1,
        origin=1,
        kind=kind,
        event=event,
        member_id=member_id,
        details=details,
    )


def named(*events: HistoryEvent) -> MemberNames:
    names = MemberNames()
    names.learn(events)
    return names


def test_a_member_has_the_name_of_its_client_where_that_is_its_own() -> None:
    names = named(row("member_joined", ONE, client="billing"), row("member_joined", TWO, client="audit"))
    assert (names.of(ONE), names.of(TWO)) == ("billing", "audit")


def test_members_with_one_client_id_are_told_apart_by_the_beginning_of_theirs() -> None:
    names = named(*(row("member_joined", each, client="kohort") for each in (ONE, TWO, THREE, "1111-abcd")))
    assert [names.of(each) for each in (ONE, TWO, THREE)] == ["kohort/1111", "kohort/1112", "kohort/2222"]
    assert names.of("1111-abcd") == "kohort/1111-"


def test_what_a_classic_coordinator_puts_in_front_of_an_id_is_left_out() -> None:
    names = named(*(row("member_joined", f"app-{each}", client="app") for each in (ONE, TWO)))
    assert (names.of(f"app-{ONE}"), names.of(f"app-{TWO}")) == ("app/1111", "app/1112")


def test_a_static_member_is_called_by_its_instance_in_every_process() -> None:
    names = named(
        row("member_joined", ONE, client="app", instance="i-1"),
        row("member_joined", TWO, client="i-1"),
        row("member_replaced", THREE, instance="i-1", former=ONE),
    )
    assert (names.of(ONE), names.of(THREE)) == ("i-1", "i-1")
    assert names.of(TWO) == "i-1/1112", "another's name is not taken"


def test_a_member_whose_beginning_is_forgotten_has_a_short_id() -> None:
    assert named(row("member_removed", ONE)).of(ONE) == "1111"


def test_a_name_stays_when_later_rows_bring_its_like() -> None:
    names = named(row("member_joined", ONE, client="app"))
    names.learn([row("member_joined", TWO, client="app")])
    assert (names.of(ONE), names.of(TWO)) == ("app", "app/1112")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (row("ConsumerGroupHeartbeat", ONE, kind="stimulus", member_epoch="0"), "app asks to join"),
        (row("ConsumerGroupHeartbeat", ONE, kind="stimulus", member_epoch="7"), "app sends a heartbeat at epoch 7"),
        (row("JoinGroup", kind="stimulus", reason="new here"), "a new member asks to join: new here"),
        (
            row("deadline_passed", ONE, kind="stimulus", deadline="session timeout"),
            "a deadline passed for app: session timeout",
        ),
        (row("DeleteGroup", kind="stimulus"), "a client asked: delete group"),
        (row("member_joined", ONE, client="app", host="/::1", topics="t,u"), "app joined from ::1: topics t,u"),
        (
            row("assignment_changed", ONE, epoch="3", state="STABLE", gained="t-0 t-1 u-x-7 and 9 more"),
            "app gains t:0-1 u-x:7 and 9 more (epoch 3)",
        ),
        (
            row("assignment_changed", ONE, epoch="2", state="UNREVOKED_PARTITIONS", asked_back="t-0", released="t-3"),
            "app has to give back t:0, gave up t:3 (epoch 2)",
        ),
        (
            row("assignment_changed", ONE, epoch="3", state="UNRELEASED_PARTITIONS"),
            "app waits for partitions that others still hold (epoch 3)",
        ),
        (row("assignment_changed", ONE, epoch="1", state="STABLE"), "app is at epoch 1"),
        (row("member_removed", ONE, reason="session timeout"), "app is no member any more: session timeout"),
        (
            row("refused", ONE, api="CommitOffsets", error="STALE_MEMBER_EPOCH", why="it is 3"),
            "refused, commit offsets of app: STALE_MEMBER_EPOCH: it is 3",
        ),
        (
            row("refused", ONE, api="Heartbeat", error="REBALANCE_IN_PROGRESS", times=3),
            "the response to the heartbeat of app says that the group rebalances, 3 times until ",
        ),
        (
            row("LeaveGroup", ONE, by="administrator", reason="too slow"),
            "an administrator asks to remove app: too slow",
        ),
        (
            row("LeaveGroup", ONE, by="administrator", reason="removed by an administrator"),
            "an administrator asks to remove app",
        ),
        (
            row("refused", api="SyncGroup", error="X", times=4),
            "refused, sync group: X, 4 times until ",
        ),
        (
            row("rebalance_began", trigger="member joined", why=f"member {ONE} joined"),
            "a rebalance begins: member joined: member app joined",
        ),
        (
            row("ConsumerGroupHeartbeat", ONE, kind="stimulus", member_epoch="7", answer="held"),
            "the coordinator responds to the delayed heartbeat of app, epoch 7",
        ),
        (
            row("ConsumerGroupHeartbeat", ONE, kind="stimulus", member_epoch="7", answer="held", held_ms="1500"),
            "the coordinator responds to the delayed heartbeat of app after 1.5 s, epoch 7",
        ),
        (
            row("revocation_planned", ONE, partitions="t-0 t-1"),
            "app has to give up t:0-1, and is notified by the next response",
        ),
        (
            row("revocation_planned", ONE, partitions="t-0", heartbeat="held", held_ms="700"),
            "app has to give up t:0, and is notified at once: its heartbeat is delayed",
        ),
        (
            row("revocation_planned", ONE, partitions="t-0", heartbeat="awaited"),
            "app has to give up t:0, and is notified by its next heartbeat",
        ),
        (
            row("moves_waiting", moves="2", partitions="t-0 t-1", pace="paused"),
            "t:0-1 stay where they are until their moves may begin (paused)",
        ),
        (row("moves_waiting", moves="0"), "no move waits any more"),
        (row("moves_begun", moves="1", partitions="t-0", left="1"), "t:0 may move now, 1 still wait"),
        (row("partitions_moved", ONE, partitions="t-0", **{"from": ONE}), "t:0 moved to app from app"),
        (row("meanwhile", ONE, did="commits"), "others wait for app, which goes on with commits"),
        (
            row("group_at_rest", epoch="3", took_ms="1500", moved="2", unowned_ms="0"),
            "at rest: every member has its assignment of epoch 3, after 1.5 s",
        ),
        (row("never_heard_of", ONE, depth="3", colour="red"), "never heard of of app (depth 3, colour red)"),
        (row("configs_changed", a="1", b="(default)"), "configs changed: a=1, b=(default)"),
    ],
)
def test_a_row_is_a_sentence(event: HistoryEvent, said: str) -> None:
    names = named(row("member_joined", ONE, client="app"))
    assert sentence(event, names).startswith(said)
    assert event.times > 1 or sentence(event, names) == said


def test_every_event_that_the_coordinator_writes_has_a_sentence_of_its_own() -> None:
    text = "".join(path.read_text() for path in (SOURCE / "journal_events").glob("*.py"))
    written = set(re.findall(r'\.(?:transition|decision)\(\s*"(\w+)"', text)) | set(re.findall(r'event="(\w+)"', text))
    written |= set(re.findall(r'else "(\w+_\w+)",\n\s+record\.member_id', text))
    of_transactions = (SOURCE / "transactions" / "events.py").read_text()
    written |= set(re.findall(r'Entry\([\w.]+, "(\w+)"', of_transactions))
    assert {"transaction_decided", "refused", "transactional_id_forgotten"} <= written
    assert len(written) > 20
    assert written <= _SENTENCES.keys()


def test_a_classic_request_is_told_with_what_came_of_it() -> None:
    """Four rows a member and rebalance where two say all."""
    events = [
        row("JoinGroup", kind="stimulus", reason="new here"),
        row("member_id_required", ONE),
        row("JoinGroup", ONE, kind="stimulus", reason=f"member {TWO} joined"),
        row("member_rejoined", ONE, client="app"),
        row("SyncGroup", ONE, kind="stimulus"),
        row("assignment_changed", ONE, epoch="2", gained="t-0"),
        row("SyncGroup", ONE, kind="stimulus"),
    ]
    names = named(row("member_joined", ONE, client="app"), row("member_joined", TWO, client="other"))
    assert [said for _, said in fold(events, names)] == [
        "a new member asks to join: new here",
        "app gets its member id and has to join again with it",
        "app rejoined (member other joined)",
        "app gains t:0 (epoch 2)",
        "app asks for its assignment",
    ]


def test_a_history_names_each_day_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (replace(row("assignor_asked", ONE), time_ms=day * 86_400_000) for day in (20_000, 20_001))
    day = print_rows([first, first], MemberNames(), empty="")
    print_rows([second], MemberNames(), empty="", has_heading=False, day=day)
    lines = capsys.readouterr().out.splitlines()
    days = [line for line in lines if re.fullmatch(r"\d{4}-\d\d-\d\d", line)]
    assert [len(days), len(set(days)), len(lines)] == [2, 2, 6]
