"""Who has read which part of a partition, and where a query goes on by that."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.ids import TopicPartition
from kohort.spark.member.lineage import (
    MOST_HOLDERS,
    Holder,
    Known,
    Ledger,
    Place,
    build_claims,
    find_place,
    format_ledger,
    is_last_holder,
    parse_ledger,
    trim,
)
from kohort.spark.offsets import Span

ledgers = st.builds(
    Ledger,
    offset=st.integers(0, 1 << 60),
    chain=st.lists(st.builds(Holder, st.text(max_size=12), st.integers(0, 1 << 60), st.integers(0, 9)), max_size=8).map(
        tuple
    ),
    planned=st.one_of(st.none(), st.integers(0, 1 << 60)),
    count=st.integers(0, 1 << 40),
    topic_id=st.text(max_size=22),
)


def ledger(offset: int, *chain: tuple[Any, ...], planned: int | None = None) -> Ledger:
    return Ledger(offset=offset, chain=tuple(Holder(*each) for each in chain), planned=planned)


def place(found: Ledger | None, known: Known | None = None, *, is_owned: bool = True) -> tuple[int, int | None] | None:
    """Start and stop for the query `q`."""
    at = find_place(found, "q", known, is_owned=is_owned)
    return None if at is None else (at.start, at.stop)


@given(ledgers)
def test_a_ledger_is_kept_beside_its_offset(given_ledger: Ledger) -> None:
    """What is committed is what is found again."""
    assert parse_ledger(given_ledger.offset, format_ledger(given_ledger)) == given_ledger


@given(st.lists(st.builds(Holder, st.text(max_size=249), st.integers(0, 1 << 62)), max_size=40))
def test_metadata_stays_below_what_a_broker_takes(chain: list[Holder]) -> None:
    """offset.metadata.max.bytes is 4096: the oldest holders are forgotten."""
    text = format_ledger(Ledger(offset=1, chain=tuple(chain), planned=1 << 62))
    assert len(text.encode()) <= 4096
    kept = parse_ledger(1, text).chain
    assert len(kept) <= MOST_HOLDERS
    assert tuple(chain[len(chain) - len(kept) :]) == kept


@pytest.mark.parametrize(
    "metadata",
    ["", "by worker 3", "[]", "7", "{}", '{"kohort":2}', '{"kohort":1}', '{"kohort":1,"by":[["a"]]}', "[" * 5000],
)
def test_metadata_of_others_says_nothing(metadata: str) -> None:
    """Only their offset counts."""
    assert parse_ledger(7, metadata) == Ledger(offset=7)


@pytest.mark.parametrize(
    ("found", "known", "expected"),
    [
        # Nobody has begun it.
        (None, None, None),
        # The group has forgotten it, the checkpoint has not.
        (None, Known(3, 9), (9, None)),
        # Members that are not ours.
        (ledger(7), None, (7, None)),
        (ledger(7), Known(None, 9), (9, None)),
        (ledger(12), Known(None, 9), (12, None)),
        # An order, of which the checkpoint knows or not.
        (ledger(7), Known(3, 9), (7, None)),
        (ledger(3), Known(3, 9), (3, None)),
        (ledger(12), Known(3, 9), (12, None)),
        (ledger(3, ("q", 3, 1), planned=9), Known(3, 9), (3, None)),
        (ledger(3, ("q", 3, 1), planned=9), Known(3, 9, 1), (9, None)),
        # Our own: the checkpoint says how far, whether the group is behind it or beyond.
        (ledger(3, ("q", 3), planned=9), Known(3, 9), (9, None)),
        (ledger(20, ("q", 3)), Known(3, 9), (9, None)),
        # Planned and told, but never written down by Spark.
        (ledger(3, ("q", 3), planned=9), None, (3, None)),
        # Another query's.
        (ledger(7, ("a", 0)), None, (7, None)),
        (ledger(7, ("q", 0), ("a", 5)), Known(0, 5), (7, None)),
        # Taken over while our batch was in doubt, which ends at 9: what was planned by us is theirs from 5 on.
        (ledger(7, ("q", 0), ("a", 5)), Known(0, 9), (7, None)),
        (ledger(7, ("q", 0), ("a", 5), ("q", 7)), Known(0, 9), (7, None)),
        # Put back to an older copy: up to where others took over, then what we took later, then on.
        (ledger(20, ("q", 0), ("a", 5), ("q", 10)), Known(0, 2), (2, 5)),
        (ledger(20, ("q", 0), ("a", 5), ("q", 10)), Known(0, 5), (10, None)),
        (ledger(20, ("q", 0), ("a", 5), ("q", 10), ("b", 15)), Known(0, 5), (10, 15)),
        (ledger(20, ("q", 0), ("a", 5), ("q", 10), ("b", 15)), Known(10, 15), (20, None)),
        (ledger(20, ("b", 0), ("q", 10), ("b", 15)), None, (10, 15)),
        # A checkpoint of the first form, or of Spark's own source, knows no holders.
        (ledger(7, ("a", 0)), Known(None, 9), (9, None)),
        (ledger(12, ("a", 0)), Known(None, 9), (12, None)),
    ],
    ids=str,
)
def test_where_a_query_goes_on(found: Ledger | None, known: Known | None, expected: tuple[int, int | None]) -> None:
    """Its own reading is settled by its checkpoint, that of others by the group."""
    assert place(found, known) == expected


def test_what_is_not_ours_is_read_only_as_far_as_it_was() -> None:
    """A partition of others: what we have read and do not know any more; nothing else."""
    chain = (("q", 0), ("a", 5))
    assert place(ledger(20, *chain), Known(0, 2), is_owned=False) == (2, 5)
    assert place(ledger(20, *chain), Known(0, 5), is_owned=False) is None
    assert place(ledger(20, ("q", 0)), Known(0, 2), is_owned=False) is None
    assert place(ledger(20), None, is_owned=False) is None
    assert place(None, None, is_owned=False) is None


def test_who_takes_a_partition_stands_behind_those_before_it() -> None:
    """Who took it and read nothing is forgotten."""
    at = find_place(ledger(7, ("a", 0), ("b", 7)), "q", None, is_owned=True)
    assert at == Place(7, None, (Holder("a", 0), Holder("q", 7)), 7)
    at = find_place(ledger(7, ("a", 0), ("q", 5)), "q", Known(5, 9), is_owned=True)
    assert at == Place(9, None, (Holder("a", 0), Holder("q", 5)), 5)


@pytest.mark.parametrize(
    ("found", "since", "left"),
    [
        (None, 0, Span(10, 20)),
        (ledger(10, ("q", 0), planned=20), 0, Span(10, 20)),
        # The checkpoint is older than the group.
        (ledger(70, ("q", 0)), 0, Span(10, 20)),
        (ledger(70, ("q", 0), ("a", 15)), 0, Span(10, 15)),
        # Taken over where the batch begins, and before it.
        (ledger(10, ("q", 0), ("a", 10), planned=15), 0, Span(10, 10)),
        (ledger(70, ("q", 0), ("a", 5), ("q", 60)), 0, Span(10, 10)),
        # Our place in the chain is forgotten.
        (ledger(70, ("a", 15), ("b", 30)), 0, Span(10, 15)),
        # Members that are not ours, and a checkpoint of the first form.
        (ledger(15), 0, Span(15, 20)),
        (ledger(70), 0, Span(20, 20)),
        (ledger(15, ("a", 12)), None, Span(15, 20)),
    ],
    ids=str,
)
def test_what_is_left_of_a_batch_that_is_repeated(found: Ledger | None, since: int | None, left: Span) -> None:
    """What others took meanwhile is theirs."""
    assert trim(Span(10, 20), found, None if since is None else Holder("q", since)) == left


def test_doubt_is_what_was_planned_behind_the_offset() -> None:
    """And the last holder's."""
    assert ledger(10, ("q", 0), planned=20).doubt == Span(10, 20)
    assert ledger(20, ("q", 0), planned=20).doubt is None
    assert ledger(10, ("q", 0)).doubt is None
    assert ledger(10, ("a", 0), ("q", 3)).holder == "q"
    assert is_last_holder(ledger(10, ("a", 0), ("q", 3)), Holder("q", 3))
    assert not is_last_holder(ledger(10, ("a", 0), ("q", 3)), Holder("q", 2))
    assert json.loads(format_ledger(ledger(10, ("q", 0)))) == {"kohort": 1, "by": [["q", 0]]}


def test_claim_that_says_nothing_new_is_not_made() -> None:
    """It would be a commit for each batch without records; which topic the ledger is of stays with it."""
    partition, named = TopicPartition("t", 0), replace(ledger(5, ("q", 0)), topic_id="an-id")
    at = {partition: find_place(named, "q", Known(since=0, end=5), is_owned=True)}

    claims, taken = build_claims("q", at, {partition: Span(5, 5)}, {partition: named})
    assert (claims, taken) == ({}, {partition: Holder("q", 0)})

    claims, _ = build_claims("q", at, {partition: Span(5, 8)}, {partition: named})
    assert claims == {partition: replace(named, planned=8, count=1)}


@pytest.mark.parametrize("known", [Known(since=None, end=5), Known(since=20, end=25)])
def test_what_was_read_before_the_checkpoint_is_not_lost(known: Known) -> None:
    """A checkpoint of the first form says nothing of when; one of a later share has those before it behind it."""
    found = ledger(30, ("q", 0), ("other", 10))
    assert place(found, known, is_owned=False) is None
    assert place(found, None, is_owned=False) == (0, 10), "without a checkpoint it is"
