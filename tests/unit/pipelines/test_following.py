"""What the rows of a group come to: rebalances, gaps between owners, waits, stays, refusals."""

from __future__ import annotations

import pickle

import pytest

import support.scenarios.classic_situations
import support.scenarios.static_situations
from kohort.journal.words import read_partitions
from kohort.pipelines.fact import Fact, Kind
from kohort.pipelines.following import NAMED_CAUSES, Follower
from support.dialogues.explained import event_of, explained
from support.dialogues.journal_rows import Followed, GroupRows
from support.scenarios.situations import SITUATIONS

assert support.scenarios.classic_situations and support.scenarios.static_situations, "importing them fills the table"


@pytest.fixture
def group() -> Followed:
    return Followed()


def lasted(fact: Fact) -> int | None:
    return None if fact.ended_ms is None else fact.ended_ms - fact.began_ms


def test_a_partition_is_nobody_s_from_its_release_to_its_next_owner(group: Followed) -> None:
    group.two_members()
    (gap,) = group.facts(Kind.GAP)
    assert (gap.topic, gap.partition, gap.member, gap.next_member, gap.why) == ("orders", 2, "ada", "bob", "asked back")
    assert (lasted(gap), gap.is_empty) == (100, False)


def test_a_rebalance_tells_what_it_cost(group: Followed) -> None:
    group.two_members()
    first, second = group.facts(Kind.REBALANCE)
    assert (first.cause, lasted(first), first.moved, first.unread_ms) == ("ada joined", 100, 0, 0)
    assert (second.cause, lasted(second), second.members, second.given_back_by) == ("bob joined", 400, 2, 1)
    assert (second.moved, second.unread, second.unread_ms) == (1, 1, 100)
    assert (second.fewest, second.most, second.partitions) == (1, 2, 3)


def test_what_a_member_leaves_behind_is_not_moved_but_nobody_s(group: Followed) -> None:
    tell = group.two_members()
    tell.goes("bob", "member left", released="orders-2")
    tell.after(300).settles("ada", gained="orders-2")
    assert (group.facts(Kind.GAP)[-1].why, lasted(group.facts(Kind.GAP)[-1])) == ("member left", 300)
    left = group.facts(Kind.REBALANCE)[-1]
    assert (left.cause, left.moved, left.unread_ms) == ("bob left", 0, 300)


def test_a_gap_begins_where_the_connection_was_lost(group: Followed) -> None:
    """The member has read nothing since then, whenever the coordinator gave it up."""
    tell = group.two_members()
    tell.row("connection_lost", "bob")
    tell.after(5_000).goes("bob", "session timeout", released="orders-2")
    tell.after(300).settles("ada", gained="orders-2")
    gap = group.facts(Kind.GAP)[-1]
    assert (gap.why, lasted(gap), gap.is_noticed) == ("session timeout", 5_300, True)


def test_a_connection_that_is_back_was_no_gap(group: Followed) -> None:
    tell = group.two_members()
    tell.row("connection_lost", "bob")
    tell.after(500).row("connection_back", "bob")
    tell.after(5_000).goes("bob", "session timeout", released="orders-2")
    tell.after(300).settles("ada", gained="orders-2")
    assert (lasted(group.facts(Kind.GAP)[-1]), group.facts(Kind.GAP)[-1].is_noticed) == (300, False)


def test_a_static_member_that_is_away_keeps_what_nobody_reads(group: Followed) -> None:
    tell = group.tell
    tell.joins("m1", instance="one")
    tell.after(100).settles("m1", gained="orders-0")
    tell.after(100).row("member_away", "m1", instance="one", held="orders-0")
    tell.after(2_000).row("assignment_released", "m1", released="orders-0")
    tell.row("member_removed", "m1", instance="one", reason="static member returned")
    tell.row("member_joined", "m2", instance="one", client="app")
    tell.settles("m2", gained="orders-0")
    (gap,) = group.facts(Kind.GAP)
    assert (gap.why, gap.member, gap.next_member, lasted(gap)) == ("away", "one", "one", 2_000)
    (wait,) = group.facts(Kind.WAIT)
    assert (wait.why, wait.cause, wait.partitions, lasted(wait)) == ("away", "static member returned", 1, 2_000)


