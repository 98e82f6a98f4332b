"""A connection closes without a word: with a grace its member is given up early, and never for a mistake."""

from __future__ import annotations

from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.records.types import MemberConnectionSeen
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue
from support.dialogues.mixed_dialogue import ClassicClient, MixedDialogue

GRACE_MS = 2_000
#: How often members are told to heartbeat, where nobody says anything else.
INTERVAL_MS = 5_000


def graceful(**limits: Any) -> GroupDialogue:
    return GroupDialogue({"t": 2}, group_disconnect_grace_ms=GRACE_MS, **limits)


# ---- the consumer protocol


def test_a_member_whose_connection_closed_is_given_up_after_the_grace() -> None:
    """G3; Apache Kafka waits for the session timeout."""
    group = graceful()
    group.stable(a=[0], b=[1])
    group.advance(ms=INTERVAL_MS)
    group.disconnect("a")
    group.advance(ms=GRACE_MS - 1)
    assert set(group.group.members) == {"a", "b"}
    group.advance(ms=1)
    assert set(group.group.members) == {"b"}


def test_the_grace_begins_when_the_next_heartbeat_is_due() -> None:
    """A client whose connection broke may have the next one already, and nothing to say before its interval ends."""
    group = graceful()
    group.stable(a=[0, 1])
    group.advance(ms=1_000)
    group.disconnect("a")
    group.advance(ms=4_000 + GRACE_MS - 1)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_a_member_that_is_heard_of_again_has_its_whole_session() -> None:
    group = graceful()
    group.stable(a=[0, 1])
    group.disconnect("a")
    group.advance(ms=INTERVAL_MS + GRACE_MS - 1)
    group.new_records()
    group.heartbeat("a", epoch=1).replies(epoch=1)
    assert group.new_records() == [MemberConnectionSeen(group_id="g", member_id="a", is_gone=False)]
    group.heartbeat("a", epoch=1).replies(epoch=1)
    assert group.new_records() == []
    group.advance(ms=44_999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_nobody_is_given_up_later_for_it() -> None:
    group = graceful()
    group.stable(a=[0, 1])
    group.advance(ms=44_000)
    group.disconnect("a")
    group.advance(ms=999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_without_a_grace_the_session_decides_alone() -> None:
    group = GroupDialogue({"t": 2})
    group.stable(a=[0, 1])
    group.disconnect("a")
    assert group.new_records() == []
    group.advance(ms=44_999)
    assert "a" in group.group.members


def test_a_grace_of_zero_gives_up_at_once() -> None:
    group = GroupDialogue({"t": 2}, group_disconnect_grace_ms=0)
    group.stable(a=[0, 1])
    group.advance(ms=INTERVAL_MS)
    group.disconnect("a")
    group.advance(ms=0)
    assert group.group.members == {}


def test_the_grace_is_a_config_of_the_group() -> None:
    group = GroupDialogue({"t": 2})
    group.alter_configs({"group.disconnect.grace.ms": "500"}).is_done()
    group.stable(a=[0, 1])
    group.advance(ms=INTERVAL_MS)
    group.disconnect("a")
    group.advance(ms=500)
    assert group.group.members == {}


def test_a_static_member_keeps_its_session_but_not_its_name() -> None:
    """KIP-345: what its name is for; a new process under it need not wait."""
    group = graceful()
    group.heartbeat("a", epoch=0, instance_id="one").replies(epoch=1, assigned=[0, 1])
    group.heartbeat("b", epoch=0, instance_id="one").is_refused(ErrorCode.UNRELEASED_INSTANCE_ID)
    group.disconnect("a")
    group.advance(ms=INTERVAL_MS + GRACE_MS)
    assert "a" in group.group.members
    group.heartbeat("b", epoch=0, instance_id="one").replies(epoch=1, assigned=[0, 1])
    assert set(group.group.members) == {"b"}


def test_a_static_member_that_is_away_stays_so() -> None:
    group = graceful()
    group.heartbeat("a", epoch=0, instance_id="one").replies(epoch=1, assigned=[0, 1])
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.new_records()
    group.disconnect("a")
    assert group.new_records() == []
    group.advance(ms=GRACE_MS)
    assert "a" in group.group.members


def test_strangers_and_members_that_are_gone_are_nobodys_concern() -> None:
    group = graceful()
    group.disconnect("a")
    group.stable(a=[0, 1])
    group.disconnect("nobody")
    group.disconnect("a", group_id="other")
    group.leave("a")
    group.new_records()
    group.disconnect("a")
    assert group.new_records() == []


def test_a_restart_forgets_it_and_gives_everybody_a_whole_session() -> None:
    group = graceful()
    group.stable(a=[0, 1])
    group.disconnect("a")
    group.restart()
    group.advance(ms=44_999)
    assert "a" in group.group.members


def test_a_longer_session_does_not_lengthen_the_grace() -> None:
    group = graceful()
    group.stable(a=[0, 1])
    group.disconnect("a")
    group.alter_configs({"consumer.session.timeout.ms": "100000"}).is_done()
    group.advance(ms=INTERVAL_MS + GRACE_MS)
    assert group.group.members == {}


def test_a_grace_that_the_session_cut_is_whole_once_the_session_is_longer() -> None:
    """Found by simulation (seed 40297)."""
    group = graceful(group_consumer_session_timeout_ms=8_000)
    group.stable(a=[0, 1])
    group.advance(ms=7_000)
    group.disconnect("a")
    group.advance(ms=500)
    group.alter_configs({"consumer.session.timeout.ms": "45000"}).is_done()
    group.advance(ms=GRACE_MS - 1)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


def test_without_the_grace_any_more_the_longer_session_decides() -> None:
    group = graceful()
    group.stable(a=[0, 1])
    group.disconnect("a")
    group.alter_configs({"group.disconnect.grace.ms": "-1", "consumer.session.timeout.ms": "60000"}).is_done()
    group.advance(ms=59_999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.members == {}


# ---- the classic protocol


def join(group: GroupDialogue, member_id: str = "", *, fresh: str = "", **fields: Any) -> Answer:
    return group.ask(
        commands.JoinGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            member_id=member_id,
            fresh_member_id=fresh,
            client_id="c",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            **fields,
        )
    )


def sync(group: GroupDialogue, member_id: str, generation: int, **assignments: bytes) -> Answer:
    return group.ask(
        commands.SyncGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            assignments=assignments,
        )
    )


def heartbeat(group: GroupDialogue, member_id: str, generation: int) -> Answer:
    return group.ask(
        commands.Heartbeat(
            cause=group.cause(), request=group.request(), group_id="g", member_id=member_id, generation_id=generation
        )
    )


def mixed() -> tuple[MixedDialogue, ClassicClient]:
    """Member a of the consumer protocol and x of the classic one, whose session is 10 s, in one group at rest."""
    group = MixedDialogue({"t": 4}, group_disconnect_grace_ms=GRACE_MS)
    (client,) = group.classic_group(x=[0, 1, 2, 3]).values()
    group.heartbeat("a", epoch=0)
    group.settle_all(client)
    return group, client


def test_a_classic_member_of_a_consumer_group_is_given_up_as_often_as_its_connection_closes() -> None:
    """Members of both protocols in one group."""
    group, client = mixed()
    for _ in range(2):
        group.disconnect("x")
        group.advance(ms=GRACE_MS - 1)
        assert client.beat() is ErrorCode.NONE
    group.disconnect("x")
    group.advance(ms=GRACE_MS)
    assert set(group.group.members) == {"a"}


def test_a_groups_session_timeout_is_none_of_a_classic_members_business() -> None:
    group, _ = mixed()
    group.alter_configs({"consumer.session.timeout.ms": "60000"}).is_done()
    group.advance(ms=10_000)
    assert set(group.group.members) == {"a"}


def classic_pair() -> GroupDialogue:
    """Members a, who leads, and b in generation 2, at rest."""
    group = graceful()
    join(group, fresh="a")
    sync(group, "a", 1, a=b"")
    join(group, fresh="b")
    join(group, "a")
    sync(group, "a", 2, a=b"1", b=b"2")
    sync(group, "b", 2)
    assert group.shard.groups.classic["g"].state.value == "Stable"
    group.new_records()
    return group


def members(group: GroupDialogue) -> list[str]:
    return list(group.shard.groups.classic["g"].members)


def test_a_classic_member_is_given_up_after_the_grace() -> None:
    group = classic_pair()
    group.disconnect("b")
    group.advance(ms=GRACE_MS - 1)
    assert members(group) == ["a", "b"]
    group.advance(ms=1)
    assert members(group) == ["a"]


def test_a_classic_member_that_heartbeats_again_stays() -> None:
    group = classic_pair()
    group.disconnect("b")
    group.advance(ms=GRACE_MS - 1)
    heartbeat(group, "b", 2).is_done()
    heartbeat(group, "a", 2).is_done()
    group.advance(ms=9_999)
    assert members(group) == ["a", "b"]


def test_a_first_join_that_nobody_waits_for_holds_up_the_others_for_the_grace_only() -> None:
    """Apache Kafka sees no end of a connection whose JoinGroup is parked, and waits for five minutes."""
    group = classic_pair()
    parked = join(group, fresh="c")
    group.disconnect("c")
    parked.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    again = [join(group, "a"), join(group, "b")]
    assert all(answer.is_parked for answer in again)
    group.advance(ms=GRACE_MS)
    assert [answer.body_as(commands.JoinGroupReply).generation_id for answer in again] == [3, 3]
    assert members(group) == ["a", "b"]


def test_a_rejoin_that_nobody_waits_for_holds_up_the_others_for_the_grace_only() -> None:
    """The others wait for a; b, whose connection is gone, counts as one that has not rejoined."""
    group = classic_pair()
    join(group, fresh="c")
    join(group, "b")
    group.disconnect("b")
    again = join(group, "a")
    assert again.is_parked
    group.advance(ms=GRACE_MS)
    joined = again.body_as(commands.JoinGroupReply)
    assert [member.member_id for member in joined.members] == ["a", "c"]


def test_a_member_that_rejoins_in_time_is_waited_for() -> None:
    group = classic_pair()
    join(group, fresh="c")
    join(group, "b")
    group.disconnect("b")
    group.advance(ms=GRACE_MS - 1)
    assert join(group, "b").is_parked
    joined = join(group, "a").body_as(commands.JoinGroupReply)
    assert [member.member_id for member in joined.members] == ["a", "b", "c"]


def test_a_sync_that_nobody_waits_for_is_dropped_and_its_member_given_up() -> None:
    group = classic_pair()
    join(group, "a")
    joined = join(group, "b").body_as(commands.JoinGroupReply)
    parked = sync(group, "b", joined.generation_id)
    assert parked.is_parked
    group.disconnect("b")
    parked.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.advance(ms=GRACE_MS)
    assert members(group) == ["a"]


def test_a_static_classic_member_keeps_its_session() -> None:
    group = graceful()
    join(group, fresh="a", instance_id="one")
    sync(group, "a", 1, a=b"")
    group.disconnect("a")
    group.advance(ms=9_999)
    assert members(group) == ["a"]
