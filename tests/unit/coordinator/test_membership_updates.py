"""Members that hear beside their heartbeats (requirement H10): what they are told, and what is told again."""

from __future__ import annotations

import pytest

from kohort.coordinator.decision import TimerKey
from kohort.coordinator.records.types import VolatileRecord
from kohort.errors import ErrorCode
from support.dialogues.hold_dialogue import HoldDialogue


@pytest.fixture
def group() -> HoldDialogue:
    return HoldDialogue({"t": 4})


def test_member_that_knows_all_waits_and_hears_of_a_loss_at_once(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    watch = group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    assert watch.is_parked
    group.beat("b", epoch=0, hold_ms=-1)
    watch.replies(epoch=1, assigned=[0, 1])
    assert not group.shard.groups.watches


def test_member_hears_of_a_gain_at_once_and_others_of_nothing(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1], b=[2], c=[3])
    epoch = group.member("a").member_epoch
    first = group.watch("a", epoch=epoch, knows=[0, 1])
    other = group.watch("b", epoch=group.member("b").member_epoch, knows=[2])
    group.leave("c")
    group.tell_news()
    assert first.is_parked
    other.replies(epoch=epoch + 1, assigned=[2, 3])


def test_watch_that_finds_nothing_changes_nothing(group: HoldDialogue) -> None:
    """What a member is told by way of a fetch is no sign of life, and nothing is written for it."""
    group.at_rest(a=[0, 1, 2, 3])
    session = TimerKey("session", group.group_id, "a")
    before, due_ms = group.shard.state_digest(), group.shard.timers.deadline(session)
    group.new_records()
    group.advance(1_000)
    group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    assert all(isinstance(record, VolatileRecord) for record in group.new_records())
    assert group.shard.state_digest() == before
    assert group.shard.timers.deadline(session) == due_ms


def test_news_prolong_no_session(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    session = TimerKey("session", group.group_id, "a")
    due_ms = group.shard.timers.deadline(session)
    group.advance(1_000)
    watch = group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    group.beat("b", epoch=0, hold_ms=-1)
    assert not watch.is_parked
    assert group.shard.timers.deadline(session) == due_ms


def test_news_are_told_again_until_it_is_shown_that_they_arrived(group: HoldDialogue) -> None:
    """The answer was lost: whoever asks by another connection knows what it knew."""
    group.at_rest(a=[0, 1, 2, 3])
    group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    group.beat("b", epoch=0, hold_ms=-1)
    for _ in range(3):
        group.watch("a", epoch=1, knows=[0, 1, 2, 3]).replies(epoch=1, assigned=[0, 1])
    assert group.watch("a", epoch=1, knows=[0, 1]).is_parked
    # It knows: its next heartbeat is told nothing.
    group.beat("a", epoch=1, hold_ms=-1).replies(epoch=1, assigned=None)


def test_heartbeat_tells_what_was_told_aside_as_well(group: HoldDialogue) -> None:
    """A member that fetches nothing any more hears of its loss all the same."""
    group.at_rest(a=[0, 1, 2, 3])
    assert group.watch("a", epoch=1, knows=[0, 1, 2, 3]).is_parked
    group.beat("b", epoch=0, hold_ms=-1)
    group.beat("a", epoch=1, hold_ms=-1).replies(epoch=1, assigned=[0, 1])
    # That is an answer to a heartbeat: whoever loses one says everything.
    group.beat("a", epoch=1, hold_ms=-1).replies(epoch=1, assigned=None)


def test_held_heartbeat_and_fetch_are_both_answered(group: HoldDialogue) -> None:
    """Whichever comes first, the member takes; the other says the same."""
    group.at_rest(a=[0, 1, 2, 3])
    held = group.beat("a")
    watch = group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    group.beat("b", epoch=0, hold_ms=-1)
    watch.replies(epoch=1, assigned=[0, 1])
    held.replies(epoch=1, assigned=[0, 1])


def test_member_that_does_not_know_its_epoch_yet_is_not_fenced(group: HoldDialogue) -> None:
    """The answer to its fetch, which gave it a partition, is on its way when its heartbeat comes."""
    group.at_rest(a=[0, 1], b=[2, 3])
    epoch = group.member("a").member_epoch
    watch = group.watch("a", epoch=epoch, knows=[0, 1])
    group.leave("b")
    group.tell_news()
    watch.replies(epoch=epoch + 1, assigned=[0, 1, 2, 3])
    group.beat("a", epoch=epoch, hold_ms=-1).replies(epoch=epoch + 1, assigned=[0, 1, 2, 3])


def test_member_that_heard_nothing_aside_is_fenced_for_an_old_epoch(group: HoldDialogue) -> None:
    """KIP-848: an epoch below the coordinator's is let in only with a list of what is owned."""
    group.at_rest(a=[0, 1], b=[2, 3])
    epoch = group.member("a").member_epoch
    group.leave("b")
    group.beat("a", epoch=epoch, hold_ms=-1).replies(epoch=epoch + 1, assigned=[0, 1, 2, 3])
    group.beat("a", epoch=epoch, hold_ms=-1).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)


def test_no_word_aside_acknowledges_a_revocation(group: HoldDialogue) -> None:
    """Only the list of a heartbeat does; a fetch may be late."""
    group.at_rest(a=[0, 1, 2, 3])
    group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    group.beat("b", epoch=0, hold_ms=-1)
    group.watch("a", epoch=1, knows=[0, 1])
    group.beat("b", epoch=group.member("b").member_epoch, hold_ms=-1)
    assert not group.member("b").assigned
    group.beat("a", epoch=1, owned=[0, 1], hold_ms=-1)
    assert group.member("a").pending_revocation == {}


def test_member_that_is_gone_is_told_so(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1], b=[2, 3])
    epoch = group.member("a").member_epoch
    watch = group.watch("a", epoch=epoch, knows=[0, 1])
    group.leave("a")
    group.tell_news()
    watch.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.watch("a", epoch=epoch, knows=[0, 1]).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.watch("b", epoch=9, knows=[]).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    assert not group.shard.groups.watches


def test_look_is_answered_at_once(group: HoldDialogue) -> None:
    """A commit does not wait for news."""
    group.at_rest(a=[0, 1, 2, 3])
    group.watch("a", epoch=1, knows=[0, 1, 2, 3], is_look=True).replies(epoch=1, assigned=None)
    group.beat("b", epoch=0, hold_ms=-1)
    group.watch("a", epoch=1, knows=[0, 1, 2, 3], is_look=True).replies(epoch=1, assigned=[0, 1])
    assert not group.shard.groups.watches


def test_abandoned_watch_is_forgotten_and_a_younger_one_stays(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    older = group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    first = group.shard.groups.watches[group.group_id]["a"]
    assert first.request == older.request
    younger = group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    group.shard.abandon(first, now_ms=group.now_ms)
    assert group.shard.groups.watches[group.group_id]["a"].request == younger.request
    group.shard.abandon(group.shard.groups.watches[group.group_id]["a"], now_ms=group.now_ms)
    assert not group.shard.groups.watches


def test_watch_of_a_member_that_has_left_is_no_event_of_its_group(group: HoldDialogue) -> None:
    """It is refused, and nobody who reads the history has to know that a fetch was under way."""
    group.at_rest(a=[0, 1, 2, 3])
    watch = group.watch("a", epoch=1, knows=[0, 1, 2, 3])
    group.leave("a")
    group.tell_news()
    watch.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert [entry for entry in group.told if entry.event == "refused"] == []
