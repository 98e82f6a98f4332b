"""The application's assignors, which run in the application's thread when the machine asks.

Laws: an assignor's exception or invalid result is reported to the coordinator and never raised by `poll`: the group
asks another member then. An exception that ends the thread, as Ctrl-C does, is raised, and reported as well: the
application may go on. A result is checked before it is sent, so that the message names the culprit.
Source: KIP-848 as drafted; Kafka's assignors run in the polling thread, too.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from kohort.client.application_events import ConsumerEvent
from kohort.client.computations import AssignmentSaid, ComputationDone, ComputationWanted
from kohort.client.localassignors import LocalAssignor

_LOG: Final = logging.getLogger("kohort.client")


class Assigning:
    """Runs assignors for the machine.

    Args:
        assignors: of the option group.local.assignors, in the order of preference.
        post: takes events for the machine.
    """

    def __init__(self, assignors: tuple[LocalAssignor, ...], post: Callable[[ConsumerEvent], None]) -> None:
        self._assignors: Final = assignors
        self._post = post

    def metadata(self) -> tuple[bytes, ...]:
        """Return each assignor's present metadata; raise the errors of the application's code."""
        return tuple(each.metadata() for each in self._assignors)

    def answer(self, wanted: deque[ComputationWanted | AssignmentSaid]) -> None:
        """Run the assignors for each request in `wanted`, and hand them their assignments."""
        while wanted:
            asked = wanted.popleft()
            if isinstance(asked, ComputationWanted):
                # Posted if the assignor ends the thread, as Ctrl-C does: the coordinator asks another member then.
                done = _failed(asked, "was interrupted")
                try:
                    done = self._compute(asked)
                finally:
                    self._post(done)
                continue
            for each in self._assignors:
                each.on_assignment(asked.error, asked.version, asked.metadata)

    def _compute(self, wanted: ComputationWanted) -> ComputationDone:
        from kohort.assign.answers import find_fault

        chosen = next((each for each in self._assignors if each.name == wanted.assignor), None)
        if chosen is None:
            return _failed(wanted, "is none of this consumer's")
        try:
            owner, said = chosen.assign(wanted.group)
        except Exception as raised:
            _LOG.exception("the assignor %s failed", chosen.name)
            return _failed(wanted, f"raised {type(raised).__name__}: {raised}")
        fault = find_fault(wanted.group, owner)
        if fault:
            return _failed(wanted, fault)
        return ComputationDone(number=wanted.number, assignor=wanted.assignor, owner=owner, said=said, error="")


def _failed(wanted: ComputationWanted, why: str) -> ComputationDone:
    error = f"the assignor {wanted.assignor} {why}"
    return ComputationDone(number=wanted.number, assignor=wanted.assignor, owner=array("i"), said={}, error=error)
