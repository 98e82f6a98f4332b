"""Grants: tokens beside assignments, and renewed before their leases end; in virtual time."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from kohort.broker.access import capabilities
from kohort.broker.groups import grants
from kohort.broker.topics.revocations import RevokedKind
from kohort.errors import ErrorCode
from kohort.security.capabilities import capability
from kohort.security.capabilities.capability import Capability
from kohort.security.capabilities.caveats import operations
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from support.dialogues.wired_members import GROUP, SESSION_S, WiredMembers, virtually

LEASE_S = SESSION_S / 2
THIRD_S = LEASE_S / 3


def allows(members: WiredMembers, grant: Any) -> Capability:
    return capability.verify(grant.token, members.context.capabilities.keys)


def partitions_of(members: WiredMembers, grant: Any) -> set[int]:
    found = allows(members, grant)
    return {number for number in range(10) if found.covers(members.topic_id, None, number)}


async def joined(members: WiredMembers, member_id: str = "a") -> Any:
    return await members.join(member_id, wants_numbers=True)


async def beat(members: WiredMembers, member_id: str = "a", epoch: int = 1, **fields: Any) -> Any:
    return await members.beat(member_id, epoch, wants_numbers=True, **fields)


def owned(members: WiredMembers, *partitions: int) -> dict[str, Any]:
    return {"topic_partitions": [TopicPartitions(topic_id=members.topic_id, partitions=list(partitions))]}


def test_assignment_comes_with_a_grant_of_these_partitions() -> None:
    async def dialogue(members: WiredMembers) -> None:
        answer = await joined(members)
        found = allows(members, answer.grant)
        assert (found.group, found.member, found.epoch) == (GROUP, "a", 1)
        assert partitions_of(members, answer.grant) == {0, 1}
        assert answer.grant.lease_ms == LEASE_S * 1000
        assert found.not_after_ms == members.context.clock.now_ms() + answer.grant.lease_ms
        assert found.operations is not None

    virtually(dialogue)


def test_grant_is_renewed_by_a_heartbeat_when_a_third_of_its_lease_is_over() -> None:
    async def dialogue(members: WiredMembers) -> None:
        first = (await joined(members)).grant
        assert (await beat(members)).grant is None
        await asyncio.sleep(THIRD_S - 0.1)
        assert (await beat(members)).grant is None
        await asyncio.sleep(0.2)
        second = (await beat(members)).grant
        assert allows(members, second).not_after_ms > allows(members, first).not_after_ms
        # The same holder, with a later lease.
        assert allows(members, second).id == allows(members, first).id
        assert (await beat(members)).grant is None

    virtually(dialogue)


def test_settled_heartbeats_make_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look each, and three grants in a lease."""
    minted = 0
    mint = capability.mint

    def count(*given: Any, **more: Any) -> str:
        nonlocal minted
        minted += 1
        return mint(*given, **more)

    monkeypatch.setattr(capabilities, "mint", count)

    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        for _ in range(10):
            for _ in range(10):
                await beat(members)
            await asyncio.sleep(LEASE_S / 10)
        assert 3 <= minted <= 4

    virtually(dialogue)


def test_repeated_heartbeat_is_not_answered_from_the_cache_when_a_grant_is_due() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        for _ in range(3):
            assert (await beat(members)).grant is None
        before = members.beats["a"].requests_carried_out()
        await beat(members)
        assert members.beats["a"].requests_carried_out() == before + 1, "it is answered from the cache"
        await asyncio.sleep(THIRD_S)
        assert (await beat(members)).grant is not None

    virtually(dialogue)


def test_held_heartbeat_ends_in_time_for_the_renewal() -> None:
    """The lease is short: no hold takes more than a third of it, and none begins when a grant is due."""

    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        await beat(members, **owned(members, 0, 1))
        renewed_s, began_s = [], members.now_s
        for _ in range(20):
            sent_s = members.now_s
            answer = await beat(members)
            assert members.now_s - sent_s <= 0.5
            if answer.grant is not None:
                renewed_s.append(members.now_s - began_s)
        assert len(renewed_s) >= 3
        gaps = [later - earlier for earlier, later in pairwise(renewed_s)]
        assert max(gaps) < 1.5

    virtually(dialogue, **{"group.push.enable": True, "group.ownership.lease.ms": 1_500})


def test_grant_is_renewed_beside_fetches_and_commits() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        assert (await members.fetch("a")).membership_update.grant is not None, "by a connection that it does not know"
        assert (await members.fetch("a")).membership_update is None
        await asyncio.sleep(THIRD_S)
        update = (await members.fetch("a")).membership_update
        assert (update.error_code, update.member_epoch, update.assignment) == (0, 1, None)
        assert partitions_of(members, update.grant) == {0, 1}
        await asyncio.sleep(THIRD_S)
        known = members.word("a", 1)
        code, answer = await members.commit("a", 1, 0, member=known)
        assert code == ErrorCode.NONE
        assert partitions_of(members, answer.membership_update.grant) == {0, 1}

    virtually(dialogue)


