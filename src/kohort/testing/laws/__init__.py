"""Every law that a world is held to, by name; a violation begins with the name of the law that did not hold.

The first ones are those of the published TLA+ model of KIP-848, under its names; then their classic analogues, then
kohort's own. `docs/internals/simulation.md` says for each which function checks it and which planted bug proves that.
"""

from __future__ import annotations

from typing import Final

#: Name -> what has to hold.
LAWS: Final[dict[str, str]] = {
    # The TLA+ model of KIP-848: invariants, action properties, liveness.
    "TypeOK": "what is derived follows from the rest; a group id is of one kind; epochs of a group are in order",
    "LegalTargetAssignment": "a target gives no partition to two, and all that is subscribed if it is current",
    "NoDoubleClientAssignment": "no two valid members hold a partition, as the coordinator and they themselves see it",
    "ValidMemberEpoch": "a member at the target epoch holds nothing that the target gives to another",
    "ValidStableGroupState": "a stable member is at the group's epoch, has all of its target and nothing to give up",
    "ValidPartitionEpoch": "what a member holds was granted to it, at an epoch that it had",
    "ClientSideMemberEpochIsMonotonic": "a member is never told an older epoch than it knows",
    "GcSideMemberEpochIsMonotonic": "the epochs of groups and members only rise, until they join anew",
    "EventuallyConverges": "once nothing goes wrong any more groups come to rest and stay there; the dead go",
    # Classic analogues.
    "ClassicTypeOK": "a classic group has one leader, and what is counted follows from its members",
    "ValidMemberGeneration": "who waits for a phase of a generation is a member, and the group is in that phase",
    "ValidStableGeneration": "a classic group at work has members, a generation and a protocol that they share",
    "GenerationIsMonotonic": "the generation of a classic group never falls",
    "LegalAssignment": "a member is told what the leader of that very generation gave it, all members together",
    "OneOwnerPerGeneration": "the assignments of one generation never overlap (KAFKA-12984)",
    # kohort's own.
    "FoldIsLivingState": "the fold of the log, whole or compacted, is the living state",
    "AcknowledgedCommitSurvives": "a commit that was acknowledged is never lost, and every fetch sees it",
    "CommitNeverGoesBack": "committed offsets never fall unasked",
    "CommitByHolderOnly": "nobody commits a partition that another member holds",
    "NothingIsSkipped": "no member begins beyond what the group has processed",
    "ProcessedOnce": "where every hand-over is clean, each record is processed once",
    "NoChangeWithoutMove": "a member without a move sees no change",
    "MovesOnlyForBalance": "a new target takes from those who stay only what the even shares of all need",
    "HandOverEndsInTime": "nobody holds up the others for longer than the rebalance timeout",
    "NobodyIsFencedEarly": "a member is given up only for its own silence or slowness, never for the broker's",
    "AnsweredOnce": "each request is answered once",
    "RenewalIsHandling": "a heartbeat that says nothing new is answered the short way as it is the long way",
    "ReleaseIsHeard": "what a member says that it does not own any more, it has not to give up any more",
    "NoFatalAnswer": "a living member is never told what ends a stock client",
    "DeadlinesEnd": "where nobody is left, no deadline is",
}
