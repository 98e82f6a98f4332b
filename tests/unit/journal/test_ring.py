"""The ring buffer: bounded, in order, and silent about what only repeats."""

from __future__ import annotations

from kohort.journal.ring import OF_NO_GROUP, Journal
from kohort.journal.rows import TEXT_LIMIT, Entry, RowKind, transaction_key


def entry(event: str, *, group: str = "g", member: str = "", **details: str) -> Entry:
    return Entry(kind=RowKind.DECISION, event=event, group_id=group, member_id=member, details=tuple(details.items()))


def events(journal: Journal, group: str = "g") -> list[str]:
    return [row.entry.event for row in journal.history(group).rows]


def test_busy_group_loses_its_own_oldest_rows_and_nobody_elses() -> None:
    journal = Journal(limit=4)
    journal.record([entry("h0", group="h")], cause=1, now_ms=1)
    for number in range(9):
        journal.record([entry(f"e{number}")], cause=number, now_ms=number)

    assert events(journal, "h") == ["h0"]
    assert events(journal) == ["e6", "e7", "e8"]
    assert journal.history("h").is_complete
    assert not journal.history("g").is_complete


def test_groups_share_the_room_evenly_when_all_are_busy() -> None:
    journal = Journal(limit=9)
    for number in range(30):
        for group in ("g", "h", "i"):
            journal.record([entry(f"e{number}", group=group)], cause=number, now_ms=number)

    assert [events(journal, group) for group in ("g", "h", "i")] == [["e27", "e28", "e29"]] * 3


def test_where_there_are_more_groups_than_rows_the_oldest_go() -> None:
    journal = Journal(limit=3)
    for number in range(5):
        journal.record([entry("e", group=f"g{number}")], cause=number, now_ms=number)

    assert [len(events(journal, f"g{number}")) for number in range(5)] == [0, 0, 1, 1, 1]
    assert not journal.history("g0").is_complete
    assert journal.history("g2").is_complete
    journal.record([entry("again", group="g0")], cause=6, now_ms=6)
    assert not journal.history("g0").is_complete


def test_many_transactional_ids_leave_the_groups_three_quarters_of_the_rows() -> None:
    journal = Journal(limit=400)
    for number in range(250):
        journal.record([entry(f"e{number}")], cause=number, now_ms=number)
    ids = [transaction_key(f"id-{number}") for number in range(1_000)]
    for each in ids:
        for event in ("transaction_began", "transaction_decided", "transaction_completed"):
            journal.record([entry(event, group=each, member="1")], cause=1, now_ms=1)
    assert len(events(journal)) == 250
    assert journal.history("new").is_complete
    assert sum(len(events(journal, each)) for each in ids) == 100
    assert (len(events(journal, ids[-1])), len(events(journal, ids[0]))) == (3, 0)
    journal.record([entry("again", group=ids[0])], cause=1, now_ms=1)
    assert not journal.history(ids[0]).is_complete


def test_transactional_id_that_has_lost_its_rows_gets_new_ones() -> None:
    """Its next transaction is equal to those whose row is gone."""
    journal, key = Journal(limit=40), transaction_key("billing")
    for number in range(-1, 20):
        other = key if number < 0 else transaction_key(f"id-{number}")
        journal.record([entry("transaction_began", group=other, member="1")], cause=1, now_ms=1)
    assert events(journal, key) == []
    journal.record([entry("transaction_began", group=key, member="1")], cause=1, now_ms=1)
    assert events(journal, key) == ["transaction_began"]


def test_forgotten_transactional_id_leaves_no_counts() -> None:
    journal, key = Journal(limit=400), transaction_key("billing")
    journal.record([entry("transaction_began", group=key)], cause=1, now_ms=1)
    journal.count(key, "partitions_added")
    journal.record([entry("transactional_id_forgotten", group=key)], cause=2, now_ms=2)
    assert journal.history(key).counts == {}


def test_nothing_dropped_is_complete() -> None:
    journal = Journal(limit=3)
    journal.record([entry("e")], cause=1, now_ms=1)

    assert journal.history("g").is_complete


def test_journal_that_is_off_keeps_nothing() -> None:
    journal = Journal(limit=0)
    journal.record([entry("e")], cause=1, now_ms=1)

    assert not journal.is_on
    assert events(journal) == []


def test_steps_of_a_rebalance_have_its_beginning_for_origin() -> None:
    journal = Journal(limit=10)
    journal.record([entry("member_joined"), entry("epoch_bumped")], cause=7, now_ms=1)
    journal.record([entry("target_computed")], cause=8, now_ms=2)
    journal.record([entry("target_computed", group="h")], cause=9, now_ms=2)

    assert [(row.cause, row.origin) for row in journal.history("g").rows] == [(7, 7), (7, 7), (8, 7)]
    assert [(row.cause, row.origin) for row in journal.history("h").rows] == [(9, 9)]


def test_several_triggers_of_one_target_have_one_origin() -> None:
    """Two join and one leaves before the target is computed: each of them leads to it, and it to each of them."""
    journal = Journal(limit=10)
    for cause in (7, 8, 9):
        journal.record([entry("epoch_bumped")], cause=cause, now_ms=cause)
    journal.record([entry("target_computed")], cause=10, now_ms=10)
    journal.record([entry("assignment_changed", member="m")], cause=11, now_ms=11)
    journal.record([entry("epoch_bumped")], cause=12, now_ms=12)

    assert [row.origin for row in journal.history("g").rows] == [7, 7, 7, 7, 7, 12]


