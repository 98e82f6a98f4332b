"""Whatever clients say in whatever order: the laws of a classic group hold after each step.

`ClassicDialogue` checks them: one leader, the generation never goes back, each request is answered at most once,
everybody who is waited for has a deadline, the fold of the log is the durable view, deciding changes nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.coordinator.commands import LeavingMember
from kohort.errors import ErrorCode

PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"")),
    (("sticky", b"3"), ("range", b"")),
    (("sticky", b"4"),),
    (("range", b"5"), ("range", b"again")),
)
NAMES = ("a", "b", "c", "d")
INSTANCES = (None, None, "i", "j")

ops = st.one_of(
    st.tuples(
        st.just("join"),
        st.sampled_from(("", *NAMES)),
        st.sampled_from(PROTOCOLS),
        st.sampled_from(INSTANCES),
        st.booleans(),
        st.sampled_from((10_000, 30_000)),
    ),
    st.tuples(st.just("sync"), st.sampled_from(NAMES), st.integers(-1, 0), st.sampled_from(INSTANCES)),
    st.tuples(st.just("sync everybody")),
    st.tuples(st.just("heartbeat"), st.sampled_from(NAMES), st.integers(-1, 0)),
    st.tuples(st.just("heartbeat everybody")),
    st.tuples(st.just("rejoin everybody")),
    st.tuples(st.just("leave"), st.lists(st.sampled_from((*NAMES, "", "i")), min_size=1, max_size=3)),
    st.tuples(st.just("commit"), st.sampled_from(("", *NAMES)), st.integers(-1, 0)),
    st.tuples(st.just("advance"), st.sampled_from((1, 3_000, 10_000, 60_000))),
    st.tuples(st.just("restart")),
)


def perform(dialogue, op, counter):
    """One thing that clients or time do; ids are reused, so that old ones meet new ones."""
    group = dialogue.group
    generation = group.generation if group is not None else 0
    match op:
        case ("join", member_id, protocols, instance_id, requires_known, rebalance_ms):
            fresh = NAMES[counter % len(NAMES)]
            if group is not None and (fresh in group.members or fresh in group.pending):
                fresh = f"{fresh}{counter}"
            dialogue.join(
                member_id,
                fresh=fresh,
                protocols=protocols,
                instance_id=instance_id,
                requires_known_member_id=requires_known,
                rebalance_timeout_ms=rebalance_ms,
            )
        case ("sync", member_id, back, instance_id):
            dialogue.sync(member_id, generation + back, {"a": b"x"}, instance_id=instance_id)
        case ("sync everybody",):
            for member_id in reversed(dialogue.members):
                dialogue.sync(member_id, generation, {name: name.encode() for name in dialogue.members})
        case ("heartbeat", member_id, back):
            dialogue.heartbeat(member_id, generation + back)
        case ("heartbeat everybody",):
            for member_id in dialogue.members:
                assert dialogue.heartbeat(member_id, generation) in (0, ErrorCode.REBALANCE_IN_PROGRESS)
        case ("rejoin everybody",):
            for member_id in dialogue.members:
                member = dialogue.group.members.get(member_id)
                if member is not None:
                    dialogue.join(member_id, protocols=member.protocols, instance_id=member.instance_id)
        case ("leave", names):
            dialogue.leave(*(LeavingMember(member_id="", instance_id="i") if name == "i" else name for name in names))
        case ("commit", member_id, back):
            dialogue.commit(member_id, generation + back)
        case ("advance", ms):
            dialogue.advance(ms)
        case ("restart",):
            dialogue.restart()


@pytest.mark.large
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(ops, max_size=40),
    delay_ms=st.sampled_from((0, 0, 3_000)),
    size=st.sampled_from((2, 3, 2**31 - 1)),
)
def test_laws_hold_and_every_request_is_answered_in_the_end(make_dialogue, steps, delay_ms, size):
    dialogue = make_dialogue(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size)
    for counter, op in enumerate(steps):
        perform(dialogue, op, counter)

    dialogue.advance(3_600_000)

    assert dialogue.timers.next_deadline() is None
    assert dialogue.parked == []
    assert dialogue.members == []
