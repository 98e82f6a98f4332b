"""Assignors of the user's own in virtual time: each takes a while, now and then fails, and now and then talks nonsense.

Laws: what is under way when the process dies is never heard of again. No assignor fails so often in a row that members
are refused, which they would take as fatal.
Source: the broker's `ownassignors`; issue 4 (bad input: a user's assignor).
"""

from __future__ import annotations

from array import array
from functools import partial

from kohort.assign.registry import built_in
from kohort.coordinator.commands import Command, TargetComputed
from kohort.coordinator.consumer.offload import REFUSE_AFTER
from kohort.coordinator.decision import ComputeTarget, Decision
from kohort.ids import CauseId
from kohort.testing.broker import Home, SimulatedBroker

#: How long a computation takes.
WORK_MS = (0, 1_500)
FAILURE_CHANCE = 0.3


class OffloadingBroker(SimulatedBroker):
    """A broker beside which assignors work; they give what `uniform` gives."""

    def _commit(self, home: Home, command: Command | None, decision: Decision) -> None:
        super()._commit(home, command, decision)
        for order in home.shard.take_computations():
            self._clock.after(self._random.randint(*WORK_MS), self._in_this_life(partial(self._finish, home, order)))

    def _finish(self, home: Home, order: ComputeTarget) -> None:
        if self._stalled_since_ms:
            # The loop will read it when it goes on.
            self._clock.after(WORK_MS[1], self._in_this_life(partial(self._finish, home, order)))
            return
        owner, error = self._work(home, order)
        what = f"hears from the assignor: {error or owner}"
        self._story.tell("broker", what, group_id=order.group_id)
        command = TargetComputed(
            cause=CauseId(self._number()),
            group_id=order.group_id,
            assignable=order.assignable,
            owner=owner,
            error=error,
        )
        self._commit(home, command, home.shard.handle(command, now_ms=self.now_ms()))

    def _work(self, home: Home, order: ComputeTarget) -> tuple[array[int] | None, str]:
        assignor = built_in("uniform")
        assert assignor is not None
        owner = assignor.assign(order.assignable)
        group = home.shard.groups.consumer.get(order.group_id)
        failures = 0 if group is None or group.failure is None else group.failure.count
        if failures + 1 >= REFUSE_AFTER or self._random.random() >= FAILURE_CHANCE:
            return owner, ""
        if not owner or self._random.random() < 0.5:
            return None, "it took too long"
        owner[self._random.randrange(len(owner))] = self._random.choice((-1, len(order.assignable.members)))
        return owner, ""
