"""Facts as columns: nothing that was told is lost on the way to Spark."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from kohort.client.admin.results.groups import HistoryEvent
from kohort.pipelines.fact import COLUMNS, Fact, Kind
from kohort.pipelines.following import Follower
from kohort.pipelines.journal import batches_of, frame_of
from support.dialogues.journal_rows import Followed, GroupRows, replay


def facts_of(rows: Sequence[HistoryEvent]) -> list[Fact]:
    _, replayed = replay(["uniform", "range"], orders=3)
    told: list[Fact] = []
    for reader in (Follower("billing"), replayed):
        for row in rows:
            reader.read(row)
        told += reader.finish()
    return told


def consumer_rows() -> Sequence[HistoryEvent]:
    """A move, a silence and a refusal; bob's partition is still nobody's."""
    tell = Followed().two_members()
    tell.row("refused", "ada", times=2, api="CommitOffsets", error="STALE_MEMBER_EPOCH", why="of epoch 2")
    tell.row("connection_lost", "bob")
    tell.goes("bob", "session timeout", released="orders-2")
    return tell.rows


def classic_rows() -> Sequence[HistoryEvent]:
    tell = GroupRows(lambda _: None)
    tell.row("member_joined", "m1", client="eve")
    tell.row("rebalance_began", trigger="member joined", why="eve came")
    tell.row("generation_began", "m1", generation=1)
    tell.after(3_000).row("group_at_rest", state="Stable")
    return tell.rows


@pytest.mark.parametrize("rows", [consumer_rows(), classic_rows()], ids=["consumer", "classic"])
def test_columns_have_what_the_facts_have(rows: Sequence[HistoryEvent]) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    told = facts_of(rows)
    found = [row for batch in batches_of(told) for row in batch.to_pylist()]
    assert list(found[0]) == list(COLUMNS)
    # A batch has one kind; within it facts come in their order.
    kinds = list(dict.fromkeys(fact.kind for fact in told))
    assert found == [asdict(fact) for kind in kinds for fact in told if fact.kind == kind]


def test_every_kind_is_told_here() -> None:
    assert {fact.kind for fact in facts_of(consumer_rows())} == set(Kind)


def test_frames_have_one_shape_whatever_is_in_them() -> None:
    """pandas warns where a column without values is put below numbers, as PySpark does with the frames of groups."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    told = facts_of(consumer_rows())
    frames = [frame_of([fact for fact in told if fact.kind == kind]) for kind in Kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pandas.concat(frames)
    assert len(found) == len(told)
    assert {tuple(frame.dtypes) for frame in frames} == {tuple(found.dtypes)}
