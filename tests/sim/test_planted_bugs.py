"""The checkers can fail: each of these deliberate bugs is found within a few seeds, and the right law says so."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kohort.assign.interface import Assignable
from kohort.coordinator import commands as asked
from kohort.coordinator import recordcodec, shard
from kohort.coordinator import records as facts
from kohort.coordinator.classic import rebalance, sync
from kohort.coordinator.classic.rebalance import build_sync_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember
from kohort.coordinator.commands import JoinGroupReply, ReplyBody, SyncGroupReply
from kohort.coordinator.consumer import assignable, heartbeat, offload, reconcile, static
from kohort.coordinator.decision import Arm, Decision, Reply, TimerKey
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.offsets import commit
from kohort.coordinator.records import Record
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode, InvariantViolation
from kohort.ids import RequestToken
from kohort.testing import NetworkQuality, SimulatedBroker, World
from kohort.testing.assignors import OWN_ASSIGNOR
from kohort.testing.home import Home
from kohort.testing.laws import LAWS
from kohort.testing.members.process import MemberSettings
from kohort.testing.scenario import GroupPlan, Scenario, build_settings

SEEDS = 200
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
    settings=build_settings(assignors=(OWN_ASSIGNOR,)),
    static_share=0.3,
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


def law_that_finds(**planted: Any) -> str:
    """The name of the law that the first failing seed breaks."""
    for seed in range(SEEDS):
        try:
            World(seed, **planted).run()
        except InvariantViolation as broken:
            assert f"make seed SEED={seed}" in str(broken)
            name = broken.law.partition(":")[0]
            assert name in LAWS, broken.law
            return name
    raise AssertionError(f"{SEEDS} seeds did not find the bug")


def always(value: Any) -> Callable[..., Any]:
    """A function that looks at nothing."""
    return lambda *_, **__: value


class Tampered(Shard):
    """A shard whose decisions are changed before they are carried out."""

    def tamper(self, decision: Decision) -> Decision:
        raise NotImplementedError

    def renew(self, command: Any, *, now_ms: int) -> int | None:
        """Nothing goes the short way, past what is changed."""
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
    encode = recordcodec.encode_durable

    def encode_most(records: Iterable[Record]) -> list[tuple[bytes, bytes | None]]:
        return encode(record for record in records if not isinstance(record, kind))

    monkeypatch.setattr(recordcodec, "encode_durable", encode_most)


# Who owns what.


def test_partition_that_is_given_away_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator is in agreement with itself; only what the members believe shows it (crabka #521)."""
    monkeypatch.setattr(reconcile, "_still_owned", always({}))

    assert law_that_finds() == "NoDoubleClientAssignment"


def test_partition_that_is_given_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    take_free = reconcile._take_free
    monkeypatch.setattr(
        reconcile,
        "_take_free",
        lambda member_id, kept, target, goal: take_free(member_id, kept, target, replace(goal, holders={})),
    )

    assert law_that_finds() == "NoDoubleClientAssignment"


def test_release_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member says that it has given up, and nobody listens."""
    monkeypatch.setattr(reconcile, "_still_owned", lambda grants, _: grants)

    assert law_that_finds() == "ReleaseIsHeard"


def test_target_that_leaves_a_partition_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = assignable.spread_owners

    def spread_most(*arguments: Any) -> Any:
        return {
            member: {topic_id: found[:-1] for topic_id, found in partitions.items() if found[:-1]}
            for member, partitions in spread(*arguments).items()
        }

    monkeypatch.setattr(assignable, "spread_owners", spread_most)

    assert law_that_finds() == "LegalTargetAssignment"


def test_target_that_forgets_who_had_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even, and not sticky: those who stay pay for everybody who comes for a moment."""
    monkeypatch.setattr(assignable, "gather_owners", lambda space, _: array("i", [-1] * len(space)))

    assert law_that_finds(scenario=VISITED) == "MovesOnlyForBalance"


