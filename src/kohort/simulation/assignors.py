"""Custom assignors of a simulated broker: slow, wrong, late, or without result.

Laws: every computation ends once, unless the broker dies before. After `heal` results are correct and quick.
Source: requirement G5; `kohort.broker.processes.assignorprocess`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable
from kohort.coordinator.decision import ComputeTarget
from kohort.testing.clock import VirtualClock

#: The name that groups know it by.
OWN_ASSIGNOR: Final = "own"
#: (owners or `None`, the fault in words)
Computed = tuple["array[int] | None", str]
#: Possible behaviours by weight; the names are methods of `SimulatedAssignors`.
_WEIGHTS: Final = {"_right": 12, "_whimsical": 4, "_failing": 3, "_foreign": 2, "_short": 1, "_late": 2}
_USUAL_MS: Final = 20
_SLOW_MS: Final = 3_000


class SimulatedAssignors:
    """Simulated assignors that stand for every name that is not built in."""

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self._clock = clock
        self._random = random
        #: How often it was asked.
        self.asked = 0
        #: From now on it does what it shall, and so do those that members run.
        self.is_healed = False

    def heal(self) -> None:
        """Compute correct targets from now on."""
        self.is_healed = True

    def compute(self, order: ComputeTarget, on_computed: Callable[[Computed], None]) -> None:
        """Compute the assignment of an order; `on_computed` is called later."""
        self.asked += 1
        how = "_right" if self.is_healed else self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        is_slow = order.is_offloaded and not self.is_healed and self._random.random() < 0.3
        delay_ms = self._random.randint(0, _SLOW_MS if is_slow else _USUAL_MS)
        if how == "_late" or delay_ms > order.timeout_ms:
            how, delay_ms = "_late", order.timeout_ms
        computed: Computed = getattr(self, how)(order.assignable)
        self._clock.after(delay_ms, partial(on_computed, computed))

    def _right(self, group: Assignable) -> Computed:
        return even(group), ""

    def _whimsical(self, group: Assignable) -> Computed:
        return legal(group, self._random), ""

    def _failing(self, _: Assignable) -> Computed:
        return None, "ValueError: it cannot cope with that"

    def _late(self, _: Assignable) -> Computed:
        return None, "it takes longer than group.consumer.assignor.timeout.ms"

    def _foreign(self, group: Assignable) -> Computed:
        return foreign(group, self._random), ""

    def _short(self, group: Assignable) -> Computed:
        return array("i", [0] * max(len(group.space) - 1, 0)), ""


class FaultyAssignor:
    """A client-side assignor of the clients' world: mostly correct, sometimes uneven, wrong or failing.

    Source: requirement G9.
    """

    name = "whimsical"

    def __init__(self, random: Random) -> None:
        self._random: Final = random

    def metadata(self) -> bytes:
        """Return new metadata at each call."""
        return self._random.randbytes(2)

    def assign(self, group: Assignable) -> array[int]:
        """See `kohort.assign.interface.Assignor`."""
        match self._random.choice(("right", "right", "odd", "none", "foreign")):
            case "right":
                return even(group)
            case "odd":
                return legal(group, self._random)
            case "none":
                raise ValueError("it cannot cope with that")
        return foreign(group, self._random)

    def tell(self, group: Assignable, owner: array[int]) -> dict[str, bytes]:
        """Return the number of partitions of each member as its message."""
        return {member.member_id: b"%d" % owner.count(number) for number, member in enumerate(group.members)}

    def on_assignment(self, error: int, version: int, metadata: bytes) -> None:
        """Ignore the assignment."""


def even(group: Assignable) -> array[int]:
    """Compute an even and sticky assignment."""
    uniform = built_in("uniform")
    assert uniform is not None
    return uniform.assign(group)


def legal(group: Assignable, random: Random) -> array[int]:
    """Compute a legal assignment that is neither even nor sticky."""
    owner = array("i")
    for count, subscribers in zip(group.space.counts, group.subscribers, strict=True):
        owner.extend(random.choice(subscribers) for _ in range(count))
    return owner


def foreign(group: Assignable, random: Random) -> array[int]:
    """Assign partitions to no member, to unknown members, and to members not subscribed to them."""
    return array("i", (random.randint(-1, len(group.members)) for _ in range(len(group.space))))
