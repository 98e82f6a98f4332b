"""Situations of groups, played with a real coordinator, each with what `why` has to say of it.

`SITUATIONS`: name -> (play, what is said). What is asked is the latest rebalance, unless the name begins with "now" or
with "owners" (those of t-0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.coordinator.commands import LeaveGroup, LeavingMember
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.mixed_dialogue import ClassicClient, MixedDialogue
from support.dialogues.moves import submit

Play = Callable[[], MixedDialogue]
SITUATIONS: Final[dict[str, tuple[Play, str]]] = {}


def says(expected: str) -> Callable[[Play], Play]:
    """Put a play into the table."""

    def add(play: Play) -> Play:
        SITUATIONS[play.__name__] = (play, expected)
        return play

    return add


def settled(*members: str, topics: dict[str, int] | None = None, **settings: object) -> MixedDialogue:
    """A group at rest; its members joined one second after the other."""
    group = MixedDialogue({"t": 4} if topics is None else topics, **settings)
    for member in members:
        group.heartbeat(member, epoch=0, client_id=member)
        group.advance(100)
        group.settle()
        group.advance(900)
    return group


def leave(group: GroupDialogue, *members: LeavingMember, client_id: str | None = None) -> None:
    """LeaveGroup as an administrator's tool, or a classic member, sends it."""
    group.ask(
        LeaveGroup(cause=group.cause(), request=group.request(), group_id="g", members=members, client_id=client_id)
    )


def classic(**shares: list[int]) -> tuple[MixedDialogue, dict[str, ClassicClient]]:
    """A classic group at rest."""
    group = MixedDialogue({"t": 4})
    clients = group.classic_group(**shares)
    group.advance(1_000)
    return group, clients


def again(group: MixedDialogue, *clients: ClassicClient, after_ms: int = 0, shares: dict[str, list[int]]) -> None:
    """The clients join one after the other, `after_ms` between them; the first of them leads."""
    for client in clients:
        if client.waiting is None:
            client.send_join()
        group.advance(after_ms)
    for client in clients:
        client.receive_join()
    for client in sorted(clients, key=lambda client: not client.is_leader):
        client.receive_sync(client.send_sync(shares if client.is_leader else {}))


# The consumer protocol.


@says("the rebalance to epoch 1, because a joined: a took t:0-3, which had no owner; it took 0 ms")
def first_member() -> MixedDialogue:
    return settled("a")


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 390 ms; a took 300 ms to give up"
    " t:2-3; 2 partitions were unread for at most 390 ms"
)
def second_member_takes_half() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(300)
    group.heartbeat("a", epoch=1, owned=[0, 1], client_id="a")
    group.advance(90)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because b left: a took t:2-3 from b; it took 200 ms; 2 partitions were unread "
    "for at most 1.1 s"
)
def member_leaves() -> MixedDialogue:
    group = settled("a", "b")
    group.leave("b")
    group.advance(200)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because b was silent for the whole session timeout: a took t:2-3 from b; it "
    "took 900 ms, 45 s after the last sign of b; 2 partitions were unread for at most 46 s; a member "
    "may be silent for 45 s, its session timeout, before it is missed"
)
def member_is_silent() -> MixedDialogue:
    group = settled("a", "b")
    for _ in range(45):
        group.report(group.member("a"))
        group.advance(1_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because a did not give its partitions up in time: b took t:0-3 from a; it took "
    "0 ms; 4 partitions were unread for at most 60 s"
)
def member_does_not_give_up_in_time() -> MixedDialogue:
    group = settled("a")
    group.rebalance_timeout_ms = 60_000
    group.heartbeat("b", epoch=0, client_id="b")
    for _ in range(60):
        group.heartbeat("a", epoch=1, client_id="a")
        group.heartbeat("b", epoch=2, client_id="b")
        group.advance(1_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because b was removed by an administrator (scaled in): a took t:2-3 from b; it "
    "took 0 ms; 2 partitions were unread for at most 900 ms"
)
def administrator_removes_a_member() -> MixedDialogue:
    group = settled("a", "b")
    leave(group, LeavingMember(member_id="b", reason="scaled in"))
    group.settle()
    return group


