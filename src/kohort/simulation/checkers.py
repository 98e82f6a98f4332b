"""Checks of a world after every step: the laws of `kohort.simulation.checkers` together.

The laws hold with any faults around the broker.

Laws: a checker never changes the checked state. It examines only the groups that a step touched.
Source: architecture (Determinism); the invariants of the TLA+ model of KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kohort.coordinator.commands import (
    AnyHeartbeat,
    Command,
    GroupCommand,
    LeaveGroup,
    MemberDisconnected,
    MemberFetched,
    WatchMember,
)
from kohort.coordinator.decision import Decision, ReplyBody
from kohort.coordinator.delayed_heartbeats import HeartbeatHeld, HeartbeatReleased
from kohort.coordinator.invariants import (
    check_assignment_is_due,
    check_group_id,
    check_groups,
    check_offsets,
    check_step,
    epochs_of,
)
from kohort.coordinator.journal_events.triggers import Stimulus
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import types as facts
from kohort.errors import InvariantViolation
from kohort.ids import TopicId
from kohort.journal.rows import Entry
from kohort.simulation.invariants.assignments import ComputationLaws, GenerationLaws, SharingLaws
from kohort.simulation.invariants.convergence import check_moves_nothing
from kohort.simulation.invariants.delayed_heartbeats import HoldLaws, UpdateLaws
from kohort.simulation.invariants.offsets import OffsetLaws
from kohort.simulation.invariants.ownership import MoveLaws, OwnerLaws, PaceLaws, ToldOwners
from kohort.simulation.invariants.sessions import CauseLaws, HandOvers, SessionLaws
from kohort.simulation.invariants.static_membership import ClassicStaticLaws, StaticLaws
from kohort.simulation.members.process import MemberProcess
from kohort.simulation.runtime import Home

#: Records of the steps that come most often, and that leave members, targets and epochs of a group alone.
_CALM: Final = (HeartbeatHeld, HeartbeatReleased, facts.OffsetCommitted)


class _ShardLaws:
    """State of the laws about one shard; a restart resets it, except for laws of static groups."""

    def __init__(self, groups: GroupsState, *, now_ms: int) -> None:
        self.hand_overs = HandOvers()
        self.sessions = SessionLaws(groups, now_ms=now_ms)
        self.generations = GenerationLaws()
        self.holds = HoldLaws()
        self.updates = UpdateLaws()
        self.static = StaticLaws()
        self.told_owners = ToldOwners()
        self.told_owners.load(groups)


class Checkers:
    """Checks of every step of a broker and of every change of a member's ownership.

    Args:
        label_of: returns a topic id's label, the name that members use.
        members: every process of the world.
        home_of: returns the number of the shard that coordinates a group.
        now_ms: returns the time, for laws with time limits.
        is_first_of_its_name: returns whether a topic's name or label never meant another topic.
        is_by_administrator: returns whether the administrator has sent a request.
        is_clean: this world has no faults.
    """

    def __init__(
        self,
        label_of: Callable[[TopicId], str],
        members: Mapping[str, MemberProcess],
        *,
        home_of: Callable[[str], int],
        now_ms: Callable[[], int],
        is_first_of_its_name: Callable[[str], bool],
        is_by_administrator: Callable[[LeaveGroup], bool],
        is_clean: bool = False,
    ) -> None:
        self._now_ms = now_ms
        self.offsets = OffsetLaws(home_of, label_of, members, is_clean=is_clean)
        self.owners = OwnerLaws(label_of, members, is_first_of_its_name)
        self.moves = MoveLaws()
        self._computations = ComputationLaws()
        self._pace = PaceLaws()
        self._causes = CauseLaws(is_by_administrator)
        self._sharing = SharingLaws()
        self._classic_static = ClassicStaticLaws()
        #: By number of the shard.
        self._shards: dict[int, _ShardLaws] = {}
        #: Numbers of the shards that know their logs and have no deadlines yet; the topics may come before those.
        self._loading: set[int] = set()
        #: Held heartbeats are answered because there is news.
        self._tells_news = False
        #: When the broker's loop went on after it stood still.
        self._went_on_ms = 0
        #: From before a step to after it.
        self._epochs: dict[str, tuple[int, dict[str, int]]] = {}
        self._touched: tuple[str, ...] = ()
        #: The step touches no member, target or epoch of a group.
        self._is_calm = False
        self.steps = 0

    def before_step(self, home: Home, command: Command | None, decision: Decision) -> None:
        """Remember the state that a step must not change, and check the decision before it is applied."""
        self.steps += 1
        if isinstance(command, MemberDisconnected):
            self._of(home).sessions.on_disconnected(command, now_ms=self._now_ms())
        elif isinstance(command, MemberFetched):
            self._of(home).sessions.on_back(home.shard, command, now_ms=self._now_ms())
        if not decision.records:
            return
        self._is_calm = all(isinstance(record, _CALM) for record in decision.records)
        self._touched = tuple(dict.fromkeys(record.group_id for record in decision.records))
        if not self._is_calm:
            self._note_groups(home, command, decision)
        self.offsets.before_step(home.shard.groups, command, decision)
        self._of(home).holds.before_step(
            home.shard, decision, now_ms=self._now_ms(), clock_offset_ms=home.clock_offset_ms
        )
        for record in decision.records:
            if isinstance(record, HeartbeatHeld):
                self._of(home).sessions.on_held(home.shard, record.command, now_ms=self._now_ms())
                self._of(home).static.on_held(record.command, now_ms=self._now_ms())
                self._classic_static.on_held(record.command, now_ms=self._now_ms())
            elif isinstance(record, HeartbeatReleased) and command is None:
                self._of(home).sessions.check_release(home.shard, record, decision, now_ms=self._now_ms())
            elif isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
                self._of(home).sessions.on_configured(record.group_id, now_ms=self._now_ms())
        self._of(home).generations.before_step(home.shard.groups, command, decision)
        self._classic_static.before_step(home.shard, command, decision, now_ms=self._now_ms())
        if command is None:
            self._of(home).sessions.check_expiry(home.shard, decision, now_ms=self._now_ms())

    def _note_groups(self, home: Home, command: Command | None, decision: Decision) -> None:
        """Remember and check the state that a decision about members, targets or epochs could break."""
        groups = home.shard.groups
        check_moves_nothing(home.shard, command, decision, now_ms=self._now_ms() + home.clock_offset_ms)
        self._epochs = epochs_of(groups, self._touched)
        self.owners.before_step(groups, command, decision)
        self.moves.before_step(home.shard, command, decision)
        self._computations.before_step(groups, command, decision)
        self._of(home).static.before_step(home.shard, command, decision, now_ms=self._now_ms())
        self._pace.before_step(home.shard, decision, now_ms=self._now_ms())
        self._sharing.before_step(groups, decision)
        self._of(home).updates.before_step(decision)

    def on_told(self, home: Home, entry: Entry, stimulus: Stimulus, decision: Decision) -> None:
        """Check that the journal entry of a decision is true."""
        sessions = self._of(home).sessions
        self._causes.check(entry, home.shard, stimulus, decision, sessions, now_ms=self._now_ms())

    def on_decided(self, home: Home, command: GroupCommand, body: ReplyBody) -> None:
        """Check a response once its records are applied, maybe before they are durable."""
        holds = self._of(home).holds
        if holds.is_held(command):
            assert isinstance(command, AnyHeartbeat), "nothing else is held"
            self._of(home).sessions.on_released(command, body, now_ms=self._now_ms())
            holds.on_decided(command, body, now_ms=self._now_ms(), tells_news=self._tells_news)
        else:
            self._of(home).sessions.on_decided(home.shard, command, body, now_ms=self._now_ms())
            self._of(home).static.on_decided(home.shard, command, body, now_ms=self._now_ms())
            self._classic_static.on_decided(command, body, now_ms=self._now_ms())
        self.owners.check_release(home.shard.groups, command, body)
        self._of(home).updates.on_decided(home.shard, command, body, now_ms=self._now_ms() + home.clock_offset_ms)
        self._computations.on_decided(home.shard.groups, command, body)
        self._of(home).generations.on_decided(home.shard.groups, command, body)

    def after_step(self, home: Home, decision: Decision) -> None:
        """Check every law about the state that a step changed."""
        groups = home.shard.groups
        if self._now_ms() != self._went_on_ms:
            # A broker that stood still gives the time back, and tells what it promised, behind what has come meanwhile.
            self._of(home).hand_overs.check(groups, now_ms=self._now_ms())
            self._of(home).holds.check_times(home.shard, now_ms=self._now_ms())
        if not decision.records:
            return
        if not self._is_calm:
            self._check_groups(home, decision)
        for group_id in self._touched:
            check_offsets(groups, group_id)
        sessions, offset_ms = self._of(home).sessions, home.clock_offset_ms
        sessions.after_step(groups, self._touched, now_ms=self._now_ms())
        sessions.check_ends(home.shard, self._touched, now_ms=self._now_ms(), clock_offset_ms=offset_ms)
        durable = [record for record in decision.records if not isinstance(record, facts.VolatileRecord)]
        if all(isinstance(record, facts.OffsetCommitted) for record in durable):
            _check_commits(home, durable)
        else:
            self._check_fold(home)

    def _check_groups(self, home: Home, decision: Decision) -> None:
        """Check the laws about members, targets and epochs of the groups that a step touched."""
        groups = home.shard.groups
        # First, because what equal members have in common changes for all of them.
        self._sharing.after_step()
        self._computations.after_step(groups)
        check_step(self._epochs, groups)
        if home.index not in self._loading:
            check_assignment_is_due(groups, home.shard.timers, self._touched)
        self.moves.after_step(home.shard)
        stored = {record.group_id for record in decision.records if isinstance(record, facts.ClassicGroupStored)}
        for group_id in self._touched:
            check_group_id(groups, group_id)
            self._of(home).generations.after_step(groups, group_id, is_stored=group_id in stored)
            self._classic_static.after_step(groups, group_id)
            self.owners.check_no_change_without_move(groups, group_id)
            self.owners.check_owners(groups, group_id)
        # Last: what leaders are told follows from what the other laws are about.
        if home.index not in self._loading:
            self._of(home).told_owners.after_step(groups, decision)

    def on_answer(self, command: GroupCommand, body: ReplyBody) -> None:
        """Check a response that is sent to the client: its content must stay true."""
        self.offsets.on_answer(command, body)
        self._classic_static.on_answer(command)

    def on_restart(self, home: Home) -> None:
        """Check that the state after a crash contains everything that was acknowledged."""
        former = self._shards.get(home.index)
        self._pace.on_restart()
        laws = self._shards[home.index] = _ShardLaws(home.shard.groups, now_ms=self._now_ms())
        if former is not None:
            laws.static = former.static
        self._loading.add(home.index)
        self._classic_static.on_restart(home.shard.groups)
        self.offsets.on_restart(home.shard.groups, home.index)
        check_groups(home.shard.groups)
        self._check_fold(home)

    def on_loaded(self, home: Home) -> None:
        """Restart every member's session, and check that pending assignments are scheduled again.

        The time limit of a rebalance that begins with the load also counts from here.
        """
        self._loading.discard(home.index)
        self._of(home).sessions = SessionLaws(home.shard.groups, now_ms=self._now_ms())
        # Leaders are told the present owners.
        self._of(home).told_owners.load(home.shard.groups)
        check_assignment_is_due(home.shard.groups, home.shard.timers, home.shard.groups.consumer)

    def on_shift(self, home: Home, gap_ms: int) -> None:
        """Shift the laws' deadlines by the time in which the broker was stalled."""
        self._of(home).hand_overs.on_shift(gap_ms)
        self._of(home).sessions.on_shift(gap_ms)
        self._of(home).static.on_shift(gap_ms, now_ms=self._now_ms())

    def on_fetched(self, home: Home, command: WatchMember) -> None:
        """Check that a fetch has renewed the session, in groups that count fetches as heartbeats."""
        self._of(home).sessions.on_fetched(
            home.shard, command, now_ms=self._now_ms(), clock_offset_ms=home.clock_offset_ms
        )

    def on_go_on(self) -> None:
        """Expect from now on the responses that were due while the broker was stalled."""
        self._went_on_ms = self._now_ms()

    def tells_news(self, is_on: bool) -> bool:
        """Set whether held heartbeats now get responses because of news; return the former value."""
        before, self._tells_news = self._tells_news, is_on
        return before

    def _of(self, home: Home) -> _ShardLaws:
        """Return the laws about one shard."""
        found = self._shards.get(home.index)
        if found is None:
            found = self._shards[home.index] = _ShardLaws(home.shard.groups, now_ms=self._now_ms())
        return found

    def _check_fold(self, home: Home) -> None:
        living, folded = home.shard.state_digest(), home.mirror.state_digest()
        if living == folded:
            return
        differences = [
            f"{kind}: log {folded[kind]}, living {living[kind]}" for kind in living if living[kind] != folded[kind]
        ]
        raise InvariantViolation("FoldIsLivingState: the log does not give the living state", differences)


