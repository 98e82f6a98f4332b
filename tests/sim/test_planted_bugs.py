"""The laws can fail: worlds find each of these deliberate bugs, and all that do so name one law, the bug's own.

docs/explanation/simulation.md has the table, which `tools/docs.py` reads from here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kohort.assign.assignors import External, built_in
from kohort.assign.interface import Assignable
from kohort.assign.uniform import Uniform
from kohort.coordinator import commands, shard
from kohort.coordinator.classic import apply as classic_apply
from kohort.coordinator.classic import rebalance, sync
from kohort.coordinator.classic.pending_decision import build_sync_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember
from kohort.coordinator.commands import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupCommand,
    JoinGroupReply,
    Refusal,
    SyncGroupReply,
)
from kohort.coordinator.consumer import heartbeat, static
from kohort.coordinator.consumer.assignment import assignor_input, async_assignor, target
from kohort.coordinator.consumer.client_assignors import assignment_request, heartbeat_fields
from kohort.coordinator.consumer.reconciliation import move_throttle, reconcile
from kohort.coordinator.consumer.reconciliation.effective_target import target_in
from kohort.coordinator.decision import Arm, Decision, Reply, ReplyBody, TimerKey
from kohort.coordinator.journal_events import reporter, triggers
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.offsets import commit
from kohort.coordinator.ownership import fences
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import MemberState, Record
from kohort.errors import ErrorCode
from kohort.ids import TopicId, TopicPartition
from kohort.simulation import assignors
from kohort.simulation.members import classic as classic_members
from kohort.simulation.runtime import SimulatedDisk, SimulatedRuntime
from kohort.simulation.scenario import GroupPlan, Scenario, build_settings
from kohort.testing import SimulatedBroker, World
from support.scenarios.planted_bugs import (
    BEHIND,
    CLOCK_SET,
    COMPUTING,
    LATE,
    LEFT_ALONE,
    NAMED,
    OWN,
    PACED,
    SLOW,
    STATIC,
    VISITED,
    Tampered,
    always,
    answering,
    forget_to_write,
    law_that_finds,
    plant_in,
    without_records,
    without_timers,
)

# Who owns what.


def test_partition_that_is_given_away_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator is in agreement with itself; only what the members believe shows it (crabka #521)."""
    monkeypatch.setattr(reconcile, "_still_owned", always({}))

    assert law_that_finds() == "NoDoubleClientAssignment"


def test_message_to_leaders_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is given up, and its leader serves it to the member still."""
    monkeypatch.setattr(fences._Following, "fences", lambda *_: iter(()))

    assert law_that_finds() == "LeadersKnow"


def test_partition_that_is_given_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    take_free = reconcile._take_free
    monkeypatch.setattr(
        reconcile,
        "_take_free",
        lambda *known: take_free(*known[:-1], replace(known[-1], holders={})),
    )

    assert law_that_finds() == "NoDoubleClientAssignment"


def test_release_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member says that it has given up, and nobody listens."""
    monkeypatch.setattr(reconcile, "_still_owned", lambda grants, _: grants)

    assert law_that_finds() == "ReleaseIsHeard"


def test_target_that_leaves_a_partition_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = assignor_input.spread_owners

    def spread_most(*arguments: Any) -> Any:
        return {
            member: {topic_id: found[:-1] for topic_id, found in partitions.items() if found[:-1]}
            for member, partitions in spread(*arguments).items()
        }

    monkeypatch.setattr(assignor_input, "spread_owners", spread_most)

    assert law_that_finds() == "LegalTargetAssignment"


def test_target_that_forgets_who_had_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even, and not sticky: those who stay pay for everybody who comes for a moment."""

    class Forgetful:
        def __init__(self, name: str) -> None:
            self._sticky = built_in(name)

        def assign(self, group: Assignable) -> array[int]:
            assert self._sticky is not None
            return self._sticky.assign(replace(group, owner=array("i", [-1] * len(group.owner))))

    plant_in(monkeypatch, target, "assignors", built_in=Forgetful)

    assert law_that_finds(scenario=VISITED) == "MovesOnlyForBalance"


def test_external_that_shares_out_what_somebody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever joins is given its share, as by any other assignor: the scheduler's decisions are undone."""
    monkeypatch.setattr(External, "assign", lambda _, group: Uniform().assign(group))

    assert law_that_finds(scenario=LEFT_ALONE) == "ExternalMovesNothing"


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

    plant_in(monkeypatch, rebalance, "pending_decision", build_sync_reply=confuse)

    assert law_that_finds() == "LegalAssignment"


