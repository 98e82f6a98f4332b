"""The states of a member and the transitions between them.

Laws: a state changes in `Member._move` alone, which looks it up here; a pair that is not in the table is a bug.
Source: the consumer threading refactor (CTR): the old PREPARING_REBALANCE is split so that the background can wait for
the application's callbacks; KIP-848 and the classic protocol walk through the same states.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kohort.base.values import value
from kohort.client.consumer.application_events import CallbackKind, CallbackWanted
from kohort.client.core.requests import Requests
from kohort.ids import TopicPartition


class MemberState(Enum):
    """The state of a member, as the client sees it."""

    #: The consumer has no subscription, and is not a member.
    UNSUBSCRIBED = "unsubscribed"
    #: The member asks the coordinator to join.
    JOINING = "joining"
    #: The coordinator revokes partitions: they are paused until the application begins the revocation callback.
    PREPARE_REVOCATION = "prepare revocation"
    #: The application runs the revocation callback; the member waits for its return.
    REVOKING_PARTITION = "revoking partition"
    #: The revoked partitions are no longer read; their offsets are being committed.
    PARTITION_REVOKED = "partition revoked"
    #: The member notifies the coordinator of revoked partitions and awaits the response (classic: joins and syncs).
    PREPARING_REBALANCE = "preparing rebalance"
    #: The application runs the callback for new partitions; they are paused until it has ended.
    ASSIGNING_PARTITIONS = "assigning partitions"
    #: The member reads the partitions that the coordinator has assigned.
    STABLE = "stable"
    #: The member was removed or cut off. It joins again when the application's callback for the loss has returned.
    FENCED = "fenced"
    #: The leave request of the member is in flight.
    LEAVING = "leaving"
    #: The coordinator has refused the member permanently; only a new call of `subscribe` joins again.
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


@value(frozen=False)
class _Open:
    wanted: CallbackWanted
    is_running: bool
    deadline_ms: int
    #: How often the deadline has passed.
    overdue: int


class Callbacks:
    """The rebalance callback that the application has to run before the member may go on: one at a time.

    Source: the consumer threading refactor (CTR): awaiting callbacks, and what to do when a revocation times out.
    """

    def __init__(self, requests: Requests, *, timeout_ms: int, policy: str) -> None:
        self._requests = requests
        #: How long a revocation may take.
        self._timeout_ms: Final = timeout_ms
        #: `leave`, `retry` (wait without a limit) or `retry_then_leave` (wait once more).
        self._policy: Final = policy
        #: The callback that the application has to run, with its state; `None`: there is none.
        self.opened: _Open | None = None
        self._next_number = 1

    @property
    def open(self) -> CallbackWanted | None:
        """The callback that the application has to run, until it has returned; `None` without one."""
        return None if self.opened is None else self.opened.wanted

    @property
    def is_running(self) -> bool:
        """Whether the application is running that callback now."""
        return self.opened is not None and self.opened.is_running

    def ask(self, kind: CallbackKind, partitions: set[TopicPartition], reason: str, now_ms: int) -> None:
        """Ask the application's side to run a callback; an earlier open one is dropped."""
        wanted = CallbackWanted(
            number=self._next_number, kind=kind, partitions=tuple(sorted(partitions)), reason=reason
        )
        self._next_number += 1
        self.opened = _Open(wanted=wanted, is_running=False, deadline_ms=now_ms + self._timeout_ms, overdue=0)
        self._requests.deliver(wanted)

    def on_started(self, number: int, now_ms: int) -> CallbackWanted | None:
        """Note that a callback has begun, and start its time limit; return `None` if it is not the open one."""
        if self.opened is None or self.opened.wanted.number != number:
            return None
        self.opened.is_running = True
        self.opened.deadline_ms = now_ms + self._timeout_ms
        return self.opened.wanted

    def on_done(self, number: int) -> CallbackWanted | None:
        """Close the callback that has returned, and return it; `None` if it is not the open one."""
        if self.opened is None or self.opened.wanted.number != number:
            return None
        wanted, self.opened = self.opened.wanted, None
        return wanted

    @property
    def late_ms(self) -> int | None:
        """When the time limit of a running revocation callback ends; `None` if none runs."""
        each = self.opened
        is_timed = each is not None and each.is_running and each.wanted.kind is CallbackKind.REVOKED
        return each.deadline_ms if is_timed and each is not None else None

    def must_leave(self, now_ms: int) -> bool:
        """Return whether the revocation callback has run for so long that the member has to leave."""
        if self.opened is None or self.late_ms is None or now_ms < self.late_ms:
            return False
        self.opened.overdue += 1
        if self._policy == "leave" or (self._policy == "retry_then_leave" and self.opened.overdue > 1):
            return True
        self.opened.deadline_ms = now_ms + self._timeout_ms
        self._requests.warn(
            f"the revocation callback has been running for {self._timeout_ms * self.opened.overdue} ms, "
            "which is as long as the group waits (max.poll.interval.ms); its partitions may go to others meanwhile"
        )
        return False