def _check_commits(home: Home, records: list[facts.Record]) -> None:
    """FoldIsLivingState after a commit, the most frequent step: compare only the stored offsets."""
    for each in records:
        assert isinstance(each, facts.OffsetCommitted)
        found = [
            shard.groups.offsets.get(each.group_id, {}).get(each.topic, {}).get(each.partition)
            for shard in (home.shard, home.mirror)
        ]
        if found[0] != found[1]:
            raise InvariantViolation(f"FoldIsLivingState: log {found[1]}, living {found[0]}")


# The laws of a world; a violation begins with the name of the broken law.
#
# The first ones are those of the published TLA+ model of KIP-848, under its names; then their classic analogues, then
# kohort's own. `docs/explanation/simulation.md` shows them as a table, with the files that check them and the planted
# bugs that prove that each can fail; `tools/docs.py` makes it.

#: Name of a law -> the condition that must hold.
LAWS: Final = {
    # The TLA+ model of KIP-848: invariants, action properties, liveness.
    "TypeOK": "derived state follows from the rest; a group id is of one kind; the epochs of a group are in order",
    "LegalTargetAssignment": "a target gives no partition twice; a current one gives every subscribed partition",
    "NoDoubleClientAssignment": "no two valid members own a partition, as the coordinator and the members see it",
    "ValidMemberEpoch": "a member at the target epoch owns nothing that the target gives to another",
    "ValidStableGroupState": "a stable member is at the group's epoch, has all of its target and nothing to revoke",
    "ValidPartitionEpoch": "each partition of a member was granted to it, at an epoch that the member had",
    "ClientSideMemberEpochIsMonotonic": "a member is never told an older epoch than it knows",
    "GcSideMemberEpochIsMonotonic": "the epochs of groups and members only rise, until the members join anew",
    "EventuallyConverges": "without faults groups come to rest and stay there, and dead members are removed",
    # Classic analogues.
    "ClassicTypeOK": "a classic group has one leader, and its counters follow from its members",
    "ValidMemberGeneration": "a client waits for a phase of a generation only as a member, while its group is in it",
    "ValidStableGeneration": "a stable classic group has members, a generation and a protocol that the members share",
    "GenerationIsMonotonic": "the generation of a classic group never falls",
    "LegalAssignment": "a member is told the assignment that the leader of its generation gave it",
    "OneOwnerPerGeneration": "the assignments of one generation never overlap (KAFKA-12984)",
    # kohort's own.
    "FoldIsLivingState": "the fold of the log, whole or compacted, is the living state",
    "SharedValuesStay": "a value that equal members have in common is never changed in place",
    "AcknowledgedCommitSurvives": "an acknowledged commit is never lost, and every fetch sees it",
    "CommitNeverGoesBack": "a committed offset falls only when an administrator sets it",
    "CommitByHolderOnly": "no member commits a partition that another member holds",
    "NothingIsSkipped": "no member begins beyond the records that its group has processed",
    "ProcessedOnce": "where every hand-over is clean, each record is processed once",
    "NoChangeWithoutMove": "a member without a move sees no change",
    "MovesOnlyForBalance": "a new target takes from members that stay only the partitions that even shares need",
    "ExternalMovesNothing": "a target of the assignor external takes nothing from members that stay and want it",
    "OneComputation": "one member at a time is asked to compute a group's target, and no other member is told so",
    "TargetIsWhole": "the target that a member installs becomes the group's target as a whole",
    "HandOverEndsInTime": "no member delays the others for longer than the rebalance timeout",
    "NobodyIsFencedEarly": "a member is removed only for its own silence or slowness, never for the broker's",
    "ReturnsMoveNothing": "a named member of a static group that comes back unchanged makes no other rebalance",
    "NobodyWaitsForTheOffline": "a rebalance of a static group ends once all members that are online have joined",
    "AnsweredOnce": "each request is answered once",
    "NoEpochForNothing": "an epoch that changes nothing for a member is neither written nor told to it",
    "MovesKeepThePace": "no more moves begin than the group's pace allows, and none while moves are paused",
    "RegistrationIsKept": "a named member of a static group goes by a request, or after its registration timeout",
    "OneRebalancePerWindow": "new names in a static group at rest raise no epoch before the end of their window",
    "ToldCauseIsTrue": "a group's history names a true cause of each epoch, rebalance and removal",
    "OwnedUntilItBegins": "a partition that waits for its move stays with its owner, unless the owner leaves it behind",
    "RenewalIsHandling": "a heartbeat without news is answered by the short cut as by the whole decision",
    "EndIsAnswering": "a hold that ends without news is answered by the short cut as by the whole decision",
    "HoldsEndInTime": "a heartbeat is held for no longer than its client bears",
    "AnswerIsOfNow": "a held heartbeat is answered as a heartbeat sent now would be",
    "NobodyIsToldForNothing": "news of a group releases only the heartbeats of members that it concerns",
    "FetchesKeepSessions": "where fetches count as heartbeats, one renews its session, or another did a moment ago",
    "SessionsCountFromArrival": "a session counts from the arrival of a request, whenever the request is answered",
    "SessionsOutlastAnswers": "the session of a client that counts from the answer is longer by the time of a hold",
    "AnswersInOrder": "answers leave in the order of the requests, but for heartbeats of clients that take any order",
    "HeldInNobodysWay": "no ready answer waits behind a held heartbeat; a connection has at most half of its room held",
    "ReleaseIsHeard": "a member need not revoke a partition that it no longer lists as its own",
    "MetadataMovesNothing": "a heartbeat leads to the same epochs, targets and assignments with and without metadata",
    "PublishedIsTold": "at rest each watcher knows the published metadata, which is the metadata that members want",
    "ToldAlike": "an update beside heartbeats tells a member the same as a heartbeat of that moment would",
    "ToldAgain": "the next heartbeat repeats an update beside heartbeats, and does not fence a member without it",
    "LeadersKnow": "what leaders are told of a partition gives its present owner, and nothing is told of what stays",
    "NoFatalAnswer": "a living member is never told an error that ends a stock client",
    "DeadlinesEnd": "where no member is left, no deadline is",
}
