"""The laws that no planted bug reaches first can fail, too; and docs/internals/simulation.md knows every law."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from kohort.coordinator.classic.invariants import check_classic_group, check_generation_step
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import (
    CommitOffsets,
    CommitOffsetsReply,
    CommittedOffset,
    FetchOffsets,
    FetchOffsetsReply,
    OffsetToCommit,
)
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import OffsetCommitted
from kohort.errors import ErrorCode, InvariantViolation
from kohort.ids import CauseId, RequestToken, TopicId
from kohort.testing.laws import LAWS
from kohort.testing.laws.generations import GenerationLaws
from kohort.testing.laws.offsets import OffsetLaws
from kohort.testing.story import LawBroken
from support.mixed_dialogue import MixedDialogue, assignment

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "internals" / "simulation.md"


def at_work() -> MixedDialogue:
    """A classic group of two."""
    group = MixedDialogue({"t": 4})
    group.classic_group(x=[0, 1], y=[2, 3])
    return group


def _no_leader(group: ClassicGroup) -> None:
    group.leader = None


def _miscounted(group: ClassicGroup) -> None:
    group.metadata_bytes += 1


def _parked(group: ClassicGroup) -> None:
    group.awaiting_join["x"] = RequestToken(1)


def _parked_stranger(group: ClassicGroup) -> None:
    group.awaiting_sync["z"] = RequestToken(1)


def _unspoken(group: ClassicGroup) -> None:
    group.protocol_name = "mine"


def _deserted(group: ClassicGroup) -> None:
    group.state = ClassicGroupState.EMPTY


@pytest.mark.parametrize(
    ("break_it", "law"),
    [
        (_no_leader, "ClassicTypeOK"),
        (_miscounted, "ClassicTypeOK"),
        (_parked, "ValidMemberGeneration"),
        (_parked_stranger, "ValidMemberGeneration"),
        (_unspoken, "ValidStableGeneration"),
        (_deserted, "ValidStableGeneration"),
    ],
)
def test_broken_classic_law_is_noticed(break_it: Callable[[ClassicGroup], None], law: str) -> None:
    group = at_work().shard.groups.classic["g"]
    check_classic_group(group)
    break_it(group)
    with pytest.raises(InvariantViolation, match=f"^{law}:"):
        check_classic_group(group)


def test_generation_that_falls_is_noticed() -> None:
    group = at_work().shard.groups.classic["g"]
    check_generation_step(group.generation, group)
    with pytest.raises(InvariantViolation, match=r"^GenerationIsMonotonic:"):
        check_generation_step(group.generation + 1, group)


def test_partition_of_two_in_one_generation_is_noticed() -> None:
    """KAFKA-12984."""
    group = at_work()
    laws = GenerationLaws()
    laws.after_step(group.shard.groups, "g", is_stored=True)
    members = group.shard.groups.classic["g"].members
    members["y"] = replace(members["y"], assignment=assignment([1, 2]))
    with pytest.raises(InvariantViolation, match=r"^OneOwnerPerGeneration:"):
        laws.after_step(group.shard.groups, "g", is_stored=True)


def test_every_law_is_explained_and_what_is_named_there_exists() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| `([\w.]+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert [law for law, _, _ in rows] == list(LAWS)
    for law, checker, proofs in rows:
        module, _, function = f"kohort.{checker}".rpartition(".")
        assert hasattr(import_module(module), function), f"{law}: there is no {checker}"
        for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", proofs):
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{law}: there is no {test}"


def test_answer_to_a_commit_that_an_administrator_overruled_promises_nothing() -> None:
    """Seed 2317: both were decided before either was answered; the other way round the answer is a promise."""
    topic_id = TopicId(b"t" * 16)
    laws = OffsetLaws(lambda _: 0, lambda _: "t", {}, is_clean=False)

    def commit(number: int, epoch: int, offset: int) -> CommitOffsets:
        command = CommitOffsets(
            cause=CauseId(number),
            request=RequestToken(number),
            group_id="g",
            member_id="a" if epoch >= 0 else "",
            generation_or_member_epoch=epoch,
            offsets=(OffsetToCommit(topic="t", topic_id=topic_id, partition=0, offset=offset),),
        )
        record = OffsetCommitted(
            group_id="g",
            topic="t",
            partition=0,
            offset=offset,
            leader_epoch=-1,
            metadata="",
            commit_timestamp_ms=0,
            topic_id=topic_id,
        )
        laws.before_step(GroupsState(), command, Decision((record,)))
        return command

    def fetch(offset: int) -> None:
        found = CommittedOffset(topic="t", topic_id=topic_id, partition=0, offset=offset, leader_epoch=-1, metadata="")
        asked = FetchOffsets(cause=CauseId(9), request=RequestToken(9), group_id="g", partitions=(("t", 0),))
        laws.on_answer(asked, FetchOffsetsReply(offsets=(found,)))

    stored = CommitOffsetsReply(errors=(ErrorCode.NONE,))
    of_member, of_admin = commit(1, 5, 115), commit(2, -1, 32)
    laws.on_answer(of_member, stored)
    laws.on_answer(of_admin, stored)
    fetch(32)

    laws.on_answer(commit(3, 5, 40), stored)
    with pytest.raises(LawBroken, match="40 was acknowledged"):
        fetch(32)
