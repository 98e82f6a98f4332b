"""Planted bugs: deliberate mistakes in the coordinator or around it, and worlds that find them by one law each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kohort.coordinator.commands import GroupCommand
from kohort.coordinator.decision import Arm, Decision, ReplyBody
from kohort.coordinator.records import codec
from kohort.coordinator.records.types import Record
from kohort.coordinator.shard import EndedHold, Shard
from kohort.errors import InvariantViolation
from kohort.simulation.assignors import OWN_ASSIGNOR
from kohort.simulation.checkers import LAWS
from kohort.simulation.runtime import SimulatedRuntime
from kohort.simulation.scenario import GroupPlan, MemberSettings, Scenario, build_settings
from kohort.testing import NetworkQuality, SimulatedBroker, World
from support.scenarios.finding_seeds import note_seed, seeds_to_play

#: So many worlds are played at most.
SEEDS = 200
#: So many of them have to find the bug, and all by the same law.
FOUND = 3
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

#: Members of both kinds on a network that keeps what clients gave up, and delivers it later.
LATE = Scenario(
    groups=SLOW.groups,
    topics={"t": 4},
    quality=NetworkQuality(usual_delay_ms=300, long_delay_ms=6_000, long_delay_chance=0.15, late=1.0),
    weights={"join": 2, "leave": 1, "grow_topic": 1, "pause": 1},
)
#: Static members that come and go.
STATIC = Scenario(
    groups=SLOW.groups,
    topics={"t": 5},
    weights={"bounce": 6, "join": 1, "crash_broker": 1, "subscribe": 1},
    static_share=0.8,
)

#: Members that come for seconds, beside a few that stay.
VISITED = Scenario(
    groups=(GroupPlan(group_id="blue", kind="consumer", member_count=3),),
    topics={"t": 7},
    weights={"visit": 1},
    same_topics=("t",),
)
#: An assignor of the user's own that fails, says what is wrong, and comes too late.
OWN = Scenario(
    groups=SLOW.groups,
    topics={"t": 3, "u": 1},
    weights={"join": 2, "leave": 1, "visit": 1, "subscribe": 1, "bounce": 1},
    settings=build_settings(group_consumer_assignors=(OWN_ASSIGNOR,)),
    static_share=0.3,
)
#: Members that run assignors themselves, which fail in each way.
COMPUTING = Scenario(
    groups=tuple(GroupPlan(group_id=group_id, kind="consumer", member_count=3) for group_id in ("blue", "red")),
    topics={"t": 5, "u": 2},
    weights={"join": 3, "leave": 1, "ask_anew": 3, "subscribe": 1, "kill": 1},
    assignor_share=1.0,
)
#: Members that hear beside their heartbeats, though not all of what they are told there.
TOLD = Scenario(
    groups=tuple(GroupPlan(group_id=group_id, kind="consumer", member_count=3) for group_id in ("blue", "red")),
    topics={"t": 6, "u": 2},
    weights={"join": 4, "leave": 2, "subscribe": 2, "bounce": 2, "pause": 1, "slow_callback": 1, "crash_broker": 1},
    static_share=0.3,
    update_share=1.0,
)
#: Members that rarely say something, some of them by the connection of another one.
HELD = Scenario(
    groups=(GroupPlan(group_id="blue", kind="consumer", member_count=4),),
    topics={"t": 7},
    weights={"join": 3, "leave": 2, "pause": 2, "subscribe": 1},
    members=MemberSettings(commit_interval_ms=5_000),
    shared_share=0.5,
    open_requests=4,
)
#: Members that publish, and a broker that is killed again and again.
PUBLISHED = Scenario(
    groups=(GroupPlan(group_id="blue", kind="consumer", member_count=4),),
    topics={"t": 4},
    weights={"crash_broker": 4, "leave": 3, "join": 3},
)
#: The wall clock of the broker's machine is set, by up to two hours.
CLOCK_SET = Scenario(
    groups=SLOW.groups,
    topics={"t": 5},
    weights={
        "set_clock": 4,
        "join": 2,
        "leave": 1,
        "kill": 1,
        "slow_callback": 2,
        "stall_broker": 1,
        "crash_broker": 1,
    },
    settings=replace(build_settings(group_consumer_assignment_window_ms=50), group_moves_per_second=2.0),
    static_share=0.3,
    clock_jumps_ms=7_200_000,
)
#: Nobody but an administrator moves anything.
LEFT_ALONE = Scenario(
    groups=tuple(GroupPlan(group_id=group_id, kind="consumer", member_count=2) for group_id in ("blue", "red")),
    topics={"t": 6, "u": 3},
    weights={"join": 3, "leave": 1, "subscribe": 1, "grow_topic": 1, "administrate": 2},
    settings=build_settings(group_consumer_assignors=("external",)),
)
#: Moves begin one by one.
PACED = Scenario(
    groups=tuple(GroupPlan(group_id=group_id, kind="consumer", member_count=3) for group_id in ("blue", "red")),
    topics={"t": 8},
    weights={"join": 3, "leave": 2, "kill": 1, "administrate": 2},
    settings=replace(build_settings(), group_moves_per_second=2.0),
)
#: Static classic members whose requests come late: the others go on without those that were not there in time.
BEHIND = Scenario(
    groups=tuple(GroupPlan(group_id=group_id, kind="eager", member_count=3) for group_id in ("blue", "red")),
    topics={"t": 4},
    quality=LATE.quality,
    weights={"join": 3, "bounce": 4, "subscribe": 2, "pause": 6, "break_connection": 6},
    members=MemberSettings(session_timeout_ms=30_000, rebalance_timeout_ms=4_000),
    static_share=1.0,
)
#: Classic groups in static mode: fleets that restart and grow, members that vanish, a broker that crashes.
NAMED = Scenario(
    groups=(
        GroupPlan(group_id="blue", kind="eager", member_count=3),
        GroupPlan(group_id="red", kind="cooperative", member_count=3),
    ),
    topics={"t": 5},
    weights={
        "bounce": 6,
        "join": 2,
        "kill": 2,
        "leave": 2,
        "pause": 2,
        "break_connection": 2,
        "cut_off": 1,
        "crash_broker": 2,
        "stall_broker": 1,
        "slow_disk": 1,
        "slow_callback": 1,
        "subscribe": 1,
        "grow_topic": 1,
        "switch_mode": 2,
    },
    settings=replace(
        build_settings(),
        group_membership="static",
        group_registration_timeout_ms=10_000,
        group_expansion_timeout_ms=3_000,
    ),
    static_share=1.0,
)


def law_that_finds(**planted: Any) -> str:
    """The name of the law that the first failing seeds break, all of them the same one; known ones are the first."""
    broken_by: dict[str, str] = {}
    found = 0
    for seed in seeds_to_play(SEEDS):
        try:
            World(seed, **planted).run()
        except InvariantViolation as broken:
            assert f"make seed SEED={seed}" in str(broken)
            name = broken.law.partition(":")[0]
            assert name in LAWS, broken.law
            broken_by.setdefault(name, broken.law)
            note_seed(seed)
            found += 1
            if found == FOUND:
                break
    assert found == FOUND, f"{found} of {SEEDS} seeds found the bug"
    if len(broken_by) > 1:
        # What a member is given by mistake, leaders are told by mistake.
        broken_by.pop("LeadersKnow", None)
    assert len(broken_by) == 1, f"the bug breaks several laws: {broken_by}"
    return next(iter(broken_by))


def answering(alter: Callable[[GroupCommand, ReplyBody], ReplyBody]) -> type[SimulatedBroker]:
    """A broker that says something else than was decided."""

    class Altered(SimulatedRuntime):
        def alter_reply(self, command: GroupCommand, body: ReplyBody) -> ReplyBody:
            return alter(command, body)

    class Liar(SimulatedBroker):
        runtime_class = Altered

    return Liar


def always(value: Any) -> Callable[..., Any]:
    """A function that looks at nothing."""
    return lambda *_, **__: value


def plant_in(monkeypatch: pytest.MonkeyPatch, user: ModuleType, name: str, **planted: Any) -> None:
    """Have one module alone find something else in the module that it imports by `name`."""
    monkeypatch.setattr(user, name, SimpleNamespace(**{**vars(getattr(user, name)), **planted}))


class Tampered(Shard):
    """A shard whose decisions are changed before they are carried out."""

    def tamper(self, decision: Decision) -> Decision:
        """What each bug plants."""
        raise NotImplementedError

    def renew(self, command: Any, *, now_ms: int) -> int | None:
        """Nothing goes the short way, past what is changed."""
        return None

    def find_ended(self, now_ms: int) -> EndedHold | None:
        """Nor does the end of a hold."""
        return None

    def handle(self, command: Any, *, now_ms: int) -> Decision:
        return self.tamper(super().handle(command, now_ms=now_ms))

    def expire(self, now_ms: int) -> Decision | None:
        decision = super().expire(now_ms)
        return None if decision is None else self.tamper(decision)


def without_records(*kinds: type[Record]) -> type[Tampered]:
    """A shard that forgets to decide these."""

    class Forgetful(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            kept = tuple(record for record in decision.records if not isinstance(record, kinds))
            return replace(decision, records=kept)

    return Forgetful


def without_timers(kind: str) -> type[Tampered]:
    """A shard that forgets to set these deadlines."""

    class Indulgent(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            kept = (e for e in decision.effects if not (isinstance(e, Arm) and e.key.kind == kind))
            return replace(decision, effects=tuple(kept))

    return Indulgent


def forget_to_write(monkeypatch: pytest.MonkeyPatch, kind: type[Record]) -> None:
    """Let the log lack every record of one kind."""
    encode = codec.encode_durable

    def encode_most(records: Iterable[Record]) -> list[tuple[bytes, bytes | None]]:
        return encode(record for record in records if not isinstance(record, kind))

    monkeypatch.setattr(codec, "encode_durable", encode_most)
