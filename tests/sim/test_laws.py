"""What laws look at in particular; and every law has a proof, which docs/explanation/simulation.md names."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import (
    CommitOffsets,
    CommitOffsetsReply,
    CommittedOffset,
    FetchOffsets,
    FetchOffsetsReply,
    OffsetToCommit,
    TopicsChanged,
)
from kohort.coordinator.decision import Decision
from kohort.coordinator.invariants import (
    check_classic_group,
    check_classic_type,
    check_generation_step,
    check_valid_member_generation,
    check_valid_stable_generation,
)
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records.codec import decode, encode_durable
from kohort.coordinator.records.types import OffsetCommitted
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode, InvariantViolation
from kohort.ids import CauseId, RequestToken, TopicId
from kohort.simulation.checkers import LAWS, Checkers
from kohort.simulation.invariants.assignments import GenerationLaws
from kohort.simulation.invariants.offsets import OffsetLaws
from kohort.simulation.runtime import Home, SimulatedLog
from kohort.simulation.trace import LawBroken
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.mixed_dialogue import MixedDialogue, assignment

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "docs.py"


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
    """Each by its own law, and by no other."""
    group = at_work().shard.groups.classic["g"]
    checks = (check_classic_type, check_valid_member_generation, check_valid_stable_generation)
    assert broken(checks, group) == []
    break_it(group)
    assert broken(checks, group) == broken([check_classic_group], group) == [law]


def broken(checks: Sequence[Callable[[ClassicGroup], None]], group: ClassicGroup) -> list[str]:
    """The laws that these find broken."""
    laws = []
    for check in checks:
        try:
            check(group)
        except InvariantViolation as violation:
            laws.append(violation.law.partition(":")[0])
    return laws


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


def test_what_is_raised_is_a_law_and_every_law_is_raised() -> None:
    assert runpy.run_path(str(TOOL))["checking_files"]().keys() == LAWS.keys()


def test_every_law_is_proved_by_a_planted_bug() -> None:
    """A law that nobody has seen fail may be one that cannot."""
    proofs = runpy.run_path(str(TOOL))["proofs"]()
    assert proofs.keys() == LAWS.keys()


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


def test_deadlines_are_looked_for_once_they_are_set() -> None:
    """Seed 2205: a restart tells the topics first, and one whose offsets go with it was deleted meanwhile."""
    group = GroupDialogue({"t": 2, "v": 1}, group_consumer_assignment_interval_ms=1_000)
    group.stable(a=[0, 1])
    group.commit({("v", 0): 7}, member_id="a", epoch=1)
    group.heartbeat("b", epoch=0)
    home = Home(0, group.fold(), group.fold(), SimulatedLog())
    checkers = Checkers(
        str,
        {},
        home_of=lambda _: 0,
        now_ms=lambda: group.now_ms,
        is_first_of_its_name=lambda _: True,
        is_by_administrator=lambda _: False,
    )

    checkers.on_restart(home)
    facts = (TopicFacts(name="t", topic_id=group.topic_id("t"), partition_count=2),)
    command = TopicsChanged(cause=CauseId(1), image=TopicImage.of(facts, version=1))
    decision = home.shard.handle(command, now_ms=group.now_ms)
    assert "g" in {record.group_id for record in decision.records}
    checkers.before_step(home, command, decision)
    home.shard.commit(decision, now_ms=group.now_ms)
    for key, value in encode_durable(decision.records):
        record = decode(key, value)
        assert record is not None
        home.mirror.apply(record)
    checkers.after_step(home, decision)

    with pytest.raises(InvariantViolation, match=r"^EventuallyConverges: group g: the target is old"):
        checkers.on_loaded(home)
    home.shard.on_loaded(group.now_ms)
    checkers.on_loaded(home)
