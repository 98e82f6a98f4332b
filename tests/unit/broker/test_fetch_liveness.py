"""Fetches that count as heartbeats (`group.liveness=fetch`), as connections see them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kohort.capabilities import attenuate, label
from kohort.errors import ErrorCode
from support.dialogues.wired_members import GROUP, INTERVAL_S, SESSION_S, WiredMembers
from support.dialogues.wired_members import virtually as play


def virtually(dialogue: Callable[[WiredMembers], Awaitable[None]], **config: object) -> None:
    play(dialogue, **{"group.liveness": "fetch", "group.ownership.enforce": "off", **config})


def test_member_that_fetches_and_sends_no_heartbeat_stays() -> None:
    async def dialogue(members: WiredMembers) -> None:
        joined = await members.join("a")
        assert joined.counts_fetches
        await members.fetch_for(5 * SESSION_S, "a")
        assert members.ids == {"a"}
        # Then it falls silent.
        await asyncio.sleep(SESSION_S + 1)
        assert not members.ids

    virtually(dialogue)


def test_fetches_are_no_sign_of_life_where_the_group_says_nothing() -> None:
    async def dialogue(members: WiredMembers) -> None:
        joined = await members.join("a")
        assert not joined.counts_fetches
        await members.fetch_for(SESSION_S + 1, "a")
        assert not members.ids

    virtually(dialogue, **{"group.liveness": "heartbeat"})


def test_fetch_that_names_no_member_counts_for_nothing() -> None:
    """The application has not polled for too long: the client leaves the member out of a new session."""

    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        first = await members.fetch("a", session_epoch=0)
        # A fetch of a session that goes on is the member's as before.
        for epoch in range(1, int(SESSION_S) + 2):
            await members.fetch("a", is_named=False, session_id=first.session_id, session_epoch=epoch)
            await asyncio.sleep(1)
        assert members.ids == {"a"}
        first = await members.fetch("a", is_named=False, session_epoch=0)
        for epoch in range(1, int(SESSION_S) + 2):
            await members.fetch("a", is_named=False, session_id=first.session_id, session_epoch=epoch)
            await asyncio.sleep(1)
        assert not members.ids

    virtually(dialogue)


def test_waiting_fetch_counts_when_it_ends() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        # One that waits for most of a session: it is answered, and the member has another session from then.
        await members.fetch("a", max_wait_ms=int((SESSION_S - 1) * 1000))
        await asyncio.sleep(SESSION_S - 2)
        assert members.ids == {"a"}
        await asyncio.sleep(4)
        assert not members.ids

    virtually(dialogue)


def test_waiting_fetch_of_a_process_that_dies_counts_until_then() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        members.send_fetch("a", max_wait_ms=60_000)
        await asyncio.sleep(SESSION_S - 1)
        for connection in (members.beats["a"], members.fetches["a"]):
            connection.connection.connection_lost(None)
        await asyncio.sleep(SESSION_S - 2)
        assert members.ids == {"a"}
        await asyncio.sleep(4)
        assert not members.ids

    virtually(dialogue)


def test_session_is_renewed_four_times_in_an_interval_at_most() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        shard = next(each.shard for each in members.context.runtime._shard_logs if GROUP in each.shard.groups.consumer)
        key = shard.groups.consumer[GROUP].members["a"].session_key
        seen = set()
        for _ in range(120):
            await members.fetch("a")
            seen.add(shard.timers.deadline(key))
            await asyncio.sleep(0.1)
        # These twelve seconds are four intervals.
        assert 12 <= len(seen) <= 17

    virtually(dialogue)


def test_false_claims_renew_nothing() -> None:
    """An epoch that the member does not have, a member that does not exist, and another group's."""

    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        members.fetches["x"] = members.fetches["a"]
        for _ in range(int(SESSION_S) + 1):
            assert (await members.fetch("a", 7)).membership_update.error_code == ErrorCode.FENCED_MEMBER_EPOCH
            assert (await members.fetch("x", 1)).membership_update.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            await asyncio.sleep(1)
        assert not members.ids
        assert not members.context.member_connections.is_known(members.fetches["x"].connection, GROUP, "x")

    virtually(dialogue)