def test_a_static_member_s_return_is_no_cause_of_the_next_rebalance(group: Followed) -> None:
    tell = group.tell
    tell.joins("m1", instance="one")
    tell.after(100).settles("m1", gained="orders-0")
    tell.goes("m1", "static member returned", instance="one")
    tell.row("member_joined", "m2", instance="one", client="app")
    tell.settles("m2", gained="orders-0")
    tell.after(100).joins("ada")
    tell.after(100).settles("ada")
    tell.settles("m2")
    assert [fact.cause for fact in group.facts(Kind.REBALANCE)] == ["one joined", "ada joined"]


def test_a_group_without_members_is_told_apart(group: Followed) -> None:
    tell = group.two_members()
    for member, partitions in (("ada", "orders-0 orders-1"), ("bob", "orders-2")):
        tell.goes(member, "member left", released=partitions)
    tell.after(60_000).joins("cleo")
    tell.after(100).settles("cleo", gained="orders-0 orders-1 orders-2")
    assert [gap.is_empty for gap in group.facts(Kind.GAP)] == [False, True, True, True]


def test_a_member_that_does_not_give_back_is_stuck_until_it_is_removed(group: Followed) -> None:
    tell = group.tell
    tell.joins("ada")
    tell.settles("ada", gained="orders-0 orders-1")
    tell.after(100).joins("bob")
    tell.gives_back("ada", "orders-1")
    tell.after(300_000).goes("ada", "rebalance timeout", released="orders-0 orders-1")
    (wait,) = group.facts(Kind.WAIT)
    assert (wait.member, wait.why, wait.cause, wait.partitions) == ("ada", "asked back", "rebalance timeout", 1)
    assert lasted(wait) == 300_000


def test_what_is_not_over_is_told_without_an_end(group: Followed) -> None:
    tell = group.tell
    tell.joins("ada")
    tell.settles("ada", gained="orders-0 orders-1")
    tell.joins("bob")
    tell.waits("bob")
    tell.gives_back("ada", "orders-1")
    assert group.facts(Kind.WAIT) == []
    facts = group.follower.finish()
    assert {(fact.kind, fact.member, fact.why) for fact in facts if fact.ended_ms is None} == {
        ("rebalance", None, "member joined"),
        ("wait", "ada", "asked back"),
        ("wait", "bob", "waits for others"),
        ("stay", "ada", None),
        ("stay", "bob", None),
    }


def test_a_partition_without_a_next_owner_is_still_nobody_s(group: Followed) -> None:
    tell = group.two_members()
    tell.goes("bob", "member left", released="orders-2")
    (gap,) = group.open(Kind.GAP)
    assert (gap.partition, gap.next_member, gap.ended_ms) == (2, None, None)


def test_a_group_that_is_gone_has_no_gaps(group: Followed) -> None:
    tell = group.two_members()
    tell.goes("bob", "member left", released="orders-2")
    tell.after(50).row("group_forgotten")
    assert lasted(group.facts(Kind.GAP)[-1]) == 50
    assert group.follower.finish() == []


def test_a_classic_rebalance_lasts_until_the_group_is_at_rest(group: Followed) -> None:
    tell = group.tell
    tell.row("member_joined", "m1", client="ada")
    tell.row("rebalance_began", trigger="member joined", why="member m1 joined")
    tell.after(3_000).row("generation_began", "m1", generation=7, protocol="range")
    tell.after(20).row("group_at_rest", state="Stable", generation=7, members=1)
    (told,) = group.facts(Kind.REBALANCE)
    assert (told.protocol, told.epoch, told.cause, lasted(told)) == ("classic", 7, "ada joined", 3_020)
    assert (told.members, told.moved, told.unread_ms, told.most) == (1, None, None, None)


def test_who_goes_during_a_classic_rebalance_is_a_part_of_it(group: Followed) -> None:
    tell = group.tell
    for member in ("ada", "bob"):
        tell.row("member_joined", member, client=member)
        tell.row("rebalance_began", trigger="member joined")
        tell.row("group_at_rest", state="Stable", generation=tell.sequence, members=1)
    tell.row("member_joined", "cleo", client="cleo")
    tell.row("rebalance_began", trigger="member joined")
    tell.after(6_000).row("member_removed", "ada", reason="session timeout")
    tell.row("group_at_rest", state="Stable", generation=9, members=2)
    assert group.facts(Kind.REBALANCE)[-1].cause == "cleo joined, ada silent"


