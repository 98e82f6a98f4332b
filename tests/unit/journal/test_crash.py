"""A crash keeps rows from the journal: the group is told as it was found, and nothing is concluded over the gap."""

from __future__ import annotations

from collections.abc import Callable

from kohort.client.admin.results.groups import HistoryEvent
from kohort.journal.explain.explaining import explain
from kohort.journal.explain.explanation import GroupExplanation
from kohort.journal.rows import Entry, RowKind
from kohort.journal.words import show_clock
from kohort.pipelines.fact import Kind
from kohort.pipelines.following import Follower
from support.dialogues.explained import event_of
from support.dialogues.mixed_dialogue import MixedDialogue
from support.scenarios.situations import settled


def crash(group: MixedDialogue, untold: Callable[[], object]) -> list[HistoryEvent]:
    """The rows of a broker that crashes before what `untold` does is in its journal, and starts again."""
    told = [event_of(row) for row in group.journal.history("g").rows]
    last_ms = group.now_ms
    untold()
    before = group.journal.history("g").rows[-1].sequence
    group.advance(1_000)
    group.restart()
    image = group.shard.groups.image
    entries = group.reporter.tell_found(group.shard.groups, "g", image)
    details = (("before", "crashed"), ("last_ms", str(last_ms)))
    started = Entry(RowKind.TRANSITION, "broker_started", "g", "", details)
    group.journal.record([started], cause=group.cause(), now_ms=group.now_ms)
    group.journal.record(entries, cause=group.cause(), now_ms=group.now_ms)
    rows = group.journal.history("g", after=before).rows
    return told + [
        event_of(row) for row in rows if row.entry.event in ("broker_started", "member_found", "group_found")
    ]


def after(group: MixedDialogue, rows: list[HistoryEvent]) -> GroupExplanation:
    later = group.journal.history("g", after=rows[-1].sequence).rows
    return explain("g", [*rows, *map(event_of, later)], now_ms=group.now_ms)


def test_members_that_left_untold_are_told_as_gone_and_not_as_there() -> None:
    group = settled("a", "b", "c", topics={"t": 3})
    last_ms = group.now_ms

    def leave() -> None:
        group.leave("b")
        group.leave("c")

    rows = crash(group, leave)
    found = explain("g", rows, now_ms=group.now_ms)
    assert found.gap is not None and found.gap.gone == ("b", "c")
    assert found.summary.startswith(
        f"the broker crashed between {show_clock(last_ms)} and {show_clock(last_ms + 1_000)}, "
        "when b, c ceased to be members, and what came then is not known; the rebalance to epoch 5 goes on"
    )
    assert found.last is not None and "joined" not in found.last.sentence
    assert "because of what came when the broker crashed, which is not known" in found.last.sentence
    assert found.partition("t", 1)[-1].end == "the broker crashed: when it left, and why, is not known"
    group.settle()
    found = after(group, rows)
    assert found.last is not None and found.last.number == 5
    assert found.last.sentence == (
        "the rebalance to epoch 5, because of what came when the broker crashed, which is not known: "
        "a took t:1, which c had before the crash, a took t:2, which b had before the crash"
    )
    assert found.summary.endswith("the group is at rest with 1 member: nothing is waited for")
    assert {row.member for row in found.owners if row.ended_ms is None} == {"a"}


def test_a_group_of_which_all_was_told_is_explained_as_before() -> None:
    group = settled("a", "b")
    before = explain("g", [event_of(row) for row in group.journal.history("g").rows])
    found = explain("g", crash(group, lambda: None), now_ms=group.now_ms)
    assert found.last == before.last and found.gap is not None and found.gap.gone == ()
    assert found.summary.endswith(
        "and what came then is not known; the group is at rest with 2 members: nothing is waited for"
    )


def test_a_rebalance_that_the_crash_cut_has_no_end() -> None:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")

    def go_on() -> None:
        group.settle()

    rows = crash(group, go_on)
    found = explain("g", rows, now_ms=group.now_ms)
    cut = found.rebalances[-2]
    assert cut.ended_ms is None
    assert cut.sentence.endswith("is not known: the broker crashed")
    owners = {row.partition: row.member for row in found.owners if row.ended_ms is None}
    assert sorted(owners.values()) == ["a", "a", "b", "b"]
    assert found.summary.endswith("the group is at rest with 2 members: nothing is waited for")
    follower = Follower("g")
    for row in rows:
        follower.read(row)
    facts = follower.take()
    assert [fact.ended_ms for fact in facts if fact.kind is Kind.REBALANCE][-1] is None


def test_a_classic_group_is_found_as_its_log_has_it() -> None:
    group = MixedDialogue({"t": 4})
    group.classic_group(x=[0, 1], y=[2, 3])
    found = explain("g", crash(group, lambda: None), now_ms=group.now_ms)
    assert {(row.partition, row.member) for row in found.owners if row.ended_ms is None} == {
        (0, "client-x"), (1, "client-x"), (2, "client-y"), (3, "client-y"),
    }  # fmt: skip