def test_member_is_connected_as_long_as_it_fetches() -> None:
    """Its connection for heartbeats is closed: within the grace nothing is lost, since it fetches by another one."""

    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        await members.fetch("a")
        members.beats["a"].connection.connection_lost(None)
        await members.fetch_for(SESSION_S, "a")
        assert members.ids == {"a"}
        members.fetches["a"].connection.connection_lost(None)
        await asyncio.sleep(INTERVAL_S + 2)
        assert not members.ids

    virtually(dialogue, **{"group.disconnect.grace.ms": 500})


def test_member_whose_connections_were_closed_is_back_by_a_fetch() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        for connection in (members.beats["a"], members.fetches["a"]):
            connection.connection.connection_lost(None)
        members.fetches["a"] = await members.connect()
        await members.fetch_for(2 * SESSION_S, "a")
        assert members.ids == {"a"}

    virtually(dialogue, **{"group.disconnect.grace.ms": 4_000})


def test_offline_member_of_a_static_group_is_back_by_a_fetch() -> None:
    """Its registration ends as late as that of a member that heartbeats, and it is told what it missed."""

    async def dialogue(members: WiredMembers) -> None:
        await members.join("a", instance_id="one", registration_timeout_ms=20_000, expansion_timeout_ms=1_000)
        for connection in (members.beats["a"], members.fetches["a"]):
            connection.connection.connection_lost(None)
        await asyncio.sleep(5)
        members.fetches["a"] = await members.connect()
        await members.fetch_for(40, "a")
        assert members.ids == {"a"}
        await asyncio.sleep(SESSION_S + 21)
        assert not members.ids

    virtually(dialogue)


def test_group_that_counts_fetches_no_more_asks_for_a_heartbeat_once() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        assert (await members.fetch("a")).membership_update is None
        members.alter(group_liveness="heartbeat")
        await asyncio.sleep(INTERVAL_S / 4)
        asked = (await members.fetch("a")).membership_update
        assert asked.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await members.fetch("a")).membership_update is None
        assert not (await members.beat("a", 1)).counts_fetches
        members.alter(group_liveness="fetch")
        assert (await members.beat("a", 1)).counts_fetches

    virtually(dialogue)


def test_member_that_names_itself_with_each_fetch_is_watched_once() -> None:
    """The coordinator is asked for news when the member knows something else, not with each of its fetches."""

    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        await members.fetch("a")
        runtime = members.context.runtime
        before = runtime.next_token()
        for _ in range(10):
            await members.fetch("a")
        assert runtime.next_token() == before + 1
        assert len(members.context.membership_updates) == 1

    virtually(dialogue)


def test_history_says_that_the_member_was_last_heard_of_by_a_fetch() -> None:
    async def dialogue(members: WiredMembers) -> None:
        await members.join("a")
        await members.fetch_for(2 * SESSION_S, "a")
        await asyncio.sleep(SESSION_S + 1)
        rows = members.context.runtime.journal.history(GROUP).rows
        (removed,) = [row for row in rows if row.entry.event == "member_removed"]
        details = dict(removed.entry.details)
        assert (details["reason"], details["heard_by"]) == ("session timeout", "fetch")

    virtually(dialogue)


def test_stock_client_with_a_token_lives_by_its_fetches() -> None:
    """Its background thread is starved: what it fetches shows by its login whose it is."""

    async def dialogue(members: WiredMembers) -> None:
        token = members.context.capabilities.mint(token_id=bytes(16))
        # It has put a label on the token of its fetches.
        await members.join("a", tokens=(token, attenuate(token, label("fetches"))))
        await members.join("b")
        await members.fetch_for(2 * SESSION_S, "a", is_named=False)
        assert members.ids == {"a"}
        # A second member of that token: the fetches are no member's.
        await members.join("c", tokens=(token, token))
        await members.fetch_for(SESSION_S + 1, "a", is_named=False)
        assert not members.ids

    virtually(dialogue)
