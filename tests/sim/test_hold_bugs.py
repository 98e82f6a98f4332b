"""Planted bugs in what is held: each breaks one law of holds, and no other; see `test_planted_bugs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kohort.broker.connections.heartbeats import HeldHeartbeats
from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.connections.request import Buffer, ReplyQueue, SlotState
from kohort.broker.groups import delayed_heartbeats
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeats, Terms
from kohort.coordinator import delayed_heartbeats as delayed
from kohort.coordinator import shard
from kohort.coordinator.commands import AnyHeartbeat, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from kohort.coordinator.consumer.heartbeat import build_settled_reply
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.membership_updates import UpdatedMembers
from kohort.coordinator.model import GroupsState
from kohort.coordinator.shard import Shard
from kohort.simulation.scenario import GroupPlan, Kind
from kohort.testing import World
from support.scenarios.planted_bugs import HELD, always, law_that_finds, without_timers


def test_worlds_in_which_much_is_held() -> None:
    """The worlds of these bugs without them: every law holds, and held heartbeats are answered with news."""
    told = 0
    for seed in range(10):
        world = World(seed, scenario=HELD)
        world.run()
        told += sum("HeartbeatReleased" in row for row in world.story.of(last=len(world.story)))
    assert told > 500


def test_hold_that_nothing_ends() -> None:
    """Its deadline is lost."""
    assert law_that_finds(build_shard=without_timers("hold"), scenario=HELD) == "HoldsEndInTime"


def test_hold_that_takes_all_the_time_its_client_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka closes the connection when the announced interval has passed: its answer needs some of it, too."""

    def terms(pushing: DelayedHeartbeats, request: Any, member: MemberKey, **_: Any) -> Terms:
        connection = request.connection
        told_ms = connection.told_intervals.get(member, 0) if connection.software else -1
        return Terms(told_ms, -1, pushing.counts_requests(connection))

    monkeypatch.setattr(DelayedHeartbeats, "terms", terms)

    assert law_that_finds(scenario=HELD) == "HoldsEndInTime"


def test_held_heartbeat_that_is_answered_as_when_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = delayed.answer

    def answer_as_then(command: ConsumerGroupHeartbeat, decision: Decision) -> Decision:
        def age(effect: Any) -> Any:
            body = getattr(effect, "body", None)
            if not isinstance(effect, Reply) or not isinstance(body, ConsumerGroupHeartbeatReply):
                return effect
            return replace(effect, body=replace(body, member_epoch=command.member_epoch, assignment=None))

        return answer(command, replace(decision, effects=tuple(map(age, decision.effects))))

    monkeypatch.setattr(delayed, "answer", answer_as_then)

    assert law_that_finds(scenario=HELD) == "AnswerIsOfNow"


@pytest.mark.parametrize("kind", ["consumer", "eager", "cooperative"])
def test_session_that_an_answer_prolongs(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is stopped for good would be a member for as long again as its heartbeat was held."""
    monkeypatch.setattr(delayed, "without_life", lambda effects: effects)
    scenario = replace(HELD, groups=(GroupPlan(group_id="blue", kind=kind, member_count=4),))

    assert law_that_finds(scenario=scenario) == "SessionsCountFromArrival"


@pytest.mark.parametrize("kind", ["consumer", "eager"])
def test_session_that_ends_before_that_of_a_client_which_counts_from_the_answer(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock clients read on for as long as their last answer was held, beside whoever has their partitions then."""
    answer = delayed.answer

    def answer_as_to_ours(command: AnyHeartbeat, decision: Decision) -> Decision:
        return answer(replace(command, counts_requests=True), decision)

    monkeypatch.setattr(delayed, "answer", answer_as_to_ours)
    monkeypatch.setattr(Shard, "find_ended", always(None))
    scenario = replace(HELD, groups=(GroupPlan(group_id="blue", kind=kind, member_count=4),))

    assert law_that_finds(scenario=scenario) == "SessionsOutlastAnswers"


def test_hold_that_ends_with_another_interval_than_its_member_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(command: ConsumerGroupHeartbeat, *found: Any, now_ms: int) -> ConsumerGroupHeartbeatReply:
        return replace(build_settled_reply(command, *found, now_ms=now_ms), heartbeat_interval_ms=1)

    monkeypatch.setattr(shard, "build_settled_reply", build)

    assert law_that_finds(scenario=HELD) == "EndIsAnswering"


def test_news_of_one_that_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    note = UpdatedMembers.note

    def note_all(news: UpdatedMembers, groups: GroupsState, records: Any, freed: Any) -> None:
        note(news, groups, records, freed)
        for group_id in {group_id for group_id, _ in news._places}:
            news._places.update({(group_id, each): True for each in groups.holds.get(group_id, ())})

    monkeypatch.setattr(UpdatedMembers, "note", note_all)

    assert law_that_finds(scenario=HELD) == "NobodyIsToldForNothing"


def test_answer_that_overtakes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ReplyQueue.take

    def take_any(queue: ReplyQueue, _: int) -> list[Buffer]:
        # Those without a place in the order, as always.
        unordered = take(queue, 0)
        ready = [slot for slot in queue._slots if slot.state is SlotState.READY]
        for slot in ready:
            queue._slots.remove(slot)
            slot.state = SlotState.SENT
        return [*unordered, *(part for slot in ready for part in slot.parts)]

    monkeypatch.setattr(ReplyQueue, "take", take_any)

    assert law_that_finds(scenario=HELD) == "AnswersInOrder"


def test_answer_that_overtakes_those_to_a_client_that_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's takes the first answer for that to its oldest request."""
    monkeypatch.setattr(delayed_heartbeats, "_MATCHING", ("",))

    assert law_that_finds(scenario=HELD) == "AnswersInOrder"


def test_answer_that_waits_behind_a_held_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldHeartbeats, "release_overtaken", always(None))

    assert law_that_finds(scenario=HELD) == "HeldInNobodysWay"


def test_connection_that_is_full_of_held_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more would be read of it."""
    monkeypatch.setattr(HeldHeartbeats, "add", lambda holds, request: holds._held.append(request))

    assert law_that_finds(scenario=replace(HELD, shared_share=0.95)) == "HeldInNobodysWay"