def test_news_beside_fetches_come_with_their_grants() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        await beat(members, **owned(members, 0, 1))
        members.send_fetch("a", max_wait_ms=60_000)
        await joined(members, "b")
        update = (await members.next_fetch("a")).membership_update
        assert partitions_of(members, update.grant) == {0}
        assert allows(members, update.grant).epoch == update.member_epoch
        # The commit that gives up the other one is answered with a grant of the next epoch.
        code, answer = await members.commit(
            "a", 1, 1, member=members.word("a", 1, 0), released=owned(members, 1)["topic_partitions"]
        )
        assert code == ErrorCode.NONE
        assert allows(members, answer.membership_update.grant).epoch == answer.membership_update.member_epoch == 2
        gained = await beat(members, "b", 2)
        assert partitions_of(members, gained.grant) == {1}

    virtually(dialogue)


def test_member_without_partitions_gets_none_until_it_has_some() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        await beat(members, **owned(members, 0, 1))
        assert (await joined(members, "b")).grant is None
        members.send_fetch("b", 2, known=[], max_wait_ms=60_000)
        await beat(members)
        await beat(members, **owned(members, 0))
        update = (await members.next_fetch("b")).membership_update
        assert partitions_of(members, update.grant) == {1}

    virtually(dialogue)


def test_nothing_is_granted_where_nothing_is_enforced_or_wanted() -> None:
    async def off(members: WiredMembers) -> None:
        assert (await joined(members)).grant is None
        assert (await members.fetch("a")).membership_update is None

    async def unwanted(members: WiredMembers) -> None:
        assert (await members.join("a")).grant is None
        assert (await members.fetch("a")).membership_update is None
        assert not len(members.context.member_grants)

    virtually(off, **{"group.ownership.enforce": "off"})
    virtually(unwanted)


def test_group_that_enforces_from_now_on_grants_with_the_next_heartbeat() -> None:
    async def dialogue(members: WiredMembers) -> None:
        assert (await joined(members)).grant is None
        members.alter(group_ownership_enforce="ours")
        assert partitions_of(members, (await beat(members)).grant) == {0, 1}
        members.alter(group_ownership_enforce="off")
        await asyncio.sleep(THIRD_S)
        assert (await beat(members)).grant is None

    virtually(dialogue, **{"group.ownership.enforce": "off"})


def test_grant_is_told_again_by_another_connection() -> None:
    """The answer that told it was lost with the former one."""

    async def dialogue(members: WiredMembers) -> None:
        first = (await joined(members)).grant
        members.beats["a"] = await members.connect()
        await asyncio.sleep(1)
        again = (await beat(members)).grant
        assert again.token == first.token
        assert again.lease_ms == first.lease_ms - 1_000

    virtually(dialogue)


def test_commit_has_to_be_covered_by_its_grant() -> None:
    async def dialogue(members: WiredMembers) -> None:
        token = (await joined(members)).grant.token
        await beat(members, **owned(members, 0, 1))
        assert (await members.commit("a", 1, 0, 1, grant=token))[0] == ErrorCode.NONE
        # One of a lease that is over: the coordinator knows whether the member is one.
        for _ in range(3):
            await asyncio.sleep(THIRD_S + 1)
            await beat(members)
        assert (await members.commit("a", 1, 0, grant=token))[0] == ErrorCode.NONE
        narrow = capability.attenuate(token, operations("read"))
        assert (await members.commit("a", 1, 0, grant=narrow))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await members.commit("a", 0, 0, grant=token))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await members.commit("a", 1, 0, grant=token[:-1]))[0] == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await members.commit("a", 1, 0, grant="kh1." + "x" * 30_000))[0] == ErrorCode.FENCED_MEMBER_EPOCH

    virtually(dialogue)


def test_grant_of_another_member_group_or_partition_covers_nothing() -> None:
    """A member that lies about what it owns, or says that it is another."""

    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        await beat(members, **owned(members, 0, 1))
        await joined(members, "b")
        lost = (await beat(members)).grant
        own = (await beat(members, **owned(members, 0))).grant.token
        other = (await beat(members, "b", 2)).grant.token
        assert (await members.commit("a", 2, 0, grant=other))[0] == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await members.commit("b", 2, 0, grant=own))[0] == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await members.commit("a", 2, 0, grant=own, group_id="h"))[0] == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await members.commit("a", 2, 1, grant=own))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await members.commit("a", 2, 0, grant=lost.token))[0] == ErrorCode.STALE_MEMBER_EPOCH
        assert (await members.commit("a", 2, 0, grant=own))[0] == ErrorCode.NONE

    virtually(dialogue)