def test_rebalance_that_stops_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody gives up everything first, as in the first protocols."""
    split = reconcile._split

    def give_up_all(assigned: Any, target: Any) -> Any:
        kept, rest = split(assigned, target)
        return ({}, assigned) if rest else (kept, rest)

    monkeypatch.setattr(reconcile, "_split", give_up_all)

    assert law_that_finds() == "NoChangeWithoutMove"


def test_follower_that_is_told_what_the_leader_shall_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def confuse(group: ClassicGroup, _: ClassicMember) -> SyncGroupReply:
        assert group.leader is not None
        return build_sync_reply(group, group.members[group.leader])

    monkeypatch.setattr(rebalance, "build_sync_reply", confuse)

    assert law_that_finds() == "LegalAssignment"


def test_sync_that_is_answered_in_an_older_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "check_generation", always(None))

    assert law_that_finds(scenario=BEHIND) == "LegalAssignment"


# Epochs.


def test_group_epoch_that_is_not_raised() -> None:
    assert law_that_finds(build_shard=without_records(facts.ConsumerGroupEpochSet)) == "TypeOK"


def test_member_epoch_that_goes_back() -> None:
    class Backwards(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def lower(record: Record) -> Record:
                if isinstance(record, facts.CurrentAssignmentSet) and record.member_epoch > 3:
                    return replace(record, member_epoch=2)
                return record

            return replace(decision, records=tuple(map(lower, decision.records)))

    found = law_that_finds(build_shard=Backwards)

    assert found in ("GcSideMemberEpochIsMonotonic", "ValidPartitionEpoch", "ClientSideMemberEpochIsMonotonic")


def test_member_that_is_told_an_older_epoch() -> None:
    class Forgetful(SimulatedBroker):
        def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
            known = getattr(self._open[request][1], "member_epoch", 0)
            if isinstance(body, asked.ConsumerGroupHeartbeatReply) and known > 2:
                body = replace(body, member_epoch=2)
            super()._reply(home, request, body)

    assert law_that_finds(broker_class=Forgetful) == "ClientSideMemberEpochIsMonotonic"


# Deadlines.


def test_session_that_never_ends() -> None:
    class Patient(without_timers("session")):  # type: ignore[misc]
        def on_loaded(self, now_ms: int) -> None:
            """Sets no deadline either."""

    assert law_that_finds(build_shard=Patient) == "EventuallyConverges"


def test_session_that_a_heartbeat_does_not_prolong() -> None:
    class Strict(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            known = self.timers

            def is_prolonged(effect: object) -> bool:
                is_session = isinstance(effect, Arm) and effect.key.kind == "session"
                return is_session and known.deadline(effect.key) is not None

            return replace(decision, effects=tuple(e for e in decision.effects if not is_prolonged(e)))

    # The successor of a static member has no deadline at all by it.
    assert law_that_finds(build_shard=Strict) in ("NobodyIsFencedEarly", "EventuallyConverges")


@pytest.mark.parametrize("kind", ["rebalance", "join", "sync"])
def test_member_that_holds_up_the_others_for_as_long_as_it_likes(kind: str) -> None:
    found = law_that_finds(build_shard=without_timers(kind), scenario=SLOW)

    assert found in ("HandOverEndsInTime", "AnsweredOnce")


def test_stall_of_the_broker_that_is_held_against_the_members() -> None:
    class Unfair(SimulatedBroker):
        def _give_back(self, home: Home, gap_ms: int) -> None:
            """It does not."""

    assert law_that_finds(broker_class=Unfair) == "NobodyIsFencedEarly"


def test_target_that_nobody_computes() -> None:
    """The timer of the assignment's window is lost."""
    assert law_that_finds(build_shard=without_timers("assignment")) == "EventuallyConverges"


# Assignors of the user's own.


def test_answer_of_an_assignor_that_is_believed_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every partition goes to some member, whether it wants it or not."""

    def find_no_stranger(group: Assignable, answer: object) -> str:
        is_complete = isinstance(answer, array) and len(answer) == len(group.space)
        is_known = is_complete and all(0 <= number < len(group.members) for number in answer)
        return "" if is_known else "the answer has no form"

    monkeypatch.setattr(offload, "find_fault", find_no_stranger)

    assert law_that_finds(scenario=OWN) == "LegalTargetAssignment"


def test_assignor_that_is_asked_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline at which one that failed is asked again is not set."""
    decide = offload._decide_failure
    monkeypatch.setattr(offload, "_decide_failure", lambda *a, **o: Decision(decide(*a, **o).records))

    assert law_that_finds(scenario=OWN) == "EventuallyConverges"


def test_answer_of_an_assignor_that_knew_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives partitions to the predecessors of static members, and leaves out who took their places."""
    monkeypatch.setattr(offload, "_is_overtaken", always(False))
    bounced = replace(OWN, weights={"bounce": 6, "join": 1}, static_share=0.9, pause_between_ms=(50, 800))

    assert law_that_finds(scenario=bounced) == "LegalTargetAssignment"


# Connections.


def test_request_of_a_connection_that_was_given_up() -> None:
    """The hazard that the guard is there for: what comes late undoes what is newer; see `test_parts` for the guard."""

    class Trusting(SimulatedBroker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.guards_old_connections = False

    found = law_that_finds(broker_class=Trusting, scenario=LATE)

    assert found in ("CommitNeverGoesBack", "NoDoubleClientAssignment", "ClientSideMemberEpochIsMonotonic")


def test_guard_against_older_connections() -> None:
    """The same worlds with the guard hold every law."""
    for seed in range(25):
        World(seed, scenario=LATE).run()


# Static members.


def test_static_member_that_loses_its_partitions_by_coming_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor is given nothing of what its predecessor had, though the target still says so."""
    build = static.build_succession

    def build_without_target(*arguments: Any) -> Any:
        records, effects = build(*arguments)
        return [record for record in records if not isinstance(record, facts.MemberTargetSet)], effects

    monkeypatch.setattr(heartbeat, "build_succession", build_without_target)

    assert law_that_finds(scenario=STATIC) in ("LegalTargetAssignment", "ValidMemberEpoch")


# Answers.


