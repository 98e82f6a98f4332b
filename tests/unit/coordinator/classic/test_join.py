"""JoinGroup in every state of a classic group."""

from __future__ import annotations

import pytest

from kohort.coordinator.classic.validation import (
    GROUP_METADATA_LIMIT_BYTES,
    MEMBER_METADATA_LIMIT_BYTES,
    NEW_MEMBER_TIMEOUT_MS,
    PENDING_LIMIT,
    PROTOCOLS_LIMIT,
)
from kohort.coordinator.commands import JoinGroupReply
from kohort.errors import ErrorCode

BOTH = (("range", b"r"), ("roundrobin", b"rr"))


def test_first_member_founds_the_group_and_leads_it(dialogue):
    """Without an initial delay nobody is waited for."""
    reply = dialogue.joined(dialogue.join(fresh="a"))

    assert reply.generation_id == 1
    assert reply.leader == reply.member_id == "a"
    assert reply.protocol_type == "consumer"
    assert reply.protocol_name == "range"
    assert [(m.member_id, m.metadata) for m in reply.members] == [("a", b"range: t")]
    assert dialogue.state == "CompletingRebalance"
    assert dialogue.deadline("session", "a") == dialogue.session_timeout_ms
    assert dialogue.deadline("sync") == dialogue.rebalance_timeout_ms
    assert not dialogue.log, "a generation without an assignment is not written"


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeout_out_of_bounds_is_refused(dialogue, session_timeout_ms):
    assert dialogue.error(dialogue.join(session_timeout_ms=session_timeout_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert dialogue.group is None


def test_group_without_a_name_is_refused(dialogue):
    assert dialogue.error(dialogue.join(group_id="")) == ErrorCode.INVALID_GROUP_ID


def test_member_id_in_a_group_that_does_not_exist_is_unknown(dialogue):
    assert dialogue.error(dialogue.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.group is None


def test_member_id_that_the_group_does_not_know_is_unknown(dialogue):
    dialogue.stable("a")

    assert dialogue.error(dialogue.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.state == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", BOTH), ("consumer", ())])
def test_member_without_a_protocol_is_inconsistent(dialogue, protocol_type, protocols):
    join = dialogue.join(protocol_type=protocol_type, protocols=protocols)

    assert dialogue.error(join) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert dialogue.group is None


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("connect", BOTH), ("consumer", (("sticky", b""),)), ("consumer", ())]
)
def test_member_without_a_common_protocol_is_inconsistent(dialogue, protocol_type, protocols):
    dialogue.stable("a")

    join = dialogue.join(fresh="b", protocol_type=protocol_type, protocols=protocols)

    assert dialogue.error(join) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert dialogue.members == ["a"]


def test_any_protocol_type_passes_its_bytes_through(dialogue):
    """Connect and Streams use the same requests with bytes of their own."""
    join = dialogue.join(fresh="w", protocol_type="connect", protocols=(("sessioned", b"\x00\xff"),))

    reply = dialogue.joined(join)
    assert reply.protocol_type == "connect"
    assert reply.members[0].metadata == b"\x00\xff"


def test_member_id_is_required_of_who_understands_that(dialogue):
    """KIP-394: the id is handed out first, so that a client that never comes back leaves no member behind."""
    first = dialogue.join(fresh="a", requires_known_member_id=True)

    body = dialogue.answers[first]
    assert isinstance(body, JoinGroupReply)
    assert (body.error, body.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a")
    assert dialogue.members == []
    assert dialogue.state == "Empty"
    assert dialogue.deadline("pending", "a") == dialogue.session_timeout_ms

    assert dialogue.joined(dialogue.join("a", requires_known_member_id=True)).generation_id == 1
    assert dialogue.deadline("pending", "a") is None


def test_expected_member_holds_the_join_phase_open(dialogue):
    dialogue.stable("a")
    dialogue.join(fresh="b", requires_known_member_id=True)
    assert dialogue.state == "Stable", "an id that is handed out moves nothing"
    dialogue.join(fresh="c")

    leader = dialogue.join("a")
    assert dialogue.is_parked(leader), "b is expected"

    dialogue.join("b")
    assert [m.member_id for m in dialogue.joined(leader).members] == ["a", "c", "b"]


def test_too_many_expected_members_are_refused(dialogue):
    dialogue.join(fresh="0", requires_known_member_id=True)
    assert dialogue.group is not None
    dialogue.group.pending.update(dict.fromkeys(str(i) for i in range(PENDING_LIMIT)))
    for member_id in dialogue.group.pending:
        dialogue.timers.arm(("pending", "orders", member_id), dialogue.now_ms + 1)

    assert dialogue.error(dialogue.join(fresh="x", requires_known_member_id=True)) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_new_member_starts_a_rebalance(dialogue):
    dialogue.stable("a")

    second = dialogue.join(fresh="b")

    assert dialogue.is_parked(second)
    assert dialogue.state == "PreparingRebalance"
    assert dialogue.group.rebalance_reason == "member b joined"
    assert dialogue.deadline("join") == dialogue.rebalance_timeout_ms
    assert dialogue.deadline("session", "b") == NEW_MEMBER_TIMEOUT_MS
    assert dialogue.heartbeat("a", 1) == ErrorCode.REBALANCE_IN_PROGRESS
    leader = dialogue.joined(dialogue.join("a"))
    assert leader.generation_id == dialogue.joined(second).generation_id == 2
    assert [m.member_id for m in leader.members] == ["a", "b"]
    assert dialogue.joined(second).members == (), "only the leader is told of the others"
    assert dialogue.joined(second).leader == "a"
    assert dialogue.deadline("join") is None
    assert dialogue.deadline("session", "b") == dialogue.session_timeout_ms


def test_new_member_while_the_others_sync_sends_them_back_to_join(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    parked = dialogue.sync("b", 3)
    assert dialogue.is_parked(parked)

    dialogue.join(fresh="c")

    assert dialogue.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS
    assert dialogue.deadline("sync") is None
    assert dialogue.state == "PreparingRebalance"


def test_leader_that_rejoins_starts_a_rebalance(dialogue):
    """The leader alone may know that a topic has grown."""
    dialogue.stable("a", "b")

    leader = dialogue.join("a")

    assert dialogue.is_parked(leader)
    assert dialogue.group.rebalance_reason == "leader a rejoined"
    follower = dialogue.join("b")
    assert dialogue.joined(leader).generation_id == dialogue.joined(follower).generation_id == 3


def test_follower_that_rejoins_unchanged_is_told_the_generation_again(dialogue):
    """Its answer was lost; nobody else is bothered."""
    generation = dialogue.stable("a", "b")

    reply = dialogue.joined(dialogue.join("b"))

    assert (reply.generation_id, reply.leader, reply.members) == (generation, "a", ())
    assert dialogue.state == "Stable"
    assert dialogue.assignment(dialogue.sync("b", generation)) == b"b"


def test_member_that_asks_again_for_its_generation_is_alive(dialogue):
    """A JoinGroup is a sign of life, whatever it is answered."""
    dialogue.stable("a", "b")
    dialogue.advance(dialogue.session_timeout_ms - 1_000)

    dialogue.joined(dialogue.join("b"))

    assert dialogue.deadline("session", "b") == dialogue.session_timeout_ms


def test_follower_that_rejoins_changed_starts_a_rebalance(dialogue):
    dialogue.stable("a", "b")

    follower = dialogue.join("b", protocols=(("range", b"range: t, u"),))

    assert dialogue.is_parked(follower)
    leader = dialogue.joined(dialogue.join("a"))
    assert [(m.member_id, m.metadata) for m in leader.members] == [("a", b"range: t"), ("b", b"range: t, u")]


@pytest.mark.parametrize("member_id", ["a", "b"])
def test_member_that_rejoins_unchanged_while_syncing_is_told_the_generation_again(dialogue, member_id):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")

    again = dialogue.joined(dialogue.join(member_id))

    assert again.generation_id == 3
    assert len(again.members) == (2 if member_id == "a" else 0)
    assert dialogue.state == "CompletingRebalance"


def test_member_that_rejoins_changed_while_syncing_starts_over(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")
    dialogue.join("b")
    parked = dialogue.sync("b", 3)

    again = dialogue.join("a", protocols=(("range", b"other"),))

    assert dialogue.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS
    assert dialogue.is_parked(again)
    dialogue.join("b")
    assert dialogue.joined(again).generation_id == 4


def test_second_join_of_a_member_that_waits_answers_the_first(dialogue):
    """A client that lost its connection asks again: nothing may hang, and the younger request counts."""
    dialogue.stable("a", "b")
    older = dialogue.join("a")

    younger = dialogue.join("a")

    assert dialogue.error(older) == ErrorCode.REBALANCE_IN_PROGRESS
    assert dialogue.is_parked(younger)
    dialogue.join("b")
    assert dialogue.joined(younger).generation_id == 3


def test_last_join_may_be_a_repeated_one(dialogue):
    dialogue.stable("a", "b")
    first = dialogue.join("a")
    last = dialogue.join("b", protocols=BOTH)
    assert not dialogue.is_parked(first)
    assert dialogue.joined(last).protocol_name == "range"


def test_votes_choose_among_the_common_protocols(dialogue):
    """Each member votes for the first common protocol of its list."""
    dialogue.join(fresh="a", protocols=(("range", b"a1"), ("roundrobin", b"a2"), ("sticky", b"")))
    for fresh in ("b", "c"):
        dialogue.join(fresh=fresh, protocols=(("sticky!", b""), ("roundrobin", b"x"), ("range", b"y")))
    dialogue.join("b", protocols=(("sticky!", b""), ("roundrobin", b"x"), ("range", b"y")))
    leader = dialogue.joined(dialogue.join("a", protocols=(("range", b"a1"), ("roundrobin", b"a2"), ("sticky", b""))))

    assert leader.protocol_name == "roundrobin"
    assert [m.metadata for m in leader.members] == [b"a2", b"x", b"x"]


def test_equal_votes_go_to_the_first_one_voted_for(dialogue):
    dialogue.join(fresh="a", protocols=(("x", b""), ("y", b"")))
    dialogue.join(fresh="b", protocols=(("y", b""), ("x", b"")))
    assert dialogue.joined(dialogue.join("a", protocols=(("x", b""), ("y", b"")))).protocol_name == "x"


def test_full_group_turns_new_members_away(make_dialogue):
    dialogue = make_dialogue(group_max_size=2)
    dialogue.stable("a", "b")

    assert dialogue.error(dialogue.join(fresh="c")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert dialogue.state == "Stable"
    assert dialogue.joined(dialogue.join("b")).generation_id == 2, "members keep their places"


def test_places_of_a_rebalance_go_to_the_first_who_rejoin(make_dialogue):
    """A limit that was lowered drops the last ones, and the phase does not wait for them."""
    dialogue = make_dialogue()
    dialogue.stable("a", "b", "c")
    dialogue.settings = make_dialogue(group_max_size=2).settings
    first, second = dialogue.join("a"), dialogue.join("b")

    late = dialogue.join("c")

    assert dialogue.error(late) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert dialogue.members == ["a", "b"]
    assert dialogue.joined(first).generation_id == dialogue.joined(second).generation_id


def test_expected_member_of_a_full_group_is_not_waited_for(make_dialogue):
    dialogue = make_dialogue(group_max_size=3)
    dialogue.stable("a", "b")
    dialogue.join(fresh="d", requires_known_member_id=True)
    dialogue.settings = make_dialogue(group_max_size=2).settings
    first, second = dialogue.join("a"), dialogue.join("b")
    assert dialogue.is_parked(first)

    assert dialogue.error(dialogue.join("d")) == ErrorCode.GROUP_MAX_SIZE_REACHED

    assert dialogue.joined(first).generation_id == dialogue.joined(second).generation_id == 3


def test_member_with_too_much_metadata_is_refused(dialogue):
    join = dialogue.join(protocols=(("range", bytes(MEMBER_METADATA_LIMIT_BYTES)),))

    assert dialogue.error(join) == ErrorCode.INVALID_REQUEST
    assert dialogue.group is None


def test_member_with_too_many_protocols_is_refused(dialogue):
    """Empty names and metadata weigh nothing; each rejoin compares every protocol with every other."""
    join = dialogue.join(protocols=(("", b""),) * (PROTOCOLS_LIMIT + 1))

    assert dialogue.error(join) == ErrorCode.INVALID_REQUEST
    assert dialogue.group is None


def test_group_with_too_much_metadata_takes_no_more(dialogue):
    nearly = (("range", bytes(MEMBER_METADATA_LIMIT_BYTES - 5)),)
    fit = GROUP_METADATA_LIMIT_BYTES // MEMBER_METADATA_LIMIT_BYTES
    for i in range(fit):
        dialogue.join(fresh=str(i), protocols=nearly)

    assert dialogue.error(dialogue.join(fresh="one more", protocols=nearly)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    rejoin = dialogue.join("0", protocols=nearly)
    assert len(dialogue.joined(rejoin).members) == fit, "who is in may stay: its old metadata does not count twice"


def test_version_0_has_no_rebalance_timeout(dialogue):
    dialogue.join(fresh="a", rebalance_timeout_ms=-1)

    assert dialogue.deadline("sync") == dialogue.session_timeout_ms


def test_initial_delay_gathers_the_members(make_dialogue):
    """group.initial.rebalance.delay.ms: one rebalance instead of one for each."""
    dialogue = make_dialogue(group_initial_rebalance_delay_ms=3_000)
    joins = [dialogue.join(fresh="a")]
    assert dialogue.deadline("initial_delay") == 3_000
    dialogue.advance(1_000)
    joins += [dialogue.join(fresh="b"), dialogue.join(fresh="c")]
    assert all(dialogue.is_parked(join) for join in joins)

    dialogue.advance(2_000)
    assert dialogue.deadline("initial_delay") == 3_000, "somebody came, so it is waited once more"
    dialogue.advance(3_000)

    assert {dialogue.joined(join).generation_id for join in joins} == {1}


def test_initial_delay_grows_no_longer_than_the_rebalance_timeout(make_dialogue):
    dialogue = make_dialogue(group_initial_rebalance_delay_ms=3_000)
    first = dialogue.join(fresh="a", rebalance_timeout_ms=7_000)
    for i in range(6):
        dialogue.advance(1_000)
        dialogue.join(fresh=f"late {i}", rebalance_timeout_ms=7_000)
    assert dialogue.is_parked(first)

    dialogue.advance(1_000)

    assert len(dialogue.joined(first).members) == 7


def test_initial_delay_without_newcomers_is_not_extended(make_dialogue):
    dialogue = make_dialogue(group_initial_rebalance_delay_ms=3_000)
    join = dialogue.join(fresh="a")
    dialogue.advance(2_999)
    assert dialogue.is_parked(join)
    dialogue.advance(1)
    assert dialogue.joined(join).generation_id == 1


def test_initial_delay_whose_members_all_leave_ends_in_an_empty_group(make_dialogue):
    dialogue = make_dialogue(group_initial_rebalance_delay_ms=3_000)
    join = dialogue.join(fresh="a")
    assert dialogue.leave("a") == [ErrorCode.NONE]
    assert dialogue.error(join) == ErrorCode.UNKNOWN_MEMBER_ID

    dialogue.advance(3_000)

    assert dialogue.state == "Empty"
    assert dialogue.group.generation == 1


def test_member_may_change_all_its_protocols_when_nobody_else_has_to_understand_them(dialogue):
    """Kafka counts what the member itself spoke, and refuses it until its session ends."""
    dialogue.stable("a")
    reply = dialogue.joined(dialogue.join("a", protocols=(("sticky", b"t"),)))
    assert (reply.protocol_name, reply.generation_id) == ("sticky", 2)
    dialogue.join(fresh="b", protocols=(("sticky", b"t"),))
    assert dialogue.error(dialogue.join("a", protocols=BOTH)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_empty_instance_id_is_refused(dialogue):
    assert dialogue.error(dialogue.join(instance_id="")) == ErrorCode.INVALID_REQUEST


def test_id_that_was_handed_out_may_come_back_with_an_instance(dialogue):
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.join(fresh="x", requires_known_member_id=True)

    reply = dialogue.joined(dialogue.join("x", instance_id="i"))

    assert [(m.member_id, m.instance_id) for m in reply.members] == [("x", "i")]


def test_member_that_rejoins_keeps_the_instance_that_it_came_with(dialogue):
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.sync("i-1", 1, {})

    reply = dialogue.joined(dialogue.join("i-1"))

    assert [m.instance_id for m in reply.members] == ["i"]


def test_instance_comes_back_into_a_full_group(make_dialogue):
    dialogue = make_dialogue(group_max_size=1)
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.sync("i-1", 1, {})

    assert dialogue.joined(dialogue.join(fresh="i-2", instance_id="i")).member_id == "i-2"
    assert dialogue.error(dialogue.join(fresh="x", instance_id="j")) == ErrorCode.GROUP_MAX_SIZE_REACHED
