"""Held heartbeats (requirement H1): whose answer waits, for how long, and what releases it."""

from __future__ import annotations

from random import Random

import pytest

from kohort.coordinator import delayed_heartbeats
from kohort.coordinator.commands import ConsumerGroupHeartbeatReply
from kohort.coordinator.records.types import CurrentAssignmentSet
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import Answer
from support.dialogues.hold_dialogue import HOLD_MS, HoldDialogue


@pytest.fixture
def group() -> HoldDialogue:
    return HoldDialogue({"t": 4})


def test_heartbeat_without_news_is_answered_at_the_end_of_its_hold(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    held = group.beat("a")
    group.advance(HOLD_MS - 1)
    assert held.is_parked
    group.advance(1)
    held.replies(epoch=1, assigned=None, interval=5_000)
    assert not group.shard.groups.holds


def test_client_that_does_not_bear_it_is_answered_at_once(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("a", hold_ms=0).replies(epoch=1)
    group.beat("a", hold_ms=-1).replies(epoch=1)


def test_revocation_and_share_are_told_the_moment_they_are_there(group: HoldDialogue) -> None:
    """A partition moves from one member to the other without a heartbeat that asks for it."""
    group.at_rest(a=[0, 1], b=[2, 3])
    before = group.beat("a"), group.beat("b")
    waiting = group.beat("c", epoch=0)
    (told,) = [answer for answer in before if not answer.is_parked]
    told.replies(epoch=2, assigned=[2], interval=5_000)

    acknowledged = group.beat("b", owned=[2])

    waiting.replies(epoch=3, assigned=[3], interval=5_000)
    # It is carried out, stored and held: the member hears of the next change at once.
    assert acknowledged.is_parked
    assert group.held() == {"a", "b"}
    assert any(isinstance(record, CurrentAssignmentSet) for record in group.new_records())
    group.advance(HOLD_MS)
    acknowledged.replies(epoch=3, assigned=None)
    before[0].replies(epoch=2, assigned=None)


def test_nobody_is_told_for_nothing(group: HoldDialogue) -> None:
    """G7: who keeps what it has goes on waiting, whatever becomes of the others."""
    group.at_rest(a=[0, 1], b=[2, 3])
    held = group.beat("a")
    group.beat("c", epoch=0)
    group.leave("c")
    assert held.is_parked


def test_who_joins_and_gets_nothing_comes_soon_to_be_held() -> None:
    """It has nothing to acknowledge: nothing else brings the heartbeat by which it can be told of a share."""
    group = HoldDialogue({"t": 1})
    group.at_rest(a=[0])
    group.beat("b", epoch=0).replies(epoch=2, assigned=[], interval=500)
    held = group.beat("b")
    group.leave("a")
    group.tell_news()
    held.replies(epoch=3, assigned=[0], interval=5_000)


def test_who_was_given_something_is_not_held_before_it_says_what_it_owns(group: HoldDialogue) -> None:
    """Its acknowledgement may wait behind its own heartbeat; a client that never says so waits for one interval."""
    group.at_rest(a=[0, 1], b=[2, 3])
    group.leave("b")
    group.beat("a").replies(epoch=3, assigned=[0, 1, 2, 3], interval=5_000)
    group.beat("a").replies(epoch=3)
    group.advance(4_999)
    group.beat("a").replies(epoch=3)
    group.advance(1)
    assert group.beat("a").is_parked
    group.beat("a", owned=[0, 1, 2, 3])
    assert group.held() == {"a"}


def test_list_that_was_made_before_the_latest_share_was_told_ends_no_wait(group: HoldDialogue) -> None:
    """Two heartbeats under way: the first is told more; its member takes that with the answer to the second."""
    group.at_rest(a=[0, 1], b=[2, 3])
    group.leave("b")
    group.beat("a").replies(epoch=3, assigned=[0, 1, 2, 3])
    group.beat("a", owned=[0, 1, 2]).replies(epoch=3, assigned=None)
    assert group.beat("a", owned=[0, 1, 2, 3]).is_parked


def test_who_says_everything_is_held_where_it_would_be_told_what_it_says() -> None:
    """librdkafka's consumer says everything with every heartbeat while it owns nothing."""
    group = HoldDialogue({"t": 1})
    group.at_rest(a=[0])
    group.beat("b", epoch=0)
    held = group.beat("b", owned=[], full=True)
    assert held.is_parked
    group.leave("a")
    group.tell_news()
    held.replies(epoch=3, assigned=[0], interval=5_000)
    group.beat("b", owned=[], full=True).replies(epoch=3, assigned=[0])
    group.beat("b").replies(epoch=3)
    assert group.beat("b", owned=[0], full=True).is_parked


def test_who_has_to_give_up_is_not_held_before_it_has(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("b", epoch=0)
    group.beat("a").replies(epoch=1, assigned=[0, 1])
    group.beat("a").replies(epoch=1)
    group.beat("a", owned=[0, 1, 2]).replies(epoch=1)
    assert group.beat("a", owned=[0, 1]).is_parked


def test_who_leaves_or_gets_its_share_with_its_join_is_answered_at_once(group: HoldDialogue) -> None:
    group.beat("a", epoch=0).replies(epoch=1, assigned=[0, 1, 2, 3], interval=5_000)
    assert not group.beat("a", epoch=-1).is_parked
    assert not group.held()


def test_who_joins_waits_for_all_of_its_share_and_no_longer_than_it_may(group: HoldDialogue) -> None:
    """What is free by then is told with the end of its hold; until its share is complete it comes soon again."""
    group.at_rest(a=[0, 1, 2, 3])
    joined = group.beat("b", epoch=0, hold_ms=1_000)
    group.beat("a").replies(epoch=1, assigned=[0, 1])
    group.beat("a", owned=[0, 1, 2])
    group.advance(999)
    assert joined.is_parked
    group.advance(1)
    joined.replies(epoch=2, assigned=[3], interval=500)

    later = group.beat("b", owned=[3], hold_ms=400)
    assert later.is_parked
    group.beat("a", owned=[0, 1])
    later.replies(epoch=2, assigned=[2, 3], interval=5_000)


def test_who_joins_gives_up_at_once_what_it_was_not_told_of(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    joined = group.beat("b", epoch=0, hold_ms=1_000)
    group.beat("a", owned=[0, 1, 2])
    group.beat("c", epoch=0, hold_ms=1_000)
    group.beat("a", owned=[0, 1])
    given = {member_id: group.group.targets[member_id][group.topic_id("t")] for member_id in "bc"}
    group.advance(1_000)
    joined.replies(epoch=3, assigned=given["b"])
    assert group.group.members["b"].pending_revocation == {}


def test_who_is_removed_while_it_joins_is_told_to_join_anew(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    joined = group.beat("b", epoch=0, hold_ms=60_000, instance_id="i")
    group.advance(45_000)
    joined.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not group.shard.groups.holds


def test_who_cuts_its_holds_comes_often_and_the_less_so_the_longer_ago_that_is(group: HoldDialogue) -> None:
    """A commit is answered behind the heartbeat that is held, which ends that: nobody could reach the member then."""
    group.at_rest(a=[0, 1, 2, 3])
    cut = group.beat("a")
    held = group.shard.held("g", "a")
    assert held is not None
    group.release(held, is_cut=True)
    cut.replies(epoch=1, interval=1_000)
    for since_ms, interval_ms in ((0, 1_000), (4_000, 1_000), (10_000, 2_500), (60_000, 5_000)):
        group.beat("a", hold_ms=0, since_cut_ms=since_ms).replies(epoch=1, interval=interval_ms)


def test_who_is_fenced_or_removed_is_told_at_once(group: HoldDialogue) -> None:
    """The session of a silent member runs from the arrival of its last heartbeat, held or not."""
    group.at_rest(a=[0, 1], b=[2, 3])
    group.beat("b", epoch=7).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    held = group.beat("a", hold_ms=60_000)
    group.advance(44_999)
    assert held.is_parked
    group.advance(1)
    held.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not group.shard.groups.holds


def test_answer_that_is_released_is_no_sign_of_life(group: HoldDialogue) -> None:
    """A process that stands still is fenced at its session timeout, counted from its last request, as it counts."""
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("a", counts_requests=True)
    group.advance(HOLD_MS)
    assert not group.held()
    group.advance(44_999 - HOLD_MS)
    assert "a" in group.group.members
    group.advance(1)
    assert "a" not in group.group.members


@pytest.mark.parametrize("ends_early", [False, True])
def test_what_was_held_of_the_answer_of_a_stock_client_is_added_to_its_session(
    group: HoldDialogue, ends_early: bool
) -> None:
    """It counts from the answer, and would read on beside whoever has its partitions then."""
    group.at_rest(a=[0, 1, 2, 3])
    answer, held_ms = group.beat("a"), 1_000 if ends_early else HOLD_MS
    group.advance(held_ms)
    if ends_early:
        held = group.shard.held("g", "a")
        assert held is not None
        group.release(held, is_cut=True)
    assert not answer.is_parked
    group.advance(44_999)
    assert "a" in group.group.members
    group.advance(1)
    assert "a" not in group.group.members


def test_stock_client_whose_connection_closes_has_no_longer_session(group: HoldDialogue) -> None:
    """Nothing was answered from which it could count."""
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("a")
    group.advance(1_000)
    group.close("a")
    group.advance(44_000)
    assert "a" not in group.group.members


def test_closed_connection_drops_its_hold(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    held = group.beat("a")
    group.close("a")
    assert not group.shard.groups.holds
    group.advance(HOLD_MS)
    assert held.is_parked


def test_another_interval_of_the_group_is_news(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    held = group.beat("a")
    group.alter_configs({"consumer.heartbeat.interval.ms": "6000"})
    group.tell_news()
    held.replies(epoch=1, assigned=None, interval=6_000)


@pytest.mark.parametrize("configs", [{"group.membership": "static"}, {"group.moves.per.second": "2"}])
def test_config_that_tells_a_member_nothing_leaves_it_within_reach(configs: dict[str, str | None]) -> None:
    """A client that is answered comes again an interval later: what comes before that could not be told."""
    group = HoldDialogue({"t": 4})
    group.heartbeat("a", epoch=0, instance_id="a")
    group.settle()
    held = group.beat("a")
    group.alter_configs(configs).is_done()
    group.tell_news()
    assert held.is_parked


def test_restart_forgets_who_waits(group: HoldDialogue) -> None:
    group.at_rest(a=[0, 1, 2, 3])
    group.beat("a")
    group.restart()
    assert not group.held()
    assert group.beat("a").is_parked


@pytest.mark.large
@pytest.mark.parametrize("seed", range(5))
def test_hold_lasts_while_a_heartbeat_would_say_nothing_and_ends_in_its_time(seed: int) -> None:
    """Members join, leave and acknowledge, held all the time."""
    chance = Random(seed)
    group = HoldDialogue({"t": 7}, group_consumer_assignment_window_ms=50)
    owned: dict[str, list[int]] = {}
    beats: dict[str, tuple[int, Answer]] = {}
    for _ in range(150):
        member_id = chance.choice("abcd")
        if member_id not in owned:
            beats[member_id] = group.now_ms, group.beat(member_id, epoch=0)
            owned[member_id] = []
        elif chance.random() < 0.15:
            group.leave(member_id)
            group.tell_news()
            del owned[member_id], beats[member_id]
        else:
            beats[member_id] = group.now_ms, group.beat(member_id, owned=owned[member_id])
        group.advance(chance.choice([0, 60, 500, 1_500]))
        for each, (since_ms, answer) in beats.items():
            held = group.shard.held("g", each)
            assert answer.is_parked == (held is not None)
            if held is not None:
                assert group.now_ms < since_ms + HOLD_MS
                would = group.shard.handle(delayed_heartbeats.ask_again(group.shard.groups, held), now_ms=group.now_ms)
                assert delayed_heartbeats.is_quiet(held, would) and not delayed_heartbeats.keep(held, would).records
            elif isinstance(answer.body, ConsumerGroupHeartbeatReply) and answer.body.assignment is not None:
                owned[each] = [number for partitions in answer.body.assignment.values() for number in partitions]
