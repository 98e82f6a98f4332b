"""Planted bugs of what members hear beside their heartbeats (H10): each breaks one law, and no other.

docs/explanation/simulation.md has the table, which `tools/docs.py` reads from here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kohort.coordinator import delayed_heartbeats as member_updates
from kohort.coordinator import disconnection, membership_updates, shard
from kohort.coordinator.commands import CommitOffsets, ConsumerGroupHeartbeat
from kohort.coordinator.commandtable import DECIDE
from kohort.coordinator.decision import Arm, Decision, Reply
from kohort.coordinator.model import ConsumerMember
from kohort.coordinator.offsets import commit
from kohort.errors import ErrorCode, Refused
from kohort.simulation.scenario import build_settings
from kohort.testing import World
from support.scenarios.planted_bugs import TOLD, always, law_that_finds

SESSION_MS = build_settings().group_consumer_session_timeout_ms
#: The same where what they say by their fetches keeps their sessions.
FETCHED = replace(TOLD, settings=build_settings(group_liveness="fetch"))


def test_worlds_in_which_members_hear_beside_their_heartbeats() -> None:
    """The worlds of these bugs without them: every law holds, much is told so, and some of it is lost."""
    said = told = lost = 0
    for seed in range(12):
        world = World(seed, scenario=TOLD)
        world.run()
        rows = world.story.of(last=len(world.story))
        said += sum("says by a fetch" in row for row in rows)
        told += sum("MemberHeard" in row and "is_behind=True" in row for row in rows)
        lost += sum("does not hear" in row for row in rows)
    assert said > 500
    assert told > 50
    assert lost > 10


def test_heartbeat_that_does_not_repeat_what_was_told_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fetches nothing any more would never hear of it."""
    monkeypatch.setattr(member_updates, "heard_now", always(()))

    assert law_that_finds(scenario=TOLD) == "ToldAgain"


def test_member_that_is_fenced_since_it_does_not_know_what_it_was_told_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tolerance for the epoch that it knows: its heartbeat was on its way."""
    check = member_updates.check_epoch

    def check_strictly(member: ConsumerMember, command: ConsumerGroupHeartbeat) -> None:
        if command.topic_partitions is None:
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "the member has another epoch")
        check(member, command)

    monkeypatch.setattr(member_updates, "check_epoch", check_strictly)

    assert law_that_finds(scenario=TOLD) == "ToldAgain"


def test_word_that_is_told_less_than_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = membership_updates._decide

    def tell_less(*given: Any, **more: Any) -> Decision:
        decision = decide(*given, **more)

        def take_away(effect: Any) -> Any:
            is_news = isinstance(effect, Reply) and getattr(effect.body, "assignment", None)
            return replace(effect, body=replace(effect.body, assignment={})) if is_news else effect

        return replace(decision, effects=tuple(map(take_away, decision.effects)))

    monkeypatch.setattr(membership_updates, "_decide", tell_less)

    assert law_that_finds(scenario=TOLD) == "ToldAlike"


def test_word_that_acknowledges_a_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was told is what a member knows, not what it has given up."""
    build = membership_updates._heartbeat_of

    def acknowledge(member: Any, command: Any, *, tells_all: bool) -> Any:
        return replace(build(member, command, tells_all=tells_all), topic_partitions=command.assigned)

    monkeypatch.setattr(membership_updates, "_heartbeat_of", acknowledge)

    assert law_that_finds(scenario=TOLD) == "NoDoubleClientAssignment"


def test_commit_that_is_taken_for_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member commits at the beginning of its callback as well, and says nothing of giving up: two own a partition."""
    decide = DECIDE[CommitOffsets]

    def release_all(known: Any, command: CommitOffsets, settings: Any, now_ms: int) -> Decision:
        released: dict[Any, tuple[int, ...]] = {}
        for each in command.offsets:
            released[each.topic_id] = (*released.get(each.topic_id, ()), each.partition)
        return decide(known, replace(command, released=released), settings, now_ms)

    monkeypatch.setitem(DECIDE, CommitOffsets, release_all)

    assert law_that_finds(scenario=TOLD) == "NoDoubleClientAssignment"


def test_release_in_spite_of_a_refused_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next owner begins at an older offset, though nothing went wrong."""
    examine = commit.examine_partitions

    def refuse(groups: Any, command: Any, *given: Any, **more: Any) -> Any:
        records, errors = examine(groups, command, *given, **more)
        return ([], [ErrorCode.STALE_MEMBER_EPOCH] * len(errors)) if command.released else (records, errors)

    monkeypatch.setattr(commit, "examine_partitions", refuse)
    monkeypatch.setattr(commit, "_find_released", lambda _, command, *__: command.released)
    clean = replace(TOLD, weights={"join": 4, "leave": 2, "subscribe": 1}, static_share=0.0, is_clean=True)

    assert law_that_finds(scenario=clean) == "ProcessedOnce"


def test_worlds_in_which_fetches_keep_sessions() -> None:
    """The worlds of this bug without it: every law holds."""
    for seed in range(8):
        World(seed, scenario=FETCHED).run()


def test_fetch_that_is_not_counted_as_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only each second interval one counts: a session may end for a member that fetches all the time."""
    find = disconnection.find_renewal

    def find_late(groups: Any, timers: Any, settings: Any, member: Any, *, epoch: int, now_ms: int) -> Any:
        found = find(groups, timers, settings, member, epoch=epoch, now_ms=now_ms - 2_000)
        return found if found.session is None else found._replace(session=Arm(found.session.key, now_ms + SESSION_MS))

    monkeypatch.setattr(shard, "find_renewal", find_late)

    assert law_that_finds(scenario=FETCHED) == "FetchesKeepSessions"
