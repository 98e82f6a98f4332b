"""The laws of a world by name; a violation begins with the name of the broken law.

The first ones are those of the published TLA+ model of KIP-848, under its names; then their classic analogues, then
kohort's own. `docs/internals/simulation.md` shows them as a table, with the planted bugs that prove that each can fail;
`tools/laws_table.py` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Law:
    """A law of the simulation.

    `meaning`: the condition that must hold. `checker`: module and name, below `kohort`, of the code that checks it.
    """

    meaning: str
    checker: str


#: Name -> the law.
LAWS: Final[dict[str, Law]] = {
    # The TLA+ model of KIP-848: invariants, action properties, liveness.
    "TypeOK": Law(
        "what is derived follows from the rest; a group id is of one kind; epochs of a group are in order",
        "coordinator.invariants.check_type",
    ),
    "LegalTargetAssignment": Law(
        "a target gives no partition to two, and all that is subscribed if it is current",
        "coordinator.invariants.check_legal_target_assignment",
    ),
    "NoDoubleClientAssignment": Law(
        "no two valid members hold a partition, as the coordinator and they themselves see it",
        "testing.invariants.owners.OwnerLaws",
    ),
    "ValidMemberEpoch": Law(
        "a member at the target epoch holds nothing that the target gives to another",
        "coordinator.invariants.check_valid_member_epoch",
    ),
    "ValidStableGroupState": Law(
        "a stable member is at the group's epoch, has all of its target and nothing to give up",
        "coordinator.invariants.check_valid_stable_group_state",
    ),
    "ValidPartitionEpoch": Law(
        "what a member holds was granted to it, at an epoch that it had",
        "coordinator.invariants.check_valid_partition_epoch",
    ),
    "ClientSideMemberEpochIsMonotonic": Law(
        "a member is never told an older epoch than it knows",
        "testing.members.consumer.ConsumerMember",
    ),
    "GcSideMemberEpochIsMonotonic": Law(
        "the epochs of groups and members only rise, until they join anew",
        "coordinator.invariants.check_step",
    ),
    "EventuallyConverges": Law(
        "once nothing goes wrong any more groups come to rest and stay there; the dead go",
        "testing.convergence.why_not_at_rest",
    ),
    # Classic analogues.
    "ClassicTypeOK": Law(
        "a classic group has one leader, and what is counted follows from its members",
        "coordinator.classic.invariants.check_type",
    ),
    "ValidMemberGeneration": Law(
        "who waits for a phase of a generation is a member, and the group is in that phase",
        "coordinator.classic.invariants.check_valid_member_generation",
    ),
    "ValidStableGeneration": Law(
        "a classic group at work has members, a generation and a protocol that they share",
        "coordinator.classic.invariants.check_valid_stable_generation",
    ),
    "GenerationIsMonotonic": Law(
        "the generation of a classic group never falls",
        "coordinator.classic.invariants.check_generation_step",
    ),
    "LegalAssignment": Law(
        "a member is told what the leader of that very generation gave it, all members together",
        "testing.invariants.generations.GenerationLaws",
    ),
    "OneOwnerPerGeneration": Law(
        "the assignments of one generation never overlap (KAFKA-12984)",
        "testing.invariants.generations.GenerationLaws",
    ),
    # kohort's own.
    "FoldIsLivingState": Law(
        "the fold of the log, whole or compacted, is the living state",
        "testing.checkers.Checkers",
    ),
    "SharedValuesStay": Law(
        "a value that equal members have in common is never changed in place",
        "testing.invariants.sharing.SharingLaws",
    ),
    "AcknowledgedCommitSurvives": Law(
        "a commit that was acknowledged is never lost, and every fetch sees it",
        "testing.invariants.offsets.OffsetLaws",
    ),
    "CommitNeverGoesBack": Law(
        "committed offsets never fall unasked",
        "testing.invariants.offsets.OffsetLaws",
    ),
    "CommitByHolderOnly": Law(
        "nobody commits a partition that another member holds",
        "testing.invariants.offsets.OffsetLaws",
    ),
    "NothingIsSkipped": Law(
        "no member begins beyond what the group has processed",
        "testing.invariants.offsets.OffsetLaws",
    ),
    "ProcessedOnce": Law(
        "where every hand-over is clean, each record is processed once",
        "testing.invariants.offsets.OffsetLaws",
    ),
    "NoChangeWithoutMove": Law(
        "a member without a move sees no change",
        "testing.invariants.owners.OwnerLaws",
    ),
    "MovesOnlyForBalance": Law(
        "a new target takes from those who stay only what the even shares of all need",
        "testing.invariants.moves.MoveLaws",
    ),
    "ExternalMovesNothing": Law(
        "a target of the assignor external takes nothing from those who stay and want it",
        "testing.invariants.moves.MoveLaws",
    ),
    "OneComputation": Law(
        "one member at a time is asked to compute a group's target, and nobody else is told so",
        "testing.invariants.computations.ComputationLaws",
    ),
    "TargetIsWhole": Law(
        "what a member installs becomes the target as a whole",
        "testing.invariants.computations.ComputationLaws",
    ),
    "HandOverEndsInTime": Law(
        "nobody holds up the others for longer than the rebalance timeout",
        "testing.invariants.handovers.HandOvers",
    ),
    "NobodyIsFencedEarly": Law(
        "a member is given up only for its own silence or slowness, never for the broker's",
        "testing.invariants.sessions.SessionLaws",
    ),
    "ReturnsMoveNothing": Law(
        "a named member of a static group that comes back as it was makes nobody rebalance",
        "testing.invariants.classicstatic.ClassicStaticLaws",
    ),
    "NobodyWaitsForTheOffline": Law(
        "a rebalance of a static group is over once all who are there have joined",
        "testing.invariants.classicstatic.ClassicStaticLaws",
    ),
    "AnsweredOnce": Law(
        "each request is answered once",
        "testing.runtime.SimulatedRuntime",
    ),
    "NoEpochForNothing": Law(
        "an epoch that gives a member nothing new and takes nothing is neither written nor told for it",
        "coordinator.invariants.check_untouched",
    ),
    "MovesKeepThePace": Law(
        "no more moves begin than the group's pace allows, and none while they are paused",
        "testing.invariants.pace.PaceLaws",
    ),
    "RegistrationIsKept": Law(
        "a named member of a static group goes by somebody's word, or after its registration timeout",
        "testing.invariants.static.StaticLaws",
    ),
    "OneRebalancePerWindow": Law(
        "new names in a static group that is at rest wait for the end of their window, and raise no epoch before",
        "testing.invariants.static.StaticLaws",
    ),
    "ToldCauseIsTrue": Law(
        "a group's history names a cause of each epoch, rebalance and removal that is so",
        "testing.invariants.causes.CauseLaws",
    ),
    "OwnedUntilItBegins": Law(
        "what waits for its move stays in its owner's hands, unless that one leaves it behind",
        "coordinator.invariants.check_kept",
    ),
    "RenewalIsHandling": Law(
        "a heartbeat that says nothing new is answered the short way as it is the long way",
        "testing.invariants.shortcuts.check_renewal",
    ),
    "EndIsAnswering": Law(
        "a hold that ends with nothing new is answered the short way as it is the long way",
        "testing.invariants.shortcuts.check_end_of_hold",
    ),
    "HoldsEndInTime": Law(
        "a heartbeat is held for no longer than its client bears",
        "testing.invariants.holds.HoldLaws",
    ),
    "AnswerIsOfNow": Law(
        "a heartbeat that was held is answered what a heartbeat would be told now",
        "testing.invariants.holds.HoldLaws",
    ),
    "NobodyIsToldForNothing": Law(
        "news of a group releases only the heartbeats of those whom it concerns",
        "testing.invariants.holds.HoldLaws",
    ),
    "SessionsCountFromArrival": Law(
        "a session counts from the arrival of what was heard of its member, whenever that is answered",
        "testing.invariants.sessions.SessionLaws",
    ),
    "SessionsOutlastAnswers": Law(
        "the session of a client that counts from the answer, as stock clients do, has what was held of that added",
        "testing.invariants.sessions.SessionLaws",
    ),
    "AnswersInOrder": Law(
        "the answers of a connection leave in the order of its requests, but for heartbeats of who takes them in any",
        "testing.sockets.Socket",
    ),
    "HeldInNobodysWay": Law(
        "no answer that is ready waits behind a held heartbeat; of a connection's open requests at most half are held",
        "testing.sockets.Socket",
    ),
    "ReleaseIsHeard": Law(
        "what a member says that it does not own any more, it has not to give up any more",
        "testing.invariants.owners.OwnerLaws",
    ),
    "MetadataMovesNothing": Law(
        "a heartbeat leads to the same epochs, targets and assignments with what it publishes and without",
        "testing.invariants.published.check_moves_nothing",
    ),
    "PublishedIsTold": Law(
        "at rest who watches believes what is published, and that is what members want to publish",
        "testing.invariants.published.check_told",
    ),
    "ToldAlike": Law(
        "what a member is told beside its heartbeats is what a heartbeat of it would be told then",
        "testing.invariants.words.WordLaws",
    ),
    "ToldAgain": Law(
        "who was told something beside its heartbeats is told it by the next one, and not fenced for not knowing it",
        "testing.invariants.words.WordLaws",
    ),
    "NoFatalAnswer": Law(
        "a living member is never told what ends a stock client",
        "testing.members.process.MemberProcess",
    ),
    "DeadlinesEnd": Law(
        "where nobody is left, no deadline is",
        "testing.world.World",
    ),
}
