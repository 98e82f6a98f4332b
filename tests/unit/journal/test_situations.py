"""`why` says of groups what has happened to them: more than fifty situations, played with the real coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest

import support.classic_situations
import support.static_situations
from kohort.errors import NotInHistoryError
from kohort.journal.explaining import explain
from support.explained import event_of, explained, last
from support.situations import SITUATIONS, settled

assert support.classic_situations and support.static_situations, "importing them fills the table"


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
    (delay,) = rebalance.delays
    assert (delay.member, delay.what, delay.partitions) == ("a", "give up", (("t", 2), ("t", 3)))


def test_a_rebalance_that_another_one_overtakes_says_so() -> None:
    play, _ = SITUATIONS["another_joins_before_the_end"]
    overtaken = explained(play()).rebalance(2)
    assert (overtaken.ended_ms, overtaken.overtaken_by) == (None, 3)
    assert "after 400 ms the rebalance to epoch 3 came before its end" in overtaken.sentence


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