def test_what_an_administrator_asks_for_belongs_to_no_rebalance_before_it() -> None:
    """It was nobody's leave that had somebody change a config."""
    journal = Journal(limit=10)
    journal.record([entry("epoch_bumped")], cause=7, now_ms=1)
    journal.record([entry("AlterGroupConfigs"), entry("configs_changed")], cause=8, now_ms=2)
    journal.record([entry("target_computed")], cause=9, now_ms=3)

    assert [(row.cause, row.origin) for row in journal.history("g").rows] == [(7, 7), (8, 8), (8, 8), (9, 7)]


def test_refusal_that_repeats_is_one_row() -> None:
    journal = Journal(limit=10)
    for now_ms in (1, 2, 3):
        journal.record([entry("refused", member="m", error="FENCED_MEMBER_EPOCH")], cause=now_ms, now_ms=now_ms)
    journal.record([entry("refused", member="m", error="UNKNOWN_MEMBER_ID")], cause=4, now_ms=4)

    rows = journal.history("g").rows
    assert [(row.times, row.time_ms, row.last_time_ms) for row in rows] == [(3, 1, 3), (1, 4, 4)]


def test_refusal_after_something_else_is_a_row_of_its_own() -> None:
    journal = Journal(limit=10)
    refused = entry("refused", member="m", error="UNKNOWN_MEMBER_ID")
    journal.record([refused], cause=1, now_ms=1)
    journal.record([entry("member_joined", member="m")], cause=2, now_ms=2)
    journal.record([refused], cause=3, now_ms=3)

    assert events(journal) == ["refused", "member_joined", "refused"]


def test_long_texts_are_cut() -> None:
    journal = Journal(limit=10)
    journal.record([entry("e", member="m" * 9_999, client="c" * 9_999)], cause=1, now_ms=1)

    (row,) = journal.history("g").rows
    assert len(row.entry.member_id) == TEXT_LIMIT
    assert [len(value) for _, value in row.entry.details] == [TEXT_LIMIT]


def test_pages_by_sequence() -> None:
    journal = Journal(limit=10)
    for number in range(5):
        journal.record([entry(f"e{number}")], cause=number, now_ms=number)

    first = journal.history("g", limit=2)
    assert first.has_more
    rest = journal.history("g", after=first.rows[-1].sequence)
    assert not rest.has_more
    assert [row.entry.event for row in (*first.rows, *rest.rows)] == [f"e{number}" for number in range(5)]


def test_counts_end_with_the_group() -> None:
    journal = Journal(limit=10)
    journal.count("g", "heartbeats")
    journal.count("g", "heartbeats")
    assert journal.history("g").counts == {"heartbeats": 2}

    journal.record([entry("group_forgotten")], cause=1, now_ms=1)
    assert journal.history("g").counts == {}


def test_groups_that_are_only_counted_do_not_pile_up() -> None:
    journal = Journal(limit=10, counted_groups=3)
    for number in range(5):
        journal.count(f"g{number}", "commits")

    assert [bool(journal.history(f"g{number}").counts) for number in range(5)] == [False, False, True, True, True]


def test_reason_of_the_latest_rebalance_is_kept_while_the_group_is() -> None:
    """For members who are told of it; also when its row has gone."""
    journal = Journal(limit=1)
    assert journal.reason("g") is None
    journal.record([entry("rebalance_began", trigger="member left", why="m-1 left"), entry("e")], cause=1, now_ms=1)
    assert journal.reason("g") == "member left: m-1 left"
    rows = [entry("member_joined", member="m-2"), entry("epoch_bumped", epoch="2", trigger="member joined")]
    journal.record(rows, cause=2, now_ms=2)
    assert journal.reason("g") == "member joined: m-2"
    journal.record([entry("epoch_bumped", trigger="x" * 10_000)], cause=3, now_ms=3)
    assert len(journal.reason("g") or "") == TEXT_LIMIT
    journal.record([entry("group_forgotten")], cause=4, now_ms=4)
    assert journal.reason("g") is None


def test_row_that_repeats_is_told_when_its_number_has_doubled() -> None:
    """Whoever writes rows down writes a few for thousands of refusals."""
    journal, told = Journal(limit=10), []
    journal.on_row = lambda row: told.append(row.times)
    for now_ms in range(20):
        journal.record([entry("refused", member="m", error="UNKNOWN_MEMBER_ID")], cause=now_ms, now_ms=now_ms)

    assert told == [1, 2, 4, 8, 16]


def test_rows_of_the_broker_are_told_with_a_group_from_its_first_row_on() -> None:
    """What came before says nothing of it, unless it may have older rows."""
    journal = Journal(limit=10)
    journal.record([entry("broker_slow", group=OF_NO_GROUP)], cause=1, now_ms=1)
    journal.record([entry("member_joined")], cause=2, now_ms=2)
    journal.record([entry("broker_slow", group=OF_NO_GROUP)], cause=3, now_ms=3)
    assert events(journal) == ["member_joined", "broker_slow"]

    later = Journal(limit=10)
    later.resume(7)
    later.record([entry("broker_started", group=OF_NO_GROUP)], cause=1, now_ms=1)
    later.record([entry("member_joined")], cause=2, now_ms=2)
    assert events(later) == ["broker_started", "member_joined"]