def test_assignment_that_no_token_can_name_has_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "LONGEST_TOKEN", 60)

    async def dialogue(members: WiredMembers) -> None:
        assert (await joined(members)).grant is None
        assert not members.context.member_grants.is_due(members.beats["a"].connection, (GROUP, "a"))
        assert (await beat(members)).grant is None

    virtually(dialogue)


def test_grants_of_members_that_are_gone_are_forgotten() -> None:
    async def dialogue(members: WiredMembers) -> None:
        for member_id in ("a", "b"):
            await joined(members, member_id)
        await members.beat("b", -1)
        assert len(members.context.member_grants) == 1
        await asyncio.sleep(SESSION_S + 1)
        await joined(members, "c")
        assert len(members.context.member_grants) == 1

    virtually(dialogue)


#: Ids of a grant's chain: as it was minted, of its holder, and behind its lease.
MINTED, HOLDER, LEASE = 0, -2, -1


def revoke(members: WiredMembers, grant: Any, at: int, *, lease_s: float = 3_600.0) -> None:
    """Revoke one id of a grant's chain; the revocation is needed for so long."""
    context, told = members.context, list[Any]()
    end_ms = context.clock.now_ms() + int(lease_s * 1000)
    names = {(RevokedKind.ID, allows(members, grant).chain[at]): end_ms}
    context.cluster.work.ask([context.revocations.revocation(names, told.append)])
    assert told == [None]


async def reads_and_commits(members: WiredMembers, grant: Any, epoch: int) -> bool:
    """Whether it does both; neither alone."""
    answer = await members.fetch("a", epoch, grant=grant.token)
    code, _ = await members.commit("a", epoch, 0, grant=grant.token)
    codes = {row.error_code for topic in answer.responses for row in topic.partitions} | {code}
    assert len(codes) == 1
    return codes == {ErrorCode.NONE}


@pytest.mark.parametrize("at", [MINTED, HOLDER])
def test_member_whose_grants_were_revoked_is_given_no_other_one(at: int) -> None:
    """Not by a renewal, with another epoch, or when it comes back by its id; another member is."""

    async def dialogue(members: WiredMembers) -> None:
        grant = (await joined(members)).grant
        await beat(members, **owned(members, 0, 1))
        assert await reads_and_commits(members, grant, 1)
        revoke(members, grant, at)
        assert not await reads_and_commits(members, grant, 1)
        await asyncio.sleep(THIRD_S + 0.1)
        assert not await reads_and_commits(members, (await beat(members)).grant, 1)
        await joined(members, "b")
        await beat(members)
        moved = await beat(members, **owned(members, 0))
        assert moved.member_epoch == 2
        assert not await reads_and_commits(members, moved.grant, 2)
        assert partitions_of(members, (await beat(members, "b", 2)).grant) == {1}
        await members.beat("a", -1)
        await members.beat("b", -1)
        back = await joined(members)
        assert not await reads_and_commits(members, back.grant, back.member_epoch)

    virtually(dialogue)


def test_grant_that_was_revoked_by_its_last_id_is_followed_by_another_one() -> None:
    """One that was stolen ends, and not its member."""

    async def dialogue(members: WiredMembers) -> None:
        grant = (await joined(members)).grant
        revoke(members, grant, LEASE)
        assert not await reads_and_commits(members, grant, 1)
        await asyncio.sleep(THIRD_S + 0.1)
        assert await reads_and_commits(members, (await beat(members)).grant, 1)

    virtually(dialogue)


def test_clock_that_is_set_has_the_grant_renewed() -> None:
    """By leaders' clocks its lease ends with the day that was set."""

    async def dialogue(members: WiredMembers) -> None:
        await joined(members)
        assert (await beat(members)).grant is None
        members.context.member_grants._grants[GROUP, "a"].stepped_ms -= 3_600_000
        assert (await beat(members)).grant is not None

    virtually(dialogue)


def test_nothing_of_a_token_is_logged_or_journaled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def dialogue(members: WiredMembers) -> None:
        token = (await joined(members)).grant.token
        await members.commit("a", 1, 0, grant=token)
        await members.commit("a", 1, 0, grant=token[:-2])
        await members.fetch("a", grant=token)
        told = repr(members.context.runtime.journal.history(GROUP).rows) + caplog.text
        assert token[10:30] not in told
        assert not any(token[10:30] in repr(each) for each in members.context.member_grants._grants.values())

    virtually(dialogue)
    assert grants.RENEWALS_PER_LEASE == 3
