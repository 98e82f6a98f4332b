"""The messages between a consumer's two sides about assignments that the application computes.

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
    """The coordinator's request to compute an assignment, by the assignor of that name."""

    number: int
    assignor: str
    group: Assignable


@value
class AssignmentSaid:
    """The metadata that came with an assignment, from the member that computed it.

    An `error` other than 0: the computation has failed.
    """

    error: int
    version: int
    metadata: bytes


@value
class ComputationDone:
    """The end of the computation of that number.

    `error`: why it has failed, a sentence. Empty: `owner` is checked, and `said` are the metadata for each member.
    """

    number: int
    assignor: str
    owner: array[int]
    said: Mapping[str, bytes]
    error: str