@says(
    "the rebalance to epoch 4, because b, c were removed by an administrator: a took t:2 from b, a took t:3 "
    "from c; it took 0 ms; 2 partitions were unread for at most 900 ms"
)
def administrator_removes_two() -> MixedDialogue:
    group = settled("a", "b", "c")
    leave(group, LeavingMember(member_id="b"), LeavingMember(member_id="c"))
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because b lost the connection and did not come back: a took t:2-3 from b; it "
    "took 4.9 s, 5.1 s after the last sign of b; 2 partitions were unread for up to 10 s"
)
def connection_is_lost() -> MixedDialogue:
    group = settled("a", "b", group_disconnect_grace_ms=1_000)
    group.disconnect("b")
    group.advance(10_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because the topics changed: a took t:4, which had no owner, b took t:5, which "
    "had no owner; "
    "it took 0 ms"
)
def topic_grows() -> MixedDialogue:
    group = settled("a", "b")
    group.set_topics({"t": 6})
    group.settle()
    return group


@says(
    "the rebalance to epoch 2, because the topics changed: t:0-3 of a have no owner any more, but a has nothing: "
    "there is no topic that it subscribes to (t); it took 0 ms"
)
def topic_is_deleted() -> MixedDialogue:
    group = settled("a")
    group.set_topics({})
    group.settle()
    return group


@says("the rebalance to epoch 2, because the topics changed: a took u:0-1, which had no owner; it took 0 ms")
def topic_is_made() -> MixedDialogue:
    group = MixedDialogue({"t": 1})
    group.heartbeat("a", epoch=0, topics=["t", "u"], client_id="a")
    group.settle()
    group.set_topics({"t": 1, "u": 2})
    group.settle()
    return group


@says("the rebalance to epoch 2, because the topics changed: a took tea:0, which had no owner; it took 0 ms")
def pattern_meets_a_new_topic() -> MixedDialogue:
    group = MixedDialogue({"t": 1})
    group.heartbeat("a", epoch=0, topics=[], subscribed_topic_regex="t.*", client_id="a")
    group.settle()
    group.set_topics({"t": 1, "tea": 1})
    group.settle()
    return group


@says("the rebalance to epoch 2, because a changed its subscription: a took u:0-1, which had no owner; it took 0 ms")
def subscription_changes() -> MixedDialogue:
    group = settled("a", topics={"t": 1, "u": 2})
    group.heartbeat("a", epoch=1, topics=["t", "u"], client_id="a")
    group.settle()
    return group


@says("the rebalance to epoch 3, because a asked for another assignor: no partition had to move; it took 0 ms")
def assignor_changes() -> MixedDialogue:
    group = settled("a", "b")
    group.heartbeat("a", epoch=2, server_assignor="range", client_id="a")
    group.heartbeat("b", epoch=2, server_assignor="range", client_id="b")
    group.settle()
    return group


@says(
    "the rebalance to epoch 4, because b joined, c joined: b took t:2 from a, c took t:3 from a; it took 80 ms; "
    "a took 10 ms to hear that it has to give up t:2-3, out of reach until its next heartbeat"
)
def two_join_in_one_window() -> MixedDialogue:
    group = settled("a", group_consumer_assignment_window_ms=50)
    group.heartbeat("b", epoch=0, client_id="b")
    group.advance(20)
    group.heartbeat("c", epoch=0, client_id="c")
    group.advance(60)
    group.settle()
    return group


@says(
    "the rebalance to epoch 5, because c joined, b left: c took t:2-3 from b; it took 80 ms; 2 partitions were"
    " unread for at most 980 ms"
)
def one_joins_and_one_leaves_in_one_window() -> MixedDialogue:
    group = settled("a", "b", group_consumer_assignment_window_ms=50)
    group.heartbeat("c", epoch=0, client_id="c")
    group.advance(20)
    group.leave("b")
    group.advance(60)
    group.settle()
    return group


@says("the rebalance to epoch 2, because b joined: b took t:3 from a; it took 0 ms")
def first_of_limited_moves() -> MixedDialogue:
    group = settled("a", group_assignor_max_moves=1)
    group.heartbeat("b", epoch=0, client_id="b")
    group.settle()
    return group


