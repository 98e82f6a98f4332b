"""The user's own assignors of this broker, and the way of their answers to the loop.

Laws: the loop never waits for an assignor that is offloaded. Every order is answered once, on the loop, unless the
broker stops before; never from within the call that gave it.
Source: requirement G5; `ComputeTarget` and `TargetComputed` of the coordinator.
"""

from __future__ import annotations

import asyncio
import pickle
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from kohort.assign.interface import Assignor
from kohort.broker.processes.assignorloading import load_assignor
from kohort.broker.processes.assignorprocess import MOST_WAITING, AssignorProcess
from kohort.coordinator.decision import ComputeTarget

#: (owners or `None`, error); called on the loop.
OnComputed = Callable[["array[int] | None", str], None]


class OwnAssignors:
    """The user's own assignors, by name; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, names: Iterable[str]) -> None:
        self._loop: Final = loop
        self._processes: Final = {name: AssignorProcess(name) for name in names}
        #: Assignors that run on the loop itself, because a group is configured so.
        self._loaded: Final[dict[str, Assignor]] = {}

    def start(self) -> None:
        """Start each assignor's process, which loads it before it is needed."""
        for process in self._processes.values():
            process.start()

    def stop(self) -> None:
        """End every process; orders under way are not answered."""
        for process in self._processes.values():
            process.stop()

    def compute(self, order: ComputeTarget, on_computed: OnComputed) -> None:
        """Carry out an order; `on_computed` gets its result."""
        if not order.is_offloaded:
            self._loop.call_soon(self._compute_here, order, on_computed)
        elif not self._processes[order.assignor].put(order, partial(self._deliver, on_computed)):
            self._loop.call_soon(on_computed, None, f"{MOST_WAITING} groups are waiting for it already")

    def process_id(self, name: str) -> int | None:
        """Return the id of an assignor's running process, `None` if there is none."""
        return self._processes[name].process_id

    def _deliver(self, on_computed: OnComputed, owner: array[int] | None, error: str) -> None:
        """Hand a result to the loop; called on a process's thread."""
        # On a closed loop nothing waits for the result.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(on_computed, owner, error)

    def _compute_here(self, order: ComputeTarget, on_computed: OnComputed) -> None:
        try:
            assignor = self._loaded.get(order.assignor)
            if assignor is None:
                assignor = self._loaded[order.assignor] = load_assignor(order.assignor)
            # The assignor gets a copy that it may change, as in a process of its own.
            owner = assignor.assign(pickle.loads(pickle.dumps(order.assignable)))
        except Exception as why:
            on_computed(None, f"{type(why).__name__}: {why}")
        else:
            on_computed(owner, "")
