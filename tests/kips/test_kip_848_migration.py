"""KIP-848, moving a group between the protocols while its members work, at the coordinator.

Sentences are named by their place in the first version of the KIP (David Jacot, Guozhang Wang, Jason Gustafson).
"""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.errors import ErrorCode
from support.dialogues.mixed_dialogue import MixedDialogue


def shares(group: MixedDialogue) -> list[int]:
    return sorted(len(found) for found in group.holders().values())


@pytest.mark.parametrize("is_eager", [True, False])
def test_rolling_the_consumers_is_enough_to_upgrade(is_eager: bool) -> None:
    """Design goals, fifth: rolling the consumers with the right configuration has to be enough, and nothing else."""
    group = MixedDialogue({"t": 6})
    clients = [group.client(name, is_eager=is_eager) for name in ("x", "y", "z")]
    group.rebalance(*clients, shares={"x": [0, 1], "y": [2, 3], "z": [4, 5]})
    while clients:
        group.leave_group(clients.pop().member_id)
        group.heartbeat(f"new-{len(clients)}", epoch=0)
        group.settle_all(*clients)
        assert shares(group) == [2, 2, 2]
    assert group.list_groups() == [("g", "consumer", "Stable", "consumer")]
    assert all(member.classic is None for member in group.group.members.values())


def test_hand_over_between_the_protocols_is_clean() -> None:
    """Design goals, fourth: exactly once where the hand-over is clean; what the old owner commits last is found."""
    group = MixedDialogue({"t": 2})
    x = group.classic_group(x=[0, 1])["x"]
    group.heartbeat("a", epoch=0)
    assert x.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    x.send_join()
    x.receive_join()
    (kept,) = x.receive_sync(x.send_sync())["t"]
    moved = 1 - kept
    # It has been told, and has not given the partition up: its commit counts, and nobody else has the partition.
    assert x.commit({moved: 42}).errors() == (ErrorCode.NONE,)
    group.settle_consumers()
    assert group.holders()["a"] == set()
    x.rejoin()
    group.settle_consumers()
    assert group.holders()["a"] == {("t", moved)}
    assert group.committed([moved], member_id="a", member_epoch=group.group.epoch) == {moved: 42}
    # From here on the old owner's word about it is refused.
    assert x.commit({moved: 41}).errors() == (ErrorCode.REBALANCE_IN_PROGRESS,)


def test_no_barrier_a_silent_classic_member_holds_up_only_who_waits_for_it() -> None:
    """Design goals, first: no barrier for the whole group, not even where some members only know the old protocol."""
    group = MixedDialogue({"t": 6})
    clients = group.classic_group(x=[0, 1, 2], y=[3, 4, 5])
    group.heartbeat("a", epoch=0)
    clients["y"].beat()
    clients["y"].rejoin()
    clients["y"].rejoin()
    # x says nothing; y has given up its part, and a has it.
    group.settle_consumers()
    assert len(group.holders()["a"]) == 1
    assert group.member("x").member_epoch < group.group.epoch


def test_no_classic_member_leads_a_mixed_group() -> None:
    """Design goals, second: the complexity moves to the coordinator; nobody else computes an assignment."""
    group = MixedDialogue({"t": 4})
    group.heartbeat("a", epoch=0)
    for name in ("x", "y"):
        reply = group.join(fresh=name).body_as(commands.JoinGroupReply)
        assert (reply.leader, reply.members) == ("", ())


def test_connect_is_left_alone() -> None:
    """Below the goals: Kafka Connect is not supported by this protocol, and its groups are not touched."""
    group = MixedDialogue({"t": 4})
    group.join(fresh="w", protocol_type="connect", protocols=[("sessioned", b"state")])
    group.heartbeat("a", epoch=0).is_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="connect")
    assert group.list_groups()[0][3] == "classic"