@says("the rebalance to epoch 3, because the next of limited moves were due: b took t:2 from a; it took 0 ms")
def next_of_limited_moves() -> MixedDialogue:
    group = first_of_limited_moves()
    group.advance(1_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because a limit on moves was lifted: b took t:2-3 from a; it took 10 ms; "
    "a took 10 ms to hear that it has to give up t:2-3, out of reach until its next heartbeat"
)
def limit_is_lifted() -> MixedDialogue:
    group = settled("a", "b", group_assignor_imbalance=100)
    group.alter_configs({"group.assignor.imbalance": "0"}).is_done()
    group.advance(10)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because an administrator moved partitions: a took t:3 from b; it took 600 ms; "
    "b took 600 ms to hear that it has to give up t:3, out of reach until its next heartbeat"
)
def administrator_moves_a_partition() -> MixedDialogue:
    group = settled("a", "b")
    submit(group, {3: "a"})
    group.advance(600)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because c joined: b took t:2 from a, c took t:3 from a; it took 100 ms; a took "
    "500 ms to give up t:2-3; 2 partitions were unread for at most 500 ms"
)
def another_joins_before_the_end() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(400)
    group.heartbeat("c", epoch=0, client_id="c")
    group.advance(100)
    group.settle()
    return group


@says("the rebalance to epoch 2, because a left: t:0-3 of a have no owner any more; it took 0 ms")
def last_member_leaves() -> MixedDialogue:
    group = settled("a")
    group.leave("a")
    return group


@says("the rebalance to epoch 2, because b joined: no partition had to move; it took 0 ms")
def more_members_than_partitions() -> MixedDialogue:
    return settled("a", "b", topics={"t": 1})


@says(
    "the rebalance to epoch 2, because a joined: a took t:0-1, which had no owner; it took 700 ms; "
    "assignor mine took 700 ms to assign"
)
def assignor_of_ones_own_is_slow() -> MixedDialogue:
    group = MixedDialogue({"t": 2}, group_consumer_assignors=("mine",), own_assignors=("mine",))
    group.heartbeat("a", epoch=0, client_id="a")
    group.advance(700)
    group.computed([0, 0])
    group.settle()
    return group


@says(
    "the rebalance to epoch 2, because a joined: a took t:0-1, which had no owner; it took 1.7 s; "
    "assignor mine took 700 ms to assign and failed: ValueError: no idea"
)
def assignor_of_ones_own_fails() -> MixedDialogue:
    group = MixedDialogue({"t": 2}, group_consumer_assignors=("mine",), own_assignors=("mine",))
    group.heartbeat("a", epoch=0, client_id="a")
    group.advance(700)
    group.computed(error="ValueError: no idea")
    group.advance(1_000)
    group.computed([0, 0])
    group.settle()
    return group


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 3.0 s; a took 3.0 s to give up "
    "t:2-3 (meanwhile: refused: STALE_MEMBER_EPOCH); 2 partitions were unread for at most 3.0 s"
)
def giver_is_refused_meanwhile() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.commit({0: 5}, member_id="a", epoch=9)
    group.advance(3_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 3, because a left: b took t:0-3 from a; it took 0 ms; 4 partitions were unread "
    "for at most 3.0 s"
)
def giver_leaves_meanwhile() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(3_000)
    group.leave("a")
    group.settle()
    return group


@says("a has had 7.0 s to give up t:2-3")
def now_a_member_has_to_give_up() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(7_000)
    return group


@says("a has had 2.0 s to hear that it has to give up t:2-3, out of reach until its next heartbeat")
def now_nobody_has_heard_of_it() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.advance(2_000)
    return group


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 3.1 s; a took 3.0 s to hear that"
    " it has to give up t:2-3, out of reach until its next heartbeat (meanwhile: 2 commits); 2 partitions were"
    " unread for at most 100 ms"
)
def giver_commits_and_hears_late() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    for _ in range(3):
        group.commit({2: 5}, member_id="a", epoch=1)
        group.advance(1_000)
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(100)
    group.settle()
    return group


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 4.0 s; a took 4.0 s to give up "
    "t:2-3 (meanwhile: 4 heartbeats, 3 commits); 2 partitions were unread for at most 4.0 s"
)
def giver_works_on_before_it_gives_up() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    for at in range(4):
        group.advance(1_000)
        group.heartbeat("a", epoch=1, client_id="a")
        if at:
            group.commit({2: at}, member_id="a", epoch=1)
    group.settle()
    return group