def test_sync_that_is_answered_in_an_older_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in(monkeypatch, sync, "validation", check_generation=always(None))

    assert law_that_finds(scenario=BEHIND) == "LegalAssignment"


# Generations of classic groups.

CLASSIC = Scenario(
    groups=(
        GroupPlan(group_id="blue", kind="eager", member_count=3),
        GroupPlan(group_id="red", kind="cooperative", member_count=3),
    ),
    topics={"t": 5},
    weights={"join": 3, "leave": 3, "kill": 2, "pause": 1, "subscribe": 1},
)


def test_leader_that_gives_a_partition_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-12984, by a leader's fault: everybody is told what it was given."""
    plan_eager = classic_members.plan_eager

    def plan_twice(subscriptions: Any, partitions: Any) -> Any:
        plan = plan_eager(subscriptions, partitions)
        return {member_id: sorted({*found, *partitions[:1]}) for member_id, found in plan.items()}

    monkeypatch.setattr(classic_members, "plan_eager", plan_twice)

    assert law_that_finds(scenario=CLASSIC) == "OneOwnerPerGeneration"


def test_generation_that_an_emptied_group_forgets() -> None:
    class Forgetful(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def forget(record: Record) -> Record:
                is_emptied = isinstance(record, facts.ClassicGroupStored) and not record.members
                return replace(record, generation=0) if is_emptied else record

            return replace(decision, records=tuple(map(forget, decision.records)))

    few = replace(CLASSIC, groups=tuple(replace(plan, member_count=1) for plan in CLASSIC.groups), weights={"leave": 1})

    assert law_that_finds(build_shard=Forgetful, scenario=few) == "GenerationIsMonotonic"


def test_metadata_of_those_who_went_that_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    uncount = classic_apply._uncount

    def uncount_most(group: ClassicGroup, member: ClassicMember) -> None:
        uncount(group, member)
        group.metadata_bytes += member.metadata_bytes

    monkeypatch.setattr(classic_apply, "_uncount", uncount_most)

    assert law_that_finds(scenario=CLASSIC) == "ClassicTypeOK"


def test_somebody_who_went_that_the_others_still_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = classic_apply._apply_member_removed

    def remove_half(group: ClassicGroup, member_id: str) -> None:
        remove(group, member_id)
        group.unsynced[member_id] = None

    monkeypatch.setattr(classic_apply, "_apply_member_removed", remove_half)

    assert law_that_finds(scenario=CLASSIC) == "ValidMemberGeneration"


def test_protocol_that_nobody_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "elect_protocol", always("nobody's"))

    assert law_that_finds(scenario=CLASSIC) == "ValidStableGeneration"


# Epochs.


def test_group_epoch_that_is_not_raised() -> None:
    assert law_that_finds(build_shard=without_records(facts.ConsumerGroupEpochSet)) == "TypeOK"


