"""Each kind of mistake that a query in a group may make, planted: some world of the first 200 finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from kohort.errors import InvariantViolation
from kohort.ids import TopicPartition
from kohort.simulation.queries.query_world import QueryWorld
from kohort.simulation.queries.streaming_query import QueryPlan
from kohort.spark.checkpoint import BatchState
from kohort.spark.member import core, lineage
from kohort.spark.member.core import Membership, UncertainBatches
from kohort.spark.member.lineage import Known, Ledger, Place
from kohort.spark.member.names import QueryName
from kohort.spark.offsets import Span
from support.scenarios.finding_seeds import note_seed, seeds_to_play

#: So many worlds are played at most.
SEEDS = 200
#: Queries are stopped and killed.
ROUGH = QueryPlan(
    queries=3, trigger_s=0.3, every_s=0.7, perturbed_s=8.0, weights={"stop": 3, "kill_reader": 2, "retire": 1}
)
#: Checkpoints are put back.
RESTORED = replace(ROUGH, weights={"stop": 2, "copy": 2, "restore": 2, "add_query": 1})
#: Readers are cut off from their coordinator for longer than a session, and from nothing else.
TORN = replace(ROUGH, weights={"lose_coordinator": 3, "kill_reader": 1}, every_s=2.5, perturbed_s=15.0)
#: Offsets are set from outside while no query is there.
ORDERED = replace(ROUGH, weights={"order": 3, "kill_reader": 2, "stop": 1}, perturbed_s=20.0)


def law_that_finds(plan: QueryPlan) -> str:
    """The law that the first world that finds a bug is broken by."""
    for seed in seeds_to_play(SEEDS):
        try:
            QueryWorld(seed, plan=plan).run()
        except InvariantViolation as broken:
            assert f"make seed WORLD=queries SEED={seed}" in str(broken)
            note_seed(seed)
            return broken.law.partition(":")[0]
    return "none"


def test_worlds_without_a_bug_find_none() -> None:
    for plan in (ROUGH, RESTORED, ORDERED, TORN):
        for seed in range(2):
            QueryWorld(seed, plan=plan).run()


def test_commit_before_the_commit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group believes what was only planned."""
    build = lineage.build_claims

    def build_early(
        name: str,
        places: Mapping[TopicPartition, Place | None],
        spans: Mapping[TopicPartition, Span],
        found: Mapping[TopicPartition, Ledger],
    ) -> Any:
        claims, taken = build(name, places, spans, found)
        return {each: replace(claim, offset=spans[each].end, planned=None) for each, claim in claims.items()}, taken

    monkeypatch.setattr(core, "build_claims", build_early)
    assert law_that_finds(ROUGH) == "NothingMissing"


def test_checkpoint_that_is_overruled_by_its_own_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back to an older copy, and the group is believed instead."""
    find = lineage.find_place

    def believe(ledger: Ledger | None, name: str, known: Known | None, **more: bool) -> Place | None:
        place = find(ledger, name, known, **more)  # type: ignore[arg-type]
        if place is None or ledger is None or place.stop is not None:
            return place
        return place._replace(start=max(place.start, ledger.offset))

    monkeypatch.setattr(core, "find_place", believe)
    assert law_that_finds(replace(RESTORED, queries=1, weights={"copy": 2, "restore": 2})) == "NothingMissing"


def test_leave_with_a_batch_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions are free at once, and its query comes back all the same."""
    part = Membership.part

    def go(self: Membership, batch: BatchState) -> Any:
        yield from part(self, batch)
        return True

    monkeypatch.setattr(Membership, "part", go)
    assert law_that_finds(ROUGH) == "NothingDoubled"


def test_name_that_is_minted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes back is somebody else."""
    monkeypatch.setattr(QueryName, "take", lambda *_: f"kohort-{uuid4().hex[:8]}")
    assert law_that_finds(RESTORED) in {"NothingMissing", "NothingDoubled"}


def test_batch_of_others_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition moves while its batch is in doubt."""

    def hold_nothing(*_: object) -> Any:
        yield from ()
        return set()

    monkeypatch.setattr(UncertainBatches, "find_held", hold_nothing)
    assert law_that_finds(replace(ROUGH, weights={**ROUGH.weights, "add_query": 3})) == "NothingDoubled"


def test_batch_that_counts_as_finished_because_it_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset log is not the commit log."""
    part = Membership.part

    def trust(self: Membership, batch: BatchState) -> Any:
        return part(self, BatchState.FINISHED if batch is BatchState.OPEN else batch)

    monkeypatch.setattr(Membership, "part", trust)
    assert law_that_finds(replace(ROUGH, weights={"retire": 2, "add_query": 3, "stop": 1})) == "NothingMissing"


def test_what_a_copy_has_lost_and_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was handed over since; nobody else will read it."""
    monkeypatch.setattr(lineage, "_find_lost", lambda *_: iter(()))
    assert law_that_finds(replace(RESTORED, weights={"copy": 3, "restore": 3}, perturbed_s=15.0)) == "NothingMissing"


def test_end_of_a_batch_that_others_have_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was trimmed from a repeated batch is taken for read."""
    find = lineage.find_place

    def go_on(ledger: Ledger | None, name: str, known: Known | None, **more: bool) -> Place | None:
        place = find(ledger, name, known, **more)  # type: ignore[arg-type]
        if place is None or known is None or place.stop is not None:
            return place
        return place._replace(start=max(place.start, known.end))

    monkeypatch.setattr(core, "find_place", go_on)
    late = {"kill_reader": 4, "kill_container": 4, "stop": 3, "add_query": 2}
    plan = replace(ROUGH, weights=late, every_s=0.5, perturbed_s=20.0)
    assert law_that_finds(plan) == "NothingMissing"


def test_offset_from_outside_that_is_put_behind_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the checkpoint is believed, and what lies behind it."""
    find = lineage.find_place

    def ignore(ledger: Ledger | None, name: str, known: Known | None, **more: bool) -> Place | None:
        return find(ledger, name, known, **{**more, "follows_orders": False})  # type: ignore[arg-type]

    monkeypatch.setattr(core, "find_place", ignore)
    assert law_that_finds(ORDERED) == "OrderFollowed"


def test_batch_of_what_the_group_has_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is cut off from its coordinator plans nothing: the group would not take its word."""
    tell = Membership._tell

    def tell_and_go_on(self: Membership, ledgers: dict[TopicPartition, Ledger]) -> Any:
        yield from tell(self, ledgers)
        return True

    monkeypatch.setattr(Membership, "_tell", tell_and_go_on)
    monkeypatch.setattr(Membership, "on_lost", lambda *_: None)
    assert law_that_finds(TORN) == "NothingDoubled"
