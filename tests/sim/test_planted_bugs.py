"""The checkers can fail: each of these deliberate bugs is found within a few seeds, and the right law says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kohort.coordinator import recordcodec
from kohort.coordinator.classic import rebalance
from kohort.coordinator.classic.rebalance import build_sync_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember
from kohort.coordinator.commands import JoinGroupReply, ReplyBody, SyncGroupReply
from kohort.coordinator.consumer import reconcile
from kohort.coordinator.decision import Arm, Decision, Reply
from kohort.coordinator.offsets import commit
from kohort.coordinator.records import ConsumerGroupEpochSet, MemberTargetForgotten, Record
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode, InvariantViolation
from kohort.ids import RequestToken
from kohort.testing import SimulatedBroker, World
from kohort.testing.broker import Home
from kohort.testing.members.process import MemberSettings
from kohort.testing.scenario import GroupPlan, Scenario

SEEDS = 120
#: Members of both kinds that take their time and stay alive.
SLOW = Scenario(
    groups=(
        GroupPlan(group_id="blue", kind="consumer", member_count=3),
        GroupPlan(group_id="red", kind="eager", member_count=3),
    ),
    topics={"t": 4},
    weights={"slow_callback": 6, "join": 2, "leave": 1, "pause": 1},
    members=MemberSettings(session_timeout_ms=15_000, rebalance_timeout_ms=5_000),
)


def find(**planted: Any) -> InvariantViolation:
    """The first seed that breaks a law."""
    for seed in range(SEEDS):
        try:
            World(seed, **planted).run()
        except InvariantViolation as broken:
            assert f"make seed SEED={seed}" in str(broken)
            return broken
    raise AssertionError(f"{SEEDS} seeds did not find the bug")


def always(value: Any) -> Callable[..., Any]:
    """A function that looks at nothing."""
    return lambda *_, **__: value


class Tampered(Shard):
    """A shard whose decisions are changed before they are carried out."""

    def tamper(self, decision: Decision) -> Decision:
        raise NotImplementedError

    def handle(self, command: Any, *, now_ms: int) -> Decision:
        return self.tamper(super().handle(command, now_ms=now_ms))

    def expire(self, now_ms: int) -> Decision | None:
        decision = super().expire(now_ms)
        return None if decision is None else self.tamper(decision)


def test_partition_that_is_given_away_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator is in agreement with itself; only what the members believe shows it (crabka #521)."""
    monkeypatch.setattr(reconcile, "_still_owned", always({}))

    broken = find()

    assert "believes to own" in broken.law or "both own" in broken.law


def test_partition_that_is_given_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    take_free = reconcile._take_free
    monkeypatch.setattr(
        reconcile,
        "_take_free",
        lambda member_id, kept, target, goal: take_free(member_id, kept, target, replace(goal, holders={})),
    )

    assert "both hold" in find().law


def test_epoch_that_is_not_raised() -> None:
    class Forgetful(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            kept = tuple(record for record in decision.records if not isinstance(record, ConsumerGroupEpochSet))
            return replace(decision, records=kept)

    assert "newer than the group" in find(build_shard=Forgetful).law


def test_answer_that_is_given_before_the_disk_has_it() -> None:
    class Hasty(SimulatedBroker):
        def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
            self._answer(self._open[request][1], body)

    broken = find(broker_class=Hasty)

    assert "a crash took it" in broken.law or "believes to own" in broken.law or "both own" in broken.law


def test_session_that_never_ends() -> None:
    class Patient(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            kept = (e for e in decision.effects if not (isinstance(e, Arm) and e.key.kind == "session"))
            return replace(decision, effects=tuple(kept))

        def on_loaded(self, now_ms: int) -> None:
            """Sets no deadline either."""

    broken = find(build_shard=Patient)

    assert "not at rest" in broken.law or "every session has ended" in broken.law


@pytest.mark.parametrize("kind", ["rebalance", "join", "sync"])
def test_member_that_holds_up_the_others_for_as_long_as_it_likes(kind: str) -> None:
    class Indulgent(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            kept = (e for e in decision.effects if not (isinstance(e, Arm) and e.key.kind == kind))
            return replace(decision, effects=tuple(kept))

    broken = find(build_shard=Indulgent, scenario=SLOW)

    assert "are allowed" in broken.law or "never answered" in broken.law


def test_request_that_is_never_answered() -> None:
    """A JoinGroup that a younger one of its member replaces."""

    class Silent(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def is_superseded(effect: object) -> bool:
                body = effect.body if isinstance(effect, Reply) else None
                return isinstance(body, JoinGroupReply) and body.error == ErrorCode.REBALANCE_IN_PROGRESS

            return replace(decision, effects=tuple(e for e in decision.effects if not is_superseded(e)))

    assert "never answered" in find(build_shard=Silent).law


def test_request_that_is_answered_twice() -> None:
    class Talkative(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            joins = [e for e in decision.effects if isinstance(e, Reply) and isinstance(e.body, JoinGroupReply)]
            return replace(decision, effects=(*decision.effects, *joins))

    assert "nobody waits for it" in find(build_shard=Talkative).law


def test_commit_of_somebody_who_is_no_member_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "check_commit", always(None))

    assert "goes back" in find().law


def test_commit_of_a_partition_that_another_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_check_grant", always(ErrorCode.NONE))
    monkeypatch.setattr(commit, "_check_consumer_member", always(object()))

    broken = find()

    assert "which" in broken.law or "goes back" in broken.law


def test_record_that_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = recordcodec.encode_durable

    def encode_most(records: Iterable[Record]) -> list[tuple[bytes, bytes | None]]:
        return encode(record for record in records if not isinstance(record, MemberTargetForgotten))

    monkeypatch.setattr(recordcodec, "encode_durable", encode_most)

    assert "does not give" in find().law


def test_rebalance_that_stops_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody gives up everything first, as in the first protocols."""
    split = reconcile._split

    def give_up_all(assigned: Any, target: Any) -> Any:
        kept, rest = split(assigned, target)
        return ({}, assigned) if rest else (kept, rest)

    monkeypatch.setattr(reconcile, "_split", give_up_all)

    assert "which its target gives it" in find().law


def test_follower_that_is_told_what_the_leader_shall_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def confuse(group: ClassicGroup, _: ClassicMember) -> SyncGroupReply:
        assert group.leader is not None
        return build_sync_reply(group, group.members[group.leader])

    monkeypatch.setattr(rebalance, "build_sync_reply", confuse)

    assert "both own" in find().law
