"""The assignor for groups with an external scheduler: it assigns unowned partitions and moves none.

Laws: an owner that subscribes to its partition's topic keeps it, however uneven that is. Unowned partitions go to
subscribers of their topic so that the loads come out as even as they can without a move. Equal input gives equal
output. Racks, `max_moves` and `imbalance` play no part: there is no move that they could hold back.
Source: requirement H9 (moves that a scheduler asks for); KIP-848 (server-side assignors).
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign.heterogeneous import fill_heterogeneous
from kohort.assign.interface import Assignable
from kohort.assign.uniform import assign_homogeneous


class External:
    """The assignor `external`, which leaves partitions with their owners."""

    name: Final = "external"

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: the present ones, and for each free partition the least loaded subscriber."""
        owner = group.owner[:]
        if not owner:
            return owner
        if group.is_homogeneous:
            assign_homogeneous(owner, len(group.members), max_moves=0)
        else:
            fill_heterogeneous(group.space, owner, group.subscribers)
        return owner
