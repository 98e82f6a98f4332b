"""Situations of groups with classic members; see `situations.py`."""

from __future__ import annotations

from kohort.coordinator.commands import LeavingMember
from support.dialogues.mixed_dialogue import MixedDialogue, subscription
from support.scenarios.situations import again, classic, leave, says, settled


@says("the rebalance to generation 1, because client-x joined: client-x took t:0-3, which had no owner; it took 0 ms")
def classic_first_member() -> MixedDialogue:
    group, _ = classic(x=[0, 1, 2, 3])
    return group


@says(
    "the rebalance to generation 2, because client-y joined: client-y took t:2-3 from client-x; it took 2.0 s;"
    " client-x took 2.0 s to join again; 2 partitions were unread for at most 2.0 s"
)
def classic_second_member() -> MixedDialogue:
    group, clients = classic(x=[0, 1, 2, 3])
    y = group.client("y")
    y.send_join()
    group.advance(2_000)
    again(group, clients["x"], y, shares={"x": [0, 1], "y": [2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-y left (the consumer is being closed): client-x took t:2-3 "
    "from client-y; it took 0 ms; 2 partitions were unread for at most 1.0 s"
)
def classic_member_leaves() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    leave(group, LeavingMember(member_id="y", reason="the consumer is being closed"), client_id="client-y")
    again(group, clients["x"], shares={"x": [0, 1, 2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-y was silent for the whole session timeout: client-x took "
    "t:2-3 from client-y; it took 1.0 s, 10 s after the last sign of client-y; client-x took 1.0 s to join "
    "again (meanwhile: told that the group rebalances); 2 partitions were unread for at most 11 s; a "
    "member may be silent for 10 s, its session timeout, before it is missed"
)
def classic_member_is_silent() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    for _ in range(10):
        clients["x"].beat()
        group.advance(1_000)
    again(group, clients["x"], shares={"x": [0, 1, 2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-z joined, client-y did not join again in time: client-z "
    "took t:2-3 from client-y; it took 60 s; 2 partitions were unread for at most 60 s"
)
def classic_member_does_not_join_again() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    z = group.client("z")
    z.send_join()
    clients["x"].send_join()
    for _ in range(60):
        clients["y"].beat()
        group.advance(1_000)
    again(group, clients["x"], z, shares={"x": [0, 1], "z": [2, 3]})
    return group


@says(
    "the rebalance to generation 4, because client-y did not ask for its part in time: client-x took t:2-3 "
    "from client-y; it took 0 ms; 2 partitions were unread for at most 1.0 s"
)
def classic_member_does_not_ask_for_its_part() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    x, y = clients["x"], clients["y"]
    x.send_join()
    y.send_join()
    x.receive_join()
    y.receive_join()
    x.receive_sync(x.send_sync({"x": [0, 1], "y": [2, 3]}))
    for _ in range(60):
        x.beat()
        y.beat()
        group.advance(1_000)
    again(group, x, shares={"x": [0, 1, 2, 3]})
    return group


@says(
    "the rebalance to generation 3, because one was removed by an administrator: client-x took t:2-3 from "
    "one; "
    "it took 0 ms"
)
def classic_member_is_removed_by_its_name() -> MixedDialogue:
    group = MixedDialogue({"t": 4})
    x, y = group.client("x"), group.client("y", instance_id="one")
    group.rebalance(x, y, shares={"x": [0, 1], "y": [2, 3]})
    leave(group, LeavingMember(member_id="", instance_id="one"))
    again(group, x, shares={"x": [0, 1, 2, 3]})
    return group


@says(
    "a rebalance, because client-y asked for another assignor: the target assignment is not known yet; "
    "it has been going on for 0 ms"
)
def classic_member_changes_its_assignor() -> MixedDialogue:
    group, _ = classic(x=[0, 1], y=[2, 3])
    group.join("y", protocols=[("roundrobin", subscription()), ("range", subscription())])
    return group


@says(
    "the rebalance to generation 3, because client-y changed its subscription: no partition had to move; it took 0 ms"
)
def classic_member_changes_its_subscription() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    clients["y"].topics = ("t", "u")
    again(group, clients["y"], clients["x"], shares={"x": [0, 1], "y": [2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-x joined again: no partition had to move; it took 1.0 s; "
    "client-y took 500 ms to join again"
)
def classic_leader_joins_again() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    again(group, clients["x"], clients["y"], after_ms=500, shares={"x": [0, 1], "y": [2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-x joined again: client-x took t:2 from client-y; it took "
    "4.0 s; client-x took 4.0 s to share the partitions out; 1 partition was unread for at most 4.0 s"
)
def classic_leader_is_slow() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    x, y = clients["x"], clients["y"]
    x.send_join()
    y.send_join()
    x.receive_join()
    y.receive_join()
    parked = y.send_sync()
    group.advance(4_000)
    x.receive_sync(x.send_sync({"x": [0, 1, 2], "y": [3]}))
    y.receive_sync(parked)
    return group


@says(
    "the rebalance to generation 3, because client-y lost the connection and did not come back: client-x took "
    "t:2-3 from client-y; it took 0 ms, 1.0 s after the last sign of client-y; 2 partitions were unread "
    "for up to 1.0 s"
)
def classic_connection_is_lost() -> MixedDialogue:
    group = MixedDialogue({"t": 4}, group_disconnect_grace_ms=1_000)
    clients = group.classic_group(x=[0, 1], y=[2, 3])
    group.disconnect("y")
    group.advance(1_000)
    again(group, clients["x"], shares={"x": [0, 1, 2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-z joined, client-y left: client-z took t:2-3 from client-y;"
    " it took 300 ms; client-x took 300 ms to join again; 2 partitions were unread for at most 300 ms"
)
def classic_members_come_and_go_while_it_rebalances() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    z = group.client("z")
    z.send_join()
    group.advance(300)
    leave(group, LeavingMember(member_id="y"), client_id="client-y")
    again(group, clients["x"], z, shares={"x": [0, 1], "z": [2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-x joined again: client-y took t:2-3 from client-x; it took "
    "0 ms; 2 partitions were unread for at most 800 ms"
)
def classic_cooperative_hand_over() -> MixedDialogue:
    group, clients = classic(x=[0, 1, 2, 3])
    x, y = clients["x"], group.client("y")
    y.send_join()
    again(group, x, y, shares={"x": [0, 1], "y": []})
    group.advance(800)
    again(group, x, y, shares={"x": [0, 1], "y": [2, 3]})
    return group


@says(
    "the rebalance to generation 3, because client-z joined: client-y took t:1 from client-x, client-z took "
    "t:2-3 from client-y; "
    "it took 0 ms"
)
def classic_third_member() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    z = group.client("z")
    z.send_join()
    again(group, clients["x"], clients["y"], z, shares={"x": [0], "y": [1], "z": [2, 3]})
    return group


@says("the rebalance to generation 1, because connect-1 joined: no partition had to move; it took 0 ms")
def classic_group_that_is_no_consumer_s() -> MixedDialogue:
    group = MixedDialogue()
    group.join(fresh="w-1", client_id="connect-1", protocol_type="connect", protocols=[("sessioned", b"url")])
    group.sync("w-1", 1, {"w-1": b"tasks"})
    return group


@says("client-x has had 2.0 s to join again; client-y has had 2.0 s to join again")
def now_a_classic_member_has_to_join_again() -> MixedDialogue:
    group, _ = classic(x=[0, 1], y=[2, 3])
    group.client("z").send_join()
    group.advance(2_000)
    return group


@says("client-x has had 2.0 s to share the partitions out")
def now_a_classic_leader_has_to_share_out() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    for client in clients.values():
        client.send_join()
    for client in clients.values():
        client.receive_join()
    group.advance(2_000)
    return group


@says(
    "client-y had t:0 for 1.0 s, until client-y left; then client-x has t:0, for 1.0 s by now (it was "
    "unread for at most 1.5 s)"
)
def owners_of_a_classic_partition() -> MixedDialogue:
    group, clients = classic(x=[1, 2], y=[0, 3])
    leave(group, LeavingMember(member_id="y"), client_id="client-y")
    group.advance(500)
    again(group, clients["x"], shares={"x": [0, 1, 2, 3]})
    group.advance(1_000)
    return group


@says(
    "the rebalance to generation 2, because one joined: client-x took t:0-1, which had no owner, one took "
    "t:2-3, which had no owner; "
    "it took 0 ms"
)
def classic_static_member_comes_back() -> MixedDialogue:
    group = MixedDialogue({"t": 4})
    x, y = group.client("x"), group.client("y", instance_id="one")
    group.rebalance(x, y, shares={"x": [0, 1], "y": [2, 3]})
    group.advance(1_000)
    group.join(fresh="y-2", instance_id="one", protocols=[("range", subscription())])
    return group


@says(
    "the rebalance to generation 3, because one came back under the same name: client-x took t:2 from one; it took 0 ms"
)
def classic_static_member_subscribes_anew_when_it_comes_back() -> MixedDialogue:
    group = MixedDialogue({"t": 4})
    x, y = group.client("x"), group.client("y", instance_id="one")
    group.rebalance(x, y, shares={"x": [0, 1], "y": [2, 3]})
    group.advance(1_000)
    back = group.client("y-2", instance_id="one", topics=("t", "u"))
    again(group, back, x, shares={"x": [0, 1, 2], "y-2": [3]})
    return group


# Members of both protocols, and restarts.


@says("the rebalance to epoch 4, because a joined: a took t:3 from client-y; it took 500 ms")
def classic_group_takes_a_member_of_the_consumer_protocol() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    group.heartbeat("a", epoch=0, client_id="a")
    group.advance(500)
    group.settle_all(*clients.values())
    return group


@says("the rebalance to epoch 4 goes on: a waits for partitions that others still have")
def now_a_new_member_waits_for_classic_ones() -> MixedDialogue:
    group, _ = classic(x=[0, 1], y=[2, 3])
    group.heartbeat("a", epoch=0, client_id="a")
    group.advance(500)
    return group


@says("the rebalance to epoch 2, because client-x joined: client-x took t:2-3 from a; it took 0 ms")
def classic_member_joins_a_consumer_group() -> MixedDialogue:
    group = settled("a")
    x = group.client("x")
    group.settle_all(x)
    return group


@says("the rebalance to epoch 5, because client-y left: a took t:2 from client-y; it took 0 ms")
def classic_member_leaves_a_mixed_group() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    group.heartbeat("a", epoch=0, client_id="a")
    group.settle_all(*clients.values())
    leave(group, LeavingMember(member_id="y"), client_id="client-y")
    group.settle_all(clients["x"])
    return group


@says(
    "the rebalance to epoch 5, because client-y was removed by an administrator: a took t:2 from client-y; it took 0 ms"
)
def administrator_removes_a_classic_member_of_a_mixed_group() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    group.heartbeat("a", epoch=0, client_id="a")
    group.settle_all(*clients.values())
    leave(group, LeavingMember(member_id="y"), client_id="admin-1")
    group.settle_all(clients["x"])
    return group


@says("the rebalance to generation 5, because a left: client-y took t:3 from a; it took 0 ms")
def last_member_of_the_consumer_protocol_leaves() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    group.heartbeat("a", epoch=0, client_id="a")
    group.settle_all(*clients.values())
    group.leave("a")
    again(group, clients["x"], clients["y"], shares={"x": [0, 1], "y": [2, 3]})
    return group


@says(
    "the rebalance to epoch 3, because b was silent for the whole session timeout: a took t:2-3 from b; it "
    "took 0 ms, 45 s after the last sign of b; 2 partitions were unread for at most 45 s; a member may"
    " be silent for 45 s, its session timeout, before it is missed"
)
def member_is_silent_after_a_restart() -> MixedDialogue:
    group = settled("a", "b")
    group.restart()
    for _ in range(45):
        group.report(group.member("a"))
        group.advance(1_000)
    group.settle()
    return group


@says(
    "the rebalance to epoch 2, because b joined: b took t:2-3 from a; it took 1.0 s; a took 1.0 s to give up "
    "t:2-3; 2 partitions were unread for at most 700 ms"
)
def hand_over_goes_on_after_a_restart() -> MixedDialogue:
    group = settled("a")
    group.heartbeat("b", epoch=0, client_id="b")
    group.heartbeat("a", epoch=1, client_id="a")
    group.advance(300)
    group.restart()
    group.advance(700)
    group.settle()
    return group


@says(
    "the rebalance to generation 3, because client-z joined: client-z took t:1 from client-x, client-z took "
    "t:3 from client-y; it took 400 ms; client-x took 400 ms to join again; 2 partitions were unread "
    "for at most 400 ms"
)
def classic_group_rebalances_after_a_restart() -> MixedDialogue:
    group, clients = classic(x=[0, 1], y=[2, 3])
    group.restart()
    z = group.client("z")
    z.send_join()
    group.advance(400)
    again(group, clients["x"], clients["y"], z, shares={"x": [0], "y": [2], "z": [1, 3]})
    return group
