"""`why` says of groups what has happened to them: more than fifty situations, played with the real coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest

import support.scenarios.classic_situations
import support.scenarios.static_situations
from kohort.coordinator.journal_events import triggers
from kohort.errors import NotInHistoryError
from kohort.journal.explain.explaining import explain
from kohort.journal.explain.sentences import say_trigger
from support.dialogues.explained import event_of, explained, last
from support.scenarios.situations import SITUATIONS, settled

assert support.scenarios.classic_situations and support.scenarios.static_situations, "importing them fills the table"


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_said_of_a_situation_is_what_has_happened(name: str) -> None:
    play, expected = SITUATIONS[name]
    found = explained(play())
    if name.startswith("now"):
        said = found.summary
    elif name.startswith("owners"):
        said = "; then ".join(row.sentence for row in found.partition("t", 0))
    else:
        assert found.last is not None
        said = found.last.sentence
    assert said == expected


def test_every_trigger_of_the_coordinator_has_words() -> None:
    """A trigger was added or worded anew: say in `phrases` what it is for a person."""
    named = [
        value for name, value in vars(triggers).items() if name.isupper() and name[0] != "_" and isinstance(value, str)
    ]
    assert len(named) > 5
    assert [trigger for trigger in named if say_trigger(trigger, (), "") in (trigger, "")] == []


def test_there_are_more_than_fifty_situations() -> None:
    assert len(SITUATIONS) > 50


def test_a_rebalance_has_its_times_and_who_gave_what_to_whom() -> None:
    play, _ = SITUATIONS["second_member_takes_half"]
    rebalance = last(play())
    began = rebalance.began_ms
    assert (rebalance.number, rebalance.protocol, rebalance.ended_ms) == (2, "consumer", began + 390)
    (first, second) = rebalance.moves
    assert (first.topic, first.partition, second.partition) == ("t", 2, 3)
    assert (first.giver, first.taker) == ("a", "b")
    assert (first.asked_ms, first.released_ms, first.granted_ms) == (began, began + 300, began + 390)
    assert first.committed_ms is None
    (delay,) = rebalance.delays
    assert (delay.member, delay.what, delay.partitions) == ("a", "give up", (("t", 2), ("t", 3)))


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_row_that_ends_a_rebalance_has_what_its_rows_come_to(name: str) -> None:
    group = SITUATIONS[name][0]()
    rows = [row for row in group.journal.history(group.group_id).rows if row.entry.event == "group_at_rest"]
    found = {each.number: each for each in explained(group).rebalances}
    for row in rows:
        details = dict(row.entry.details)
        rebalance = found.get(int(details.get("epoch") or details["generation"]))
        # What began in another life of the broker has no duration.
        if "took_ms" in details and rebalance is not None and rebalance.ended_ms == row.time_ms:
            assert int(details["took_ms"]) == row.time_ms - rebalance.began_ms
            arrived = [move for move in rebalance.moves if (move.granted_ms or row.time_ms + 1) <= row.time_ms]
            assert int(details["moved"]) == len([move for move in arrived if move.giver not in (None, move.taker)])


def test_a_rebalance_that_another_one_overtakes_says_so() -> None:
    play, _ = SITUATIONS["another_joins_before_the_end"]
    overtaken = explained(play()).rebalance(2)
    assert (overtaken.ended_ms, overtaken.overtaken_by) == (None, 3)
    assert "after 400 ms the rebalance to epoch 3 came before its end" in overtaken.sentence


def test_a_move_has_the_time_of_its_giver_s_last_commit() -> None:
    play, _ = SITUATIONS["giver_works_on_before_it_gives_up"]
    (two, three) = last(play()).moves
    assert two.asked_ms is not None
    assert (two.committed_ms, three.committed_ms) == (two.asked_ms + 4_000, None)


def test_a_move_says_whose_the_partition_was_though_the_rows_before_are_gone() -> None:
    play, _ = SITUATIONS["member_leaves"]
    group = play()
    rows = [event_of(row) for row in group.journal.history("g").rows]
    left = next(at for at, row in enumerate(rows) if row.details.get("trigger") == "member left")
    found = explain("g", rows[left:], is_complete=False).last
    assert found is not None
    assert {(move.topic, move.partition, move.giver, move.taker) for move in found.moves} == {
        ("t", 2, "b", "a"),
        ("t", 3, "b", "a"),
    }


def test_every_epoch_of_one_rebalance_leads_to_it() -> None:
    play, _ = SITUATIONS["two_join_in_one_window"]
    found = explained(play())
    assert found.rebalance(3) is found.rebalance(4) is found.last


def test_what_the_history_does_not_have_is_an_error_that_says_what_there_is() -> None:
    found = explained(settled("a", "b"))
    with pytest.raises(NotInHistoryError, match="no rebalance 9: it has 1-2"):
        found.rebalance(9)
    with pytest.raises(NotInHistoryError, match="no partition t-7: it has t:0-3"):
        found.partition("t", 7)


def test_without_rows_nothing_is_said() -> None:
    found = explain("g", ())
    assert (found.last, found.summary) == (None, "the group has no members")
    with pytest.raises(NotInHistoryError, match="no rebalance 1: it has none"):
        found.rebalance(1)
    with pytest.raises(NotInHistoryError, match="no partition t-0: it has none"):
        found.partition("t", 0)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_history_whose_beginning_is_missing_is_still_explained(name: str) -> None:
    """Wherever it is cut: what is missing is not made up."""
    group = SITUATIONS[name][0]()
    rows = [event_of(row) for row in group.journal.history(group.group_id).rows]
    whole = explain("g", rows)
    for cut in range(1, len(rows), 5):
        found = explain("g", rows[cut:], is_complete=False)
        assert not found.is_complete
        assert {row.member for row in found.owners} <= {row.member for row in whole.owners} | {
            row.member_id for row in rows
        }
        assert all(row.began_ms <= (row.ended_ms or row.began_ms) for row in found.owners)


def test_rows_of_a_kind_that_is_not_known_change_nothing() -> None:
    group = settled("a", "b")
    rows = [event_of(row) for row in group.journal.history("g").rows]
    strange = replace(rows[6], event="moon_full")
    assert explain("g", [*rows[:7], strange, *rows[7:]]) == explain("g", rows)
