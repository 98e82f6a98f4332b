"""Planted bugs of what members publish: each is found by its own law.

docs/explanation/simulation.md has the table, which `tools/docs.py` reads from here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kohort.coordinator import commandtable, shard
from kohort.coordinator.consumer import member_metadata
from kohort.coordinator.consumer.metadata_log import MetadataLog
from kohort.coordinator.decision import Decision
from kohort.coordinator.records.types import ConsumerGroupEpochSet, MemberMetadataForgotten
from support.scenarios.planted_bugs import PUBLISHED, always, law_that_finds


def test_publishing_that_raises_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the classic protocol needs: a rebalance for the sake of the news."""
    add = member_metadata.add_metadata

    def disturb(groups: Any, command: Any, decision: Decision, *, now_ms: int) -> Decision:
        found = add(groups, command, decision, now_ms=now_ms)
        group = groups.consumer.get(command.group_id)
        if command.metadata is None or group is None:
            return found
        raised = ConsumerGroupEpochSet(group_id=command.group_id, epoch=group.epoch + 1, metadata_hash=1)
        return replace(found, records=(*found.records, raised))

    monkeypatch.setattr(commandtable, "add_metadata", disturb)

    assert law_that_finds() == "MetadataMovesNothing"


def test_change_that_no_watcher_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edition leaves out what was changed first."""
    since = MetadataLog.changes_since
    monkeypatch.setattr(MetadataLog, "changes_since", lambda board, version: list(since(board, version))[1:])

    assert law_that_finds() == "PublishedIsTold"


def test_edition_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_metadata, "decide_edition", always(None))

    assert law_that_finds() == "PublishedIsTold"


def test_version_that_a_restart_takes_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that were told of another life are not told what it has taken along."""
    monkeypatch.setattr(member_metadata, "is_known", lambda _, known: known > 0)

    assert law_that_finds(scenario=PUBLISHED) == "PublishedIsTold"


def test_metadata_that_outlives_its_member(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = member_metadata.follow_published

    def forget(groups: Any, decision: Decision, *, now_ms: int) -> Decision:
        found = follow(groups, decision, now_ms=now_ms)
        if found is decision:
            return found
        return replace(found, records=tuple(r for r in found.records if not isinstance(r, MemberMetadataForgotten)))

    monkeypatch.setattr(shard, "follow_published", forget)

    assert law_that_finds(scenario=PUBLISHED) == "TypeOK"
