"""Rebalances read from rows of a group's history: their causes, their beginnings and their ends."""

from __future__ import annotations

from itertools import count

from kohort.cli.demo.rebalances import Rebalance, rebalances_of
from kohort.client.admin.results import HistoryEvent

SEQUENCE = count(1)


def row(time_ms: int, event: str, member_id: str = "", **details: str) -> HistoryEvent:
    return HistoryEvent(
        sequence=next(SEQUENCE),
        time_ms=time_ms,
        last_time_ms=time_ms,
        times=1,
        cause=1,
        origin=1,
        kind="transition",
        event=event,
        member_id=member_id,
        details=details,
    )


def joins(time_ms: int, member_id: str, name: str, *, epoch: int) -> list[HistoryEvent]:
    """A member without partitions yet, as the coordinator tells it."""
    return [
        row(time_ms, "member_joined", member_id, client=name),
        row(time_ms, "epoch_bumped", epoch=str(epoch), trigger="member joined"),
        row(time_ms, "assignment_changed", member_id, epoch=str(epoch - 1), state="STABLE"),
    ]


def goes(time_ms: int, member_id: str, reason: str, *, epoch: int) -> list[HistoryEvent]:
    return [
        row(time_ms, "assignment_released", member_id, released="flights-0"),
        row(time_ms, "member_removed", member_id, reason=reason),
        row(time_ms, "epoch_bumped", epoch=str(epoch), trigger=reason),
    ]


def settles(time_ms: int, member_id: str, *, epoch: int, state: str = "STABLE") -> HistoryEvent:
    return row(time_ms, "assignment_changed", member_id, epoch=str(epoch), state=state)


def read(*events: HistoryEvent | list[HistoryEvent], session_ms: int = 3000) -> list[Rebalance]:
    rows = [event for part in events for event in (part if isinstance(part, list) else [part])]
    return rebalances_of(rows, session_timeout_ms=session_ms, default_session_timeout_ms=45_000)


ONE_MEMBER = [*joins(1000, "m1", "ada", epoch=2), settles(1100, "m1", epoch=2)]
TWO_MEMBERS = [
    *ONE_MEMBER,
    *joins(2000, "m2", "bob", epoch=3),
    settles(2150, "m1", epoch=3),
    settles(2300, "m2", epoch=3),
]


def test_a_join_lasts_until_its_member_has_what_it_shall_have() -> None:
    assert read(ONE_MEMBER) == [Rebalance(epoch=2, cause="ada joined", seconds=0.1)]


def test_a_rebalance_ends_with_the_last_member_at_the_epoch() -> None:
    assert read(TWO_MEMBERS)[1] == Rebalance(epoch=3, cause="bob joined", seconds=0.3)


def test_a_member_that_waits_for_partitions_is_not_there_yet() -> None:
    waits = settles(2200, "m2", epoch=3, state="UNRELEASED_PARTITIONS")
    events = [*ONE_MEMBER, *joins(2000, "m2", "bob", epoch=3), settles(2150, "m1", epoch=3), waits]
    assert len(read(events)) == 1
    assert read(events, settles(2900, "m2", epoch=3))[1].seconds == 0.9


def test_silence_and_what_came_after_it_are_told_apart() -> None:
    """45 seconds are not measured: the demo's sessions are shorter, and the row says when the deadline had passed."""
    silent = read(TWO_MEMBERS, goes(9000, "m2", "session timeout", epoch=4), settles(9300, "m1", epoch=4))[2]
    assert silent.cause == "bob silent 3.0 s (45 by default, here set to 3)"
    assert (silent.seconds, silent.silent_seconds, silent.duration) == (0.3, 3.0, "then 0.30 s")


def test_a_session_of_the_usual_length_needs_no_word() -> None:
    gone = goes(50_000, "m1", "session timeout", epoch=3)
    assert read(ONE_MEMBER, gone, session_ms=45_000)[1].cause == "ada silent 45.0 s"


def test_a_member_that_left_was_not_silent() -> None:
    left = read(TWO_MEMBERS, goes(9000, "m2", "member left", epoch=4), settles(9100, "m1", epoch=4))[2]
    assert (left.cause, left.silent_seconds, left.duration) == ("bob left", None, "0.10 s")


def test_another_reason_is_said_in_the_words_of_the_history() -> None:
    removed = read(TWO_MEMBERS, goes(9000, "m2", "rebalance timeout", epoch=4), settles(9100, "m1", epoch=4))
    assert removed[2].cause == "bob removed: rebalance timeout"


def test_the_last_member_s_end_is_a_rebalance_of_nobody() -> None:
    assert read(ONE_MEMBER, goes(9000, "m1", "member left", epoch=3))[1] == Rebalance(
        epoch=3, cause="ada left", seconds=0.0
    )


def test_two_that_overlap_are_two_and_end_together() -> None:
    events = [*joins(1000, "m1", "ada", epoch=2), *joins(1050, "m2", "bob", epoch=3)]
    events += [settles(1200, "m1", epoch=3), settles(1400, "m2", epoch=3)]
    assert read(events) == [
        Rebalance(epoch=2, cause="ada joined", seconds=0.4),
        Rebalance(epoch=3, cause="bob joined", seconds=0.35),
    ]


def test_what_came_after_a_silence_is_not_what_waited_for_it() -> None:
    """Whoever joins while a dead member holds partitions waits for the end of its session."""
    joined = joins(3000, "m3", "dee", epoch=4)
    gone = goes(5000, "m2", "session timeout", epoch=5)
    rows = read(TWO_MEMBERS, joined, gone, settles(5100, "m1", epoch=5), settles(5300, "m3", epoch=5))
    assert [(row.cause.split(" (")[0], row.duration) for row in rows[2:]] == [
        ("dee joined", "2.30 s"),
        ("bob silent 3.0 s", "then 0.30 s"),
    ]


def test_a_rebalance_without_members_coming_or_going_names_its_trigger() -> None:
    grown = row(5000, "epoch_bumped", epoch="3", trigger="topics changed")
    assert read(ONE_MEMBER, grown, settles(5200, "m1", epoch=3))[1] == Rebalance(
        epoch=3, cause="topics changed", seconds=0.2
    )


def test_a_rebalance_that_has_no_end_yet_is_not_told() -> None:
    assert read(joins(1000, "m1", "ada", epoch=2)) == []