def test_heartbeat_that_is_renewed_without_a_look_at_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(groups: GroupsState, command: asked.ConsumerGroupHeartbeat) -> tuple[ConsumerGroup, ConsumerMember] | None:
        group = groups.consumer.get(command.group_id)
        member = None if group is None else group.members.get(command.member_id)
        if group is None or member is None or command.member_epoch != member.member_epoch:
            return None
        return group, member

    monkeypatch.setattr(shard, "find_settled", find)

    assert law_that_finds() == "RenewalIsHandling"


def test_request_that_is_never_answered() -> None:
    """A JoinGroup that a younger one of its member replaces."""

    class Silent(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def is_superseded(effect: object) -> bool:
                body = effect.body if isinstance(effect, Reply) else None
                return isinstance(body, JoinGroupReply) and body.error == ErrorCode.REBALANCE_IN_PROGRESS

            return replace(decision, effects=tuple(e for e in decision.effects if not is_superseded(e)))

    assert law_that_finds(build_shard=Silent) == "AnsweredOnce"


def test_request_that_is_answered_twice() -> None:
    class Talkative(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            joins = [e for e in decision.effects if isinstance(e, Reply) and isinstance(e.body, JoinGroupReply)]
            return replace(decision, effects=(*decision.effects, *joins))

    assert law_that_finds(build_shard=Talkative) == "AnsweredOnce"


def test_answer_that_is_given_before_the_disk_has_it() -> None:
    class Hasty(SimulatedBroker):
        def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
            self._answer(self._open[request][1], body)

    assert law_that_finds(broker_class=Hasty) in ("AcknowledgedCommitSurvives", "NoDoubleClientAssignment")


def test_living_member_that_is_told_that_there_is_no_such_group() -> None:
    """What ends Java's and librdkafka's consumers."""

    class Blunt(SimulatedBroker):
        def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
            if isinstance(body, asked.Refusal) and body.code == ErrorCode.UNKNOWN_MEMBER_ID:
                body = replace(body, code=ErrorCode.GROUP_ID_NOT_FOUND)
            super()._reply(home, request, body)

    assert law_that_finds(broker_class=Blunt) == "NoFatalAnswer"


# Commits.


def test_commit_of_somebody_who_is_no_member_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "check_commit", always(None))

    assert law_that_finds() == "CommitNeverGoesBack"


def test_commit_under_a_grant_that_was_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_check_grant", always(ErrorCode.NONE))
    monkeypatch.setattr(commit, "check_consumer_member", lambda group, asking: group.members.get(asking.member_id))

    assert law_that_finds() in ("CommitByHolderOnly", "CommitNeverGoesBack")


def test_commit_that_nobody_can_fetch() -> None:
    class Shy(SimulatedBroker):
        def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
            if isinstance(body, asked.FetchOffsetsReply):
                body = asked.FetchOffsetsReply(offsets=tuple(replace(found, offset=-1) for found in body.offsets))
            super()._reply(home, request, body)

    assert law_that_finds(broker_class=Shy) == "AcknowledgedCommitSurvives"


def test_fetch_that_skips_records() -> None:
    """Somebody is told to go on beyond what was committed."""

    class Eager(SimulatedBroker):
        def _reply(self, home: Home, request: RequestToken, body: ReplyBody) -> None:
            if isinstance(body, asked.FetchOffsetsReply):
                body = asked.FetchOffsetsReply(
                    offsets=tuple(replace(found, offset=found.offset + 1_000) for found in body.offsets)
                )
            super()._reply(home, request, body)

    assert law_that_finds(broker_class=Eager) == "NothingIsSkipped"


def test_commit_that_is_not_noted() -> None:
    """Where every hand-over is clean, nobody processes a record again."""
    clean = replace(SLOW, weights={"join": 2, "leave": 1}, is_clean=True)

    assert law_that_finds(build_shard=without_records(facts.OffsetCommitted), scenario=clean) == "ProcessedOnce"


def test_deadline_that_nobody_forgets() -> None:
    """One that is set with each join, and outlasts everybody."""

    class Unforgiving(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            sessions = [e for e in decision.effects if isinstance(e, Arm) and e.key.kind == "session"]
            keys = ((e, TimerKey("pending", e.key.group_id, e.key.member_id)) for e in sessions)
            extra = (Arm(key, e.deadline_ms + 10_000_000) for e, key in keys)
            return replace(decision, effects=(*decision.effects, *extra))

    assert law_that_finds(build_shard=Unforgiving) == "DeadlinesEnd"


# The log.


@pytest.mark.parametrize(
    "kind",
    [facts.MemberTargetForgotten, facts.ConsumerMemberForgotten, facts.CurrentAssignmentSet, facts.OffsetCommitted],
    ids=lambda kind: kind.__name__,
)
def test_record_that_is_not_written(monkeypatch: pytest.MonkeyPatch, kind: type[Record]) -> None:
    """A tombstone, the end of a fenced member, what somebody holds, a commit."""
    forget_to_write(monkeypatch, kind)

    assert law_that_finds() == "FoldIsLivingState"


def test_subscription_that_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_is_subscribed_as", always(True))

    assert law_that_finds() in ("NoChangeWithoutMove", "EventuallyConverges", "TypeOK", "LegalTargetAssignment")