def test_member_epoch_that_goes_back() -> None:
    """Of somebody who had a higher one; the member itself is told the right one."""

    class Backwards(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def lower(record: Record) -> Record:
                group = self.groups.consumer.get(record.group_id)
                if isinstance(record, facts.CurrentAssignmentSet) and group is not None:
                    known = group.members.get(record.member_id)
                    if known is not None and 2 < known.member_epoch < record.member_epoch:
                        return replace(record, member_epoch=2)
                return record

            return replace(decision, records=tuple(map(lower, decision.records)))

    assert law_that_finds(build_shard=Backwards) == "GcSideMemberEpochIsMonotonic"


def test_grant_at_an_epoch_that_is_yet_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    take_free = reconcile._take_free
    monkeypatch.setattr(
        reconcile,
        "_take_free",
        lambda *known: take_free(*known[:-1], replace(known[-1], epoch=known[-1].epoch + 1)),
    )

    assert law_that_finds() == "ValidPartitionEpoch"


def test_member_that_reaches_the_target_epoch_with_what_it_shall_give_up() -> None:
    """The coordinator goes on guarding what it keeps, so that nobody else gets it."""

    class Generous(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def leave_all(record: Record) -> Record:
                if not isinstance(record, facts.CurrentAssignmentSet) or not record.pending_revocation:
                    return record
                group = self.groups.consumer[record.group_id]
                return replace(
                    record,
                    member_epoch=group.target_epoch,
                    state=MemberState.UNRELEASED_PARTITIONS,
                    assigned=reconcile._united(record.assigned, record.pending_revocation),
                    pending_revocation={},
                )

            return replace(decision, records=tuple(map(leave_all, decision.records)))

    assert law_that_finds(build_shard=Generous) == "ValidMemberEpoch"


@pytest.mark.parametrize("state", [MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS])
def test_member_that_counts_as_stable_on_its_way(state: MemberState) -> None:
    """It has something to give up, or waits for what others have."""

    class Rash(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def settle(record: Record) -> Record:
                is_on_its_way = isinstance(record, facts.CurrentAssignmentSet) and record.state is state
                return replace(record, state=MemberState.STABLE) if is_on_its_way else record

            return replace(decision, records=tuple(map(settle, decision.records)))

    # A heartbeat that is held would be decided again and again, since each decision takes back the one before.
    assert law_that_finds(build_shard=Rash, scenario=replace(VISITED, is_pushing=False)) == "ValidStableGroupState"


def test_member_that_is_told_an_older_epoch() -> None:
    def go_back(command: GroupCommand, body: ReplyBody) -> ReplyBody:
        is_known = getattr(command, "member_epoch", 0) > 2
        is_altered = isinstance(body, ConsumerGroupHeartbeatReply) and is_known
        return replace(body, member_epoch=2) if is_altered else body

    assert law_that_finds(broker_class=answering(go_back)) == "ClientSideMemberEpochIsMonotonic"


# Deadlines.


def test_session_that_never_ends() -> None:
    class Patient(without_timers("session")):  # type: ignore[misc]
        def on_loaded(self, now_ms: int) -> None:
            """Sets no deadline either."""

    # No group of both protocols: there a classic member that is dead would hold up the others first.
    pure = Scenario(groups=SLOW.groups, topics={"t": 4}, weights={"join": 3, "kill": 2, "pause": 1, "subscribe": 1})

    assert law_that_finds(build_shard=Patient, scenario=pure) == "EventuallyConverges"


def test_session_that_a_heartbeat_does_not_prolong() -> None:
    class Strict(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            def is_prolonged(effect: object) -> bool:
                if not (isinstance(effect, Arm) and effect.key.kind == "session"):
                    return False
                # The late answer to a held heartbeat prolongs a session, too; SessionsOutlastAnswers watches that.
                is_held = self.held(effect.key.group_id, effect.key.member_id) is not None
                return self.timers.deadline(effect.key) is not None and not is_held

            return replace(decision, effects=tuple(e for e in decision.effects if not is_prolonged(e)))

    assert law_that_finds(build_shard=Strict) == "NobodyIsFencedEarly"


@pytest.mark.parametrize("kind", ["rebalance", "join", "sync"])
def test_member_that_holds_up_the_others_for_as_long_as_it_likes(kind: str) -> None:
    assert law_that_finds(build_shard=without_timers(kind), scenario=SLOW) == "HandOverEndsInTime"


def test_stall_of_the_broker_that_is_held_against_the_members() -> None:
    class UnfairRuntime(SimulatedRuntime):
        def give_back(self, gap_ms: int) -> None:
            """It does not."""

    class Unfair(SimulatedBroker):
        runtime_class = UnfairRuntime

    assert law_that_finds(broker_class=Unfair) == "NobodyIsFencedEarly"


@pytest.mark.parametrize("settings", [{}, {"groups": NAMED.groups, "settings": NAMED.settings, "static_share": 1.0}])
def test_clock_that_is_set_breaks_no_law(settings: dict[str, Any]) -> None:
    for seed in range(8):
        World(seed, scenario=replace(CLOCK_SET, **settings)).run()


def ignoring_steps(which: Callable[[int], bool]) -> type[SimulatedBroker]:
    """A broker whose deadlines stay where they are when its clock is set."""

    class HastyRuntime(SimulatedRuntime):
        def follow_clock(self, by_ms: int) -> None:
            if not which(by_ms):
                super().follow_clock(by_ms)

    class Hasty(SimulatedBroker):
        runtime_class = HastyRuntime

    return Hasty


def test_clock_set_forward_that_is_held_against_the_members() -> None:
    hasty = ignoring_steps(lambda by_ms: by_ms > 0)
    assert law_that_finds(scenario=CLOCK_SET, broker_class=hasty) == "NobodyIsFencedEarly"


def test_clock_set_back_that_prolongs_sessions() -> None:
    hasty = ignoring_steps(lambda by_ms: by_ms < 0)
    at_once = replace(CLOCK_SET, is_pushing=False)
    assert law_that_finds(scenario=at_once, broker_class=hasty) == "SessionsCountFromArrival"


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

    plant_in(monkeypatch, async_assignor, "moves", find_fault=find_no_stranger)
    monkeypatch.setattr(assignors, "_WEIGHTS", {"_right": 2, "_foreign": 3})
    mixed = replace(OWN, topics={"t": 1, "u": 1}, weights={"subscribe": 6, "join": 2, "leave": 1})

    assert law_that_finds(scenario=mixed) == "LegalTargetAssignment"


def test_assignor_that_is_asked_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline at which one that failed is asked again is not set."""
    decide = async_assignor._decide_failure
    monkeypatch.setattr(async_assignor, "_decide_failure", lambda *a, **o: Decision(decide(*a, **o).records))

    assert law_that_finds(scenario=OWN) == "EventuallyConverges"


def test_answer_of_an_assignor_that_knew_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives partitions to the predecessors of static members, and leaves out who took their places."""
    monkeypatch.setattr(async_assignor, "is_overtaken", always(False))
    alone = (GroupPlan(group_id="blue", kind="consumer", member_count=3),)
    bounced = replace(OWN, groups=alone, weights={"bounce": 6}, static_share=1.0, pause_between_ms=(20, 300))

    assert law_that_finds(scenario=bounced) == "LegalTargetAssignment"


# Connections.


def test_request_of_a_connection_that_was_given_up() -> None:
    """The hazard that the guard is there for: what comes late undoes what is newer; see `test_parts` for the guard."""

    class Trusting(SimulatedBroker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.guards_old_connections = False

    # A KIP-848 member's late heartbeat would, besides, acknowledge what it knows nothing of.
    classic = replace(LATE, groups=BEHIND.groups)

    assert law_that_finds(broker_class=Trusting, scenario=classic) == "CommitNeverGoesBack"


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

    plant_in(monkeypatch, heartbeat, "static", build_succession=build_without_target)

    assert law_that_finds(scenario=STATIC) == "LegalTargetAssignment"


# The pace.


def test_pace_that_forgets_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_throttle, "_used_ms", always(0.0))

    assert law_that_finds(scenario=PACED) == "MovesKeepThePace"


def test_member_that_is_asked_for_what_waits_for_its_move(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in(monkeypatch, heartbeat, "effective_target", effective_target_after=target_in)

    assert law_that_finds(scenario=PACED) == "OwnedUntilItBegins"


# Answers.


def test_epoch_that_is_told_to_whom_it_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = reconcile.decide_next_assignment

    def take_everybody(member: ConsumerMember, goal: Any, **asked_with: Any) -> facts.CurrentAssignmentSet | None:
        step = advance(member, goal, **asked_with)
        if step is not None or member.pending_revocation or not 0 < member.member_epoch < goal.epoch:
            return step
        return facts.CurrentAssignmentSet(
            group_id=asked_with["group_id"],
            member_id=member.member_id,
            member_epoch=goal.epoch,
            previous_member_epoch=member.member_epoch,
            state=member.state,
            assigned=member.assigned,
            pending_revocation={},
        )

    plant_in(monkeypatch, heartbeat, "reconcile", decide_next_assignment=take_everybody)

    assert law_that_finds() == "NoEpochForNothing"


def test_heartbeat_that_is_renewed_without_a_look_at_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(groups: GroupsState, command: ConsumerGroupHeartbeat) -> tuple[ConsumerGroup, ConsumerMember] | None:
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

    assert law_that_finds(build_shard=Silent, scenario=LATE) == "AnsweredOnce"


def test_request_that_is_answered_twice() -> None:
    class Talkative(Tampered):
        def tamper(self, decision: Decision) -> Decision:
            joins = [e for e in decision.effects if isinstance(e, Reply) and isinstance(e.body, JoinGroupReply)]
            return replace(decision, effects=(*decision.effects, *joins))

    assert law_that_finds(build_shard=Talkative) == "AnsweredOnce"


def test_answer_that_is_given_before_the_disk_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "when_durable", lambda _disk, _log, callback: callback())
    # Assignments that a crash takes back break other laws.
    crashing = replace(CLASSIC, weights={"crash_broker": 3, "slow_disk": 1})

    assert law_that_finds(scenario=crashing) == "AcknowledgedCommitSurvives"


def test_living_member_that_is_told_that_there_is_no_such_group() -> None:
    """What ends Java's and librdkafka's consumers."""

    def be_blunt(_: GroupCommand, body: ReplyBody) -> ReplyBody:
        is_altered = isinstance(body, Refusal) and body.code == ErrorCode.UNKNOWN_MEMBER_ID
        return replace(body, code=ErrorCode.GROUP_ID_NOT_FOUND) if is_altered else body

    assert law_that_finds(broker_class=answering(be_blunt)) == "NoFatalAnswer"


# Commits.


def test_commit_of_somebody_who_is_no_member_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "check_commit", always(None))
    fenced = Scenario(groups=SLOW.groups, topics={"t": 4}, weights={"pause": 5, "join": 3, "break_connection": 2})

    assert law_that_finds(scenario=fenced) == "CommitNeverGoesBack"


def test_commit_of_what_another_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who was fenced goes on, and is refused only what nobody holds."""
    find, check, stranger = commit.check_consumer_member, commit._check_grant, ConsumerMember("", "")

    def let_in(group: ConsumerGroup, asking: commands.CommitOffsets) -> ConsumerMember | None:
        is_fenced = asking.generation_or_member_epoch >= 0 and asking.member_id not in group.members
        return stranger if is_fenced else find(group, asking)

    def trust(
        group: ConsumerGroup, member: ConsumerMember, place: tuple[TopicId, TopicPartition], epoch: int
    ) -> ErrorCode:
        topic_id, (_, partition) = place
        is_others = partition in group.holders.get(topic_id, {})
        return ErrorCode.NONE if member is stranger and is_others else check(group, member, place, epoch)

    monkeypatch.setattr(commit, "check_consumer_member", let_in)
    monkeypatch.setattr(commit, "_check_grant", trust)

    assert law_that_finds() == "CommitByHolderOnly"


def test_commit_that_nobody_can_fetch() -> None:
    def hide(_: GroupCommand, body: ReplyBody) -> ReplyBody:
        if not isinstance(body, commands.FetchOffsetsReply):
            return body
        return commands.FetchOffsetsReply(offsets=tuple(found._replace(offset=-1) for found in body.offsets))

    assert law_that_finds(broker_class=answering(hide)) == "AcknowledgedCommitSurvives"


def test_fetch_that_skips_records() -> None:
    """Somebody is told to go on beyond what was committed."""

    def go_ahead(_: GroupCommand, body: ReplyBody) -> ReplyBody:
        if not isinstance(body, commands.FetchOffsetsReply):
            return body
        return commands.FetchOffsetsReply(
            offsets=tuple(each._replace(offset=each.offset + 1_000) for each in body.offsets)
        )

    assert law_that_finds(broker_class=answering(go_ahead)) == "NothingIsSkipped"


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
    """What a member wants now reaches nobody: it never gets that."""
    merge = heartbeat._merge

    def merge_deaf(group_id: str, member: ConsumerMember, said: ConsumerGroupHeartbeat) -> Record:
        is_known = member.member_epoch > 0
        return merge(group_id, member, replace(said, subscribed_topic_names=None) if is_known else said)

    monkeypatch.setattr(heartbeat, "_merge", merge_deaf)
    fickle = Scenario(groups=SLOW.groups, topics={"t": 4, "u": 2, "v": 3}, weights={"subscribe": 3, "join": 1})

    assert law_that_finds(scenario=fickle) == "EventuallyConverges"


def test_value_of_several_that_is_changed_for_one() -> None:
    """A target that is replaced is written over, and whoever has an equal one has another now."""

    class InPlace(shard.Shard):
        def commit(self, decision: Decision, *, now_ms: int) -> Sequence[Reply]:
            groups = self.groups.consumer
            replaced = [
                groups[record.group_id].targets.get(record.member_id, {})
                for record in decision.records
                if isinstance(record, facts.MemberTargetSet) and record.group_id in groups
            ]
            replies = super().commit(decision, now_ms=now_ms)
            for known in replaced:
                known.clear()
            return replies

    assert law_that_finds(build_shard=InPlace) == "SharedValuesStay"


# What is told.


def test_removal_that_is_told_as_a_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator's word taken for the member's own."""
    monkeypatch.setattr(triggers, "is_removal", always(False))
    removed = Scenario(groups=SLOW.groups, topics={"t": 4}, weights={"administrate": 6, "join": 4})

    assert law_that_finds(scenario=removed) == "ToldCauseIsTrue"


def test_lost_connection_that_is_told_as_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "LOST", triggers.TIMERS["session"])
    plant_in(monkeypatch, reporter, "decision_view", LOST=triggers.TIMERS["session"])
    settings = replace(build_settings(), group_disconnect_grace_ms=1_000)
    scenario = Scenario(groups=SLOW.groups, topics={"t": 4}, weights={"kill": 1, "join": 2}, settings=settings)

    assert law_that_finds(scenario=scenario) == "ToldCauseIsTrue"


def test_change_of_mind_that_is_told_as_a_join(monkeypatch: pytest.MonkeyPatch) -> None:
    of_heartbeat = triggers._of_heartbeat

    def tell_join(groups: GroupsState, command: ConsumerGroupHeartbeat) -> str:
        told = of_heartbeat(groups, command)
        return "member joined" if told == "subscription changed" else told

    monkeypatch.setattr(triggers, "_of_heartbeat", tell_join)

    scenario = Scenario(groups=SLOW.groups[:1], topics={"t": 3, "u": 2}, weights={"subscribe": 1})
    assert law_that_finds(scenario=scenario) == "ToldCauseIsTrue"


# Targets that members compute.


def test_members_that_compute_beside_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes while one computes asks the next one."""
    decide = target.decide_asking

    def ask_on(group: ConsumerGroup, *args: Any, **options: Any) -> Any:
        order = group.computing
        if order is None or group.client_assignors is None:
            return decide(group, *args, **options)
        group.computing = None
        group.client_assignors.failed.add(order.member_id)
        asked_next = decide(group, *args, **options)
        group.computing = order
        group.client_assignors.failed.discard(order.member_id)
        return asked_next

    monkeypatch.setattr(target, "decide_asking", ask_on)
    assert law_that_finds(scenario=COMPUTING) == "OneComputation"


def test_members_that_are_told_to_compute_and_were_not_asked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_fields, "is_to_be_told", lambda order, _: order is not None and not order.is_prepared)
    assert law_that_finds(scenario=COMPUTING) == "OneComputation"


def test_half_an_assignment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of its members is given gets lost."""
    take_over = async_assignor.take_over

    def take_half(*args: Any, **options: Any) -> Decision:
        taken = take_over(*args, **options)
        first = next((record for record in taken.records if isinstance(record, facts.MemberTargetSet)), None)
        return replace(taken, records=tuple(record for record in taken.records if record is not first))

    plant_in(monkeypatch, assignment_request, "async_assignor", take_over=take_half)
    assert law_that_finds(scenario=COMPUTING) == "TargetIsWhole"