@says("a has had 40 ms to hear that it has to give up t:2-3, though its heartbeat was held")
def now_a_held_heartbeat_is_not_answered_yet() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("a", epoch=1, client_id="a", owned=[0, 1, 2, 3])
    group.heartbeat("a", epoch=1, client_id="a", hold_ms=4_000)
    group.advance(700)
    group.heartbeat("b", epoch=0, client_id="b")
    group.advance(40)
    return group


def paced(**settings: float) -> MixedDialogue:
    """A member has come that shall have two partitions of another, and moves wait for their turn."""
    group = settled("a", **settings)
    group.heartbeat("b", epoch=0, client_id="b")
    group.settle()
    return group


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 2.0 s; "
    "the pace of 0.5 per second took 2.0 s to let t:2-3 begin to move"
)
def moves_begin_one_after_the_other() -> MixedDialogue:
    group = paced(group_moves_per_second=0.5)
    group.advance(2_000)
    group.settle()
    return group


@says("the pace of 0.5 per second has had 1.5 s to let t:3 begin to move")
def now_a_move_waits_for_its_turn() -> MixedDialogue:
    group = paced(group_moves_per_second=0.5)
    group.advance(1_500)
    return group


@says("the pause of moves has had 90 s to let t:2-3 begin to move")
def now_moves_are_paused() -> MixedDialogue:
    group = paced(group_moves_paused=True)
    for _ in range(90):
        group.advance(1_000)
        group.settle()
    return group


@says("the pause of moves has had 2.0 s to let t:1 begin to move")
def now_moves_are_paused_since_the_rebalance_before() -> MixedDialogue:
    group = settled("a", topics={"t": 2}, group_moves_paused=True)
    for member in ("b", "c"):
        group.heartbeat(member, epoch=0, client_id=member)
        group.settle()
        group.advance(2_000)
    return group


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 3.0 s; "
    "the pause of moves took 3.0 s to let t:2-3 begin to move"
)
def pause_of_moves_is_lifted() -> MixedDialogue:
    group = paced(group_moves_paused=True)
    group.advance(3_000)
    group.alter_configs({"group.moves.paused": "false"})
    group.settle()
    group.advance(1)
    group.settle()
    return group


@says("a has had 12 s to give up t:2-3 (meanwhile: silent)")
def now_a_member_is_silent() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(12_000)
    return group


@says("the rebalance to epoch 3 goes on: the target assignment is not known yet")
def now_the_window_is_open() -> MixedDialogue:
    group = settled("a", group_consumer_assignment_window_ms=50)
    group.heartbeat("b", epoch=0, client_id="b")
    return group


@says("assignor mine has had 700 ms to assign")
def now_the_assignor_is_at_work() -> MixedDialogue:
    group = MixedDialogue({"t": 2}, group_consumer_assignors=("mine",), own_assignors=("mine",))
    group.heartbeat("a", epoch=0, client_id="a")
    group.advance(700)
    return group


@says("the group is at rest with 2 members: nothing is waited for")
def now_all_is_quiet() -> MixedDialogue:
    return settled("a", "b")


@says("the group has no members")
def now_the_group_is_empty() -> MixedDialogue:
    return last_member_leaves()


@says("the group is gone")
def now_the_group_is_gone() -> MixedDialogue:
    group = last_member_leaves()
    group.delete_group().is_done()
    return group


@says("a had t:0 for 1.0 s, until a left; then b has t:0, for 2.0 s by now (it was unread for at most 1.4 s)")
def owners_of_a_partition_that_moved_twice() -> MixedDialogue:
    group = settled("a")
    group.leave("a")
    group.advance(500)
    group.heartbeat("b", epoch=0, client_id="b")
    group.settle()
    group.advance(2_000)
    return group