def test_a_crowd_is_named_in_part_and_counted(group: Followed) -> None:
    """A thousand members that come at once would be a cause as long as a page."""
    tell = group.tell
    tell.row("member_joined", "m0", client="m0")
    tell.row("rebalance_began", trigger="member joined")
    for number in range(1, 1_000):
        tell.row("member_joined", f"m{number}", client=f"m{number}")
    tell.row("group_at_rest")
    (fact,) = group.facts(Kind.REBALANCE)
    named = ", ".join(f"m{number} joined" for number in range(NAMED_CAUSES + 1))
    assert fact.cause == f"{named} and {1_000 - NAMED_CAUSES - 1} more"


def test_rows_that_come_twice_count_once(group: Followed) -> None:
    """What keeps a history may start over, and read from the beginning what it has written down already."""
    tell = group.two_members()
    before = [group.facts(kind) for kind in Kind]
    for row in tell.rows:
        group.follower.read(row)
    assert [group.facts(kind) for kind in Kind] == before


def test_rows_after_a_clock_was_set_back_count(group: Followed) -> None:
    tell = group.two_members()
    tell.after(-4_000).goes("bob", "member left", released="orders-2")
    tell.after(300).settles("ada", gained="orders-2")
    assert group.facts(Kind.REBALANCE)[-1].cause == "bob left"


def test_rows_of_a_broker_that_started_anew_count(group: Followed) -> None:
    tell = group.two_members()
    tell.sequence = 0
    tell.after(10_000).goes("bob", "member left", released="orders-2")
    tell.after(300).settles("ada", gained="orders-2")
    assert group.facts(Kind.REBALANCE)[-1].cause == "bob left"


def test_partitions_that_rows_do_not_name_are_counted(group: Followed) -> None:
    group.tell.joins("ada")
    group.tell.settles("ada", gained="orders-0 orders-1 and 98 more")
    assert group.facts(Kind.REBALANCE)[0].most == 100


def test_members_of_one_name_are_told_as_namesakes(group: Followed) -> None:
    for member in ("m1", "m2"):
        group.tell.joins(member, client="app")
        group.tell.settles(member)
    group.tell.goes("m1", "member left")
    (stay,) = group.facts(Kind.STAY)
    assert (stay.member, stay.member_id, stay.host, stay.members) == ("app", "m1", "10.0.0.1", 2)


def test_a_refusal_says_what_was_refused_and_how_often(group: Followed) -> None:
    group.tell.row("refused", "m9", times=4, api="CommitOffsets", error="UNKNOWN_MEMBER_ID", why="it was removed")
    (told,) = group.facts(Kind.REFUSAL)
    assert (told.protocol, told.why, told.cause, told.times) == (
        "CommitOffsets", "UNKNOWN_MEMBER_ID", "it was removed", 4,
    )  # fmt: skip


def test_a_history_that_begins_in_the_middle_is_followed_from_there(group: Followed) -> None:
    """The oldest rows are dropped first; members that nobody has introduced are called by their ids."""
    group.tell.settles("m1", released="orders-0")
    group.tell.after(70).settles("m2", gained="orders-0")
    (gap,) = group.facts(Kind.GAP)
    assert (gap.member, gap.next_member, lasted(gap)) == ("m1", "m2", 70)


def test_a_group_that_never_rests_is_not_remembered_for_ever(group: Followed) -> None:
    group.tell.joins("ada")
    for _ in range(100):
        group.tell.after(10).bumped("topics changed")
    told = group.facts(Kind.REBALANCE)
    assert [(fact.cause, lasted(fact)) for fact in told] == [("ada joined", 10), *[("topics changed", 10)] * 99]


def test_what_changes_before_there_is_a_target_is_one_rebalance(group: Followed) -> None:
    """As in `kohort group why`: the two said 3.9 and 0.4 s of one."""
    group.tell.joins("ada", alone=False)
    group.tell.after(40).joins("bob")
    group.tell.after(20).settles("ada")
    group.tell.settles("bob")
    (told,) = group.facts(Kind.REBALANCE)
    assert (told.cause, told.epoch, lasted(told)) == ("ada joined, bob joined", group.tell.epoch, 60)


