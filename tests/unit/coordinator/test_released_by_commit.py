"""Partitions that a member gives up with its last commit of them (H10): one decision, and the next owner is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kohort.coordinator.commands import CommitOffsetsReply
from kohort.coordinator.decision import TimerKey
from kohort.coordinator.offsets import commit
from kohort.coordinator.records.types import CurrentAssignmentSet, OffsetCommitted, Record, VolatileRecord
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from support.dialogues.classic_client import ClassicClient
from support.dialogues.coordinator_dialogue import Answer
from support.dialogues.hold_dialogue import HoldDialogue
from support.dialogues.mixed_dialogue import MixedDialogue


class Commits(HoldDialogue):
    """A group with a topic "t" of four partitions."""

    def __init__(self, **fields: Any) -> None:
        super().__init__({"t": 4}, **fields)

    def asked(self) -> Answer:
        """Member "a" is asked for 2 and 3, which "b" waits for; the answer to the wait of "b"."""
        self.at_rest(a=[0, 1, 2, 3])
        self.beat("b", epoch=0, hold_ms=0)
        self.beat("a", hold_ms=-1).replies(epoch=1, assigned=[0, 1])
        self.new_records()
        return self.watch("b", epoch=2, knows=[])

    def release(self, *given_up: int, offsets: Iterable[int] = (), epoch: int = 1, **fields: Any) -> Answer:  # type: ignore[override]
        """A commit of "a" with which it gives partitions up."""
        offsets = dict.fromkeys(offsets or given_up, 7)
        answer = self.commit(offsets, member_id="a", epoch=epoch, released=self.partitions(given_up), **fields)
        self.tell_news()
        return answer

    def has(self, member_id: str) -> list[int]:
        return sorted(number for _, number in self.holders()[member_id])


@pytest.fixture
def group() -> Commits:
    return Commits()


def durable(records: Iterable[Record]) -> list[type[Record]]:
    return [type(record) for record in records if not isinstance(record, VolatileRecord)]


def test_commit_and_release_are_one_decision_and_the_next_owner_is_told_at_once(group: Commits) -> None:
    waiting = group.asked()
    batches = len(group.batches)
    answer = group.release(2, 3)
    assert answer.errors() == (ErrorCode.NONE,) * 2
    # The commit comes first in the batch; what "b" takes is a decision of its own.
    assert durable(group.new_records())[:3] == [OffsetCommitted, OffsetCommitted, CurrentAssignmentSet]
    assert len(group.batches) == batches + 2
    waiting.replies(epoch=2, assigned=[2, 3])
    assert group.committed([2, 3]) == {2: 7, 3: 7}
    assert not group.member("a").pending_revocation


def test_member_that_releases_is_told_its_epoch_with_the_commit_and_again_by_a_heartbeat(group: Commits) -> None:
    group.asked()
    news = group.release(2, 3).body_as(CommitOffsetsReply).news
    assert (news.member_epoch, group.named(news.assignment)) == (2, {"t": (0, 1)})
    # The answer to the commit was lost.
    group.beat("a", epoch=1, hold_ms=-1).replies(epoch=2, assigned=[0, 1])
    group.beat("a", epoch=2, hold_ms=-1).replies(epoch=2, assigned=None)


def test_heartbeat_that_says_the_same_again_changes_nothing(group: Commits) -> None:
    group.asked()
    group.release(2, 3)
    before = group.shard.state_digest()
    group.beat("a", epoch=1, owned=[0, 1], hold_ms=-1).replies(epoch=2, assigned=[0, 1])
    assert group.shard.state_digest() == before


def test_repeated_release_changes_nothing(group: Commits) -> None:
    group.asked()
    group.release(2, 3)
    before = group.shard.state_digest()
    group.new_records()
    # The next owner has the partitions: the offsets are refused, and nothing else comes of it.
    assert group.release(2, 3).errors() == (ErrorCode.STALE_MEMBER_EPOCH,) * 2
    assert group.shard.state_digest() == before
    assert not durable(group.new_records())


def test_release_of_some_leaves_the_others(group: Commits) -> None:
    waiting = group.asked()
    group.release(3)
    waiting.replies(epoch=2, assigned=[3])
    assert group.partitions(group.has("b")) == group.partitions([3])
    assert set(group.member("a").pending_revocation[group.topic_id("t")]) == {2}


def test_release_without_offsets_is_one_as_well(group: Commits) -> None:
    """A partition of which nothing was read has nothing to commit."""
    waiting = group.asked()
    group.commit({}, member_id="a", epoch=1, released=group.partitions([2, 3]))
    group.tell_news()
    waiting.replies(epoch=2, assigned=[2, 3])


def test_partitions_that_the_member_does_not_have_and_those_it_keeps_are_ignored(group: Commits) -> None:
    waiting = group.asked()
    group.release(0, 1, 9, offsets=[0])
    assert waiting.is_parked
    assert group.has("a") == [0, 1]
    other = group.commit({}, member_id="a", epoch=1, released={TopicId(b"?" * 16): (2, 3)})
    assert other.errors() == ()
    assert waiting.is_parked


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("a", 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_commit_releases_nothing(group: Commits, member_id: str, epoch: int, code: ErrorCode) -> None:
    waiting = group.asked()
    before = group.shard.state_digest()
    refused = group.commit({2: 7, 3: 7}, member_id=member_id, epoch=epoch, released=group.partitions([2, 3]))
    refused.is_refused(code)
    group.tell_news()
    assert group.shard.state_digest() == before
    assert waiting.is_parked


def test_partition_whose_commit_is_refused_stays(group: Commits) -> None:
    """Its next owner would begin at an older offset."""
    waiting = group.asked()
    too_long = "x" * (group.settings.offset_metadata_max_bytes + 1)
    assert group.release(2, metadata=too_long).errors() == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert waiting.is_parked
    group.release(3)
    waiting.replies(epoch=2, assigned=[3])


def test_late_release_takes_nothing_of_a_later_grant(group: Commits) -> None:
    """The same commit comes twice: the second time the member has the partition anew, and is asked for it again."""
    group.asked()
    group.release(2, 3)
    group.leave("b")
    epoch = group.member("a").member_epoch
    group.beat("a", owned=[0, 1], hold_ms=-1, epoch=epoch).replies(epoch=3, assigned=[0, 1, 2, 3])
    group.beat("a", owned=[0, 1, 2, 3], hold_ms=-1)
    group.beat("c", epoch=0, hold_ms=0)
    group.beat("a", hold_ms=-1).replies(epoch=3, assigned=[0, 1])
    waiting = group.watch("c", epoch=4, knows=[])
    group.release(2, 3, epoch=1)
    assert waiting.is_parked
    assert set(group.member("a").pending_revocation[group.topic_id("t")]) == {2, 3}


def test_release_is_no_sign_of_life(group: Commits) -> None:
    group.asked()
    session = TimerKey("session", group.group_id, "a")
    due_ms = group.shard.timers.deadline(session)
    group.advance(1_000)
    group.release(2, 3)
    assert group.shard.timers.deadline(session) == due_ms
    assert group.shard.timers.deadline(TimerKey("rebalance", group.group_id, "a")) is None


def test_classic_member_releases_nothing_by_a_commit() -> None:
    group = MixedDialogue({"t": 4})
    group.heartbeat("a", epoch=0)
    classic = ClassicClient(group, "b")
    group.heartbeat("a", epoch=1)
    for owned in (None, [0, 1]):
        classic.join()
        classic.learn_generation()
        classic.sync()
        group.heartbeat("a", epoch=1, owned=owned)
    classic.heartbeat()
    classic.join()
    classic.learn_generation()
    before = group.member(classic.member_id)
    assert before.classic is not None
    held = dict(before.assigned)
    assert held
    group.commit({}, member_id=classic.member_id, epoch=classic.generation, released=group.partitions([0, 1, 2, 3]))
    assert group.member(classic.member_id).assigned == held


def test_history_tells_the_commit_and_the_release(group: Commits) -> None:
    group.asked()
    group.advance(2_000)
    group.told.clear()
    group.release(2, 3)
    rows = [(entry.event, dict(entry.details)) for entry in group.told if entry.member_id == "a"]
    assert [event for event, _ in rows] == ["CommitOffsets", "assignment_changed"]
    assert rows[1][1]["released"] == "t-2 t-3"
    moved = next(entry for entry in group.told if entry.event == "partitions_moved")
    assert dict(moved.details)["committed_ms"] == dict(moved.details)["released_ms"] == str(group.now_ms)


# The planted bug of two owners: without each of these rules, two members have a partition, or the commit is lost.


def test_release_in_spite_of_a_refused_commit_would_give_a_partition_to_two(
    group: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that ignores the check of the commit takes a partition from a member that has it anew."""
    monkeypatch.setattr(commit, "_find_released", lambda _, command, *__: dict(command.released))
    with pytest.raises(AssertionError):
        test_late_release_takes_nothing_of_a_later_grant(group)


def test_release_before_the_commit_would_lose_the_commit(group: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release comes first, and the commit is checked behind it: the next owner begins at an older offset."""
    examine = commit.examine_partitions

    def release_first(groups: Any, command: Any, settings: Any, *, member: Any, now_ms: int) -> Any:
        first = commit._decide_release(
            groups, command, settings, member=member, released=command.released, now_ms=now_ms
        )[0]
        group._commit(command, first)
        group.tell_news()
        return examine(groups, command, settings, member=member, now_ms=now_ms)

    waiting = group.asked()
    monkeypatch.setattr(commit, "examine_partitions", release_first)
    assert group.release(2, 3).errors() == (ErrorCode.STALE_MEMBER_EPOCH,) * 2
    waiting.replies(epoch=2, assigned=[2, 3])
    assert group.committed([2, 3]) == {2: -1, 3: -1}
