"""The states of a member and the transitions between them.

Laws: a state changes in `Member._move` alone, which looks it up here; a pair that is not in the table is a bug.
Source: the consumer threading refactor (CTR): the old PREPARING_REBALANCE is split so that the background can wait for
the application's callbacks; KIP-848 and the classic protocol walk through the same states.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class MemberState(Enum):
    """The state of a member, as the client sees it."""

    #: Neither a member nor on the way to be one: nothing is subscribed to.
    UNSUBSCRIBED = "unsubscribed"
    #: The coordinator is being asked for membership.
    JOINING = "joining"
    #: The coordinator takes partitions back: they are paused until the application takes the revocation callback.
    PREPARE_REVOCATION = "prepare revocation"
    #: The application runs the revocation callback; the member waits for its end.
    REVOKING_PARTITION = "revoking partition"
    #: The revoked partitions are off the subscription; their offsets are being committed.
    PARTITION_REVOKED = "partition revoked"
    #: The coordinator is told which partitions were given up; its answer is awaited (classic: JoinGroup and SyncGroup).
    PREPARING_REBALANCE = "preparing rebalance"
    #: The application runs the callback for new partitions; they are paused until it has ended.
    ASSIGNING_PARTITIONS = "assigning partitions"
    #: The member reads the partitions that the coordinator has assigned.
    STABLE = "stable"
    #: The member was removed or cut off. It joins again when the application's callback for the loss has ended.
    FENCED = "fenced"
    #: The leave request of the member is under way.
    LEAVING = "leaving"
    #: The coordinator has refused the member for good; only a new subscription helps.
    FATAL = "fatal"


class Step(Enum):
    """An event that moves a member from one state to another."""

    SUBSCRIBED = "subscribed"
    MUST_REVOKE = "must revoke"
    CALLED = "called"
    ACKNOWLEDGED = "acknowledged"
    COMMITTED = "committed"
    GAINED = "gained"
    SETTLED = "settled"
    MUST_REJOIN = "must rejoin"
    LOST = "lost"
    MUST_LEAVE = "must leave"
    LEFT = "left"
    REFUSED = "refused"


_S = MemberState
#: States of a member that the coordinator knows or may know.
ACTIVE: Final = frozenset(
    {
        _S.JOINING,
        _S.PREPARE_REVOCATION,
        _S.REVOKING_PARTITION,
        _S.PARTITION_REVOKED,
        _S.PREPARING_REBALANCE,
        _S.ASSIGNING_PARTITIONS,
        _S.STABLE,
    }
)

TRANSITIONS: Final[dict[tuple[MemberState, Step], MemberState]] = {
    (_S.UNSUBSCRIBED, Step.SUBSCRIBED): _S.JOINING,
    # The first assignment, or the next one after a revocation.
    (_S.JOINING, Step.GAINED): _S.ASSIGNING_PARTITIONS,
    (_S.JOINING, Step.SETTLED): _S.STABLE,
    (_S.PREPARING_REBALANCE, Step.GAINED): _S.ASSIGNING_PARTITIONS,
    (_S.PREPARING_REBALANCE, Step.SETTLED): _S.STABLE,
    (_S.PREPARING_REBALANCE, Step.MUST_REVOKE): _S.PREPARE_REVOCATION,
    (_S.ASSIGNING_PARTITIONS, Step.ACKNOWLEDGED): _S.STABLE,
    # A later assignment.
    (_S.STABLE, Step.GAINED): _S.ASSIGNING_PARTITIONS,
    (_S.STABLE, Step.MUST_REVOKE): _S.PREPARE_REVOCATION,
    (_S.STABLE, Step.MUST_REJOIN): _S.PREPARING_REBALANCE,
    # The revocation, step by step.
    (_S.PREPARE_REVOCATION, Step.CALLED): _S.REVOKING_PARTITION,
    (_S.REVOKING_PARTITION, Step.ACKNOWLEDGED): _S.PARTITION_REVOKED,
    (_S.PARTITION_REVOKED, Step.COMMITTED): _S.PREPARING_REBALANCE,
    (_S.PARTITION_REVOKED, Step.MUST_LEAVE): _S.LEAVING,
    # Cut off: the partitions are gone, in every state.
    **{(state, Step.LOST): _S.FENCED for state in ACTIVE},
    (_S.FENCED, Step.LOST): _S.FENCED,
    (_S.FENCED, Step.ACKNOWLEDGED): _S.JOINING,
    (_S.FENCED, Step.MUST_LEAVE): _S.LEAVING,
    # Refused for good.
    **{(state, Step.REFUSED): _S.FATAL for state in ACTIVE},
    (_S.FENCED, Step.REFUSED): _S.FATAL,
    (_S.FATAL, Step.LEFT): _S.UNSUBSCRIBED,
    # Leaving: by way of the revocation with partitions, at once without them.
    (_S.ASSIGNING_PARTITIONS, Step.MUST_REVOKE): _S.PREPARE_REVOCATION,
    (_S.JOINING, Step.MUST_LEAVE): _S.LEAVING,
    (_S.PREPARING_REBALANCE, Step.MUST_LEAVE): _S.LEAVING,
    (_S.ASSIGNING_PARTITIONS, Step.MUST_LEAVE): _S.LEAVING,
    (_S.STABLE, Step.MUST_LEAVE): _S.LEAVING,
    (_S.FENCED, Step.LEFT): _S.UNSUBSCRIBED,
    (_S.LEAVING, Step.LEFT): _S.UNSUBSCRIBED,
}