def test_a_partition_is_unread_from_the_last_fetch_to_the_first(group: Followed) -> None:
    tell = group.two_members()
    tell.after(8_000).row("assignment_released", "bob", released="orders-2", read_ms=tell.at - 7_700)
    tell.row("member_removed", "bob", reason="session timeout", silent_ms=7_700)
    tell.bumped("session timeout")
    tell.after(50).settles("ada", gained="orders-2")
    assert len(group.facts(Kind.REBALANCE)) == 2
    tell.after(10).row("partitions_read", "ada", partitions="orders-2", read_ms=tell.at - 7_760, unread_ms=7_760)
    gap, rebalance = group.facts(Kind.GAP)[-1], group.facts(Kind.REBALANCE)[-1]
    assert (gap.member, gap.next_member, gap.why, lasted(gap)) == ("bob", "ada", "session timeout", 7_760)
    assert (gap.is_noticed, gap.is_at_most) == (True, False)
    assert (lasted(rebalance), rebalance.unread, rebalance.unread_ms) == (50, 1, 7_760)


def test_a_rebalance_costs_what_its_longest_gap_lasts(group: Followed) -> None:
    """As in `kohort group why`: the sum over its partitions is no outage."""
    tell = group.two_members()
    tell.settles("bob", gained="orders-3")
    tell.after(8_000).row("assignment_released", "bob", released="orders-2 orders-3", read_ms=tell.at - 7_700)
    tell.goes("bob", "session timeout")
    tell.after(50).settles("ada", gained="orders-2 orders-3")
    for partition, ms in (("orders-2", 7_760), ("orders-3", 7_790)):
        tell.after(5).row("partitions_read", "ada", partitions=partition, read_ms=tell.at - ms, unread_ms=ms)
    told = group.facts(Kind.REBALANCE)[-1]
    assert (told.unread, told.unread_ms) == (2, 7_790)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_tables_and_the_sentences_have_one_definition(name: str) -> None:
    """What lasted how long, and what was read by nobody meanwhile."""
    played = SITUATIONS[name][0]()
    follower = Follower("g")
    for row in played.journal.history("g").rows:
        follower.read(event_of(row))
    facts = follower.take() + follower.finish()
    told = explained(played).rebalances
    over = {(each.number, each.began_ms, each.ended_ms) for each in told if each.ended_ms is not None}
    tabled = {(each.epoch, each.began_ms, each.ended_ms) for each in facts if each.kind is Kind.REBALANCE}
    assert over <= tabled
    unread = {
        (move.topic, move.partition, move.read_ms, move.read_again_ms, move.is_at_most)
        for each in told
        for move in each.moves
        if move.unread_ms
    }
    gaps = {
        (each.topic, each.partition, each.began_ms, each.ended_ms, bool(each.is_at_most))
        for each in facts
        if each.kind is Kind.GAP and each.next_member is not None
    }
    assert unread <= gaps


def test_a_follower_goes_on_where_another_has_been_put_away() -> None:
    """A stream keeps it between its batches, wherever in a rebalance one ends."""
    whole = Followed()
    rows = whole.two_members().rows
    expected = whole.follower.take() + whole.follower.finish()
    kept = pickle.dumps(Follower("billing"))
    told: list[Fact] = []
    for row in rows:
        follower: Follower = pickle.loads(kept)
        follower.read(row)
        told += follower.take()
        kept = pickle.dumps(follower)
    assert told + pickle.loads(kept).finish() == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ((), 0)),
        ("a-b-12", ((("a-b", 12),), 0)),
        ("a-0 and 7 more", ((("a", 0),), 7)),
        ("a-0 b-", ((("a", 0),), 0)),
    ],
)
def test_names_of_partitions_are_read(text: str, found: tuple[tuple[tuple[str, int], ...], int]) -> None:
    assert read_partitions(text) == found


def test_events_that_nobody_knows_are_passed_over() -> None:
    told = Followed()
    GroupRows(told.follower.read).row("something_new", "m1", epoch="x")
    assert told.follower.finish() == []
