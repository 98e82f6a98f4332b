"""What a consumer's two sides say to each other of assignments that are computed in the application's thread.

Source: KIP-848 as drafted (client-side assignors).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.values import value

if TYPE_CHECKING:
    from kohort.assign.interface import Assignable


@value
class ComputationWanted:
    """The group's coordinator wants this member to compute an assignment, by the assignor of that name."""

    number: int
    assignor: str
    group: Assignable


@value
class AssignmentSaid:
    """What came with an assignment from the member that computed it; `error` other than 0: none came of it."""

    error: int
    version: int
    metadata: bytes


@value
class ComputationDone:
    """The application's assignor has come to an end with the wanted computation of that number.

    `error`: why nothing came of it, as a sentence; empty: `owner` is checked, and `said` is what members are told.
    """

    number: int
    assignor: str
    owner: array[int]
    said: Mapping[str, bytes]
    error: str
